//! A thread's token.
//!
//! The token is a number that no other thread ever has; a pool's owner word holds the token of the thread it
//! is bound to. Returns compare that with a word of the thread's that holds its token, or 0 while a
//! `NoDirectRecycle` scope hides it; so the scope costs a return nothing.
//!
//! Cost   the token is plain thread-local memory: one load in an executable, a call in a shared library.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::home::lane_table;
use crate::sys::published_memory::show_thread;

/// The owner word of a pool that is bound to no thread; no thread has this token.
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

/// Who a thread is, also while it hides that.
struct ThreadToken {
    /// 0 until its first use.
    token: Cell<u64>,
    /// Scopes that hide it.
    hidden: Cell<u32>,
}

/// This thread's token as its returns see it: 0 if it was never given one (then it owns no pool), and while
/// it is hidden (then it returns as if it owned none).
#[inline(always)]
pub(crate) fn token() -> u64 {
    // `get` would be a call in each unit of code generation but one: in std `try_with` alone is `#[inline]`.
    SHOWN.try_with(Cell::get).unwrap_or(0)
}

/// This thread's token, given now if it had none, hidden or not. Never reused: 2^64 threads do not happen.
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

/// Takes back one [`hide_token`].
pub(crate) fn show_token() {
    TOKEN.with(|identity| {
        identity.hidden.set(identity.hidden.get() - 1);
        if identity.hidden.get() == 0 {
            SHOWN.with(|shown| shown.set(identity.token.get()));
        }
    });
}

/// Shows who has this thread's token, if it has one, in a file that was published since.
pub(crate) fn show() {
    let token = TOKEN.with(|identity| identity.token.get());
    if token != 0 {
        show_thread(token);
    }
}

/// Prepares this thread for returning buffers: registers its exit hook. Without this call, the first return
/// to a pool of another thread does so. Allocates once per thread.
///
/// ```
/// std::thread::spawn(pagepool::prepare_thread).join().unwrap();
/// ```
pub fn prepare_thread() {
    token_or_new();
    lane_table::prepare();
}
