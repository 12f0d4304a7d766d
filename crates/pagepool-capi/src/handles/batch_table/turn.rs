//! The turn to use an object: one call at a time has it, and none waits.
//!
//! Bias   [`FREE`]: no thread had the turn yet. A thread: only it has had the turn, and takes it with plain
//!        stores to `mine`. [`SHARED`], final: a second thread tried to take it; from then on every thread
//!        exchanges `taken`. A thread that changes `bias` holds `taken` during the change.
//! Pairs  the biased thread: store `mine`, compiler fence, load `bias`. The thread that ends the bias: store
//!        `bias`, `fence_all_threads`, load `mine`. Either the biased thread sees that its bias ended, or the
//!        other sees `mine` and is refused. The other holds `taken` until its fence is done, so a third
//!        thread that finds the bias ended finds the fence done, too. `mine` and `taken` are stored with
//!        Release when a call is over, and read with Acquire before another thread's call.
//! Refuse a refused thread did nothing. While the biased thread finds out that its bias ended, another may be
//!        refused although no thread has the turn: both called at the same time, which is misuse anyway.
//! Cost   the biased thread: two plain stores, no atomic operation. Others: one exchange, and about 1,600
//!        cycles once per row.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*, compiler_fence};

use ::pagepool::{fence_all_threads, fences_are_free};

use crate::handles::thread::me;

/// In `bias`: no thread had the turn yet.
const FREE: u64 = 0;
/// In `bias`: every thread exchanges `taken`.
const SHARED: u64 = 1;

pub(crate) struct UseTurn {
    /// The biased thread, [`FREE`] or [`SHARED`].
    bias: AtomicU64,
    /// The biased thread has the turn.
    mine: AtomicBool,
    /// Another thread has the turn, or tries to take it.
    taken: AtomicBool,
}

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

    /// Biases the turn to this thread, which holds `taken`. The result holds `mine` instead.
    #[cold]
    fn begin_bias(&self) -> HeldTurn<'_> {
        self.mine.store(true, Relaxed);
        self.bias.store(me(), Relaxed);
        HeldTurn(&self.mine)
    }

    /// Ends the bias: afterwards no thread uses plain stores. The caller holds `taken`.
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
