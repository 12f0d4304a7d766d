//! Returns idle pages to the provider, down to what the owner wants to keep.
//!
//! What   idle pages go to the provider in this order: lanes, ring, a cut page that is whole again, the
//!        oldest of the cache. Fragments in lanes and ring are collected on the way, and the pages
//!        they complete go, too.
//! Who    [`Bound::shrink`]: the owner (I2). [`PoolRef::ask_to_shrink`]: any thread; the owner finds the
//!        request at its next refill, `poll_deferred` or `acknowledge_wake`.
//! Pairs  requester: request, then the wake-up's lock and the signal. Owner: the lock, clearing the signal,
//!        then the request. An owner that clears a signal finds its request.
//! Linux  net/core/page_pool.c:page_pool_empty_ring, page_pool_empty_alloc_cache_once (v7.3), which run only
//!        at the end of a pool: each page counts as one that left, and as nothing else.
//! Callbacks (of the provider, users of deferred buffers, syncs) run with no borrow of the pool live.

use crate::core::pool_core::{NO_REQUEST, NO_REQUEST_BUT_TRACKS};
use crate::mem::page::PageIdx;
use crate::pool::bound::Bound;
use crate::pool::pool_ref::{PoolRef, inflight};
use crate::pool::refill::Taken;
use crate::recycle::message::{Message, MessageQueue};
use crate::returns::late;
use crate::sys::sync::Ordering;

/// Pages given to the provider in one call.
const TOGETHER: usize = 64;

impl Bound {
    /// Gives idle pages back to the provider until at most `keep` are left in cache, lanes and ring; returns
    /// how many went. Polls the deferred buffers first. Buffers that other threads return during the call may
    /// stay. [`Arena::trim`](crate::Arena::trim) then gives the memory of whole regions back to the system.
    ///
    /// Counts the pages in `release`, like a pool's end. A page with fragments out is not idle. Cost: about
    /// 15 ns per page.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, Pool, PoolParams};
    /// let arena = Arena::new(ArenaParams { max_bytes: 64 << 20, ..Default::default() })?;
    /// let pool = Pool::new(PoolParams::default(), arena.clone())?.bind();
    /// let burst: Vec<_> = (0..1000).map(|_| pool.alloc_page().unwrap()).collect();
    /// drop(burst); // the pool keeps these pages
    /// assert!(arena.pages_out() >= 1000);
    /// assert!(pool.shrink(100) >= 900);
    /// assert_eq!(arena.pages_out(), 100);
    /// pool.shrink(0);
    /// assert!(arena.trim() > 0);
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    pub fn shrink(&self, keep: usize) -> usize {
        if let Some(deferred) = self.deferred() {
            deferred.poll(usize::MAX);
        }
        self.give_idle_back(keep)
    }

    /// Executes the request of [`PoolRef::ask_to_shrink`], if any. For the owner's slow path.
    #[inline]
    pub(crate) fn shrink_if_requested(&self) {
        if self.has_request() {
            self.shrink_as_requested();
        }
    }

    /// Whether there is a request. Always true in a pool with holders.
    #[inline(always)]
    pub(crate) fn has_request(&self) -> bool {
        self.ptr().shrink_request.load(Ordering::Relaxed) != NO_REQUEST
    }

    #[cold]
    pub(crate) fn shrink_as_requested(&self) {
        let pool = self.ptr();
        let nothing = if pool.holders.is_some() { NO_REQUEST_BUT_TRACKS } else { NO_REQUEST };
        let keep = pool.shrink_request.swap(nothing, Ordering::Relaxed);
        if keep < NO_REQUEST_BUT_TRACKS {
            self.give_idle_back(keep as usize);
        }
    }

    fn give_idle_back(&self, keep: usize) -> usize {
        let pool = self.ptr();
        let _lent = self.lend_idle_cache();
        let mut idle = IdlePages::count(self, keep);
        for lane in pool.lanes.listed_lanes() {
            let mut taken = Taken { lane, pages: 0 };
            idle.drain(lane, &mut taken.pages);
        }
        idle.collect_overflow();
        idle.drain(&pool.ring, &mut 0);
        idle.page_being_cut();
        idle.oldest_of_the_cache();
        idle.give_back();
        idle.left
    }
}

impl PoolRef {
    /// Requests that the owner [shrink](Bound::shrink) the pool to `keep` idle pages. Any thread; returns at
    /// once.
    ///
    /// The owner does it at its next refill, [`poll_deferred`](Bound::poll_deferred) or
    /// [`acknowledge_wake`](Bound::acknowledge_wake); with `wakeup`, this wakes a sleeping owner. Of several
    /// requests the lowest counts. Does nothing in a pool that has ended.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, Pool, PoolParams, Registry};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 4 << 20, ..Default::default() })?;
    /// let pool = Pool::new(PoolParams::default(), arena.clone())?.bind();
    /// drop(pool.alloc_page());
    /// // On any thread, when memory is short:
    /// Registry::process().pools().iter().for_each(|pool| pool.ask_to_shrink(0));
    /// // The owner, some time later:
    /// pool.poll_deferred();
    /// assert_eq!(arena.pages_out(), 0);
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    pub fn ask_to_shrink(&self, keep: usize) {
        let keep = u32::try_from(keep).unwrap_or(u32::MAX).min(NO_REQUEST_BUT_TRACKS - 1);
        let pool = self.ptr();
        pool.shrink_request.fetch_min(keep, Ordering::Relaxed);
        // After the request: its lock orders the two for an owner that clears the signal.
        pool.wakeup.signal();
    }
}

/// The idle pages of a pool that shrinks, and those on their way out.
struct IdlePages<'a> {
    bound: &'a Bound,
    keep: usize,
    /// Pages in cache, lanes and ring.
    idle: usize,
    leaving: [PageIdx; TOGETHER],
    /// Entries of `leaving`.
    len: usize,
    left: usize,
}

impl<'a> IdlePages<'a> {
    fn count(bound: &'a Bound, keep: usize) -> Self {
        let at = inflight(&bound.ptr());
        let idle = (at.cache + at.lanes + at.ring) as usize;
        Self { bound, keep, idle, leaving: [PageIdx(0); TOGETHER], len: 0, left: 0 }
    }

    fn too_many(&self) -> bool {
        self.idle > self.keep
    }

    /// Takes an idle page out of the pool.
    fn leave(&mut self, page: PageIdx) {
        self.idle = self.idle.saturating_sub(1);
        self.leaving[self.len] = page;
        self.len += 1;
        if self.len == TOGETHER {
            self.give_back();
        }
    }

    fn give_back(&mut self) {
        let pages = &self.leaving[..std::mem::take(&mut self.len)];
        let pool = self.bound.ptr();
        self.left += pages.len();
        pool.own.counts.release.add(pages.len() as u64);
        if !pages.is_empty() {
            late::give_back_all(pool, pages);
        }
    }

    /// Takes pages out while there are too many, and all fragments before them; adds the number of page
    /// messages to `pages`. Empties a queue at most once, because other threads may keep pushing.
    fn drain(&mut self, queue: &impl MessageQueue, pages: &mut usize) {
        for _ in 0..queue.capacity() {
            let leaves = |message: Message| message.is_frag() || self.too_many();
            if !queue.peek().is_some_and(leaves) {
                return;
            }
            let Some(message) = queue.pop() else { return };
            if message.is_frag() {
                let (page, frags) = message.frags(self.bound.ptr().geometry.head_mask);
                self.collect_frags(page, frags);
            } else {
                *pages += 1;
                if self.bound.ptr().ends_life(message) {
                    self.leave(message.page());
                }
            }
        }
    }

    fn collect_overflow(&mut self) {
        let pool = self.bound.ptr();
        while pool.overflowed.load(Ordering::Relaxed) {
            let taken = pool.take_overflow(&mut pool.returns.lock());
            let Some((page, frags)) = taken else { return };
            self.collect_frags(page, frags);
        }
    }

    /// Counts fragments that returned as messages. A page that they complete is idle, and counts in
    /// `recycle_ring`, as in a refill.
    fn collect_frags(&mut self, page: PageIdx, frags: u32) {
        if !self.bound.collect_frags(page, frags) {
            return;
        }
        let pool = self.bound.ptr();
        pool.own.counts.recycle_ring.add(1);
        self.idle += 1;
        if self.too_many() || !pool.own.cache.push(self.bound.owner(), page) {
            self.leave(page);
        }
    }

    /// The page being cut leaves if all its fragments have returned and `keep` is reached.
    fn page_being_cut(&mut self) {
        if self.idle < self.keep || !self.bound.open_page_is_whole() {
            return;
        }
        if let Some(page) = self.bound.close_frag() {
            self.idle += 1;
            self.leave(page);
        }
    }

    fn oldest_of_the_cache(&mut self) {
        let pool = self.bound.ptr();
        while self.too_many() && pool.own.cache.count() > 0 {
            let room = TOGETHER - self.len;
            let n = room.min(self.idle - self.keep);
            let leaving = &mut self.leaving[self.len..];
            let taken = pool.own.cache.take_oldest(self.bound.owner(), n, |pages| {
                leaving.iter_mut().zip(pages).for_each(|(place, &page)| *place = PageIdx(page));
            });
            self.len += taken;
            self.idle -= taken;
            if self.len == TOGETHER {
                self.give_back();
            }
        }
    }
}

impl Drop for IdlePages<'_> {
    /// Gives back the pages taken out, also if a callback panics.
    fn drop(&mut self) {
        self.give_back();
    }
}
