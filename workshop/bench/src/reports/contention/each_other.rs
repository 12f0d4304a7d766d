//! N threads with a pool each: every thread hands its buffers to the others in turn, and returns theirs.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::waiting::{BURST, PaddedCount, RING, pause};
use crate::measure::clock;
use crate::measure::counted::{Counted, Moves, Rule};
use crate::measure::workload::Plan;
use crate::rivals::spsc::{self, BurstReceiver, BurstSender};
use crate::sys;
use crate::workloads::pools;
use pagepool::{Bound, PageBuf, PoolParams};

/// The last buffers of a repetition may return after it.
pub(super) const RULES: &[Rule] = &[
    Rule(&["alloc_fast", "alloc_refill"], Moves::Each),
    Rule(&["alloc_refill"], Moves::Any),
    Rule(&["recycle_ring"], Moves::Each),
];

/// The rings of one thread.
struct Rings {
    to: Vec<BurstSender<PageBuf>>,
    from: Vec<BurstReceiver<PageBuf>>,
}

/// What all threads share.
struct Meeting {
    barrier: Barrier,
    /// Buffers that each thread has returned since the start.
    returned: Vec<PaddedCount>,
    /// Whether threads share CPUs.
    shared: bool,
}

impl Meeting {
    fn returned(&self) -> usize {
        self.returned.iter().map(|PaddedCount(count)| count.load(Ordering::Acquire)).sum()
    }
}

/// Returns, for each repetition, the slowest thread's ticks per buffer, and what all pools counted.
pub(super) fn measure(plan: Plan, threads: usize, cpus: &[usize]) -> Result<(Vec<f64>, Counted), String> {
    let meeting = Meeting {
        barrier: Barrier::new(threads),
        returned: (0..threads).map(|_| PaddedCount(AtomicUsize::new(0))).collect(),
        shared: threads > cpus.len(),
    };
    let results = thread::scope(|scope| {
        let start = |(at, rings)| {
            let (meeting, cpu) = (&meeting, cpus[at % cpus.len()]);
            scope.spawn(move || take_part(plan, meeting, at, cpu, rings))
        };
        let running: Vec<_> = all_rings(threads).into_iter().enumerate().map(start).collect();
        running
            .into_iter()
            .map(|thread| thread.join().map_err(|_| "a thread panicked")?)
            .collect::<Result<Vec<_>, String>>()
    })?;
    let slowest = |repeat: usize| results.iter().map(|(ticks, _)| ticks[repeat]).fold(0.0, f64::max);
    let mut counted = Counted::default();
    for (name, count) in results.iter().flat_map(|(_, counted)| &counted.0) {
        *counted.0.entry(name).or_default() += count;
    }
    Ok(((0..plan.repeats).map(slowest).collect(), counted))
}

/// A ring from each thread to each other one.
fn all_rings(threads: usize) -> Vec<Rings> {
    let mut all: Vec<_> = (0..threads).map(|_| Rings { to: Vec::new(), from: Vec::new() }).collect();
    for from in 0..threads {
        // Each begins with the next thread, so that they do not all send to one.
        for to in (1..threads).map(|step| (from + step) % threads) {
            let (sender, receiver) = spsc::ring();
            all[from].to.push(sender);
            all[to].from.push(receiver);
        }
    }
    all
}

fn take_part(
    plan: Plan,
    meeting: &Meeting,
    at: usize,
    cpu: usize,
    mut rings: Rings,
) -> Result<(Vec<f64>, Counted), String> {
    sys::pin_to(cpu);
    let pool = pools::bound(PoolParams { ring_size: RING, ..PoolParams::default() });
    if let Ok(pool) = &pool {
        pools::fill(pool, rings.to.len() * (spsc::CAPACITY + BURST) + 2 * BURST + 64);
    }
    meeting.barrier.wait(); // also with an error: the others wait here
    let pool = pool?;
    let threads = meeting.returned.len();
    let (mut ticks, mut before) = (Vec::with_capacity(plan.repeats), Counted::default());
    for repeat in 0..=plan.repeats {
        if repeat == 1 {
            before = pools::counters_of(&pool)();
        }
        meeting.barrier.wait();
        let begin = clock::begin();
        let given = (repeat + 1) * plan.buffers * threads;
        exchange(plan.buffers, &pool, &mut rings, meeting, at, given);
        let spent = (clock::end() - begin) as f64 / plan.buffers as f64;
        if repeat > 0 {
            ticks.push(spent);
        }
    }
    Ok((ticks, pools::counters_of(&pool)().since(&before)))
}

/// Sends `n` buffers to the other threads in turn, and returns theirs until `given` have returned in all.
fn exchange(n: usize, pool: &Bound, rings: &mut Rings, meeting: &Meeting, at: usize, given: usize) {
    let (mut burst, mut got) = (Vec::with_capacity(BURST), Vec::with_capacity(BURST));
    let (mut left, mut to, mut spins) = (n / BURST, 0, 0);
    while left > 0 || meeting.returned() < given {
        if left > 0 && burst.is_empty() {
            burst.extend((0..BURST).map(|_| pools::page(pool)));
        }
        let others = rings.to.len();
        let sent = left > 0 && rings.to[to % others].push(&mut burst);
        left -= usize::from(sent);
        to += 1;
        let mut came = 0;
        for from in &mut rings.from {
            if from.pop(&mut got) {
                got.clear(); // returns them
                came += BURST;
            }
        }
        let PaddedCount(returned) = &meeting.returned[at];
        returned.store(returned.load(Ordering::Relaxed) + came, Ordering::Release);
        if !sent && came == 0 {
            spins += 1;
            pause(spins, meeting.shared);
        }
    }
}
