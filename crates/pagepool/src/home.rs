//! How a buffer comes home: the owner's cache, one lane a thread, one ring a pool.

pub(crate) mod cache;
pub(crate) mod chain_blocks;
pub(crate) mod frag;
pub(crate) mod lane;
pub(crate) mod message;
pub(crate) mod no_direct_recycle;
pub(crate) mod registry;
pub(crate) mod ring;
pub(crate) mod stats;
pub(crate) mod thread;
pub(crate) mod wake;
