//! The types that C knows by name only. None of them is ever made: a pointer to one is a token.
//!
//! Written out one by one, because the tool that writes the header does not look into macros.

/// A pool: made by pagepool_create, over with pagepool_destroy.
pub struct PoolHandle {
    _never: [u8; 0],
}

/// A source of pages, shared by pools: made by pagepool_arena_create.
pub struct ArenaHandle {
    _never: [u8; 0],
}

/// A page of a pool, or a fragment of one: allocated by the owner, returned by any thread, once.
pub struct BufHandle {
    _never: [u8; 0],
}

/// A reference to a page's memory: made by pagepool_buf_page_ref.
pub struct PageRefHandle {
    _never: [u8; 0],
}

/// An address space that a device sees: made by pagepool_domain_create and its kin.
pub struct DomainHandle {
    _never: [u8; 0],
}

/// One reader's share of a buffer: made by pagepool_buf_share.
pub struct SharedHandle {
    _never: [u8; 0],
}

/// A packet for stacks: made by pagepool_skb_from_buf and pagepool_skb_alloc, over with pagepool_skb_put.
pub struct SkbHandle {
    _never: [u8; 0],
}

/// Where packets for stacks have their descriptions: made by pagepool_skb_cache_create.
pub struct SkbCacheHandle {
    _never: [u8; 0],
}

/// Somebody who uses buffers and only says whether one is in use still: made by pagepool_deferred_user_create.
pub struct DeferredUserHandle {
    _never: [u8; 0],
}

/// The end of a pool, watched: made by pagepool_destroy_watched.
pub struct ShutdownHandle {
    _never: [u8; 0],
}
