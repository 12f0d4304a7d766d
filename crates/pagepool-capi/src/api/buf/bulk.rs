//! Returning many buffers in one call.

// UNSAFETY: functions with fixed names; callers' arrays are read.
#![expect(unsafe_code)]

use std::ffi::c_int;

use ::pagepool::{PageBuf, put_bulk, put_ring_bulk};

use crate::error::{CallError, CallResult, status};
use crate::handles::claim::{claim, put_fast};
use crate::handles::opaque::BufHandle;
use crate::handles::token::Token;

/// Buffers that are claimed before they are sent home together.
const ROUND: usize = 64;

/// Returns `n` buffers of any pools. Linux: page_pool_put_netmem_bulk.
///
/// Thread: any.
/// Ownership: every handle ends. The array stays the caller's and is unchanged.
/// Errors: that of the first handle that failed; all others are returned nevertheless. -EINVAL for a NULL
///     array.
/// Cost: per buffer as pagepool_buf_put without the call. On other threads than the owner's the pool is
///     checked once per run of 64 buffers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_buf_put_bulk(bufs: *mut *mut BufHandle, n: usize) -> c_int {
    // SAFETY: the caller gave `n` handles.
    unsafe { each(bufs, n, true, put_bulk) }
}

/// Returns `n` buffers through the locked rings of their pools, on every thread.
///
/// Thread: any.
/// Ownership: every handle ends. The array stays the caller's and is unchanged.
/// Errors: as pagepool_buf_put_bulk.
/// Cost: a lock per pool and 64 buffers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_buf_put_ring_bulk(bufs: *mut *mut BufHandle, n: usize) -> c_int {
    // SAFETY: the caller gave `n` handles.
    unsafe { each(bufs, n, false, put_ring_bulk) }
}

/// # Safety
/// `bufs` is NULL or readable for `n` handles.
unsafe fn each(bufs: *mut *mut BufHandle, n: usize, fast: bool, send: fn(&mut Vec<PageBuf>)) -> c_int {
    status(|| {
        if n == 0 {
            return Ok(());
        }
        if bufs.is_null() || n > isize::MAX as usize / size_of::<*mut BufHandle>() {
            return Err(CallError::null());
        }
        // SAFETY: the caller says so; the length fits.
        let handles = unsafe { std::slice::from_raw_parts(bufs, n) };
        let tokens = handles.iter().map(|&handle| Token::of(handle));
        return_all(tokens.filter(|&token| !(fast && put_fast(token))), send)
    })
}

/// Claims buffers and sends them home by rounds; the first error is kept for the end.
fn return_all(tokens: impl Iterator<Item = Token>, send: fn(&mut Vec<PageBuf>)) -> CallResult<()> {
    let mut round: Vec<PageBuf> = Vec::new();
    let mut failed = Ok(());
    for token in tokens {
        match claim(token) {
            Ok(claimed) if round.try_reserve(if round.capacity() == 0 { ROUND } else { 1 }).is_ok() => {
                round.push(claimed.keep());
            }
            Ok(claimed) => drop(claimed.keep()), // no memory for a round: one by one
            Err(error) => failed = failed.and(Err(error)),
        }
        if round.len() == ROUND {
            send(&mut round);
        }
    }
    send(&mut round);
    failed
}
