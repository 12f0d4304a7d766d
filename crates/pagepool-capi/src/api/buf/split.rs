//! Splitting: one buffer becomes two.

// UNSAFETY: an exported function; writes through the caller's pointers.
#![expect(unsafe_code)]

use std::ffi::c_int;

use ::pagepool::PageBuf;

use crate::error::{CallError, CallResult, status};
use crate::handles::claim::claim;
use crate::handles::opaque::BufHandle;
use crate::handles::owner::FreeFragEntry;
use crate::handles::token::Token;
use crate::handles::view::PoolView;

/// Splits a buffer in two: `*front` gets the first `at` bytes, `*rest` the others. Each part is returned
/// separately, on any thread; the page returns to its pool with its last part. Nothing is copied. To cut
/// several packets from one receive buffer, repeat pagepool_buf_split(buf, len, &packet, &buf).
///
/// Both parts are fragments, even of a whole page: `at` counts from the page's first byte, headroom included.
/// Read the packet's address before the split. Parts that share a cache line have no device address for
/// pagepool_buf_into_raw.
///
/// Thread: the one that holds the buffer.
/// Ownership: the handle of the buffer ends, unless the call fails. `*front` and `*rest` are new handles of
///     the caller's, to be returned with pagepool_buf_put.
/// Errors: -EINVAL unless `at` is 1 to pagepool_buf_len() - 1; in pages of 4 MiB (order 10) it must be an
///     even number. -EINVAL if `front` or `rest` is NULL, or both are the same pointer. -ENOMEM if there is
///     no memory for the table. -ENOSPC if all pools together have 268,435,456 pages and fragments, the
///     limit. -EINVAL, -ESTALE for a bad handle. Nothing changes then.
/// Cost: a lookup; on other threads than the owner's also two locks and one atomic operation, or two for a
///     whole page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_buf_split(
    buf: *mut BufHandle,
    at: usize,
    front: *mut *mut BufHandle,
    rest: *mut *mut BufHandle,
) -> c_int {
    status(|| {
        let parts = split(Token::of(buf), at, [front, rest])?;
        for (place, part) in [front, rest].into_iter().zip(parts) {
            // SAFETY: the pointer is not NULL, so the caller's to write.
            unsafe { place.write(part.handle()) };
        }
        Ok(())
    })
}

fn split(buf: Token, at: usize, [front, rest]: [*mut *mut BufHandle; 2]) -> CallResult<[Token; 2]> {
    const SAME: CallError =
        CallError::fixed(libc::EINVAL, c"front and rest must differ: each receives a handle");
    if front.is_null() || rest.is_null() {
        return Err(CallError::NULL);
    }
    if front == rest {
        return Err(SAME);
    }
    let claimed = claim(buf)?;
    let view = claimed.view();
    claimed.give(|buffer| parts_of(buffer, at, view))
}

fn parts_of(buffer: PageBuf, at: usize, view: &'static PoolView) -> Result<[Token; 2], (PageBuf, CallError)> {
    let free = FreeFragEntry::take(view).and_then(|one| Ok((one, FreeFragEntry::take(view)?)));
    let (first, second) = match free {
        Ok(free) => free,
        Err(error) => return Err((buffer, error)),
    };
    let (front, rest) = buffer.split_at(at).map_err(|(buffer, error)| (buffer, error.into()))?;
    Ok([first.fill(front), second.fill(rest)])
}
