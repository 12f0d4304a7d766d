//! How the end of a pool is seen: by the last return, and by those that wait.
//!
//! Pairs  [`EndWatch::finish`] (Release) -> [`EndWatch::is_finished`] (Acquire): the pool is freed.
//!        [`EndWatch::account`] (AcqRel) -> the call that finds 0: it sees everything the others did to the
//!        pool.

use std::sync::atomic::AtomicU32 as Flag;
use std::time::Duration;

use crate::sys::call::{futex_wait, futex_wake_all};
use crate::sys::sync::{AtomicI64, Ordering};

/// Counts the pages out of a pool that has ended. Lives as long as the pool and everyone who watches its end.
#[derive(Debug)]
pub(crate) struct EndWatch {
    /// It starts at 0, and late returns may take it below. It is 0 again only after the end added the pages
    /// out and all of them returned.
    remaining: AtomicI64,
    done: Flag,
}

impl EndWatch {
    pub(crate) fn new() -> Self {
        Self { remaining: AtomicI64::new(0), done: Flag::new(0) }
    }

    /// The pool has ended with `out` pages out. Says whether all have returned, so that the caller frees the
    /// pool.
    pub(crate) fn expect(&self, out: i64) -> bool {
        self.remaining.fetch_add(out, Ordering::AcqRel) + out == 0
    }

    /// `n` pages returned late. Says whether they were the last, so that the caller frees the pool.
    pub(crate) fn account(&self, n: i64) -> bool {
        self.remaining.fetch_sub(n, Ordering::AcqRel) == n
    }

    /// Pages of a pool that has ended that are still out.
    pub(crate) fn out(&self) -> i64 {
        self.remaining.load(Ordering::Relaxed)
    }

    /// The pool is freed: wakes those that wait.
    pub(crate) fn finish(&self) {
        self.done.store(1, Ordering::Release); // pairs with is_finished()
        futex_wake_all(&self.done);
    }

    /// Whether the pool is freed.
    pub(crate) fn is_finished(&self) -> bool {
        self.done.load(Ordering::Acquire) != 0 // pairs with finish()
    }

    /// Sleeps until the pool is freed, at most `limit`. May return early.
    pub(crate) fn sleep(&self, limit: Option<Duration>) {
        futex_wait(&self.done, 0, limit);
    }
}
