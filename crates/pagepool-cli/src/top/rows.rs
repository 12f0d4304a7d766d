//! A row of the table: a pool of a process or of the kernel.

use std::time::Duration;

use pagepool_link::{KernelPagePool, KernelPoolStats};
use pagepool_watch::commands::{per_second, places};
use pagepool_watch::{PoolMoved, PoolView, ProcessView};
use ratatui::style::Color;

use super::row_key::RowKey;
use super::sampler::Sampled;
use crate::observing::look::is_alive;

pub const KERNEL: &str = "[kernel]";

/// Rates per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RowRates {
    pub allocated: f64,
    pub returned: f64,
    pub slow: f64,
    /// `None` for kernel pools: not counted.
    pub starved: Option<f64>,
    /// Percent of the allocated pages; `None` without an allocation.
    pub recycled: Option<f64>,
}

/// A place of pages.
pub struct PagePlace {
    pub letter: char,
    pub name: &'static str,
    pub colour: Color,
    pub about: &'static str,
}

const fn place(letter: char, name: &'static str, colour: Color, about: &'static str) -> PagePlace {
    PagePlace { letter, name, colour, about }
}

pub const PLACES: [PagePlace; 8] = [
    place('c', "cache", Color::Green, "in the owner's cache: the next allocations come from here"),
    place('l', "lanes", Color::Cyan, "being returned by other threads"),
    place('r', "ring", Color::Blue, "returned; used at the owner's next refill"),
    place('f', "fragment", Color::LightGreen, "the page that fragments are cut from"),
    place('d', "deferred", Color::Magenta, "in the deferred queue: a reader may still use them"),
    place('u', "uncollected", Color::LightBlue, "in returned fragments, not yet collected"),
    place('w', "waiting", Color::Yellow, "at the device, waiting for packets"),
    place('o', "out", Color::Red, "held by the program: in use, in queues, being sent"),
];

#[derive(Clone, Debug)]
pub struct TopRow {
    pub key: RowKey,
    pub process: String,
    /// `None` for the kernel.
    pub pid: Option<u32>,
    pub pool: String,
    pub thread: String,
    pub alive: bool,
    /// `None` after a first or missed look, and for a pool that does not count or is dead.
    pub rates: Option<RowRates>,
    pub pages: u64,
    pub bytes: u64,
    /// `None` if unknown.
    pub out: Option<u64>,
    /// The age of the oldest buffer out; `None` if unknown.
    pub oldest: Option<Duration>,
    /// Pages, in the order of [`PLACES`].
    pub places: [u64; PLACES.len()],
}

impl TopRow {
    pub fn all(sampled: &Sampled) -> Vec<Self> {
        let processes = sampled.now.processes.iter();
        let ours = processes.flat_map(|process| process.pools.iter().map(move |pool| (process, pool)));
        let ours = ours.map(|(process, pool)| Self::of_process(sampled, process, pool));
        let kernel = sampled.kernel.iter().flat_map(|kernel| &kernel.pools);
        ours.chain(kernel.map(|pool| Self::of_kernel(sampled, pool))).collect()
    }

    fn of_process(sampled: &Sampled, process: &ProcessView, pool: &PoolView) -> Self {
        let alive = is_alive(process);
        let before = sampled.before.as_ref().filter(|_| alive);
        let moved = before.and_then(|before| PoolMoved::between(before, &sampled.now, process, pool));
        Self {
            key: RowKey::Process(process.file.clone(), pool.created, pool.id),
            process: process.name.clone(),
            pid: Some(process.pid),
            pool: pool.name.clone(),
            thread: pool.thread.as_ref().map_or("-".into(), |thread| thread.name.clone()),
            alive,
            rates: moved.as_ref().map(RowRates::of_pool),
            pages: pool.inflight.total.max(0) as u64,
            bytes: pool.inflight_bytes(),
            out: Some(pool.inflight.out),
            oldest: pool.holders.as_ref().and_then(|holders| holders.oldest.first()?.age),
            places: places_of(process, pool),
        }
    }

    fn of_kernel(sampled: &Sampled, pool: &KernelPagePool) -> Self {
        let interface = sampled.kernel.as_ref().and_then(|kernel| kernel.interface(pool));
        Self {
            key: RowKey::Kernel(pool.id),
            process: KERNEL.into(),
            pid: None,
            pool: format!("{}:{}", interface.unwrap_or("removed"), pool.id),
            thread: pool.napi.map_or("-".into(), |napi| format!("napi {napi}")),
            alive: true,
            rates: sampled.kernel_moved(pool).map(|(moved, over)| RowRates::of_kernel(&moved, over)),
            pages: pool.inflight,
            bytes: pool.inflight_bytes,
            out: None,
            oldest: None,
            places: [0; PLACES.len()],
        }
    }

    /// Whether a name in the row contains one of the words, which `|` separates. Ignores case.
    pub fn matches(&self, words: &str) -> bool {
        let pid = self.pid.map(|pid| pid.to_string()).unwrap_or_default();
        let text = [&*self.process, &pid, &self.pool, &self.thread].join("\n").to_lowercase();
        words.to_lowercase().split('|').any(|word| !word.is_empty() && text.contains(word))
    }
}

impl RowRates {
    fn of_pool(moved: &PoolMoved) -> Self {
        Self {
            allocated: moved.per_second(moved.allocations()),
            returned: moved.per_second(moved.returned()),
            slow: moved.per_second(moved.slow()),
            starved: Some(moved.per_second(moved.starved())),
            recycled: moved.recycled(),
        }
    }

    fn of_kernel(moved: &KernelPoolStats, over: Duration) -> Self {
        let slow = moved.alloc_slow + moved.alloc_slow_high_order;
        let past = moved.recycle_ring_full + moved.recycle_released_refcnt;
        Self {
            allocated: per_second(moved.alloc_fast + moved.alloc_refill + slow, over),
            returned: per_second(moved.recycle_cached + moved.recycle_ring + past, over),
            slow: per_second(slow, over),
            starved: None,
            recycled: moved.recycle_percent(),
        }
    }
}

/// The pages of each place. Devices report theirs a moment later.
fn places_of(process: &ProcessView, pool: &PoolView) -> [u64; PLACES.len()] {
    let [cache, lanes, ring, frag, deferred, uncollected, out] =
        places(&pool.inflight).map(|(_, pages)| pages);
    let waiting = process.waiting_for_packets(pool).unwrap_or(0).min(out);
    [cache, lanes, ring, frag, deferred, uncollected, waiting, out - waiting]
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::time::{Instant, SystemTime};

    use super::*;
    use pagepool_watch::KernelLook;
    use pagepool_watch::Observation;

    fn kernel(taken: Instant, fast: u64, slow: u64) -> KernelLook {
        let mut pool = KernelPagePool::default();
        (pool.id, pool.ifindex, pool.napi) = (18, Some(2), Some(8193));
        (pool.inflight, pool.inflight_bytes) = (2048, 8 << 20);
        let mut stats = KernelPoolStats::default();
        (stats.alloc_fast, stats.alloc_slow, stats.recycle_cached) = (fast, slow, fast);
        pool.stats = Some(stats);
        let names = HashMap::from([(2, "eth0".to_owned())]);
        KernelLook { taken, pools: vec![pool], names, has_stats: true }
    }

    fn sampled(before: Option<KernelLook>, now: KernelLook) -> Sampled {
        let (at, taken, folder) = (SystemTime::now(), now.taken, "/run/pagepool".into());
        let processes = Observation { at, taken, folder, processes: Vec::new(), errors: Vec::new() };
        Sampled { now: processes, before: None, kernel: Some(now), kernel_before: before }
    }

    #[test]
    fn a_kernel_pool_has_a_row_with_rates_of_its_counters() {
        let start = Instant::now();
        let later = start + Duration::from_secs(2);
        let rows = TopRow::all(&sampled(Some(kernel(start, 100, 10)), kernel(later, 280, 30)));
        let [row] = &rows[..] else { panic!("{rows:?}") };
        assert_eq!((&*row.process, &*row.pool, &*row.thread), (KERNEL, "eth0:18", "napi 8193"));
        assert_eq!((row.pages, row.bytes, row.out, row.pid), (2048, 8 << 20, None, None));
        let rates = row.rates.expect("two looks");
        assert_eq!((rates.allocated, rates.slow, rates.returned), (100.0, 10.0, 90.0));
        assert_eq!((rates.starved, rates.recycled), (None, Some(90.0)));
        let mut other = kernel(start, 100, 10);
        other.pools[0].id = 17;
        for before in [None, Some(other)] {
            assert_eq!(TopRow::all(&sampled(before, kernel(later, 280, 30)))[0].rates, None);
        }
        assert!(row.matches("nope|ETH0") && !row.matches("nope") && !row.matches(""));
    }
}
