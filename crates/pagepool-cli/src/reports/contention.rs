//! `bench contention`: 1 to N threads return to one pool at the same time, through lanes or through the locked ring.
//!
//! The owner allocates on the first CPU and hands bursts of 32 to the returning threads in turn, each through a bare ring
//! of its own; a thread whose ring is full is passed over. Returning threads share the CPUs that are left; where there are
//! more threads than CPUs, a thread that finds nothing to do gives its time slice away, and the report says so.

use std::hint::spin_loop;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use pagepool::{Bound, PageBuf, PoolParams};
use serde::Serialize;

use super::{Report, table};
use crate::clock;
use crate::counted::{Counted, Moves, Rule, check};
use crate::pools;
use crate::spsc::{self, Receiver, Sender};
use crate::summary::Summary;
use crate::sys;
use crate::workload::Plan;

/// Buffers handed over at once.
const BURST: usize = 32;
/// Slots of the pool's locked ring: room for everything that is out, so that nothing leaves the pool.
const RING: usize = 16384;

/// One number of returning threads, one way home.
#[derive(Serialize)]
pub struct Row {
    threads: usize,
    way: &'static str,
    ns_min: f64,
    ns_med: f64,
    ns_max: f64,
    tsc_med: f64,
    buffers: u64,
    counters: Counted,
    failed: Option<String>,
}

/// Everything comes home by message, and nothing is taken from the arena.
const RULES: &[Rule] = &[
    Rule(&["alloc_fast", "alloc_refill"], Moves::Each),
    Rule(&["alloc_refill"], Moves::Any),
    Rule(&["recycle_ring"], Moves::Each),
];

/// Runs the report for 1 to `most` threads.
pub fn run(plan: Plan, most: usize) -> Result<Report<Vec<Row>>, String> {
    let cpus = sys::allowed_cpus();
    let (&first, rest) = cpus.split_first().ok_or("this process may use no CPU")?;
    sys::pin_to(first);
    let rest = if rest.is_empty() { &cpus[..] } else { rest };
    let mut rows = Vec::new();
    for threads in 1..=most {
        for (way, max_lanes) in [("lanes", threads), ("locked ring", 0)] {
            rows.push(measure(plan, threads, way, max_lanes, rest)?);
        }
    }
    let mut table =
        table(&["threads", "way home", "ns min", "med", "max", "tsc med", "recycle_ring", "alloc_refill"], 0);
    rows.iter().for_each(|row| _ = table.add_row(cells(row)));
    let failed = rows
        .iter()
        .filter_map(|row| Some(format!("{} threads, {}: {}", row.threads, row.way, row.failed.as_ref()?)));
    let failed = failed.collect();
    let about = format!(
        "per buffer, one owner on CPU {first}, returning threads on CPUs {rest:?}{}",
        if most > rest.len() {
            ";\nwith more threads than CPUs they share them, and only their number contends"
        } else {
            ""
        }
    );
    Ok(Report { name: "contention", about, results: rows, table, failed })
}

fn cells(row: &Row) -> [String; 8] {
    let of = |name: &str| row.counters.0.get(name).copied().unwrap_or(0).to_string();
    let [min, med, max] = [row.ns_min, row.ns_med, row.ns_max].map(|ns| format!("{ns:.2}"));
    let tsc = format!("{:.1}", row.tsc_med);
    [row.threads.to_string(), row.way.into(), min, med, max, tsc, of("recycle_ring"), of("alloc_refill")]
}

/// What the owner and the returning threads share.
#[derive(Default)]
struct Progress {
    returned: Vec<Line>,
    stop: AtomicBool,
}

/// A count on lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct Line(AtomicUsize);

impl Progress {
    fn returned(&self) -> usize {
        self.returned.iter().map(|count| count.0.load(Ordering::Acquire)).sum()
    }
}

fn measure(
    plan: Plan,
    threads: usize,
    way: &'static str,
    max_lanes: usize,
    cpus: &[usize],
) -> Result<Row, String> {
    let pool = pools::bound(PoolParams { max_lanes, ring_size: RING, ..PoolParams::default() })?;
    pools::fill(&pool, threads * (spsc::CAPACITY + BURST) + 2 * BURST + 64);
    let progress = Arc::new(Progress {
        returned: (0..threads).map(|_| Line::default()).collect(),
        stop: AtomicBool::new(false),
    });
    let shared = threads > cpus.len();
    let (mut senders, mut handles) = (Vec::new(), Vec::new());
    for at in 0..threads {
        let (tx, rx) = spsc::ring();
        senders.push(tx);
        let (progress, cpu) = (progress.clone(), cpus[at % cpus.len()]);
        handles.push(thread::spawn(move || return_all(rx, &progress, at, cpu, shared)));
    }
    let (ticks, counters) = repeat(plan, &pool, &mut senders, &progress, shared);
    progress.stop.store(true, Ordering::Release);
    for handle in handles {
        handle.join().map_err(|_| "a returning thread panicked")?;
    }
    let buffers = (plan.repeats * plan.buffers) as u64;
    let ticks = Summary::of(&ticks).ok_or("no repetitions")?;
    let ns = ticks.scaled(1.0 / clock::ticks_per_ns());
    let failed = check(&counters, RULES, buffers).err();
    Ok(Row {
        threads,
        way,
        ns_min: ns.min,
        ns_med: ns.med,
        ns_max: ns.max,
        tsc_med: ticks.med,
        buffers,
        counters,
        failed,
    })
}

/// The owner's side: ticks per buffer of each repetition, from the first allocation to the last return.
fn repeat(
    plan: Plan,
    pool: &Rc<Bound>,
    senders: &mut [Sender<PageBuf>],
    progress: &Progress,
    shared: bool,
) -> (Vec<f64>, Counted) {
    let counters = pools::counters_of(pool);
    let mut before = Counted::default();
    let mut ticks = Vec::with_capacity(plan.repeats);
    let mut burst = Vec::with_capacity(BURST);
    let mut given = 0;
    for repeat in 0..=plan.repeats {
        let begin = clock::begin();
        for at in 0..plan.buffers / BURST {
            burst.extend((0..BURST).map(|_| pools::page(pool)));
            let mut to = at;
            while !senders[to % senders.len()].push(&mut burst) {
                to += 1;
                pause(to, shared);
            }
        }
        given += plan.buffers;
        let mut spins = 0;
        while progress.returned() < given {
            spins += 1;
            pause(spins, shared);
        }
        let spent = (clock::end() - begin) as f64 / plan.buffers as f64;
        if repeat == 0 { before = counters() } else { ticks.push(spent) }
    }
    (ticks, counters().since(&before))
}

fn return_all(mut rx: Receiver<PageBuf>, progress: &Progress, at: usize, cpu: usize, shared: bool) {
    sys::pin_to(cpu);
    let mut got = Vec::with_capacity(BURST);
    let (mut count, mut spins) = (0, 0);
    while !progress.stop.load(Ordering::Acquire) {
        if rx.pop(&mut got, BURST) {
            got.clear();
            count += BURST;
            progress.returned[at].0.store(count, Ordering::Release);
        } else {
            spins += 1;
            pause(spins, shared);
        }
    }
}

/// Waits a moment; where threads share CPUs, now and then for a whole time slice.
fn pause(spins: usize, shared: bool) {
    if shared && spins.is_multiple_of(64) { thread::yield_now() } else { spin_loop() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_account_for_every_buffer() {
        let report = run(Plan { repeats: 1, buffers: 4096 }, 2).expect("64 MiB of addresses");
        assert_eq!(report.failed, Vec::<String>::new());
        assert_eq!(report.results.len(), 4);
        assert!(report.results.iter().all(|row| row.counters.0["recycle_ring"] == 4096));
    }
}
