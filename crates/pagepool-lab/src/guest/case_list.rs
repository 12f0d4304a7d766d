//! The list of cases: what must hold in guests.

use super::card::Iommu;
use super::case::{Case, CaseGuest};

/// The guests that cases run in.
pub const CASE_GUESTS: &[CaseGuest] = &[
    veth("5.10", "5.10"),
    veth("6.1", "6.1"),
    veth("6.12", "6.12"),
    veth("7.3", "7.3"),
    CaseGuest {
        about: "two memory nodes, virtio-net of node 1",
        cards: &["virtio,node=1", "e1000e,node=0"],
        nodes: 2,
        iommu: Iommu::Intel,
        ..veth("nodes", "7.3")
    },
    CaseGuest {
        about: "virtio-net behind an IOMMU",
        cards: &["virtio", "e1000e", "virtio,wire=2", "e1000e,wire=2"],
        iommu: Iommu::Intel,
        ..veth("virtio", "7.3")
    },
    CaseGuest {
        about: "igb",
        cards: &["igb", "virtio", "igb,wire=2", "virtio,wire=2"],
        qemu: 8,
        ..veth("igb", "7.3")
    },
];

const fn veth(name: &'static str, kernel: &'static str) -> CaseGuest {
    let (cards, iommu): (&[&str], _) = (&[], Iommu::None);
    CaseGuest { name, kernel, about: "veth", cards, nodes: 1, iommu, qemu: 7 }
}

const DEMO: &str = "$P demo --on veth --seconds 2";

const fn demo(guest: &'static str) -> Case {
    Case { expected: &["PASS", "every byte of TCP checked"], ..Case::new(guest, "demo", DEMO) }
}

/// Every case, by guest.
pub const CASES: &[Case] = &[demo("5.10"), demo("6.1"), demo("6.12"), demo("7.3")];
