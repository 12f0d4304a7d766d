//! The code that the pool is compared with.

pub mod mempool;
pub mod mpsc;
pub mod page_frag;
pub mod spsc;
