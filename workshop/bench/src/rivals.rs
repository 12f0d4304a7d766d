//! Code to compare the pool with.

pub mod dpdk;
pub mod mpsc;
pub mod page_frag;
pub mod spsc;
