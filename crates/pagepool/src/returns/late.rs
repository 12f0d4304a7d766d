//! Returns to a pool that has ended, up to the last one, which frees the pool.
//!
//! Who    any thread. A returner that finds its pool ended accounts for its own pages, and touches the pool
//!        no more.
//! How    (the steps are those of shutdown.rs) each page that returns late takes one from `remaining`; the
//!        return that brings it to 0 frees the pool. A late fragment is counted in its page's record, under
//!        the return lock; the one that completes the page accounts for it.

// UNSAFETY: the last return frees the pool, and gives pages back to their provider.
#![expect(unsafe_code)]

use std::sync::Arc;

use crate::home::lane::Lane;
use crate::home::message::Message;
use crate::mem::page::PageIdx;
use crate::mem::provider::give_back;
use crate::returns::end_watch::EndWatch;
use crate::returns::pool_core::PoolPtr;
use crate::sys::published_memory::UnseenPool;
use crate::sys::sync::Ordering;

/// Gives pages that left the pool to its provider, now or with their last reference.
pub(crate) fn give_back_all(pool: PoolPtr, pages: &[PageIdx]) {
    let provider = pool.provider().clone();
    let free: Vec<PageIdx> =
        pages.iter().copied().filter(|&page| provider.area().clear_record(page)).collect();
    // SAFETY: I1. The pages came from this provider with the pool's order, and nobody has them any more.
    unsafe { give_back(&*provider, pool.geometry.order(), &free) };
}

/// Pages that returned after the end, for which this thread accounts.
#[cold]
pub(crate) fn came_home_late(pool: PoolPtr, pages: &[PageIdx]) {
    if pages.is_empty() {
        return; // nothing of the pool is held here, so it may be gone
    }
    pool.late.fetch_add(pages.len() as u64, Ordering::Relaxed);
    // Before they are accounted for: the last account frees the pool, and with it the count that keeps the
    // provider.
    let _late = Late { pool, pages: pages.len() as i64 };
    give_back_all(pool, pages);
}

/// Accounts for pages that returned late when they went back, also if the provider panics.
struct Late {
    pool: PoolPtr,
    pages: i64,
}

impl Drop for Late {
    fn drop(&mut self) {
        if self.pool.watch.account(self.pages) {
            free(self.pool);
        }
    }
}

/// Fragments, at least one, by their pages, that returned after the end.
#[cold]
pub(crate) fn frags_came_home_late(pool: PoolPtr, frags: &[u32]) {
    let complete: Vec<PageIdx> = {
        let returns = pool.returns.lock();
        let pages = frags.iter().map(|&page| PageIdx(page));
        pages.filter(|&page| pool.late_frags_counted(&returns, page, 1)).collect()
    };
    // Where none is complete this thread holds nothing of the pool any more: unlocking was its last access.
    came_home_late(pool, &complete);
}

/// The returner's part of step 3: it saw the flag after its push.
#[cold]
pub(crate) fn drain_late(pool: PoolPtr, lane: &Lane) {
    // Everything is taken out first: once a callback runs below, the thread may have let go of the lane.
    let messages = lane.take_all();
    if messages.is_empty() {
        return; // the ender took them, and the pool may be gone
    }
    let pages: Vec<PageIdx> = {
        let returns = pool.returns.lock();
        let home = |message: Message| {
            if !message.is_frag() {
                return Some(message.page());
            }
            let (page, n) = message.frags(pool.geometry.head_mask);
            pool.late_frags_counted(&returns, page, n).then_some(page)
        };
        messages.into_iter().filter_map(home).collect()
    };
    came_home_late(pool, &pages);
}

/// The last page has returned and the owner is gone: frees everything, then tells who deferred.
pub(crate) fn free(pool: PoolPtr) {
    let _finish = Finish(pool.watch.clone()); // dropped last
    *pool.row.lock() = Err(UnseenPool::new());
    // SAFETY: I9. `remaining` is 0: no owner, no buffer and no message is left, so nobody reads the parts any
    // more.
    let provider = unsafe { pool.provider.take() };
    // SAFETY: I9. Nobody reads the registration any more; with it goes the memory id, which nothing carries
    // (I8).
    drop(unsafe { pool.registration.take() });
    #[cfg(loom)]
    // SAFETY: I9. Nobody follows the pool's address any more.
    unsafe {
        pool.get().as_ref().alive.take()
    };
    // SAFETY: I9. The count below keeps the pool.
    let count = unsafe { pool.get().as_ref() }.count.as_ptr();
    // SAFETY: `Pool::new` set this count aside for the pool itself by not dropping its `Arc`; it is dropped
    // once, here. A `Weak` of that `Arc` gives, while a count is left, the pointer that `Arc::into_raw` would
    // have given.
    drop(unsafe { Arc::from_raw(count) });
    drop(provider);
}

/// Tells who waits for the end, also if the drop of a provider or a domain panics.
struct Finish(Arc<EndWatch>);

impl Drop for Finish {
    fn drop(&mut self) {
        self.0.finish();
    }
}
