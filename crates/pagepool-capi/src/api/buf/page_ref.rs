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

/// Keeps a page's memory as it is after its buffer went home, until the reference is put: for DMA that nobody can call off. A
/// page that comes home while it is held leaves its pool (`recycle_released_refcnt`). Linux: a page reference beside the
/// pool's.
///
/// Thread: whoever has the buffer. Ownership: `*page_ref` is the caller's, to be put once; the buffer stays as it is. Errors:
/// -EINVAL, -ESTALE, -ENOMEM. Cost: a lock and two atomic operations.
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

/// Puts a page reference.
///
/// Thread: any. Ownership: the handle is over. Errors: -ESTALE for one that was put before, -EINVAL. Cost: a lock and an
/// atomic operation; the last reference to a page that left its pool gives the memory back.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_page_ref_put(page_ref: *mut PageRefHandle) -> c_int {
    status(|| {
        drop(PAGE_REFS.remove(Token::of(page_ref))?);
        Ok(())
    })
}

/// Number of the page that is held; UINT32_MAX for a bad handle.
///
/// Thread: any. Cost: a lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_page_ref_page_index(page_ref: *mut PageRefHandle) -> u32 {
    value_or(u32::MAX, || PAGE_REFS.with(Token::of(page_ref), |page_ref| page_ref.page().0))
}

/// Address of the first byte of the page that is held; NULL for memory that the CPU cannot read, or a bad handle.
///
/// Thread: any. Cost: a lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_page_ref_data(page_ref: *mut PageRefHandle) -> *mut c_void {
    value_or(null_mut(), || {
        PAGE_REFS.with(Token::of(page_ref), |page_ref| page_ref.as_ptr().map_or(null_mut(), <*mut u8>::cast))
    })
}
