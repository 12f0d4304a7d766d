//! Resizing a packet, and making its head writable.

// UNSAFETY: exported functions; writes through callers' pointers.
#![expect(unsafe_code)]

use std::ffi::{c_int, c_void};

use pagepool_skb::{SkBuff, SkbError};

use crate::error::{CallResult, status};
use crate::handles::opaque::SkbHandle;
use crate::handles::tables::SKBS;
use crate::handles::token::Token;

/// # Safety
/// `at` is NULL or writable.
unsafe fn grow(
    skb: *mut SkbHandle,
    at: *mut *mut c_void,
    more: impl FnOnce(&mut SkBuff) -> CallResult<*mut u8>,
) -> c_int {
    status(|| {
        let start = SKBS.change(Token::of(skb), more)?;
        if !at.is_null() {
            // SAFETY: `at` is not NULL, so the caller's contract makes it writable.
            unsafe { at.write(start.cast()) };
        }
        Ok(())
    })
}

/// Adds `len` bytes to the front of the packet, from its headroom, and stores their address in `*at` unless
/// `at` is NULL. The library does not initialise them. Linux: skb_push.
///
/// Thread: any, one at a time per packet.
/// Errors: -ENOSPC if there is too little headroom; pagepool_skb_cow_head makes more. -EBUSY while a clone
///     shares the bytes, or during another call on the packet. -EINVAL, -ESTALE for a bad handle.
/// Cost: the packet's lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_skb_push(skb: *mut SkbHandle, len: usize, at: *mut *mut c_void) -> c_int {
    // SAFETY: `at` is NULL or the caller's to write.
    unsafe { grow(skb, at, |packet| Ok(packet.push(len)?.as_mut_ptr())) }
}

/// Adds `len` bytes to the end of the packet, from the tailroom of its head, and stores their address in
/// `*at` unless `at` is NULL. The library does not initialise them. A packet with fragments has no tailroom.
/// Linux: skb_put.
///
/// Thread: any, one at a time per packet.
/// Errors: -ENOSPC if there is too little tailroom. -EBUSY while a clone shares the bytes, or during another
///     call on the packet. -EINVAL, -ESTALE for a bad handle.
/// Cost: the packet's lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_skb_append(skb: *mut SkbHandle, len: usize, at: *mut *mut c_void) -> c_int {
    // SAFETY: `at` is NULL or the caller's to write.
    unsafe { grow(skb, at, |packet| Ok(packet.put(len)?.as_mut_ptr())) }
}

fn change(skb: *mut SkbHandle, what: impl FnOnce(&mut SkBuff) -> Result<(), SkbError>) -> c_int {
    status(|| SKBS.change(Token::of(skb), |packet| Ok(what(packet)?)))
}

/// Removes `len` bytes from the front of the packet. A fragment without bytes left is returned at once.
/// Linux: pskb_pull.
///
/// Thread: any, one at a time per packet.
/// Errors: -EINVAL for more bytes than the packet has. -ENOBUFS, -ENOMEM if the packet is a clone and needs
///     its own description. -EBUSY during another call on the packet. -EINVAL, -ESTALE for a bad handle.
/// Cost: the packet's lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_pull(skb: *mut SkbHandle, len: usize) -> c_int {
    change(skb, |packet| packet.pull(len))
}

/// Cuts the packet to its first `len` bytes. A shorter packet is unchanged. Linux: pskb_trim.
///
/// Thread: any, one at a time per packet.
/// Errors: as pagepool_skb_pull.
/// Cost: the packet's lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_trim(skb: *mut SkbHandle, len: usize) -> c_int {
    change(skb, |packet| packet.trim(len))
}

/// Makes the first `len` bytes of the packet lie in its head, by copying those that lie in fragments. Linux:
/// pskb_may_pull.
///
/// Thread: any, one at a time per packet.
/// Errors: -EINVAL for more bytes than the packet has. -EOPNOTSUPP for memory that the CPU cannot read.
///     -ENOBUFS, -ENOMEM. -EBUSY during another call on the packet. -EINVAL, -ESTALE for a bad handle.
/// Cost: the packet's lock, and the copy.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_make_linear(skb: *mut SkbHandle, len: usize) -> c_int {
    change(skb, |packet| packet.make_linear(len))
}

/// Makes the head of a clone writable: copies it into its own ordinary memory, and takes a reference to each
/// fragment. A packet without clones is unchanged. Linux: skb_unclone.
///
/// Thread: any, one at a time per packet.
/// Errors: -ENOBUFS, -ENOMEM. -EBUSY during another call on the packet. -EINVAL, -ESTALE for a bad handle.
/// Cost: the packet's lock, and the copy of the head.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_unclone(skb: *mut SkbHandle) -> c_int {
    change(skb, SkBuff::unclone)
}

/// Makes the head writable as pagepool_skb_unclone does, with at least `headroom` bytes of headroom. Linux:
/// skb_cow_head.
///
/// Thread: any, one at a time per packet.
/// Errors: as pagepool_skb_unclone.
/// Cost: the packet's lock; a copy of the head if it is a clone's or has too little headroom.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_cow_head(skb: *mut SkbHandle, headroom: usize) -> c_int {
    change(skb, |packet| packet.cow_head(headroom))
}
