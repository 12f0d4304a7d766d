//! Requests of packets that AF_XDP sockets send: whether a UMEM has them, which of them a socket serves, and
//! the times in answer. Packets carry them as `device/tx_metadata.rs` writes them.

pub(super) mod requests;

use crate::device::tx_metadata::flag;

/// Whether packets may carry requests to the kernel and the driver ([`TxMetadata`](crate::TxMetadata)), for
/// all sockets over a UMEM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TxMetadataMode {
    /// No TX metadata: requests are ignored. Costs nothing.
    #[default]
    Off,
    /// TX metadata on. Requires Linux 6.11, or a 6.8 to 6.10 stable release with `XDP_UMEM_TX_METADATA_LEN`.
    /// Packets go by the ring, not by [BPF batch](super::TxMode), on the slower path of frames. Every sent
    /// buffer requires 48 bytes before its first byte.
    On,
    /// TX metadata on, with checksums in software (`XDP_UMEM_TX_SW_CSUM`) in copy mode, completed before the
    /// driver has the packet. For tests, and for a veth's other end, which otherwise may see unfinished
    /// checksums. Not for packets of several buffers, and not with
    /// [`XskMode::ZeroCopy`](super::XskMode::ZeroCopy).
    SoftwareChecksum,
}

/// When a packet left that requested its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxTimestamp {
    /// The number that [`TxMetadata::timestamp`](crate::TxMetadata::timestamp) gave it.
    pub number: u64,
    /// Nanoseconds: with zero copy of the PTP hardware clock (`ethtool -T`); in copy mode of `CLOCK_TAI`,
    /// when the driver, or the other end of a veth, was done with the packet.
    pub at: u64,
}

/// The requests of [`TxMetadata`](crate::TxMetadata) that a socket serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxFeatures {
    /// [`TxMetadata::checksum`](crate::TxMetadata::checksum).
    pub checksum: bool,
    /// [`TxMetadata::timestamp`](crate::TxMetadata::timestamp).
    pub timestamp: bool,
    /// [`TxMetadata::launch_time`](crate::TxMetadata::launch_time).
    pub launch_time: bool,
}

impl TxFeatures {
    pub(super) fn flags(self) -> u64 {
        let when = |has: bool, flag| if has { flag } else { 0 };
        when(self.checksum, flag::CHECKSUM)
            | when(self.timestamp, flag::TIMESTAMP)
            | when(self.launch_time, flag::LAUNCH_TIME)
    }
}
