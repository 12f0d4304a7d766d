//! Shared buffers: one buffer, many readers.

// UNSAFETY: functions with fixed names; the caller's place is written.
#![expect(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use ::pagepool::SharedBuf;

use crate::error::{CallError, CallResult, status, value_or};
use crate::handles::claim::claim;
use crate::handles::opaque::{BufHandle, PageRefHandle, SharedHandle};
use crate::handles::tables::{self, PAGE_REFS, SHARED_BUFS};
use crate::handles::token::Token;

/// Makes a buffer shared: many readers may have a handle, and the buffer returns with the last of them.
/// Linux: page_pool_ref_page.
///
/// Thread: the one that has the buffer.
/// Ownership: the handle of the buffer ends; `*shared` is the caller's, to be put once.
/// Errors: -EINVAL, -ESTALE for a bad handle.
/// Cost: a lock and one atomic operation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_buf_share(buf: *mut BufHandle, shared: *mut *mut SharedHandle) -> c_int {
    status(|| {
        if shared.is_null() {
            return Err(CallError::null());
        }
        let buffer = claim(Token::of(buf))?.keep().into_shared();
        // SAFETY: not NULL, and the caller's to write.
        unsafe { give(shared, buffer) }
    })
}

/// Makes a handle for one more reader of a shared buffer. Linux: page_pool_ref_page.
///
/// Thread: any.
/// Ownership: `*clone` is the caller's, to be put once.
/// Errors: -ENOMEM without memory for the table. -EINVAL, -ESTALE for a bad handle.
/// Cost: two locks and one atomic operation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_shared_clone(
    shared: *mut SharedHandle,
    clone: *mut *mut SharedHandle,
) -> c_int {
    status(|| {
        if clone.is_null() {
            return Err(CallError::null());
        }
        let reader = tables::shared_buf(Token::of(shared))?;
        // SAFETY: not NULL, and the caller's to write.
        unsafe { give(clone, reader) }
    })
}

/// # Safety
/// `to` is writable.
unsafe fn give(to: *mut *mut SharedHandle, buffer: SharedBuf) -> CallResult<()> {
    let token = SHARED_BUFS.insert(buffer)?;
    // SAFETY: the caller says so.
    unsafe { to.write(token.handle()) };
    Ok(())
}

/// Puts the handle of one reader; the last one returns the buffer. Linux: page_pool_unref_page.
///
/// Thread: any.
/// Ownership: the handle ends.
/// Errors: -ESTALE for a handle that was put before, -EINVAL for a value that never was one.
/// Cost: a lock and one atomic operation; the last reader's as pagepool_buf_put.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_shared_put(shared: *mut SharedHandle) -> c_int {
    status(|| {
        drop(SHARED_BUFS.remove(Token::of(shared))?); // with no lock held
        Ok(())
    })
}

/// Gives the address of the page or fragment, to be read only. NULL for memory that the CPU cannot read, or a
/// bad handle.
///
/// Thread: any that has a handle.
/// Ownership: the bytes stay until the handle is put.
/// Cost: a lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_shared_data(shared: *mut SharedHandle) -> *const c_void {
    let start = |shared: &SharedBuf| shared.bytes().map_or(null_mut(), |bytes| bytes.as_ptr().cast_mut());
    value_or(null_mut(), || SHARED_BUFS.with(Token::of(shared), start)).cast()
}

/// Gives the size in bytes; 0 for a bad handle.
///
/// Thread: any that has a handle.
/// Cost: a lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_shared_len(shared: *mut SharedHandle) -> usize {
    value_or(0, || SHARED_BUFS.with(Token::of(shared), SharedBuf::len))
}

/// Gives the device address of the first byte in the pool's first domain. UINT64_MAX if the pool has no
/// domain, if the device has gone, or for a bad handle.
///
/// Thread: any that has a handle.
/// Cost: a lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_shared_dma_addr(shared: *mut SharedHandle) -> u64 {
    value_or(u64::MAX, || {
        SHARED_BUFS.with(Token::of(shared), |shared| shared.dma_addr().map_or(u64::MAX, |at| at.0))
    })
}

/// Takes a reference to the page of a shared buffer, as pagepool_buf_page_ref does.
///
/// Thread: any that has a handle.
/// Ownership: `*page_ref` is the caller's, to be put once; the shared handle stays.
/// Errors: -ENOMEM without memory for the table. -EINVAL, -ESTALE for a bad handle.
/// Cost: two locks and an atomic operation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_shared_page_ref(
    shared: *mut SharedHandle,
    page_ref: *mut *mut PageRefHandle,
) -> c_int {
    status(|| {
        if page_ref.is_null() {
            return Err(CallError::null());
        }
        let held = SHARED_BUFS.with(Token::of(shared), SharedBuf::page_ref)?;
        let token = PAGE_REFS.insert(held)?;
        // SAFETY: not NULL, and the caller's to write.
        unsafe { page_ref.write(token.handle()) };
        Ok(())
    })
}
