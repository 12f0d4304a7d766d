//! The counts of a port at one time, as its thread sees them.

use pagepool::{Inflight, Stats};
use pagepool_net::{DeviceStats, ForwardStats, Forwarder, PacketHandler, PathStats, PortId, Stack, TxQueue};
use serde_json::{Map, Value};

use crate::report::object;

/// The counts of one port.
#[derive(Clone, Copy, Debug, Default)]
pub struct PortSample {
    /// Of the pool that it receives into.
    pub pool: (Stats, Inflight),
    /// Of the device.
    pub nic: DeviceStats,
    /// Of the forwarder.
    pub port: ForwardStats,
    /// Paths of frames from other ports.
    pub paths: PathStats,
    /// Buffers of frames that wait for the transmit ring now.
    pub waiting: u64,
}

impl PortSample {
    /// Reads the counts of a port now, on the thread that polls it. Costs some system calls.
    pub fn read<P: PacketHandler, S: Stack>(forwarder: &Forwarder<P, S>, port: PortId) -> Self {
        Self {
            pool: forwarder.pool(port).map(|pool| (pool.stats(), pool.inflight())).unwrap_or_default(),
            nic: forwarder.device(port).map(|nic| nic.stats()).unwrap_or_default(),
            port: forwarder.stats(port).unwrap_or_default(),
            paths: forwarder.paths(port).unwrap_or_default(),
            waiting: forwarder.waiting(port).map_or(0, TxQueue::buffers) as u64,
        }
    }

    /// Packets sent by the port. Completed packets include those that the kernel dropped, which are
    /// subtracted.
    pub fn sent(&self) -> u64 {
        self.nic.tx_completed.saturating_sub(self.nic.tx_dropped)
    }

    /// The bytes of the packets sent: their share of all bytes given to the device.
    pub fn sent_bytes(&self) -> u64 {
        match (self.sent(), self.nic.tx_packets) {
            (sent, all) if sent >= all => self.nic.tx_bytes,
            (sent, all) => (u128::from(self.nic.tx_bytes) * u128::from(sent) / u128::from(all)) as u64,
        }
    }

    pub fn fields(&self) -> Map<String, Value> {
        let mut fields = object(self.port.entries().chain(self.paths.entries()));
        fields.insert("nic".into(), object(self.nic.entries()).into());
        if let Some(xsk) = self.nic.kernel {
            fields.insert("xsk".into(), object(xsk.entries()).into());
        }
        fields
    }
}

/// The sum of a count over ports.
pub fn sum(ports: &[PortSample], of: impl Fn(&PortSample) -> u64) -> u64 {
    ports.iter().map(of).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_and_queued_packets_are_not_sent() {
        let mut at = PortSample::default();
        (at.nic.tx_packets, at.nic.tx_bytes) = (60_405, 60_405 * 64);
        assert_eq!((at.sent(), at.sent_bytes()), (0, 0));
        (at.nic.tx_completed, at.nic.tx_dropped) = (60_305, 56_522);
        assert_eq!((at.sent(), at.sent_bytes()), (3_783, 3_783 * 64));
    }
}
