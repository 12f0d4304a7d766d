//! Holds: a page's memory beyond its buffer's life.

// UNSAFETY: functions with fixed names; the caller's place is written.
#![expect(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use ::pagepool::PageRef;

use crate::error::{Refusal, or, status};
use crate::handles::claim::claim;
use crate::handles::opaque::{BufHandle, HoldHandle};
use crate::handles::table::Table;
use crate::handles::token::{Kind, Token};

static HOLDS: Table<PageRef> = Table::new(Kind::Hold);

/// A token for a hold.
pub(crate) fn insert(hold: PageRef) -> crate::error::Outcome<Token> {
    HOLDS.insert(hold)
}

/// Keeps a page's memory as it is after its buffer went home, until the hold is let go: for DMA that nobody can call off. A
/// page that comes home while it is held leaves its pool (`recycle_released_refcnt`). Linux: a page reference beside the
/// pool's.
///
/// Thread: whoever has the buffer. Ownership: `*hold` is the caller's, to be let go once; the buffer stays as it is. Errors:
/// -EINVAL, -ESTALE, -ENOMEM. Cost: a lock and two atomic operations.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_buf_hold(buf: *mut BufHandle, hold: *mut *mut HoldHandle) -> c_int {
    status(|| {
        if hold.is_null() {
            return Err(Refusal::null());
        }
        let mut claimed = claim(Token::of(buf))?;
        let held = claimed.buffer.page_ref();
        claimed.put_back();
        let token = insert(held)?;
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
pub extern "C" fn pagepool_unhold(hold: *mut HoldHandle) -> c_int {
    status(|| {
        drop(HOLDS.remove(Token::of(hold))?);
        Ok(())
    })
}

/// Number of the page that is held; UINT32_MAX for a bad handle.
///
/// Thread: any. Cost: a lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_hold_page_index(hold: *mut HoldHandle) -> u32 {
    or(u32::MAX, || HOLDS.with(Token::of(hold), |hold| hold.page().0))
}

/// Address of the first byte of the page that is held; NULL for memory that the CPU cannot read, or a bad handle.
///
/// Thread: any. Cost: a lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_hold_data(hold: *mut HoldHandle) -> *mut c_void {
    or(null_mut(), || HOLDS.with(Token::of(hold), |hold| hold.as_ptr().map_or(null_mut(), <*mut u8>::cast)))
}
