//! Entries of the published file beside pools: a name, parameters, and counters that their owner sets.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::sys::placed::{Placed, block_of};
use crate::sys::published_layout::BlockAt;
use crate::sys::published_memory::{PublishedRow, entry_row};

/// Something that others see in the file which this process publishes. It goes when this is dropped.
///
/// ```
/// // Nothing is published in this process, so there is nobody to show it to.
/// let socket = pagepool::publish_entry("socket", 7, 0, "eth0:0", &[("mode", "zero copy")],
/// &["rx_dropped"]); assert!(socket.is_none());
/// ```
#[derive(Debug)]
pub struct PublishedEntry {
    // Before the counters: nobody is led to them any more when they go.
    _row: PublishedRow,
    /// The counters, and behind them their names.
    block: Placed<[AtomicU64]>,
    counters: usize,
}

/// Shows something to those who observe this process: `kind` says what it is (at most 16 bytes), `id`
/// which of that kind, `parent` the id of what it belongs to (0: nothing). The counters begin at 0. Any
/// thread.
///
/// `None` if the process does not publish, or its file is full: then nothing is to be set.
pub fn publish_entry(
    kind: &str,
    id: u64,
    parent: u64,
    name: &str,
    params: &[(&str, &str)],
    counters: &[&str],
) -> Option<PublishedEntry> {
    let mut block = None;
    let row = PublishedRow::enter(|| {
        let placed = block.insert(counters_and_names(counters));
        let mut row = entry_row(kind, id, parent, name, &lines(params));
        if !placed.is_empty() {
            row.block = BlockAt { count: counters.len() as u64, ..block_of(&**placed, 1)? };
        }
        Some(row)
    })?;
    Some(PublishedEntry { _row: row, block: block?, counters: counters.len() })
}

/// Parameters as the file has them.
pub(crate) fn lines(params: &[(&str, &str)]) -> String {
    params.iter().map(|(key, value)| format!("{key}={value}\n")).collect()
}

fn counters_and_names(names: &[&str]) -> Placed<[AtomicU64]> {
    let text = names.join("\n").into_bytes();
    let words = text
        .chunks(8)
        .map(|part| u64::from_ne_bytes(std::array::from_fn(|at| part.get(at).copied().unwrap_or(0))));
    let all: Vec<u64> = std::iter::repeat_n(0, names.len()).chain(words).collect();
    Placed::all(all.into_iter().map(AtomicU64::new))
}

impl PublishedEntry {
    /// Sets a counter, by its place in the list. One plain store; any thread.
    #[inline]
    pub fn set(&self, counter: usize, value: u64) {
        self.counter(counter).store(value, Ordering::Relaxed);
    }

    /// Adds to a counter, or takes away from it (`n.wrapping_neg()`). Any thread.
    pub fn add(&self, counter: usize, n: u64) {
        self.counter(counter).fetch_add(n, Ordering::Relaxed);
    }

    fn counter(&self, at: usize) -> &AtomicU64 {
        &self.block[..self.counters][at]
    }
}
