//! State that driver and port share beside the rings: the gate, the end, and the wake-up.
//!
//! Gate   a lock that the port holds during a step, and the driver takes to close: once per step, not per
//!        packet.
//! Sleep  the port rings a [doorbell](Doorbell) after its completions, and when the device dies.
//! Cost   a step: an uncontended lock, and one fence if it completed something.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pagepool::Error;

use crate::device::doorbell::Doorbell;

#[derive(Debug)]
pub(super) struct Link {
    /// Its holder may touch the buffers on the rings, unless the device is gone.
    gate: Mutex<()>,
    /// The device died, or the driver closed (stored under the lock).
    gone: AtomicBool,
    pub(super) bell: Doorbell,
    pub(super) counts: PortCounts,
}

/// Counters that the port writes and the driver reports.
#[derive(Debug, Default)]
pub(super) struct PortCounts {
    pub(super) no_buffer: AtomicU64,
    pub(super) too_long: AtomicU64,
    pub(super) faults: AtomicU64,
}

impl Link {
    pub(super) fn new() -> Result<Self, Error> {
        Ok(Self {
            gate: Mutex::new(()),
            gone: AtomicBool::new(false),
            bell: Doorbell::new()?,
            counts: PortCounts::default(),
        })
    }

    /// For the port: the right to touch the buffers on the rings, while the guard lives.
    #[inline]
    pub(super) fn enter(&self) -> Option<MutexGuard<'_, ()>> {
        let gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_gone() { None } else { Some(gate) }
    }

    /// For the driver: waits for the current step to end, and prevents further ones.
    pub(super) fn close(&self) {
        let _gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        self.gone.store(true, Ordering::Relaxed); // the lock carries it to enter()
    }

    /// For the port: makes the device die.
    pub(super) fn die(&self) {
        self.gone.store(true, Ordering::Relaxed);
        self.bell.ring();
    }

    #[inline(always)]
    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }
}
