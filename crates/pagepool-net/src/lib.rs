//! Packet devices, programs and forwarding over the page pool.

mod zerocopy;

pub use zerocopy::{Sent, ZeroCopySocket, ZeroCopyStats};
