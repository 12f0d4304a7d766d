//! For tests of devices: the conformance suite, and the rig that it runs a device in.
//!
//! Behind the feature `testing`, so that other crates can run the suite over their own devices.

mod conformance;
mod rig;

pub use crate::device::FarEnd;
pub use crate::xsk::{LoadedMatch, TailAdjuster};
pub use conformance::{device, slow_device};
pub use rig::{Allowed, Rig};

/// Reads any bytes as the kernel's answers over netlink, of every kind, and gives how many messages there
/// were: for fuzzers, since no bytes may do harm.
///
/// ```
/// assert_eq!(pagepool_net::testing::netlink_answers(b"anything at all, really"), 1);
/// ```
pub fn netlink_answers(datagram: &[u8]) -> usize {
    crate::link::read_all(datagram)
}
