//! Where buffers return to: the owner's cache, a lane per returning thread, one ring per pool. Also what
//! observers see of these: counters, the registry.

pub(crate) mod cache;
pub(crate) mod chain_blocks;
pub(crate) mod frag;
pub(crate) mod lane;
pub(crate) mod lane_list;
pub(crate) mod lane_table;
pub(crate) mod message;
pub(crate) mod no_direct_recycle;
pub(crate) mod registry;
pub(crate) mod ring;
pub(crate) mod stats;
pub(crate) mod thread;
