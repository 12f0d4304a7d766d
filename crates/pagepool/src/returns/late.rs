//! Returns to a pool that has ended, up to the last, which frees the pool.
//!
//! Who    any thread. A returner that finds its pool ended accounts for its own pages, then no longer touches
//!        the pool.
//! How    (steps of shutdown.rs) each late page subtracts one from `remaining`; the return that brings it to
//!        0 frees the pool. A late fragment is counted in its page's record, under the return lock; the one
//!        that completes the page accounts for it.

// UNSAFETY: the last return frees the pool, and gives pages to their provider.
#![expect(unsafe_code)]

use std::ptr::NonNull;
use std::sync::Arc;

use crate::core::end_watch::EndWatch;
use crate::core::pool_core::{PoolCore, PoolPtr};
use crate::mem::page::PageIdx;
use crate::mem::provider::give_back;
use crate::recycle::lane::Lane;
use crate::recycle::message::Message;
use crate::sys::published_memory::UnseenPool;
use crate::sys::sync::Ordering;

/// Gives pages that left the pool to its provider, now or with their last reference.
pub(crate) fn give_back_all(pool: PoolPtr, pages: &[PageIdx]) {
    let provider = pool.provider().clone();
    let free: Vec<PageIdx> =
        pages.iter().copied().filter(|&page| provider.area().clear_record(page)).collect();
    // SAFETY: I1. The pages came from this provider with the pool's order, and have no other user.
    unsafe { give_back(&*provider, pool.geometry.order(), &free) };
}

/// Accounts for pages that returned after the end.
#[cold]
pub(crate) fn return_late_pages(pool: PoolPtr, pages: &[PageIdx]) {
    if pages.is_empty() {
        return; // this thread holds nothing of the pool, which may be freed
    }
    pool.late.fetch_add(pages.len() as u64, Ordering::Relaxed);
    // Before the account: the last account frees the pool, and with it the count that keeps the provider.
    let _late = Late { pool, pages: pages.len() as i64 };
    give_back_all(pool, pages);
}

/// Accounts for late pages after they went to the provider, also if that panics.
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

/// Counts fragments (at least one, given by their pages) that returned after the end.
#[cold]
pub(crate) fn return_late_frags(pool: PoolPtr, frags: &[u32]) {
    let complete: Vec<PageIdx> = {
        let returns = pool.returns.lock();
        let pages = frags.iter().map(|&page| PageIdx(page));
        pages.filter(|&page| pool.late_frags_counted(&returns, page, 1)).collect()
    };
    // If no page is complete, unlocking was this thread's last access to the pool.
    return_late_pages(pool, &complete);
}

/// The returner's part of step 3, after it saw the flag behind its push.
#[cold]
pub(crate) fn drain_late(pool: PoolPtr, lane: &Lane) {
    // Takes all messages first: once a callback runs below, the thread may have released the lane.
    let messages = lane.take_all();
    if messages.is_empty() {
        return; // the ender took them, and the pool may be freed
    }
    settle(&pool, messages);
}

/// Accounts for messages that came after the end. If they are all lives that had ended, the pool may be
/// freed; the caller keeps its memory.
pub(crate) fn settle(core: &PoolCore, messages: Vec<Message>) {
    let pool = PoolPtr::new(NonNull::from(core));
    let pages: Vec<PageIdx> = {
        let returns = core.returns.lock();
        let complete = |message: Message| {
            if !message.is_frag() {
                return core.ends_life_late(&returns, message).then_some(message.page());
            }
            let (page, n) = message.frags(core.geometry.head_mask);
            pool.late_frags_counted(&returns, page, n).then_some(page)
        };
        messages.into_iter().filter_map(complete).collect()
    };
    return_late_pages(pool, &pages);
}

/// Frees everything and then notifies waiting threads. The last page has returned and the owner is gone.
pub(crate) fn free(pool: PoolPtr) {
    let _finish = Finish(pool.watch.clone()); // dropped last
    *pool.row.lock() = Err(UnseenPool::new());
    // SAFETY: I9. `remaining` is 0: no owner, buffer or message is left to read the parts.
    let provider = unsafe { pool.provider.take() };
    // SAFETY: I9. No thread reads the registration any more. The memory id ends with it; no frame carries it
    // (I8).
    drop(unsafe { pool.registration.take() });
    #[cfg(loom)]
    // SAFETY: I9. No thread follows the pool's address any more.
    unsafe {
        pool.get().as_ref().alive.take()
    };
    // SAFETY: I9. The count below keeps the pool.
    let count = unsafe { pool.get().as_ref() }.count.as_ptr();
    // SAFETY: `Pool::new` set this count aside for the pool by not dropping its `Arc`; this is its only drop.
    // While a count is left, a `Weak` gives the pointer that `Arc::into_raw` would have given.
    drop(unsafe { Arc::from_raw(count) });
    drop(provider);
}

/// Notifies threads that wait for the end, also if the drop of a provider or a domain panics.
struct Finish(Arc<EndWatch>);

impl Drop for Finish {
    fn drop(&mut self) {
        self.0.finish();
    }
}
