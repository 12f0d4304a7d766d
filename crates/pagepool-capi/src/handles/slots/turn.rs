//! Pools without an owner: a call that needs one makes the calling thread the owner during the call.
//!
//! Who    any thread. `turn` in the pool's row is a lock: the thread that changes it from 0 to 1 has the
//!        turn. Then it checks that the pool still exists and has no owner. The row outlives both, so a late
//!        thread finds another token, and releases the lock.
//! Turn   the holder is the owner: it is in the row's `owner` and in the pool's own word, so all code that
//!        compares the owner finds it, also in a callback of the call. Both are reset before the turn ends.
//!        Only an inline return in such a callback does not look, and may send a message.
//! Quick  a call that is served from the cache, makes no callback and does not read the owner needs the lock
//!        alone (`owner::quickly`).
//! Pairs  `lock`: compare-and-swap, Acquire. The end: store, Release. So the next holder sees all that the
//!        last one did: cache, counts, and the word of each page that is out as an address.
//! Calls  a call of the turn's own thread, from a callback of a domain, is the owner's. A callback that waits
//!        for another thread's call on this pool waits forever.
//! End    destroy takes a turn, and clears the token in it.
//! Order  the turn comes before the slot's lock. No thread waits for a turn with that lock held.
//! Wait   a few pauses, then yields the CPU, then short sleeps: a real-time thread lets a holder on its CPU
//!        run. The lock is not fair: threads that call without a pause can keep another waiting, also one
//!        that destroys the pool.
//! Cost   one compare-and-swap and one store.

// UNSAFETY: the owner's half is reached through the pool's row, in a turn.
#![expect(unsafe_code)]

use std::sync::atomic::Ordering::*;

use ::pagepool::{Backoff, Bound};

use crate::error::CallError;
use crate::handles::owner_half::OwnerHalf;
use crate::handles::slots;
use crate::handles::thread::me;
use crate::handles::token::Token;
use crate::handles::view::PoolView;

pub(crate) const NO_OWNER: CallError = CallError::fixed(
    libc::EPERM,
    c"the pool was created with no_owner: allocate with pagepool_alloc_addr_bulk, which any thread may call",
);

/// While it lives, the calling thread is the pool's owner.
pub(crate) struct OwnerTurn(HeldLock);

/// The lock of a pool without an owner, while it lives.
pub(crate) struct HeldLock(&'static PoolView);

impl Drop for HeldLock {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.away.turn.store(0, Release); // pairs with lock()
    }
}

impl HeldLock {
    /// The owner's half; `None` once the pool was destroyed.
    #[inline(always)]
    fn bound(&self) -> Option<&Bound> {
        let own: *const OwnerHalf = self.0.own.load(Relaxed);
        // SAFETY: the pool existed when the turn began, and its slot is reused only after the turn in which
        // it was destroyed.
        let own = unsafe { &*own };
        // SAFETY: this thread has the turn, so no other thread takes the half out.
        unsafe { &*own.bound.get() }.as_ref()
    }
}

/// Takes the lock of a pool. `None` if it does not exist, or may have an owner. The caller must not hold it.
#[inline(always)]
pub(crate) fn lock(view: &'static PoolView, pool: Token) -> Option<HeldLock> {
    // A row without a pool has the token 0, as NULL has.
    if view.no_owner.load(Relaxed) == 0 || pool.0 == 0 {
        return None;
    }
    if view.away.turn.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
        wait(view);
    }
    let held = HeldLock(view);
    // These change only in a turn.
    (view.token.load(Relaxed) == pool.0 && view.no_owner.load(Relaxed) != 0).then_some(held)
}

/// Begins a turn in a pool without an owner. `None` in every other pool, and in a callback of a call that
/// already has the turn.
pub(crate) fn begin(pool: Token) -> Option<OwnerTurn> {
    let view = slots::view_of(pool);
    if view.is_mine() {
        return None;
    }
    let turn = OwnerTurn(lock(view, pool)?);
    view.owner.store(me(), Relaxed);
    if let Some(bound) = turn.0.bound() {
        // SAFETY: this thread has the turn, in which no other thread uses the owner's half.
        unsafe { bound.begin_exclusive() };
    }
    Some(turn)
}

#[cold]
#[inline(never)]
fn wait(view: &PoolView) {
    let mut backoff = Backoff::default();
    while view.away.turn.compare_exchange_weak(0, 1, Acquire, Relaxed).is_err() {
        backoff.pause();
    }
}

impl Drop for OwnerTurn {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(bound) = self.0.bound() {
            bound.end_exclusive();
        }
        self.0.0.owner.store(0, Relaxed);
    }
}
