//! Fills the owner's cache, and allocates when it is empty.
//!
//! What   the slow side of [`Bound`]: deferred buffers first, then lanes and ring, then the provider.
//! Who    only the bound thread. While the pool lives, messages are received only here (I2, I5).
//! Order  as in net/core/page_pool.c:page_pool_refill_alloc_cache and __page_pool_alloc_netmems_slow (v7.3):
//!        stop at the first off-node page; count `alloc_empty` if lanes and ring had nothing.
//! Callbacks (of provider, domains, users of deferred buffers) run between borrows of the owner's state, and
//! may drop buffers into the cache.
//! Cost   a refill: per page one load and two stores; no atomic read-modify-write.

mod open_page;
mod recorded;
mod shrink;

use std::panic::Location;

use crate::buf::page_buf::PageBuf;
use crate::core::pool_core::{PoolPtr, ReleaseOnPanic};
use crate::mem::page::{NodeId, PageIdx};
use crate::pool::bound::Bound;
use crate::pool::params::MAX_REFILL;
use crate::probes;
use crate::recycle::lane::{Lane, STARVED, raise_all};
use crate::recycle::message::{Message, MessageQueue};
use crate::returns::late::give_back_all;
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
                let page = self.alloc_recorded(holders, Location::caller())?;
                return Some(PageBuf::whole(pool, page));
            }
            self.shrink_as_requested();
        }
        Some(PageBuf::whole(pool, self.alloc_missed()?))
    }

    /// Allocates a page when the cache is empty: the list of attempts, in their order.
    #[inline(always)]
    pub(crate) fn alloc_missed(&self) -> Option<PageIdx> {
        self.refill().or_else(|| self.reserve()).or_else(|| self.last_attempt()).or_else(|| self.failed())
    }

    /// The last attempt of an allocation. Takes the page being cut if it is whole; otherwise arms the
    /// wake-up, and looks again if that raised flags.
    fn last_attempt(&self) -> Option<PageIdx> {
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
            let Collected { page, met_off_node } = self.collect();
            // Last, because the fragments of this refill may have completed the open page.
            let found = page.or_else(|| self.reserve()).or_else(|| self.whole_open_page());
            // An off-node page ended the look, and the provider may have given it to another pool.
            if found.is_some() || !met_off_node {
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

    /// Refills the cache with pages that returned, and takes one out: first polls the deferred queue, then
    /// collects from lanes and ring. Counts in `alloc_empty` if they had nothing.
    fn refill(&self) -> Option<PageIdx> {
        if let Some(deferred) = self.deferred() {
            // Buffers whose users are done return as dropped buffers do: usually into the cache.
            deferred.poll(self.policy(|p| p.refill));
        }
        let Collected { page, met_off_node } = self.collect();
        if page.is_none() && !met_off_node {
            self.core().own.counts.alloc_empty.add(1);
        }
        page
    }

    /// Moves pages from lanes and ring into the cache, up to the refill size, and takes one out. Stops at the
    /// first off-node page, which leaves the pool.
    fn collect(&self) -> Collected {
        let pool = self.ptr();
        // Checking the heads is cheap; a drain also needs this thread's node, perhaps by a system call.
        // `overflowed` is read without the lock: the next refill finds what this misses.
        let quiet =
            pool.ring.is_empty() && pool.lanes.are_empty() && !pool.overflowed.load(Ordering::Relaxed);
        let off_node = if quiet { None } else { self.drain() };
        let page = pool.own.cache.pop(self.owner());
        pool.own.counts.alloc_refill.add(u64::from(page.is_some()));
        // Last, after the pop: `release` is a callback, and may drop buffers into the cache.
        if let Some(off_node) = off_node {
            self.release_off_node(off_node, page);
        }
        Collected { page, met_off_node: off_node.is_some() }
    }

    /// Takes an off-node page out of the pool, while the caller has `page` in hand.
    #[cold]
    fn release_off_node(&self, off_node: PageIdx, page: Option<PageIdx>) {
        let pool = self.ptr();
        pool.own.counts.alloc_waive.add(1);
        let in_hand = page.map(|page| ReleaseOnPanic { pool, page });
        let node = pool.area.node_of(off_node); // before it is reused
        pool.return_to_provider_here(self.owner(), off_node);
        probes::waive(pool.id, off_node.0, node.0);
        std::mem::forget(in_hand);
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
                if self.take_lives(queue, refill, pages) {
                    continue;
                }
                if pool.own.cache.count() >= refill {
                    break;
                }
            }
            let Some(message) = queue.pop() else { break };
            let of_frags = message.is_frag();
            *pages += usize::from(!of_frags);
            if !of_frags && !pool.ends_life(message) {
                continue;
            }
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

    /// Takes messages of lives until the cache has `refill` pages; returns whether there were any.
    fn take_lives(&self, queue: &impl MessageQueue, refill: usize, pages: &mut usize) -> bool {
        let pool = self.ptr();
        let (Some(lives), room) = (pool.lives, refill.saturating_sub(pool.own.cache.count())) else {
            return false;
        };
        let mut taken = 0;
        let kept = pool.own.cache.fill(self.owner(), room, |space| {
            let ends = lives.end_sent();
            let (all, kept) = lives.owned(|| queue.take_lives(space, move |page, half| ends(page.0, half)));
            taken = all;
            kept
        });
        *pages += taken;
        pool.own.counts.returned_twice.add((taken - kept) as u64);
        taken > 0
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
        pool.split_page_stays(owner, page)
    }

    /// Puts a returned page into the cache, or returns it if it is off-node. A page that was in fragments now
    /// counts in `recycle_ring`.
    fn cache_unless_off_node(&self, page: PageIdx, node: Option<NodeId>, of_frags: bool) -> Option<PageIdx> {
        let pool = self.ptr();
        let off_node = node.is_some_and(|node| pool.area.node_of(page) != node);
        if !off_node && !pool.own.cache.push(self.owner(), page) {
            pool.recycle_in_ring(page); // more pages than the cache has room for
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
            pool.page_meta(page).pool.store(pool.id, Ordering::Release); // pairs with from_raw()
            counts.hold.add(1); // before the sync: a page whose sync panics leaves
            pool.sync_for_device(page, usize::MAX);
            if !pool.own.cache.push(owner, page) {
                // A callback filled the cache.
                pool.return_to_provider_here(owner, page);
            }
        }
        let page = pool.own.cache.pop(owner);
        if page.is_some() && came {
            let high_order = pool.geometry.order() > 0;
            if high_order { &counts.alloc_slow_high_order } else { &counts.alloc_slow }.add(1);
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
        pool.area.starved.add(&pool.wakeup); // its fence: lanes claimed later raise the flag themselves
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
}

/// What lanes and ring had.
struct Collected {
    page: Option<PageIdx>,
    /// Whether an off-node page ended the search, so that more may be there.
    met_off_node: bool,
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
