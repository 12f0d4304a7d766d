//! What an observer sees of a process: its pools and other entries.
//!
//! What   plain values, read once from a file. They never change, and have no connection to the process.
//! Trust  texts are as the process wrote them, except that `?` replaces each character that a terminal does
//!        not show ([`is_shown`](crate::is_shown)).

use std::path::PathBuf;
use std::time::SystemTime;

use pagepool::published::layout::BELOW_POOLS;
use pagepool::{DeferredStats, HoldersView, Inflight, Stats, ThreadView};

/// A process that published its pools, at one moment.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ProcessView {
    /// The name under which it published.
    pub name: String,
    /// Process id in its own pid namespace.
    pub pid: u32,
    /// Process id, if the observer is in that namespace too: `/proc` has the process under it.
    pub pid_here: Option<u32>,
    /// When it published.
    pub started: SystemTime,
    /// Its version of pagepool.
    pub version: String,
    /// Whether it still runs.
    pub life: Life,
    /// Number of pools and entries that are missing here: the file had no room for them, or they are
    /// [`not_read`](Self::not_read).
    pub not_shown: u64,
    /// Number of pools and entries that could not be read: damaged, or changing too fast for a consistent
    /// read.
    pub not_read: u64,
    /// Its pools by id: live ones, and ended ones with buffers out.
    pub pools: Vec<PoolView>,
    /// Its arenas and domains, and entries of other crates.
    pub entries: Vec<EntryView>,
    /// The published file.
    pub file: PathBuf,
}

impl ProcessView {
    /// The buffers of a pool that wait for packets at its device, of those that are out; at the last time
    /// that the process published. `None` if no device of the pool reports it.
    pub fn waiting_for_packets(&self, pool: &PoolView) -> Option<u64> {
        let below = self.entries.iter().filter(|entry| entry.pool_id() == Some(pool.id.into()));
        sum(below, "in_rx")
    }

    /// The buffers, of any pool, that devices were sending when the process last published. `None` if no
    /// device reports it.
    pub fn being_sent(&self) -> Option<u64> {
        sum(self.entries.iter(), "in_tx")
    }
}

/// The value of a parameter.
pub(crate) fn param<'a>(params: &'a [(String, String)], name: &str) -> Option<&'a str> {
    params.iter().find(|(key, _)| key == name).map(|(_, value)| &**value)
}

/// The places of a pool's pages.
pub fn places(pages: &Inflight) -> [(&'static str, u64); 7] {
    [
        ("cache", pages.cache),
        ("lanes", pages.lanes),
        ("ring", pages.ring),
        ("frag", pages.frag),
        ("deferred", pages.deferred),
        ("uncollected", pages.uncollected),
        ("out", pages.out),
    ]
}

/// The sum of a counter over all entries; `None` if no entry has it.
fn sum<'a>(entries: impl Iterator<Item = &'a EntryView>, name: &str) -> Option<u64> {
    let counters = entries.flat_map(|entry| &entry.counters).filter(|(counter, _)| counter == name);
    counters.map(|(_, value)| *value).reduce(u64::saturating_add)
}

/// Whether a process still runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Life {
    /// It runs.
    Alive,
    /// It was killed or crashed, and left its file.
    Dead {
        /// When it is last known to have run: when it changed its list of pools and entries, or called
        /// [`sign_of_life`](pagepool::sign_of_life). Counters carry no time.
        last_sign: SystemTime,
    },
}

/// A pool of another process.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PoolView {
    /// The pool's id: [`PoolRef::id`](pagepool::PoolRef::id).
    pub id: u32,
    /// The memory id: [`PoolRef::mem_id`](pagepool::PoolRef::mem_id).
    pub mem_id: u16,
    /// Its name.
    pub name: String,
    /// The area of its pages, [`Area::id`](pagepool::Area::id): the `id` of its arena's entry.
    pub area_id: u64,
    /// The thread to which it is bound, if any and known.
    pub thread: Option<ThreadView>,
    /// The interface whose queue it serves, if an entry below it has it.
    pub ifindex: Option<u32>,
    /// When it was made.
    pub created: SystemTime,
    /// When it ended, if buffers were still out. Linux: `detach-time`.
    pub detached: Option<SystemTime>,
    /// Bytes per page.
    pub page_bytes: u64,
    /// Its counters.
    pub stats: Stats,
    /// Where its pages are.
    pub inflight: Inflight,
    /// Bytes of pages that belonged to no fragment: [`PoolRef::frag_waste`](pagepool::PoolRef::frag_waste).
    pub frag_waste: u64,
    /// Counters of its deferred queue; all 0 without a queue.
    pub deferred: DeferredStats,
    /// The holders of its pages, see [`PoolRef::holders`](pagepool::PoolRef::holders); `None` without
    /// [`holders`](pagepool::PoolParams::holders), and if the file had no room.
    pub holders: Option<HoldersView>,
    /// Its parameters: names as in [`PoolParams`](pagepool::PoolParams), and values.
    pub params: Vec<(String, String)>,
}

impl PoolView {
    /// Bytes of the pages in [`inflight`](Self::inflight). Linux: `inflight-mem`.
    pub fn inflight_bytes(&self) -> u64 {
        (self.inflight.total.max(0) as u64).saturating_mul(self.page_bytes)
    }
}

/// Another published thing: an arena, a domain, a socket, a port, a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EntryView {
    /// Its kind: `arena`, `domain`, or the name that another crate chose.
    pub kind: String,
    /// Its id, unique in its kind.
    pub id: u64,
    /// The id of its parent: a domain's arena, a socket's [pool](Self::pool_id); 0 for none.
    pub parent: u64,
    /// Its name.
    pub name: String,
    /// Values that do not change.
    pub params: Vec<(String, String)>,
    /// Values that change.
    pub counters: Vec<(String, u64)>,
}

impl EntryView {
    /// Its pool, if it is a `socket`, `nic` or `port`. Entries of other kinds have other parents, whose id
    /// may equal a pool's.
    pub fn pool_id(&self) -> Option<u64> {
        (BELOW_POOLS.contains(&&*self.kind) && self.parent != 0).then_some(self.parent)
    }
}
