//! Where idle pages wait for reuse: the owner's cache, a lane per returning thread, one ring per pool.

pub(crate) mod cache;
pub(crate) mod chain_blocks;
pub(crate) mod frag;
pub(crate) mod guard;
pub(crate) mod lane;
pub(crate) mod lane_list;
pub(crate) mod lane_slots;
pub(crate) mod lane_table;
pub(crate) mod lives;
pub(crate) mod message;
pub(crate) mod no_direct_recycle;
pub(crate) mod ring;
pub(crate) mod thread;
