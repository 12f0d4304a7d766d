//! Holds: a page's memory beyond its buffer's life.

// UNSAFETY: functions with fixed names; the caller's place is written.
#![expect(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use crate::error::{CallError, status, value_or};
use crate::handles::claim::claim;
use crate::handles::opaque::{BufHandle, PageRefHandle};
use crate::handles::tables::PAGE_REFS;
use crate::handles::token::Token;

/// Takes a reference to the page of a buffer: its memory is not used again until the reference is put, even
/// if the buffer returns before. For DMA that nobody can stop. A page that returns meanwhile leaves its pool
/// (`recycle_released_refcnt`). Linux: get_page.
///
/// Thread: the one that has the buffer.
/// Ownership: `*page_ref` is the caller's, to be put once; the buffer is unchanged.
/// Errors: -ENOMEM without memory for the table. -EINVAL, -ESTALE for a bad handle.
/// Cost: a lock and two atomic operations.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_buf_page_ref(
    buf: *mut BufHandle,
    page_ref: *mut *mut PageRefHandle,
) -> c_int {
    status(|| {
        if page_ref.is_null() {
            return Err(CallError::null());
        }
        let mut claimed = claim(Token::of(buf))?;
        let held = claimed.buffer.page_ref();
        claimed.put_back();
        let token = PAGE_REFS.insert(held)?;
        // SAFETY: not NULL, and the caller's to write.
        unsafe { page_ref.write(token.handle()) };
        Ok(())
    })
}

/// Puts a reference to a page. The last one of a page that left its pool returns the memory to the arena.
/// Linux: put_page.
///
/// Thread: any.
/// Ownership: the handle ends.
/// Errors: -ESTALE for a reference that was put before, -EINVAL for a value that never was one.
/// Cost: a lock and an atomic operation.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_page_ref_put(page_ref: *mut PageRefHandle) -> c_int {
    status(|| {
        drop(PAGE_REFS.remove(Token::of(page_ref))?);
        Ok(())
    })
}

/// Gives the number of the page in its arena; UINT32_MAX for a bad handle.
///
/// Thread: any.
/// Cost: a lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_page_ref_page_index(page_ref: *mut PageRefHandle) -> u32 {
    value_or(u32::MAX, || PAGE_REFS.with(Token::of(page_ref), |page_ref| page_ref.page().0))
}

/// Gives the address of the page; NULL for memory that the CPU cannot read, or a bad handle.
///
/// Thread: any.
/// Cost: a lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_page_ref_data(page_ref: *mut PageRefHandle) -> *mut c_void {
    value_or(null_mut(), || {
        PAGE_REFS.with(Token::of(page_ref), |page_ref| page_ref.as_ptr().map_or(null_mut(), <*mut u8>::cast))
    })
}
