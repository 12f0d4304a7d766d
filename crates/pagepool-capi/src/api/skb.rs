//! Packets for stacks: their caches, making, cloning and ending them.

// UNSAFETY: functions with fixed names; callers' places are written.
#![expect(unsafe_code)]

mod data;
mod frags;
mod resize;

use std::ffi::c_int;

use ::pagepool::{PageBuf, SkBuff, SkbCache, XdpBuff};

use crate::error::{CallError, CallResult, status};
use crate::handles::claim::claim;
use crate::handles::opaque::{BufHandle, SkbCacheHandle, SkbHandle};
use crate::handles::skb_rows::{self, VacantRow, with};
use crate::handles::tables::{self, SKB_CACHES};
use crate::handles::token::Token;
use crate::oom;

/// Makes a cache for the descriptions of `packets` packets, 1 to 16777216, of 1100 bytes each. Clones of a
/// packet share one. Memory is committed when it is first used. Linux: skbuff_cache.
///
/// Thread: any.
/// Ownership: `*cache` is the caller's, to be put once.
/// Errors: -EINVAL for a number out of range. -ENOMEM.
/// Cost: allocates.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_skb_cache_create(packets: usize, cache: *mut *mut SkbCacheHandle) -> c_int {
    status(|| {
        if cache.is_null() {
            return Err(CallError::null());
        }
        oom::expect(oom::FEW)?;
        let token = SKB_CACHES.insert(SkbCache::new(packets)?)?;
        // SAFETY: not NULL, and the caller's to write.
        unsafe { cache.write(token.handle()) };
        Ok(())
    })
}

/// Puts a cache. Packets that are out stay valid; the last of them frees it.
///
/// Thread: any.
/// Ownership: the handle ends.
/// Errors: -EINVAL, -ESTALE for a bad handle.
/// Cost: a lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_cache_put(cache: *mut SkbCacheHandle) -> c_int {
    status(|| {
        drop(SKB_CACHES.remove(Token::of(cache))?);
        Ok(())
    })
}

/// # Safety
/// `to` is NULL or writable.
unsafe fn give(to: *mut *mut SkbHandle, make: impl FnOnce() -> CallResult<SkBuff>) -> CallResult<()> {
    if to.is_null() {
        return Err(CallError::null());
    }
    let row = VacantRow::take()?;
    let token = row.fill(make()?)?;
    // SAFETY: not NULL, and writable as the caller says.
    unsafe { to.write(token.handle()) };
    Ok(())
}

/// Makes a packet of `len` bytes at `offset` in a buffer, without a copy. The buffer is the head of the
/// packet; the bytes before `offset` are headroom. A buffer that the CPU cannot read is its first fragment
/// instead. Linux: build_skb.
///
/// Thread: the one that has the buffer.
/// Ownership: the handle of the buffer ends, unless the call fails. `*skb` is the caller's, to be put once.
/// Errors: -EINVAL for bytes beyond the buffer or in its tailroom. -ENOBUFS when the cache is exhausted.
///     -EINVAL, -ESTALE for a bad handle.
/// Cost: three short locks and one compare-and-swap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_skb_from_buf(
    cache: *mut SkbCacheHandle,
    buf: *mut BufHandle,
    offset: usize,
    len: usize,
    skb: *mut *mut SkbHandle,
) -> c_int {
    let make = || {
        let cache = tables::skb_cache(Token::of(cache))?;
        claim(Token::of(buf))?.give(|buffer| over(&cache, buffer, offset, len))
    };
    // SAFETY: the caller's place.
    status(|| unsafe { give(skb, make) })
}

fn over(
    cache: &SkbCache,
    buffer: PageBuf,
    offset: usize,
    len: usize,
) -> Result<SkBuff, (PageBuf, CallError)> {
    let packet = XdpBuff::new(buffer, offset, len).map_err(|buffer| {
        let error = beyond(offset, len, buffer.len());
        (buffer, error)
    })?;
    let exhausted = || CallError::from(::pagepool::SkbError::Exhausted);
    SkBuff::from_buff(cache, packet).map_err(|packet| (packet.into_buffer(), exhausted()))
}

#[cold]
fn beyond(offset: usize, len: usize, size: usize) -> CallError {
    let text =
        format!("{len} bytes at {offset} are not within a buffer of {size} bytes and before its tailroom");
    CallError::formatted(libc::EINVAL, text)
}

/// Makes an empty packet in ordinary memory, with `headroom` bytes and then room for `len` bytes in its head.
/// Linux: alloc_skb, skb_reserve.
///
/// Thread: any.
/// Ownership: `*skb` is the caller's, to be put once.
/// Errors: -ENOBUFS when the cache is exhausted. -ENOMEM. -EINVAL, -ESTALE for a bad handle.
/// Cost: as pagepool_skb_from_buf; allocates if `headroom` and `len` exceed 512 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_skb_alloc(
    cache: *mut SkbCacheHandle,
    headroom: usize,
    len: usize,
    skb: *mut *mut SkbHandle,
) -> c_int {
    let make = || Ok(SkBuff::with_capacity(&tables::skb_cache(Token::of(cache))?, headroom, len)?);
    // SAFETY: the caller's place.
    status(|| unsafe { give(skb, make) })
}

/// Makes another packet with the same data; each has its own ends. The data returns with the last of them.
/// Nobody may write the bytes while there are clones. Linux: skb_clone.
///
/// Thread: any, one at a time per packet.
/// Ownership: `*clone` is the caller's, to be put once.
/// Errors: -EBUSY during another call about the packet. -ENOMEM without memory for the table. -EINVAL,
///     -ESTALE for a bad handle.
/// Cost: two short locks and one atomic operation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_skb_clone(skb: *mut SkbHandle, clone: *mut *mut SkbHandle) -> c_int {
    let make = || with(Token::of(skb), |packet| Ok(packet.clone()));
    // SAFETY: the caller's place.
    status(|| unsafe { give(clone, make) })
}

/// Puts a packet. The last of its clones returns every buffer as pagepool_buf_put does, and calls the
/// callbacks of lent memory. Linux: kfree_skb.
///
/// Thread: any, one at a time per packet.
/// Ownership: the handle ends.
/// Errors: -ESTALE for a packet that was put before. -EBUSY during another call about it. -EINVAL for a value
///     that never was one.
/// Cost: two short locks, and the return of each buffer.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_put(skb: *mut SkbHandle) -> c_int {
    status(|| {
        drop(skb_rows::remove(Token::of(skb))?); // with no lock held
        Ok(())
    })
}
