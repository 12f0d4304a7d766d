//! Packets for network stacks: their caches, creation, cloning and release.

// UNSAFETY: exported functions; writes through callers' pointers.
#![expect(unsafe_code)]

mod data;
mod frags;
mod resize;

use std::ffi::c_int;

use ::pagepool::{PageBuf, XdpBuff};
use pagepool_skb::{SkBuff, SkbCache, SkbError};

use crate::api::pool::tag::tag_of;
use crate::args::out::store_handle;
use crate::error::{CallError, CallResult, status};
use crate::handles::claim::claim;
use crate::handles::opaque::{BufHandle, PoolHandle, SkbCacheHandle, SkbHandle};
use crate::handles::tables::{SKB_CACHES, SKBS};
use crate::handles::token::Token;
use crate::oom;

/// Creates a cache for the descriptions of packets, with room for `packets` packets: 1 to 16777216. A
/// description takes 1100 bytes; clones of a packet share one. Memory is committed at its first use. Linux:
/// skbuff_cache.
///
/// Thread: any.
/// Ownership: release `*cache` with pagepool_skb_cache_put.
/// Errors: -EINVAL for a number out of range. -ENOMEM.
/// Cost: allocates.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_skb_cache_create(packets: usize, cache: *mut *mut SkbCacheHandle) -> c_int {
    let make = || {
        oom::expect(oom::FEW)?;
        SKB_CACHES.insert(SkbCache::new(packets)?)
    };
    // SAFETY: `cache` is NULL or the caller's to write.
    unsafe { store_handle(cache, make) }
}

/// Releases the handle of a cache. Packets that are out stay valid; the last of them frees the cache.
///
/// Thread: any.
/// Ownership: the handle ends.
/// Errors: -EINVAL, -ESTALE for a bad handle.
/// Cost: a lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_cache_put(cache: *mut SkbCacheHandle) -> c_int {
    status(|| SKB_CACHES.remove(Token::of(cache)))
}

/// # Safety
/// `to` is NULL or writable.
unsafe fn store_packet(to: *mut *mut SkbHandle, make: impl FnOnce() -> CallResult<SkBuff>) -> c_int {
    // The row first: without a free row, the new packet and its buffer would be dropped.
    // SAFETY: the caller's contract is that of `store_handle`.
    unsafe { store_handle(to, || SKBS.insert_made(make)) }
}

/// Creates a packet of `len` bytes at `offset` in a buffer, without a copy. The buffer becomes the head of
/// the packet, and the bytes before `offset` its headroom. A buffer that the CPU cannot read becomes the
/// first fragment instead. Linux: build_skb.
///
/// Thread: the one that holds the buffer.
/// Ownership: the handle of the buffer ends, unless the call fails. Release `*skb` with pagepool_skb_put.
/// Errors: -EINVAL for bytes beyond the buffer or in its tailroom. -ENOBUFS if the cache is exhausted.
///     -EINVAL, -ESTALE for a bad handle.
/// Cost: two short locks and two compare-and-swaps.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_skb_from_buf(
    cache: *mut SkbCacheHandle,
    buf: *mut BufHandle,
    offset: usize,
    len: usize,
    skb: *mut *mut SkbHandle,
) -> c_int {
    let make = || {
        let cache = SKB_CACHES.get(Token::of(cache))?;
        claim(Token::of(buf))?.give(|buffer| over(&cache, buffer, offset, len))
    };
    // SAFETY: `skb` is NULL or the caller's to write.
    unsafe { store_packet(skb, make) }
}

fn over(
    cache: &SkbCache,
    buffer: PageBuf,
    offset: usize,
    len: usize,
) -> Result<SkBuff, (PageBuf, CallError)> {
    let packet = XdpBuff::new(buffer, offset, len).map_err(|buffer| {
        let within = format!("a buffer of {} bytes less its tailroom", buffer.len());
        let text = format!("{len} bytes at {offset} are not within {within}");
        (buffer, CallError::formatted(libc::EINVAL, text))
    })?;
    SkBuff::from_buff(cache, packet).map_err(|packet| (packet.into_buffer(), SkbError::Exhausted.into()))
}

/// Creates an empty packet whose head is ordinary memory: `headroom` bytes of headroom, and `len` bytes of
/// tailroom after it. Linux: alloc_skb, skb_reserve.
///
/// Thread: any.
/// Ownership: release `*skb` with pagepool_skb_put.
/// Errors: -ENOBUFS if the cache is exhausted. -ENOMEM. -EINVAL, -ESTALE for a bad handle.
/// Cost: as pagepool_skb_from_buf; allocates if `headroom` and `len` together exceed 512 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_skb_alloc(
    cache: *mut SkbCacheHandle,
    headroom: usize,
    len: usize,
    skb: *mut *mut SkbHandle,
) -> c_int {
    let make = || Ok(SkBuff::with_capacity(&SKB_CACHES.get(Token::of(cache))?, headroom, len)?);
    // SAFETY: `skb` is NULL or the caller's to write.
    unsafe { store_packet(skb, make) }
}

/// Creates a clone of a packet: it shares the bytes, and has its own start and length. The bytes must not be
/// written while there are clones. The buffers return to their pools with the last clone. Linux: skb_clone.
///
/// Thread: any, one at a time per packet.
/// Ownership: release `*clone` with pagepool_skb_put.
/// Errors: -EBUSY during another call on the packet. -ENOMEM if there is no memory for the table. -EINVAL,
///     -ESTALE for a bad handle.
/// Cost: two short locks and two atomic operations.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_skb_clone(skb: *mut SkbHandle, clone: *mut *mut SkbHandle) -> c_int {
    // SAFETY: `clone` is NULL or the caller's to write.
    unsafe { store_packet(clone, || SKBS.with(Token::of(skb), |packet| packet.clone())) }
}

/// Records who holds the pool memory of a packet now, of all its pools, as pagepool_buf_set_tag does for a
/// buffer. Clones share the tag, so the last call counts.
///
/// Thread: any, one at a time per packet.
/// Errors: -EINVAL for a tag that is not of `pool`. -EBUSY during another call on the packet. -EINVAL,
///     -ESTALE for a bad handle.
/// Cost: a lock and the packet's lock; off the owner's thread one lock more for each buffer of a pool with
///     `holders`.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_set_tag(pool: *mut PoolHandle, skb: *mut SkbHandle, tag: c_int) -> c_int {
    status(|| {
        let tag = tag_of(Token::of(pool), tag)?;
        SKBS.change(Token::of(skb), |packet| {
            packet.set_tag(tag);
            Ok(())
        })
    })
}

/// Releases a packet. The last of its clones returns every buffer as pagepool_buf_put does, and calls the
/// `free` callbacks of the caller's memory. Linux: kfree_skb.
///
/// Thread: any, one at a time per packet.
/// Ownership: the handle ends.
/// Errors: -ESTALE for a packet that was released before. -EBUSY during another call on it. -EINVAL for a
///     value that never was a packet.
/// Cost: a short lock and a compare-and-swap, and the return of each buffer.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_put(skb: *mut SkbHandle) -> c_int {
    status(|| SKBS.remove(Token::of(skb))) // dropped with no lock held
}
