//! `pagepool-bench contention`: 1 to N threads return to one owner at the same time, through a pool's lanes,
//! a pool's locked ring, and, for comparison, a lock-free ring without a pool.
//!
//! The owner allocates on the first CPU and hands bursts of 32 to the returning threads in turn, each through
//! its own bare ring; it skips full rings. Returning threads share the remaining CPUs; if there are too few,
//! a thread without work yields, and the report says so. A last row has a pool per thread: see
//! [`each_other`].

mod each_other;
mod waiting;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::measure::clock;
use crate::measure::counted::{Counted, Moves, Rule, check};
use crate::measure::summary::{Times, cell};
use crate::measure::workload::Plan;
use crate::rivals::mpsc::Mpsc;
use crate::rivals::spsc::{BurstReceiver, BurstSender};
use crate::rivals::{mpsc, spsc};
use crate::sys;
use crate::workloads::pools;
use pagepool::{Bound, PageBuf, PoolParams};
use pagepool_cli::report::output;
use serde::Serialize;

use super::{Report, table};
use waiting::{BURST, PaddedCount, RING, pause};

/// One number of threads, one return path.
#[derive(Serialize)]
pub struct ContentionRow {
    threads: usize,
    way: &'static str,
    /// No pool is behind it.
    rival: bool,
    #[serde(flatten)]
    times: Times,
    buffers: u64,
    counters: Counted,
    failed: Option<String>,
}

/// A return path, from the owner's view.
trait ContentionPath {
    /// Returned when a returning thread drops it.
    type Buffer: Send;
    /// What must be counted, and nothing else.
    const RULES: &'static [Rule];

    /// Never runs dry: a path has more idle pages than can be out.
    fn alloc(&mut self) -> Self::Buffer;
    fn counted(&self) -> Counted;
}

/// A pool's lanes or locked ring.
impl ContentionPath for Bound {
    type Buffer = PageBuf;
    const RULES: &'static [Rule] = &[
        Rule(&["alloc_fast", "alloc_refill"], Moves::Each),
        Rule(&["alloc_refill"], Moves::Any),
        Rule(&["recycle_ring"], Moves::Each),
    ];

    #[inline(always)]
    fn alloc(&mut self) -> PageBuf {
        pools::page(self)
    }

    fn counted(&self) -> Counted {
        pools::counters_of(self)()
    }
}

/// The lock-free ring, with its own counters.
impl<'a> ContentionPath for mpsc::Owner<'a> {
    type Buffer = mpsc::QueuedPage<'a>;
    const RULES: &'static [Rule] = mpsc::RULES;

    #[inline(always)]
    fn alloc(&mut self) -> mpsc::QueuedPage<'a> {
        self.alloc().expect("it has more pages than can be out")
    }

    fn counted(&self) -> Counted {
        self.counted()
    }
}

/// Runs the report for 1 to `most` threads.
pub fn run(plan: Plan, most: usize) -> Result<Report<Vec<ContentionRow>>, String> {
    let cpus = sys::allowed_cpus();
    let (&first, rest) = cpus.split_first().ok_or("this process may use no CPU")?;
    sys::pin_to(first);
    let rest = if rest.is_empty() { &cpus[..] } else { rest };
    let mut rows = Vec::new();
    for threads in 1..=most {
        output::progress(format_args!("bench contention: {threads} of up to {most} threads"));
        let case = |way, rival| ContentionCase { plan, threads, cpus: rest, way, rival };
        rows.push(through_pool(case("lanes", false), threads)?);
        rows.push(lock_free(case("lock-free ring", true))?);
        rows.push(through_pool(case("locked ring", false), 0)?);
        if threads > 1 {
            rows.push(pool_each(case("lanes, a pool each", false), &cpus)?);
        }
    }
    let mut table =
        table(&["threads", "returned by", "ns min", "med", "max", "tsc med", "returned", "refills"], 0);
    rows.iter().for_each(|row| _ = table.add_row(cells(row)));
    let failed = rows
        .iter()
        .filter_map(|row| Some(format!("{} threads, {}: {}", row.threads, row.way, row.failed.as_ref()?)));
    let failed = failed.collect();
    let about = format!(
        "per buffer, one owner on CPU {first}, returning threads on CPUs {rest:?}{};\n{}",
        if most > rest.len() {
            ";\nthere are more threads than CPUs: some share a CPU, and not all return at the same time"
        } else {
            ""
        },
        "lock-free ring: for comparison, crossbeam's ArrayQueue and a stack, without a pool;\na pool each: every \
         thread sends its buffers to the others and returns theirs, per buffer of one thread, on all CPUs"
    );
    Ok(Report { name: "contention", about, results: rows, table, failed })
}

fn cells(row: &ContentionRow) -> [String; 8] {
    let of =
        |names: [&str; 2]| names.iter().filter_map(|&name| row.counters.0.get(name)).sum::<u64>().to_string();
    let Times { ns_min, ns_med, ns_max, tsc_med } = row.times;
    let [min, med, max] = [ns_min, ns_med, ns_max].map(|ns| cell(ns, 2));
    let (came_home, refills) = (of(["recycle_ring", "came_home"]), of(["alloc_refill", "refills"]));
    [row.threads.to_string(), row.way.into(), min, med, max, cell(tsc_med, 1), came_home, refills]
}

struct ContentionCase<'a> {
    plan: Plan,
    threads: usize,
    cpus: &'a [usize],
    way: &'static str,
    rival: bool,
}

impl ContentionCase<'_> {
    /// As many as can be out, and a refill.
    fn pages(&self) -> usize {
        self.threads * (spsc::CAPACITY + BURST) + 2 * BURST + 64
    }
}

fn through_pool(case: ContentionCase, max_lanes: usize) -> Result<ContentionRow, String> {
    let mut pool = pools::bound(PoolParams { max_lanes, ring_size: RING, ..PoolParams::default() })?;
    pools::fill(&pool, case.pages());
    measure(case, &mut pool)
}

/// With a pool per thread, all CPUs take part.
fn pool_each(case: ContentionCase, cpus: &[usize]) -> Result<ContentionRow, String> {
    let ContentionCase { plan, threads, way, rival, .. } = case;
    let (ticks, counters) = each_other::measure(plan, threads, cpus)?;
    let buffers = (plan.repeats * plan.buffers * threads) as u64;
    let failed = check(&counters, each_other::RULES, buffers).err();
    Ok(ContentionRow { threads, way, rival, times: Times::of(&ticks), buffers, counters, failed })
}

fn lock_free(case: ContentionCase) -> Result<ContentionRow, String> {
    let mut mpsc = Mpsc::new(pools::arena(pools::PAGES)?, case.pages())?;
    measure(case, &mut mpsc.owner())
}

/// Shared by owner and returning threads, apart from the owner's own data.
#[repr(align(128))]
struct Progress {
    returned: Vec<PaddedCount>,
    stop: AtomicBool,
}

/// Ends the returning threads, even on a panic.
struct StopAtEnd<'a>(&'a Progress);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Release);
    }
}

impl Progress {
    fn returned(&self) -> usize {
        self.returned.iter().map(|count| count.0.load(Ordering::Acquire)).sum()
    }
}

fn measure<W: ContentionPath>(case: ContentionCase, way: &mut W) -> Result<ContentionRow, String> {
    let ContentionCase { plan, threads, cpus, .. } = case;
    let progress = Progress {
        returned: (0..threads).map(|_| PaddedCount::default()).collect(),
        stop: AtomicBool::new(false),
    };
    let shared = threads > cpus.len();
    let (ticks, counters) = thread::scope(|scope| {
        let _stop = StopAtEnd(&progress);
        let start = |at| {
            let (tx, rx) = spsc::ring();
            let (progress, cpu) = (&progress, cpus[at % cpus.len()]);
            scope.spawn(move || return_all(rx, progress, at, cpu, shared));
            tx
        };
        let mut senders: Vec<_> = (0..threads).map(start).collect();
        repeat(plan, way, &mut senders, &progress, shared)
    });
    let buffers = (plan.repeats * plan.buffers) as u64;
    let failed = check(&counters, W::RULES, buffers).err();
    Ok(ContentionRow {
        threads,
        way: case.way,
        rival: case.rival,
        times: Times::of(&ticks),
        buffers,
        counters,
        failed,
    })
}

/// Runs the owner's side. Returns ticks per buffer for each repetition, from the first allocation to the last
/// return.
fn repeat<W: ContentionPath>(
    plan: Plan,
    way: &mut W,
    senders: &mut [BurstSender<W::Buffer>],
    progress: &Progress,
    shared: bool,
) -> (Vec<f64>, Counted) {
    let mut before = Counted::default();
    let mut ticks = Vec::with_capacity(plan.repeats);
    let mut burst = Vec::with_capacity(BURST);
    let mut given = 0;
    for repeat in 0..=plan.repeats {
        let begin = clock::begin();
        for at in 0..plan.buffers / BURST {
            burst.extend((0..BURST).map(|_| way.alloc()));
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
        if repeat == 0 { before = way.counted() } else { ticks.push(spent) }
    }
    (ticks, way.counted().since(&before))
}

fn return_all<B: Send>(mut rx: BurstReceiver<B>, progress: &Progress, at: usize, cpu: usize, shared: bool) {
    sys::pin_to(cpu);
    let mut got = Vec::with_capacity(BURST);
    let (mut count, mut spins) = (0, 0);
    while !progress.stop.load(Ordering::Acquire) {
        if rx.pop(&mut got) {
            got.clear();
            count += BURST;
            progress.returned[at].0.store(count, Ordering::Release);
        } else {
            spins += 1;
            pause(spins, shared);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_accounts_for_every_buffer() {
        let report = run(Plan { repeats: 1, buffers: 4096 }, 2).expect("64 MiB of addresses");
        assert_eq!(report.failed, Vec::<String>::new());
        assert_eq!(report.results.len(), 7);
        for row in &report.results {
            let came_home = if row.rival { "came_home" } else { "recycle_ring" };
            assert_eq!(row.counters.0[came_home], row.buffers, "{} threads, {}", row.threads, row.way);
        }
        assert_eq!(report.results[6].buffers, 2 * 4096, "of both pools");
    }
}
