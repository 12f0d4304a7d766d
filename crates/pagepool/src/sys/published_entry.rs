//! Entries of the published file beside pools: a name, parameters, and counters that their owner sets.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Error;
use crate::sys::placed::{Placed, block_of};
use crate::sys::published_layout::{BlockAt, KIND_BYTES, MOST_COUNTERS, MOST_NAMES, POOL_KIND};
use crate::sys::published_memory::{PublishedRow, entry_row};

/// Something that others see in the file which this process publishes. It goes when this is dropped.
///
/// ```
/// let params = [("mode", "zero copy")];
/// let socket = pagepool::publish_entry("socket", 7, 0, "eth0:0", &params, &["rx_dropped"]);
/// assert!(socket.is_none()); // nothing is published in this process
/// ```
#[derive(Debug)]
pub struct PublishedEntry {
    // Before the counters: nobody is led to them any more when they go.
    _row: PublishedRow,
    /// The counters, and behind them their names.
    block: Placed<[AtomicU64]>,
    counters: usize,
}

/// Shows something to those who observe this process: `kind` says what it is, `id` which of that kind,
/// `parent` the id of what it belongs to (0: nothing): of a `socket`, `nic` and `port` a pool, whose id is
/// [`PoolRef::id`](crate::PoolRef::id). The counters begin at 0. Any thread.
///
/// Limits: 16 bytes of `kind`, which is not `pool`; 256 counters, and 4096 bytes of their names with one
/// more for each. Neither kind nor those names may have line ends or zero bytes. Of `name` the first 64 bytes
/// are shown, of `params` the first whole ones that fit into 688 bytes.
///
/// `None` if the process does not publish, its file is full, or a limit is exceeded: then nothing is to be
/// set. What a publishing process cannot show is counted in `not_shown`.
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

/// Why [`publish_entry`] refuses such an entry in every process: a reader would misread it.
///
/// ```
/// let refusal = pagepool::check_entry("pool", &[]).unwrap_err().to_string();
/// assert_eq!(refusal, "kind is \"pool\", but must be another word: pools are published by themselves");
/// ```
pub fn check_entry(kind: &str, counters: &[&str]) -> Result<(), Error> {
    let is_line = |text: &&str| !text.contains(['\n', '\0']);
    let names: usize = counters.iter().map(|name| name.len() + 1).sum();
    let refused = |field, value: &dyn fmt::Debug, must_be: String| {
        Err(Error::parameter(field, format_args!("{value:?}"), must_be))
    };
    match counters.iter().find(|name| !is_line(name)) {
        _ if kind == POOL_KIND => {
            refused("kind", &kind, "another word: pools are published by themselves".into())
        }
        _ if kind.len() > KIND_BYTES || !is_line(&kind) => {
            refused("kind", &kind, format!("up to {KIND_BYTES} bytes in one line"))
        }
        Some(name) => refused("counters", name, "names of one line each".into()),
        None if counters.len() > MOST_COUNTERS => {
            refused("counters", &counters.len(), format!("{MOST_COUNTERS} names at most"))
        }
        None if names > MOST_NAMES => {
            let must_be = format!("{MOST_NAMES} at most: use shorter names");
            refused("bytes of the counters' names", &names, must_be)
        }
        None => Ok(()),
    }
}

/// Parameters as the file has them.
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
    /// Sets a counter, by its place in the list. One plain store; any thread. Panics if the list is
    /// shorter.
    #[inline]
    pub fn set(&self, counter: usize, value: u64) {
        self.counter(counter).store(value, Ordering::Relaxed);
    }

    /// Adds to a counter, or takes away from it (`n.wrapping_neg()`). Any thread. Panics as
    /// [`set`](Self::set) does.
    pub fn add(&self, counter: usize, n: u64) {
        self.counter(counter).fetch_add(n, Ordering::Relaxed);
    }

    fn counter(&self, at: usize) -> &AtomicU64 {
        &self.block[..self.counters][at]
    }
}
