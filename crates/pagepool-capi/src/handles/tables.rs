//! What the tokens of arenas, domains, shared buffers and the other rarely made things stand for.

use std::sync::Arc;
use std::sync::atomic::AtomicU8;

use ::pagepool::{Arena, DeferredUser, DmaDomain, PageRef, Provider, SharedBuf, SkbCache};

use crate::error::CallResult;
use crate::handles::binding::EndedPool;
use crate::handles::table::HandleTable;
use crate::handles::token::{HandleKind, Token};

pub(crate) static ARENAS: HandleTable<ArenaEntry> = HandleTable::new(HandleKind::Arena);
pub(crate) static DOMAINS: HandleTable<Arc<dyn DmaDomain>> = HandleTable::new(HandleKind::Domain);
pub(crate) static SHARED_BUFS: HandleTable<SharedBuf> = HandleTable::new(HandleKind::Shared);
pub(crate) static PAGE_REFS: HandleTable<PageRef> = HandleTable::new(HandleKind::PageRef);
pub(crate) static ENDED_POOLS: HandleTable<EndedPool> = HandleTable::new(HandleKind::Shutdown);
pub(crate) static DEFERRED_USERS: HandleTable<Arc<RegisteredUser>> =
    HandleTable::new(HandleKind::DeferredUser);
pub(crate) static SKB_CACHES: HandleTable<SkbCache> = HandleTable::new(HandleKind::SkbCache);

/// An arena.
#[derive(Clone)]
pub(crate) struct ArenaEntry {
    pub(crate) provider: Arc<dyn Provider>,
    /// The same, if it is memory that the CPU can read.
    pub(crate) arena: Option<Arc<Arena>>,
    /// The node that threads run on, where nodes are pretended.
    pub(crate) here: Arc<AtomicU8>,
}

/// A user, and the pool that knows it.
pub(crate) struct RegisteredUser {
    pub(crate) user: DeferredUser,
    pub(crate) pool: Token,
}

/// The arena of a token.
pub(crate) fn arena(token: Token) -> CallResult<ArenaEntry> {
    ARENAS.with(token, ArenaEntry::clone)
}

/// The domain of a token.
pub(crate) fn domain(token: Token) -> CallResult<Arc<dyn DmaDomain>> {
    DOMAINS.with(token, Arc::clone)
}

/// One more reader of a shared buffer.
pub(crate) fn shared_buf(token: Token) -> CallResult<SharedBuf> {
    SHARED_BUFS.with(token, SharedBuf::clone)
}

/// The cache of a token.
pub(crate) fn skb_cache(token: Token) -> CallResult<SkbCache> {
    SKB_CACHES.with(token, SkbCache::clone)
}
