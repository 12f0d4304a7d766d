//! How a whole page returns.
//!
//! Who    any thread. The owner's thread puts a page into the cache, any other into its lane.
//! Order  as in net/core/page_pool.c:__page_pool_put_page (v7.3): not recyclable -> sync for the device ->
//!        cache (owner only) -> lane (others) -> ring -> out of the pool.
//! Life   after its message is visible a returner touches the lane, and never the pool, which may be gone.
//! Callbacks (of providers, domains) run with no lock held and no borrow of the cache live, so they may drop
//! buffers.
//! Cost   on the owner's thread: no atomic read-modify-write. Remote: one Release store into a lane.

// UNSAFETY: a page that leaves the pool goes back to its provider.
#![expect(unsafe_code)]

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use crate::home::cache::OwnerProof;
use crate::home::lane::{DETACHED, Lane, STARVED};
use crate::home::message::Message;
use crate::mem::page::PageIdx;
use crate::mem::provider::{Provider, give_back};
use crate::probes;
use crate::returns::late;
use crate::returns::pool_core::{PoolPtr, ReturnState};
use crate::sys::sync::{Ordering, fence, light_fence};

/// What a returner copied of a pool before a page left it. The page is not counted as the pool's any more, so
/// the pool may be freed at any time; the provider keeps the area.
struct Gone {
    provider: Arc<dyn Provider>,
    order: u8,
}

impl Gone {
    /// Gives a page that was counted as released to the provider, now or with its last reference.
    fn give_back(self, page: PageIdx) {
        if self.provider.area().clear_record(page) {
            self.give_free(page);
        }
    }

    /// Gives a page whose record was cleared, and to which nothing refers.
    fn give_free(self, page: PageIdx) {
        // SAFETY: I1. The page came from this provider with the pool's order, and nobody has it any more.
        unsafe { give_back(&*self.provider, self.order, &[page]) };
    }
}

impl PoolPtr {
    /// A whole page on the owner's thread that the fast path did not take. `dirty` bytes were written at
    /// most.
    #[inline(never)]
    pub(crate) fn recycle_here(self, owner: OwnerProof, page: PageIdx, special: bool, dirty: usize) {
        if special && self.page_meta(page).refs.load(Ordering::Acquire) != 0 {
            self.own.counts.recycle_released_refcnt.add(1);
            self.has_no_holder(page);
            return self.leave_here(owner, page);
        }
        if self.careful {
            self.comes_home_carefully(page, dirty);
            return self.cached_carefully(page);
        }
        self.cache_or_ring(page);
    }

    /// As [`cache_or_ring`](Self::cache_or_ring); in a pool with holders the cache is the stock.
    #[cold]
    pub(crate) fn cached_carefully(self, page: PageIdx) {
        let Some(owner) = self.owner_here() else { return self.send_page(page) };
        if self.idle_cache().push(owner, page) {
            self.own.counts.recycle_cached.add(1);
        } else {
            self.own.counts.recycle_cache_full.add(1);
            self.ring_or_out(page);
        }
    }

    /// Into the cache, or the ring if that is full, or out of the pool. Asks again who the owner is: a sync
    /// is a callback, and may have unbound or ended the pool.
    #[inline(never)] // so that whoever ends with it needs no stack frame
    pub(crate) fn cache_or_ring(self, page: PageIdx) {
        let Some(owner) = self.owner_here() else { return self.send_page(page) };
        if self.own.cache.push(owner, page) {
            self.own.counts.recycle_cached.add(1);
        } else {
            self.own.counts.recycle_cache_full.add(1);
            self.ring_or_out(page);
        }
    }

    /// A whole page on any thread but the owner's.
    pub(crate) fn recycle_remote(self, page: PageIdx, special: bool, dirty: usize) {
        if special && self.page_meta(page).refs.load(Ordering::Acquire) != 0 {
            return self.release_held(page);
        }
        self.comes_home(page, dirty);
        self.send_page(page);
    }

    /// A whole page that needs nothing but to return: lane, ring, or out of the pool.
    #[inline(never)]
    pub(crate) fn send_page(self, page: PageIdx) {
        if let Some(lane) = self.lane()
            && lane.push(Message::of_page(page))
        {
            return self.after_push(lane, lane.after_push());
        }
        self.ring_or_out(page);
    }

    /// Through the ring whatever the thread, and out of the pool if the ring is full. Linux:
    /// `page_pool_recycle_in_ring`.
    #[inline(never)]
    pub(crate) fn ring_or_out(self, page: PageIdx) {
        match self.returns.try_lock() {
            Some(returns) => self.ring_under(returns, page),
            None => self.ring_after_wait(page),
        }
    }

    /// Apart from the way without a wait, which then needs no stack: so are the next two.
    #[cold]
    #[inline(never)]
    fn ring_after_wait(self, page: PageIdx) {
        self.ring_under(self.returns.lock(), page);
    }

    #[inline(always)]
    fn ring_under(self, mut returns: impl DerefMut<Target = ReturnState>, page: PageIdx) {
        if returns.detached || !self.ring.push(&mut returns.tail, Message::of_page(page)) {
            return self.out_of_ring(returns, page);
        }
        self.returned.recycle_ring.add(1);
        self.unlock_and_wake(returns);
    }

    #[cold]
    #[inline(never)]
    fn out_of_ring(self, returns: impl Deref<Target = ReturnState>, page: PageIdx) {
        if returns.detached {
            self.late_ring.add(1);
            return self.out(returns, page);
        }
        self.returned.recycle_ring_full.add(1);
        self.returned.release.add(1);
        let pool = self.id; // the pool may be gone after the next line
        self.out(returns, page);
        probes::ring_full(pool, page.0);
    }

    /// After a push into the ring: lets go of the return lock, and of the pool, and wakes an owner that found
    /// nothing.
    #[inline(always)]
    pub(crate) fn unlock_and_wake(self, returns: impl Deref<Target = ReturnState>) {
        light_fence(); // pairs with the heavy fence in raise_all()
        if self.wakeup.is_starved() {
            self.wake_unlocked(returns);
        }
    }

    #[cold]
    #[inline(never)]
    fn wake_unlocked(self, returns: impl Deref<Target = ReturnState>) {
        let wakeup = self.wakeup.clone();
        drop(returns); // wakers are callbacks
        wakeup.wake();
    }

    /// A page that was counted as released under the return lock goes to the provider; in a pool that has
    /// ended the returner accounts for it instead. What that takes is taken along before the lock is let go,
    /// for then the pool may end.
    #[cold]
    fn out(self, returns: impl Deref<Target = ReturnState>, page: PageIdx) {
        if returns.detached {
            drop(returns);
            return late::came_home_late(self, &[page]);
        }
        let gone = self.gone();
        drop(returns);
        gone.give_back(page);
    }

    /// Many whole pages through the ring under one lock; what does not fit is handled one by one.
    pub(crate) fn ring_bulk(self, pages: &[u32]) {
        RingLeft { pool: self, pages }.send();
    }

    /// A page with a reference returns on a thread that is not the owner's.
    #[cold]
    fn release_held(self, page: PageIdx) {
        self.has_no_holder(page);
        let returns = self.returns.lock();
        self.returned.recycle_released_refcnt.add(1);
        self.leave_under(returns, page);
    }

    // ---- Out of the pool ------------------------------------------------------------------------

    /// The owner lets a page go.
    pub(crate) fn leave_here(self, _owner: OwnerProof, page: PageIdx) {
        self.own.counts.release.add(1);
        // The pool is there until a callback runs: only the owner's thread could end it. So a page that its
        // last reference will free, as in Linux's slow path, needs no count of the provider.
        if self.area.clear_record(page) {
            self.gone().give_free(page);
        }
    }

    /// A page that is nowhere but with its caller leaves the pool; on any thread.
    #[cold]
    pub(crate) fn leave(self, page: PageIdx) {
        self.leave_under(self.returns.lock(), page);
    }

    fn leave_under(self, returns: impl Deref<Target = ReturnState>, page: PageIdx) {
        if !returns.detached {
            self.returned.release.add(1);
        }
        self.out(returns, page);
    }

    /// The provider and the order, for a returner that is about to let go of the pool.
    fn gone(self) -> Gone {
        Gone { provider: self.provider().clone(), order: self.geometry.order() }
    }

    /// Acts on the flags that a returner saw after its push; 0 almost always. The pool may be gone by now,
    /// unless the lane still holds a message.
    #[inline(always)]
    pub(crate) fn after_push(self, lane: &Lane, flags: u32) {
        if flags & (DETACHED | STARVED) != 0 {
            flagged(self, lane, flags);
        }
    }
}

/// Whole pages on their way into the ring. They go there also if a callback panics meanwhile: a waker, a
/// provider.
pub(crate) struct RingLeft<'a> {
    pub(crate) pool: PoolPtr,
    pub(crate) pages: &'a [u32],
}

impl RingLeft<'_> {
    /// With none left this thread may hold nothing of the pool any more, and does not look at it.
    pub(crate) fn send(&mut self) {
        let pool = self.pool;
        if self.pages.len() > 1 {
            let mut returns = pool.returns.lock();
            let fits = |page: &&u32| {
                !returns.detached && pool.ring.push(&mut returns.tail, Message::of_page(PageIdx(**page)))
            };
            let pushed = self.pages.iter().take_while(fits).count();
            self.pages = &self.pages[pushed..];
            pool.returned.recycle_ring.add(pushed as u64);
            pool.unlock_and_wake(returns);
        }
        while let [page, rest @ ..] = self.pages {
            self.pages = rest;
            pool.ring_or_out(PageIdx(*page));
        }
    }
}

impl Drop for RingLeft<'_> {
    fn drop(&mut self) {
        self.send();
    }
}

#[cold]
fn flagged(pool: PoolPtr, lane: &Lane, flags: u32) {
    fence(Ordering::Acquire); // pairs with raise_all()
    if flags & DETACHED != 0 {
        return late::drain_late(pool, lane); // nobody sleeps on a pool that has ended
    }
    lane.lower(STARVED);
    // A count of its own: wakers are callbacks, and may make this thread let go of the lane.
    let wakeup = lane.wakeup.clone();
    wakeup.wake();
}
