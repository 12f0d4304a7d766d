//! Page references: they keep a page's memory after its buffer is returned.

// UNSAFETY: exported functions; writes through the caller's pointer.
#![expect(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use crate::api::buf::address;
use crate::args::out::store_handle;
use crate::error::{status, value_or};
use crate::handles::claim::change;
use crate::handles::opaque::{BufHandle, PageRefHandle};
use crate::handles::tables::PAGE_REFS;
use crate::handles::token::Token;

/// Takes a reference to the page of a buffer: its memory is not used again until the reference is released,
/// even if the buffer is returned before. For DMA that cannot be stopped. A page that is returned while it
/// has references leaves its pool (counted in `recycle_released_refcnt`). Linux: get_page.
///
/// Thread: the one that holds the buffer.
/// Ownership: release `*page_ref` with pagepool_page_ref_put. The buffer is unchanged.
/// Errors: -ENOMEM if there is no memory for the table. -EINVAL, -ESTALE for a bad handle.
/// Cost: a lock and two atomic operations.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_buf_page_ref(
    buf: *mut BufHandle,
    page_ref: *mut *mut PageRefHandle,
) -> c_int {
    let make = || PAGE_REFS.insert(change(Token::of(buf), |buf| buf.page_ref())?);
    // SAFETY: `page_ref` is NULL or the caller's to write.
    unsafe { store_handle(page_ref, make) }
}

/// Releases a reference to a page. If the page has left its pool, its last reference returns the memory to
/// the arena. Linux: put_page.
///
/// Thread: any.
/// Ownership: the handle ends.
/// Errors: -ESTALE for a reference that was released before. -EINVAL for a value that never was a reference.
/// Cost: a lock and an atomic operation.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_page_ref_put(page_ref: *mut PageRefHandle) -> c_int {
    status(|| PAGE_REFS.remove(Token::of(page_ref)))
}

/// Returns the number of the page in its arena, as pagepool_buf_page_index does for a buffer. UINT32_MAX for
/// a bad handle.
///
/// Thread: any.
/// Cost: a lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_page_ref_page_index(page_ref: *mut PageRefHandle) -> u32 {
    value_or(u32::MAX, || PAGE_REFS.with(Token::of(page_ref), |page_ref| page_ref.page().0))
}

/// Returns the address of the page's first byte. NULL for memory that the CPU cannot read (-EOPNOTSUPP), or
/// for a bad handle (-EINVAL, -ESTALE).
///
/// Thread: any.
/// Cost: a lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_page_ref_data(page_ref: *mut PageRefHandle) -> *mut c_void {
    value_or(null_mut(), || PAGE_REFS.with(Token::of(page_ref), |page_ref| address(page_ref.as_ptr()))?)
}
