//! Offloads, and the kernel's features of each.

use std::fmt;

/// An offload: work on packets that a driver does, or the kernel for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Offload {
    /// Checksums of received packets are already checked.
    RxChecksum,
    /// The device computes checksums of sent packets.
    TxChecksum,
    /// Sent packets may consist of several fragments.
    ScatterGather,
    /// TCP sends segments larger than the MTU, and the device splits them.
    Tso,
    /// TCP sends segments larger than the MTU, and the kernel splits them just before the driver.
    Gso,
    /// The kernel merges received segments.
    Gro,
    /// The device merges received segments, in a way that can be undone exactly.
    GroHardware,
    /// The device merges received segments.
    Lro,
    /// The device inserts the VLAN tag (802.1Q) of sent packets.
    TxVlan,
    /// The device inserts the outer one of two VLAN tags (802.1ad).
    TxOuterVlan,
    /// The VLAN tag (802.1Q) is removed from received packets, and passed beside them.
    RxVlan,
    /// The outer one of two VLAN tags (802.1ad) is removed from received packets.
    RxOuterVlan,
}

impl Offload {
    /// All offloads.
    pub const ALL: [Self; 12] = [
        Self::RxChecksum,
        Self::TxChecksum,
        Self::ScatterGather,
        Self::Tso,
        Self::Gso,
        Self::Gro,
        Self::GroHardware,
        Self::Lro,
        Self::TxVlan,
        Self::TxOuterVlan,
        Self::RxVlan,
        Self::RxOuterVlan,
    ];
    /// Offloads that a sending link must not have if the receiver takes its packets byte for byte: with them,
    /// sent packets lack a checksum or VLAN tag, or exceed the MTU.
    pub const OF_SENDER: [Self; 5] =
        [Self::Tso, Self::Gso, Self::TxChecksum, Self::TxVlan, Self::TxOuterVlan];
    /// Offloads that a network card must not have if a program takes packets as they are on the wire: with
    /// them, received packets are merged, or lack a VLAN tag.
    pub(crate) const OF_RECEIVER: [Self; 4] = [Self::Lro, Self::GroHardware, Self::RxVlan, Self::RxOuterVlan];

    /// Offloads that remove VLAN tags from packets.
    pub(crate) const OF_TAGS: [Self; 4] = [Self::TxVlan, Self::TxOuterVlan, Self::RxVlan, Self::RxOuterVlan];

    /// Its keyword, its name, and the kernel's names of its features, with `*` for any text, as in ethtool.
    fn row(self) -> [&'static str; 3] {
        match self {
            Self::RxChecksum => ["rx", "rx-checksumming", "rx-checksum"],
            Self::TxChecksum => ["tx", "tx-checksumming", "tx-checksum-*"],
            Self::ScatterGather => ["sg", "scatter-gather", "tx-scatter-gather*"],
            Self::Tso => ["tso", "tcp-segmentation-offload", "tx-tcp*-segmentation"],
            Self::Gso => ["gso", "generic-segmentation-offload", "tx-generic-segmentation"],
            Self::Gro => ["gro", "generic-receive-offload", "rx-gro"],
            Self::GroHardware => ["rx-gro-hw"; 3],
            Self::Lro => ["lro", "large-receive-offload", "rx-lro"],
            Self::TxVlan => ["txvlan", "tx-vlan-offload", "tx-vlan-hw-insert"],
            Self::TxOuterVlan => ["tx-vlan-stag-hw-insert"; 3],
            Self::RxVlan => ["rxvlan", "rx-vlan-offload", "rx-vlan-hw-parse"],
            Self::RxOuterVlan => ["rx-vlan-stag-hw-parse"; 3],
        }
    }

    /// Its keyword in `ethtool -K`.
    pub fn keyword(self) -> &'static str {
        self.row()[0]
    }

    /// Its name in `ethtool -k`.
    pub fn name(self) -> &'static str {
        self.row()[1]
    }

    /// Whether the kernel's feature of this name is part of it.
    pub(crate) fn has(self, feature: &str) -> bool {
        let [.., name] = self.row();
        name.split_once('*').map_or(name == feature, |(begin, end)| {
            feature.strip_prefix(begin).is_some_and(|rest| rest.ends_with(end))
        })
    }
}

impl fmt::Display for Offload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
