//! What an observer sees of a process: its pools, and what else it published.
//!
//! What   plain values, read out of a file once; nothing in them changes, and nothing leads back to the
//!        process.
//! Trust  texts are as the process wrote them, but for what a terminal does not show
//!        ([`is_shown`](super::is_shown)): each such character is replaced by `?`.

use std::path::PathBuf;
use std::time::SystemTime;

pub use crate::holders::view::{
    AGE_EDGES, HolderGroup, HolderView, HoldersView, MOST_GROUPS, MOST_OLDEST, ThreadView,
};
use crate::home::stats::{DeferredStats, Inflight, Stats};
use crate::sys::published_layout::BELOW_POOLS;

/// A process that published its pools, as of one moment.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ProcessView {
    /// The name that it published under.
    pub name: String,
    /// Its process id, in its own pid namespace.
    pub pid: u32,
    /// The same, if whoever looks is in that namespace, so that `/proc` has the process under this number.
    pub pid_here: Option<u32>,
    /// When it published.
    pub started: SystemTime,
    /// The version of pagepool that it uses.
    pub version: String,
    /// Whether it still runs.
    pub life: Life,
    /// Pools and other entries for which the file had no room, and those of
    /// [`not_read`](Self::not_read).
    pub not_shown: u64,
    /// Pools and other entries of the file that could not be read: they are damaged, or changed faster than
    /// they can be read consistently.
    pub not_read: u64,
    /// Its pools, in the order of ids: those that live, and those that ended with buffers out.
    pub pools: Vec<PoolView>,
    /// Its arenas, domains, and what other crates entered.
    pub entries: Vec<EntryView>,
    /// The file that says all this.
    pub file: PathBuf,
}

/// Whether a process still runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Life {
    /// It runs.
    Alive,
    /// It ended without taking its file away: it was killed, or crashed.
    Dead {
        /// The last time that it is known to have run: when it last changed the list of what it publishes,
        /// or called [`sign_of_life`](crate::sign_of_life). The counters themselves carry no time.
        last_sign: SystemTime,
    },
}

/// A pool of another process.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PoolView {
    /// As [`PoolRef::id`](crate::PoolRef::id).
    pub id: u32,
    /// As [`PoolRef::mem_id`](crate::PoolRef::mem_id).
    pub mem_id: u16,
    /// Its name.
    pub name: String,
    /// The area that its pages lie in, as [`Area::id`](crate::Area::id): the `id` of its arena's entry.
    pub area_id: u64,
    /// The thread that it is bound to, if it is bound, and the thread is known.
    pub thread: Option<ThreadView>,
    /// The interface whose queue it serves, if an entry below it says so.
    pub ifindex: Option<u32>,
    /// When it was made.
    pub created: SystemTime,
    /// When it ended, if buffers of it were still out then. Linux: `detach-time`.
    pub detached: Option<SystemTime>,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Its counters.
    pub stats: Stats,
    /// Where its pages are.
    pub inflight: Inflight,
    /// As [`PoolRef::frag_waste`](crate::PoolRef::frag_waste).
    pub frag_waste: u64,
    /// Counters of its deferred queue; all 0 without one.
    pub deferred: DeferredStats,
    /// Who holds its pages, as [`PoolRef::holders`](crate::PoolRef::holders); `None` in a pool made without
    /// [`holders`](crate::PoolParams::holders), and where the file had no room for that.
    pub holders: Option<HoldersView>,
    /// Its parameters: names as in [`PoolParams`](crate::PoolParams), and values.
    pub params: Vec<(String, String)>,
}

impl PoolView {
    /// Bytes of the pages that joined the pool and have not left it. Linux: `inflight-mem`.
    pub fn inflight_bytes(&self) -> u64 {
        (self.inflight.total.max(0) as u64).saturating_mul(self.page_bytes)
    }
}

/// Something else that a process publishes: an arena, a domain, a socket, a port.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EntryView {
    /// What it is: `arena`, `domain`, or what the crate that entered it calls it.
    pub kind: String,
    /// Its id among those of its kind.
    pub id: u64,
    /// The id of what it belongs to: a domain to its arena, a socket to its [pool](Self::pool_id); 0 for
    /// nothing.
    pub parent: u64,
    /// Its name.
    pub name: String,
    /// What does not change.
    pub params: Vec<(String, String)>,
    /// What does.
    pub counters: Vec<(String, u64)>,
}

impl EntryView {
    /// The pool that it belongs to, if it is a `socket`, `nic` or `port`. Entries of other kinds belong to
    /// something else, whose id may be that of a pool as well.
    pub fn pool_id(&self) -> Option<u64> {
        (BELOW_POOLS.contains(&&*self.kind) && self.parent != 0).then_some(self.parent)
    }
}
