//! The counters: declared once, here.
//!
//! What   Linux's eleven under Linux's names, allocation failures, and the two that balance: hold and release. Apart from
//!        them, what became of buffers that wait (deferred_queue.rs).
//! Who    a [`Counters`] has one writer at a time (the owner, or whoever holds the return lock); anyone may read at any
//!        time. So a count costs a plain add, and reading costs the owner nothing (note 0003).
//! Adding one: a line in `stats!`, and the increment. The struct, the sum, names, order and the documentation follow.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// One number with one writer. A plain add in memory: no lock prefix.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds; for the one writer.
    #[inline(always)]
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// Takes away what was added; for the one writer.
    pub(crate) fn take(&self, n: u64) {
        self.add(n.wrapping_neg());
    }

    /// Reads; for anyone.
    #[inline(always)]
    pub(crate) fn read(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Sets a starting value; for tests of the wrap-around.
    #[cfg(test)]
    pub(crate) fn start_at(&self, n: u64) {
        self.0.store(n, Relaxed);
    }
}

macro_rules! stats {
    ($(#[$about:meta])+ $stats:ident, $counters:ident { $($(#[doc = $doc:literal])+ $name:ident,)+ }) => {
        $(#[$about])+
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct $stats { $($(#[doc = $doc])+ pub $name: u64,)+ }

        impl $stats {
            /// Names in declaration order.
            pub const NAMES: &[&str] = &[$(stringify!($name)),+];

            /// Names and values in declaration order, for tables and exporters.
            ///
            /// ```
            #[doc = concat!("let stats = pagepool::", stringify!($stats), "::default();")]
            /// assert!(stats.fields().iter().all(|(_, value)| *value == 0));
            /// ```
            pub fn fields(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name)),+]
            }

            /// What happened since an earlier snapshot, right across wrap-around.
            ///
            /// ```
            #[doc = concat!("let before = pagepool::", stringify!($stats), "::default();")]
            /// let after = before;
            /// assert_eq!(after.since(&before), before, "nothing happened");
            /// ```
            pub fn since(&self, earlier: &Self) -> Self {
                Self { $($name: self.$name.wrapping_sub(earlier.$name)),+ }
            }
        }

        /// The numbers of one writer.
        #[derive(Debug, Default)]
        pub(crate) struct $counters { $(pub(crate) $name: Counter,)+ }

        impl $counters {
            /// Adds these to a snapshot.
            pub(crate) fn add_to(&self, stats: &mut $stats) {
                $(stats.$name = stats.$name.wrapping_add(self.$name.read());)+
            }
        }
    };
}

stats! {
    /// What a pool has done so far. Differences between two snapshots are what happened between them.
    ///
    /// The names and meanings are Linux's (`struct page_pool_alloc_stats`, `page_pool_recycle_stats`), and where one
    /// differs its text says so. A snapshot is exact when the pool is at rest; while it runs each number is right, but
    /// two numbers may be some buffers apart.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, Pool, PoolParams};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// let pool = Pool::new(PoolParams::default(), arena)?.bind();
    /// drop(pool.alloc_page());
    /// let before = pool.stats();
    /// drop(pool.alloc_page());
    /// let moved = pool.stats().since(&before);
    /// assert_eq!((moved.alloc_fast, moved.recycle_cached, moved.alloc_slow), (1, 1, 0));
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    Stats, Counters {
        /// Pages handed out from the cache, and fragment pages reused in place.
        alloc_fast,
        /// Pages returned into the cache by their owner, and fragment pages reused in place.
        recycle_cached,
        /// Slow-path allocations that the provider served: one for up to `refill` pages.
        alloc_slow,
        /// Pages of order above 0 that the provider gave.
        alloc_slow_high_order,
        /// Times the cache was empty and neither lanes nor ring had a page, nor was a waiting one done.
        alloc_empty,
        /// Refills from lanes, ring and waiting queue that brought at least one page: one per refill.
        alloc_refill,
        /// Pages let go because they were on the wrong node: at most one per look at lanes and ring. An allocation looks once;
        /// one that found nothing looks a second time in a pool made with `wakeup`.
        alloc_waive,
        /// Allocations that gave nothing. Linux has no such counter.
        alloc_failed,
        /// Pages that found the cache full; each is counted again under `recycle_ring` or `recycle_ring_full`.
        recycle_cache_full,
        /// Pages returned into the ring or a lane.
        recycle_ring,
        /// Pages that found ring and lane full and left the pool. One per page, also in bulk, where Linux counts calls.
        recycle_ring_full,
        /// Pages that came home while somebody held them, or from the emergency reserve, and left the pool.
        recycle_released_refcnt,
        /// Pages that ever joined the pool.
        hold,
        /// Pages that ever left it.
        release,
    }
}

stats! {
    /// What became of the buffers that waited for a user who only says whether they are in use still.
    ///
    /// `queued` - `reused` - `freed_late` - `leaked` is how many wait now, in the queue and beyond it. A snapshot is exact
    /// when nobody polls.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, Pool, PoolParams, UseCounts};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// let pool = Pool::new(PoolParams { defer_capacity: 8, ..Default::default() }, arena)?.bind();
    /// let user = pool.deferred_user(UseCounts::new(1))?;
    /// let before = pool.deferred_stats();
    /// pool.defer(&user, pool.alloc_page().unwrap(), 0).unwrap();
    /// pool.poll_deferred();
    /// let moved = pool.deferred_stats().since(&before);
    /// assert_eq!((moved.queued, moved.polls, moved.reused), (1, 1, 1));
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    DeferredStats, DeferredCounters {
        /// Buffers that were taken into the queue.
        queued,
        /// Buffers that went home because their user was done.
        reused,
        /// Rounds of polling that ended at a buffer that was still in use and stayed in the queue.
        kept,
        /// Buffers still in use that a round looked past, to those behind.
        skipped,
        /// Buffers that left the queue while they were in use; their page leaves the pool, and its memory waits.
        released,
        /// Those of them whose user was done later, so that their memory went back to the provider.
        freed_late,
        /// Buffers that were refused because the queue was full.
        full,
        /// Rounds of polling while something waited.
        polls,
        /// Buffers in use when nobody watched the end of the pool any more: their memory is never used again.
        leaked,
    }
}

/// What the waiting queue shows to observers. It lives as long as the queue, which may outlive the pool.
#[derive(Debug, Default)]
pub(crate) struct DeferredCounts {
    /// Written by whoever has the queue.
    pub(crate) counters: DeferredCounters,
    /// Whole pages in the queue; by the same writer.
    pub(crate) pages: Counter,
}

impl DeferredCounts {
    /// The numbers now.
    pub(crate) fn stats(&self) -> DeferredStats {
        let mut stats = DeferredStats::default();
        self.counters.add_to(&mut stats);
        stats
    }
}

impl DeferredStats {
    /// Buffers that wait, in the queue and beyond it.
    pub fn waiting(&self) -> u64 {
        self.queued.wrapping_sub(self.reused).wrapping_sub(self.freed_late).wrapping_sub(self.leaked)
    }
}

impl Stats {
    /// Pages that joined and have not left, right across wrap-around. Linux: `page_pool_inflight`.
    #[doc(alias = "page_pool_inflight")]
    pub fn inflight(&self) -> i64 {
        self.hold.wrapping_sub(self.release) as i64
    }

    /// Recycled pages per hundred allocations, as ynltool computes it; `None` before the first allocation.
    pub fn recycle_percent(&self) -> Option<f64> {
        let allocations = self.alloc_fast + self.alloc_refill + self.alloc_slow + self.alloc_slow_high_order;
        (allocations > 0)
            .then(|| (self.recycle_ring + self.recycle_cached) as f64 * 100.0 / allocations as f64)
    }
}

/// Where a pool's pages are. Each place is read consistently; the sum equals hold - release when the pool is at rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inflight {
    /// Pages that joined and have not left.
    pub total: i64,
    /// In the owner's cache.
    pub cache: u64,
    /// In lanes, on their way home.
    pub lanes: u64,
    /// In the ring.
    pub ring: u64,
    /// The page that fragments are being cut from.
    pub frag: u64,
    /// Whole pages in the waiting queue, or left over from it at the end of the pool. A page of which fragments wait is
    /// `out`.
    pub waiting: u64,
    /// With the program: handles, fragments, raw addresses, shared buffers.
    pub out: u64,
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn differences_and_what_is_in_flight_are_right_across_the_wrap() {
        let counters = Counters::default();
        counters.hold.start_at(u64::MAX - 2);
        counters.release.start_at(u64::MAX - 4);
        let snapshot = || {
            let mut stats = Stats::default();
            counters.add_to(&mut stats);
            stats
        };
        let before = snapshot();
        assert_eq!(before.inflight(), 2);
        counters.hold.add(10);
        counters.release.add(3);
        let after = snapshot();
        assert!(after.hold < before.hold, "it wrapped");
        assert_eq!((after.inflight(), after.since(&before).hold), (9, 10));
    }

    #[test]
    fn recycling_is_a_share_of_the_allocations() {
        assert_eq!(Stats::default().recycle_percent(), None);
        let stats =
            Stats { alloc_fast: 6, alloc_slow: 2, recycle_ring: 2, recycle_cached: 4, ..Default::default() };
        assert_eq!(stats.recycle_percent(), Some(75.0));
    }
}
