//! What changed between two looks: pages allocated and returned, calls to the arena, and failed allocations.

use std::time::Duration;

use pagepool::Stats;

use crate::observation::Observation;
use crate::published::model::{EntryView, PoolView, ProcessView};

/// What changed in a pool between two looks, for rates: see [`Observation`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PoolMoved {
    /// The time between the looks.
    pub over: Duration,
    /// How much the counters rose.
    pub stats: Stats,
    /// How often its devices had no buffer for a packet.
    pub device_starved: u64,
}

impl PoolMoved {
    /// The changes of a pool since the previous look. For a pool made since then, everything that it did.
    /// `None` if it existed and could not be read.
    pub fn between(
        before: &Observation,
        now: &Observation,
        process: &ProcessView,
        pool: &PoolView,
    ) -> Option<Self> {
        let earlier = before.both(process, pool);
        if earlier.is_none() && pool.created < before.at {
            return None;
        }
        let (stats, devices_before) = earlier
            .map_or((Stats::default(), 0), |(process, pool)| (pool.stats, starved_below(process, pool)));
        Some(Self {
            over: now.taken.saturating_duration_since(before.taken),
            stats: pool.stats.since(&stats),
            device_starved: starved_below(process, pool).saturating_sub(devices_before),
        })
    }

    /// Allocations that returned a page.
    pub fn allocations(&self) -> u64 {
        let Stats { alloc_fast, alloc_refill, .. } = self.stats;
        alloc_fast.wrapping_add(alloc_refill).wrapping_add(self.slow())
    }

    /// Pages returned to the pool, or past it to the arena.
    pub fn returned(&self) -> u64 {
        let Stats { recycle_cached, recycle_ring, recycle_ring_full, recycle_released_refcnt, .. } =
            self.stats;
        [recycle_cached, recycle_ring, recycle_ring_full, recycle_released_refcnt]
            .into_iter()
            .fold(0, u64::wrapping_add)
    }

    /// Calls to the provider (the arena).
    pub fn slow(&self) -> u64 {
        self.stats.alloc_slow.wrapping_add(self.stats.alloc_slow_high_order)
    }

    /// How often a buffer was requested and none was free.
    pub fn starved(&self) -> u64 {
        self.stats.alloc_failed.wrapping_add(self.device_starved)
    }

    /// Which percentage of the allocated pages had been used before; `None` without allocations.
    pub fn recycled(&self) -> Option<f64> {
        recycled_of(&[self.stats])
    }

    /// A count per second of the time between the looks; 0 for no time.
    pub fn per_second(&self, count: u64) -> f64 {
        per_second(count, self.over)
    }
}

/// Which percentage of the allocated pages had been used before, from counts of pools.
pub fn recycled_of(moved: &[Stats]) -> Option<f64> {
    let sum = |of: &[fn(&Stats) -> u64]| {
        // A forged file may claim any counts.
        moved.iter().flat_map(|s| of.iter().map(move |of| of(s))).fold(0, u64::saturating_add)
    };
    let allocated =
        sum(&[|s| s.alloc_fast, |s| s.alloc_refill, |s| s.alloc_slow, |s| s.alloc_slow_high_order]);
    let fresh = sum(&[|s| s.hold]).min(allocated);
    (allocated > 0).then(|| (allocated - fresh) as f64 * 100.0 / allocated as f64)
}

/// A count per second; 0 for no time.
pub fn per_second(count: u64, over: Duration) -> f64 {
    match over.is_zero() {
        true => 0.0,
        false => count as f64 / over.as_secs_f64(),
    }
}

/// Packets for which the entries below a pool (its sockets and NICs) had no buffer.
fn starved_below(process: &ProcessView, pool: &PoolView) -> u64 {
    let below = process.entries.iter().filter(|entry| entry.pool_id() == Some(pool.id.into()));
    below.map(|entry: &EntryView| starved(&entry.counters)).fold(0, u64::saturating_add)
}

/// Packets for which a device had no buffer. A socket's `rx_no_buffer` includes packets that found the
/// receive ring full, because the thread was too slow; they are subtracted. In copy mode it also includes
/// `rx_fill_ring_empty`, which with zero copy counts attempts of the driver.
fn starved(counters: &[(String, u64)]) -> u64 {
    let count = |name| counters.iter().find(|(of, _)| of == name).map_or(0, |(_, count)| *count);
    count("rx_no_buffer").saturating_sub(count("rx_ring_full"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(fill: impl FnOnce(&mut Stats)) -> PoolMoved {
        let mut stats = Stats::default();
        fill(&mut stats);
        PoolMoved { over: Duration::from_millis(500), stats, device_starved: 3 }
    }

    #[test]
    fn a_pool_has_rates_of_what_it_allocated_and_got_back() {
        let moved = moved(|stats| {
            (stats.alloc_fast, stats.alloc_refill, stats.alloc_slow, stats.hold) = (90, 6, 4, 4);
            (stats.recycle_cached, stats.recycle_ring, stats.recycle_ring_full) = (50, 30, 2);
            stats.alloc_failed = 5;
        });
        assert_eq!((moved.allocations(), moved.returned(), moved.slow()), (100, 82, 4));
        assert_eq!((moved.starved(), moved.recycled()), (8, Some(96.0)));
        assert_eq!(moved.per_second(moved.allocations()), 200.0);
        assert_eq!(PoolMoved::default().per_second(7), 0.0, "no time, no rate");
    }

    #[test]
    fn starved_counts_missing_buffers_once_and_no_full_rings() {
        let lost = |counters: &[(&str, u64)]| {
            starved(&counters.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect::<Vec<_>>())
        };
        let copy = [("rx_no_buffer", 9), ("rx_dropped", 7), ("rx_ring_full", 2), ("rx_fill_ring_empty", 7)];
        assert_eq!(lost(&copy), 7);
        let zero_copy = [("rx_no_buffer", 2), ("rx_ring_full", 2), ("rx_fill_ring_empty", 5_000)];
        assert_eq!(lost(&zero_copy), 0, "the driver's attempts");
        assert_eq!(lost(&[("rx_no_buffer", 3)]), 3, "a NIC in memory");
        assert_eq!(lost(&[]), 0, "a port");
    }
}
