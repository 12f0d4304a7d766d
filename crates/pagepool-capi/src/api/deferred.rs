//! The deferred queue: buffers whose user does not signal when it is done, and only answers "still in use?".

// UNSAFETY: exported functions; reads and writes through callers' pointers, and calls callers' callbacks.
#![expect(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use ::pagepool::{InUse, uncancelled};

use crate::args::out::store_handle;
use crate::args::range::out_of_range;
use crate::args::sized::{self, Sized0, SizedOut};
use crate::counters::DeferredStatsC;
use crate::error::{CallError, number, status};
use crate::handles::claim::claim;
use crate::handles::opaque::{BufHandle, DeferredUserHandle, PoolHandle};
use crate::handles::owner::enter;
use crate::handles::slots;
use crate::handles::tables::{DEFERRED_USERS, RegisteredUser};
use crate::handles::token::Token;

/// A user of deferred buffers: it reads them without owning them, and does not signal when it is done.
/// Examples: the kernel that sends from a page (MSG_ZEROCOPY), a reference count kept elsewhere. The library
/// calls these functions in allocations and polls of the pool's owner; once the pool is destroyed, in the
/// calls that pagepool_defer names. They may use the library, but must not unbind or destroy the pool, throw
/// or longjmp. They should be short: the owner waits for them.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DeferredUserOpsC {
    /// sizeof(struct pagepool_deferred_user_ops).
    pub size: usize,
    /// The first argument of each function.
    pub arg: *mut c_void,
    /// Returns 0 once the buffer that was deferred with `cookie` is no longer read; the buffer then returns
    /// to its pool. Returns another value while it is in use. Required.
    pub in_use: Option<unsafe extern "C" fn(arg: *mut c_void, cookie: u64) -> c_int>,
    /// Called once at the start of each poll, to read the state for `in_use`, such as the error queue of a
    /// socket. May be NULL.
    pub refresh: Option<unsafe extern "C" fn(arg: *mut c_void)>,
    /// Called once, after the handle was released and no buffer is deferred for the user; `arg` may be freed
    /// then. May be NULL.
    pub release: Option<unsafe extern "C" fn(arg: *mut c_void)>,
}

// SAFETY: plain integers and pointers, of which zeroes are values; a callback that is not set is zero.
unsafe impl Sized0 for DeferredUserOpsC {
    const LEAST: usize = std::mem::offset_of!(Self, release) + size_of::<*const c_void>();
}

struct UserCallbacks {
    ops: DeferredUserOpsC,
    in_use: unsafe extern "C" fn(arg: *mut c_void, cookie: u64) -> c_int,
    /// Whether the pool accepted the user. Otherwise `arg` stays the caller's, and `release` is not called.
    registered: AtomicBool,
}

// SAFETY: the header says that the callbacks are called on any thread, with their argument.
unsafe impl Send for UserCallbacks {}
// SAFETY: the header says that the callbacks are called on any thread.
unsafe impl Sync for UserCallbacks {}

impl InUse for UserCallbacks {
    fn refresh(&self) {
        if let Some(refresh) = self.ops.refresh {
            // SAFETY: the caller's callback, with its argument, which stays until `release`.
            uncancelled(|| unsafe { refresh(self.ops.arg) });
        }
    }

    fn in_use(&self, cookie: u64) -> bool {
        // SAFETY: the caller's callback, with its argument, which stays until `release`.
        uncancelled(|| unsafe { (self.in_use)(self.ops.arg, cookie) }) != 0
    }
}

impl Drop for UserCallbacks {
    fn drop(&mut self) {
        if let Some(release) = self.ops.release.filter(|_| self.registered.load(Relaxed)) {
            // SAFETY: the caller's callback, with its argument, once: no poll calls this user any more.
            uncancelled(|| unsafe { release(self.ops.arg) });
        }
    }
}

/// Registers a user of deferred buffers with a pool that has a deferred queue (`defer_capacity`).
///
/// Thread: owner.
/// Ownership: release `*user` with pagepool_deferred_user_put.
/// Errors: -EOPNOTSUPP in a pool without a queue. -EINVAL names the missing callback. -EPERM on another
///     thread. -EINVAL, -ESTALE for a bad handle. `release` is not called then.
/// Cost: allocates.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_deferred_user_create(
    pool: *mut PoolHandle,
    ops: *const DeferredUserOpsC,
    user: *mut *mut DeferredUserHandle,
) -> c_int {
    let make = || {
        // SAFETY: the caller's struct begins with its size.
        let ops = unsafe { sized::read(ops) }?;
        let in_use = ops.in_use.ok_or_else(|| out_of_range("in_use", "NULL", "a function"))?;
        let callbacks = Arc::new(UserCallbacks { ops, in_use, registered: AtomicBool::new(false) });
        let pool = Token::of(pool);
        let user = enter(pool, |owned| Ok(owned.bound.deferred_user(callbacks.clone())?))?;
        let token = DEFERRED_USERS.insert(Arc::new(RegisteredUser { user, pool }))?;
        callbacks.registered.store(true, Relaxed);
        Ok(token)
    };
    // SAFETY: `user` is NULL or the caller's to write.
    unsafe { store_handle(user, make) }
}

/// Releases the handle of a user. Its buffers stay deferred until it is done with them; the poll after that
/// calls `release`.
///
/// Thread: any.
/// Ownership: the handle ends.
/// Errors: -EINVAL, -ESTALE for a bad handle.
/// Cost: a lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_deferred_user_put(user: *mut DeferredUserHandle) -> c_int {
    status(|| DEFERRED_USERS.remove(Token::of(user)))
}

/// Puts a buffer that its user still reads into the deferred queue of its pool, and does not block. The
/// buffer returns to the pool once `in_use` returns 0 for the cookie. Refills and pagepool_poll_deferred call
/// `in_use`. After pagepool_destroy_watched, pagepool_shutdown_wait and pagepool_shutdown_report call it;
/// after pagepool_destroy, every call that creates or destroys a pool.
///
/// Thread: owner.
/// Ownership: the handle of the buffer ends, unless the call fails.
/// Errors: -ENOBUFS if `defer_capacity` buffers are in the queue. -EINVAL for a buffer or a user of another
///     pool. -EPERM on another thread. -EINVAL, -ESTALE for a bad handle.
/// Cost: a lookup and two short locks; no allocation.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_defer(
    pool: *mut PoolHandle,
    user: *mut DeferredUserHandle,
    buf: *mut BufHandle,
    cookie: u64,
) -> c_int {
    const FULL: CallError = CallError::fixed(
        libc::ENOBUFS,
        c"the deferred queue is full: poll it, or create the pool with a larger defer_capacity",
    );
    const ANOTHERS: CallError = CallError::fixed(libc::EINVAL, c"the user belongs to another pool");
    status(|| {
        let (pool, buf) = (Token::of(pool), Token::of(buf));
        enter(pool, |owned| {
            let known = DEFERRED_USERS.get(Token::of(user))?;
            owned.check_buffer(buf)?;
            if known.pool != pool {
                return Err(ANOTHERS);
            }
            let defer =
                |buffer| owned.bound.defer(&known.user, buffer, cookie).map_err(|buffer| (buffer, FULL));
            claim(buf)?.give(defer)
        })
    })
}

/// Polls the deferred queue once, as the pool's `on_busy` specifies. Returns the number of buffers that
/// returned to the pool.
///
/// Thread: owner.
/// Errors: -EPERM on another thread. -EINVAL, -ESTALE for a bad handle.
/// Cost: a callback per user, and one per buffer that is checked.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_poll_deferred(pool: *mut PoolHandle) -> i64 {
    number(|| enter(Token::of(pool), |owned| Ok(owned.bound.poll_deferred() as i64)))
}

// SAFETY: `repr(C)`; only words, of which the first is `size`.
unsafe impl SizedOut for DeferredStatsC {
    const LEAST: usize = std::mem::offset_of!(Self, reused) + size_of::<u64>();
}

/// Writes the counters of a pool's deferred queue to `*stats`, as many as fit into `stats->size` bytes, which
/// the caller sets. All are 0 in a pool without a queue.
///
/// Thread: any.
/// Errors: -EINVAL for NULL, or a `size` that is 0 or too small; `*stats` is then unchanged. -EINVAL, -ESTALE
///     for a bad handle.
/// Cost: a lock; nothing on the owner's thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_read_deferred_stats(
    pool: *mut PoolHandle,
    stats: *mut DeferredStatsC,
) -> c_int {
    status(|| {
        let now = slots::with_life(Token::of(pool), |life| Ok(life.handle.deferred_stats()))?;
        // SAFETY: `stats` is NULL or the caller's to write for `stats->size` bytes.
        unsafe { sized::write(stats, &now.into()) }
    })
}
