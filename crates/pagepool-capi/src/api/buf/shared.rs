//! Shared buffers: one buffer with many readers.

// UNSAFETY: exported functions; writes through the caller's pointer.
#![expect(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::ptr::null;

use ::pagepool::SharedBuf;

use crate::args::out::store_handle;
use crate::error::{CallError, status, value_or};
use crate::handles::claim::claim;
use crate::handles::opaque::{BufHandle, PageRefHandle, SharedHandle};
use crate::handles::owner::{FreeFragEntry, page_token};
use crate::handles::tables::{PAGE_REFS, SHARED_BUFS, SharedEntry};
use crate::handles::token::Token;

/// Makes a buffer shared: it can have many readers, each with its own handle. The last released handle
/// returns the buffer to its pool. Linux: page_pool_ref_page.
///
/// Thread: the one that holds the buffer.
/// Ownership: the handle of the buffer ends. Release `*shared` with pagepool_shared_put.
/// Errors: -ENOMEM if there is no memory for the table. -EINVAL, -ESTALE for a bad handle.
/// Cost: a lock and one atomic operation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_buf_share(buf: *mut BufHandle, shared: *mut *mut SharedHandle) -> c_int {
    let make = || {
        SHARED_BUFS.insert_made(|| {
            let claimed = claim(Token::of(buf))?;
            let view = claimed.view();
            Ok(SharedEntry { shared: claimed.keep().into_shared(), view })
        })
    };
    // SAFETY: `shared` is NULL or the caller's to write.
    unsafe { store_handle(shared, make) }
}

/// Creates a handle for one more reader of a shared buffer. Linux: page_pool_ref_page.
///
/// Thread: any.
/// Ownership: release `*clone` with pagepool_shared_put.
/// Errors: -ENOMEM if there is no memory for the table. -EINVAL, -ESTALE for a bad handle.
/// Cost: two locks and one atomic operation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_shared_clone(
    shared: *mut SharedHandle,
    clone: *mut *mut SharedHandle,
) -> c_int {
    // SAFETY: `clone` is NULL or the caller's to write.
    unsafe { store_handle(clone, || SHARED_BUFS.insert(SHARED_BUFS.get(Token::of(shared))?)) }
}

/// Releases the handle of one reader; the last one returns the buffer to its pool. Linux:
/// page_pool_unref_page.
///
/// Thread: any.
/// Ownership: the handle ends.
/// Errors: -ESTALE for a handle that was released before. -EINVAL for a value that never was a handle.
/// Cost: a lock and one atomic operation; for the last reader as pagepool_buf_put.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_shared_put(shared: *mut SharedHandle) -> c_int {
    status(|| SHARED_BUFS.remove(Token::of(shared))) // dropped with no lock held
}

/// Turns a shared buffer back into one that may be written or split, if this is the handle of its last
/// reader. Fragments of one page are counted together: the call also fails while another fragment of the page
/// is shared.
///
/// Thread: any.
/// Ownership: the shared handle ends, and `*buf` is the caller's, unless the call fails.
/// Errors: -EBUSY while there are other readers: try again, or release this handle. -ENOMEM if there is no
///     memory for the table, -ENOSPC if all pools together have 268,435,456 pages and fragments, the limit.
///     -EINVAL, -ESTALE for a bad handle. The handle is then unchanged.
/// Cost: a lock; for a fragment an atomic operation, and on other threads than the owner's one more lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_shared_try_unique(
    shared: *mut SharedHandle,
    buf: *mut *mut BufHandle,
) -> c_int {
    // SAFETY: `buf` is NULL or the caller's to write.
    unsafe { store_handle(buf, || SHARED_BUFS.remove_into(Token::of(shared), unique)) }
}

fn unique(entry: SharedEntry) -> Result<Token, (SharedEntry, CallError)> {
    const BUSY: CallError = CallError::fixed(
        libc::EBUSY,
        c"the buffer has other readers, or another fragment of its page is shared: release those first",
    );
    let SharedEntry { shared, view } = entry;
    let buffer = shared.try_unique().map_err(|shared| (SharedEntry { shared, view }, BUSY))?;
    if !buffer.is_frag() {
        return Ok(page_token(view, buffer));
    }
    match FreeFragEntry::take(view) {
        Ok(free) => Ok(free.fill(buffer)),
        Err(error) => Err((SharedEntry { shared: buffer.into_shared(), view }, error)),
    }
}

fn query<R>(otherwise: R, shared: *mut SharedHandle, what: impl FnOnce(&SharedBuf) -> R) -> R {
    value_or(otherwise, || SHARED_BUFS.with(Token::of(shared), |entry| what(&entry.shared)))
}

/// Returns the address of the first byte of the page or fragment, for reading. NULL for memory that the CPU
/// cannot read (-EOPNOTSUPP), or for a bad handle (-EINVAL, -ESTALE).
///
/// Thread: any that holds a handle.
/// Ownership: the bytes stay valid until the handle is released.
/// Cost: a lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_shared_data(shared: *mut SharedHandle) -> *const c_void {
    let start = |entry: &SharedEntry| entry.shared.bytes().map(|bytes| bytes.as_ptr().cast());
    let start = || SHARED_BUFS.with(Token::of(shared), start)?.ok_or(CallError::UNREADABLE);
    value_or(null(), start)
}

/// Returns the size of the page or fragment in bytes. 0 for a bad handle.
///
/// Thread: any that holds a handle.
/// Cost: a lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_shared_len(shared: *mut SharedHandle) -> usize {
    query(0, shared, SharedBuf::len)
}

/// Returns the device address of the buffer's first byte in the pool's first domain. UINT64_MAX if the pool
/// has no domain, if the device is gone, or for a bad handle.
///
/// Thread: any that holds a handle.
/// Cost: a lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_shared_dma_addr(shared: *mut SharedHandle) -> u64 {
    query(None, shared, SharedBuf::dma_addr).map_or(u64::MAX, |at| at.0)
}

/// Takes a reference to the page of a shared buffer, as pagepool_buf_page_ref does.
///
/// Thread: any that holds a handle.
/// Ownership: release `*page_ref` with pagepool_page_ref_put. The shared handle is unchanged.
/// Errors: -ENOMEM if there is no memory for the table. -EINVAL, -ESTALE for a bad handle.
/// Cost: two locks and an atomic operation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_shared_page_ref(
    shared: *mut SharedHandle,
    page_ref: *mut *mut PageRefHandle,
) -> c_int {
    let make = || PAGE_REFS.insert(SHARED_BUFS.with(Token::of(shared), |entry| entry.shared.page_ref())?);
    // SAFETY: `page_ref` is NULL or the caller's to write.
    unsafe { store_handle(page_ref, make) }
}
