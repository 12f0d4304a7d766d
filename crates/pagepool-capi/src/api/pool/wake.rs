//! Waking an owner that ran dry.

// UNSAFETY: functions with fixed names.
#![expect(unsafe_code)]

use std::ffi::c_int;
use std::os::fd::AsRawFd;

use crate::error::{CallError, status, to_errno};
use crate::handles::opaque::PoolHandle;
use crate::handles::owner::enter;
use crate::handles::token::Token;

/// The descriptor to poll together with the device's, in a pool made with `wakeup`: readable once a buffer came home after
/// the pool ran dry.
///
/// Thread: the owner's. Ownership: the descriptor is the pool's. Errors: -EOPNOTSUPP in a pool without one; -EPERM, -EINVAL,
/// -ESTALE. Cost: a load.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_wake_fd(pool: *mut PoolHandle) -> c_int {
    let none =
        || CallError::fixed(libc::EOPNOTSUPP, c"this pool has no descriptor: set `wakeup` in its parameters");
    to_errno(|| {
        enter(Token::of(pool), |owned| owned.bound.wake_fd().map(|fd| fd.as_raw_fd()).ok_or_else(none))
    })
    .unwrap_or_else(|errno| errno)
}

/// After waking: takes the signal back, so that the descriptor can be slept on again.
///
/// Thread: the owner's. Errors: -EPERM, -EINVAL, -ESTALE. Cost: a system call.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_acknowledge_wake(pool: *mut PoolHandle) -> c_int {
    status(|| {
        enter(Token::of(pool), |owned| {
            owned.bound.acknowledge_wake();
            Ok(())
        })
    })
}

/// The fewest pages that were left to have, cache and arena together, whenever the arena was asked.
///
/// Thread: the owner's. Errors: -EPERM, -EINVAL, -ESTALE. Cost: a load.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_low_water_mark(pool: *mut PoolHandle) -> i64 {
    let mark = |owned: &crate::handles::owner::OwnerCall<'_>| {
        Ok(i64::try_from(owned.bound.low_water_mark()).unwrap_or(i64::MAX))
    };
    to_errno(|| enter(Token::of(pool), mark)).unwrap_or_else(i64::from)
}
