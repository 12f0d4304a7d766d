//! Allocation: whole pages and fragments.

// UNSAFETY: functions with fixed names; callers' places are read and written.
#![expect(unsafe_code)]

use std::ffi::c_int;
use std::ptr::null_mut;

use crate::args::range::out_of_range;
use crate::error::{CallError, CallResult, to_errno};
use crate::handles::opaque::{BufHandle, PoolHandle};
use crate::handles::owner::{OwnerCall, enter};
use crate::handles::slots;
use crate::handles::token::Token;

pub(crate) const EXHAUSTED: CallError = CallError::fixed(
    libc::ENOMEM,
    c"no page is to be had: all that the arena may have is out (alloc_failed counts it; max_bytes, or return buffers)",
);

/// A whole page; its bytes are what the last packet left. Linux: page_pool_dev_alloc_pages.
///
/// Thread: the owner's. Ownership: the buffer is the caller's until it is returned. Errors: NULL when there is no page
/// (`alloc_failed` counts it), from another thread (-EPERM), or for a bad handle; pagepool_last_error says which. Cost: from
/// the cache, some ten instructions and no atomic operation; a refill of up to 64 pages otherwise.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_alloc_page(pool: *mut PoolHandle) -> *mut BufHandle {
    let pool = Token::of(pool);
    match slots::view_of(pool).alloc(pool) {
        Some(token) => token.handle(),
        None => alloc_page_slow(pool),
    }
}

#[cold]
#[inline(never)]
extern "C" fn alloc_page_slow(pool: Token) -> *mut BufHandle {
    handle(to_errno(|| enter(pool, alloc_page_owned)))
}

fn alloc_page_owned(owned: &OwnerCall<'_>) -> CallResult<Token> {
    owned.token_for(owned.bound.alloc_page().ok_or(EXHAUSTED)?)
}

fn handle(done: Result<Token, c_int>) -> *mut BufHandle {
    done.map_or(null_mut(), Token::handle)
}

/// A fragment of `size` bytes of a page that is shared with other fragments. It begins at a multiple of `frag_align`.
/// Linux: page_pool_dev_alloc_frag.
///
/// Thread: the owner's. Ownership: as a page's; the page comes home when its last fragment has. Errors: NULL for a size of 0
/// or beyond the page (-EINVAL), when there is no page (-ENOMEM), from another thread (-EPERM), or for a bad handle.
/// Cost: some forty instructions and no atomic operation.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_alloc_frag(pool: *mut PoolHandle, size: usize) -> *mut BufHandle {
    handle(to_errno(|| {
        enter(Token::of(pool), |owned| {
            let frag = owned.bound.alloc_frag(size).ok_or_else(|| no_frag(owned, size))?;
            owned.token_for(frag)
        })
    }))
}

/// A whole page if two of `*size` do not fit one, else a fragment; `*size` becomes the true size. Where no other fragment of that
/// size would fit behind it, the rest of the page belongs to it. Linux: page_pool_dev_alloc.
///
/// Thread: the owner's. Ownership: as above. Errors: NULL as for pagepool_alloc_frag, and for a NULL `size`; `*size` is then
/// unchanged. Cost: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_alloc(pool: *mut PoolHandle, size: *mut usize) -> *mut BufHandle {
    handle(to_errno(|| {
        enter(Token::of(pool), |owned| {
            if size.is_null() {
                return Err(CallError::null());
            }
            // SAFETY: not NULL, and the caller's to read.
            let wanted = unsafe { size.read() };
            let refused = || no_frag(owned, wanted);
            let buffer = owned.bound.alloc(wanted).ok_or_else(refused)?;
            let len = buffer.len();
            let token = owned.token_for(buffer)?;
            // SAFETY: not NULL, and the caller's to write.
            unsafe { size.write(len) };
            Ok(token)
        })
    }))
}

/// Why there is no fragment of that size.
#[cold]
fn no_frag(owned: &OwnerCall<'_>, size: usize) -> CallError {
    let page = owned.page_size();
    if (1..=page).contains(&size) {
        return EXHAUSTED;
    }
    out_of_range("size", size, &format!("1 to {page}, the bytes of a page of this pool"))
}

/// Up to `n` whole pages into `bufs`; says how many were had. Linux: a loop over page_pool_dev_alloc_pages.
///
/// Thread: the owner's. Ownership: the first so many are the caller's; the others of `bufs` are unchanged. Errors: 0, or
/// fewer than `n`, as for pagepool_alloc_page. Cost: as that, without the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_alloc_bulk(
    pool: *mut PoolHandle,
    bufs: *mut *mut BufHandle,
    n: usize,
) -> usize {
    let token = Token::of(pool);
    if bufs.is_null() && n > 0 {
        CallError::null().report();
        return 0;
    }
    let view = slots::view_of(token);
    for at in 0..n {
        let buf = view.alloc(token).map_or_else(|| alloc_page_slow(token), Token::handle);
        if buf.is_null() {
            return at;
        }
        // SAFETY: the caller gave room for `n`.
        let to = unsafe { bufs.add(at) };
        // SAFETY: as above.
        unsafe { to.write(buf) };
    }
    n
}
