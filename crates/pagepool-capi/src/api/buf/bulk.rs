//! Returning many buffers in one call.

// UNSAFETY: exported functions; reads callers' arrays.
#![expect(unsafe_code)]

use std::ffi::c_int;

use ::pagepool::{Batch, PageBuf, put_bulk, put_ring_bulk};

use crate::args::out::array;
use crate::error::{CallResult, status};
use crate::handles::claim::{claim, put_run, send_alone, send_run};
use crate::handles::opaque::BufHandle;
use crate::handles::token::Token;

/// Returns `n` buffers to their pools; they may belong to different pools. Linux: page_pool_put_netmem_bulk.
///
/// Thread: any.
/// Ownership: every handle ends. The array stays the caller's and is unchanged.
/// Errors: the error of the first handle that failed; all others are still returned. -EINVAL for a NULL
///     array.
/// Cost: on the owner's thread one check of pool and owner for up to 64 whole pages of a pool. On other
///     threads one bulk of messages for up to 64. Atomic operations as for pagepool_buf_put.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_buf_put_bulk(bufs: *const *mut BufHandle, n: usize) -> c_int {
    // SAFETY: the caller gave `n` handles; a handle is a token.
    let tokens = unsafe { array(bufs.cast::<Token>(), n) }.unwrap_or_default();
    let done = match put_run(tokens) {
        0 => send_run(tokens),
        done => done,
    };
    if done == n && done != 0 {
        return 0;
    }
    // SAFETY: the caller's handles after the first `done`.
    unsafe { each(bufs.wrapping_add(done), n - done, Route::Recycle) }
}

/// Returns `n` buffers to their pools through the rings, even on the owner's thread.
///
/// Thread: any.
/// Ownership: every handle ends. The array stays the caller's and is unchanged.
/// Errors: as pagepool_buf_put_bulk.
/// Cost: a lock per 64 buffers of a pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_buf_put_ring_bulk(bufs: *const *mut BufHandle, n: usize) -> c_int {
    // SAFETY: the caller gave `n` handles.
    unsafe { each(bufs, n, Route::Ring) }
}

/// # Safety
/// `bufs` is NULL or readable for `n` handles.
#[inline(never)]
unsafe fn each(bufs: *const *mut BufHandle, n: usize, route: Route) -> c_int {
    status(|| {
        // SAFETY: the caller's contract is that of `array`; a handle is a token.
        let mut tokens = unsafe { array(bufs.cast::<Token>(), n) }?;
        let mut failed = Ok(());
        while !tokens.is_empty() {
            let mut done = if route == Route::Recycle { put_run(tokens) } else { 0 };
            if done == 0 {
                done = tokens.len().min(Batch::MAX);
                failed = failed.and(put_together(&tokens[..done], route));
            }
            tokens = &tokens[done..];
        }
        failed
    })
}

/// How buffers are returned.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Route {
    /// Into the cache, a lane or the ring, as pagepool_buf_put does.
    Recycle,
    Ring,
}

/// Sends up to [`Batch::MAX`] buffers, or claims them and returns them together. The result is the first
/// error.
fn put_together(tokens: &[Token], route: Route) -> CallResult<()> {
    let mut failed = Ok(());
    let (mut pages, mut others) = (Batch::new(), Vec::new());
    let mut left = tokens;
    while let [first, rest @ ..] = left {
        let run = if route == Route::Recycle { send_run(left) } else { 0 };
        if run > 0 {
            left = &left[run..];
            continue;
        }
        if route == Route::Recycle && send_alone(*first) {
            left = rest;
            continue;
        }
        match claim(*first) {
            Ok(claimed) => gather(claimed.keep(), route, &mut pages, &mut others),
            Err(error) => failed = failed.and(Err(error)),
        }
        left = rest;
    }
    pages.put();
    match route {
        Route::Recycle => put_bulk(&mut others),
        Route::Ring => put_ring_bulk(&mut others),
    }
    failed
}

/// Collects a buffer to return. Whole pages of one pool, the usual case, go into the batch without
/// allocating.
#[inline(always)]
fn gather(buffer: PageBuf, route: Route, pages: &mut Batch, others: &mut Vec<PageBuf>) {
    let buffer = match route {
        Route::Recycle => pages.push(buffer).err(),
        Route::Ring => Some(buffer),
    };
    let Some(buffer) = buffer else { return };
    if others.try_reserve(if others.capacity() == 0 { Batch::MAX } else { 1 }).is_ok() {
        others.push(buffer);
    } else {
        drop(buffer); // no memory to return them together
    }
}
