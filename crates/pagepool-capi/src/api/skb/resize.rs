//! A packet's ends and head: growing, cutting, and making them writable.

// UNSAFETY: functions with fixed names; callers' places are written.
#![expect(unsafe_code)]

use std::ffi::{c_int, c_void};

use ::pagepool::SkBuff;

use crate::error::{CallResult, status};
use crate::handles::opaque::SkbHandle;
use crate::handles::skb_rows::with;
use crate::handles::token::Token;

/// # Safety
/// `at` is NULL or writable.
unsafe fn grow(
    skb: *mut SkbHandle,
    at: *mut *mut c_void,
    more: impl FnOnce(&mut SkBuff) -> CallResult<*mut u8>,
) -> c_int {
    status(|| {
        let start = with(Token::of(skb), more)?;
        if !at.is_null() {
            // SAFETY: not NULL, and writable as the caller says.
            unsafe { at.write(start.cast()) };
        }
        Ok(())
    })
}

/// Adds `len` bytes at the front of the packet, from its headroom, and stores their address into `*at` unless
/// `at` is NULL. They are not initialised. Linux: skb_push.
///
/// Thread: any, one at a time per packet.
/// Errors: -ENOSPC without enough headroom (pagepool_skb_cow_head makes it). -EBUSY while a clone shares the
///     data. -EINVAL, -ESTALE for a bad handle.
/// Cost: a lock of the packet's own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_skb_push(skb: *mut SkbHandle, len: usize, at: *mut *mut c_void) -> c_int {
    // SAFETY: the caller's place.
    unsafe { grow(skb, at, |packet| Ok(packet.push(len)?.as_mut_ptr())) }
}

/// Adds `len` bytes at the end of the head, from its tailroom, and stores their address into `*at` unless
/// `at` is NULL. They are not initialised. A packet with fragments has no tailroom. Linux: skb_put.
///
/// Thread: any, one at a time per packet.
/// Errors: -ENOSPC without enough tailroom. -EBUSY while a clone shares the data. -EINVAL, -ESTALE for a bad
///     handle.
/// Cost: a lock of the packet's own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_skb_append(skb: *mut SkbHandle, len: usize, at: *mut *mut c_void) -> c_int {
    // SAFETY: the caller's place.
    unsafe { grow(skb, at, |packet| Ok(packet.put(len)?.as_mut_ptr())) }
}

fn change(skb: *mut SkbHandle, what: impl FnOnce(&mut SkBuff) -> Result<(), ::pagepool::SkbError>) -> c_int {
    status(|| with(Token::of(skb), |packet| Ok(what(packet)?)))
}

/// Removes `len` bytes from the front of the packet. Fragments without bytes left return at once. Linux:
/// pskb_pull.
///
/// Thread: any, one at a time per packet.
/// Errors: -EINVAL for more bytes than the packet has. -ENOBUFS, -ENOMEM if the fragments of a clone need a
///     description of their own. -EBUSY during another call about the packet. -EINVAL, -ESTALE for a bad
///     handle.
/// Cost: a lock of the packet's own.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_pull(skb: *mut SkbHandle, len: usize) -> c_int {
    change(skb, |packet| packet.pull(len))
}

/// Cuts the packet to its first `len` bytes; a shorter packet stays as it is. Linux: pskb_trim.
///
/// Thread: any, one at a time per packet.
/// Errors: as pagepool_skb_pull.
/// Cost: a lock of the packet's own.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_trim(skb: *mut SkbHandle, len: usize) -> c_int {
    change(skb, |packet| packet.trim(len))
}

/// Moves the first `len` bytes of the packet into its head, by a copy if they are not there. Linux:
/// pskb_may_pull.
///
/// Thread: any, one at a time per packet.
/// Errors: -EINVAL for more bytes than the packet has. -EOPNOTSUPP for memory that the CPU cannot read.
///     -ENOBUFS, -ENOMEM. -EBUSY during another call about the packet. -EINVAL, -ESTALE for a bad handle.
/// Cost: a lock of the packet's own, and the copy of the missing bytes.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_make_linear(skb: *mut SkbHandle, len: usize) -> c_int {
    change(skb, |packet| packet.make_linear(len))
}

/// Gives a clone a head of its own in ordinary memory, and a reference to every fragment, so that it may be
/// written. A packet without clones stays as it is. Linux: skb_unclone.
///
/// Thread: any, one at a time per packet.
/// Errors: -ENOBUFS, -ENOMEM. -EBUSY during another call about the packet. -EINVAL, -ESTALE for a bad handle.
/// Cost: a lock of the packet's own, and the copy of the head.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_unclone(skb: *mut SkbHandle) -> c_int {
    change(skb, SkBuff::unclone)
}

/// Makes the head writable as pagepool_skb_unclone does, with at least `headroom` bytes of headroom. Linux:
/// skb_cow_head.
///
/// Thread: any, one at a time per packet.
/// Errors: as pagepool_skb_unclone.
/// Cost: a lock of the packet's own, and the copy of the head if one is needed.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_cow_head(skb: *mut SkbHandle, headroom: usize) -> c_int {
    change(skb, |packet| packet.cow_head(headroom))
}
