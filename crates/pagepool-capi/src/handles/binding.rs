//! Who owns a pool: binding it to a thread, unbinding, and the end.
//!
//! Who    bind: any thread, while nobody owns the pool. Unbind: the owner; the end of its thread does it too.
//!        Destroy: the owner, or any thread while there is none. All of it under the slot's lock; foreign
//!        code runs after that.

// UNSAFETY: the owner's half changes hands.
#![expect(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::Ordering::*;

use ::pagepool::{Bound, Pool, PoolRef, Shutdown};

use crate::error::{CallError, CallResult};
use crate::handles::bound_pools;
use crate::handles::owner_half::OwnerHalf;
use crate::handles::slots::{self, Half};
use crate::handles::thread::me;
use crate::handles::token::Token;
use crate::handles::view::{BIAS_FREE, PoolView};
use crate::oom;

/// Makes the calling thread the owner.
pub(crate) fn bind(pool: Token) -> CallResult<()> {
    let view = slots::view(pool)?;
    if view.is_mine() {
        return Ok(());
    }
    if !bound_pools::has_room() {
        oom::expect(oom::FEW)?;
    }
    bound_pools::remember(pool, |pool| {
        let _ = unbind(pool); // it fails for a pool that was unbound or destroyed before
    })?;
    let done = slots::with_life(pool, |life| {
        if !matches!(life.half, Half::Idle(_)) {
            return Err(CallError::fixed(
                libc::EPERM,
                c"the pool is bound to another thread: that one must unbind it first",
            ));
        }
        if let Half::Idle(idle) = std::mem::replace(&mut life.half, Half::Bound) {
            install(view, idle.bind());
        }
        Ok(())
    });
    if done.is_err() {
        bound_pools::forget(pool);
    }
    done
}

/// Makes the calling thread the owner, for the fast paths too.
fn install(view: &'static PoolView, bound: Bound) {
    view.cache.store(bound.cache_head().cast_mut(), Relaxed);
    // SAFETY: under the slot's lock, while nobody is the owner.
    unsafe { *own(view).bound.get() = Some(bound) };
    let _ = view.bias.compare_exchange(BIAS_FREE, me(), AcqRel, Relaxed); // unless that is over for good
    view.owner.store(me(), Release);
    view.set_hint();
}

fn own(view: &PoolView) -> &OwnerHalf {
    // SAFETY: under the slot's lock, of a pool that is there, or on its owner's thread.
    unsafe { &*view.own.load(Acquire) }
}

/// Takes the owner's half back, from the owner's thread. Under the slot's lock.
fn uninstall(view: &PoolView) -> CallResult<Bound> {
    if !view.is_mine() {
        return Err(CallError::not_owner());
    }
    if own(view).is_in_call() {
        return Err(CallError::fixed(
            libc::EBUSY,
            c"a callback of this pool's own call cannot unbind or destroy it: do so after the call",
        ));
    }
    // SAFETY: this thread is the owner, and none of its calls is under way.
    let bound = unsafe { &mut *own(view).bound.get() }.take().ok_or(CallError::not_owner())?;
    view.owner.store(0, Release);
    let _ = view.bias.compare_exchange(me(), BIAS_FREE, AcqRel, Relaxed);
    Ok(bound)
}

/// Gives the pool up, on its owner's thread.
pub(crate) fn unbind(pool: Token) -> CallResult<()> {
    let view = slots::view(pool)?;
    slots::with_life(pool, |life| {
        life.half = Half::Idle(uninstall(view)?.unbind());
        Ok(())
    })?;
    bound_pools::forget(pool);
    Ok(())
}

/// A pool that was destroyed.
#[derive(Clone)]
pub(crate) struct EndedPool {
    pub(crate) shutdown: Arc<Shutdown>,
    /// For addresses that come home late.
    pub(crate) handle: PoolRef,
}

/// Ends the pool; whatever is out comes home later.
pub(crate) fn destroy(pool: Token) -> CallResult<EndedPool> {
    let view = slots::view(pool)?;
    let (idle, bound, handle) = slots::with_life(pool, |life| {
        let halves = match std::mem::replace(&mut life.half, Half::Ending) {
            Half::Idle(idle) => (Some(idle), None),
            Half::Bound => match uninstall(view) {
                Ok(bound) => (None, Some(bound)),
                Err(error) => {
                    life.half = Half::Bound;
                    return Err(error);
                }
            },
            ended => {
                life.half = ended;
                return Err(CallError::stale());
            }
        };
        view.token.store(0, Release);
        Ok((halves.0, halves.1, life.handle.clone()))
    })?;
    bound_pools::forget(pool);
    // With no lock held: providers and domains are foreign code.
    let shutdown = idle.map(Pool::destroy).or_else(|| bound.map(Bound::destroy)).ok_or(CallError::stale())?;
    let shutdown = Arc::new(shutdown);
    slots::ended(pool, shutdown.clone());
    slots::reap();
    Ok(EndedPool { shutdown, handle })
}
