//! The wake-up: an owner that ran dry and sleeps on a socket learns that buffers returned.
//!
//! Without it: the fill ring is dry, the owner sleeps, another thread returns 512 buffers, and the kernel,
//! having no frame, never wakes it. So an owner that finds nothing raises `starved`; the first returner that
//! sees it after its push writes the eventfd, once.
//!
//! Pairs  returner: slot, light fence, flag. Owner: flag, heavy fence, slots again (lane.rs, `raise_all`).

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};

use crate::sys::call::{eventfd_signal, eventfd_take};
use crate::sys::sync::{AtomicU32, Ordering};

/// Lives as long as the pool and every lane of it.
#[derive(Debug)]
pub(crate) struct Wakeup {
    starved: AtomicU32,
    event: Option<File>,
}

impl Wakeup {
    /// One that signals `event`, or none that does nothing.
    pub(crate) fn new(event: Option<File>) -> Self {
        Self { starved: AtomicU32::new(0), event }
    }

    /// The descriptor to sleep on, where the pool was made with one.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.event.as_ref().map(AsFd::as_fd)
    }

    /// Whether the owner waits to be woken.
    pub(crate) fn is_starved(&self) -> bool {
        self.starved.load(Ordering::Relaxed) != 0
    }

    /// For the owner: from now on the first return signals.
    pub(crate) fn starve(&self) {
        self.starved.store(1, Ordering::Relaxed);
    }

    /// For the owner: it found something after all.
    pub(crate) fn sated(&self) {
        self.starved.store(0, Ordering::Relaxed);
    }

    /// For a returner: signals, if it is the first since the owner starved.
    #[cold]
    pub(crate) fn wake(&self) {
        if self.starved.swap(0, Ordering::Relaxed) != 0
            && let Some(event) = &self.event
        {
            eventfd_signal(event);
        }
    }

    /// For the owner, after it woke: takes the signal back.
    pub(crate) fn acknowledge(&self) {
        self.event.as_ref().map(eventfd_take);
    }
}
