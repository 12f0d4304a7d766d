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

/// A test binary of the workspace.
const fn test(guest: &'static str, name: &'static str, script: &'static str) -> Case {
    Case { expected: &["test result: ok"], seconds: 200, ..Case::new(guest, name, script) }
}

/// eth0 receives 2,000 frames without a copy.
const DROP: &str = "up eth0 eth1
    start drop $P drop eth0 --mode zerocopy --verify --stats-every 0 $OPTIONS
    send eth1 2000
    stop drop
    exactly drop 'numbered frames, intact' 2000";

const DROP_HALF_PAGES: &str = "OPTIONS='--frame-size 2048'; . /cases/drop";
const DROP_UNALIGNED: &str = "OPTIONS=--unaligned; . /cases/drop";
const DROP_BUSY_POLL: &str = "OPTIONS=--busy-poll; . /cases/drop";

const GEN: &str = "up eth0 eth1
    start drop $P drop eth1 --mode copy --verify --stats-every 0
    $P gen eth0 --mode zerocopy --rate 2000 --count 2000 --stats-every 0
    status=$?
    sleep 0.5
    stop drop
    [ $status -eq 0 ] || fail \"gen ended with $status\"
    exactly drop 'numbered frames, intact' 2000";

const ECHO: &str = "up eth0 eth1
    start echo $P echo eth0 --mode zerocopy --stats-every 0
    before=$(received eth1)
    send eth1 2000
    after=$(received eth1)
    stop echo
    [ $((after - before)) -ge 2000 ] || fail \"$((after - before)) frames came back\"";

/// Sending by a BPF program is refused with zero copy, whether that was demanded or chosen.
const BPF_BATCH: &str = "up eth0 eth1
    for mode in zerocopy auto; do
        $P echo eth0 --mode $mode --tx-mode bpf-batch --seconds 1 --stats-every 0 >/tmp/said 2>&1
        status=$?
        cat /tmp/said
        [ $status -ne 0 ] || fail \"--mode $mode: it was not refused\"
        grep -q 'ring or auto with zero copy' /tmp/said || fail \"--mode $mode: another reason\"
    done";

/// From eth1 through eth0 and eth2 to eth3; `$TO` is where they are addressed to.
const FORWARD: &str = "up eth0 eth1 eth2 eth3
    start drop $P drop eth3 --mode copy --verify --stats-every 0
    start forward $P forward eth0 eth2 --mode zerocopy --stats-every 0
    send eth1 2000 $TO
    stop forward
    stop drop
    exactly drop 'numbered frames, intact' 2000";

const FORWARD_UNICAST: &str = "ip link set eth3 promisc on
    TO='--dst 02:00:00:00:00:09'; . /cases/forward";

/// Closed and opened three times while frames come in.
const CLOSE: &str = "up eth0 eth1
    start gen $P gen eth1 --mode copy --rate 1000 --stats-every 0
    for turn in 1 2 3; do
        start drop $P drop eth0 --mode zerocopy --verify --stats-every 0
        up eth0 # a card may take its link down for a new ring
        sleep 1
        stop drop
        at_least drop 'numbered frames, intact' 100
        exactly drop '  damaged' 0
    done
    stop gen";

/// A stream of 1,000 frames a second while eth0 is opened and closed twice: of 10,000 at most so many are
/// lost as pass in 5 ms each time. Not of igb, which restarts its link each time, and loses more than 1,000.
const STREAM: &str = "up eth0 eth1
    before=$(received eth0)
    start gen $P gen eth1 --mode copy --rate 1000 --count 10000 --stats-every 0
    for turn in 1 2; do
        start drop $P drop eth0 --mode zerocopy --verify --stats-every 0
        sleep 0.5
        stop drop
        at_least drop 'numbered frames, intact' 100
    done
    wait $(cat /tmp/gen.pid)
    sleep 0.5
    lost=$((10000 - $(received eth0) + before))
    echo \"lost $lost of 10000\"
    [ $lost -le 20 ] || fail 'more than 20 frames were lost, in 2 starts and 2 stops'";

const KILL: &str = "up eth0 eth1
    start gen $P gen eth1 --mode copy --rate 1000 --stats-every 0
    start killed $P drop eth0 --mode zerocopy --stats-every 0
    kill -9 $(cat /tmp/killed.pid)
    wait $(cat /tmp/killed.pid)
    start drop $P drop eth0 --mode zerocopy --verify --stats-every 0
    up eth0
    sleep 1
    stop drop
    stop gen
    at_least drop 'numbered frames, intact' 100";

const FLAP: &str = "up eth0 eth1
    start drop $P drop eth0 --mode zerocopy --verify --stats-every 0
    start gen $P gen eth1 --mode copy --rate 1000 --stats-every 0
    ip link set eth0 down
    sleep 0.5
    up eth0
    stop gen
    send eth1 2000
    stop drop
    at_least drop 'packets received' 2000";

/// Zero copy, or what `auto` falls back to, with the reason for either.
const JUMBO: &str =
    "ip link set eth0 mtu 9000 && ip link set eth1 mtu 9000 || skip 'the card has no MTU of 9000'
    up eth0 eth1
    start drop $P drop eth0 --verify --stats-every 0
    send eth1 500 --size 9000
    stop drop
    ip link set eth0 mtu 1500
    ip link set eth1 mtu 1500
    exactly drop 'numbered frames, intact' 500";

/// 1 MiB between two namespaces, with eth1 and eth3 in them.
const TCP: &str = "up eth0 eth2
    unshare -n sleep 100 & a=$!
    unshare -n sleep 100 & b=$!
    sleep 0.5
    ip link set eth1 netns $a && ip link set eth3 netns $b || fail 'no namespaces'
    in_a() { nsenter -t $a -n \"$@\"; }
    in_b() { nsenter -t $b -n \"$@\"; }
    in_a ip addr add 10.0.0.1/24 dev eth1; in_a ip link set eth1 up
    in_b ip addr add 10.0.0.2/24 dev eth3; in_b ip link set eth3 up
    start forward $P forward eth0 eth2 --mode zerocopy --stats-every 0
    dd if=/dev/urandom of=/tmp/data bs=64k count=16 2>/dev/null
    in_b sh -c 'sleep 30 | timeout 30 nc -l -p 5000 >/tmp/got' &
    sleep 1
    in_a ping -c 3 -W 3 10.0.0.2
    pinged=$?
    (cat /tmp/data; sleep 20) | in_a timeout 20 nc 10.0.0.2 5000 &
    tries=0
    while [ \"$(stat -c %s /tmp/got)\" -lt 1048576 ] && [ $tries -lt 180 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
    in_a ip link set eth1 netns 1; in_b ip link set eth3 netns 1
    stop forward
    cmp /tmp/data /tmp/got && [ $pinged -eq 0 ] || fail \"$(stat -c %s /tmp/got) bytes came\"";

const CONFORMANCE: &str = "up eth0 eth1
    promiscuous eth0 eth1
    PAGEPOOL_CARDS=eth0,eth1 net_test cards whole_pages";

const CONFORMANCE_HALF_PAGES: &str = "up eth0 eth1
    promiscuous eth0 eth1
    PAGEPOOL_CARDS=eth0,eth1 net_test cards half_pages";

/// eth0 is a card of node 1: received on a CPU of its node, and on one of the other.
const DROP_ON_NODES: &str = "up eth0 eth1
    for cpu in 1 0; do
        echo \"on CPU $cpu\"
        start drop $P drop eth0 --mode zerocopy --cpus $cpu --verify --stats-every 0
        RATE=4000 send eth1 8000
        stop drop
        exactly drop 'packets received' 8000
    done";

const GEN_ON_NODES: &str = "up eth0 eth1
    for cpu in 1 0; do
        echo \"on CPU $cpu\"
        $P gen eth0 --mode zerocopy --cpus $cpu --rate 4000 --count 8000 --stats-every 0 || fail gen
    done";

/// A veth, on whose end `near0` programs of several tools run.
const XDP_TOOLS: &str = "[ -x /usr/sbin/xdp-loader ] || skip 'xdp-tools are not installed'
    runs() {
        xdp-loader status near0 >/tmp/chain || { cat /tmp/chain; fail 'xdp-loader'; }
        [ $(grep -c \" $1 \" /tmp/chain) -eq $2 ] || { cat /tmp/chain; fail \"$1: not $2 times\"; }
    }
    filter() { xdp-filter load near0 -p allow -f ethernet && xdp-filter ether -m dst $NINE || fail filter; }
    NINE=02:00:00:00:00:09
    trap 'ip link del near0; rm -rf /sys/fs/bpf/xdp/dispatch-*' EXIT
    ip link add near0 type veth && ip link set veth0 name far0 && up near0 far0 || fail veth";

/// `drop` beside xdp-filter, which drops what goes to one address: first with it, then without, then with it
/// again.
const BESIDE_XDP_FILTER: &str = ". /cases/xdp_tools
    filter
    start drop $P drop near0 --beside --verify --stats-every 0
    runs pagepool_xsk 1; runs xdpfilt_alw_eth 1
    send far0 500
    send far0 500 --dst $NINE
    xdp-filter unload near0 || fail 'xdp-filter unload'
    runs pagepool_xsk 1; runs xdpfilt_alw_eth 0
    send far0 300 --dst $NINE
    filter
    send far0 200 --dst $NINE
    stop drop
    exactly drop 'packets received' 800
    runs xdpfilt_alw_eth 1; runs pagepool_xsk 0
    xdp-filter unload near0 || fail 'xdp-filter unload'
    [ -z \"$(ls /sys/fs/bpf/xdp)\" ] || fail 'names are left'";

/// `drop` begins the chain; one that is killed leaves its program to the next; xdp-loader removes it.
const BESIDE_KILLED: &str = ". /cases/xdp_tools
    start killed $P drop near0 --beside --stats-every 0
    filter
    kill -9 $(cat /tmp/killed.pid)
    wait $(cat /tmp/killed.pid)
    runs pagepool_xsk 1; runs xdpfilt_alw_eth 1
    start drop $P drop near0 --beside=5 --match arp --verify --stats-every 0
    runs pagepool_xsk 1; runs xdpfilt_alw_eth 1
    before=$(received near0)
    send far0 100
    [ $(($(received near0) - before)) -ge 100 ] || fail 'what does not match goes to the kernel'
    xdp-loader unload near0 --all || fail 'xdp-loader unload'
    tries=0
    while kill -0 $(cat /tmp/drop.pid) 2>/dev/null && [ $tries -lt 100 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
    wait $(cat /tmp/drop.pid)
    [ $? -eq 1 ] || fail \"drop ended with another status\"
    cat /tmp/drop
    grep -q 'somebody detached the XDP program of near0' /tmp/drop || fail 'it was not noticed'";

/// Scripts that other rows build on, by their names in `/cases`.
pub(super) const PARTS: [(&str, &str); 3] = [("drop", DROP), ("forward", FORWARD), ("xdp_tools", XDP_TOOLS)];

const HALF_PAGES_ON_IGB: &str = "packets of more than 1,024 bytes do not arrive as they were";

/// Every case, by guest.
pub const CASES: &[Case] = &[
    demo("5.10"),
    demo("6.1"),
    demo("6.12"),
    demo("7.3"),
    test("5.10", "tests/steering", "net_test steering"),
    test("6.1", "tests/steering", "net_test steering"),
    test("7.3", "tests/steering", "net_test steering"),
    test("5.10", "tests/beside", "net_test beside"),
    test("7.3", "tests/beside", "net_test beside"),
    Case::new("5.10", "beside xdp-filter", BESIDE_XDP_FILTER),
    Case::new("6.1", "beside xdp-filter", BESIDE_XDP_FILTER),
    Case::new("7.3", "beside xdp-filter", BESIDE_XDP_FILTER),
    Case::new("6.1", "beside others, killed", BESIDE_KILLED),
    Case::new("7.3", "beside others, killed", BESIDE_KILLED),
    test("6.1", "tests/link", "net_test link"),
    test("6.1", "tests/redirect", "net_test redirect"),
    test("6.1", "tests/xsk", "net_test xsk"),
    test("6.1", "tests/xsk_errors", "net_test xsk_errors"),
    test("6.1", "tests/xsk_killed", "net_test xsk_killed"),
    test("6.1", "tests/xsk_queues", "net_test xsk_queues"),
    test("6.1", "tests/xsk_sending", "net_test xsk_sending"),
    test("6.1", "tests/xsk_teardown", "net_test xsk_teardown"),
    test("7.3", "tests/link", "net_test link"),
    test("7.3", "tests/redirect", "net_test redirect"),
    test("7.3", "tests/xsk_errors", "net_test xsk_errors"),
    test("7.3", "tests/xsk_killed", "net_test xsk_killed"),
    test("7.3", "tests/xsk_sending", "net_test xsk_sending"),
    demo("nodes"),
    Case::new("nodes", "drop", DROP_ON_NODES),
    Case::new("nodes", "gen", GEN_ON_NODES),
    Case::new("nodes", "bench numa", "$P bench numa --quick"),
    test("nodes", "tests of nodes", "net_test nodes"),
    test("virtio", "conformance, whole pages", CONFORMANCE),
    test("virtio", "conformance, half pages", CONFORMANCE_HALF_PAGES),
    Case::new("virtio", "drop", DROP),
    Case::new("virtio", "drop --frame-size 2048", DROP_HALF_PAGES),
    Case::new("virtio", "drop --unaligned", DROP_UNALIGNED),
    Case::new("virtio", "drop --busy-poll", DROP_BUSY_POLL),
    Case::new("virtio", "gen", GEN),
    Case::new("virtio", "echo", ECHO),
    Case::new("virtio", "BPF batch is refused", BPF_BATCH),
    Case::new("virtio", "forward", FORWARD),
    Case::new("virtio", "forward of unicast", FORWARD_UNICAST),
    Case::new("virtio", "closed under traffic", CLOSE),
    Case::new("virtio", "a stream through start and stop", STREAM),
    Case::new("virtio", "killed and opened again", KILL),
    Case::new("virtio", "down and up", FLAP),
    Case::new("virtio", "MTU 9000", JUMBO),
    Case::new("virtio", "TCP through forward", TCP),
    test("igb", "conformance, whole pages", CONFORMANCE),
    Case {
        known_fault: Some(HALF_PAGES_ON_IGB),
        ..test("igb", "conformance, half pages", CONFORMANCE_HALF_PAGES)
    },
    Case::new("igb", "drop", DROP),
    Case::new("igb", "drop --frame-size 2048", DROP_HALF_PAGES),
    Case::new("igb", "drop --unaligned", DROP_UNALIGNED),
    Case::new("igb", "drop --busy-poll", DROP_BUSY_POLL),
    Case::new("igb", "gen", GEN),
    Case::new("igb", "echo", ECHO),
    Case::new("igb", "forward", FORWARD),
    Case::new("igb", "forward of unicast", FORWARD_UNICAST),
    Case::new("igb", "closed under traffic", CLOSE),
    Case::new("igb", "killed and opened again", KILL),
    Case::new("igb", "down and up", FLAP),
    Case::new("igb", "MTU 9000", JUMBO),
    Case::new("igb", "TCP through forward", TCP),
];
