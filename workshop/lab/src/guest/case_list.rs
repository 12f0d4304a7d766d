//! The list of cases that must pass in guests.

mod doctor_scripts;
mod scripts;

use super::card::Iommu;
use super::case::{Case, CaseGuest};
use doctor_scripts::{
    DOCTOR_OF_A_POOL_GIVEN_UP, DOCTOR_OF_A_SHARED_CPU, DOCTOR_OF_A_SHORT_RING, DOCTOR_OF_COPY,
    DOCTOR_OF_INTERRUPTS, DOCTOR_OF_KERNEL_POOLS, DOCTOR_OF_NODES,
};
pub(super) use scripts::PARTS;
use scripts::{
    BESIDE_KILLED, BESIDE_STAYS, BESIDE_XDP_FILTER, BPF_BATCH, CLOSE, COMMANDS_ON_VHOST_NET, CONFORMANCE,
    CONFORMANCE_SMALL_PAGES, CONFORMANCE_SMALL_PAGES_ON_IGB, DROP, DROP_AS_USER_BEFORE_5_19, DROP_BUSY_POLL,
    DROP_BUSY_POLL_ON_IGB, DROP_ON_8_NODES, DROP_ON_NODES, DROP_SMALL_PAGES, DROP_UNALIGNED, ECHO,
    ECHO_TO_CARD, EXAMPLES, FLAP, FORWARD, FORWARD_UNICAST, GEN, GEN_ON_NODES, JUMBO, KERNEL_POOLS,
    KERNEL_STACK, KILL, LONG, MIXED, PASSED_BY_CARD, PINNED, QUEUES, RSS, SLEEPING, SMALL_PAGES_ON_IGB,
    STREAM, STREAM_ON_IGB, TAGS_OF_E1000E, TAGS_OF_IGB, TAGS_OF_VIRTIO, TAGS_OF_VMXNET3, TCP, THREADS,
    VHOST_NET,
};

/// The guests of the cases.
pub const CASE_GUESTS: &[CaseGuest] = &[
    veth("5.10", "5.10"),
    veth("6.1", "6.1"),
    veth("6.12", "6.12"),
    veth("7.3", "7.3"),
    CaseGuest {
        about: "two NUMA nodes, virtio-net on node 1",
        cards: &["virtio,node=1", "e1000e,node=0"],
        nodes: 2,
        iommu: Iommu::Intel,
        ..veth("nodes", "7.3")
    },
    CaseGuest {
        about: "eight NUMA nodes, virtio-net on node 7",
        cards: &["virtio,node=7", "e1000e,node=0"],
        cpus: 8,
        nodes: 8,
        iommu: Iommu::Intel,
        ..veth("8 nodes", "7.3")
    },
    CaseGuest {
        about: "vmxnet3 and e1000e, copy mode",
        cards: &["vmxnet3", "e1000e", "rtl8139,wire=2", "e1000e,wire=2"],
        ..veth("cards", "6.1")
    },
    CaseGuest {
        about: "virtio-net with four queues, behind an IOMMU",
        cards: &["virtio,tap=4", "e1000e,tap=1", "virtio,wire=2,tap=4", "e1000e,wire=2,tap=1"],
        cpus: 4,
        iommu: Iommu::Intel,
        ..veth("queues", "7.3")
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
    CaseGuest { name, kernel, about: "veth", cards, cpus: 2, nodes: 1, iommu, qemu: 7 }
}

const DEMO: &str = "$P demo --on veth --seconds 2";

const fn demo(guest: &'static str) -> Case {
    Case { expected: &["PASS", "every byte of TCP checked"], ..Case::new(guest, "demo", DEMO) }
}

/// Runs a test binary of the workspace.
const fn test(guest: &'static str, name: &'static str, script: &'static str) -> Case {
    Case { expected: &["test result: ok"], seconds: 200, ..Case::new(guest, name, script) }
}

/// Another CI row finds most of what it would find.
const fn by_hand(case: Case) -> Case {
    Case { by_hand: true, ..case }
}

/// All cases.
pub const CASES: &[Case] = &[
    demo("5.10"),
    demo("6.1"),
    demo("6.12"),
    demo("7.3"),
    test("5.10", "tests/steering", "net_test steering"),
    Case::new("5.10", "drop as a user", DROP_AS_USER_BEFORE_5_19),
    Case { seconds: 120, ..Case::new("5.10", "a pinned link", PINNED) },
    test("6.1", "tests/steering", "net_test steering"),
    test("7.3", "tests/steering", "net_test steering"),
    test("5.10", "tests/beside", "net_test beside"),
    test("6.1", "tests/beside", "net_test beside"),
    test("7.3", "tests/beside", "net_test beside"),
    Case::new("5.10", "beside xdp-filter", BESIDE_XDP_FILTER),
    Case::new("6.1", "beside xdp-filter", BESIDE_XDP_FILTER),
    Case::new("7.3", "beside xdp-filter", BESIDE_XDP_FILTER),
    Case::new("6.1", "beside others, killed", BESIDE_KILLED),
    Case::new("7.3", "beside others, killed", BESIDE_KILLED),
    Case::new("7.3", "beside others, and it stays", BESIDE_STAYS),
    test("6.1", "tests/link", "link_test link"),
    test("6.1", "tests/redirect", "net_test redirect"),
    test("6.1", "tests/xsk", "net_test xsk"),
    test("6.1", "tests/xsk_errors", "net_test xsk_errors"),
    test("6.1", "tests/tx_metadata", "net_test tx_metadata"),
    test("6.1", "tests/xsk_killed", "net_test xsk_killed"),
    test("6.1", "tests/xsk_queues", "net_test xsk_queues"),
    test("6.1", "tests/xsk_sending", "net_test xsk_sending"),
    test("6.1", "tests/xsk_teardown", "net_test xsk_teardown"),
    test("5.10", "tests/kernel_stack", KERNEL_STACK),
    test("6.1", "tests/kernel_stack", KERNEL_STACK),
    test("6.12", "tests/kernel_stack", KERNEL_STACK),
    test("7.3", "tests/kernel_stack", KERNEL_STACK),
    Case { seconds: 400, ..test("5.10", "tests/vhost_net", VHOST_NET) },
    by_hand(Case { seconds: 400, ..test("6.1", "tests/vhost_net", VHOST_NET) }),
    by_hand(Case { seconds: 400, ..test("6.12", "tests/vhost_net", VHOST_NET) }),
    Case { seconds: 400, ..test("7.3", "tests/vhost_net", VHOST_NET) },
    Case::new("7.3", "commands on vhost_net", COMMANDS_ON_VHOST_NET),
    test("6.1", "tests/zerocopy", "net_test zerocopy"),
    test("6.1", "tests/drivers", "net_test drivers"),
    test("6.1", "tests/sleeping", SLEEPING),
    by_hand(Case { seconds: 600, ..test("6.1", "tests/devices", "net_test devices") }),
    by_hand(test("6.1", "tests/threads", THREADS)),
    test("7.3", "tests/link", "link_test link"),
    test("7.3", "tests/redirect", "net_test redirect"),
    test("6.12", "tests/tx_metadata", "net_test tx_metadata"),
    test("7.3", "tests/tx_metadata", "net_test tx_metadata"),
    test("6.12", "tests/rx_metadata", "net_test rx_metadata"),
    test("7.3", "tests/rx_metadata", "net_test rx_metadata"),
    test("7.3", "tests/drivers", "net_test drivers"),
    test("6.1", "tests/cycles", "net_test cycles"),
    test("6.1", "tests/examples", EXAMPLES),
    test(
        "6.1",
        "tests/xsk_device",
        "PAGEPOOL_TRIMMED=1 net_test xsk_device --exact a_generic_device_with_headroom",
    ),
    test(
        "7.3",
        "tests/xsk_device",
        "PAGEPOOL_TRIMMED=1 net_test xsk_device --exact jumbo_packets_in_pages_of_2_kib",
    ),
    by_hand(test("7.3", "tests/xsk", "net_test xsk")),
    by_hand(test("7.3", "tests/xsk_queues", "net_test xsk_queues")),
    by_hand(Case { seconds: 400, ..test("7.3", "tests/xsk_teardown", "net_test xsk_teardown") }),
    test("7.3", "tests/xsk_errors", "net_test xsk_errors"),
    test("7.3", "tests/xsk_killed", "net_test xsk_killed"),
    test("7.3", "tests/xsk_sending", "net_test xsk_sending"),
    test("7.3", "tests/zerocopy", "net_test zerocopy"),
    by_hand(test("7.3", "tests/sleeping", SLEEPING)),
    by_hand(Case { seconds: 600, ..test("7.3", "tests/devices", "net_test devices") }),
    by_hand(test("7.3", "tests/threads", THREADS)),
    demo("nodes"),
    Case::new("nodes", "drop", DROP_ON_NODES),
    Case::new("nodes", "gen", GEN_ON_NODES),
    Case::new("nodes", "doctor", DOCTOR_OF_NODES),
    Case::new("nodes", "bench numa", "$BENCH numa --quick"),
    Case {
        expected: &["test result: ok", "2 nodes of this machine: memory of"],
        ..test("nodes", "NUMA tests", "core_test nodes")
    },
    by_hand(Case::new("8 nodes", "drop", DROP_ON_8_NODES)),
    by_hand(Case::new("8 nodes", "bench numa", "$BENCH numa --quick")),
    Case::new("cards", "drop", "MODE=copy; . /cases/drop"),
    Case::new("cards", "gen", "MODE=copy; . /cases/gen"),
    Case::new("cards", "echo", "MODE=copy; . /cases/echo"),
    Case::new("cards", "VLAN tags, vmxnet3", TAGS_OF_VMXNET3),
    Case::new("cards", "VLAN tags, e1000e", TAGS_OF_E1000E),
    Case::new("cards", "doctor", DOCTOR_OF_A_SHORT_RING),
    Case::new("queues", "drop", QUEUES),
    Case::new("queues", "drop --mode copy", "MODE=copy; . /cases/queues"),
    Case::new("queues", "gen", GEN),
    Case::new("queues", "echo", ECHO_TO_CARD),
    Case::new("queues", "forward, unicast only", FORWARD_UNICAST),
    test("virtio", "conformance, whole pages", CONFORMANCE),
    test("virtio", "conformance, half pages", CONFORMANCE_SMALL_PAGES),
    Case::new("virtio", "packets of 1,514 bytes", LONG),
    test("virtio", "passed to the kernel", PASSED_BY_CARD),
    Case::new("virtio", "VLAN tags", TAGS_OF_VIRTIO),
    Case::new("virtio", "drop", DROP),
    Case::new("virtio", "drop --chunk-size 2048", DROP_SMALL_PAGES),
    Case::new("virtio", "drop --chunk-size 3072", DROP_UNALIGNED),
    Case::new("virtio", "drop --busy-poll", DROP_BUSY_POLL),
    Case::new("virtio", "gen", GEN),
    Case::new("virtio", "echo", ECHO),
    Case::new("virtio", "BPF batch is refused", BPF_BATCH),
    by_hand(Case::new("virtio", "forward", FORWARD)),
    Case::new("virtio", "forward, unicast only", FORWARD_UNICAST),
    Case::new("virtio", "forward --mode auto to e1000e", MIXED),
    Case::new("virtio", "closed under traffic", CLOSE),
    Case::new("virtio", "a stream through start and stop", STREAM),
    Case::new("virtio", "killed and opened again", KILL),
    Case::new("virtio", "down and up", FLAP),
    Case::new("virtio", "MTU 9000", JUMBO),
    Case::new("virtio", "TCP through forward", TCP),
    Case::new("virtio", "list --kernel", KERNEL_POOLS),
    Case { seconds: 120, ..Case::new("virtio", "doctor", DOCTOR_OF_COPY) },
    Case { seconds: 120, ..Case::new("virtio", "doctor, a shared CPU", DOCTOR_OF_A_SHARED_CPU) },
    Case { seconds: 120, ..Case::new("virtio", "doctor, the kernel's pools", DOCTOR_OF_KERNEL_POOLS) },
    by_hand(Case {
        seconds: 200,
        ..Case::new("virtio", "doctor, an abandoned pool", DOCTOR_OF_A_POOL_GIVEN_UP)
    }),
    test("igb", "conformance, whole pages", CONFORMANCE),
    by_hand(test("igb", "conformance, half pages", CONFORMANCE_SMALL_PAGES_ON_IGB)),
    by_hand(Case::new("igb", "half pages, longer packets", SMALL_PAGES_ON_IGB)),
    Case::new("igb", "packets of 1,514 bytes", LONG),
    test("igb", "passed to the kernel", PASSED_BY_CARD),
    Case::new("igb", "VLAN tags", TAGS_OF_IGB),
    Case::new("igb", "drop", DROP),
    Case::new("igb", "drop --chunk-size 2048", DROP_SMALL_PAGES),
    by_hand(Case::new("igb", "drop --chunk-size 3072", DROP_UNALIGNED)),
    Case::new("igb", "drop --busy-poll", DROP_BUSY_POLL_ON_IGB),
    Case::new("igb", "gen", GEN),
    Case::new("igb", "echo", ECHO),
    by_hand(Case::new("igb", "forward", FORWARD)),
    Case::new("igb", "forward, unicast only", FORWARD_UNICAST),
    by_hand(Case::new("igb", "forward --mode auto to virtio", MIXED)),
    Case::new("igb", "--rss", RSS),
    Case { seconds: 120, ..Case::new("igb", "doctor, interrupts", DOCTOR_OF_INTERRUPTS) },
    Case::new("igb", "closed under traffic", CLOSE),
    Case { seconds: 120, ..Case::new("igb", "a stream through start and stop", STREAM_ON_IGB) },
    Case::new("igb", "killed and opened again", KILL),
    Case::new("igb", "down and up", FLAP),
    Case::new("igb", "MTU 9000", JUMBO),
    Case::new("igb", "TCP through forward", TCP),
];
