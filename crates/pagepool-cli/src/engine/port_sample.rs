//! What a thread sees of its ports at one time.

use pagepool::{Inflight, PoolRef, Stats};
use pagepool_net::{DeviceStats, ForwardStats, Forwarder, PacketHandler, PathStats, PortId, Stack, TxQueue};
use serde_json::{Map, Value};

/// What was counted for one port.
#[derive(Clone, Copy, Debug, Default)]
pub struct PortSample {
    /// By the pool that it receives into.
    pub pool: (Stats, Inflight),
    /// By the device.
    pub nic: DeviceStats,
    /// By the forwarder.
    pub port: ForwardStats,
    /// Ways of frames from other ports.
    pub paths: PathStats,
    /// Now: buffers of frames that wait for the transmit ring.
    pub waiting: u64,
}

impl PortSample {
    /// What is seen of a port now, on the thread that polls it. Some system calls.
    pub fn of<P: PacketHandler, S: Stack>(forwarder: &Forwarder<P, S>, port: PortId) -> Self {
        Self {
            pool: forwarder.pool(port).map(|pool| (pool.stats(), pool.inflight())).unwrap_or_default(),
            nic: forwarder.device(port).map(|nic| nic.stats()).unwrap_or_default(),
            port: forwarder.stats(port).unwrap_or_default(),
            paths: forwarder.paths(port).unwrap_or_default(),
            waiting: forwarder.waiting(port).map_or(0, TxQueue::buffers) as u64,
        }
    }

    /// Packets that went out of the port: those that the kernel dropped are completed, too.
    pub fn sent(&self) -> u64 {
        self.nic.tx_completed.saturating_sub(self.nic.tx_dropped)
    }

    /// Their bytes: of all bytes that were to go, their share.
    pub fn sent_bytes(&self) -> u64 {
        match (self.sent(), self.nic.tx_packets) {
            (sent, all) if sent >= all => self.nic.tx_bytes,
            (sent, all) => (u128::from(self.nic.tx_bytes) * u128::from(sent) / u128::from(all)) as u64,
        }
    }

    /// All counts, for the JSON output.
    pub fn fields(&self) -> Map<String, Value> {
        let mut fields = object(self.port.entries().chain(self.paths.entries()));
        fields.insert("nic".into(), object(self.nic.entries()).into());
        if let Some(xsk) = self.nic.kernel {
            fields.insert("xsk".into(), object(xsk.entries()).into());
        }
        fields
    }
}

/// The counts of a pool, for the JSON output.
pub fn pool_fields(pool: &PoolRef) -> Map<String, Value> {
    let mut fields = object(pool.stats().fields());
    fields.insert("name".into(), pool.name().into());
    fields
}

/// Names and counts as an object.
pub fn object(counts: impl IntoIterator<Item = (&'static str, u64)>) -> Map<String, Value> {
    counts.into_iter().map(|(name, count)| (name.to_owned(), count.into())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_dropped_or_is_on_its_way_was_not_sent() {
        let mut at = PortSample::default();
        (at.nic.tx_packets, at.nic.tx_bytes) = (60_405, 60_405 * 64);
        assert_eq!((at.sent(), at.sent_bytes()), (0, 0));
        (at.nic.tx_completed, at.nic.tx_dropped) = (60_305, 56_522);
        assert_eq!((at.sent(), at.sent_bytes()), (3_783, 3_783 * 64));
    }
}
