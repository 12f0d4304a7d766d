//! Wakes a sleeping consumer when the producer has put something onto the ring between them.
//!
//! Who    the producer rings once after putting one or more items. The consumer marks itself asleep, checks
//!        the ring again, sleeps on the descriptor, and marks itself awake.
//! Order  no wake-up is lost. Each side stores (a slot; `sleeping`), then loads what the other stores, with a
//!        SeqCst fence in between: at least one of the two sees the other's store. Either the consumer sees
//!        the slot and does not sleep, or the producer sees it asleep and writes the event counter, which
//!        stays readable until the consumer takes it.
//! Cost   to ring: one fence; a system call only if the consumer sleeps.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicBool, Ordering, fence};
#[cfg(not(all(test, loom)))]
use std::sync::atomic::{AtomicBool, Ordering, fence};

use pagepool::Error;

use crate::sys::event;
use crate::sys::remedy::no_event;

#[derive(Debug)]
pub(crate) struct Doorbell {
    sleeper: Sleeper,
    event: OwnedFd,
}

impl Doorbell {
    pub(crate) fn new() -> Result<Self, Error> {
        let event = event::eventfd().map_err(no_event)?;
        Ok(Self { sleeper: Sleeper::new(), event })
    }

    /// For the producer, after everything that it put onto the ring.
    #[inline]
    pub(crate) fn ring(&self) {
        if self.sleeper.is_to_be_woken() {
            event::signal(self.event.as_fd());
        }
    }

    /// For the consumer: from now on the producer wakes it. Check the ring before sleeping.
    pub(crate) fn sleep(&self) {
        self.sleeper.sleep();
    }

    /// For the consumer: it woke up, or did not go to sleep.
    pub(crate) fn awake(&self) {
        // First the state, then the signal: in the other order, a ring in between would leave a signal for
        // the next sleep.
        self.sleeper.awake();
        event::take(self.event.as_fd());
    }

    pub(crate) fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// Whether the consumer sleeps. Both sides change it by swaps that acquire and release: a signal that `awake`
/// takes back is then never the one for the next sleep.
#[derive(Debug)]
struct Sleeper(AtomicBool);

impl Sleeper {
    fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    #[inline]
    fn is_to_be_woken(&self) -> bool {
        fence(Ordering::SeqCst); // pairs with the fence in sleep()
        // Usually the consumer is awake, and this costs a load and no write. The swap lets one ring signal
        // for each sleep.
        self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::AcqRel)
    }

    fn sleep(&self) {
        self.0.swap(true, Ordering::AcqRel);
        fence(Ordering::SeqCst); // pairs with the fence in is_to_be_woken()
    }

    fn awake(&self) {
        self.0.swap(false, Ordering::AcqRel);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;
    use std::time::Duration;

    /// Two threads pass a number to and fro; each sleeps until its turn. One lost wake-up stops the test.
    #[test]
    fn no_ring_is_lost() {
        const ROUNDS: u32 = 20_000;
        let bells = Arc::new([Doorbell::new().unwrap(), Doorbell::new().unwrap()]);
        let turn = Arc::new(AtomicU32::new(0));
        let play = |me: usize, bells: Arc<[Doorbell; 2]>, turn: Arc<AtomicU32>| {
            let mine = |turn: &AtomicU32| turn.load(Ordering::Acquire) as usize % 2 == me;
            while turn.load(Ordering::Acquire) < ROUNDS {
                bells[me].sleep();
                if !mine(&turn) && turn.load(Ordering::Acquire) < ROUNDS {
                    let woken = event::wait_readable([Some(bells[me].event())], Duration::from_secs(20));
                    assert_eq!(woken, Some([true]), "turn {} was signalled", turn.load(Ordering::Acquire));
                }
                bells[me].awake();
                if mine(&turn) {
                    turn.fetch_add(1, Ordering::Release);
                    bells[1 - me].ring();
                }
            }
            bells[1 - me].ring();
        };
        let (others, other_turn) = (bells.clone(), turn.clone());
        let other = std::thread::spawn(move || play(1, others, other_turn));
        play(0, bells, turn.clone());
        other.join().unwrap();
        assert!(turn.load(Ordering::Relaxed) >= ROUNDS);
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
    fn who_does_not_see_what_was_put_is_woken() {
        loom::model(|| {
            let shared = Arc::new((Sleeper::new(), AtomicU32::new(0)));
            let producer = shared.clone();
            let producer = thread::spawn(move || {
                producer.1.store(1, Ordering::Release); // onto the ring
                producer.0.is_to_be_woken()
            });
            shared.0.sleep();
            let sleeps = shared.1.load(Ordering::Acquire) != 1;
            assert!(producer.join().unwrap() || !sleeps, "asleep, and nothing wakes it");
        });
    }

    #[test]
    fn who_was_awake_meanwhile_is_woken_from_the_next_sleep() {
        loom::model(|| {
            let shared = Arc::new((Sleeper::new(), AtomicU32::new(0), AtomicU32::new(0)));
            let producer = shared.clone();
            let producer = thread::spawn(move || {
                let (sleeper, ring, event) = &*producer;
                for put in 1..=2 {
                    ring.store(put, Ordering::Release);
                    if sleeper.is_to_be_woken() {
                        event.fetch_add(1, Ordering::AcqRel);
                    }
                }
            });
            let (sleeper, ring, event) = &*shared;
            sleeper.sleep();
            let _ = ring.load(Ordering::Acquire);
            sleeper.awake();
            event.swap(0, Ordering::AcqRel);
            sleeper.sleep();
            let sees = ring.load(Ordering::Acquire);
            producer.join().unwrap();
            assert!(
                sees == 2 || event.load(Ordering::Acquire) > 0,
                "asleep with {sees}, and nothing wakes it"
            );
        });
    }
}
