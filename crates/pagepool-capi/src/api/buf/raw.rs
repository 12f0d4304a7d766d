//! Buffers as device addresses, for descriptor rings.

// UNSAFETY: functions with fixed names; callers' places are read and written.
#![expect(unsafe_code)]

use std::ffi::c_int;
use std::ptr::null_mut;

use ::pagepool::{DeviceAddr, PageBuf};

use crate::error::{CallError, CallResult, status, to_errno, value_or};
use crate::handles::claim::claim;
use crate::handles::opaque::{BufHandle, PoolHandle};
use crate::handles::owner::{OwnerCall, enter, frag_token, page_token};
use crate::handles::slots;
use crate::handles::token::Token;

/// A buffer as a device sees it: plain numbers.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RawC {
    /// Address of the first byte in the pool's first domain.
    pub addr: u64,
    /// Bytes from there that belong to the buffer.
    pub len: u32,
    /// 0.
    pub reserved: u32,
}

/// Turns a buffer into its device address, for a descriptor ring. pagepool_from_raw or pagepool_put_addr
/// turns the address back.
///
/// Thread: the one that has the buffer.
/// Ownership: the handle ends, unless the call fails; the address is the caller's.
/// Errors: -EOPNOTSUPP in a pool without domains, and for a fragment that shares a cache line with another
///     (`frag_align` below 64). -EINVAL, -ESTALE for a bad handle.
/// Cost: a lookup and one or two atomic operations.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_buf_into_raw(buf: *mut BufHandle, raw: *mut RawC) -> c_int {
    status(|| {
        if raw.is_null() {
            return Err(CallError::null());
        }
        let claimed = claim(Token::of(buf))?;
        let made = claimed.into_raw()?;
        // SAFETY: not NULL, and the caller's to write.
        unsafe { raw.write(RawC { addr: made.addr.0, len: made.len, reserved: 0 }) };
        Ok(())
    })
}

/// Allocates up to `n` whole pages as device addresses into `addrs`, for a fill ring. Gives their number. It
/// equals pagepool_alloc_bulk and pagepool_buf_into_raw without the handles between. Linux:
/// page_pool_alloc_pages for a fill ring.
///
/// Thread: owner.
/// Ownership: these addresses are the caller's, for pagepool_from_raw or pagepool_put_addr. The others in
///     `addrs` are unchanged.
/// Errors: fewer than `n`: no page (-ENOMEM), a pool without domains (-EOPNOTSUPP), another thread (-EPERM),
///     a bad handle. pagepool_last_error says which.
/// Cost: per page as pagepool_alloc_page without the call, and one atomic operation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_alloc_addr_bulk(pool: *mut PoolHandle, addrs: *mut u64, n: usize) -> usize {
    value_or(0, || {
        if addrs.is_null() && n > 0 {
            return Err(CallError::null());
        }
        enter(Token::of(pool), |owned| {
            for at in 0..n {
                let addr = match page_at_address(owned) {
                    Ok(addr) => addr,
                    Err(error) => {
                        error.report();
                        return Ok(at);
                    }
                };
                // SAFETY: the caller gave room for `n`.
                let to = unsafe { addrs.add(at) };
                // SAFETY: as above.
                unsafe { to.write(addr) };
            }
            Ok(n)
        })
    })
}

fn page_at_address(owned: &OwnerCall<'_>) -> CallResult<u64> {
    let page = owned.bound.alloc_page().ok_or(crate::api::pool::alloc::EXHAUSTED)?;
    page.into_raw().map(|raw| raw.addr.0).map_err(|_| crate::handles::claim::NO_RAW)
}

/// Turns an address that came back from a descriptor ring into a buffer again. The address may lie anywhere
/// in the buffer. A fragment comes back with its size rounded up to whole cache lines.
///
/// Thread: any.
/// Ownership: the buffer is the caller's.
/// Errors: NULL for an address that is not the pool's (-EINVAL), or that is not out in raw form (-ESTALE: it
///     came back before). Nothing changes then.
/// Cost: a lookup and one atomic operation; on other threads than the owner's also a lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_from_raw(pool: *mut PoolHandle, addr: u64) -> *mut BufHandle {
    to_errno(|| from_raw(Token::of(pool), addr)).map_or(null_mut(), Token::handle)
}

fn from_raw(pool: Token, addr: u64) -> CallResult<Token> {
    let view = slots::view(pool)?;
    if view.is_mine() {
        return enter(pool, |owned| owned.token_for(owned.at_address(addr)?));
    }
    slots::with_life(pool, |life| {
        if life.frags == 0 {
            // Room for a fragment first: a buffer that is refused a token would have to go home under the
            // lock.
            let list = view.frags_home.0.swap(0, std::sync::atomic::Ordering::Acquire);
            life.frags = if list == 0 { life.take_frags(view)? } else { list };
        }
        let buffer = life.handle.from_raw(DeviceAddr(addr))?;
        if buffer.is_frag() {
            let (token, rest) = frag_token(life.frags, buffer)?;
            life.frags = rest;
            return Ok(token);
        }
        Ok(page_token(view, buffer))
    })
}

/// Returns a buffer by its device address. Linux: page_pool_free_va, which takes the address of the CPU.
///
/// Thread: any; on the owner's the page goes into the cache.
/// Ownership: the address ends.
/// Errors: -EINVAL for an address that is not the pool's, -ESTALE for one that is not out in raw form (it
///     came back before). Nothing changes then.
/// Cost: a lookup and two atomic operations; on other threads than the owner's also a lock, which keeps the
///     pool.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_put_addr(pool: *mut PoolHandle, addr: u64) -> c_int {
    status(|| {
        drop(taken(Token::of(pool), addr)?); // with no lock held
        Ok(())
    })
}

/// Returns `n` buffers by their device addresses.
///
/// Thread: any.
/// Ownership: every address ends.
/// Errors: that of the first address that failed; all others are returned nevertheless. -EINVAL for a NULL
///     array.
/// Cost: per address as pagepool_put_addr.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_put_addr_bulk(pool: *mut PoolHandle, addrs: *const u64, n: usize) -> c_int {
    status(|| {
        if n == 0 {
            return Ok(());
        }
        if addrs.is_null() || n > isize::MAX as usize / 8 {
            return Err(CallError::null());
        }
        // SAFETY: the caller gave `n` addresses.
        let addrs = unsafe { std::slice::from_raw_parts(addrs, n) };
        let pool = Token::of(pool);
        if slots::view(pool)?.is_mine() {
            return enter(pool, |owned| put_each(addrs, |addr| owned.at_address(addr)));
        }
        put_each(addrs, |addr| taken(pool, addr))
    })
}

/// Returns the buffer of each address, whatever became of those before; the first error is kept for the
/// end.
fn put_each(addrs: &[u64], take: impl Fn(u64) -> CallResult<PageBuf>) -> CallResult<()> {
    let mut failed = Ok(());
    for &addr in addrs {
        if let Err(error) = take(addr).map(drop) {
            failed = failed.and(Err(error));
        }
    }
    failed
}

fn taken(pool: Token, addr: u64) -> CallResult<PageBuf> {
    if slots::view(pool)?.is_mine() {
        return enter(pool, |owned| owned.at_address(addr));
    }
    slots::with_life(pool, |life| Ok(life.handle.from_raw(DeviceAddr(addr))?))
}
