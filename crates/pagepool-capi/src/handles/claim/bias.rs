//! Which thread returns a pool's buffers by plain operations: one at most.
//!
//! Holder [`FREE`] (0): none since the pool was made or unbound; the next owner is. A thread. A thread plus
//!        [`TAKES`]: it takes the bias away. [`SHARED`]: nobody any more, everybody uses a compare-and-swap.
//! Moves  the owner has it when the pool is bound. The first other thread that returns or changes a buffer
//!        takes it over, so that a pool whose buffers all return on one thread needs no atomic operation,
//!        whichever it is. Another one that asks ends it for good, as does one that asks while nobody owns
//!        the pool.
//! Mark   says which return the holder is in. There are two: the owner's, and that of a thread that took
//!        over. The mark of one buffer's return may be its token. Then nobody has to take it back: it is over
//!        when the life has ended. [`SEVERAL`] is taken back, and so is any mark of a thread that finds it is
//!        not the holder, or no life to end.
//! Pairs  the holder: mark, light fence, holder, word. Who takes it away: holder, fence_all_threads, marks.
//!        Either the thread sees that it is not the holder any more, or its mark is seen, and waited for. A
//!        mark is stored with Release: who sees a later one sees the words that ended before it.
//! Late   who asks has a life in view that may end meanwhile, with its pool; the row may be another pool's.
//!        So it looks at the life again while it takes the bias, when nobody else can end it. If it ended,
//!        all becomes as it was.
//! Who    any thread. The inline functions look at `limit`, which is 0 unless the owner is the holder.
//! Proof  crates/pagepool/tests/loom/bias_model.rs, which includes this file.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering::*};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering::*};

use ::pagepool::fence_all_threads;

/// In `holder`: nobody, and the next owner will be.
pub(crate) const FREE: u64 = 0;
/// In `holder`, added to a thread, which is an even number: it takes the bias away.
const TAKES: u64 = 1;
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
    mine.store(mark, Release); // pairs with take()
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
    /// The cache's limit while the owner is the holder, else 0.
    pub(crate) limit: &'a AtomicU64,
    pub(crate) marks: [&'a AtomicU64; 2],
    /// The thread that owns the pool.
    pub(crate) owner: &'a AtomicU64,
}

/// The life for whose sake a thread takes the bias.
pub(crate) trait Wanted {
    /// Whether it has not ended.
    fn is_there(&self) -> bool;
    /// Whether that of this token has.
    fn is_over(&self, token: u64) -> bool;
    /// Called before another thread than the owner ends lives. The pool is there.
    fn prepare(&self);
    /// Waits a moment.
    fn pause(&mut self);
}

/// Makes the calling thread the holder; if the holder is not the owner, leaves the pool without one for good.
/// Waits for the holder's current return, and for another thread that takes the bias. Changes nothing if the
/// life has ended.
#[cold]
pub(crate) fn take(from: &BiasWords<'_>, me: u64, life: &mut impl Wanted) {
    loop {
        match from.holder.load(Acquire) {
            SHARED => return,
            holder if holder == me => return,
            holder if holder & TAKES != 0 => life.pause(),
            before => {
                if from.holder.compare_exchange(before, me | TAKES, AcqRel, Relaxed).is_ok() {
                    take_from(before, from, me, life);
                    return;
                }
            }
        }
    }
}

/// With the calling thread in `holder`, as the one that takes the bias from `before`.
fn take_from(before: u64, from: &BiasWords<'_>, me: u64, life: &mut impl Wanted) {
    let limit = from.limit.swap(0, Relaxed);
    if before != FREE {
        fence_all_threads(); // pairs with begin()
        for mark in from.marks {
            while is_returning(mark.load(Acquire), |token| life.is_over(token)) {
                life.pause();
            }
        }
    }
    if !life.is_there() {
        from.limit.store(limit, Relaxed);
        let _ = from.holder.compare_exchange(me | TAKES, before, Release, Relaxed);
        return;
    }
    life.prepare();
    let owners = before != FREE && before == from.owner.load(Relaxed);
    from.holder.store(if owners { me } else { SHARED }, Release);
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
