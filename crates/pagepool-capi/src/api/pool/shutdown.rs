//! Watching the end of a pool.

// UNSAFETY: functions with fixed names; callers' places are written.
#![expect(unsafe_code)]

use std::ffi::{c_char, c_int};
use std::time::Duration;

use ::pagepool::DeviceAddr;

use crate::args::sized::give_text;
use crate::error::{CallError, status, to_errno};
use crate::handles::binding::{EndedPool, destroy};
use crate::handles::opaque::{PoolHandle, ShutdownHandle};
use crate::handles::tables::ENDED_POOLS;
use crate::handles::token::Token;

/// As pagepool_destroy, and gives a handle to wait with, and to ask what is still out.
///
/// Thread: the owner's while the pool is bound, any otherwise. Ownership: the pool's handle is over; `*shutdown` is the
/// caller's, to be put once; it keeps the pool's domains. Errors: as pagepool_destroy; the pool stays then. Cost: as that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_destroy_watched(
    pool: *mut PoolHandle,
    shutdown: *mut *mut ShutdownHandle,
) -> c_int {
    status(|| {
        if shutdown.is_null() {
            return Err(CallError::null());
        }
        let token = ENDED_POOLS.insert(destroy(Token::of(pool))?)?;
        // SAFETY: not NULL, and the caller's to write.
        unsafe { shutdown.write(token.handle()) };
        Ok(())
    })
}

/// Waits until the last buffer is home and the pool is freed, at most `timeout_ns` nanoseconds. Sleeps, does not spin.
///
/// Thread: any. Errors: -ETIMEDOUT, with the report as the sentence; -EINVAL, -ESTALE. Cost: a lock; a system call to sleep.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_shutdown_wait(shutdown: *mut ShutdownHandle, timeout_ns: u64) -> c_int {
    status(|| {
        let EndedPool { shutdown, .. } = ENDED_POOLS.with(Token::of(shutdown), EndedPool::clone)?;
        if !shutdown.wait(Duration::from_nanos(timeout_ns)) {
            return Err(CallError::formatted(libc::ETIMEDOUT, shutdown.report().to_string()));
        }
        crate::handles::slots::reap();
        Ok(())
    })
}

/// How many pages are out. Writes a report into `text`, cut to `len` bytes and ended with a zero byte: "stalled pool
/// shutdown: N buffers held for S s", and which pages, with their tags. `text` may be NULL.
///
/// Thread: any. Errors: -EINVAL, -ESTALE. Cost: walks the arena's records.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_shutdown_report(
    shutdown: *mut ShutdownHandle,
    text: *mut c_char,
    len: usize,
) -> i64 {
    let done = to_errno(|| {
        let report = ENDED_POOLS.with(Token::of(shutdown), EndedPool::clone)?.shutdown.report();
        // SAFETY: the caller gave room for `len`.
        unsafe { give_text(text, len, &report.to_string()) };
        Ok(report.pages.len() as i64)
    });
    done.unwrap_or_else(i64::from)
}

/// Returns a buffer of the pool that is out as a raw address: pagepool_put_addr for a pool that was destroyed, also after it
/// was freed.
///
/// Thread: any. Ownership: the address is over. Errors: -EINVAL for an address that is not the pool's, -ESTALE for one that is
/// not out in raw form. One that came back before is either, for its page has left the pool. Nothing is changed then. -EINVAL
/// and -ESTALE for a bad handle. Cost: a lock and some four atomic operations.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_shutdown_put_addr(shutdown: *mut ShutdownHandle, addr: u64) -> c_int {
    status(|| {
        let EndedPool { handle, .. } = ENDED_POOLS.with(Token::of(shutdown), EndedPool::clone)?;
        drop(handle.from_raw(DeviceAddr(addr))?); // with no lock held
        Ok(())
    })
}

/// Stops watching. The pool is freed by its last buffer, whoever watches.
///
/// Thread: any. Ownership: the handle is over. Errors: -EINVAL, -ESTALE. Cost: a lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_shutdown_put(shutdown: *mut ShutdownHandle) -> c_int {
    status(|| {
        drop(ENDED_POOLS.remove(Token::of(shutdown))?);
        crate::handles::slots::reap();
        Ok(())
    })
}
