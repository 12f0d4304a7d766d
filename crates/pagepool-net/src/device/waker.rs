//! Waking the thread that polls a device, from any thread, for what a program hands over by its own means.
//!
//! What   a mark that stays until the polling thread has seen it, and an event counter that ends its sleep.
//!        So it does not matter whether that thread sleeps, is about to, or looks at packets: the next sleep
//!        does not begin, or ends.
//! Order  the mark is one atomic word that both sides exchange, each exchange an acquire and a release. Who
//!        wakes first puts its work somewhere, then exchanges the mark for `WOKEN`. The polling thread takes
//!        the mark, then looks for work; it changes `AWAKE` to `ASLEEP` before it sleeps. Exchanges of one
//!        word have one order: a `WOKEN` that comes before the change makes the change fail, and one that
//!        comes after finds `ASLEEP`, and writes the event counter. The exchange that finds `WOKEN` reads
//!        from it, or from a later one, so it sees all work that was put before.
//! Cost   to wake: an exchange; a system call only if the polling thread sleeps. A device that nobody asked
//!        for a waker pays a load and a compare before a sleep.

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
/// Somebody woke it, and it has not noticed yet.
const WOKEN: u8 = 2;

/// Wakes the thread that polls a device or has a forwarder: its next [`wait`](crate::DeviceExt::wait) returns
/// at once, and the one that it is in ends. Any thread, any number of clones. Made by
/// [`XskDevice::waker`](crate::XskDevice::waker) and [`Forwarder::waker`](crate::Forwarder::waker), which
/// have examples.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Waking>);

impl Waker {
    /// Wakes the thread, for everything that was put before this call where that thread looks. Calls before
    /// it looks count as one. An atomic exchange, and a system call if the thread sleeps.
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

/// The end of the thread that polls.
#[derive(Debug, Default)]
pub(crate) struct Wakened {
    /// Once anybody asked for a [`Waker`].
    shared: OnceLock<Arc<Waking>>,
    /// Whether it went to sleep since it was asked last: then the event counter may have to be cleared.
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

    /// Whether anybody asked for a waker.
    #[inline]
    pub(crate) fn has_waker(&self) -> bool {
        self.shared.get().is_some()
    }

    /// Whether the thread was woken since this was asked last.
    #[inline]
    pub(crate) fn take(&mut self) -> bool {
        let Some(shared) = self.shared.get() else { return false };
        // First the mark, then the signal: in the other order a call in between would leave a signal for the
        // next sleep. One whose signal is late ends a sleep for nothing, and is cleared then.
        let was_woken = shared.mark.take();
        if std::mem::take(&mut self.slept) {
            event::take(shared.event.as_fd());
        }
        was_woken
    }

    /// Before a sleep: false if there is something to look for first.
    #[inline]
    pub(crate) fn sleep(&mut self) -> bool {
        let Some(shared) = self.shared.get() else { return true };
        self.slept = shared.mark.sleep();
        self.slept
    }

    /// What to sleep on, if there is a waker.
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

    /// Says whether the other side has to be told by a signal. Always an exchange, also of `WOKEN` for
    /// `WOKEN`: a load would not release what was put before.
    #[inline]
    fn wake(&self) -> bool {
        self.0.swap(WOKEN, Ordering::AcqRel) == ASLEEP
    }

    #[inline]
    fn take(&self) -> bool {
        self.0.swap(AWAKE, Ordering::AcqRel) == WOKEN
    }

    /// Says whether it may sleep.
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

    /// Sleeps unless it was woken; false if nobody ended the sleep for 20 s.
    fn sleep(wakened: &mut Wakened) -> bool {
        if wakened.take() || !wakened.sleep() {
            return true;
        }
        event::wait_readable([wakened.event()], Duration::from_secs(20)) == Some([true])
    }

    #[test]
    fn a_call_before_the_sleep_counts_and_so_does_one_whose_waker_is_gone() {
        let mut wakened = Wakened::default();
        assert!(!wakened.take() && wakened.sleep() && wakened.event().is_none(), "nobody can wake it");
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

    /// Four threads put numbers; one call that is lost ends it.
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
                assert!(sleep(&mut wakened), "asleep after {seen}, and nobody woke it");
                seen = put.load(Ordering::Relaxed);
            }
        });
    }
}

/// Every interleaving, and every order that the memory model allows.
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
