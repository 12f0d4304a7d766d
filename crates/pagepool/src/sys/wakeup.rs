//! The wake-up: an owner that found no page and sleeps on a socket learns that buffers returned.
//!
//! Without it: the fill ring is dry, the owner sleeps, another thread returns 512 buffers, and the kernel,
//! having no frame, never wakes it. So an owner that finds nothing raises `starved` here and in its lanes,
//! then looks again; the first that brings a page after that writes the eventfd, once.
//!
//! Who    owner: `starve`, `sated`, `acknowledge`, `fd`. Any thread that brought a page: `wake`. The thread
//!        that ends the pool: `close`.
//! Pairs  returner: slot, light fence, flag. Owner: flag, heavy fence, slots again (lane.rs, `raise_all`).
//!        wake (starved, Release) -> is_starved (Acquire): the owner raises its lanes' flags again only after
//!        those that the returner had lowered before it woke.

// UNSAFETY: the descriptor is lent for as long as the pool lives, which its type cannot say.
#![expect(unsafe_code)]

use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use crate::sys::call::{eventfd_signal, eventfd_take};
use crate::sys::sync::{AtomicU32, Lock, Ordering};

/// Lives as long as the last thread that may signal it; the descriptor only until the pool ends.
#[derive(Debug)]
pub(crate) struct Wakeup {
    starved: AtomicU32,
    /// The descriptor's number, for the owner, who needs no lock: it is open until the owner half is given
    /// up.
    fd: Option<RawFd>,
    event: Lock<Option<File>>,
}

impl Wakeup {
    /// One that signals `event`, or none that does nothing.
    pub(crate) fn new(event: Option<File>) -> Self {
        let fd = event.as_ref().map(|fd| fd.as_raw_fd());
        Self { starved: AtomicU32::new(0), fd, event: Lock::new(event) }
    }

    /// Whether the pool was made with a descriptor to sleep on.
    pub(crate) fn is_there(&self) -> bool {
        self.fd.is_some()
    }

    /// The descriptor to sleep on, where the pool was made with one.
    ///
    /// # Safety
    /// The pool has not ended, and does not end while the descriptor is borrowed.
    pub(crate) unsafe fn fd(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: `close` comes with the end of the pool, which the caller rules out.
        self.fd.map(|fd| unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Whether the owner waits to be woken.
    pub(crate) fn is_starved(&self) -> bool {
        self.starved.load(Ordering::Acquire) != 0 // pairs with wake()
    }

    /// For the owner: from now on the first page that comes signals.
    pub(crate) fn starve(&self) {
        self.starved.store(1, Ordering::Relaxed);
    }

    /// For the owner: it found something after all.
    pub(crate) fn sated(&self) {
        self.starved.store(0, Ordering::Relaxed);
    }

    /// For whoever brought a page: signals, if it is the first since the owner starved.
    #[cold]
    pub(crate) fn wake(&self) {
        // Release pairs with is_starved().
        if self.starved.swap(0, Ordering::AcqRel) != 0
            && let Some(event) = &*self.event.lock()
        {
            eventfd_signal(event);
        }
    }

    /// For the owner, after it woke: takes the signal back.
    pub(crate) fn acknowledge(&self) {
        if let Some(event) = &*self.event.lock() {
            eventfd_take(event);
        }
    }

    /// The pool ends: nobody sleeps any more. Threads that keep a lane of it keep no descriptor.
    pub(crate) fn close(&self) {
        drop(self.event.lock().take());
    }
}
