//! What the kernel counts for sockets, of all ports together.

use serde::Serialize;

use super::port_sample::PortSample;
use crate::report::number::grouped;

/// What the kernel counts for all sockets (`XDP_STATISTICS`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct XdpCounts {
    /// Packets dropped: no buffer on the fill ring, or longer than the socket takes.
    pub rx_dropped: u64,
    /// Packets dropped because the receive ring was full.
    pub rx_ring_full: u64,
    /// Times that the fill ring was empty.
    pub rx_fill_ring_empty: u64,
    /// Descriptors that were invalid.
    pub rx_invalid_descs: u64,
    pub tx_invalid_descs: u64,
    /// Times that the transmit ring was empty, which it is whenever all was sent.
    pub tx_ring_empty: u64,
}

impl XdpCounts {
    /// Of all of them.
    pub fn of(ports: &[PortSample]) -> Self {
        let mut all = Self::default();
        for xsk in ports.iter().filter_map(|at| at.xsk) {
            all.rx_dropped += xsk.rx_dropped;
            all.rx_ring_full += xsk.rx_ring_full;
            all.rx_fill_ring_empty += xsk.rx_fill_ring_empty;
            all.rx_invalid_descs += xsk.rx_invalid_descs;
            all.tx_invalid_descs += xsk.tx_invalid_descs;
            all.tx_ring_empty += xsk.tx_ring_empty;
        }
        all
    }

    /// In words, if anything went wrong so far.
    pub fn problems(&self) -> Option<String> {
        let counts = [
            ("dropped", self.rx_dropped),
            ("receive ring full", self.rx_ring_full),
            ("fill ring empty", self.rx_fill_ring_empty),
            ("invalid", self.rx_invalid_descs + self.tx_invalid_descs),
        ];
        let some = counts.iter().filter(|(_, count)| *count > 0);
        let some: Vec<_> = some.map(|(what, count)| format!("{what} {}", grouped(*count))).collect();
        (!some.is_empty()).then(|| format!("kernel counts: {}", some.join(", ")))
    }
}
