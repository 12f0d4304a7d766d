//! Allocation: whole pages and fragments.

// UNSAFETY: exported functions; reads and writes through callers' pointers.
#![expect(unsafe_code)]

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::Ordering::Relaxed;

use crate::args::out::array_mut;
use crate::args::range::out_of_range;
use crate::caller::{Caller, from_caller};
use crate::error::{CallError, CallResult, value_or};
use crate::handles::opaque::{BufHandle, PoolHandle};
use crate::handles::owner::{OwnerCall, enter};
use crate::handles::slots;
use crate::handles::token::Token;
use crate::handles::view::RUN;

pub(crate) const EXHAUSTED: CallError = CallError::fixed(
    libc::ENOMEM,
    c"no page is left: the arena is exhausted (counted in alloc_failed); return buffers or raise max_bytes",
);

/// Allocates a whole page. The library does not clear it. Linux: page_pool_dev_alloc_pages.
///
/// Thread: owner.
/// Ownership: the buffer is the caller's until it is returned.
/// Errors: NULL if no page is left (-ENOMEM, counted in `alloc_failed`), on another thread (-EPERM), or for a
///     bad handle (-EINVAL, -ESTALE).
/// Cost: from the cache no atomic operation; otherwise a refill of up to 64 pages.
#[unsafe(no_mangle)]
#[cfg_attr(any(target_arch = "x86_64", target_arch = "aarch64"), unsafe(naked))]
pub extern "C" fn pagepool_alloc_page(pool: *mut PoolHandle) -> *mut BufHandle {
    from_caller!(alloc_page(pool))
}

extern "C" fn alloc_page(pool: *mut PoolHandle, caller: Caller) -> *mut BufHandle {
    let pool = Token::of(pool);
    match slots::view_of(pool).alloc(pool) {
        Some(token) => token.handle(),
        None => alloc_page_slow(pool, caller),
    }
}

#[cold]
#[inline(never)]
extern "C" fn alloc_page_slow(pool: Token, caller: Caller) -> *mut BufHandle {
    alloc_by(pool, |owned| {
        let page = owned.alloc_for(caller, |bound| bound.alloc_page()).ok_or(EXHAUSTED)?;
        owned.token_for(page)
    })
}

/// Runs an allocation of the owner; NULL if it fails.
fn alloc_by(pool: Token, alloc: impl FnOnce(&OwnerCall<'_>) -> CallResult<Token>) -> *mut BufHandle {
    value_or(null_mut(), || Ok(enter(pool, alloc)?.handle()))
}

/// Allocates a fragment of `size` bytes: a part of a page that other fragments share. It begins at a multiple
/// of `frag_align` bytes. Linux: page_pool_dev_alloc_frag.
///
/// Thread: owner.
/// Ownership: the fragment is the caller's until it is returned; its page is free when its last fragment is
///     returned.
/// Errors: NULL for a size of 0 or above the page size (-EINVAL), if no page is left or no memory for the
///     table (-ENOMEM), if all pools together have 268,435,456 pages and fragments, the limit (-ENOSPC), on
///     another thread (-EPERM), or for a bad handle (-EINVAL, -ESTALE).
/// Cost: no atomic operation; if fragments are returned on other threads, a lock per 64 of them.
#[unsafe(no_mangle)]
#[cfg_attr(any(target_arch = "x86_64", target_arch = "aarch64"), unsafe(naked))]
pub extern "C" fn pagepool_alloc_frag(pool: *mut PoolHandle, size: usize) -> *mut BufHandle {
    from_caller!(alloc_frag(pool, size))
}

extern "C" fn alloc_frag(pool: *mut PoolHandle, size: usize, caller: Caller) -> *mut BufHandle {
    alloc_by(Token::of(pool), |owned| {
        let frag = owned.alloc_for(caller, |bound| bound.alloc_frag(size));
        let frag = frag.ok_or_else(|| no_frag(owned, size))?;
        owned.token_for(frag)
    })
}

/// Allocates a fragment of at least `*size` bytes, or a whole page if two such fragments do not fit into one
/// page. Stores the size of the buffer in `*size`: if no second fragment fits after it, it gets the rest of
/// its page. Linux: page_pool_dev_alloc.
///
/// Thread: owner.
/// Ownership: the buffer is the caller's until it is returned.
/// Errors: NULL as for pagepool_alloc_frag, and if `size` is NULL. `*size` is then unchanged.
/// Cost: as pagepool_alloc_page or pagepool_alloc_frag.
#[unsafe(no_mangle)]
#[cfg_attr(any(target_arch = "x86_64", target_arch = "aarch64"), unsafe(naked))]
pub unsafe extern "C" fn pagepool_alloc(pool: *mut PoolHandle, size: *mut usize) -> *mut BufHandle {
    from_caller!(alloc(pool, size))
}

/// # Safety
/// `size` is NULL, or readable and writable.
unsafe extern "C" fn alloc(pool: *mut PoolHandle, size: *mut usize, caller: Caller) -> *mut BufHandle {
    alloc_by(Token::of(pool), |owned| {
        if size.is_null() {
            return Err(CallError::NULL);
        }
        // SAFETY: not NULL, and the caller's to read.
        let wanted = unsafe { size.read() };
        let buffer = owned.alloc_for(caller, |bound| bound.alloc(wanted));
        let buffer = buffer.ok_or_else(|| no_frag(owned, wanted))?;
        let len = buffer.len();
        let token = owned.token_for(buffer)?;
        // SAFETY: not NULL, and the caller's to write.
        unsafe { size.write(len) };
        Ok(token)
    })
}

/// The error for a fragment of that size that was not allocated.
#[cold]
fn no_frag(owned: &OwnerCall<'_>, size: usize) -> CallError {
    let page = owned.view.page_size.load(Relaxed);
    if (1..=page).contains(&(size as u64)) {
        return EXHAUSTED;
    }
    out_of_range("size", size, &format!("1 to {page}, the bytes of a page of this pool"))
}

/// Allocates up to `n` whole pages into `bufs`. Returns how many it allocated. Linux:
/// page_pool_dev_alloc_pages in a loop.
///
/// Thread: owner.
/// Ownership: these buffers are the caller's. The other elements of `bufs` are unchanged.
/// Errors: fewer than `n`, for one of the reasons of pagepool_alloc_page; pagepool_last_error says which.
/// Cost: one check of pool and owner for up to 64 pages; from the cache no atomic operation. A refill as for
///     pagepool_alloc_page.
#[unsafe(no_mangle)]
#[cfg_attr(any(target_arch = "x86_64", target_arch = "aarch64"), unsafe(naked))]
pub unsafe extern "C" fn pagepool_alloc_bulk(
    pool: *mut PoolHandle,
    bufs: *mut *mut BufHandle,
    n: usize,
) -> usize {
    from_caller!(alloc_bulk(pool, bufs, n))
}

/// # Safety
/// `bufs` is NULL or writable for `n` elements.
unsafe extern "C" fn alloc_bulk(
    pool: *mut PoolHandle,
    bufs: *mut *mut BufHandle,
    n: usize,
    caller: Caller,
) -> usize {
    // SAFETY: the caller gave room for `n`, or NULL; a handle is a token.
    let places = value_or(&mut [][..], || unsafe { array_mut(bufs.cast::<Token>(), n) });
    alloc_many(Token::of(pool), places, caller)
}

/// Allocates up to `n` whole pages into `bufs`, and stores the address of the first byte of each in `data`.
/// Returns how many it allocated. Linux: page_pool_dev_alloc_pages and page_address in a loop.
///
/// Thread: owner.
/// Ownership: as for pagepool_alloc_bulk. The bytes at `data[i]` are the caller's until `bufs[i]` is
///     returned. The arrays must not overlap.
/// Errors: as for pagepool_alloc_bulk; also 0 for memory that the CPU cannot read (-EOPNOTSUPP).
/// Cost: as pagepool_alloc_bulk, and the address of each page.
#[unsafe(no_mangle)]
#[cfg_attr(any(target_arch = "x86_64", target_arch = "aarch64"), unsafe(naked))]
pub unsafe extern "C" fn pagepool_alloc_bulk_data(
    pool: *mut PoolHandle,
    bufs: *mut *mut BufHandle,
    data: *mut *mut c_void,
    n: usize,
) -> usize {
    from_caller!(alloc_bulk_data(pool, bufs, data, n))
}

/// # Safety
/// `bufs` and `data` are NULL or writable for `n` elements.
unsafe extern "C" fn alloc_bulk_data(
    pool: *mut PoolHandle,
    bufs: *mut *mut BufHandle,
    data: *mut *mut c_void,
    n: usize,
    caller: Caller,
) -> usize {
    let pool = Token::of(pool);
    let view = slots::view_of(pool);
    let places = || {
        if view.is_mine() && view.token.load(Relaxed) == pool.0 && view.memory.load(Relaxed) == 0 {
            return Err(CallError::UNREADABLE);
        }
        // SAFETY: the caller gave room for `n`, or NULL; a handle is a token.
        let bufs = unsafe { array_mut(bufs.cast::<Token>(), n) }?;
        // SAFETY: the caller gave room for `n`, or NULL.
        Ok((bufs, unsafe { array_mut(data, n) }?))
    };
    let (bufs, data) = value_or((&mut [][..], &mut [][..]), places);
    let done = alloc_many(pool, bufs, caller);
    // SAFETY: the first `done` of them were written.
    let tokens = unsafe { std::slice::from_raw_parts(bufs.as_ptr().cast::<Token>(), done) };
    view.data_of(tokens, data);
    done
}

/// Writes tokens of new pages until `rest` is full or no page is left; returns how many.
#[inline(always)]
fn alloc_many(token: Token, mut rest: &mut [MaybeUninit<Token>], caller: Caller) -> usize {
    let (view, n) = (slots::view_of(token), rest.len());
    loop {
        let done = view.alloc_run(token, rest);
        rest = &mut rest[done..];
        if done == RUN {
            continue;
        }
        let Some((place, behind)) = rest.split_first_mut() else { return n };
        let buf = alloc_page_slow(token, caller);
        if buf.is_null() {
            return n - behind.len() - 1;
        }
        place.write(Token::of(buf));
        rest = behind;
    }
}
