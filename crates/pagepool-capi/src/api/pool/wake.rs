//! Waking an owner that ran dry.

// UNSAFETY: functions with fixed names.
#![expect(unsafe_code)]

use std::ffi::c_int;
use std::os::fd::AsRawFd;

use crate::error::{CallError, status, to_errno};
use crate::handles::opaque::PoolHandle;
use crate::handles::owner::enter;
use crate::handles::token::Token;

/// Gives the descriptor of a pool made with `wakeup`, to be polled together with the device's. It is readable
/// once another thread returned a buffer after an allocation failed, or after fewer than `low_water` pages
/// were left.
///
/// Thread: owner.
/// Ownership: the descriptor is the pool's.
/// Errors: -EOPNOTSUPP in a pool without one. -EPERM on another thread. -EINVAL, -ESTALE for a bad handle.
/// Cost: a load.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_wake_fd(pool: *mut PoolHandle) -> c_int {
    let none =
        || CallError::fixed(libc::EOPNOTSUPP, c"this pool has no descriptor: set `wakeup` in its parameters");
    to_errno(|| {
        enter(Token::of(pool), |owned| owned.bound.wake_fd().map(|fd| fd.as_raw_fd()).ok_or_else(none))
    })
    .unwrap_or_else(|errno| errno)
}

/// Clears the descriptor after it woke the owner, so that the owner can sleep on it again.
///
/// Thread: owner.
/// Errors: -EPERM on another thread. -EINVAL, -ESTALE for a bad handle.
/// Cost: a system call.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_acknowledge_wake(pool: *mut PoolHandle) -> c_int {
    status(|| {
        enter(Token::of(pool), |owned| {
            owned.bound.acknowledge_wake();
            Ok(())
        })
    })
}

/// Gives the lowest number of pages that cache and arena had together whenever the arena was asked.
///
/// Thread: owner.
/// Errors: -EPERM on another thread. -EINVAL, -ESTALE for a bad handle.
/// Cost: a load.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_low_water_mark(pool: *mut PoolHandle) -> i64 {
    let mark = |owned: &crate::handles::owner::OwnerCall<'_>| {
        Ok(i64::try_from(owned.bound.low_water_mark()).unwrap_or(i64::MAX))
    };
    to_errno(|| enter(Token::of(pool), mark)).unwrap_or_else(i64::from)
}
