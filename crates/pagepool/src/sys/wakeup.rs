//! The wake-up: notifies a waiting owner that buffers returned, by a descriptor or by tasks' wakers.
//!
//! Without it, the fill ring is empty, the owner sleeps, another thread returns 512 buffers, and the kernel,
//! which has no frame, never wakes the owner. So an owner that finds no page arms the wake-up: it sets
//! `starved` here and a flag in its lanes, then looks again. The next thread that returns a page signals,
//! once: it writes the eventfd and calls the wakers of all waiting tasks.
//!
//! States by `unacknowledged`, which only the owner knows, and `starved`:
//!        acknowledged                 no thread signals; the next failing allocation arms.
//!        unacknowledged, starved      armed: the next page signals.
//!        unacknowledged, not starved  signalled, or about to be. A waiter wakes at once, so a failing
//!                                     allocation need not arm: arming's heavy fence is paid once per
//!                                     acknowledged signal.
//! Who    owner: `arm`, `acknowledge`, `signal_was_read`, `expect`, `forget`, `fd`. Any thread that
//!        returned a page: `wake`, holding no lock, because wakers are callbacks. The thread that ends the
//!        pool: `close`.
//! Pairs  returning thread: slot, light fence, flag. Owner: flag, heavy fence, slots again (lane.rs,
//!        `raise_all`). wake (starved, AcqRel) -> arm (Acquire): flags that a returning thread cleared
//!        before its wake are cleared before the owner sets them again. Both are exchanges, so one reads
//!        what the other wrote.

// UNSAFETY: lends the descriptor while the pool lives, which its type cannot say.
#![expect(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

use crate::probes;
use crate::sys::call::{OwnFd, eventfd_is_set, eventfd_signal, eventfd_take};
use crate::sys::sync::{AtomicU32, Lock, Ordering};

/// Lives until no thread may signal it; the descriptor only until the pool ends.
#[derive(Debug)]
pub(crate) struct Wakeup {
    /// The pool's id, for probes.
    pool: u32,
    starved: AtomicU32,
    /// For the owner, without a lock: it is open until the owner half is given up.
    fd: Option<RawFd>,
    signal: Lock<Signal>,
}

#[derive(Debug)]
struct Signal {
    event: Option<OwnFd>,
    /// Signalled, and the owner has not acknowledged it.
    stands: bool,
    /// Waiting tasks, by the owner's key.
    tasks: Vec<(u64, Waker)>,
}

impl Signal {
    /// Clears the signal; returns whether it was set.
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
    pub(crate) fn new(pool: u32, event: Option<OwnFd>) -> Self {
        let fd = event.as_ref().map(|fd| fd.as_raw_fd());
        let signal = Signal { event, stands: false, tasks: Vec::new() };
        Self { pool, starved: AtomicU32::new(0), fd, signal: Lock::new(signal) }
    }

    pub(crate) fn has_fd(&self) -> bool {
        self.fd.is_some()
    }

    /// The descriptor to sleep on, if any.
    ///
    /// # Safety
    /// The pool has not ended, and does not end while the descriptor is borrowed.
    pub(crate) unsafe fn fd(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: only `close` closes it, at the end of the pool, which the caller rules out.
        self.fd.map(|fd| unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Whether the next page signals.
    pub(crate) fn is_starved(&self) -> bool {
        self.starved.load(Ordering::Relaxed) != 0
    }

    /// For the owner: the next returned page signals.
    pub(crate) fn arm(&self) {
        self.starved.swap(1, Ordering::Acquire); // pairs with wake()
    }

    /// For a thread that returned a page: signals if it is the first since the owner armed it. Runs
    /// callbacks.
    #[cold]
    pub(crate) fn wake(&self) {
        // Release pairs with arm().
        if self.starved.swap(0, Ordering::AcqRel) != 0 {
            self.signal();
        }
    }

    /// Signals the owner, armed or not. A needless signal wakes it once. Runs callbacks.
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

    /// For the owner, before the allocation whose failure makes it sleep: clears the signal, returns whether
    /// it was set.
    pub(crate) fn acknowledge(&self) -> bool {
        self.signal.lock().take()
    }

    /// For the owner: whether a read of the descriptor cleared the signal; if so clears `stands`.
    pub(crate) fn signal_was_read(&self) -> bool {
        let mut signal = self.signal.lock();
        let read = signal.stands && signal.event.as_ref().is_some_and(|event| !eventfd_is_set(event));
        signal.stands &= !read;
        read
    }

    /// Clears the signal, and adds a waker for the next signal; it replaces the waker of an equal key. One
    /// step, so no signal misses the waker. Returns whether the signal was set, and the replaced waker: its
    /// drop is a callback, to run when the caller's state is consistent.
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

    /// For the owner: this task waits no longer.
    pub(crate) fn forget(&self, key: u64) {
        let mut signal = self.signal.lock();
        let at = signal.tasks.iter().position(|(known, _)| *known == key);
        let gone = at.map(|at| signal.tasks.swap_remove(at));
        drop(signal);
        drop(gone); // a callback
    }

    /// At the pool's end: closes the descriptor and drops the wakers, so threads that keep a lane keep no
    /// descriptor.
    pub(crate) fn close(&self) {
        let mut signal = self.signal.lock();
        let gone = (signal.event.take(), std::mem::take(&mut signal.tasks));
        drop(signal);
        drop(gone); // wakers are callbacks
    }
}

/// Wakes a task. A panic of its waker was reported and ends here: the calling thread continues, and other
/// tasks are woken.
fn call(task: Waker) {
    let _ = catch_unwind(AssertUnwindSafe(|| task.wake()));
}
