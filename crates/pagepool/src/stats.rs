//! The counters, declared only here.
//!
//! What   a pool's counters: Linux's under Linux's names, and our own. Separately, those of a deferred queue.
//! Who    a [`Counters`] has one writer at a time (the owner, or the holder of the return lock). Any thread
//!        may read at any time. So counting is a plain add, and reading costs the owner nothing (note 0003).
//!        To add a counter, add its name, meaning and "If it rises:" at the end of `for_each_pool_counter`
//!        (compiled C programs know the order), and the increment. Rust and C structs, sum, names, order and
//!        documentation follow, including docs/operations.md.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// One number with one writer. Adding is a plain add in memory: no lock prefix.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds. Only for the one writer.
    #[inline(always)]
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// Subtracts what was added. Only for the one writer.
    pub(crate) fn take(&self, n: u64) {
        self.add(n.wrapping_neg());
    }

    #[inline(always)]
    pub(crate) fn read(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Sets a starting value, to test wrap-around.
    #[cfg(test)]
    pub(crate) fn start_at(&self, n: u64) {
        self.0.store(n, Relaxed);
    }
}

/// Calls a macro with the counters of a pool, which are declared here.
///
/// `for_each_pool_counter!(f!(before))` becomes `f! { before { docs and names } }`.
#[doc(hidden)]
#[macro_export]
macro_rules! for_each_pool_counter {
    ($callback:ident!($($before:tt)*)) => {
        $callback! {
            $($before)* {
                /// Pages taken from the cache, plus fragment pages reused in place after all their fragments
                /// had returned.
                ///
                /// If it rises: normal.
                alloc_fast,
                /// Pages that the owner returned to the cache, plus fragment pages reused in place.
                ///
                /// If it rises: normal.
                recycle_cached,
                /// Allocations that took pages from the provider (the arena), up to `refill` pages each.
                ///
                /// If it rises: normal during warm-up. Later, pages are lost, held for longer, or waived.
                /// `inflight` shows where they are.
                alloc_slow,
                /// Pages of an order above 0 that came from the provider (the arena).
                ///
                /// If it rises: see `alloc_slow`.
                alloc_slow_high_order,
                /// Refills that found no page: the cache, lanes and ring were empty, and no deferred buffer
                /// returned.
                ///
                /// If it rises: more pages are out than before, if `alloc_slow` rises as well. Find out who
                /// holds them before you enlarge the arena.
                alloc_empty,
                /// Refills that found at least one page in the deferred queue, the lanes or the ring. Each
                /// refill counts once.
                ///
                /// If it rises: normal if other threads return buffers.
                alloc_refill,
                /// Off-node pages (on a NUMA node other than the pool's) that left the pool. At most one
                /// leaves each time the owner collects pages from the lanes and the ring. An allocation
                /// collects once or, with `wakeup`, twice if it fails.
                ///
                /// If it rises: the owner moved to another node. Pin it to a CPU, or set `nid`.
                alloc_waive,
                /// Allocations that returned nothing. Linux has no such counter.
                ///
                /// If it rises: the arena is exhausted. Raise `max_bytes`, or find out who holds the buffers
                /// (`holders`).
                alloc_failed,
                /// Returned pages that found the cache full. Each one also counts in `recycle_ring` or
                /// `recycle_ring_full`.
                ///
                /// If it rises: the owner returns more pages than it allocates. This is normal if it sends.
                /// Otherwise raise `cache_size`.
                recycle_cache_full,
                /// Pages returned through a lane or the ring.
                ///
                /// If it rises: normal if other threads return buffers.
                recycle_ring,
                /// Pages that left the pool because the lane and the ring were full. For bulk returns,
                /// Linux counts calls instead of pages.
                ///
                /// If it rises: the owner refills too rarely. Raise `lane_size`, `ring_size` or `max_lanes`.
                recycle_ring_full,
                /// Pages that left the pool when they were returned, because a page reference still existed.
                /// Linux also counts pages of its emergency reserve (`pfmemalloc`).
                ///
                /// If it rises: a page reference outlives its buffer. To recycle the page, share the buffer
                /// instead.
                recycle_released_refcnt,
                /// Pages that joined the pool.
                ///
                /// If it rises: see `alloc_slow`.
                hold,
                /// Pages that left the pool.
                ///
                /// If it rises: see `alloc_waive`, `recycle_ring_full` and `recycle_released_refcnt`. A rise
                /// is normal when a pool shrinks or ends.
                release,
                /// Returns through the C interface that the owner refused, because another thread had
                /// returned the same buffer at the same time. Both calls returned 0. Linux has no such counter.
                ///
                /// If it rises: threads return buffers that are not theirs. Find out which.
                returned_twice,
            }
        }
    };
}

/// Calls a macro with the counters of a deferred queue, which are declared here.
///
/// `for_each_deferred_counter!(f!(before))` becomes `f! { before { docs and names } }`.
#[doc(hidden)]
#[macro_export]
macro_rules! for_each_deferred_counter {
    ($callback:ident!($($before:tt)*)) => {
        $callback! {
            $($before)* {
                /// Buffers put into the deferred queue.
                ///
                /// If it rises: normal.
                queued,
                /// Buffers that returned to the pool because their reader was done.
                ///
                /// If it rises: normal.
                reused,
                /// Polls that stopped at a buffer still in use and left it in the queue.
                ///
                /// If it rises: readers may finish out of order. If the rise is fast, set `on_busy =
                /// OnBusy::Skip`.
                kept,
                /// Buffers still in use that a poll skipped to check the buffers behind them.
                ///
                /// If it rises: normal with `on_busy = OnBusy::Skip`.
                skipped,
                /// Buffers that left the queue while still in use. The page leaves the pool. Its memory is
                /// freed when the reader is done.
                ///
                /// If it rises: a reader is slow, which is normal with `on_busy = OnBusy::Release`.
                released,
                /// Released buffers whose reader is done. Their memory has returned to the provider (the
                /// arena).
                ///
                /// If it rises: normal after `released` rose.
                freed_late,
                /// Buffers refused because the queue was full.
                ///
                /// If it rises: raise `defer_capacity`, or wait until readers are done.
                full,
                /// Polls that found a buffer in the queue.
                ///
                /// If it rises: normal.
                polls,
                /// Buffers still in use when the pool's shutdown handle was dropped. Their memory is never
                /// reused.
                ///
                /// If it rises: keep the shutdown handle until the pool is freed.
                leaked,
            }
        }
    };
}

/// Defines the public snapshot and the counters of one writer.
macro_rules! stats {
    ($(#[$about:meta])+ $stats:ident, $counters:ident { $($(#[doc = $doc:literal])+ $name:ident,)+ }) => {
        $(#[$about])+
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct $stats { $($(#[doc = $doc])+ pub $name: u64,)+ }

        impl $stats {
            /// The names, in declaration order.
            pub const NAMES: &[&str] = &[$(stringify!($name)),+];

            /// What each counter counts, and what to do if it rises, in declaration order.
            pub const DOCS: &[&str] = &[$(concat!($($doc),+).trim_ascii()),+];

            /// The names and values, in declaration order.
            ///
            /// ```
            #[doc = concat!("let stats = pagepool::", stringify!($stats), "::default();")]
            /// assert!(stats.fields().iter().all(|(_, value)| *value == 0));
            /// ```
            pub fn fields(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name)),+]
            }

            /// Sets each counter to a function's value for its name.
            #[doc(hidden)]
            pub fn fill(&mut self, value: impl Fn(&str) -> u64) {
                $(self.$name = value(stringify!($name));)+
            }

            /// Raises each counter to its earlier value, if it is lower. Correct across wrap-around.
            #[doc(hidden)]
            pub fn raise_to(&mut self, earlier: &Self) {
                $(if self.$name.wrapping_sub(earlier.$name) as i64 <= 0 {
                    self.$name = earlier.$name;
                })+
            }

            /// The counts since an earlier snapshot. Correct across wrap-around.
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

        /// The counters of one writer. C programs add to the first two of a pool: see pool/ffi.rs.
        #[derive(Debug, Default)]
        #[repr(C)]
        pub(crate) struct $counters { $(pub(crate) $name: Counter,)+ }

        impl $counters {
            /// Each counter's name and offset.
            pub(crate) const PLACES: &[(&str, usize)] =
                &[$((stringify!($name), std::mem::offset_of!(Self, $name))),+];

            pub(crate) fn add_to(&self, stats: &mut $stats) {
                $(stats.$name = stats.$name.wrapping_add(self.$name.read());)+
            }
        }
    };
}

for_each_pool_counter! { stats!(
    /// The counters of a pool. The difference of two snapshots is what happened between them.
    ///
    /// Names and meanings are those of Linux (`struct page_pool_alloc_stats`, `page_pool_recycle_stats`),
    /// unless a counter's text says otherwise. A snapshot is exact while the pool is idle. While it runs
    /// each number is right, but two numbers may differ by some buffers.
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
    Stats, Counters
) }

for_each_deferred_counter! { stats!(
    /// The counters of a pool's deferred queue: buffers whose user can only say whether it still uses them.
    ///
    /// `queued` - `reused` - `freed_late` - `leaked` is [`pending`](Self::pending): how many are in use now.
    /// A snapshot is exact while no thread polls.
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
    DeferredStats, DeferredCounters
) }

/// A deferred queue's counters in published memory. They live as long as the queue, which may outlive the
/// pool.
#[derive(Debug, Default)]
pub(crate) struct DeferredCounts {
    /// Written by the holder of the queue.
    pub(crate) counters: DeferredCounters,
    /// Whole pages in the queue. Written by the holder of the queue.
    pub(crate) pages: Counter,
}

impl DeferredCounts {
    pub(crate) fn stats(&self) -> DeferredStats {
        let mut stats = DeferredStats::default();
        self.counters.add_to(&mut stats);
        stats
    }
}

impl DeferredStats {
    /// Buffers in the queue, and released ones that are still in use.
    pub fn pending(&self) -> u64 {
        self.queued.wrapping_sub(self.reused).wrapping_sub(self.freed_late).wrapping_sub(self.leaked)
    }
}

impl Stats {
    /// Pages that joined the pool and have not left it. Correct across wrap-around. Linux:
    /// `page_pool_inflight`.
    #[doc(alias = "page_pool_inflight")]
    pub fn inflight(&self) -> i64 {
        self.hold.wrapping_sub(self.release) as i64
    }

    /// Recycled pages per hundred allocations, computed like ynltool; `None` before the first allocation.
    pub fn recycle_percent(&self) -> Option<f64> {
        let allocations = self.alloc_fast + self.alloc_refill + self.alloc_slow + self.alloc_slow_high_order;
        (allocations > 0)
            .then(|| (self.recycle_ring + self.recycle_cached) as f64 * 100.0 / allocations as f64)
    }
}

/// Where a pool's pages are. Each number is consistent; the sum equals hold - release while the pool is
/// idle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inflight {
    /// Pages that joined the pool and have not left it.
    pub total: i64,
    /// In the owner's cache.
    pub cache: u64,
    /// In lanes, on their way to the owner.
    pub lanes: u64,
    /// In the ring.
    pub ring: u64,
    /// The page that fragments are cut from.
    pub frag: u64,
    /// Whole pages in the deferred queue, also after the pool's end. A page with only fragments deferred
    /// counts as `out`.
    pub deferred: u64,
    /// Pages whose fragments have all returned on other threads, but whose last ones the owner has not
    /// collected. It collects them at its next refill, when it cuts its next page, or when the pool shrinks.
    /// Another process that reads a pool without [`holders`](crate::PoolParams::holders) counts every page
    /// here of which fragments may have returned: some may still be out.
    pub uncollected: u64,
    /// Held by the process: handles, fragments, raw addresses, shared buffers.
    pub out: u64,
}

impl Inflight {
    /// Moves pages between `uncollected` and `out`: `pages` are uncollected.
    #[doc(hidden)]
    pub fn with_uncollected(self, pages: u64) -> Self {
        let both = self.uncollected + self.out;
        let uncollected = pages.min(both);
        Self { uncollected, out: both - uncollected, ..self }
    }
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
