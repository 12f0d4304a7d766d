//! A thread's token.
//!
//! A token is a number that no other thread ever has. A pool's owner word holds the token of the thread it
//! is bound to. A return compares the owner word with its thread's visible token, which is 0 in a
//! `NoDirectRecycle` scope. So the scope costs a return nothing.
//!
//! Cost   the token is plain thread-local memory: one load in an executable, a call in a shared library.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::recycle::lane_table;
use crate::sys::published_memory::show_thread;

/// The owner word of an unbound pool; no thread has this token.
pub(crate) const NOBODY: u64 = 1;

#[cfg(not(loom))]
thread_local! {
    static SHOWN: Cell<u64> = const { Cell::new(0) };
    static TOKEN: ThreadToken = const { ThreadToken { token: Cell::new(0), hidden: Cell::new(0) } };
}
#[cfg(loom)]
loom::thread_local! {
    static SHOWN: Cell<u64> = Cell::new(0);
    static TOKEN: ThreadToken = ThreadToken { token: Cell::new(0), hidden: Cell::new(0) };
}

/// A thread's token, even while hidden.
struct ThreadToken {
    /// 0 until first used.
    token: Cell<u64>,
    /// The number of scopes that hide it.
    hidden: Cell<u32>,
}

/// This thread's token as its returns see it. 0 if it has none yet (then it owns no pool), and while hidden
/// (then it returns as if it owned none).
#[inline(always)]
pub(crate) fn token() -> u64 {
    // `get` would be a call in every codegen unit but one: in std only `try_with` is `#[inline]`.
    SHOWN.try_with(Cell::get).unwrap_or(0)
}

/// This thread's token, hidden or not; makes one if it has none. Never reused: 2^64 threads do not occur.
pub(crate) fn token_or_new() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(NOBODY + 1);
    TOKEN.with(|identity| {
        if identity.token.get() == 0 {
            identity.token.set(NEXT.fetch_add(1, Relaxed));
            show_thread(identity.token.get());
        }
        if identity.hidden.get() == 0 {
            SHOWN.with(|shown| shown.set(identity.token.get()));
        }
        identity.token.get()
    })
}

/// Hides this thread's token from its returns, until [`show_token`] was called as often.
pub(crate) fn hide_token() {
    TOKEN.with(|identity| identity.hidden.set(identity.hidden.get() + 1));
    SHOWN.with(|shown| shown.set(0));
}

/// Undoes one [`hide_token`].
pub(crate) fn show_token() {
    TOKEN.with(|identity| {
        identity.hidden.set(identity.hidden.get() - 1);
        if identity.hidden.get() == 0 {
            SHOWN.with(|shown| shown.set(identity.token.get()));
        }
    });
}

/// Writes this thread's id and name under its token, if it has one, into a file published later.
pub(crate) fn show() {
    let token = TOKEN.with(|identity| identity.token.get());
    if token != 0 {
        show_thread(token);
    }
}

/// Prepares this thread for returning buffers: registers its exit hook. Otherwise the first return to a pool
/// of another thread does so. Allocates once per thread.
///
/// ```
/// std::thread::spawn(pagepool::prepare_thread).join().unwrap();
/// ```
pub fn prepare_thread() {
    token_or_new();
    lane_table::prepare();
}
