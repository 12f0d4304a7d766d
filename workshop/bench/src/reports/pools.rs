//! `pagepool-bench pools`: the cost of a return from another thread that returns to 1 to 1,024 pools.
//!
//! One thread owns all pools and allocates; the other drops one buffer of each pool in turn, repeatedly. Only
//! the drops are timed. A thread finds its lane to a pool by the pool's id; therefore some rows have ids that
//! are equal modulo a power of two. If idle threads have taken all lanes of a pool, the thread uses the ring,
//! as in a pool without lanes.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use crate::measure::clock;
use crate::measure::counted::{Counted, Moves, Rule, check};
use crate::measure::summary::{Times, cell};
use crate::measure::workload::Plan;
use crate::sys;
use crate::workloads::pools::{self, Returners};
use pagepool::{Bound, PageBuf, Pool, PoolParams, Provider};
use pagepool_cli::report::{error_chain, output};
use serde::Serialize;

use super::{Report, table};

const POOLS: [usize; 6] = [1, 16, 32, 64, 256, 1024];
/// The ids of [`COLLIDING`] pools are equal modulo each of these.
const MODULI: [u32; 3] = [16, 64, 1024];
const COLLIDING: usize = 64;
/// Lanes of a pool whose lanes are all taken.
const TAKEN: usize = 16;
/// Buffers of a pool out at once, at most: slots of a lane, and of the ring.
const OUT: usize = 64;
/// Buffers out at once, at most.
const ALL_OUT: usize = 16 * 1024;
/// The arena's base pages: those out, a refill per pool, and those in taken lanes.
const PAGES: usize = 4 * ALL_OUT;

#[derive(Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Way {
    Lane,
    AllLanesTaken,
    LockedRing,
}

impl Way {
    const ALL: [Self; 3] = [Self::Lane, Self::AllLanesTaken, Self::LockedRing];

    fn name(self) -> &'static str {
        match self {
            Self::Lane => "lane",
            Self::AllLanesTaken => "ring, all lanes taken",
            Self::LockedRing => "locked ring",
        }
    }

    fn params(self) -> PoolParams {
        let max_lanes = match self {
            Self::Lane => 1,
            Self::AllLanesTaken => TAKEN,
            Self::LockedRing => 0,
        };
        let (lane_size, ring_size) = (OUT, OUT);
        PoolParams {
            max_lanes,
            lane_size,
            ring_size,
            cache_size: OUT,
            refill: 16,
            chains: 1,
            ..PoolParams::default()
        }
    }
}

/// One number of pools, one return path.
#[derive(Serialize)]
pub struct PoolsRow {
    pools: usize,
    /// Ids are equal modulo this; 1: consecutive.
    ids_modulo: u32,
    way: Way,
    #[serde(flatten)]
    times: Times,
    buffers: u64,
    counters: Counted,
    failed: Option<String>,
}

/// Every buffer returns by message, and no page comes from the arena.
const RULES: &[Rule] = &[
    Rule(&["alloc_fast", "alloc_refill"], Moves::Each),
    Rule(&["alloc_refill"], Moves::Any),
    Rule(&["recycle_ring"], Moves::Each),
];

pub fn run(plan: Plan) -> Result<Report<Vec<PoolsRow>>, String> {
    let consecutive = POOLS.map(|pools| (pools, 1));
    let colliding = MODULI.map(|modulo| (COLLIDING, modulo));
    run_with(plan, consecutive.into_iter().chain(colliding))
}

/// `pools`: numbers of pools, with the modulus of their ids.
fn run_with(plan: Plan, pools: impl Iterator<Item = (usize, u32)>) -> Result<Report<Vec<PoolsRow>>, String> {
    let other = sys::pin_owner();
    let mut rows = Vec::new();
    for (pools, modulo) in pools {
        for way in Way::ALL {
            output::progress(format_args!("bench pools: {pools} of up to {COLLIDING} pools, {}", way.name()));
            rows.push(row(plan, pools, modulo, way, other)?);
        }
    }
    let mut table = table(&["pools", "ids", "returned by", "ns min", "med", "max", "tsc med"], 0);
    rows.iter().for_each(|row| _ = table.add_row(cells(row)));
    let failed = rows
        .iter()
        .filter_map(|row| Some(format!("{} pools, {}: {}", row.pools, row.way.name(), row.failed.as_ref()?)));
    let failed = failed.collect();
    let about = "per buffer, the drop alone: one thread drops a buffer of each pool in turn, another owns\n\
                 all pools and allocates; ids: consecutive, or all equal modulo a number";
    Ok(Report { name: "pools", about: about.into(), results: rows, table, failed })
}

fn cells(row: &PoolsRow) -> [String; 7] {
    let Times { ns_min, ns_med, ns_max, tsc_med } = row.times;
    let [min, med, max] = [ns_min, ns_med, ns_max].map(|ns| cell(ns, 1));
    let ids =
        if row.ids_modulo == 1 { "consecutive".into() } else { format!("equal mod {}", row.ids_modulo) };
    [row.pools.to_string(), ids, row.way.name().into(), min, med, max, cell(tsc_med, 1)]
}

fn row(plan: Plan, pools: usize, modulo: u32, way: Way, cpu: Option<usize>) -> Result<PoolsRow, String> {
    let pools = make(pools, modulo, way)?;
    let taken = if way == Way::AllLanesTaken { TAKEN } else { 0 };
    let one_each = || pools.iter().map(pools::page).collect::<Vec<_>>();
    let _taken = Returners::of((0..taken).map(|_| one_each()).collect::<Vec<_>>())?;
    let (ticks, counters, buffers) = thread::scope(|scope| {
        let (to, given) = channel();
        let (done, returned) = channel();
        scope.spawn(move || return_all(given, done, cpu));
        repeat(plan, &pools, &to, &returned)
    })?;
    let failed = check(&counters, RULES, buffers).err();
    let times = Times::of(&ticks);
    Ok(PoolsRow { pools: pools.len(), ids_modulo: modulo, way, times, buffers, counters, failed })
}

/// Pools of one arena whose ids are equal modulo this.
fn make(pools: usize, modulo: u32, way: Way) -> Result<Vec<Bound>, String> {
    let arena = pools::arena(PAGES)?;
    let mut made: Vec<Bound> = Vec::with_capacity(pools);
    while made.len() < pools {
        let pool = new_pool(way, &arena)?;
        let first = made.first().map_or(pool.handle().id(), |first| first.handle().id());
        // Ids are never reused: those in between go with their pools.
        if pool.handle().id() % modulo == first % modulo {
            made.push(pool.bind());
        }
    }
    Ok(made)
}

fn new_pool(way: Way, arena: &Arc<dyn Provider>) -> Result<Pool, String> {
    Pool::new(way.params(), arena.clone()).map_err(|error| error_chain(&error))
}

/// Runs the owner's side. Returns ticks per buffer for each repetition (of the other thread's drops), the
/// counters, and the number of buffers.
fn repeat(
    plan: Plan,
    pools: &[Bound],
    to: &Sender<Vec<PageBuf>>,
    returned: &Receiver<u64>,
) -> Result<(Vec<f64>, Counted, u64), String> {
    let size = pools.len() * OUT.min(ALL_OUT / pools.len());
    let rounds = (plan.buffers / size).max(1);
    let mut ticks = Vec::with_capacity(plan.repeats);
    let mut before = Counted::default();
    for repeat in 0..=plan.repeats {
        let mut spent = 0;
        for _ in 0..rounds {
            let buffers = (0..size / pools.len()).flat_map(|_| pools.iter().map(pools::page)).collect();
            let dropped = to.send(buffers).ok().and_then(|()| returned.recv().ok());
            spent += dropped.ok_or("the returning thread ended early")?;
        }
        let each = spent as f64 / (rounds * size) as f64;
        if repeat == 0 { before = counted(pools) } else { ticks.push(each) }
    }
    let buffers = (plan.repeats * rounds * size) as u64;
    Ok((ticks, counted(pools).since(&before), buffers))
}

fn counted(pools: &[Bound]) -> Counted {
    let mut sums = BTreeMap::new();
    for (name, count) in pools.iter().flat_map(|pool| pool.stats().fields()) {
        let sum: &mut u64 = sums.entry(name).or_default();
        *sum = sum.wrapping_add(count);
    }
    Counted(sums)
}

fn return_all(given: Receiver<Vec<PageBuf>>, done: Sender<u64>, cpu: Option<usize>) {
    cpu.map(sys::pin_to);
    for mut buffers in given {
        // Not part of a return: fetch the handles from the other core.
        black_box(buffers.iter().map(|buf| buf.page().0).fold(0, u32::wrapping_add));
        let begin = clock::begin();
        buffers.clear();
        let _ = done.send(clock::end() - begin);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_buffer_returns_the_way_its_row_says() {
        let pools = [(1, 1), (100, 1), (20, 16)];
        let report =
            run_with(Plan { repeats: 1, buffers: 1024 }, pools.into_iter()).expect("256 MiB of addresses");
        assert_eq!(report.failed, Vec::<String>::new());
        assert_eq!(report.results.len(), 3 * pools.len());
        for row in &report.results {
            assert_eq!(
                row.counters.0["recycle_ring"],
                row.buffers,
                "{} pools, {}",
                row.pools,
                row.way.name()
            );
        }
    }

    #[test]
    fn pool_ids_are_equal_modulo_the_given_number() {
        let pools = make(5, 1024, Way::Lane).expect("256 MiB of addresses");
        let ids: Vec<u32> = pools.iter().map(|pool| pool.handle().id()).collect();
        assert!(ids.iter().all(|id| id % 1024 == ids[0] % 1024), "{ids:?}");
        assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
    }
}
