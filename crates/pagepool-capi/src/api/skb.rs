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

/// Makes room for the descriptions of so many packets, 1 to 16777216; clones of a packet share one. 1100 bytes each, and as
/// much memory is committed as is used. Linux: skbuff_cache.
///
/// Thread: any. Ownership: `*cache` is the caller's, to be destroyed once. Errors: -EINVAL, -ENOMEM. Cost: allocates.
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

/// Lets go of a cache. Packets that are out stay valid; the last of them frees it.
///
/// Thread: any. Ownership: the handle is over. Errors: -EINVAL, -ESTALE. Cost: a lock.
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

/// The packet of `len` bytes at `offset` in a buffer, without a copy: the buffer is its head, what lies before the bytes is
/// headroom. A buffer that the CPU cannot read becomes its first fragment. Linux: build_skb.
///
/// Thread: whoever has the buffer. Ownership: the buffer's handle is over, unless it is refused; `*skb` is the caller's, to be
/// freed once. Errors: -EINVAL for bytes that the buffer has not, or that lie in its tailroom; -ENOBUFS when the cache is
/// exhausted; -EINVAL, -ESTALE for a bad handle. Cost: three locks that are held for moments, and one compare-and-swap.
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
        let refusal = beyond(offset, len, buffer.len());
        (buffer, refusal)
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

/// An empty packet: room for `len` bytes in its head, and `headroom` before them, in ordinary memory. Linux: alloc_skb and
/// skb_reserve.
///
/// Thread: any. Ownership: `*skb` is the caller's, to be freed once. Errors: -ENOBUFS when the cache is exhausted; -ENOMEM;
/// -EINVAL, -ESTALE. Cost: as pagepool_skb_from_buf; allocates where headroom and `len` are more than 512 bytes.
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

/// Another packet with the same data; its ends are its own. What they share goes home with the last of them. While there are
/// clones nobody writes the bytes. Linux: skb_clone.
///
/// Thread: whoever has the packet. Ownership: `*clone` is the caller's, to be freed once. Errors: -EINVAL, -ESTALE, -EBUSY, -ENOMEM.
/// Cost: two locks that are held for moments, and one atomic operation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_skb_clone(skb: *mut SkbHandle, clone: *mut *mut SkbHandle) -> c_int {
    let make = || with(Token::of(skb), |packet| Ok(packet.clone()));
    // SAFETY: the caller's place.
    status(|| unsafe { give(clone, make) })
}

/// Ends a packet. If it is the last of its clones, every buffer goes home as by pagepool_buf_put, and callbacks of lent
/// memory are called. Linux: kfree_skb.
///
/// Thread: any. Ownership: the handle is over. Errors: -ESTALE for one that was freed before; -EBUSY while another call has it;
/// -EINVAL. Cost: two locks that are held for moments, and what each buffer costs.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_put(skb: *mut SkbHandle) -> c_int {
    status(|| {
        drop(skb_rows::remove(Token::of(skb))?); // with no lock held
        Ok(())
    })
}
