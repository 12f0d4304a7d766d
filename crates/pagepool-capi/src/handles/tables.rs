//! The tables of arenas, domains, shared buffers and the other objects that are rarely made.

use std::sync::Arc;
use std::sync::atomic::AtomicU8;

use ::pagepool::{Arena, DeferredUser, DmaDomain, PageRef, Provider, SharedBuf};
use pagepool_skb::{SkBuff, SkbCache};

use crate::handles::binding::EndedPool;
use crate::handles::table::HandleTable;
use crate::handles::token::{HandleKind, Token};
use crate::handles::view::PoolView;

pub(crate) static ARENAS: HandleTable<ArenaEntry> = HandleTable::new(HandleKind::Arena, None);
pub(crate) static DOMAINS: HandleTable<Arc<dyn DmaDomain>> = HandleTable::new(HandleKind::Domain, None);
pub(crate) static SHARED_BUFS: HandleTable<SharedEntry> = HandleTable::new(HandleKind::Shared, None);
pub(crate) static PAGE_REFS: HandleTable<PageRef> = HandleTable::new(HandleKind::PageRef, None);
pub(crate) static ENDED_POOLS: HandleTable<EndedPool> = HandleTable::new(HandleKind::Shutdown, None);
pub(crate) static DEFERRED_USERS: HandleTable<Arc<RegisteredUser>> =
    HandleTable::new(HandleKind::DeferredUser, None);
/// The packets. A call on one is refused, and does not wait, during another call on it.
pub(crate) static SKBS: HandleTable<SkBuff> = HandleTable::new(
    HandleKind::Skb,
    Some(c"another call is using this packet: on another thread, or the call that runs this callback"),
);
pub(crate) static SKB_CACHES: HandleTable<SkbCache> = HandleTable::new(HandleKind::SkbCache, None);

#[derive(Clone)]
pub(crate) struct ArenaEntry {
    pub(crate) provider: Arc<dyn Provider>,
    /// The provider, if it is memory that the CPU can read.
    pub(crate) arena: Option<Arc<Arena>>,
    /// The node on which threads appear to run, if nodes are simulated.
    pub(crate) here: Arc<AtomicU8>,
}

#[derive(Clone)]
pub(crate) struct SharedEntry {
    pub(crate) shared: SharedBuf,
    pub(crate) view: &'static PoolView,
}

pub(crate) struct RegisteredUser {
    pub(crate) user: DeferredUser,
    pub(crate) pool: Token,
}
