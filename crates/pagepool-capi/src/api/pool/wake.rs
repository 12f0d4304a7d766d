//! Waking an owner that has no pages.

// UNSAFETY: exported functions.
#![expect(unsafe_code)]

use std::ffi::c_int;
use std::os::fd::AsRawFd;

use crate::error::{CallError, number, status};
use crate::handles::opaque::PoolHandle;
use crate::handles::owner::{OwnerCall, enter};
use crate::handles::token::Token;

/// Returns the event descriptor of a pool with `wakeup`, for poll(2) or epoll(7) beside the device's. After
/// an allocation failed, or fewer than `low_water` pages were available, it becomes readable when another
/// thread returns a page, or a page returns to the arena. It stays readable until pagepool_acknowledge_wake.
/// If you poll it edge-triggered (EPOLLET), acknowledge each signal.
///
/// Thread: owner.
/// Ownership: the descriptor is the pool's, and is closed when the pool is destroyed.
/// Errors: -EOPNOTSUPP in a pool without a descriptor. -EPERM on another thread. -EINVAL, -ESTALE for a bad
///     handle.
/// Cost: a load.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_wake_fd(pool: *mut PoolHandle) -> c_int {
    const NONE: CallError =
        CallError::fixed(libc::EOPNOTSUPP, c"this pool has no descriptor: set `wakeup` in its parameters");
    number(|| enter(Token::of(pool), |owned| owned.bound.wake_fd().map(|fd| fd.as_raw_fd()).ok_or(NONE)))
}

/// Clears the event descriptor after it woke the owner. Call it before you allocate: the next allocation that
/// fails arms the descriptor again, which none does while a signal is pending.
///
/// Thread: owner.
/// Errors: -EPERM on another thread. -EINVAL, -ESTALE for a bad handle.
/// Cost: a short lock; with a signal to clear, a system call.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_acknowledge_wake(pool: *mut PoolHandle) -> c_int {
    let clear = |owned: &OwnerCall<'_>| {
        owned.bound.acknowledge_wake();
        Ok(())
    };
    status(|| enter(Token::of(pool), clear))
}

/// Returns the lowest number of pages that cache and arena together had at any refill from the arena.
///
/// Thread: owner.
/// Errors: -EPERM on another thread. -EINVAL, -ESTALE for a bad handle.
/// Cost: a load.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_low_water_mark(pool: *mut PoolHandle) -> i64 {
    number(|| {
        enter(Token::of(pool), |owned| Ok(i64::try_from(owned.bound.low_water_mark()).unwrap_or(i64::MAX)))
    })
}
