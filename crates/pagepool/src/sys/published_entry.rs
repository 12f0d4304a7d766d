//! Entries of the published file that are not pools: a name, parameters and counters.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Error;
use crate::sys::placed::{Placed, block_of};
use crate::sys::published_layout::{BlockAt, KIND_BYTES, MOST_COUNTERS, MOST_NAMES, POOL_KIND};
use crate::sys::published_memory::{PublishedRow, entry_row};

/// An entry of the file that this process publishes. Dropping it removes the entry.
///
/// ```
/// let params = [("mode", "zero copy")];
/// let socket = pagepool::publish_entry("socket", 7, 0, "eth0:0", &params, &["rx_dropped"]);
/// assert!(socket.is_none()); // nothing is published in this process
/// ```
#[derive(Debug)]
pub struct PublishedEntry {
    // Before the counters: the row is freed before they are.
    _row: PublishedRow,
    /// The counters, followed by their names.
    block: Placed<[AtomicU64]>,
    counters: usize,
}

/// Publishes an entry. `kind` says what it is, `id` which one of that kind, `parent` the id of what it
/// belongs to (0: nothing). The parent of a `socket`, `nic` or `port` is a pool, by its
/// [`PoolRef::id`](crate::PoolRef::id). The counters begin at 0. Any thread.
///
/// Limits: 16 bytes of `kind`, which is not `pool`; 256 counters; 4096 bytes of their names, counting one
/// more for each. Neither the kind nor these names may contain line ends or zero bytes. The first 64 bytes
/// of `name` are shown, and as many whole `params` as fit into 688 bytes.
///
/// `None` if the process does not publish, its file is full, or a limit is exceeded. A publishing process
/// counts what it cannot show in `not_shown`.
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
        check_entry(kind, counters).ok()?;
        let placed = block.insert(counters_and_names(counters));
        let mut row = entry_row(kind, id, parent, name, &lines(params));
        if !placed.is_empty() {
            row.block = BlockAt { count: counters.len() as u64, ..block_of(&**placed, 1)? };
        }
        Some(row)
    })?;
    Some(PublishedEntry { _row: row, block: block?, counters: counters.len() })
}

/// Fails with the reason if [`publish_entry`] refuses this entry in every process: a reader would misread
/// it.
///
/// ```
/// let refusal = pagepool::check_entry("pool", &[]).unwrap_err().to_string();
/// assert_eq!(refusal, "kind is \"pool\", but must be another word: pools are published automatically");
/// ```
pub fn check_entry(kind: &str, counters: &[&str]) -> Result<(), Error> {
    let is_line = |text: &str| !text.contains(['\n', '\0']);
    let names: usize = counters.iter().map(|name| name.len() + 1).sum();
    let is_other = kind != POOL_KIND;
    let must_be = "another word: pools are published automatically";
    Error::require(is_other, "kind", format_args!("{kind:?}"), must_be)?;
    let fits = kind.len() <= KIND_BYTES && is_line(kind);
    let must_be = format!("up to {KIND_BYTES} bytes in one line");
    Error::require(fits, "kind", format_args!("{kind:?}"), must_be)?;
    for name in counters {
        Error::require(is_line(name), "counters", format_args!("{name:?}"), "names of one line each")?;
    }
    let must_be = format!("{MOST_COUNTERS} names at most");
    Error::require(counters.len() <= MOST_COUNTERS, "counters", counters.len(), must_be)?;
    let must_be = format!("{MOST_NAMES} at most: use shorter names");
    Error::require(names <= MOST_NAMES, "bytes of the counters' names", names, must_be)
}

/// Parameters as lines of `key=value`.
pub(crate) fn lines(params: &[(&str, &str)]) -> String {
    let line = |text: &str| text.replace(['\n', '\0'], "?");
    params.iter().map(|(key, value)| format!("{}={}\n", line(key), line(value))).collect()
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
    /// Sets the counter at this index: one plain store. Any thread. Panics if the index is out of range.
    #[inline]
    pub fn set(&self, counter: usize, value: u64) {
        self.counter(counter).store(value, Ordering::Relaxed);
    }

    /// Adds to the counter at this index, or subtracts (`n.wrapping_neg()`). Any thread. Panics if the index
    /// is out of range.
    pub fn add(&self, counter: usize, n: u64) {
        self.counter(counter).fetch_add(n, Ordering::Relaxed);
    }

    fn counter(&self, at: usize) -> &AtomicU64 {
        &self.block[..self.counters][at]
    }
}
