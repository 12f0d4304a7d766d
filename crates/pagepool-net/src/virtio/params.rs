//! The parameters of a virtio device.

use pagepool::{ETH_HEADER, Error, MAX_FRAGS};

use super::back_end::{Wanted, feature};
use crate::error::{parameter, within};

/// The most descriptors of a queue.
const MAX_RING: usize = 1 << 15;
/// The longest packet: more than any network sends.
const MAX_PACKET: usize = 1 << 20;

/// The parameters of one pair of queues.
#[derive(Clone, Debug)]
pub(crate) struct VirtioParams {
    /// The name in reports and errors.
    pub(crate) name: String,
    /// Descriptors of the queues: powers of two.
    pub(crate) rx_ring: usize,
    pub(crate) tx_ring: usize,
    /// The longest packet in bytes, in both directions.
    pub(crate) max_packet: usize,
    pub(crate) mtu: usize,
    /// The most buffers of a packet, in both directions.
    pub(crate) max_buffers: usize,
    /// Whether packets may leave checksums and segments to the other side, in both directions.
    pub(crate) offloads: bool,
}

impl VirtioParams {
    pub(crate) fn check(&self) -> Result<(), Error> {
        for (field, value) in [("rx_ring", self.rx_ring), ("tx_ring", self.tx_ring)] {
            if !value.is_power_of_two() || !(2..=MAX_RING).contains(&value) {
                return Err(parameter(field, value, format!("a power of two from 2 to {MAX_RING}")));
            }
        }
        within("max_buffers", self.max_buffers, 1..=MAX_FRAGS + 1)?;
        // A packet may have a descriptor for its header.
        within("tx_ring", self.tx_ring, self.max_buffers + 1..=MAX_RING)?;
        within("max_packet", self.max_packet, ETH_HEADER..=MAX_PACKET)
    }

    /// The features that a device with these parameters needs.
    pub(crate) fn wanted(&self) -> Wanted {
        let several = if self.has_several_buffers() { feature::MERGED_BUFFERS } else { 0 };
        let offloads = if self.offloads { feature::OFFLOADS } else { 0 };
        Wanted { required: feature::VERSION_1 | several | offloads, optional: feature::EVENT_INDEX }
    }

    /// Whether headers say how many buffers a received packet has.
    pub(crate) fn has_several_buffers(&self) -> bool {
        self.max_buffers > 1 || self.offloads
    }
}
