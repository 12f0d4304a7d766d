//! The bytes of a packet: their lengths, addresses and copies.

// UNSAFETY: functions with fixed names; callers' places are written.
#![expect(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use ::pagepool::SkBuff;
use libc::iovec;

use crate::error::{CallError, status, to_errno, value_or};
use crate::handles::opaque::{DomainHandle, SkbHandle};
use crate::handles::skb_rows::with;
use crate::handles::tables;
use crate::handles::token::Token;

fn ask(skb: *mut SkbHandle, what: impl FnOnce(&mut SkBuff) -> usize) -> usize {
    value_or(0, || with(Token::of(skb), |packet| Ok(what(packet))))
}

/// Gives the bytes of the packet; 0 for a bad handle. Linux: skb->len.
///
/// Thread: any, one at a time per packet.
/// Cost: a lock of the packet's own.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_len(skb: *mut SkbHandle) -> usize {
    ask(skb, |packet| packet.len())
}

/// Gives the bytes in the head; 0 for a bad handle. Linux: skb_headlen.
///
/// Thread: any, one at a time per packet.
/// Cost: a lock of the packet's own.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_head_len(skb: *mut SkbHandle) -> usize {
    ask(skb, |packet| packet.head_len())
}

/// Gives the free bytes before the data of the head; 0 for a bad handle. Linux: skb_headroom.
///
/// Thread: any, one at a time per packet.
/// Cost: a lock of the packet's own.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_headroom(skb: *mut SkbHandle) -> usize {
    ask(skb, |packet| packet.headroom())
}

/// Gives the free bytes behind the data of the head; 0 if the packet has fragments, or for a bad handle.
/// Linux: skb_tailroom.
///
/// Thread: any, one at a time per packet.
/// Cost: a lock of the packet's own.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_tailroom(skb: *mut SkbHandle) -> usize {
    ask(skb, |packet| packet.tailroom())
}

/// Gives the bytes of memory that the packet occupies; 0 for a bad handle. Linux: skb->truesize.
///
/// Thread: any, one at a time per packet.
/// Cost: a lock of the packet's own, and a look at every fragment.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_truesize(skb: *mut SkbHandle) -> usize {
    ask(skb, |packet| packet.truesize())
}

/// Gives the number of fragments; 0 for a bad handle. Linux: skb_shinfo(skb)->nr_frags.
///
/// Thread: any, one at a time per packet.
/// Cost: a lock of the packet's own.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_nr_frags(skb: *mut SkbHandle) -> usize {
    ask(skb, |packet| packet.nr_frags())
}

/// Gives 1 if a clone shares the data, otherwise 0. Linux: skb_cloned.
///
/// Thread: any, one at a time per packet.
/// Errors: -EBUSY during another call about the packet. -EINVAL, -ESTALE for a bad handle.
/// Cost: a lock of the packet's own.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_is_cloned(skb: *mut SkbHandle) -> c_int {
    let done = to_errno(|| with(Token::of(skb), |packet| Ok(c_int::from(packet.is_cloned()))));
    done.unwrap_or_else(|errno| errno)
}

/// Gives the address of the head's data, pagepool_skb_head_len bytes. They may be written only while the
/// packet is not cloned. NULL for a bad handle. Linux: skb->data.
///
/// Thread: any, one at a time per packet.
/// Ownership: the address is valid until the head changes or the packet is put.
/// Cost: a lock of the packet's own.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_data(skb: *mut SkbHandle) -> *mut c_void {
    let start = |packet: &mut SkBuff| {
        if packet.is_cloned() {
            return packet.data().as_ptr().cast_mut();
        }
        packet.data_mut().map_or(null_mut(), <[u8]>::as_mut_ptr)
    };
    value_or(null_mut(), || with(Token::of(skb), |packet| Ok(start(packet)))).cast()
}

/// Writes where the bytes of the packet lie into the first `n` elements of `iov`, in order, as sendmsg
/// expects them: the head if it has bytes, then every fragment. They are to be read only. Gives the number of
/// all, at most 18. `iov` may be NULL if `n` is 0. Linux: skb_to_sgvec.
///
/// Thread: any, one at a time per packet.
/// Ownership: the addresses are valid until the packet changes or is put.
/// Errors: -EOPNOTSUPP for memory that the CPU cannot read. -EBUSY during another call about the packet.
///     -EINVAL, -ESTALE for a bad handle.
/// Cost: a lock of the packet's own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_skb_iovec(skb: *mut SkbHandle, iov: *mut iovec, n: usize) -> i64 {
    let done = to_errno(|| {
        if iov.is_null() && n > 0 {
            return Err(CallError::null());
        }
        with(Token::of(skb), |packet| {
            let chunks = packet.chunks().ok_or(::pagepool::SkbError::Unreadable)?;
            let mut count = 0;
            for chunk in chunks {
                if count < n {
                    let one = iovec { iov_base: chunk.as_ptr().cast_mut().cast(), iov_len: chunk.len() };
                    // SAFETY: the caller gave room for `n`.
                    let at = unsafe { iov.add(count) };
                    // SAFETY: as above.
                    unsafe { at.write(one) };
                }
                count += 1;
            }
            Ok(count as i64)
        })
    });
    done.unwrap_or_else(i64::from)
}

/// Gives the device address of a segment in a domain: segment 0 is the head, the fragments begin at 1.
/// UINT64_MAX for memory that is not mapped there, a segment that does not exist, or a bad handle. Linux:
/// skb_frag_dma_map.
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
        let id = tables::domain(Token::of(domain))?.id();
        with(Token::of(skb), |packet| {
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
///     during another call about the packet. -EINVAL, -ESTALE for a bad handle.
/// Cost: a lock of the packet's own, and the copy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_skb_copy_bits(
    skb: *mut SkbHandle,
    offset: usize,
    to: *mut c_void,
    len: usize,
) -> c_int {
    status(|| {
        if len == 0 {
            return with(Token::of(skb), |packet| Ok(packet.copy_bits(offset, &mut [])?));
        }
        with(Token::of(skb), |packet| {
            if to.is_null() || len > packet.len() {
                return Err(if to.is_null() {
                    CallError::null()
                } else {
                    ::pagepool::SkbError::TooShort.into()
                });
            }
            // SAFETY: the caller gave room for `len` bytes, which are initialised or only written.
            let to = unsafe { std::slice::from_raw_parts_mut(to.cast::<u8>(), len) };
            Ok(packet.copy_bits(offset, to)?)
        })
    })
}
