//! What driver and port share beside the rings: the gate, the end, and the wake-up.
//!
//! Gate   a lock that the port holds during a step and the driver takes to close: once per step, not per packet.
//! Sleep  the port stores a completion, then looks whether the driver sleeps; the driver says that it sleeps, then looks
//!        for completions. Each stores and then loads something else, so both have a SeqCst fence in between: at least
//!        one of the two sees the other's store.
//! Cost   a step: the uncontended lock, and one fence where it completed something.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pagepool::Error;

use crate::sys::event;

#[derive(Debug)]
pub(super) struct Link {
    /// Who holds it and finds the device not gone may touch what is on the rings.
    gate: Mutex<()>,
    /// Nothing will ever happen again: the device died, or the driver closed, which it says under the lock.
    gone: AtomicBool,
    sleeping: AtomicBool,
    event: OwnedFd,
    pub(super) counts: PortCounts,
}

/// What the port counts and the driver reports: written by the port alone.
#[derive(Debug, Default)]
pub(super) struct PortCounts {
    pub(super) no_buffer: Count,
    pub(super) too_long: Count,
    pub(super) faults: Count,
}

/// A counter with one writer.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add_one(&self) {
        self.0.store(self.0.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    pub(super) fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Link {
    pub(super) fn new() -> Result<Self, Error> {
        let event = event::eventfd().map_err(|source| Error::System {
            call: "eventfd",
            remedy: "raise RLIMIT_NOFILE: each in-memory NIC has one descriptor".into(),
            source,
        })?;
        Ok(Self {
            gate: Mutex::new(()),
            gone: AtomicBool::new(false),
            sleeping: AtomicBool::new(false),
            event,
            counts: PortCounts::default(),
        })
    }

    /// For the port: the right to touch what is on the rings, for as long as the guard lives.
    #[inline]
    pub(super) fn enter(&self) -> Option<MutexGuard<'_, ()>> {
        let gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_gone() { None } else { Some(gate) }
    }

    /// For the driver: waits for a step to end, and lets none begin.
    pub(super) fn close(&self) {
        let _gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        self.gone.store(true, Ordering::Relaxed); // the lock carries it to enter()
    }

    /// For the port: the device dies.
    pub(super) fn die(&self) {
        self.gone.store(true, Ordering::Relaxed);
        self.wake();
    }

    #[inline(always)]
    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// For the port, behind everything that it completed.
    #[inline]
    pub(super) fn wake(&self) {
        fence(Ordering::SeqCst); // pairs with the fence in sleep()
        if self.sleeping.load(Ordering::Relaxed) && self.sleeping.swap(false, Ordering::Relaxed) {
            event::signal(self.event.as_fd());
        }
    }

    /// For the driver: from here on the port wakes. Look at the rings before going to sleep.
    pub(super) fn sleep(&self) {
        self.sleeping.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst); // pairs with the fence in wake()
    }

    /// For the driver: it is awake.
    pub(super) fn awake(&self) {
        self.sleeping.store(false, Ordering::Relaxed);
        event::take(self.event.as_fd());
    }

    /// What the driver sleeps on.
    pub(super) fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
