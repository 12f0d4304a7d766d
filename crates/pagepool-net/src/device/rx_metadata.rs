//! What devices say of received packets beside their bytes.

use super::tx_metadata::{TxChecksum, TxMetadata, TxSegment};

/// What the driver knows of a received packet; `None` where the driver or the kernel knows nothing. An XDP
/// program knows the first three, a virtio device the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RxMetadata {
    /// When the packet arrived, in nanoseconds of the PTP hardware clock (`ethtool -T`); Linux 6.3. Most
    /// cards require a setting (`SIOCSHWTSTAMP`, `hwstamp_ctl -r 1`).
    pub timestamp: Option<u64>,
    /// The flow hash, which chooses the queue; Linux 6.3.
    pub hash: Option<RxHash>,
    /// The VLAN tag that the card or the kernel removed from the packet; Linux 6.8.
    pub vlan: Option<VlanTag>,
    /// Whether the other end says that the checksum of TCP or UDP is right, or that it left it to the device.
    /// `false`: verify it.
    pub checksum_ok: bool,
    /// The sender left the checksum to the device: the packet is not to be verified, and its checksum must be
    /// computed before it leaves the machine. This is what to request when it is sent on.
    pub checksum: Option<TxChecksum>,
    /// The packet is several segments of TCP in one, to be cut before it leaves the machine. It also has a
    /// [`checksum`](Self::checksum).
    pub segment: Option<TxSegment>,
}

impl From<RxMetadata> for TxMetadata {
    /// What to request when the packet is sent on with unchanged headers.
    fn from(received: RxMetadata) -> Self {
        Self { checksum: received.checksum, segment: received.segment, ..Self::default() }
    }
}

/// A hash of a packet's flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RxHash {
    /// The hash.
    pub value: u32,
    /// What was hashed, as bits of the kernel's `enum xdp_rss_hash_type`; 0 if the driver does not say.
    pub kind: u32,
}

impl RxHash {
    /// Whether ports were hashed, too (Linux: `XDP_RSS_L4`).
    pub fn has_ports(self) -> bool {
        self.kind & 1 << 3 != 0
    }
}

/// A VLAN tag that is not in the packet's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlanTag {
    /// The EtherType of the tag: 0x8100, or 0x88a8 for the outer one of two.
    pub protocol: u16,
    /// Priority, drop eligibility and number.
    pub tci: u16,
}

impl VlanTag {
    /// The VLAN's number, 0 to 4095.
    pub fn id(self) -> u16 {
        self.tci & 0xfff
    }

    /// The priority, 0 to 7.
    pub fn priority(self) -> u8 {
        (self.tci >> 13) as u8
    }
}
