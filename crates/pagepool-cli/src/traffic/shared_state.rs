//! What the threads of a run share: its phase, the samples of each thread, and what ended it.

use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pagepool_net::{PartCycles, Waker};

use crate::traffic::PortSample;

/// The phase of a run. It only moves forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Phase {
    /// Pools and receive rings are being filled.
    WarmUp,
    /// Packets are sent.
    Traffic,
    /// The sources in this process are to stop sending.
    Stopping,
    /// The sources have stopped; packets on their way arrive.
    Draining,
}

/// What a thread has seen, all at the same time.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    pub ports: Vec<PortSample>,
    /// Where its time went.
    pub cycles: PartCycles,
    /// Ticks spent on making frames of its own.
    pub make_ticks: u64,
    /// Numbered frames that it received, if it checks them.
    pub checked: Option<Checked>,
}

/// Counts of a [`Tally`](pagepool_net::Tally).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    pub good: u64,
    pub corrupt: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// Ctrl-C, SIGTERM or SIGHUP.
    Interrupted,
    Time,
    /// Everything that was to be sent has been sent.
    Sent,
    /// This queue of an interface was removed.
    Gone(String),
    /// The XDP program of this interface was detached or replaced.
    Detached(String),
    /// Standard output cannot be written.
    Output,
    /// A thread panicked.
    Broken,
}

#[derive(Debug, Default)]
pub struct SharedState {
    phase: AtomicU8,
    /// Packets sent by a source in this process.
    pub sent: AtomicU64,
    /// Packets received by a sink in this process.
    pub arrived: AtomicU64,
    /// Packets that the sink received damaged.
    pub corrupt: AtomicU64,
    /// The number of polling threads that have nothing more to send.
    finished: AtomicUsize,
    ended_by: Mutex<Option<RunEnd>>,
    samples: Vec<Mutex<Sample>>,
    published: Vec<AtomicU64>,
    /// The wakers of the polling threads, which sleep long while nothing moves.
    wakers: Mutex<Vec<Waker>>,
}

impl SharedState {
    pub fn new(threads: usize) -> Self {
        let samples = (0..threads).map(|_| Mutex::default()).collect();
        let published = (0..threads).map(|_| AtomicU64::new(0)).collect();
        Self { phase: AtomicU8::new(Phase::WarmUp as u8), samples, published, ..Self::default() }
    }

    /// Whether the run is in this phase, or in a later one.
    #[inline]
    pub fn reached(&self, phase: Phase) -> bool {
        self.phase.load(Ordering::Acquire) >= phase as u8 // pairs with move_to()
    }

    /// Moves the run to this phase, unless it is further already. Every thread notices at once.
    pub fn move_to(&self, phase: Phase) {
        // pairs with reached()
        if self.phase.fetch_max(phase as u8, Ordering::AcqRel) < phase as u8 {
            self.wake_threads();
        }
    }

    /// Adds the waker of a polling thread, which may then sleep until something comes.
    pub fn add_waker(&self, waker: Waker) {
        lock(&self.wakers).push(waker);
    }

    /// Makes every polling thread look at its devices and publish, even if it sleeps.
    pub fn wake_threads(&self) {
        lock(&self.wakers).iter().for_each(Waker::wake);
    }

    /// Counts packets that a sink received, and how many of them were damaged.
    pub fn count_arrived(&self, arrived: u64, corrupt: u64) {
        if arrived > 0 {
            self.arrived.fetch_add(arrived, Ordering::Relaxed);
            self.corrupt.fetch_add(corrupt, Ordering::Relaxed);
        }
    }

    /// Records that a polling thread has sent everything.
    pub fn set_finished(&self) {
        self.finished.fetch_add(1, Ordering::Relaxed);
    }

    /// Records what ends the run. Of several, a panic counts first, then a removed queue, then the first one.
    pub fn set_end(&self, end: RunEnd) {
        let rank = |end: &RunEnd| match end {
            RunEnd::Broken => 0,
            RunEnd::Gone(_) => 1,
            _ => 2,
        };
        let mut ended_by = lock(&self.ended_by);
        if ended_by.as_ref().is_none_or(|before| rank(&end) < rank(before)) {
            *ended_by = Some(end);
        }
    }

    /// What ended the run, if a thread has recorded an end.
    pub fn end(&self) -> Option<RunEnd> {
        let sent = || (self.finished.load(Ordering::Relaxed) == self.samples.len()).then_some(RunEnd::Sent);
        lock(&self.ended_by).clone().or_else(sent)
    }

    /// Publishes the sample of a polling thread, over its previous one.
    pub fn publish(&self, thread: usize, look: impl FnOnce(&mut Sample)) {
        look(&mut lock(&self.samples[thread]));
        self.published[thread].fetch_add(1, Ordering::Relaxed);
    }

    /// How often each polling thread has published. The count of one that hangs stands still.
    pub fn published(&self) -> Vec<u64> {
        self.published.iter().map(|published| published.load(Ordering::Relaxed)).collect()
    }

    /// The latest samples of all polling threads, as one.
    pub fn sample(&self) -> Sample {
        let mut all = Sample::default();
        for sample in &self.samples {
            let sample = lock(sample);
            all.ports.extend_from_slice(&sample.ports);
            all.cycles += sample.cycles;
            all.make_ticks += sample.make_ticks;
            if let Some(checked) = sample.checked {
                let sum = all.checked.get_or_insert_default();
                sum.good += checked.good;
                sum.corrupt += checked.corrupt;
            }
        }
        all
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
