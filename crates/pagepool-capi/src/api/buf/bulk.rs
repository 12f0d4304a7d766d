//! Returning many buffers in one call.

// UNSAFETY: functions with fixed names; callers' arrays are read.
#![expect(unsafe_code)]

use std::ffi::c_int;

use ::pagepool::{PageBuf, put_bulk, put_ring_bulk};

use crate::args::out::array;
use crate::error::{CallResult, status};
use crate::handles::claim::{claim, put_fast};
use crate::handles::opaque::BufHandle;
use crate::handles::token::Token;

/// Buffers that are claimed before they are returned together.
const ROUND: usize = 64;

/// Returns `n` buffers to their pools; they may belong to different pools. Linux: page_pool_put_netmem_bulk.
///
/// Thread: any.
/// Ownership: every handle ends. The array stays the caller's and is unchanged.
/// Errors: the error of the first handle that failed; all others are returned nevertheless. -EINVAL for a
///     NULL array.
/// Cost: per buffer as pagepool_buf_put without the call. On other threads than the owner's the pool is
///     checked once per run of 64 buffers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_buf_put_bulk(bufs: *const *mut BufHandle, n: usize) -> c_int {
    // SAFETY: the caller gave `n` handles.
    unsafe { each(bufs, n, true, put_bulk) }
}

/// Returns `n` buffers to their pools through the rings, on every thread.
///
/// Thread: any.
/// Ownership: every handle ends. The array stays the caller's and is unchanged.
/// Errors: as pagepool_buf_put_bulk.
/// Cost: a lock for each 64 buffers of a pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_buf_put_ring_bulk(bufs: *const *mut BufHandle, n: usize) -> c_int {
    // SAFETY: the caller gave `n` handles.
    unsafe { each(bufs, n, false, put_ring_bulk) }
}

/// # Safety
/// `bufs` is NULL or readable for `n` handles.
unsafe fn each(bufs: *const *mut BufHandle, n: usize, fast: bool, send: fn(&mut Vec<PageBuf>)) -> c_int {
    status(|| {
        // SAFETY: the caller's contract is that of `array`.
        let tokens = unsafe { array(bufs, n) }?.iter().map(|&handle| Token::of(handle));
        return_all(tokens.filter(|&token| !(fast && put_fast(token))), send)
    })
}

/// Claims buffers and returns them by rounds; the first error is kept for the end.
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
