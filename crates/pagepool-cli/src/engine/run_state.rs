//! What the threads of a run share: how far it is, what each has seen, and what ended it.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pagepool_net::{PartCycles, Waker};

use super::port_sample::PortSample;

/// How far a run is; it only moves on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Phase {
    /// Pools and receive rings are being filled.
    WarmUp,
    /// Packets are sent.
    Traffic,
    /// The sources in this process shall send no more.
    Stopping,
    /// They do not; what is on its way arrives.
    Draining,
}

/// What a thread has seen, all at the same time.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// Of each of its ports.
    pub ports: Vec<PortSample>,
    /// Where its time went.
    pub cycles: PartCycles,
    /// Ticks in which it made frames of its own.
    pub make_ticks: u64,
    /// Numbered frames that it received, if they are looked at.
    pub checked: Option<Checked>,
}

/// Counts of a [`Tally`](pagepool_lab::Tally).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    pub good: u64,
    pub corrupt: u64,
}

/// What ended a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// Ctrl-C, SIGTERM or SIGHUP.
    Interrupted,
    /// The time was over.
    Time,
    /// All that was to be sent was.
    Sent,
    /// This queue of an interface went away.
    Gone(String),
    /// Somebody detached the XDP program of this interface.
    Detached(String),
    /// Standard output cannot be written.
    Output,
    /// A thread panicked.
    Broken,
}

/// Written by all threads of a run.
#[derive(Debug, Default)]
pub struct RunState {
    phase: AtomicU8,
    /// Packets that a source in this process sent.
    pub sent: AtomicU64,
    /// Packets that a sink in this process received.
    pub arrived: AtomicU64,
    /// Those of them that were not as they were sent.
    pub corrupt: AtomicU64,
    /// Polling threads that have nothing to send any more.
    finished: AtomicUsize,
    broken: AtomicBool,
    gone: Mutex<Option<String>>,
    detached: Mutex<Option<String>>,
    samples: Vec<Mutex<Sample>>,
    /// How often each polling thread has published.
    published: Vec<AtomicU64>,
    /// Of the polling threads, which sleep for long while nothing moves.
    wakers: Mutex<Vec<Waker>>,
}

impl RunState {
    /// For so many polling threads.
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

    /// Moves the run on to this phase, if it is not further already, which every thread notices at once.
    pub fn move_to(&self, phase: Phase) {
        // pairs with reached()
        if self.phase.fetch_max(phase as u8, Ordering::AcqRel) < phase as u8 {
            self.wake_threads();
        }
    }

    /// From now on a polling thread may sleep until something comes.
    pub fn add_waker(&self, waker: Waker) {
        lock(&self.wakers).push(waker);
    }

    /// Has every polling thread look at its devices, and publish what it sees, also one that sleeps.
    pub fn wake_threads(&self) {
        lock(&self.wakers).iter().for_each(Waker::wake);
    }

    /// A sink received so many packets, so many of which were not as they were sent.
    pub fn count_arrived(&self, arrived: u64, corrupt: u64) {
        if arrived > 0 {
            self.arrived.fetch_add(arrived, Ordering::Relaxed);
            self.corrupt.fetch_add(corrupt, Ordering::Relaxed);
        }
    }

    /// A polling thread has sent all that it had to.
    pub fn set_finished(&self) {
        self.finished.fetch_add(1, Ordering::Relaxed);
    }

    /// A thread panicked.
    pub fn set_broken(&self) {
        self.broken.store(true, Ordering::Relaxed);
    }

    /// A queue is gone.
    pub fn set_gone(&self, queue: &str) {
        lock(&self.gone).get_or_insert_with(|| queue.to_owned());
    }

    /// The XDP program of an interface was detached.
    pub fn set_detached(&self, interface: &str) {
        lock(&self.detached).get_or_insert_with(|| interface.to_owned());
    }

    /// Whether the threads themselves have come to an end, and why.
    pub fn end(&self) -> Option<RunEnd> {
        if self.broken.load(Ordering::Relaxed) {
            return Some(RunEnd::Broken);
        }
        let gone = lock(&self.gone).clone().map(RunEnd::Gone);
        let gone = gone.or_else(|| lock(&self.detached).clone().map(RunEnd::Detached));
        gone.or_else(|| (self.finished.load(Ordering::Relaxed) == self.samples.len()).then_some(RunEnd::Sent))
    }

    /// Publishes what a polling thread sees, by writing it over what it saw before.
    pub fn publish(&self, thread: usize, look: impl FnOnce(&mut Sample)) {
        look(&mut lock(&self.samples[thread]));
        self.published[thread].fetch_add(1, Ordering::Relaxed);
    }

    /// How often each polling thread has published: one that hangs does so no more.
    pub fn published(&self) -> Vec<u64> {
        self.published.iter().map(|published| published.load(Ordering::Relaxed)).collect()
    }

    /// What all polling threads have published last, as one sample.
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
