//! The parameters of an in-memory NIC.

use pagepool::{Error, MAX_FRAGS};

use crate::error::within;

/// The most slots of a ring: ids name a slot in 16 bits.
const MAX_RING: usize = 1 << 15;
/// The longest packet: more than any network sends.
const MAX_PACKET: usize = 1 << 20;

/// The parameters of an in-memory NIC. `Default` has rings of 512, and packets of up to 9018 bytes: a jumbo
/// frame with its header and check sequence.
#[derive(Clone, Debug)]
pub struct MemNicParams {
    /// The name in reports and errors.
    pub name: String,
    /// Slots for buffers that wait for packets, 2 to 32768.
    pub rx_ring: usize,
    /// Slots for buffers to send, 2 to 32768, and at least `max_buffers`.
    pub tx_ring: usize,
    /// The longest packet in bytes, in both directions, 14 to 1 MiB.
    pub max_packet: usize,
    /// The most buffers of a packet, in both directions, 1 to 18.
    pub max_buffers: usize,
}

impl Default for MemNicParams {
    fn default() -> Self {
        Self { name: "mem0".into(), rx_ring: 512, tx_ring: 512, max_packet: 9018, max_buffers: MAX_FRAGS + 1 }
    }
}

impl MemNicParams {
    pub(super) fn check(&self) -> Result<(), Error> {
        within("rx_ring", self.rx_ring, 2..=MAX_RING)?;
        within("max_buffers", self.max_buffers, 1..=MAX_FRAGS + 1)?;
        within("tx_ring", self.tx_ring, self.max_buffers.max(2)..=MAX_RING)?;
        within("max_packet", self.max_packet, pagepool::ETH_HEADER..=MAX_PACKET)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_out_of_range_is_refused_by_name() {
        let refused = |params: MemNicParams| params.check().unwrap_err().to_string();
        assert!(MemNicParams::default().check().is_ok());
        let small = MemNicParams { rx_ring: 1, ..Default::default() };
        assert_eq!(refused(small), "rx_ring is 1, but must be 2 to 32768");
        let narrow = MemNicParams { tx_ring: 17, ..Default::default() };
        assert_eq!(refused(narrow), "tx_ring is 17, but must be 18 to 32768");
        let many = MemNicParams { max_buffers: 19, ..Default::default() };
        assert_eq!(refused(many), "max_buffers is 19, but must be 1 to 18");
        let short = MemNicParams { max_packet: 13, ..Default::default() };
        assert_eq!(refused(short), "max_packet is 13, but must be 14 to 1048576");
    }
}
