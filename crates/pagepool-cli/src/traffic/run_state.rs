//! What the threads of a command share: when it ends, and what each has seen.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pagepool_lab::Tally;
use pagepool_net::PartCycles;

use crate::engine::port_sample::PortSample;

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

/// Counts of a [`Tally`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    pub good: u64,
    pub corrupt: u64,
}

impl Checked {
    /// What it has counted so far.
    pub fn of(tally: &Tally) -> Self {
        Self { good: tally.good, corrupt: tally.corrupt }
    }
}

/// What ended a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Ctrl-C, or somebody who asked it to.
    Interrupted,
    /// The time was over.
    Time,
    /// All that was to be sent was.
    Sent,
    /// An interface went away: this queue of it.
    Gone(String),
    /// A thread panicked.
    Broken,
}

/// Written by all threads.
#[derive(Debug)]
pub struct Course {
    stop: AtomicBool,
    /// Threads that have nothing to send any more.
    over: AtomicUsize,
    broken: AtomicBool,
    gone: Mutex<Option<String>>,
    samples: Vec<Mutex<Sample>>,
}

impl Course {
    /// For so many threads.
    pub fn new(threads: usize) -> Self {
        let samples = (0..threads).map(|_| Mutex::default()).collect();
        let (stop, broken) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { stop, over: AtomicUsize::new(0), broken, gone: Mutex::default(), samples }
    }

    /// They shall end.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether they shall.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// A thread has sent all that it had to.
    pub fn is_over(&self) {
        self.over.fetch_add(1, Ordering::Relaxed);
    }

    /// A thread panicked.
    pub fn is_broken(&self) {
        self.broken.store(true, Ordering::Relaxed);
    }

    /// A queue is gone.
    pub fn is_gone(&self, queue: &str) {
        lock(&self.gone).get_or_insert_with(|| queue.to_owned());
    }

    /// Whether the threads themselves have come to an end.
    pub fn end(&self) -> Option<End> {
        if self.broken.load(Ordering::Relaxed) {
            return Some(End::Broken);
        }
        let gone = lock(&self.gone).clone().map(End::Gone);
        gone.or_else(|| (self.over.load(Ordering::Relaxed) == self.samples.len()).then_some(End::Sent))
    }

    /// Shows what a thread has seen, by writing it over what it had before.
    pub fn show(&self, thread: usize, look: impl FnOnce(&mut Sample)) {
        look(&mut lock(&self.samples[thread]));
    }

    /// What all have seen last, as one.
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
