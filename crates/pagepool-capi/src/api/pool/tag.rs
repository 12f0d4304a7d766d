//! Tags: names of buffer holders, for the report of a destroyed pool.

// UNSAFETY: exported functions; reads the caller's text.
#![expect(unsafe_code)]

use std::ffi::{c_char, c_int};

use ::pagepool::Tag;

use crate::args::range::out_of_range;
use crate::args::sized::text;
use crate::error::{CallResult, number, status};
use crate::handles::claim::lend;
use crate::handles::opaque::{BufHandle, PoolHandle, SharedHandle};
use crate::handles::owner::enter;
use crate::handles::slots;
use crate::handles::tables::SHARED_BUFS;
use crate::handles::token::Token;

/// Registers a name for the holder of buffers, in a pool with `tagging` or `holders`. Returns its tag, 0 or
/// more; a known name gives its existing tag. The process keeps at most 65,535 names, until it ends. Beyond
/// that, for an empty name, and in a pool with neither option, the returned tag has no effect.
///
/// Thread: owner.
/// Errors: -EPERM on another thread. -EINVAL, -ESTALE for a bad handle.
/// Cost: a lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_tag(pool: *mut PoolHandle, name: *const c_char) -> c_int {
    number(|| {
        // SAFETY: the caller's text ends with a zero byte.
        let name = unsafe { text(name, "") };
        let token = Token::of(pool);
        let tag = enter(token, |owned| Ok(owned.bound.tag(&name)))?;
        slots::with_life(token, |life| {
            let known = life.tags.iter().position(|known| *known == tag);
            if known.is_none() {
                life.tags.try_reserve(1)?;
                life.tags.push(tag);
            }
            Ok(known.unwrap_or(life.tags.len() - 1) as c_int)
        })
    })
}

/// Gives this tag to all buffers that are allocated from now on; -1 means no tag. It has no effect in a pool
/// without `holders`.
///
/// Thread: owner.
/// Errors: -EINVAL for a tag that is not of this pool. -EPERM on another thread. -EINVAL, -ESTALE for a bad
///     handle.
/// Cost: a lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_set_tag(pool: *mut PoolHandle, tag: c_int) -> c_int {
    status(|| {
        let token = Token::of(pool);
        let tag = if tag == -1 { None } else { Some(tag_of(token, tag)?) };
        enter(token, |owned| {
            owned.bound.set_tag(tag);
            Ok(())
        })
    })
}

/// The tag with this number in the pool.
pub(crate) fn tag_of(pool: Token, tag: c_int) -> CallResult<Tag> {
    slots::with_life(pool, |life| {
        let known = usize::try_from(tag).ok().and_then(|at| life.tags.get(at).copied());
        known.ok_or_else(|| out_of_range("tag", tag, "one that pagepool_tag returned for this pool"))
    })
}

/// Records who holds a buffer now, for pagepool_shutdown_report; in a pool with `holders` the calling thread
/// becomes the holder. The tag stays when the buffer is shared or becomes a device address. It has no effect
/// in a pool with neither `tagging` nor `holders`.
///
/// Thread: the one that holds the buffer.
/// Errors: -EINVAL for a tag that is not of this pool. -EINVAL, -ESTALE for a bad handle.
/// Cost: a lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_buf_set_tag(pool: *mut PoolHandle, buf: *mut BufHandle, tag: c_int) -> c_int {
    status(|| {
        let tag = tag_of(Token::of(pool), tag)?;
        lend(Token::of(buf), |buf| buf.set_tag(tag))
    })
}

/// Records who holds a shared buffer now, as pagepool_buf_set_tag does for a buffer. The last call of any
/// reader counts.
///
/// Thread: any.
/// Errors: -EINVAL for a tag that is not of this pool. -EINVAL, -ESTALE for a bad handle.
/// Cost: two locks.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_shared_set_tag(
    pool: *mut PoolHandle,
    shared: *mut SharedHandle,
    tag: c_int,
) -> c_int {
    status(|| {
        let tag = tag_of(Token::of(pool), tag)?;
        SHARED_BUFS.change(Token::of(shared), |entry| {
            entry.shared.set_tag(tag);
            Ok(())
        })
    })
}
