//! Packets: as received, and beyond the poll.

pub(crate) mod blank;
#[cfg(all(feature = "bytes", not(loom)))]
pub(crate) mod bytes;
pub(crate) mod chain;
pub(crate) mod device_table;
pub(crate) mod endpoints;
pub(crate) mod xdp_buff;
pub(crate) mod xdp_frame;
pub(crate) mod xdp_frame_bulk;
