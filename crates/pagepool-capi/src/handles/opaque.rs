//! The types that C knows by name only. None of them is ever made: a pointer to one is a token.
//!
//! Written out one by one, because the tool that writes the header does not look into macros.

/// A pool: pagepool_create makes it, pagepool_destroy ends it.
pub struct PoolHandle {
    _never: [u8; 0],
}

/// A source of pages that pools share: pagepool_arena_create makes it.
pub struct ArenaHandle {
    _never: [u8; 0],
}

/// A page of a pool, or a fragment of one. The owner allocates it, any thread returns it, once.
pub struct BufHandle {
    _never: [u8; 0],
}

/// A reference to a page's memory: pagepool_buf_page_ref takes it.
pub struct PageRefHandle {
    _never: [u8; 0],
}

/// An address space of a device: pagepool_domain_create, _identity and _offset make it.
pub struct DomainHandle {
    _never: [u8; 0],
}

/// One reader's handle of a shared buffer: pagepool_buf_share makes it.
pub struct SharedHandle {
    _never: [u8; 0],
}

/// A packet for stacks: pagepool_skb_from_buf and pagepool_skb_alloc make it.
pub struct SkbHandle {
    _never: [u8; 0],
}

/// A cache for the descriptions of packets: pagepool_skb_cache_create makes it.
pub struct SkbCacheHandle {
    _never: [u8; 0],
}

/// A user of deferred buffers: pagepool_deferred_user_create makes it.
pub struct DeferredUserHandle {
    _never: [u8; 0],
}

/// The end of a pool: pagepool_destroy_watched makes it.
pub struct ShutdownHandle {
    _never: [u8; 0],
}
