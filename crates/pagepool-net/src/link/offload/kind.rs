//! Offloads, and the kernel's features that each stands for.

use std::fmt;

/// An offload: work on packets that a driver does, or the kernel in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Offload {
    /// Checksums of what arrives are checked already.
    RxChecksum,
    /// Checksums of what is sent are left to the device.
    TxChecksum,
    /// What is sent may lie in several fragments.
    ScatterGather,
    /// TCP sends segments larger than the MTU and leaves cutting them to the device.
    Tso,
    /// The same, left to the kernel just in front of the driver.
    Gso,
    /// What arrives is put together into larger segments by the kernel.
    Gro,
    /// The same, by the device, so that they can be cut again as they were.
    GroHardware,
    /// The same, by the device.
    Lro,
    /// Writing a VLAN tag (802.1Q) into what is sent is left to the device.
    TxVlan,
    /// The same with the outer of two tags (802.1ad).
    TxOuterVlan,
    /// The VLAN tag (802.1Q) is taken out of what arrives, and handed over beside the packet.
    RxVlan,
    /// The same with the outer of two tags (802.1ad).
    RxOuterVlan,
}

impl Offload {
    /// All of them.
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
    /// What a link must not have on its sending side if another takes its packets as they are, byte for byte:
    /// with these, what is sent has no checksum yet, is larger than the MTU, or lacks its VLAN tag.
    pub const OF_SENDER: [Self; 5] =
        [Self::Tso, Self::Gso, Self::TxChecksum, Self::TxVlan, Self::TxOuterVlan];
    /// What a network card must not have on if a program takes its packets as they came over the wire: with
    /// these, what arrives is merged, or lacks its VLAN tag.
    pub const OF_RECEIVER: [Self; 4] = [Self::Lro, Self::GroHardware, Self::RxVlan, Self::RxOuterVlan];

    /// Those that take VLAN tags out of packets, or leave them beside.
    pub(super) const OF_TAGS: [Self; 4] = [Self::TxVlan, Self::TxOuterVlan, Self::RxVlan, Self::RxOuterVlan];

    /// Its keyword, its name, and the kernel's names of its features.
    fn row(self) -> (&'static str, &'static str, &'static [&'static str]) {
        match self {
            Self::RxChecksum => ("rx", "rx-checksumming", &["rx-checksum"]),
            Self::TxChecksum => (
                "tx",
                "tx-checksumming",
                &[
                    "tx-checksum-ipv4",
                    "tx-checksum-ip-generic",
                    "tx-checksum-ipv6",
                    "tx-checksum-fcoe-crc",
                    "tx-checksum-sctp",
                ],
            ),
            Self::ScatterGather => {
                ("sg", "scatter-gather", &["tx-scatter-gather", "tx-scatter-gather-fraglist"])
            }
            Self::Tso => (
                "tso",
                "tcp-segmentation-offload",
                &[
                    "tx-tcp-segmentation",
                    "tx-tcp-ecn-segmentation",
                    "tx-tcp-mangleid-segmentation",
                    "tx-tcp6-segmentation",
                    "tx-tcp-accecn-segmentation",
                ],
            ),
            Self::Gso => ("gso", "generic-segmentation-offload", &["tx-generic-segmentation"]),
            Self::Gro => ("gro", "generic-receive-offload", &["rx-gro"]),
            Self::GroHardware => ("rx-gro-hw", "rx-gro-hw", &["rx-gro-hw"]),
            Self::Lro => ("lro", "large-receive-offload", &["rx-lro"]),
            Self::TxVlan => ("txvlan", "tx-vlan-offload", &["tx-vlan-hw-insert"]),
            Self::TxOuterVlan => {
                ("tx-vlan-stag-hw-insert", "tx-vlan-stag-hw-insert", &["tx-vlan-stag-hw-insert"])
            }
            Self::RxVlan => ("rxvlan", "rx-vlan-offload", &["rx-vlan-hw-parse"]),
            Self::RxOuterVlan => {
                ("rx-vlan-stag-hw-parse", "rx-vlan-stag-hw-parse", &["rx-vlan-stag-hw-parse"])
            }
        }
    }

    /// What `ethtool -K` is told to turn it on or off.
    pub fn keyword(self) -> &'static str {
        self.row().0
    }

    /// What `ethtool -k` calls it.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// The kernel's names of its features.
    pub(crate) fn features(self) -> &'static [&'static str] {
        self.row().2
    }
}

impl fmt::Display for Offload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
