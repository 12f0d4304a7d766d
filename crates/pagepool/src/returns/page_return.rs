//! How a whole page returns.
//!
//! Who    any thread. The owner's thread puts a page into the cache, any other into its lane.
//! Order  as in net/core/page_pool.c:__page_pool_put_page (v7.3): not recyclable -> sync for the device ->
//!        cache (owner only) -> lane (others) -> ring -> out of the pool.
//! Life   after its message is visible a returner touches only the lane, never the pool, which may be freed.
//! Callbacks (of providers, domains) run with no lock held and no borrow of the cache live, so they may drop
//! buffers.
//! Cost   on the owner's thread: no atomic read-modify-write. Remote: one Release store into a lane.

// UNSAFETY: a page that leaves the pool returns to its provider.
#![expect(unsafe_code)]

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::core::pool_core::{PoolCore, PoolPtr, ReturnState};
use crate::mem::page::PageIdx;
use crate::mem::provider::give_back;
use crate::probes;
use crate::recycle::cache::OwnerProof;
use crate::recycle::lane::{DETACHED, Lane, STARVED};
use crate::recycle::message::Message;
use crate::returns::late;
use crate::sys::sync::{Ordering, fence, light_fence};

impl PoolPtr {
    /// Returns a whole page on the owner's thread that the fast path did not take. At most `dirty` bytes were
    /// written. Linux: `__page_pool_put_page`.
    #[inline(never)]
    pub(crate) fn put_page_here(self, owner: OwnerProof, page: PageIdx, special: bool, dirty: usize) {
        if special && self.page_meta(page).refs.load(Ordering::Acquire) != 0 {
            self.own.counts.recycle_released_refcnt.add(1);
            self.has_no_holder(page);
            return self.return_to_provider_here(owner, page);
        }
        self.prepare_for_reuse(page, dirty);
        self.recycle_in_cache(page);
    }

    /// Returns a whole page on any thread but the owner's.
    pub(crate) fn put_page_remote(self, page: PageIdx, special: bool, dirty: usize) {
        if special && self.page_meta(page).refs.load(Ordering::Acquire) != 0 {
            self.has_no_holder(page);
            let returns = self.returns.lock();
            self.returned.recycle_released_refcnt.add(1);
            return self.return_to_provider(returns, page);
        }
        self.prepare_for_reuse(page, dirty);
        self.recycle_in_lane(page);
    }

    /// Puts a page into the cache, or the ring, or out of the pool. Checks the owner again, because a sync is
    /// a callback and may have unbound or ended the pool. Linux: `page_pool_recycle_in_cache`.
    #[inline(never)] // a tail call needs no stack frame
    pub(crate) fn recycle_in_cache(self, page: PageIdx) {
        let Some(owner) = self.owner_here() else { return self.recycle_in_lane(page) };
        let cache = if self.needs_work_on_return { self.idle_cache() } else { &self.own.cache };
        if cache.push(owner, page) {
            self.own.counts.recycle_cached.add(1);
        } else {
            self.own.counts.recycle_cache_full.add(1);
            self.recycle_in_ring(page);
        }
    }

    /// Sends a whole page that needs no other work: into the lane, the ring, or out of the pool.
    #[inline(never)]
    pub(crate) fn recycle_in_lane(self, page: PageIdx) {
        if let Some(lane) = self.lane()
            && lane.push(Message::of_page(page))
        {
            return self.after_push(lane, lane.after_push());
        }
        self.recycle_in_ring(page);
    }

    /// Puts a page into the ring on any thread, or out of the pool if the ring is full. Linux:
    /// `page_pool_recycle_in_ring`.
    #[inline(never)]
    pub(crate) fn recycle_in_ring(self, page: PageIdx) {
        match self.returns.try_lock() {
            Some(returns) => self.push_to_ring(returns, page),
            None => self.recycle_in_ring_after_wait(page),
        }
    }

    /// A function of its own: the path without a wait then needs no stack frame.
    #[cold]
    #[inline(never)]
    fn recycle_in_ring_after_wait(self, page: PageIdx) {
        self.push_to_ring(self.returns.lock(), page);
    }

    #[inline(always)]
    fn push_to_ring(self, mut returns: impl DerefMut<Target = ReturnState>, page: PageIdx) {
        if returns.detached || !self.ring.push(&mut returns.tail, Message::of_page(page)) {
            return self.ring_is_full(returns, page);
        }
        self.returned.recycle_ring.add(1);
        self.unlock_and_wake(returns);
    }

    /// The ring has no room, or the pool has ended: the page leaves the pool.
    #[cold]
    #[inline(never)]
    fn ring_is_full(self, returns: impl Deref<Target = ReturnState>, page: PageIdx) {
        if returns.detached {
            self.late_ring.add(1);
            return self.return_to_provider(returns, page);
        }
        self.returned.recycle_ring_full.add(1);
        let pool = self.id; // the next line may free the pool
        self.return_to_provider(returns, page);
        probes::ring_full(pool, page.0);
    }

    /// Takes a page that only the caller has out of the pool, and gives it to the provider. Any thread; the
    /// owner calls the next one. Counts the page under the return lock, and copies what it needs before it
    /// unlocks, because the pool may end then. If the pool has ended, the page counts as late. Linux:
    /// `page_pool_return_netmem`.
    #[cold]
    pub(crate) fn return_to_provider(self, returns: impl Deref<Target = ReturnState>, page: PageIdx) {
        if returns.detached {
            drop(returns);
            return late::return_late_pages(self, &[page]);
        }
        self.returned.release.add(1);
        // The pool no longer counts the page, so it may be freed at any time. The provider keeps the area.
        let (provider, order) = (self.provider().clone(), self.geometry.order());
        drop(returns);
        if provider.area().clear_record(page) {
            // SAFETY: I1. The page came from this provider with the pool's order, and has no other user.
            unsafe { give_back(&*provider, order, &[page]) };
        }
    }

    /// The owner takes a page out of the pool, without a lock.
    pub(crate) fn return_to_provider_here(self, _owner: OwnerProof, page: PageIdx) {
        self.own.counts.release.add(1);
        // The pool lives until a callback runs: only the owner's thread could end it. A page that its last
        // reference will free (as in Linux's slow path) needs no count of the provider.
        if self.area.clear_record(page) {
            let (provider, order) = (self.provider().clone(), self.geometry.order());
            // SAFETY: I1. The page came from this provider with the pool's order, and has no other user.
            unsafe { give_back(&*provider, order, &[page]) };
        }
    }

    /// Sends many whole pages through the ring under one lock; the pages that do not fit, one by one.
    pub(crate) fn ring_bulk(self, pages: &[u32]) {
        UnsentPages { pool: self, pages }.send();
    }

    // ---- Signals --------------------------------------------------------------------------------

    /// After a push into the ring: releases the return lock, and with it the pool, and wakes an owner that
    /// found nothing.
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

    /// Acts on the flags that a returner saw after its push; almost always 0. The pool may be freed by now,
    /// unless the lane still holds a message.
    #[inline(always)]
    pub(crate) fn after_push(self, lane: &Lane, flags: u32) {
        if flags & (DETACHED | STARVED) != 0 {
            flagged(self, lane, flags);
        }
    }
}

impl PoolCore {
    /// Returns a plain page whose life another thread may end, too: see `LifeTable`. Any thread. If it did,
    /// the pool may have been freed; the caller keeps its memory, and only the life's end allows more.
    pub(crate) fn put_life(&self, page: PageIdx, life: u32) {
        let message = Message::of_life(page, life);
        if let Some(lane) = self.lane()
            && lane.push(message)
        {
            return match lane.after_push() {
                0 => {}
                flags if flags & DETACHED != 0 => self.take_late(lane),
                _ => wake_owner(lane),
            };
        }
        let pool = PoolPtr::new(NonNull::from(self));
        let mut returns = self.returns.lock();
        if !returns.detached && self.ring.push(&mut returns.tail, message) {
            self.returned.recycle_ring.add(1);
            pool.unlock_and_wake(returns);
        } else if self.ends_life_late(&returns, message) {
            pool.ring_is_full(returns, page);
        }
    }

    /// Accounts for what the calling thread sent after the pool's end. The caller keeps the pool's memory.
    #[cold]
    pub(crate) fn take_late(&self, lane: &Lane) {
        fence(Ordering::Acquire); // pairs with raise_all()
        late::settle(self, lane.take_all());
    }

    /// Whether a message's page is the pool's again: its life ends, or it came without one. Otherwise it
    /// returned twice, which is counted. For the holder of the owner half.
    pub(crate) fn ends_life(&self, message: Message) -> bool {
        let (page, life) = (message.page().0, message.life());
        let ends = life == 0 || self.lives.is_some_and(|lives| lives.owned(|| lives.end_sent()(page, life)));
        self.own.counts.returned_twice.add(u64::from(!ends));
        ends
    }

    /// The same on any thread, under the return lock.
    pub(crate) fn ends_life_late(&self, _returns: &ReturnState, message: Message) -> bool {
        let (page, life) = (message.page().0, message.life());
        let ends = life == 0 || self.lives.is_some_and(|lives| lives.claim_sent(page, life));
        self.returned.returned_twice.add(u64::from(!ends));
        ends
    }
}

/// Whole pages on their way into the ring. Its drop sends them also if a callback (waker, provider) panics.
pub(crate) struct UnsentPages<'a> {
    pub(crate) pool: PoolPtr,
    pub(crate) pages: &'a [u32],
}

impl UnsentPages<'_> {
    /// Without pages left this thread may hold nothing of the pool, and does not read it.
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
            pool.recycle_in_ring(PageIdx(*page));
        }
    }
}

impl Drop for UnsentPages<'_> {
    fn drop(&mut self) {
        self.send();
    }
}

#[cold]
fn flagged(pool: PoolPtr, lane: &Lane, flags: u32) {
    fence(Ordering::Acquire); // pairs with raise_all()
    if flags & DETACHED != 0 {
        return late::drain_late(pool, lane); // a pool that has ended has no sleeper
    }
    wake_owner(lane);
}

/// Wakes the owner that raised [`STARVED`] in this lane.
pub(crate) fn wake_owner(lane: &Lane) {
    lane.lower(STARVED);
    // A count of its own: a waker is a callback, and may make this thread release the lane.
    let wakeup = lane.wakeup.clone();
    wakeup.wake();
}
