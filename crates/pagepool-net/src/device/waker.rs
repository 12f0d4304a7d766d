//! Wakes the thread that polls a device, from any thread, for work that the device does not carry.
//!
//! What   a mark that stays until the polling thread has seen it, and an event counter that ends its sleep.
//!        It does not matter whether that thread sleeps, is about to sleep, or handles packets: its next
//!        sleep does not begin, or ends.
//! Order  the mark is one atomic word that both sides exchange; each exchange acquires and releases. The
//!        waking thread first stores its work, then exchanges the mark for `WOKEN`. The polling thread takes
//!        the mark, then looks for work; before it sleeps, it changes `AWAKE` to `ASLEEP`. Exchanges of one
//!        word have one order: a `WOKEN` before that change makes the change fail; a `WOKEN` after it finds
//!        `ASLEEP`, and writes the event counter. The exchange that finds `WOKEN` reads from it, or from a
//!        later one, so it sees all work that was stored before.
//! Cost   to wake: one exchange; a system call only if the polling thread sleeps. A device without a waker
//!        pays a load and a compare before a sleep.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};

#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicU8, Ordering};
#[cfg(not(all(test, loom)))]
use std::sync::atomic::{AtomicU8, Ordering};

use pagepool::Error;

use crate::sys::event;
use crate::sys::remedy::no_event;

/// The polling thread looks for work, or will before it sleeps.
const AWAKE: u8 = 0;
/// It sleeps on the event counter, or is about to.
const ASLEEP: u8 = 1;
/// A waker woke it, and it has not noticed yet.
const WOKEN: u8 = 2;

/// Wakes the thread that polls a device or has a forwarder: its current [`wait`](crate::DeviceExt::wait)
/// ends, or its next one returns at once. Usable on any thread; clones are allowed.
/// [`XskDevice::waker`](crate::XskDevice::waker) and [`Forwarder::waker`](crate::Forwarder::waker) make it,
/// and have examples.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Waking>);

impl Waker {
    /// Wakes the thread, which then sees all work stored before this call. Several calls before it looks
    /// count as one. Costs an atomic exchange, and a system call if the thread sleeps.
    #[inline]
    pub fn wake(&self) {
        if self.0.mark.wake() {
            event::signal(self.0.event.as_fd());
        }
    }
}

#[derive(Debug)]
struct Waking {
    mark: Mark,
    event: OwnedFd,
}

/// The polling thread's side.
#[derive(Debug, Default)]
pub(crate) struct Wakened {
    /// Set by the first call of [`waker`](Self::waker).
    shared: OnceLock<Arc<Waking>>,
    /// Whether it went to sleep since the last `take`: then the event counter may have to be cleared.
    slept: bool,
}

impl Wakened {
    pub(crate) fn waker(&self) -> Result<Waker, Error> {
        if let Some(shared) = self.shared.get() {
            return Ok(Waker(shared.clone()));
        }
        let event = event::eventfd().map_err(no_event)?;
        Ok(Waker(self.shared.get_or_init(|| Arc::new(Waking { mark: Mark::new(), event })).clone()))
    }

    #[inline]
    pub(crate) fn has_waker(&self) -> bool {
        self.shared.get().is_some()
    }

    /// Whether the thread was woken since the last call.
    #[inline]
    pub(crate) fn take(&mut self) -> bool {
        let Some(shared) = self.shared.get() else { return false };
        // First the mark, then the signal: in the other order, a call in between would leave a signal for the
        // next sleep. A late signal ends one sleep too early, and is cleared then.
        let was_woken = shared.mark.take();
        if std::mem::take(&mut self.slept) {
            event::take(shared.event.as_fd());
        }
        was_woken
    }

    /// Call before a sleep: returns false if there may be work to look for first.
    #[inline]
    pub(crate) fn sleep(&mut self) -> bool {
        let Some(shared) = self.shared.get() else { return true };
        self.slept = shared.mark.sleep();
        self.slept
    }

    #[inline]
    pub(crate) fn event(&self) -> Option<BorrowedFd<'_>> {
        self.shared.get().map(|shared| shared.event.as_fd())
    }
}

/// The word that both sides exchange.
#[derive(Debug)]
struct Mark(AtomicU8);

impl Mark {
    fn new() -> Self {
        Self(AtomicU8::new(AWAKE))
    }

    /// Returns whether the other side needs a signal. Always an exchange, also of `WOKEN` for `WOKEN`: a load
    /// would not release the work stored before.
    #[inline]
    fn wake(&self) -> bool {
        self.0.swap(WOKEN, Ordering::AcqRel) == ASLEEP
    }

    #[inline]
    fn take(&self) -> bool {
        self.0.swap(AWAKE, Ordering::AcqRel) == WOKEN
    }

    /// Returns whether it may sleep.
    #[inline]
    fn sleep(&self) -> bool {
        self.0.compare_exchange(AWAKE, ASLEEP, Ordering::AcqRel, Ordering::Acquire) != Err(WOKEN)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;
    use std::time::Duration;

    /// Sleeps unless it was woken; false if no waker ended the sleep within 20 s.
    fn sleep(wakened: &mut Wakened) -> bool {
        if wakened.take() || !wakened.sleep() {
            return true;
        }
        event::wait_readable([wakened.event()], Duration::from_secs(20)) == Some([true])
    }

    #[test]
    fn a_wake_before_the_sleep_counts_even_of_a_dropped_waker() {
        let mut wakened = Wakened::default();
        assert!(!wakened.take() && wakened.sleep() && wakened.event().is_none(), "nothing can wake it");
        let waker = wakened.waker().unwrap();
        waker.clone().wake();
        waker.wake();
        drop(waker);
        assert!(wakened.take() && !wakened.take(), "once for all calls");
        wakened.waker().unwrap().wake();
        assert!(!wakened.sleep(), "woken after the look");
        assert!(wakened.take() && wakened.sleep());
        wakened.waker().unwrap().wake();
        let readable = |wakened: &Wakened| event::wait_readable([wakened.event()], Duration::ZERO);
        assert_eq!(readable(&wakened), Some([true]));
        assert!(wakened.take() && wakened.sleep());
        assert_eq!(readable(&wakened), Some([false]), "the signal was taken back");
    }

    /// Four threads add work; one lost call stops the test.
    #[test]
    fn no_call_is_lost() {
        const EACH: u32 = 20_000;
        let (mut wakened, put) = (Wakened::default(), AtomicU32::new(0));
        let wakers = [(); 4].map(|()| wakened.waker().unwrap());
        std::thread::scope(|threads| {
            for waker in &wakers {
                threads.spawn(|| {
                    for _ in 0..EACH {
                        put.fetch_add(1, Ordering::Relaxed); // `wake` releases it
                        waker.wake();
                    }
                });
            }
            let mut seen = 0;
            while seen < 4 * EACH {
                assert!(sleep(&mut wakened), "asleep after {seen}, and nothing woke it");
                seen = put.load(Ordering::Relaxed);
            }
        });
    }
}

/// Checks every interleaving, in every order that the memory model allows.
#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU32;
    use loom::thread;

    #[test]
    fn who_sleeps_has_seen_all_work_or_is_signalled() {
        loom::model(|| {
            let shared = Arc::new((Mark::new(), [AtomicU32::new(0), AtomicU32::new(0)], AtomicU32::new(0)));
            let workers = [0, 1].map(|at| {
                let shared = shared.clone();
                thread::spawn(move || {
                    let (mark, work, event) = &*shared;
                    work[at].store(1, Ordering::Relaxed);
                    if mark.wake() {
                        event.fetch_add(1, Ordering::AcqRel);
                    }
                })
            });
            let (mark, work, event) = &*shared;
            let mut seen = [0, 1].map(|at| work[at].load(Ordering::Relaxed));
            while !mark.sleep() {
                mark.take();
                seen = [0, 1].map(|at| work[at].load(Ordering::Relaxed));
            }
            workers.into_iter().for_each(|worker| worker.join().unwrap());
            assert!(seen == [1, 1] || event.load(Ordering::Acquire) > 0, "asleep with {seen:?}");
        });
    }

    #[test]
    fn who_was_asleep_before_is_signalled_or_finds_the_mark() {
        loom::model(|| {
            let shared = Arc::new((Mark::new(), AtomicU32::new(0), AtomicU32::new(0)));
            shared.0.sleep(); // the sleep ended by itself
            let worker = {
                let shared = shared.clone();
                thread::spawn(move || {
                    let (mark, work, event) = &*shared;
                    work.store(1, Ordering::Relaxed);
                    if mark.wake() {
                        event.fetch_add(1, Ordering::AcqRel);
                    }
                })
            };
            let (mark, work, event) = &*shared;
            mark.take();
            event.swap(0, Ordering::AcqRel);
            let mut seen = work.load(Ordering::Relaxed);
            while !mark.sleep() {
                mark.take();
                seen = work.load(Ordering::Relaxed);
            }
            worker.join().unwrap();
            assert!(seen == 1 || event.load(Ordering::Acquire) > 0, "asleep with {seen}");
        });
    }
}
