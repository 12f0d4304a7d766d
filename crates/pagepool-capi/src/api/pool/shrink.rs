//! Returning idle pages to the arena.

// UNSAFETY: exported functions.
#![expect(unsafe_code)]

use std::ffi::c_int;

use crate::error::{number, status};
use crate::handles::opaque::PoolHandle;
use crate::handles::owner::enter;
use crate::handles::slots;
use crate::handles::token::Token;

/// Returns idle pages to the arena until at most `keep` are left in the cache, lanes and ring. It polls the
/// deferred queue first. The result is the number of pages returned. pagepool_arena_trim then returns the
/// memory to the system.
///
/// Thread: owner.
/// Errors: -EPERM on another thread. -EINVAL, -ESTALE for a bad handle.
/// Cost: proportional to the pages returned.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_shrink(pool: *mut PoolHandle, keep: usize) -> i64 {
    number(|| enter(Token::of(pool), |owned| Ok(owned.bound.shrink(keep) as i64)))
}

/// Requests that the owner shrink the pool to `keep` idle pages, and returns at once. The owner does so when
/// it next refills its cache, or calls pagepool_poll_deferred or pagepool_acknowledge_wake. In a pool with
/// `wakeup` the event descriptor becomes readable. Of several requests the lowest counts.
///
/// Thread: any.
/// Errors: -EINVAL, -ESTALE for a bad handle.
/// Cost: a lock, and a system call in a pool with `wakeup`.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_ask_to_shrink(pool: *mut PoolHandle, keep: usize) -> c_int {
    status(|| {
        slots::with_life(Token::of(pool), |life| {
            life.handle.ask_to_shrink(keep);
            Ok(())
        })
    })
}
