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

/// Keeps a page's memory as it is after its buffer went home, until the hold is let go: for DMA that nobody can call off. A
/// page that comes home while it is held leaves its pool (`recycle_released_refcnt`). Linux: a page reference beside the
/// pool's.
///
/// Thread: whoever has the buffer. Ownership: `*hold` is the caller's, to be let go once; the buffer stays as it is. Errors:
/// -EINVAL, -ESTALE, -ENOMEM. Cost: a lock and two atomic operations.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_buf_hold(buf: *mut BufHandle, hold: *mut *mut PageRefHandle) -> c_int {
    status(|| {
        if hold.is_null() {
            return Err(CallError::null());
        }
        let mut claimed = claim(Token::of(buf))?;
        let held = claimed.buffer.page_ref();
        claimed.put_back();
        let token = PAGE_REFS.insert(held)?;
        // SAFETY: not NULL, and the caller's to write.
        unsafe { hold.write(token.handle()) };
        Ok(())
    })
}

/// Lets a hold go.
///
/// Thread: any. Ownership: the handle is over. Errors: -ESTALE for one that was let go before, -EINVAL. Cost: a lock and an
/// atomic operation; the last hold of a page that left its pool gives the memory back.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_unhold(hold: *mut PageRefHandle) -> c_int {
    status(|| {
        drop(PAGE_REFS.remove(Token::of(hold))?);
        Ok(())
    })
}

/// Number of the page that is held; UINT32_MAX for a bad handle.
///
/// Thread: any. Cost: a lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_hold_page_index(hold: *mut PageRefHandle) -> u32 {
    value_or(u32::MAX, || PAGE_REFS.with(Token::of(hold), |hold| hold.page().0))
}

/// Address of the first byte of the page that is held; NULL for memory that the CPU cannot read, or a bad handle.
///
/// Thread: any. Cost: a lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_hold_data(hold: *mut PageRefHandle) -> *mut c_void {
    value_or(null_mut(), || {
        PAGE_REFS.with(Token::of(hold), |hold| hold.as_ptr().map_or(null_mut(), <*mut u8>::cast))
    })
}
