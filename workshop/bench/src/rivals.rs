//! Code to compare the pool with.

pub mod mempool;
pub mod mpsc;
pub mod page_frag;
pub mod spsc;
