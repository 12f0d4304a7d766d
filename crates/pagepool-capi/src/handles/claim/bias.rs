//! Which thread returns a pool's buffers by plain operations: one at most.
//!
//! Holder [`FREE`] (0): none since the pool was made or unbound; the next owner is. A thread. [`ENDING`]:
//!        somebody takes it from that thread. [`SHARED`]: none any more, everybody uses a compare-and-swap.
//! Moves  the owner has it when the pool is bound. The first other thread that returns a buffer takes it
//!        over, so that a pool whose buffers all return on one thread needs no atomic operation, whichever it
//!        is. A second thread that asks ends it for good.
//! Mark   says which return the holder is in: the owner's, and one for the thread that took over. Of one
//!        buffer it is the token, and nobody takes it back: it is over when the life has ended. [`SEVERAL`]
//!        is taken back, and so is any mark of a thread that finds it is not the holder, or no life to end.
//! Pairs  the holder: mark, light fence, holder, word. Who takes it away: holder, fence_all_threads, marks.
//!        Either the thread sees that it is not the holder any more, or its mark is seen, and waited for. The
//!        words that it wrote before are seen then, too.
//! Who    any thread. The inline functions look at `limit`, which is 0 unless the owner is the holder.
//! Proof  crates/pagepool/tests/loom/bias_model.rs, which includes this file.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering::*};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering::*};

use ::pagepool::fence_all_threads;

/// In `holder`: nobody, and the next owner will be.
pub(crate) const FREE: u64 = 0;
/// In `holder`: it ends just now.
const ENDING: u64 = 1;
/// In `holder`: nobody any more.
pub(crate) const SHARED: u64 = 2;

/// As a mark: no token is this.
pub(crate) const SEVERAL: u64 = 1;

/// Marks a return of the calling thread, if it is the holder; `mine` is its mark. The caller ends a life
/// then, and takes the mark back unless it is the token of the life that it ended.
#[inline(always)]
pub(crate) fn begin(holder: &AtomicU64, me: u64, mine: &AtomicU64, mark: u64) -> bool {
    if holder.load(Relaxed) != me {
        return false;
    }
    mine.store(mark, Relaxed);
    light_fence(); // pairs with take()
    let holds = holder.load(Relaxed) == me;
    if !holds {
        take_back(mine);
    }
    holds
}

/// Takes a mark back.
#[inline(always)]
pub(crate) fn take_back(mine: &AtomicU64) {
    mine.store(0, Release); // pairs with take()
}

/// What [`take`] needs of a pool.
pub(crate) struct BiasWords<'a> {
    pub(crate) holder: &'a AtomicU64,
    /// Pages that the owner's cache takes from the inline functions.
    pub(crate) limit: &'a AtomicU64,
    pub(crate) marks: [&'a AtomicU64; 2],
    /// The thread that owns the pool.
    pub(crate) owner: &'a AtomicU64,
}

/// Makes the calling thread the holder, or ends it that there is one. Waits for the return that the holder is
/// in, and for another thread that takes it away.
#[cold]
pub(crate) fn take(from: &BiasWords<'_>, me: u64, is_over: impl Fn(u64) -> bool, mut pause: impl FnMut()) {
    loop {
        match from.holder.load(Acquire) {
            SHARED => return,
            holder if holder == me => return,
            ENDING => pause(),
            before => {
                if from.holder.compare_exchange(before, ENDING, AcqRel, Relaxed).is_err() {
                    continue;
                }
                from.limit.store(0, Relaxed);
                if before != FREE {
                    fence_all_threads(); // pairs with begin()
                    for mark in from.marks {
                        while is_returning(mark.load(Acquire), &is_over) {
                            pause();
                        }
                    }
                }
                let owners = before != FREE && before == from.owner.load(Relaxed);
                let next = if owners { me } else { SHARED };
                from.holder.store(next, Release);
            }
        }
    }
}

/// Whether a mark says that its thread is in a return.
fn is_returning(mark: u64, is_over: impl Fn(u64) -> bool) -> bool {
    match mark {
        0 => false,
        SEVERAL => true,
        token => !is_over(token),
    }
}

/// The half of the fence that costs nothing, where [`fence_all_threads`] is the other.
#[inline(always)]
fn light_fence() {
    #[cfg(not(loom))]
    std::sync::atomic::compiler_fence(SeqCst);
    #[cfg(loom)]
    fence_all_threads();
}
