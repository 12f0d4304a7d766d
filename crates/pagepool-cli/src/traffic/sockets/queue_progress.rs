//! A progress line: on how many queues, or pairs of queues, work has begun or ended.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::report::output;

/// Work on queues, by any number of threads.
pub struct QueueProgress {
    doing: &'static str,
    what: &'static str,
    all: usize,
    begun: AtomicUsize,
}

impl QueueProgress {
    /// `doing`: the work. It is on `all` queues of one interface, or pairs of queues of several.
    pub fn new(doing: &'static str, interfaces: usize, all: usize) -> Self {
        let what = if interfaces == 1 { "queues" } else { "pairs of queues" };
        Self { doing, what, all, begun: AtomicUsize::new(0) }
    }

    /// Shows that the work on one more begins.
    pub fn begin_one(&self) {
        self.show(self.begun.fetch_add(1, Ordering::Relaxed) + 1);
    }

    /// Shows that this many are done.
    pub fn show(&self, this: usize) {
        let Self { doing, what, all, .. } = self;
        output::progress(format_args!("{doing} {what}: {this} of {all}"));
    }
}
