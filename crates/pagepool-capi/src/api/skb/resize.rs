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

/// Grows the packet by `len` bytes at its front, out of the headroom; `*at`, unless NULL, becomes their address, and what is
/// there is whatever was. Linux: skb_push.
///
/// Thread: whoever has the packet. Errors: -ENOSPC without so much headroom (pagepool_skb_cow_head makes it); -EBUSY while a clone
/// shares the data; -EINVAL, -ESTALE. Cost: a lock of the packet's own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_skb_push(skb: *mut SkbHandle, len: usize, at: *mut *mut c_void) -> c_int {
    // SAFETY: the caller's place.
    unsafe { grow(skb, at, |packet| Ok(packet.push(len)?.as_mut_ptr())) }
}

/// The same at the end of its head, out of the tailroom; none is left once it has fragments. Linux: skb_put.
///
/// Thread, errors, cost: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_skb_append(skb: *mut SkbHandle, len: usize, at: *mut *mut c_void) -> c_int {
    // SAFETY: the caller's place.
    unsafe { grow(skb, at, |packet| Ok(packet.put(len)?.as_mut_ptr())) }
}

fn change(skb: *mut SkbHandle, what: impl FnOnce(&mut SkBuff) -> Result<(), ::pagepool::SkbError>) -> c_int {
    status(|| with(Token::of(skb), |packet| Ok(what(packet)?)))
}

/// Cuts `len` bytes off its front. Fragments that are used up go home at once. Linux: pskb_pull.
///
/// Thread: whoever has the packet. Errors: -EINVAL where it has not so many; -ENOBUFS, -ENOMEM where a clone's fragments would
/// need a description of their own; -EINVAL, -ESTALE, -EBUSY. Cost: a lock of the packet's own.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_pull(skb: *mut SkbHandle, len: usize) -> c_int {
    change(skb, |packet| packet.pull(len))
}

/// Cuts its end off, so that `len` bytes stay. Does nothing where it has no more. Linux: pskb_trim.
///
/// Thread, errors, cost: as above.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_trim(skb: *mut SkbHandle, len: usize) -> c_int {
    change(skb, |packet| packet.trim(len))
}

/// Makes its first `len` bytes lie in the head, by a copy if need be. Linux: pskb_may_pull.
///
/// Thread: whoever has the packet. Errors: -EINVAL where it has not so many; -EOPNOTSUPP for memory that the CPU cannot read;
/// -ENOBUFS, -ENOMEM; -EINVAL, -ESTALE, -EBUSY. Cost: a lock of the packet's own, and the copy of what was not there.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_make_linear(skb: *mut SkbHandle, len: usize) -> c_int {
    change(skb, |packet| packet.make_linear(len))
}

/// Gives a clone a head of its own, in ordinary memory, and a reference to every fragment, so that it may be written. Does
/// nothing to a packet that is not cloned. Linux: skb_unclone.
///
/// Thread: whoever has the packet. Errors: -ENOBUFS, -ENOMEM; -EINVAL, -ESTALE, -EBUSY. Cost: a lock of the packet's own, and the
/// copy of the head.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_unclone(skb: *mut SkbHandle) -> c_int {
    change(skb, SkBuff::unclone)
}

/// The same, and sees to so much headroom. Linux: skb_cow_head.
///
/// Thread, errors, cost: as above.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_cow_head(skb: *mut SkbHandle, headroom: usize) -> c_int {
    change(skb, |packet| packet.cow_head(headroom))
}
