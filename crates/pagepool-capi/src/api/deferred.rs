//! The waiting queue: buffers whose user gives no sign when it is done, and only answers "still in use?".

// UNSAFETY: functions with fixed names; callers' structs are read, their places written and their callbacks called.
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

/// Somebody who uses buffers without owning them, and says on request whether one is in use still: a kernel that sends from
/// them, a count kept elsewhere. Callbacks are called inside allocations and polls of the pool's owner, and by whoever asks
/// after the pool once it is destroyed, on any thread. They may use the library, but not unbind or destroy the pool; they
/// must not throw or longjmp, and should take a bounded time. Each gets `arg` first.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DeferredUserOpsC {
    /// sizeof(struct pagepool_deferred_user_ops).
    pub size: usize,
    /// The callbacks' first argument.
    pub arg: *mut c_void,
    /// Not 0 while the buffer that was queued with this cookie is in use. Once this says 0 the buffer goes home, so all that
    /// was done with the bytes must be over. Required.
    pub in_use: Option<unsafe extern "C" fn(arg: *mut c_void, cookie: u64) -> c_int>,
    /// Called once before each round of questions, for a user that must look first, at a socket's error queue say. May be NULL.
    pub refresh: Option<unsafe extern "C" fn(arg: *mut c_void)>,
    /// Called once when nothing waits for the user any more and its handle is put, so that `arg` may be freed. May be NULL.
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

/// Makes a user known to a pool that has a waiting queue (`defer_capacity`).
///
/// Thread: the owner's. Ownership: `*user` is the caller's, to be put once. Errors: -EOPNOTSUPP in a pool without a queue; -EINVAL
/// names what is missing; -EPERM, -ESTALE; `release` is not called then. Cost: allocates.
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

/// Lets go of a user. What waits for it is asked after until it is done; then `release` is called, at the pool's next poll.
///
/// Thread: any. Ownership: the handle is over. Errors: -EINVAL, -ESTALE. Cost: a lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_deferred_user_put(user: *mut DeferredUserHandle) -> c_int {
    status(|| {
        drop(DEFERRED_USERS.remove(Token::of(user))?);
        Ok(())
    })
}

/// Parts with a buffer that its user reads still: it waits in its pool, first in, first out, until the user denies the cookie,
/// which is asked by refills that find the cache empty, and by pagepool_poll_deferred. In a pool that was destroyed it is asked by
/// pagepool_shutdown_wait and pagepool_shutdown_report, and after a plain pagepool_destroy whenever a pool is made or destroyed.
///
/// Thread: the owner's. Ownership: the handle is over, unless it is refused. Errors: -ENOBUFS when `defer_capacity` buffers wait;
/// -EINVAL for another pool's buffer or user; -EPERM, -ESTALE. Cost: a lookup, two locks that are held for moments; no
/// allocation.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_defer(
    pool: *mut PoolHandle,
    user: *mut DeferredUserHandle,
    buf: *mut BufHandle,
    cookie: u64,
) -> c_int {
    const FULL: CallError = CallError::fixed(
        libc::ENOBUFS,
        c"the waiting queue is full: poll it, or make the pool with more defer_capacity",
    );
    const ANOTHERS: CallError = CallError::fixed(libc::EINVAL, c"the buffer or the user is another pool's");
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

/// Asks after the buffers that wait, as many as there are, by the pool's `on_busy`; gives how many went home.
///
/// Thread: the owner's. Errors: -EPERM, -EINVAL, -ESTALE. Cost: per user and per buffer asked after a callback.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_poll_deferred(pool: *mut PoolHandle) -> i64 {
    let poll = |owned: &crate::handles::owner::OwnerCall<'_>| Ok(owned.bound.poll_deferred() as i64);
    to_errno(|| enter(Token::of(pool), poll)).unwrap_or_else(i64::from)
}

/// Reads the counters of a pool's deferred queue into `*stats`, of which `size` is the sizeof; all 0 in a pool without one.
///
/// Thread: any. Errors: -EINVAL, -ESTALE. Cost: a lock; nothing to the owner.
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
