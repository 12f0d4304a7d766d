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

/// Ends a pool as pagepool_destroy does, and gives a handle to wait for its last buffer and to ask what is
/// out. Linux: page_pool_destroy.
///
/// Thread: owner; any while no thread owns the pool.
/// Ownership: the pool's handle ends. `*shutdown` is the caller's, to be put once; it keeps the pool's
///     domains.
/// Errors: as pagepool_destroy; the pool stays then.
/// Cost: as pagepool_destroy.
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

/// Waits at most `timeout_ns` nanoseconds until the last buffer has returned and the pool is freed. It sleeps
/// and does not spin.
///
/// Thread: any.
/// Errors: -ETIMEDOUT, with the report as the sentence. -EINVAL, -ESTALE for a bad handle.
/// Cost: a lock; a system call to sleep.
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

/// Gives the number of pages that are out, and writes a report into `text`: "stalled pool shutdown: N buffers
/// held for S s", and the pages with their tags. The text is cut to `len` bytes and ends with a zero byte.
/// `text` may be NULL.
///
/// Thread: any.
/// Errors: -EINVAL, -ESTALE for a bad handle.
/// Cost: a walk over the arena's records.
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

/// Returns a buffer of a destroyed pool by its device address, also after the pool was freed.
///
/// Thread: any.
/// Ownership: the address ends.
/// Errors: -EINVAL for an address that is not the pool's, -ESTALE for one that is not out in raw form; one
///     that came back before is either. Nothing changes then. -EINVAL, -ESTALE for a bad handle.
/// Cost: a lock and about four atomic operations.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_shutdown_put_addr(shutdown: *mut ShutdownHandle, addr: u64) -> c_int {
    status(|| {
        let EndedPool { handle, .. } = ENDED_POOLS.with(Token::of(shutdown), EndedPool::clone)?;
        drop(handle.from_raw(DeviceAddr(addr))?); // with no lock held
        Ok(())
    })
}

/// Puts the handle of a shutdown. The last buffer frees the pool, with or without it.
///
/// Thread: any.
/// Ownership: the handle ends.
/// Errors: -EINVAL, -ESTALE for a bad handle.
/// Cost: a lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_shutdown_put(shutdown: *mut ShutdownHandle) -> c_int {
    status(|| {
        drop(ENDED_POOLS.remove(Token::of(shutdown))?);
        crate::handles::slots::reap();
        Ok(())
    })
}
