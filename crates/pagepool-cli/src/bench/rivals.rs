//! What the pool is measured beside.

pub mod mempool;
pub mod mpsc;
pub mod page_frag;
pub mod spsc;
