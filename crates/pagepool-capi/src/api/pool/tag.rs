//! Who holds a buffer, for the report of a destroyed pool.

// UNSAFETY: functions with fixed names; the caller's text is read.
#![expect(unsafe_code)]

use std::ffi::{c_char, c_int};

use crate::args::range::out_of_range;
use crate::args::sized::text;
use crate::error::{CallError, status, to_errno};
use crate::handles::claim::claim;
use crate::handles::opaque::{BufHandle, PoolHandle};
use crate::handles::owner::enter;
use crate::handles::slots;
use crate::handles::token::Token;

/// Makes a tag of a pool that was made with `tagging`. Gives its number, 0 or more. The same name gives the
/// same number.
///
/// Thread: owner.
/// Errors: -EPERM on another thread. -EINVAL, -ESTALE for a bad handle.
/// Cost: a lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_tag(pool: *mut PoolHandle, name: *const c_char) -> c_int {
    let done = to_errno(|| {
        // SAFETY: the caller's text ends with a zero byte.
        let name = unsafe { text(name, "") };
        let token = Token::of(pool);
        let tag = enter(token, |owned| Ok(owned.bound.tag(&name)))?;
        slots::with_life(token, |life| {
            if let Some(at) = life.tags.iter().position(|known| *known == tag) {
                return Ok(at as c_int);
            }
            life.tags.try_reserve(1).map_err(|_| CallError::no_memory())?;
            life.tags.push(tag);
            Ok(life.tags.len() as c_int - 1)
        })
    });
    done.unwrap_or_else(|errno| errno)
}

/// Records who has a buffer now. It has no effect in a pool made without `tagging`.
///
/// Thread: the one that has the buffer.
/// Errors: -EINVAL for a tag that is not of this pool. -EINVAL, -ESTALE for a bad handle.
/// Cost: a lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_buf_set_tag(pool: *mut PoolHandle, buf: *mut BufHandle, tag: c_int) -> c_int {
    status(|| {
        let tag = slots::with_life(Token::of(pool), |life| {
            let known = usize::try_from(tag).ok().and_then(|at| life.tags.get(at).copied());
            known.ok_or_else(|| out_of_range("tag", tag, "one that pagepool_tag gave for this pool"))
        })?;
        let mut claimed = claim(Token::of(buf))?;
        claimed.buffer.set_tag(tag);
        claimed.put_back();
        Ok(())
    })
}
