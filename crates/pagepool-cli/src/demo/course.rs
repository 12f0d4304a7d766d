//! What the threads of a demonstration share: how far it is, and what they counted.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::engine::port_sample::PortSample;

/// How far it is; each thread only ever moves it on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Phase {
    /// The pools and the receive rings are being filled.
    WarmUp,
    /// The source sends.
    Traffic,
    /// The source shall send no more.
    Stopping,
    /// It does not; what is on its way arrives.
    Draining,
}

/// Written by all threads of a demonstration.
#[derive(Debug)]
pub struct Course {
    phase: AtomicU8,
    /// Packets that the source sent.
    pub sent: AtomicU64,
    /// Packets that came to the end of their way.
    pub arrived: AtomicU64,
    /// Those of them that were not as they were sent.
    pub corrupt: AtomicU64,
    sample: Mutex<Sample>,
}

/// What the forwarding thread saw of both ports, all at the same time.
pub type Sample = [PortSample; 2];

impl Course {
    /// At its beginning.
    pub fn new() -> Self {
        Self {
            phase: AtomicU8::new(Phase::WarmUp as u8),
            sent: AtomicU64::new(0),
            arrived: AtomicU64::new(0),
            corrupt: AtomicU64::new(0),
            sample: Mutex::default(),
        }
    }

    /// Whether it is so far.
    pub fn reached(&self, phase: Phase) -> bool {
        self.phase.load(Ordering::Acquire) >= phase as u8 // pairs with move_to()
    }

    /// It is so far, or further.
    pub fn move_to(&self, phase: Phase) {
        self.phase.fetch_max(phase as u8, Ordering::AcqRel); // pairs with reached()
    }

    /// Shows what the forwarding thread saw.
    pub fn show(&self, sample: Sample) {
        *self.sample.lock().unwrap_or_else(PoisonError::into_inner) = sample;
    }

    /// What it saw last.
    pub fn sample(&self) -> Sample {
        *self.sample.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
