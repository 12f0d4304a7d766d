//! The types that C knows by name only. They have no values: a pointer to one is a token.
//!
//! Written out one by one, because cbindgen does not expand macros.

/// A pool of pages: pagepool_create creates it, pagepool_destroy destroys it.
pub enum PoolHandle {}

/// An arena: memory from which pools take pages. pagepool_arena_create creates it.
pub enum ArenaHandle {}

/// A buffer: a page of a pool, or a fragment of a page. The owner allocates it; any thread returns it, once.
pub enum BufHandle {}

/// A batch: whole pages of one pool that move together, without a handle for each. pagepool_batch_create
/// creates it.
pub enum BatchHandle {}

/// A reference to a page, which keeps its memory from being used again: pagepool_buf_page_ref takes it.
pub enum PageRefHandle {}

/// A domain: the address space of a device. pagepool_domain_create, _identity and _offset create it.
pub enum DomainHandle {}

/// One reader's handle of a shared buffer: pagepool_buf_share and pagepool_shared_clone make it.
pub enum SharedHandle {}

/// A packet for network stacks: pagepool_skb_from_buf, _alloc and _clone create it.
pub enum SkbHandle {}

/// A cache for the descriptions of packets: pagepool_skb_cache_create creates it.
pub enum SkbCacheHandle {}

/// A user of deferred buffers: pagepool_deferred_user_create registers it.
pub enum DeferredUserHandle {}

/// The shutdown of a pool: pagepool_destroy_watched creates it, pagepool_shutdown_wait waits for it.
pub enum ShutdownHandle {}
