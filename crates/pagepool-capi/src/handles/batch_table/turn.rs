//! The turn to use a thing: one call at a time has it, and none waits.
//!
//! Bias   [`FREE`]: nobody had the turn yet. A thread: it alone had it, and takes it with plain stores to
//!        `mine`. [`SHARED`]: a second thread asked; for good. From then on everybody exchanges `taken`.
//!        Whoever changes `bias` has `taken` meanwhile.
//! Pairs  the biased thread: store `mine`, compiler fence, load `bias`. Who ends the bias: store `bias`,
//!        `fence_all_threads`, load `mine`. Either the biased thread sees that it is not biased any more, or
//!        it is seen to have the turn, and the other is refused. The other has `taken` until it made the
//!        fence, so a third thread that finds the bias ended finds the fence made, too.
//!        `mine` and `taken` are stored with Release when a call is over, and read with Acquire before
//!        another thread's.
//! Refuse a thread that is refused did nothing. While the biased thread finds out that it is not biased any
//!        more another one may be refused although nobody has the turn; both called at the same time, which
//!        is the mistake that is refused.
//! Cost   the biased thread: two plain stores, no atomic operation. Others: one exchange, and once in the
//!        life of a row about 1,600 cycles.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*, compiler_fence};

use ::pagepool::{fence_all_threads, fences_are_free};

use crate::handles::thread::me;

/// In `bias`: nobody had the turn yet.
const FREE: u64 = 0;
/// In `bias`: all threads are equal.
const SHARED: u64 = 1;

pub(crate) struct UseTurn {
    /// The biased thread, or a state.
    bias: AtomicU64,
    /// The biased thread has the turn.
    mine: AtomicBool,
    /// A thread that is not biased has it, or asks for it.
    taken: AtomicBool,
}

/// The turn, until this is dropped.
pub(crate) struct HeldTurn<'a>(&'a AtomicBool);

impl Drop for HeldTurn<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.store(false, Release); // pairs with take_shared()
    }
}

impl UseTurn {
    pub(crate) const fn new() -> Self {
        Self { bias: AtomicU64::new(FREE), mine: AtomicBool::new(false), taken: AtomicBool::new(false) }
    }

    /// The turn, unless somebody has it.
    #[inline(always)]
    pub(crate) fn take(&self) -> Option<HeldTurn<'_>> {
        if self.bias.load(Relaxed) != me() {
            return self.take_shared();
        }
        if self.mine.load(Relaxed) {
            return None; // a callback of this thread's own call
        }
        self.mine.store(true, Relaxed);
        compiler_fence(SeqCst); // pairs with end_bias()
        let held = HeldTurn(&self.mine);
        if self.bias.load(Relaxed) == me() {
            return Some(held);
        }
        drop(held);
        self.take_shared()
    }

    #[inline(never)]
    fn take_shared(&self) -> Option<HeldTurn<'_>> {
        if self.taken.swap(true, Acquire) {
            return None;
        }
        let held = HeldTurn(&self.taken);
        match self.bias.load(Relaxed) {
            FREE if fences_are_free() => return Some(self.begin_bias()),
            SHARED => {}
            _ => self.end_bias(),
        }
        if self.mine.load(Acquire) { None } else { Some(held) }
    }

    /// Biases it to this thread, which has `taken`, and from now on `mine` instead.
    #[cold]
    fn begin_bias(&self) -> HeldTurn<'_> {
        self.mine.store(true, Relaxed);
        self.bias.store(me(), Relaxed);
        HeldTurn(&self.mine)
    }

    /// Makes sure that nobody uses plain stores any more, on a thread that has `taken`.
    #[cold]
    fn end_bias(&self) {
        self.bias.store(SHARED, Relaxed);
        fence_all_threads(); // pairs with take()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use ::pagepool::{Arena, ArenaParams, Pool, PoolParams};

    use super::*;

    /// With a pool the library knows whether fences are free.
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

    /// Threads meet on turns that are fresh, so that the end of the bias is in the middle of it.
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
