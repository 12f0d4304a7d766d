//! Detects the end of a pool, for the last return and for waiting threads.
//!
//! Pairs  [`EndWatch::finish`] (Release) -> [`EndWatch::is_finished`] (Acquire): the pool is freed.
//!        [`EndWatch::account`] (AcqRel) -> the call that reaches 0, which then sees all that the others did
//!        to the pool.

use std::sync::atomic::AtomicU32 as Flag;
use std::time::Duration;

use crate::sys::call::{futex_wait, futex_wake_all};
use crate::sys::sync::{AtomicI64, Ordering};

/// Counts the pages out of a pool that has ended. Lives as long as the pool and all watchers of its end.
#[derive(Debug)]
pub(crate) struct EndWatch {
    /// Starts at 0. Late returns may take it below 0. It returns to 0 only after the end added the pages that
    /// were out, and all of them returned.
    remaining: AtomicI64,
    done: Flag,
}

impl EndWatch {
    pub(crate) fn new() -> Self {
        Self { remaining: AtomicI64::new(0), done: Flag::new(0) }
    }

    /// The pool has ended with `out` pages out. Returns whether all have returned: then the caller frees the
    /// pool.
    pub(crate) fn expect(&self, out: i64) -> bool {
        self.remaining.fetch_add(out, Ordering::AcqRel) + out == 0
    }

    /// `n` pages returned late. Returns whether they were the last: then the caller frees the pool.
    pub(crate) fn account(&self, n: i64) -> bool {
        self.remaining.fetch_sub(n, Ordering::AcqRel) == n
    }

    /// Pages still out of a pool that has ended.
    pub(crate) fn out(&self) -> i64 {
        self.remaining.load(Ordering::Relaxed)
    }

    /// The pool is freed: wakes waiting threads.
    pub(crate) fn finish(&self) {
        self.done.store(1, Ordering::Release); // pairs with is_finished()
        futex_wake_all(&self.done);
    }

    /// Whether the pool is freed.
    pub(crate) fn is_finished(&self) -> bool {
        self.done.load(Ordering::Acquire) != 0 // pairs with finish()
    }

    /// Sleeps until the pool is freed, for at most `limit`. May return early.
    pub(crate) fn sleep(&self, limit: Option<Duration>) {
        futex_wait(&self.done, 0, limit);
    }
}
