//! Ownership of a pool: binding it to a thread, unbinding, destroying.
//!
//! Who    bind: any thread, while the pool has no owner. Unbind: the owner; the end of its thread does it
//!        too. Destroy: the owner, or any thread while there is none. All of it under the slot's lock;
//!        callbacks run after that.

// UNSAFETY: the owner's half moves between threads.
#![expect(unsafe_code)]

pub(crate) mod here;

use std::sync::Arc;
use std::sync::atomic::Ordering::*;

use ::pagepool::{Bound, Pool, PoolRef, Shutdown};

use crate::error::{CallError, CallResult};
use crate::handles::bound_pools;
use crate::handles::owner_half::OwnerHalf;
use crate::handles::slots::{self, Half, PoolLife, turn};
use crate::handles::there;
use crate::handles::thread::me;
use crate::handles::token::Token;
use crate::handles::view::PoolView;

pub(crate) fn bind(pool: Token) -> CallResult<()> {
    const ANOTHERS: CallError = CallError::fixed(
        libc::EPERM,
        c"the pool is bound to another thread: that thread must unbind it first",
    );
    let view = slots::view(pool)?;
    if view.no_owner.load(Relaxed) != 0 {
        return Err(turn::NO_OWNER);
    }
    if view.is_mine() {
        return Ok(());
    }
    bound_pools::remember(pool, |pool| {
        let _ = unbind(pool); // it fails for a pool that was unbound or destroyed before
    })?;
    let done = slots::with_life(pool, |life| {
        install(view, take_idle(life, Half::Bound, ANOTHERS)?.bind());
        Ok(())
    });
    if done.is_err() {
        bound_pools::forget(pool);
    }
    done
}

/// Makes an unused pool one without an owner, permanently.
pub(crate) fn disown(pool: Token) -> CallResult<()> {
    let view = slots::view(pool)?;
    slots::with_life(pool, |life| {
        let bound = take_idle(life, Half::Bound, CallError::STALE)?.bind();
        bound.end_exclusive();
        // A callback in a turn may make any owner's call, also those that the fast paths serve.
        keep(view, bound);
        view.no_owner.store(1, Release);
        Ok(())
    })
}

/// Takes the half of a pool without an owner out of its slot, where `then` stands in its place. Otherwise
/// changes nothing.
fn take_idle(life: &mut PoolLife, then: Half, otherwise: CallError) -> CallResult<Pool> {
    match std::mem::replace(&mut life.half, then) {
        Half::Idle(idle) => Ok(idle),
        other => {
            life.half = other;
            Err(otherwise)
        }
    }
}

/// Keeps the owner's half, under the slot's lock while there is no owner.
fn keep(view: &PoolView, bound: Bound) {
    view.cache.store(bound.cache_head().cast_mut(), Relaxed);
    // SAFETY: under the slot's lock, while there is no owner.
    unsafe { *own(view).bound.get() = Some(bound) };
}

/// Stores the calling thread as the owner, for the fast paths too.
fn install(view: &'static PoolView, bound: Bound) {
    keep(view, bound);
    view.guard.bind(plain_room(view));
    there::forget(view);
    view.owner.store(me(), Release);
    view.set_hint();
}

/// Pages that the cache takes with one store each.
fn plain_room(view: &PoolView) -> u64 {
    // SAFETY: the caller has the owner's half, whose cache it is.
    unsafe { &*view.cache.load(Relaxed) }.limit as u64
}

fn own(view: &PoolView) -> &OwnerHalf {
    // SAFETY: under the slot's lock of a pool that exists, or on its owner's thread.
    unsafe { &*view.own.load(Acquire) }
}

/// Takes the owner's half back, on the owner's thread and under the slot's lock.
fn uninstall(view: &PoolView) -> CallResult<Bound> {
    if !view.is_mine() {
        return Err(CallError::NOT_OWNER);
    }
    if own(view).calls.get() != 0 {
        return Err(CallError::fixed(
            libc::EBUSY,
            c"a callback during a call on this pool cannot unbind or destroy it: do so after the call",
        ));
    }
    // SAFETY: this thread is the owner, and none of its calls is under way.
    let bound = unsafe { &mut *own(view).bound.get() }.take().ok_or(CallError::NOT_OWNER)?;
    here::clear(view);
    view.guard.unbind();
    view.owner.store(0, Release);
    Ok(bound)
}

pub(crate) fn unbind(pool: Token) -> CallResult<()> {
    let view = slots::view(pool)?;
    slots::with_life(pool, |life| {
        life.half = Half::Idle(uninstall(view)?.unbind());
        Ok(())
    })?;
    bound_pools::forget(pool);
    Ok(())
}

#[derive(Clone)]
pub(crate) struct EndedPool {
    pub(crate) shutdown: Arc<Shutdown>,
    /// For addresses that are returned after the pool was destroyed.
    pub(crate) handle: PoolRef,
    /// The process that destroyed it, and whose callbacks the pool has.
    process: u32,
}

impl EndedPool {
    /// Refuses a copy that `fork` made in this process.
    pub(crate) fn of_this_process(self) -> CallResult<Self> {
        const COPIED: CallError = CallError::fixed(
            libc::EPERM,
            c"the pool ended in the parent of this process: a child of fork must not use its handle",
        );
        if self.process == std::process::id() { Ok(self) } else { Err(COPIED) }
    }
}

/// Buffers that are out are returned later.
pub(crate) fn destroy(pool: Token) -> CallResult<EndedPool> {
    let view = slots::view(pool)?;
    let turn = turn::begin(pool); // needed in a pool without an owner
    let (idle, handle) = slots::with_life(pool, |life| {
        if let Half::Bound = life.half {
            life.half = Half::Idle(uninstall(view)?.unbind());
        }
        let idle = take_idle(life, Half::Ended, CallError::STALE)?;
        view.token.store(0, Release);
        Ok((idle, life.handle.clone()))
    })?;
    drop(turn); // before the slot can be reused
    bound_pools::forget(pool);
    let shutdown = Arc::new(idle.destroy()); // with no lock held: providers and domains are callbacks
    let process = std::process::id();
    slots::ended(pool, process, shutdown.clone());
    slots::reap();
    Ok(EndedPool { shutdown, handle, process })
}
