//! The turn to use an object: one call at a time has it, and none waits.
//!
//! Bias   as a pool's: see `claim::bias`, of which this uses the holder's half. `bias` is [`FREE`]: no thread
//!        had the turn yet. A thread: only it has had the turn, and takes it with plain stores to its mark
//!        `mine`. [`SHARED`], final: a second thread tried to take it; from then on every thread exchanges
//!        `taken`. A thread that changes `bias` holds `taken` during the change.
//! Pairs  the biased thread: mark, light fence, `bias` ([`begin`]). The thread that ends the bias: `bias`,
//!        `fence_all_threads`, mark. Either the biased thread sees that its bias ended, or the other sees the
//!        mark and is refused. The other holds `taken` until its fence is done, so a third thread that finds
//!        the bias ended finds the fence done, too. `mine` and `taken` are stored with Release when a call is
//!        over, and read with Acquire before another thread's call.
//! Refuse a refused thread did nothing. While the biased thread finds out that its bias ended, another may be
//!        refused although no thread has the turn: both called at the same time, which is misuse anyway.
//! Cost   the biased thread: two plain stores, no atomic operation. Others: one exchange, and about 1,600
//!        cycles once per row.

use std::sync::atomic::{AtomicU64, Ordering::*};

use ::pagepool::{fence_all_threads, fences_are_free};

use crate::handles::claim::bias::{FREE, SEVERAL, SHARED, begin, take_back};
use crate::handles::thread::me;

pub(crate) struct UseTurn {
    /// The biased thread, [`FREE`] or [`SHARED`].
    bias: AtomicU64,
    /// The mark of the biased thread while it has the turn, otherwise 0.
    mine: AtomicU64,
    /// 1 while another thread has the turn, or tries to take it.
    taken: AtomicU64,
}

pub(crate) struct HeldTurn<'a>(&'a AtomicU64);

impl Drop for HeldTurn<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        take_back(self.0); // pairs with take_shared()
    }
}

impl UseTurn {
    pub(crate) const fn new() -> Self {
        Self { bias: AtomicU64::new(FREE), mine: AtomicU64::new(0), taken: AtomicU64::new(0) }
    }

    #[inline(always)]
    pub(crate) fn take(&self) -> Option<HeldTurn<'_>> {
        if self.mine.load(Relaxed) != 0 && self.bias.load(Relaxed) == me() {
            return None; // a callback of this thread's own call
        }
        if begin(&self.bias, me(), &self.mine, SEVERAL) {
            return Some(HeldTurn(&self.mine));
        }
        self.take_shared()
    }

    #[inline(never)]
    fn take_shared(&self) -> Option<HeldTurn<'_>> {
        if self.taken.swap(1, Acquire) != 0 {
            return None;
        }
        let held = HeldTurn(&self.taken);
        match self.bias.load(Relaxed) {
            FREE if fences_are_free() => {
                self.mine.store(SEVERAL, Relaxed);
                self.bias.store(me(), Relaxed);
                return Some(HeldTurn(&self.mine)); // `held` ends
            }
            SHARED => {}
            _ => self.end_bias(),
        }
        (self.mine.load(Acquire) == 0).then_some(held)
    }

    /// Ends the bias: afterwards no thread uses plain stores. The caller holds `taken`.
    #[cold]
    fn end_bias(&self) {
        self.bias.store(SHARED, Relaxed);
        fence_all_threads(); // pairs with begin()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use ::pagepool::{Arena, ArenaParams, Pool, PoolParams};

    use super::*;

    /// Creating a pool lets the library find out whether fences are free.
    fn with_fences() {
        let arena = Arena::new(ArenaParams { max_bytes: 4 << 20, ..Default::default() }).unwrap();
        drop(Pool::new(PoolParams::default(), arena).unwrap());
    }

    #[test]
    fn a_turn_that_is_taken_is_refused_on_every_thread() {
        with_fences();
        let turn = UseTurn::new();
        for _ in 0..3 {
            let held = turn.take().unwrap();
            assert!(turn.take().is_none());
            drop(held);
        }
        let held = turn.take().unwrap();
        std::thread::scope(|threads| {
            threads.spawn(|| assert!(turn.take().is_none()));
        });
        drop(held);
        assert_eq!(turn.bias.load(Relaxed), SHARED);
        std::thread::scope(|threads| {
            threads.spawn(|| drop(turn.take().unwrap()));
        });
        let held = turn.take().unwrap();
        assert!(turn.take().is_none());
        drop(held);
    }

    /// The turns are fresh, so the bias ends while threads compete.
    #[test]
    fn two_threads_never_have_it() {
        with_fences();
        for _ in 0..500 {
            let (turn, inside, had) = (UseTurn::new(), AtomicU32::new(0), AtomicU32::new(0));
            let work = |most: u32| {
                for _ in 0..most {
                    let Some(held) = turn.take() else { continue };
                    assert_eq!(inside.fetch_add(1, Relaxed), 0, "another thread has the turn");
                    had.fetch_add(1, Relaxed);
                    inside.fetch_sub(1, Relaxed);
                    drop(held);
                }
            };
            std::thread::scope(|threads| {
                threads.spawn(|| work(2000));
                threads.spawn(|| work(200));
                work(20);
            });
            assert!(had.load(Relaxed) > 0 && turn.take().is_some());
        }
    }
}
