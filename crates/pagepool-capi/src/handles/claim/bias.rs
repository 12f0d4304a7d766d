//! Which thread returns a pool's buffers with plain operations: at most one.
//!
//! Holder [`FREE`] (0): none since the pool was made or unbound; the next owner becomes it. A thread. A
//!        thread plus [`TAKES`]: it is taking the bias. [`SHARED`]: none any more; every thread uses a
//!        compare-and-swap.
//! Moves  the owner gets the bias when the pool is bound. The first other thread that returns or changes a
//!        buffer takes it over. So a pool whose buffers all return on one thread, whichever it is, needs no
//!        atomic operation. The next thread that wants the bias ends it permanently, and so does one that
//!        wants it while the pool has no owner.
//! Mark   says which return the holder is in. There are two: the owner's, and that of a thread that took
//!        over. The mark of one buffer's return may be its token. Such a mark need not be cleared: it is over
//!        when the life has ended. [`SEVERAL`] is cleared, and so is any mark of a thread that finds that it
//!        is not the holder, or that there is no life to end.
//! Pairs  the holder: mark, light fence, holder, word. The taker: holder, fence_all_threads, marks. Either
//!        the thread sees that it is not the holder any more, or the taker sees its mark and waits for it. A
//!        mark is stored with Release: a thread that sees a later one sees the words that ended before it.
//! Late   the life that the taker wants may end in the meantime, with its pool; the row may be another
//!        pool's. So the taker checks the life again while it takes the bias, when no other thread can end
//!        it. If it ended, the taker restores everything.
//! Who    any thread. The inline functions read `limit`, which is 0 unless the owner is the holder.
//! Proof  crates/pagepool/tests/loom/bias_model.rs, which includes this file.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering::*};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering::*};

use ::pagepool::fence_all_threads;

/// In `holder`: none; the next owner becomes it.
pub(crate) const FREE: u64 = 0;
/// In `holder`, added to a thread, which is an even number: the thread is taking the bias.
const TAKES: u64 = 1;
/// In `holder`: none any more.
pub(crate) const SHARED: u64 = 2;

/// A mark that is no token, and must be cleared.
pub(crate) const SEVERAL: u64 = 1;

/// Marks a return of the calling thread, if it is the holder; `mine` is its mark. The caller then ends a
/// life, and clears the mark unless it is the token of the life that it ended.
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

/// Clears a mark.
#[inline(always)]
pub(crate) fn take_back(mine: &AtomicU64) {
    mine.store(0, Release); // pairs with take()
}

pub(crate) struct BiasWords<'a> {
    pub(crate) holder: &'a AtomicU64,
    /// The cache's limit while the owner is the holder, otherwise 0.
    pub(crate) limit: &'a AtomicU64,
    pub(crate) marks: [&'a AtomicU64; 2],
    pub(crate) owner: &'a AtomicU64,
}

pub(crate) trait Wanted {
    /// Whether the life has not ended.
    fn is_there(&self) -> bool;
    /// Whether the life of this token has ended.
    fn is_over(&self, token: u64) -> bool;
    /// Called before another thread than the owner ends lives. The pool exists.
    fn prepare(&self);
    fn pause(&mut self);
}

/// Makes the calling thread the holder; if the holder is not the owner, the pool has none from then on. Waits
/// for the holder's current return, and for another thread that takes the bias. Changes nothing if the life
/// has ended.
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

/// Takes the bias from `before`; the calling thread stands in `holder` with [`TAKES`].
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

fn is_returning(mark: u64, is_over: impl Fn(u64) -> bool) -> bool {
    match mark {
        0 => false,
        SEVERAL => true,
        token => !is_over(token),
    }
}

/// The free half of the fence; [`fence_all_threads`] is the other half.
#[inline(always)]
fn light_fence() {
    #[cfg(not(loom))]
    std::sync::atomic::compiler_fence(SeqCst);
    #[cfg(loom)]
    fence_all_threads();
}
