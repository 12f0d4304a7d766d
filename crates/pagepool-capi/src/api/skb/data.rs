//! The bytes of a packet: their lengths, addresses and copies.

// UNSAFETY: exported functions; writes through callers' pointers.
#![expect(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use libc::iovec;
use pagepool_skb::{SkBuff, SkbError};

use crate::args::out::array_mut;
use crate::error::{CallError, number, status, value_or};
use crate::handles::opaque::{DomainHandle, SkbHandle};
use crate::handles::tables::{DOMAINS, SKBS};
use crate::handles::token::Token;

fn query(skb: *mut SkbHandle, what: impl FnOnce(&mut SkBuff) -> usize) -> usize {
    value_or(0, || SKBS.change(Token::of(skb), |packet| Ok(what(packet))))
}

/// Returns the length of the packet in bytes. 0 for a bad handle. Linux: skb->len.
///
/// Thread: any, one at a time per packet.
/// Cost: the packet's lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_len(skb: *mut SkbHandle) -> usize {
    query(skb, |packet| packet.len())
}

/// Returns how many bytes of the packet lie in its head. 0 for a bad handle. Linux: skb_headlen.
///
/// Thread: any, one at a time per packet.
/// Cost: the packet's lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_head_len(skb: *mut SkbHandle) -> usize {
    query(skb, |packet| packet.head_len())
}

/// Returns the number of free bytes before the data of the head. 0 for a bad handle. Linux: skb_headroom.
///
/// Thread: any, one at a time per packet.
/// Cost: the packet's lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_headroom(skb: *mut SkbHandle) -> usize {
    query(skb, |packet| packet.headroom())
}

/// Returns the number of free bytes after the data of the head. 0 if the packet has fragments, or for a bad
/// handle. Linux: skb_tailroom.
///
/// Thread: any, one at a time per packet.
/// Cost: the packet's lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_tailroom(skb: *mut SkbHandle) -> usize {
    query(skb, |packet| packet.tailroom())
}

/// Returns how many bytes of memory the packet occupies. 0 for a bad handle. Linux: skb->truesize.
///
/// Thread: any, one at a time per packet.
/// Cost: the packet's lock; reads the size of each fragment.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_truesize(skb: *mut SkbHandle) -> usize {
    query(skb, |packet| packet.truesize())
}

/// Returns the number of fragments. 0 for a bad handle. Linux: skb_shinfo(skb)->nr_frags.
///
/// Thread: any, one at a time per packet.
/// Cost: the packet's lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_nr_frags(skb: *mut SkbHandle) -> usize {
    query(skb, |packet| packet.nr_frags())
}

/// Returns 1 if a clone shares the bytes of the packet, otherwise 0. Linux: skb_cloned.
///
/// Thread: any, one at a time per packet.
/// Errors: -EBUSY during another call on the packet. -EINVAL, -ESTALE for a bad handle.
/// Cost: the packet's lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_is_cloned(skb: *mut SkbHandle) -> c_int {
    number(|| SKBS.change(Token::of(skb), |packet| Ok(packet.is_cloned().into())))
}

/// Returns the address of the data in the head, which is pagepool_skb_head_len bytes long. The data may be
/// written only while no clone shares it. NULL for a bad handle. Linux: skb->data.
///
/// Thread: any, one at a time per packet.
/// Ownership: the address is valid until the head changes or the packet is released.
/// Cost: the packet's lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_data(skb: *mut SkbHandle) -> *mut c_void {
    let start = |packet: &mut SkBuff| {
        if packet.is_cloned() {
            return Ok(packet.data().as_ptr().cast_mut());
        }
        packet.data_mut().map(<[u8]>::as_mut_ptr).ok_or(CallError::UNREADABLE)
    };
    value_or(null_mut(), || SKBS.change(Token::of(skb), start)).cast()
}

/// Describes the bytes of the packet in `iov`, in order, for sendmsg(2): the head if it has bytes, then each
/// fragment. Writes the first `n` elements, and returns how many there are, at most 18. The bytes are for
/// reading. `iov` may be NULL if `n` is 0. Linux: skb_to_sgvec.
///
/// Thread: any, one at a time per packet.
/// Ownership: the addresses are valid until the packet changes or is released.
/// Errors: -EOPNOTSUPP for memory that the CPU cannot read. -EBUSY during another call on the packet.
///     -EINVAL, -ESTALE for a bad handle.
/// Cost: the packet's lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_skb_iovec(skb: *mut SkbHandle, iov: *mut iovec, n: usize) -> i64 {
    number(|| {
        // SAFETY: the caller gave room for `n`, or NULL.
        let places = unsafe { array_mut(iov, n) }?;
        SKBS.change(Token::of(skb), |packet| {
            let chunks = packet.chunks().ok_or(SkbError::Unreadable)?;
            let mut count = 0;
            for chunk in chunks {
                if let Some(place) = places.get_mut(count) {
                    place.write(iovec { iov_base: chunk.as_ptr().cast_mut().cast(), iov_len: chunk.len() });
                }
                count += 1;
            }
            Ok(count as i64)
        })
    })
}

/// Returns the device address of a segment of the packet in a domain: segment 0 is the head, segment i is
/// fragment i - 1. UINT64_MAX for a segment that does not exist or is not mapped there, or for a bad handle.
/// Linux: skb_frag_dma_map.
///
/// Thread: any, one at a time per packet.
/// Cost: two locks and a lookup.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_dma_addr(
    skb: *mut SkbHandle,
    segment: usize,
    domain: *mut DomainHandle,
) -> u64 {
    const NONE: CallError =
        CallError::fixed(libc::EOPNOTSUPP, c"this segment does not exist, or is not mapped in this domain");
    value_or(u64::MAX, || {
        let id = DOMAINS.get(Token::of(domain))?.id();
        SKBS.change(Token::of(skb), |packet| {
            let at = match segment.checked_sub(1) {
                None => packet.head_dma_addr_in(id),
                Some(at) => packet.frags().get(at).and_then(|frag| frag.dma_addr_in(id)),
            };
            at.map(|at| at.0).ok_or(NONE)
        })
    })
}

/// Copies `len` bytes from `offset` in the packet to `to`, across head and fragments. Linux: skb_copy_bits.
///
/// Thread: any, one at a time per packet.
/// Errors: -EINVAL for bytes beyond the packet. -EOPNOTSUPP for memory that the CPU cannot read. -EBUSY
///     during another call on the packet. -EINVAL, -ESTALE for a bad handle.
/// Cost: the packet's lock, and the copy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_skb_copy_bits(
    skb: *mut SkbHandle,
    offset: usize,
    to: *mut c_void,
    len: usize,
) -> c_int {
    status(|| {
        SKBS.change(Token::of(skb), |packet| {
            if len > packet.len() {
                return Err(SkbError::TooShort.into());
            }
            // SAFETY: the caller gave room for `len` bytes, or NULL.
            let to = unsafe { array_mut(to.cast::<u8>(), len) }?;
            // SAFETY: the caller's bytes are initialised, or only written to.
            let to = unsafe { &mut *(std::ptr::from_mut(to) as *mut [u8]) };
            Ok(packet.copy_bits(offset, to)?)
        })
    })
}
