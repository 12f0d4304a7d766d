//! Fills the owner's cache, and allocates when it is empty.
//!
//! What   the slow side of [`Bound`]: deferred buffers first, then lanes and ring, then the provider; and the
//!        next page to cut.
//! Who    only the bound thread. While the pool lives, messages are received only here (I2, I5).
//! Order  as in net/core/page_pool.c:page_pool_refill_alloc_cache and __page_pool_alloc_netmems_slow (v7.3):
//!        stop at the first off-node page; count `alloc_empty` if lanes and ring had nothing.
//! Callbacks (of provider, domains, users of deferred buffers) run between borrows of the owner's state, and
//! may drop buffers into the cache.
//! Cost   a refill: per page one load and two stores; no atomic read-modify-write.

// UNSAFETY: the owner's state is reached through its owner cells.
#![expect(unsafe_code)]

mod recorded;
mod shrink;

use std::panic::Location;

use crate::buf::handle_bits::FragBits;
use crate::buf::page_buf::PageBuf;
use crate::core::pool_core::{PoolPtr, ReleaseOnPanic};
use crate::mem::page::{EMERGENCY, NodeId, PageIdx};
use crate::pool::bound::Bound;
use crate::pool::params::MAX_REFILL;
use crate::probes;
use crate::recycle::frag::BIAS;
use crate::recycle::lane::{Lane, STARVED, raise_all};
use crate::recycle::lane_list::LaneSet;
use crate::recycle::message::{Message, MessageQueue};
use crate::returns::frag_return::SplitPage;
use crate::returns::late::give_back_all;
use crate::stats::Counter;
use crate::sys::sync::Ordering;

impl Bound {
    /// Allocates a page when the cache is empty: from lanes and ring, or from the provider. Fills the cache,
    /// too.
    #[cold]
    #[inline(never)]
    #[track_caller]
    pub(crate) fn alloc_slow(&self) -> Option<PageBuf> {
        let pool = self.ptr();
        if self.has_request() {
            if let Some(holders) = &self.core().holders {
                return self.alloc_recorded(holders, Location::caller());
            }
            self.shrink_as_requested();
        }
        self.alloc_missed(pool)
    }

    /// Allocates a page when the cache is empty, without the requests of `alloc_slow`. `pool` is this pool,
    /// which the caller already has.
    #[inline(always)]
    pub(crate) fn alloc_missed(&self, pool: PoolPtr) -> Option<PageBuf> {
        // Pages of the reserve never enter the cache, so the slow path allocates them first.
        if let Some(buffer) = self.alloc_emergency(&pool.own.counts.alloc_fast) {
            return Some(buffer);
        }
        let found = self.refill(true).0.or_else(|| self.reserve());
        if let Some(page) = found {
            return Some(PageBuf::whole(pool, page));
        }
        if let Some(buffer) = self.alloc_emergency(self.slow_counter()) {
            return Some(buffer);
        }
        if let Some(page) = self.last_attempt() {
            return Some(PageBuf::whole(pool, page));
        }
        self.alloc_emergency(self.slow_counter()).or_else(|| self.failed())
    }

    /// The last attempt of an allocation. Takes the page being cut if it is whole; otherwise arms the
    /// wake-up, and looks again if that raised flags.
    pub(crate) fn last_attempt(&self) -> Option<PageIdx> {
        if let Some(page) = self.whole_open_page() {
            return Some(page);
        }
        self.arm_wakeup();
        if self.policy(|p| p.recheck) { self.recheck() } else { None }
    }

    /// Looks for pages after the flags were raised: a page that came between the first look and the flags
    /// woke no thread. Continues until nothing is left, because pages that were in lanes and ring before the
    /// flags, or with the provider before the pool was listed, wake no thread later.
    fn recheck(&self) -> Option<PageIdx> {
        let found = loop {
            let (page, off_node) = self.refill(false);
            // Last, because the fragments of this refill may have completed the open page.
            let found = page.or_else(|| self.reserve()).or_else(|| self.whole_open_page());
            // An off-node page ended the look, and the provider may have given it to another pool.
            if found.is_some() || !off_node {
                break found;
            }
        };
        // If it found one, the flags stay raised and not all was visited: the next failure looks again.
        self.policy(|p| p.recheck = found.is_some());
        found
    }

    #[cold]
    pub(crate) fn failed<T>(&self) -> Option<T> {
        self.count_failure();
        None
    }

    /// Separate from `failed`: a probe's note in a generic function names an instance that the linker may
    /// have dropped.
    #[cold]
    fn count_failure(&self) {
        let pool = self.ptr();
        pool.own.counts.alloc_failed.add(1);
        probes::starve(pool.id, pool.pages());
    }

    /// Allocates a page of the emergency reserve that the provider included. Counts it in `counter`: as one
    /// of the cache, except at the end of the slow path.
    fn alloc_emergency(&self, counter: &Counter) -> Option<PageBuf> {
        let pool = self.ptr();
        // SAFETY: I2; no callback runs while the borrow lives.
        let page = unsafe { &mut *pool.own.emergency.get() }.pop()?;
        counter.add(1);
        Some(PageBuf::new(pool, page, FragBits::MAY_HAVE_REFS))
    }

    /// The counter of allocations that the provider served.
    fn slow_counter(&self) -> &Counter {
        let pool = self.core();
        let counts = &pool.own.counts;
        if pool.geometry.order() == 0 { &counts.alloc_slow } else { &counts.alloc_slow_high_order }
    }

    /// Moves pages from lanes and ring into the cache, up to the refill size, and takes one out. Stops at the
    /// first off-node page, which leaves the pool, and returns whether there was one. Only the `first` look
    /// of an allocation polls the deferred queue, and counts in `alloc_empty` if it finds nothing.
    fn refill(&self, first: bool) -> (Option<PageIdx>, bool) {
        let pool = self.ptr();
        if first && let Some(deferred) = self.deferred() {
            // Buffers whose users are done return as dropped buffers do: usually into the cache.
            deferred.poll(self.policy(|p| p.refill));
        }
        // Checking the heads is cheap; a drain also needs this thread's node, perhaps by a system call.
        // `overflowed` is read without the lock: the next refill finds what this misses.
        let quiet =
            pool.ring.is_empty() && pool.lanes.are_empty() && !pool.overflowed.load(Ordering::Relaxed);
        let off_node = if quiet { None } else { self.drain() };
        let page = pool.own.cache.pop(self.owner());
        let counts = &pool.own.counts;
        match (page, off_node) {
            (Some(_), _) => counts.alloc_refill.add(1),
            (None, None) => counts.alloc_empty.add(u64::from(first)),
            (None, Some(_)) => {}
        }
        // Last, after the pop: `release` is a callback, and may drop buffers into the cache.
        if let Some(off_node) = off_node {
            counts.alloc_waive.add(1);
            let in_hand = page.map(|page| ReleaseOnPanic { pool, page });
            let node = pool.area.node_of(off_node); // before it is reused
            pool.leave_here(self.owner(), off_node);
            probes::waive(pool.id, off_node.0, node.0);
            std::mem::forget(in_hand);
        }
        (page, off_node.is_some())
    }

    /// Empties lanes, overflow and ring into the cache until it has a refill. Returns the off-node page that
    /// ended it.
    fn drain(&self) -> Option<PageIdx> {
        let pool = self.ptr();
        // Once for all messages, because it may be a system call.
        let node = self.node_to_check();
        let (first, refill) = self.policy(|p| (p.next_queue, p.refill));
        let lanes = pool.lanes.all();
        let (before, after) = pool.lanes.listed().split_at(first);
        let ring = lanes.len(); // after the lanes
        for at in after.chain([ring]).chain(before) {
            let off_node = match lanes.get(at) {
                Some(lane) => {
                    let mut taken = Taken { lane, pages: 0 };
                    self.drain_from(lane, node, refill, &mut taken.pages)
                }
                None => {
                    let off_node = self.collect_overflow(node);
                    off_node.or_else(|| self.drain_from(&pool.ring, node, refill, &mut 0))
                }
            };
            if off_node.is_some() || pool.own.cache.count() >= refill {
                // The next refill begins after this queue: a busy one does not hold up the others.
                self.policy(|p| p.next_queue = if at == ring { 0 } else { at + 1 });
                return off_node;
            }
        }
        None
    }

    /// Takes messages until the cache has `refill` pages, none is left, or one is an off-node page, which it
    /// returns. Adds the number of page messages to `pages`.
    fn drain_from(
        &self,
        queue: &impl MessageQueue,
        node: Option<NodeId>,
        refill: usize,
        pages: &mut usize,
    ) -> Option<PageIdx> {
        let pool = self.ptr();
        let room = || refill.checked_sub(pool.own.cache.count()).filter(|&room| room > 0);
        while let Some(room) = room() {
            // No node to compare: whole pages move in one copy, up to the next fragment.
            if node.is_none() {
                *pages += pool.own.cache.fill(self.owner(), room, |space| queue.take_pages(space));
                if pool.own.cache.count() >= refill {
                    break;
                }
            }
            let Some(message) = queue.pop() else { break };
            let of_frags = message.is_frag();
            *pages += usize::from(!of_frags);
            let page = match of_frags {
                true => self.collect_message(message),
                false => Some(message.page()),
            };
            if let Some(page) = page
                && let Some(off_node) = self.cache_unless_off_node(page, node, of_frags)
            {
                return Some(off_node);
            }
        }
        None
    }

    /// Collects fragments that found no room for a message, a page at a time. Stops at an off-node page, and
    /// returns it. Takes the lock only if there are any.
    fn collect_overflow(&self, node: Option<NodeId>) -> Option<PageIdx> {
        let pool = self.ptr();
        while pool.overflowed.load(Ordering::Relaxed) {
            let (page, frags) = pool.take_overflow(&mut pool.returns.lock())?;
            if self.collect_frags(page, frags)
                && let Some(off_node) = self.cache_unless_off_node(page, node, true)
            {
                return Some(off_node);
            }
        }
        None
    }

    /// Counts the fragments of a message. Returns the page if it is now complete and stays in the pool.
    pub(crate) fn collect_message(&self, message: Message) -> Option<PageIdx> {
        let (page, n) = message.frags(self.core().geometry.head_mask);
        self.collect_frags(page, n).then_some(page)
    }

    /// Counts fragments that returned as messages. Returns whether the page is now complete and stays in the
    /// pool.
    pub(crate) fn collect_frags(&self, page: PageIdx, n: u32) -> bool {
        let (pool, owner) = (self.ptr(), self.owner());
        pool.note_collected(page, n);
        if !pool.frag_counted(owner, page, n) {
            return false;
        }
        pool.own.in_frags.take(1);
        pool.split_page_stays(owner, page) != SplitPage::Left
    }

    /// Puts a returned page into the cache, or returns it if it is off-node. A page that was in fragments now
    /// counts in `recycle_ring`.
    fn cache_unless_off_node(&self, page: PageIdx, node: Option<NodeId>, of_frags: bool) -> Option<PageIdx> {
        let pool = self.ptr();
        let off_node = node.is_some_and(|node| pool.area.node_of(page) != node);
        if !off_node && !pool.own.cache.push(self.owner(), page) {
            pool.ring_or_out(page); // more pages than the cache has room for
            return None;
        }
        pool.own.counts.recycle_ring.add(u64::from(of_frags));
        off_node.then_some(page)
    }

    /// Reserves a refill of pages from the provider, or one page of a higher order. Returns one.
    fn reserve(&self) -> Option<PageIdx> {
        let pool = self.ptr();
        let order = pool.geometry.order();
        let mut pages = [PageIdx(0); MAX_REFILL];
        // As in Linux: one page at a time of a higher order, because a bulk of them is rarely free.
        let want = if order == 0 { self.policy(|p| p.refill) } else { 1 };
        let node = self.policy(|p| (!p.node_blind, p.nid));
        let provider = pool.provider();
        let node = node.0.then(|| node.1.unwrap_or_else(|| provider.current_node()));
        let got = provider.reserve(order, node, &mut pages[..want]);
        let fresh = Fresh { pool, pages: &pages[..got] };
        // Read before the pages join: joining runs callbacks, which may reserve more.
        let available = provider.available(order);
        let page = self.join(fresh);
        let left = available + pool.own.cache.count();
        let low = self.policy(|p| {
            p.low_water_mark = p.low_water_mark.min(left);
            left < p.low_water
        });
        if low {
            probes::starve(pool.id, pool.pages());
            self.arm_wakeup();
        }
        if got > 0 {
            probes::alloc_slow(pool.id, got, order);
        }
        page
    }

    /// Takes fresh pages into the pool and the cache, and takes one out.
    fn join(&self, mut fresh: Fresh<'_>) -> Option<PageIdx> {
        let (pool, owner) = (self.ptr(), self.owner());
        let counts = &pool.own.counts;
        let came = !fresh.pages.is_empty();
        while let [page, rest @ ..] = fresh.pages {
            let page = *page;
            fresh.pages = rest;
            let meta = pool.page_meta(page);
            meta.pool.store(pool.id, Ordering::Release); // pairs with from_raw()
            counts.hold.add(1); // before the sync: a page whose sync panics leaves
            pool.sync_for_device(page, usize::MAX);
            let emergency = pool.area.has_emergency() && meta.refs.load(Ordering::Relaxed) & EMERGENCY != 0;
            if emergency {
                // SAFETY: I2; no callback runs while the borrow lives.
                unsafe { &mut *pool.own.emergency.get() }.push(page);
            } else if !pool.own.cache.push(owner, page) {
                // A callback filled the cache.
                pool.leave_here(owner, page);
            }
        }
        let page = pool.own.cache.pop(owner);
        if page.is_some() && came {
            self.slow_counter().add(1);
        }
        page
    }

    /// Arms the wake-up: the next page will signal. Raises `starved` in the pool and in every listed lane,
    /// and adds the pool to its area's starved pools. The failing allocation then looks for pages again:
    /// `recheck`.
    fn arm_wakeup(&self) {
        let pool = self.ptr();
        let (unacknowledged, waiting, fd_lent) =
            self.policy(|p| (p.unacknowledged, p.waiting > 0, p.fd_lent));
        if !waiting && !pool.wakeup.has_fd() {
            return; // no thread sleeps
        }
        // The heavy fence costs about 1,600 cycles: once per signal, because a pending one ends any sleep.
        // Only the kernel knows whether a program with the descriptor has read, and thereby cleared, the
        // signal.
        if unacknowledged && (!fd_lent || pool.wakeup.is_starved() || !pool.wakeup.signal_was_read()) {
            return;
        }
        // Before the flags: a returner that sees one calls `wake`, which reads this.
        pool.wakeup.arm();
        pool.area.starved().add(&pool.wakeup); // its fence: lanes claimed later raise the flag themselves
        raise_all(pool.lanes.listed_lanes(), STARVED);
        self.policy(|p| (p.unacknowledged, p.recheck) = (true, true));
    }

    /// The node on which pages from lanes and ring must be, if any may differ. `None` if the area has no page
    /// there and cannot grow: each refill would then replace pages by others like them.
    fn node_to_check(&self) -> Option<NodeId> {
        let pool = self.ptr();
        let node = self.policy(|p| p.nid).unwrap_or_else(|| pool.provider().current_node());
        (pool.area.only_node() != Some(node) && pool.area.may_have_pages_of(node)).then_some(node)
    }

    // ---- Fragments ------------------------------------------------------------------------------

    /// Called if the open page has no room for a fragment of `size`. Closes it, and opens it again if it has
    /// returned, else another. Returns whether the caller can now cut one.
    #[cold]
    #[inline(never)]
    pub(crate) fn open_next(&self, size: usize) -> bool {
        let pool = self.ptr();
        if size.wrapping_sub(1) >= pool.cut_limit {
            if size.wrapping_sub(1) >= pool.geometry.page_size() {
                pool.own.counts.alloc_failed.add(1);
            }
            return false; // a size that fits: open_recorded() is next
        }
        self.open(Self::page_to_cut)
    }

    /// Opens a page to cut: `page_to_cut` provides it if the last one has fragments out.
    #[inline(always)]
    pub(crate) fn open(&self, page_to_cut: impl FnOnce(&Self) -> Option<PageIdx>) -> bool {
        let pool = self.ptr();
        self.drain_frags();
        let page = if let Some(page) = self.close_frag() {
            pool.own.counts.recycle_cached.add(1);
            pool.own.counts.alloc_fast.add(1);
            page
        } else if let Some(page) = page_to_cut(self) {
            page
        } else {
            return false;
        };
        while pool.own.frag_is_open() {
            // A callback opened a page, and closing that one runs callbacks, too.
            let in_hand = ReleaseOnPanic { pool, page };
            self.close_other();
            in_hand.keep();
        }
        pool.page_meta(page).frags.store(BIAS, Ordering::Relaxed);
        pool.own.frag_open.store(true, Ordering::Relaxed);
        // SAFETY: I2; no callback runs while the borrow lives.
        unsafe { &mut *pool.own.frag.get() }.open(page, pool.geometry.page_size);
        true
    }

    #[cold]
    fn close_other(&self) {
        let pool = self.ptr();
        if let Some(page) = self.close_frag() {
            pool.cached_carefully(page);
        }
    }

    /// Stops cutting the open page. Returns it if all its fragments have returned and nothing refers to it.
    #[inline(always)]
    pub(crate) fn close_frag(&self) -> Option<PageIdx> {
        let (pool, owner) = (self.ptr(), self.owner());
        // SAFETY: I2; no callback runs while the borrow lives.
        let frag = unsafe { &mut *pool.own.frag.get() };
        let waste = frag.waste(pool.geometry.page_size());
        let (page, unused) = frag.close()?;
        pool.own.frag_waste.add(waste);
        // Only for observers, which may not read the cell: no ordering.
        pool.own.frag_open.store(false, Ordering::Relaxed);
        if !pool.frag_counted(owner, page, unused) {
            pool.own.in_frags.add(1);
            return None;
        }
        if pool.page_meta(page).refs.load(Ordering::Acquire) != 0 {
            pool.own.counts.recycle_released_refcnt.add(1);
            pool.has_no_holder(page);
            pool.leave_here(owner, page);
            return None;
        }
        if pool.needs_work_on_return {
            pool.prepare_split_page(page);
        }
        Some(page)
    }

    /// Takes the page being cut if no fragment of it is out: an owner that waits for a return would wait for
    /// ever. Counts it as a cut that finds its page complete: into the cache and out.
    fn whole_open_page(&self) -> Option<PageIdx> {
        if !self.open_page_is_whole() {
            return None;
        }
        // If something refers to it, it leaves; the drop of the last reference wakes the owner.
        let page = self.close_frag()?;
        let counts = &self.core().own.counts;
        counts.recycle_cached.add(1);
        counts.alloc_fast.add(1);
        Some(page)
    }

    /// Whether a page is being cut and no fragment of it is out.
    pub(crate) fn open_page_is_whole(&self) -> bool {
        let pool = self.ptr();
        // SAFETY: I2; no callback runs while the borrow lives.
        let frag = unsafe { &*pool.own.frag.get() };
        frag.is_whole(|page| {
            let meta = pool.page_meta(page);
            meta.frags.load(Ordering::Relaxed).wrapping_add(meta.parts.load(Ordering::Relaxed))
        })
    }

    /// Allocates a whole page to cut, and syncs all of it: fragments may begin before packets do.
    fn page_to_cut(&self) -> Option<PageIdx> {
        let pool = self.ptr();
        let (_, page, _) = self.alloc_page()?.into_parts();
        pool.sync_split_page(page);
        Some(page)
    }

    /// Collects the fragments at the heads of busy lanes, and of one other lane, to find pages whose
    /// fragments have all returned: soon, or at the next refill, which visits every listed lane.
    #[inline(always)]
    fn drain_frags(&self) {
        let listed = self.ptr().lanes.listed();
        if !listed.is_empty() {
            self.drain_frags_of(listed);
        }
    }

    /// A function of its own: a cut in a pool without lanes then needs few registers.
    #[inline(never)]
    fn drain_frags_of(&self, listed: LaneSet) {
        let pool = self.ptr();
        let mut busy = LaneSet::NONE;
        for at in pool.own.lane_rotation.take(listed) {
            let lane = &pool.lanes.all()[at];
            // Whole pages wait for the next refill: the cache may have no room for them.
            while let Some((page, frags)) = lane.take_frags(pool.geometry.head_mask) {
                busy.insert(at);
                pool.note_collected(page, frags);
                pool.frags_here(self.owner(), page, frags, true);
            }
            pool.lanes.unlist_if_over(at);
        }
        pool.own.lane_rotation.set_busy(busy);
    }
}

/// Pages from the provider that have not joined the pool. If a callback panics, they go back.
struct Fresh<'a> {
    pool: PoolPtr,
    pages: &'a [PageIdx],
}

impl Drop for Fresh<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.pages.is_empty() {
            give_back_all(self.pool, self.pages);
        }
    }
}

/// Its drop counts the pages taken out of a lane, also if a callback panics.
pub(crate) struct Taken<'a> {
    pub(crate) lane: &'a Lane,
    pub(crate) pages: usize,
}

impl Drop for Taken<'_> {
    #[inline]
    fn drop(&mut self) {
        self.lane.count_taken(self.pages as u64);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::sys::sync::{HEAVY_FENCES, LOCKS_TAKEN};
    use std::sync::Arc;

    use crate::{DeviceMemory, NoDirectRecycle, NodeId, Pool, PoolParams};

    fn one_page() -> Arc<DeviceMemory> {
        DeviceMemory::new("one page", 1 << 12, NodeId(0)).expect("it is small")
    }

    /// The check is a lock, and under it a system call.
    #[test]
    fn the_wakeup_descriptor_is_checked_only_if_it_was_lent() {
        let locks = [false, true].map(|lent| {
            let params = PoolParams { wakeup: true, ..Default::default() };
            let pool = Pool::new(params, one_page()).unwrap().bind();
            let mut page = pool.alloc_page();
            assert!(pool.alloc_page().is_none(), "arms");
            assert!(!lent || pool.wake_fd().is_some());
            let before = LOCKS_TAKEN.get();
            for _ in 0..101 {
                let scope = NoDirectRecycle::enter();
                drop(page.take()); // signals, the first time
                drop(scope);
                page = pool.alloc_page();
                assert!(page.is_some() && pool.alloc_page().is_none());
            }
            LOCKS_TAKEN.get() - before
        });
        assert_eq!(locks[1] - locks[0], 101);
    }

    #[test]
    fn one_heavy_fence_for_each_signal_that_was_acknowledged() {
        for max_lanes in [0, 64] {
            let params = PoolParams { wakeup: true, max_lanes, ..Default::default() };
            let pool = Pool::new(params, one_page()).unwrap().bind();
            let mut page = pool.alloc_page();
            let before = HEAVY_FENCES.get();
            for sleeps in 1..=3 {
                assert!(pool.alloc_page().is_none(), "arms");
                for _ in 0..100 {
                    let scope = NoDirectRecycle::enter();
                    drop(page.take()); // signals, the first time
                    drop(scope);
                    page = pool.alloc_page();
                    assert!(page.is_some() && pool.alloc_page().is_none());
                }
                assert_eq!(HEAVY_FENCES.get() - before, sleeps, "{max_lanes} lanes");
                pool.acknowledge_wake();
            }
            drop(page);
        }
    }
}
