//! The deferred queue: buffers whose user gives no sign when it is done, and only answers "still in use?".

// UNSAFETY: functions with fixed names; callers' structs are read, their places written and their callbacks
// called.
#![expect(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use ::pagepool::InUse;

use crate::args::range::out_of_range;
use crate::args::sized::{self, Sized0};
use crate::counters::DeferredStatsC;
use crate::error::{CallError, status, to_errno};
use crate::handles::claim::claim;
use crate::handles::directory;
use crate::handles::opaque::{BufHandle, DeferredUserHandle, PoolHandle};
use crate::handles::owner::enter;
use crate::handles::slots;
use crate::handles::tables::{DEFERRED_USERS, RegisteredUser};
use crate::handles::token::Token;

/// A user of deferred buffers: it reads them without owning them, and answers whether it still does.
/// Examples: a kernel that sends from them, a reference count elsewhere. The callbacks are called in
/// allocations and polls of the pool's owner; after the pool was destroyed, on any thread that asks about it.
/// They may use the library, but must not unbind or destroy the pool, throw or longjmp. They should take a
/// bounded time. Each gets `arg` first.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DeferredUserOpsC {
    /// sizeof(struct pagepool_deferred_user_ops).
    pub size: usize,
    /// The first argument of the callbacks.
    pub arg: *mut c_void,
    /// Gives other than 0 while the buffer that was deferred with `cookie` is in use. After 0 the buffer
    /// returns, so nobody may read its bytes any more. Required.
    pub in_use: Option<unsafe extern "C" fn(arg: *mut c_void, cookie: u64) -> c_int>,
    /// Called once before each poll, for a user that reads a state first, such as a socket's error queue. May
    /// be NULL.
    pub refresh: Option<unsafe extern "C" fn(arg: *mut c_void)>,
    /// Called once when the handle is put and no buffer is deferred for the user, so that `arg` may be freed.
    /// May be NULL.
    pub release: Option<unsafe extern "C" fn(arg: *mut c_void)>,
}

// SAFETY: plain integers and pointers, of which zeroes are values; a callback that is not set is zero.
unsafe impl Sized0 for DeferredUserOpsC {}

struct UserCallbacks {
    ops: DeferredUserOpsC,
    in_use: unsafe extern "C" fn(arg: *mut c_void, cookie: u64) -> c_int,
    /// Whether the pool took it: else `arg` stays the caller's.
    registered: AtomicBool,
}

// SAFETY: the caller says that its callbacks, with their argument, may be called on any thread.
unsafe impl Send for UserCallbacks {}
// SAFETY: as above.
unsafe impl Sync for UserCallbacks {}

impl InUse for UserCallbacks {
    fn refresh(&self) {
        if let Some(refresh) = self.ops.refresh {
            // SAFETY: the caller's callback, with its argument, which stays until `release`.
            unsafe { refresh(self.ops.arg) };
        }
    }

    fn in_use(&self, cookie: u64) -> bool {
        // SAFETY: as above.
        unsafe { (self.in_use)(self.ops.arg, cookie) != 0 }
    }
}

impl Drop for UserCallbacks {
    fn drop(&mut self) {
        if let Some(release) = self.ops.release.filter(|_| self.registered.load(Relaxed)) {
            // SAFETY: as above; nobody asks any more.
            unsafe { release(self.ops.arg) };
        }
    }
}

/// Registers a user of deferred buffers with a pool that has a deferred queue (`defer_capacity`).
///
/// Thread: owner.
/// Ownership: `*user` is the caller's, to be put once.
/// Errors: -EOPNOTSUPP in a pool without a queue. -EINVAL names what is missing. -EPERM on another thread.
///     -EINVAL, -ESTALE for a bad handle. `release` is not called then.
/// Cost: allocates.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_deferred_user_create(
    pool: *mut PoolHandle,
    ops: *const DeferredUserOpsC,
    user: *mut *mut DeferredUserHandle,
) -> c_int {
    status(|| {
        if user.is_null() {
            return Err(CallError::null());
        }
        // SAFETY: the caller's struct begins with its size.
        let ops = unsafe { sized::read(ops, size_of::<DeferredUserOpsC>()) }?;
        let in_use = ops.in_use.ok_or_else(|| out_of_range("in_use", "NULL", "a function"))?;
        let callbacks = Arc::new(UserCallbacks { ops, in_use, registered: AtomicBool::new(false) });
        let pool = Token::of(pool);
        let made = enter(pool, |owned| Ok(owned.bound.deferred_user(callbacks.clone())?))?;
        let token = DEFERRED_USERS.insert(Arc::new(RegisteredUser { user: made, pool }))?;
        callbacks.registered.store(true, Relaxed);
        // SAFETY: not NULL, and the caller's to write.
        unsafe { user.write(token.handle()) };
        Ok(())
    })
}

/// Puts a user. Its buffers stay deferred until it is done with them; then `release` is called, at the next
/// poll.
///
/// Thread: any.
/// Ownership: the handle ends.
/// Errors: -EINVAL, -ESTALE for a bad handle.
/// Cost: a lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_deferred_user_put(user: *mut DeferredUserHandle) -> c_int {
    status(|| {
        drop(DEFERRED_USERS.remove(Token::of(user))?);
        Ok(())
    })
}

/// Puts a buffer that its user still reads into the deferred queue of its pool, and does not block. The
/// buffer returns once `in_use` gives 0 for the cookie. Refills that find the cache empty ask, and so does
/// pagepool_poll_deferred. After pagepool_destroy_watched it is pagepool_shutdown_wait and
/// pagepool_shutdown_report that ask, after pagepool_destroy every call that makes or destroys a pool.
///
/// Thread: owner.
/// Ownership: the handle ends, unless the call fails.
/// Errors: -ENOBUFS when `defer_capacity` buffers are deferred. -EINVAL for a buffer or a user of another
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
        c"the deferred queue is full: poll it, or make the pool with a larger defer_capacity",
    );
    const ANOTHERS: CallError =
        CallError::fixed(libc::EINVAL, c"the buffer or the user belongs to another pool");
    status(|| {
        let (pool, buf) = (Token::of(pool), Token::of(buf));
        enter(pool, |owned| {
            let known = DEFERRED_USERS.with(Token::of(user), Arc::clone)?;
            let same = std::ptr::eq(directory::find(buf)?.view, owned.view);
            if !same || known.pool != pool {
                return Err(ANOTHERS);
            }
            let wait =
                |buffer| owned.bound.defer(&known.user, buffer, cookie).map_err(|buffer| (buffer, FULL));
            claim(buf)?.give(wait)
        })
    })
}

/// Asks once about the buffers in the deferred queue, as the pool's `on_busy` says. Gives the number of those
/// that returned.
///
/// Thread: owner.
/// Errors: -EPERM on another thread. -EINVAL, -ESTALE for a bad handle.
/// Cost: a callback per user, and one per buffer that is asked about.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_poll_deferred(pool: *mut PoolHandle) -> i64 {
    let poll = |owned: &crate::handles::owner::OwnerCall<'_>| Ok(owned.bound.poll_deferred() as i64);
    to_errno(|| enter(Token::of(pool), poll)).unwrap_or_else(i64::from)
}

/// Reads the counters of a pool's deferred queue into `*stats`, `size` bytes: sizeof(*stats). All are 0 in a
/// pool without a queue.
///
/// Thread: any.
/// Errors: -EINVAL for NULL or a size that no struct has. -EINVAL, -ESTALE for a bad handle.
/// Cost: a lock; nothing on the owner's thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_deferred_stats(
    pool: *mut PoolHandle,
    stats: *mut DeferredStatsC,
    size: usize,
) -> c_int {
    status(|| {
        let now = slots::with_life(Token::of(pool), |life| Ok(life.handle.deferred_stats()))?;
        // SAFETY: the caller's to write for `size` bytes, unless NULL.
        unsafe { sized::write(stats, size, &now.into()) }
    })
}
