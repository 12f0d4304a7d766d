//! The shutdown of a pool: waiting for it, its report, returning device addresses.

// UNSAFETY: exported functions; writes through callers' pointers.
#![expect(unsafe_code)]

use std::ffi::{c_char, c_int};
use std::time::Duration;

use ::pagepool::DeviceAddr;

use crate::args::out::{store_handle, store_text};
use crate::error::{CallError, CallResult, status};
use crate::handles::binding::{EndedPool, destroy};
use crate::handles::opaque::{PoolHandle, ShutdownHandle};
use crate::handles::slots::{self, reap};
use crate::handles::tables::ENDED_POOLS;
use crate::handles::token::Token;
use crate::oom;

/// Destroys a pool as pagepool_destroy does, and stores a handle: to wait for the last buffer, to report
/// which pages are out, and to return device addresses. Linux: page_pool_destroy.
///
/// Thread: owner; any while no thread owns the pool, or if it was made with `no_owner`.
/// Ownership: the pool's handle ends. Release `*shutdown` with pagepool_shutdown_put; it keeps the pool's
///     domains.
/// Errors: as pagepool_destroy, and -ENOMEM if there is no memory for the handle or for destroying the pool.
///     The pool is then unchanged, and its handle stays the caller's.
/// Cost: as pagepool_destroy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_destroy_watched(
    pool: *mut PoolHandle,
    shutdown: *mut *mut ShutdownHandle,
) -> c_int {
    let end = || {
        oom::expect_end(&slots::handle(Token::of(pool))?)?;
        ENDED_POOLS.insert_made(|| destroy(Token::of(pool)))
    };
    // SAFETY: `shutdown` is NULL or the caller's to write.
    unsafe { store_handle(shutdown, end) }
}

/// The destroyed pool of a handle; an error in a child of fork, if its parent destroyed the pool.
fn ended(shutdown: *mut ShutdownHandle) -> CallResult<EndedPool> {
    ENDED_POOLS.get(Token::of(shutdown))?.of_this_process()
}

/// Waits at most `timeout_ns` nanoseconds until the last buffer is returned and the pool is freed. The thread
/// sleeps; it does not spin.
///
/// Thread: any.
/// Errors: -ETIMEDOUT if buffers are still out; pagepool_last_error has the report. -EPERM in a child of
///     fork, if its parent destroyed the pool. -EINVAL, -ESTALE for a bad handle.
/// Cost: a lock; a system call to sleep.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_shutdown_wait(shutdown: *mut ShutdownHandle, timeout_ns: u64) -> c_int {
    status(|| {
        let shutdown = ended(shutdown)?.shutdown;
        if !shutdown.wait(Duration::from_nanos(timeout_ns)) {
            return Err(CallError::formatted(libc::ETIMEDOUT, shutdown.report().to_string()));
        }
        reap();
        Ok(())
    })
}

/// Returns the number of pages that are out, and writes a report into `text`: "stalled pool shutdown: N
/// buffers held for S s", and the pages with their tags. Cuts the text to `len` bytes and ends it with a zero
/// byte. `text` may be NULL.
///
/// Thread: any.
/// Errors: -EPERM as for pagepool_shutdown_wait. -EINVAL, -ESTALE for a bad handle.
/// Cost: reads all page records of the arena.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_shutdown_report(
    shutdown: *mut ShutdownHandle,
    text: *mut c_char,
    len: usize,
) -> i64 {
    let report = || {
        let report = ended(shutdown)?.shutdown.report();
        Ok((report.to_string(), report.pages.len()))
    };
    // SAFETY: `text` is NULL or the caller's to write for `len` bytes.
    unsafe { store_text(text, len, report) }
}

/// Returns a buffer to a destroyed pool by its device address; also after the pool was freed.
///
/// Thread: any.
/// Ownership: the address ends.
/// Errors: -EINVAL for an address that is not the pool's. -ESTALE for an address that is not out. An address
///     that was returned before gives one of the two. Nothing changes then. -EPERM as for
///     pagepool_shutdown_wait. -EINVAL, -ESTALE for a bad handle.
/// Cost: a lock and about four atomic operations.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_shutdown_put_addr(shutdown: *mut ShutdownHandle, addr: u64) -> c_int {
    status(|| Ok(ended(shutdown)?.handle.from_raw(DeviceAddr(addr))?))
}

/// Releases the handle of a shutdown. The pool is freed with its last buffer, with or without this handle.
///
/// Thread: any.
/// Ownership: the handle ends.
/// Errors: -EPERM as for pagepool_shutdown_wait. -EINVAL, -ESTALE for a bad handle.
/// Cost: a lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_shutdown_put(shutdown: *mut ShutdownHandle) -> c_int {
    status(|| {
        ended(shutdown)?;
        drop(ENDED_POOLS.remove(Token::of(shutdown))?);
        reap();
        Ok(())
    })
}
