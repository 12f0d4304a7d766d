//! The wake-up: an owner that found no page and waits, on a descriptor or in tasks, learns that buffers
//! returned.
//!
//! Without it: the fill ring is dry, the owner sleeps, another thread returns 512 buffers, and the kernel,
//! having no frame, never wakes it. So an owner that finds nothing arms the wake-up: it raises `starved` here
//! and a flag in its lanes, then looks again. The first that brings a page after that signals, once: it
//! writes the eventfd and calls the wakers of all tasks that wait.
//!
//! States by `asked`, which the owner keeps for itself, and `starved`:
//!        not asked            nobody signals; the next allocation that fails arms.
//!        asked, starved       armed: the next page signals.
//!        asked, not starved   the signal stands, or its thread is about to set it. Whoever sleeps wakes at
//!                             once, so that allocations that fail need not arm: the heavy fence of arming is
//!                             paid once for each signal that the owner took back (`acknowledge`).
//! Who    owner: `starve`, `acknowledge`, `signal_was_read`, `expect`, `forget`, `fd`. Any thread that
//!        brought a page: `wake`, with no lock held, for wakers are callbacks. The thread that ends the
//!        pool: `close`.
//! Pairs  returner: slot, light fence, flag. Owner: flag, heavy fence, slots again (lane.rs, `raise_all`).
//!        wake (starved, AcqRel) -> starve (Acquire): flags that a returner lowered before its wake are
//!        lowered before the owner raises them again. Both are exchanges, so one of the two reads what the
//!        other wrote.

// UNSAFETY: the descriptor is lent for as long as the pool lives, which its type cannot say.
#![expect(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

use crate::probes;
use crate::sys::call::{OwnFd, eventfd_is_set, eventfd_signal, eventfd_take};
use crate::sys::sync::{AtomicU32, Lock, Ordering};

/// Lives as long as the last thread that may signal it; the descriptor only until the pool ends.
#[derive(Debug)]
pub(crate) struct Wakeup {
    /// The pool's id, for tracers.
    pool: u32,
    starved: AtomicU32,
    /// The descriptor's number, for the owner, who needs no lock: it is open until the owner half is given
    /// up.
    fd: Option<RawFd>,
    signal: Lock<Signal>,
}

#[derive(Debug)]
struct Signal {
    event: Option<OwnFd>,
    /// It was given, and the owner has not acknowledged it.
    stands: bool,
    /// Tasks that wait, each by the key that the owner gave it.
    tasks: Vec<(u64, Waker)>,
}

impl Signal {
    /// Takes it back; says whether it stood.
    fn take(&mut self) -> bool {
        if self.stands
            && let Some(event) = &self.event
        {
            eventfd_take(event);
        }
        std::mem::take(&mut self.stands)
    }
}

impl Wakeup {
    /// That of a pool: it signals `event`, if there is one, and tasks.
    pub(crate) fn new(pool: u32, event: Option<OwnFd>) -> Self {
        let fd = event.as_ref().map(|fd| fd.as_raw_fd());
        let signal = Signal { event, stands: false, tasks: Vec::new() };
        Self { pool, starved: AtomicU32::new(0), fd, signal: Lock::new(signal) }
    }

    /// Whether the pool was made with a descriptor to sleep on.
    pub(crate) fn has_fd(&self) -> bool {
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

    /// Whether the next page signals.
    pub(crate) fn is_starved(&self) -> bool {
        self.starved.load(Ordering::Relaxed) != 0
    }

    /// For the owner: from now on the first page that comes signals.
    pub(crate) fn starve(&self) {
        self.starved.swap(1, Ordering::Acquire); // pairs with wake()
    }

    /// For whoever brought a page: signals, if it is the first since the owner starved. Runs callbacks.
    #[cold]
    pub(crate) fn wake(&self) {
        // Release pairs with starve().
        if self.starved.swap(0, Ordering::AcqRel) != 0 {
            self.signal();
        }
    }

    /// For whoever has something to tell the owner: signals, armed or not. A signal too many wakes the owner
    /// once in vain. Runs callbacks.
    #[cold]
    pub(crate) fn signal(&self) {
        let tasks = self.give_signal();
        let woken = tasks.len();
        tasks.into_iter().for_each(|(_, task)| call(task));
        probes::wake(self.pool, woken);
    }

    fn give_signal(&self) -> Vec<(u64, Waker)> {
        let mut signal = self.signal.lock();
        signal.stands = true;
        if let Some(event) = &signal.event {
            eventfd_signal(event);
        }
        std::mem::take(&mut signal.tasks)
    }

    /// For the owner, before the allocation whose failure sends it to sleep: takes the signal back; says
    /// whether there was one.
    pub(crate) fn acknowledge(&self) -> bool {
        self.signal.lock().take()
    }

    /// For the owner: whether somebody took the signal back by reading the descriptor; then it stands no
    /// longer.
    pub(crate) fn signal_was_read(&self) -> bool {
        let mut signal = self.signal.lock();
        let read = signal.stands && signal.event.as_ref().is_some_and(|event| !eventfd_is_set(event));
        signal.stands &= !read;
        read
    }

    /// As [`acknowledge`](Self::acknowledge); and the next signal calls this waker, too, which takes the
    /// place of an earlier one of the same key. One step: a signal that is on its way finds the waker. Gives
    /// the earlier waker, whose drop is a callback, to be dropped when the caller's own state is right.
    pub(crate) fn expect(&self, key: u64, waker: Waker) -> (bool, Option<Waker>) {
        let mut signal = self.signal.lock();
        let stood = signal.take();
        let known = signal.tasks.iter_mut().find(|(known, _)| *known == key);
        let old = match known {
            Some((_, known)) => Some(std::mem::replace(known, waker)),
            None => {
                signal.tasks.push((key, waker));
                None
            }
        };
        (stood, old)
    }

    /// For the owner: the task of this key waits no longer.
    pub(crate) fn forget(&self, key: u64) {
        let mut signal = self.signal.lock();
        let at = signal.tasks.iter().position(|(known, _)| *known == key);
        let gone = at.map(|at| signal.tasks.swap_remove(at));
        drop(signal);
        drop(gone); // a callback
    }

    /// The pool ends: nobody sleeps any more. Threads that keep a lane of it keep no descriptor.
    pub(crate) fn close(&self) {
        let mut signal = self.signal.lock();
        let gone = (signal.event.take(), std::mem::take(&mut signal.tasks));
        drop(signal);
        drop(gone); // wakers are callbacks
    }
}

/// Wakes a task. If its waker panics, the panic was reported and ends here: the thread that brought the page
/// goes on with what it holds, and other tasks are woken.
fn call(task: Waker) {
    let _ = catch_unwind(AssertUnwindSafe(|| task.wake()));
}
