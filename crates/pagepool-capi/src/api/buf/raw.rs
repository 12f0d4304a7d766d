//! Buffers as device addresses, for descriptor rings.

// UNSAFETY: exported functions; reads and writes through callers' pointers.
#![expect(unsafe_code)]

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr::null_mut;

use ::pagepool::{DeviceAddr, PageBuf};

use crate::api::pool::alloc::EXHAUSTED;
use crate::args::out::{array, array_mut, store};
use crate::caller::{Caller, from_caller};
use crate::error::{CallError, CallResult, status, value_or};
use crate::handles::claim::claim;
use crate::handles::opaque::{BufHandle, PoolHandle};
use crate::handles::owner::{OwnerCall, begin_frag, enter, mine, page_token, quickly};
use crate::handles::slots;
use crate::handles::slots::turn;
use crate::handles::token::Token;

/// A buffer as a device address and a length, 16 bytes. Programs keep arrays of it beside a descriptor ring,
/// so unlike other results it has no `size` field and never grows.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RawC {
    /// Device address of the buffer's first byte, in the pool's first domain.
    pub addr: u64,
    /// Size of the buffer in bytes.
    pub len: u32,
    /// Always 0.
    pub reserved: u32,
}

const NO_RAW: CallError = CallError::fixed(
    libc::EOPNOTSUPP,
    c"the buffer has no raw form: its pool has no domain, or it is a fragment that shares a cache line",
);

/// Turns a buffer into its device address, for a descriptor ring. pagepool_from_raw turns the address into a
/// buffer again; pagepool_put_addr returns it to the pool.
///
/// Thread: the one that holds the buffer.
/// Ownership: the handle ends, unless the call fails. The address is the caller's.
/// Errors: -EOPNOTSUPP in a pool without domains, and for a fragment that shares a cache line with another
///     (`frag_align` below 64). -EINVAL, -ESTALE for a bad handle.
/// Cost: a lookup and one or two atomic operations.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_buf_into_raw(buf: *mut BufHandle, raw: *mut RawC) -> c_int {
    let make = || {
        let raw = |buffer: PageBuf| buffer.into_raw().map_err(|buffer| (buffer, NO_RAW));
        let made = claim(Token::of(buf))?.give(raw)?;
        Ok(RawC { addr: made.addr.0, len: made.len, reserved: 0 })
    };
    // SAFETY: `raw` is NULL or the caller's to write.
    unsafe { store(raw, make) }
}

/// Allocates up to `n` whole pages as device addresses into `addrs`, for a fill ring. Returns how many it
/// allocated. It works like pagepool_alloc_bulk followed by pagepool_buf_into_raw, without the handles.
/// Linux: page_pool_alloc_pages for a fill ring.
///
/// Thread: owner; any in a pool made with `no_owner`.
/// Ownership: these addresses are the caller's, for pagepool_from_raw or pagepool_put_addr. The other
///     elements of `addrs` are unchanged.
/// Errors: fewer than `n`: no page (-ENOMEM), a pool without domains or whose device was removed
///     (-EOPNOTSUPP), another thread (-EPERM), a bad handle. pagepool_last_error says which.
/// Cost: a lookup; from the cache no atomic operation.
#[unsafe(no_mangle)]
#[cfg_attr(any(target_arch = "x86_64", target_arch = "aarch64"), unsafe(naked))]
pub unsafe extern "C" fn pagepool_alloc_addr_bulk(pool: *mut PoolHandle, addrs: *mut u64, n: usize) -> usize {
    from_caller!(alloc_addr_bulk(pool, addrs, n))
}

/// # Safety
/// `addrs` is NULL or writable for `n` elements.
unsafe extern "C" fn alloc_addr_bulk(
    pool: *mut PoolHandle,
    addrs: *mut u64,
    n: usize,
    caller: Caller,
) -> usize {
    match n {
        // SAFETY: the caller gave room for one, or NULL.
        1 => unsafe { alloc_addr(Token::of(pool), addrs, caller) },
        // SAFETY: the caller gave room for `n`, or NULL.
        _ => unsafe { alloc_many_addrs(Token::of(pool), addrs, n, caller) },
    }
}

/// # Safety
/// `addr` is NULL or writable.
#[inline(always)]
unsafe fn alloc_addr(pool: Token, addr: *mut u64, caller: Caller) -> usize {
    let found = if addr.is_null() { None } else { mine(pool, |cached| cached.alloc_one()) };
    match found {
        Some(Some(one)) => {
            // SAFETY: `addr` is not NULL, so the caller's contract makes it writable.
            unsafe { addr.write(one.0) };
            1
        }
        // SAFETY: the caller's contract.
        Some(None) => unsafe { alloc_many_addrs(pool, addr, 1, caller) },
        // SAFETY: the caller's contract.
        None => unsafe { alloc_addr_otherwise(pool, addr, caller) },
    }
}

/// For a pool without an owner. Not inlined: the owner's path then saves no register.
///
/// # Safety
/// `addr` is NULL or writable.
#[inline(never)]
unsafe fn alloc_addr_otherwise(pool: Token, addr: *mut u64, caller: Caller) -> usize {
    if !addr.is_null()
        && let Some(Some(one)) = quickly(pool, |cached| cached.alloc_one())
    {
        // SAFETY: `addr` is not NULL, so the caller's contract makes it writable.
        unsafe { addr.write(one.0) };
        return 1;
    }
    // SAFETY: the caller's contract.
    unsafe { alloc_many_addrs(pool, addr, 1, caller) }
}

/// # Safety
/// `addrs` is NULL or writable for `n` elements.
#[inline(never)]
unsafe fn alloc_many_addrs(pool: Token, addrs: *mut u64, n: usize, caller: Caller) -> usize {
    // SAFETY: the caller's contract.
    let Ok(room) = (unsafe { array_mut(addrs.cast(), n) }) else {
        return value_or(0, || Err(CallError::NULL));
    };
    let done = quickly(pool, |cached| cached.alloc(room)).unwrap_or(0);
    if done == n {
        return n;
    }
    // SAFETY: the rest of the caller's array.
    done + unsafe { alloc_addrs_slow(pool, addrs.wrapping_add(done), n - done, caller) }
}

/// # Safety
/// `addrs` is NULL or writable for `n` elements.
#[cold]
#[inline(never)]
unsafe fn alloc_addrs_slow(pool: Token, addrs: *mut u64, n: usize, caller: Caller) -> usize {
    value_or(0, || {
        // SAFETY: the caller's contract.
        let addrs = unsafe { array_mut(addrs.cast(), n) }?;
        let _turn = turn::begin(pool); // needed in a pool without an owner
        enter(pool, |owned| Ok(alloc_addrs(owned, addrs, caller)))
    })
}

/// Returns how many it allocated, and reports why not all.
fn alloc_addrs(owned: &OwnerCall<'_>, addrs: &mut [MaybeUninit<DeviceAddr>], caller: Caller) -> usize {
    let (done, missing) = match owned.alloc_for(caller, |bound| bound.alloc_addr_bulk_uninit(addrs)) {
        Ok(done) if done == addrs.len() => return done,
        Ok(done) => (done, EXHAUSTED),
        Err(_) => (0, NO_RAW),
    };
    missing.report();
    done
}

/// Turns a device address from a descriptor ring back into a buffer. The address may lie anywhere in the
/// buffer. The size of a fragment is rounded up to whole cache lines.
///
/// Thread: any.
/// Ownership: the buffer is the caller's.
/// Errors: NULL for an address that is not the pool's (-EINVAL), for an address that is not out because it
///     was returned before (-ESTALE), or for a bad handle (-EINVAL, -ESTALE). Nothing changes then. NULL also
///     if there is no memory for the table (-ENOMEM), or if all pools together have 268,435,456 pages and
///     fragments, the limit (-ENOSPC); on the owner's thread the buffer has then returned to its pool.
/// Cost: as pagepool_put_addr.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_from_raw(pool: *mut PoolHandle, addr: u64) -> *mut BufHandle {
    value_or(null_mut(), || Ok(from_raw(Token::of(pool), addr)?.handle()))
}

fn from_raw(pool: Token, addr: u64) -> CallResult<Token> {
    let view = slots::view(pool)?;
    if view.is_mine() {
        return enter(pool, |owned| owned.token_for(owned.at_address(addr)?));
    }
    slots::with_life(pool, |life| {
        // Reserves room for a fragment first: a buffer without a token would be returned under the lock.
        life.shared_frags(view)?;
        let buffer = life.handle.from_raw(DeviceAddr(addr))?;
        if buffer.is_frag() {
            return Ok(begin_frag(life.take_frag(view)?, buffer));
        }
        Ok(page_token(view, buffer))
    })
}

/// Returns a buffer to its pool by its device address. Linux: page_pool_free_va, which takes the CPU address.
///
/// Thread: any.
/// Ownership: the address ends.
/// Errors: -EINVAL for an address that is not the pool's. -ESTALE for an address that is not out because it
///     was returned before. Nothing changes then. -EINVAL, -ESTALE for a bad handle.
/// Cost: a lookup. A whole page on the owner's thread costs no atomic operation, unless another thread
///     returned an address of the pool shortly before: then a lock. On any other thread it costs the lock of
///     the handle and the lock of the addresses and, seldom, a wait of about a microsecond for the owner.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_put_addr(pool: *mut PoolHandle, addr: u64) -> c_int {
    put_addr(Token::of(pool), DeviceAddr(addr))
}

#[inline(always)]
fn put_addr(pool: Token, addr: DeviceAddr) -> c_int {
    match mine(pool, |cached| cached.put_one(addr)) {
        Some(true) => 0,
        _ => put_addr_otherwise(pool, addr),
    }
}

/// Returns an address in a pool without an owner. Not inlined: the owner's path then saves no register.
#[inline(never)]
fn put_addr_otherwise(pool: Token, addr: DeviceAddr) -> c_int {
    match quickly(pool, |cached| cached.put_one_by_region(addr)) {
        Some(true) => 0,
        _ => put_addr_slow(pool, addr),
    }
}

#[cold]
#[inline(never)]
fn put_addr_slow(pool: Token, addr: DeviceAddr) -> c_int {
    status(|| put_addrs(pool, &[addr]))
}

/// Returns `n` buffers to their pool by their device addresses.
///
/// Thread: any.
/// Ownership: every address ends.
/// Errors: the error of the first address that failed; all others are still returned. -EINVAL for a NULL
///     array.
/// Cost: a lookup each. On any thread except the owner's: the lock of the handle once per call, and the lock
///     of the addresses, with its wait, once per 64 addresses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_put_addr_bulk(pool: *mut PoolHandle, addrs: *const u64, n: usize) -> c_int {
    if n == 1 && !addrs.is_null() {
        // SAFETY: it is not NULL, so the caller gave one address.
        return put_addr(Token::of(pool), unsafe { addrs.cast::<DeviceAddr>().read() });
    }
    // SAFETY: the caller gave `n` addresses, or NULL.
    unsafe { put_many_addrs(Token::of(pool), addrs, n) }
}

/// # Safety
/// `addrs` is NULL or readable for `n` elements.
#[inline(never)]
unsafe fn put_many_addrs(pool: Token, addrs: *const u64, n: usize) -> c_int {
    // SAFETY: the caller's contract.
    let Ok(addrs) = (unsafe { array(addrs.cast::<DeviceAddr>(), n) }) else {
        return status(|| Err::<(), _>(CallError::NULL));
    };
    let done = quickly(pool, |cached| cached.put(addrs)).unwrap_or(0);
    let rest = addrs.get(done..).unwrap_or_default();
    if rest.is_empty() { 0 } else { put_addrs_slow(pool, rest) }
}

#[cold]
#[inline(never)]
fn put_addrs_slow(pool: Token, addrs: &[DeviceAddr]) -> c_int {
    status(|| put_addrs(pool, addrs))
}

fn put_addrs(pool: Token, addrs: &[DeviceAddr]) -> CallResult<()> {
    let _turn = turn::begin(pool); // needed in a pool without an owner
    if slots::view(pool)?.is_mine() {
        return enter(pool, |owned| owned.put_addrs(addrs));
    }
    // The clone keeps the pool alive: buffers are returned with no lock held.
    let handle = slots::with_life(pool, |life| Ok(life.handle.clone()))?;
    Ok(handle.put_addr_bulk(addrs)?)
}
