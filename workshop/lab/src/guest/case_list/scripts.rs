//! The scripts of the cases: commands for a guest's shell, with the functions of `prelude.sh`.
//!
//! `$MODE` is the AF_XDP mode; its default is zero copy.

use super::doctor_scripts::HOLDER;

/// eth0 receives 2,000 frames.
pub(super) const DROP: &str = "up eth0 eth1
    start drop $P drop eth0 --mode $MODE --verify --stats-every 0 $OPTIONS
    send eth1 2000
    stop drop
    exactly drop 'numbered frames, intact' 2000";

pub(super) const DROP_SMALL_PAGES: &str = "OPTIONS='--chunk-size 2048'; . /cases/drop";
pub(super) const DROP_UNALIGNED: &str = "OPTIONS='--chunk-size 3072'; . /cases/drop";

/// The kernel's trace shows who polled eth0, and with which budget: softirqs have 64. Interrupts are deferred
/// for a second, because QEMU may delay the thread, which must then poll at least half of the packets, or
/// `$LEAST`.
pub(super) const DROP_BUSY_POLL: &str = "card=/sys/class/net/eth0
    polls=/sys/kernel/tracing/events/napi/napi_poll
    settings() {
        echo $1 >$card/napi_defer_hard_irqs
        echo $2 >$card/gro_flush_timeout
        echo $3 >$polls/enable
    }
    trap 'settings 0 0 0' EXIT
    echo 'dev_name == \"eth0\" && work > 0' >$polls/filter || fail 'no trace of polls'
    settings 1000 1000000000 1 || fail 'no trace of polls'
    OPTIONS=--busy-poll=63; . /cases/drop
    awk '/ budget / { n[$NF \" by \" $1] += $(NF - 2) }
        END { for (of in n) print n[of], \"at a budget of\", of }' /sys/kernel/tracing/trace >/tmp/polls
    cat /tmp/polls
    polled=$(awk '/ of 63 by / { n += $1 } END { print n + 0 }' /tmp/polls)
    note \"$polled of 2000 frames by busy polling\"
    [ $polled -ge ${LEAST:-1000} ] || fail 'interrupts and softirqs brought the rest'";

/// 0 without the option; 49 to 904 in six runs.
pub(super) const DROP_BUSY_POLL_ON_IGB: &str = "LEAST=1; . /cases/drop_busy_poll";

pub(super) const GEN: &str = "up eth0 eth1
    start drop $P drop eth1 --mode copy --verify --stats-every 0
    $P gen eth0 --mode $MODE --rate 2000 --count 2000 --stats-every 0
    status=$?
    sleep 0.5
    stop drop
    [ $status -eq 0 ] || fail \"gen ended with $status\"
    exactly drop 'numbered frames, intact' 2000";

pub(super) const ECHO: &str = "up eth0 eth1
    start echo $P echo eth0 --mode $MODE --stats-every 0
    before=$(received eth1)
    send eth1 2000 $TO
    after=$(received eth1)
    stop echo
    [ $((after - before)) -ge 2000 ] || fail \"$((after - before)) frames came back\"";

/// With zero copy, sending by a BPF program is refused.
pub(super) const BPF_BATCH: &str = "up eth0 eth1
    for mode in zerocopy auto; do
        $P echo eth0 --mode $mode --tx-mode bpf-batch --seconds 1 --stats-every 0 >/tmp/said 2>&1
        status=$?
        cat /tmp/said
        [ $status -ne 0 ] || fail \"--mode $mode: it was not refused\"
        grep -q 'ring or auto with zero copy' /tmp/said || fail \"--mode $mode: another reason\"
    done";

/// From eth1 through eth0 and eth2 to eth3; `$TO` sets the destination address.
pub(super) const FORWARD: &str = "up eth0 eth1 eth2 eth3
    start drop $P drop eth3 --mode copy --verify --stats-every 0
    start forward $P forward eth0 eth2 --mode $MODE --stats-every 0
    send eth1 2000 $TO
    stop forward
    stop drop
    exactly drop 'numbered frames, intact' 2000";

pub(super) const FORWARD_UNICAST: &str = "ip link set eth3 promisc on
    TO='--dst 02:00:00:00:00:09'; . /cases/forward";

pub(super) const CLOSE: &str = "up eth0 eth1
    start gen $P gen eth1 --mode copy --rate 1000 --stats-every 0
    for turn in 1 2 3; do
        start drop $P drop eth0 --mode zerocopy --verify --stats-every 0
        up eth0 # a card may take its link down for a new ring
        arrive eth0 300
        stop drop
        at_least drop 'numbered frames, intact' 100
        exactly drop '  damaged' 0
    done
    stop gen";

/// A stream of 1,000 frames a second while eth0 is opened and closed twice. Of 10,000 frames at most `$MOST`
/// may be lost, by default 20: 5 ms per start and per stop.
pub(super) const STREAM: &str = "up eth0 eth1
    before=$(received eth0)
    start gen $P gen eth1 --mode copy --rate 1000 --count 10000 --stats-every 0
    for turn in 1 2; do
        start drop $P drop eth0 --mode zerocopy --verify --stats-every 0
        arrive eth0 300
        stop drop
        at_least drop 'numbered frames, intact' 100
    done
    wait $(cat /tmp/gen.pid)
    sleep 0.5
    lost=$((10000 - $(received eth0) + before))
    note \"lost $lost of 10000\"
    [ $lost -le ${MOST:-20} ] || fail \"more than ${MOST:-20} frames were lost, in 2 starts and 2 stops\"";

/// igb restarts its link for each XDP program: the stream pauses for about two seconds per start and per
/// stop.
pub(super) const STREAM_ON_IGB: &str = "downs() { cat /sys/class/net/eth0/carrier_down_count; }
    before_all=$(downs)
    MOST=10000; . /cases/stream
    downs=$(($(downs) - before_all))
    note \"the link restarted $downs times\"
    [ $downs -le 4 ] || fail 'more than once a start and once a stop'";

pub(super) const KILL: &str = "up eth0 eth1
    start gen $P gen eth1 --mode copy --rate 1000 --stats-every 0
    start killed $P drop eth0 --mode zerocopy --stats-every 0
    kill -9 $(cat /tmp/killed.pid)
    wait $(cat /tmp/killed.pid)
    start drop $P drop eth0 --mode zerocopy --verify --stats-every 0
    up eth0
    arrive eth0 300
    stop drop
    stop gen
    at_least drop 'numbered frames, intact' 100";

pub(super) const FLAP: &str = "up eth0 eth1
    start drop $P drop eth0 --mode zerocopy --verify --stats-every 0
    start gen $P gen eth1 --mode copy --rate 1000 --stats-every 0
    ip link set eth0 down
    sleep 0.5
    up eth0
    stop gen
    send eth1 2000
    stop drop
    at_least drop 'packets received' 2000";

/// Zero copy, or the fallback of `auto`.
pub(super) const JUMBO: &str =
    "ip link set eth0 mtu 9000 && ip link set eth1 mtu 9000 || skip 'the card has no MTU of 9000'
    up eth0 eth1
    start drop $P drop eth0 --verify --stats-every 0
    note \"$(mode drop eth0)\"
    send eth1 500 --size 9000
    stop drop
    ip link set eth0 mtu 1500
    ip link set eth1 mtu 1500
    exactly drop 'numbered frames, intact' 500";

/// `--mode auto` over two cards, in either order: copy mode for both, because one has no zero copy.
pub(super) const MIXED: &str = "up eth0 eth1 eth2 eth3
    for cards in 'eth0 eth3' 'eth3 eth0'; do
        start drop $P drop eth2 --mode copy --verify --stats-every 0
        start forward $P forward $cards --mode auto --stats-every 0
        for card in eth0 eth3; do
            mode forward $card | grep -q ', copy$' || fail \"$card: $(mode forward $card), not copy\"
        done
        send eth1 2000
        stop forward
        stop drop
        exactly drop 'numbered frames, intact' 2000
    done
    note \"$(mode forward eth0) and $(mode forward eth3)\"";

/// 1 MiB between two namespaces that hold eth1 and eth3.
pub(super) const TCP: &str = "up eth0 eth2
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

pub(super) const SLEEPING: &str = "net_test sleeping \
    an_idle_forwarder_between_interfaces_sleeps_until_a_packet a_packet_wakes a_signal \
    own_returns_before_a_sleep_reach_a_socket_without_buffers";

pub(super) const EXAMPLES: &str = "net_test examples";

/// With fewer packets: QEMU translates every instruction of them.
pub(super) const THREADS: &str = "export PAGEPOOL_PACKETS=10000
    net_test threads";

pub(super) const CONFORMANCE: &str = "up eth0 eth1
    promiscuous eth0 eth1
    PAGEPOOL_CARDS=eth0,eth1 net_test cards pages_of_4_kib";

pub(super) const KERNEL_STACK: &str = "PAGEPOOL_TRIMMED=1 net_test kernel_stack";

/// Without it the tests would be skipped.
pub(super) const VHOST_NET: &str = "[ -c /dev/vhost-net ] || fail 'no /dev/vhost-net'
    PAGEPOOL_TRIMMED=1 net_test vhost_net";

/// What goes into one TAP is echoed, or leaves by the other.
pub(super) const COMMANDS_ON_VHOST_NET: &str = "[ -c /dev/vhost-net ] || fail 'no /dev/vhost-net'
    start echo $P echo vhost_net:t0 --queues 0,1 --stats-every 0
    before=$(received t0)
    send t0 2000
    after=$(received t0)
    stop echo
    [ $((after - before)) -ge 2000 ] || fail \"$((after - before)) frames came back\"
    start forward $P forward vhost_net:t0 vhost_net:t1 --stats-every 0
    before=$(received t1)
    send t0 2000
    after=$(received t1)
    stop forward
    [ $((after - before)) -ge 2000 ] || fail \"$((after - before)) frames were forwarded\"";

pub(super) const PASSED_BY_CARD: &str = "up eth0 eth1
    promiscuous eth0 eth1
    PAGEPOOL_CARDS=eth0,eth1 net_test kernel_stack --exact what_a_card_receives_goes_up_once";

pub(super) const CONFORMANCE_SMALL_PAGES: &str = "up eth0 eth1
    promiscuous eth0 eth1
    PAGEPOOL_CARDS=eth0,eth1 net_test cards pages_of_2_kib";

/// igb uses whole KiB of a buffer: 1,024 bytes of a page of 2 KiB. It continues a longer packet in the next
/// buffer.
pub(super) const CONFORMANCE_SMALL_PAGES_ON_IGB: &str = "up eth0 eth1
    promiscuous eth0 eth1
    export PAGEPOOL_LONGEST=1024
    PAGEPOOL_CARDS=eth0,eth1 net_test cards pages_of_2_kib";

/// igb with packets of 1,024 bytes, and of 1,100, which cause a warning. If a kernel does not cut them, this
/// fails: remove the warning.
pub(super) const SMALL_PAGES_ON_IGB: &str = "up eth0 eth1
    start drop $P drop eth0 --mode zerocopy --chunk-size 2048 --verify --stats-every 0
    send eth1 500 --size 1024
    stop drop
    exactly drop 'numbered frames, intact' 500
    grep -q 'warning: igb gives eth0 1024 of the 2048 bytes of a chunk' /tmp/drop || fail 'no warning'
    start drop $P drop eth0 --mode zerocopy --chunk-size 2048 --stats-every 0
    up eth0
    send eth1 500 --size 1100
    stop drop
    exactly drop 'packets received' 1000";

/// eth0 is a card of node 1: received on a CPU of its node, and of the other.
pub(super) const DROP_ON_NODES: &str = "up eth0 eth1
    for cpu in 1 0; do
        echo \"on CPU $cpu\"
        start drop $P drop eth0 --mode zerocopy --cpus $cpu --verify --stats-every 0
        placed drop $cpu 1
        RATE=4000 send eth1 8000
        stop drop
        exactly drop 'numbered frames, intact' 8000
    done";

/// eth0 is a card of node 7: by default the thread is on CPU 7, and all memory on node 7.
pub(super) const DROP_ON_8_NODES: &str = "up eth0 eth1
    start drop $P drop eth0 --mode zerocopy --verify --stats-every 0
    placed drop 7 7
    send eth1 1000
    stop drop
    exactly drop 'numbered frames, intact' 1000
    start drop $P drop eth0 --mode zerocopy --cpus 0 --verify --stats-every 0
    send eth1 1000
    stop drop
    exactly drop 'numbered frames, intact' 1000";

pub(super) const GEN_ON_NODES: &str = "up eth0 eth1
    for cpu in 1 0; do
        echo \"on CPU $cpu\"
        $P gen eth0 --mode zerocopy --cpus $cpu --rate 4000 --count 8000 --stats-every 0 || fail gen
    done";

/// Packets as long as the MTU allows, received and sent.
pub(super) const LONG: &str = "up eth0 eth1
    start drop $P drop eth0 --mode zerocopy --verify --stats-every 0
    send eth1 500 --size 1514
    stop drop
    exactly drop 'numbered frames, intact' 500
    start drop $P drop eth1 --mode copy --verify --stats-every 0
    $P gen eth0 --mode zerocopy --size 1514 --rate 2000 --count 500 --stats-every 0 || fail gen
    sleep 0.5
    stop drop
    exactly drop 'numbered frames, intact' 500";

/// `$NEAR` receives frames of VLAN 100 from `$FAR`. It removes the tags of `$LOST` of 50, with a warning;
/// with `--fix-offloads` of none.
pub(super) const TAGS: &str = "ip link add link $FAR name vlan100 type vlan id 100 || fail 'no VLAN'
    promiscuous $NEAR # a card filters VLANs that the kernel has no interface for
    up $NEAR $FAR vlan100
    for fix in '' --fix-offloads; do
        rm -f /tmp/tags.pcap
        start drop $P drop $NEAR --mode $MODE $fix --verify --stats-every 0 --pcap /tmp/tags.pcap
        up $NEAR
        $P gen vlan100 --mode copy --rate 500 --count 50 --stats-every 0 || fail gen
        sleep 0.5
        stop drop
        exactly drop 'packets in the capture file' 50
        [ -z \"$fix\" ] || LOST=0
        tagged=$(xxd -p /tmp/tags.pcap | tr -d '\\n' | grep -o 8100006488b5 | wc -l)
        # The verdict says it once more, without the prefix.
        warned=$(grep -c '^pagepool: warning: .* without .*VLAN tags' /tmp/drop)
        [ $tagged -eq $((50 - LOST)) ] || fail \"$NEAR $fix: $tagged of 50 frames have their tags\"
        [ $warned -eq $((LOST > 0)) ] || fail \"$NEAR $fix: $warned warnings\"
    done
    ip link del vlan100";

pub(super) const TAGS_OF_VIRTIO: &str = "NEAR=eth0 FAR=eth1 LOST=0; . /cases/tags";
pub(super) const TAGS_OF_IGB: &str = "NEAR=eth0 FAR=eth1 LOST=50; . /cases/tags";
pub(super) const TAGS_OF_E1000E: &str = "MODE=copy NEAR=eth1 FAR=eth0 LOST=50; . /cases/tags";
pub(super) const TAGS_OF_VMXNET3: &str = "MODE=copy NEAR=eth0 FAR=eth1 LOST=50; . /cases/tags";

/// A user with only the capabilities of `docs/operations.md`, on a kernel that refuses bpf(2) to others. The
/// second run would find a program that stayed attached.
pub(super) const DROP_AS_USER: &str = "[ -x /root/setpriv ] || skip 'the machine has no setpriv'
    sysctl -q -w kernel.unprivileged_bpf_disabled=2 || fail 'no such setting'
    chmod 755 /root
    caps=-all,+net_raw,+net_admin,+bpf,+ipc_lock
    user='/root/setpriv --reuid 1000 --regid 1000 --clear-groups'
    user=\"$user --inh-caps=$caps --bounding-set=$caps --ambient-caps=$caps\"
    pair
    for turn in 1 2; do
        start drop $user $P drop near --verify --stats-every 0
        kept=$(sed -n 's/^CapPrm:.//p' /proc/$(cat /tmp/drop.pid)/status)
        send far 500
        stop drop
        exactly drop 'numbered frames, intact' 500
        [ $kept = $KEPT ] || fail \"it keeps the capabilities $kept, not $KEPT\"
    done
    $user $P drop near --match udp --seconds 1 >/tmp/said 2>&1 && fail 'a match took no CAP_PERFMON'
    cat /tmp/said
    grep -q 'no CAP_PERFMON' /tmp/said || fail 'another reason'";

/// CAP_BPF: before Linux 5.19 detaching requires it.
pub(super) const DROP_AS_USER_BEFORE_5_19: &str = "KEPT=0000008000000000; . /cases/drop_as_user";

/// Three runs use one pinned link; the second is killed. At the end no program is attached.
pub(super) const PINNED: &str = "pair
    pinned='--pin /sys/fs/bpf'
    start gen $P gen far --mode copy --rate 1000 --stats-every 0
    start first $P drop near $pinned --verify --stats-every 0
    arrive near 300
    stop first
    start second $P drop near $pinned --verify --stats-every 0
    kill -9 $(cat /tmp/second.pid)
    wait $(cat /tmp/second.pid)
    start third $P drop near $pinned --verify --stats-every 0
    rm /sys/fs/bpf/pagepool-near || fail 'nothing is pinned'
    arrive near 300
    stop third
    start last $P drop near --verify --stats-every 0
    arrive near 300
    stop last
    stop gen
    for run in first third last; do at_least $run 'numbered frames, intact' 100; done";

/// eth0 has four queues. Numbered frames are one flow, thus at one queue; unanswered pings to forty groups
/// arrive at all.
pub(super) const QUEUES: &str = "promiscuous eth0 # a card filters groups
    up eth0 eth1
    start drop $P drop eth0 --mode $MODE --verify --stats-every 0 --json
    grep -q 'queues 0-3 (4 of 4)' /tmp/drop || fail 'it has not four queues'
    send eth1 1000
    pings eth1 40
    stop drop
    grep -q '\"good\": 1000' /tmp/drop || fail 'not all numbered frames are intact'
    used=$(grep -c '^ *\"rx\": [1-9]' /tmp/drop)
    [ $used -eq 4 ] || fail \"packets came to $used queues\"";

/// A bridge drops frames from the broadcast address, such as an echo of a broadcast.
pub(super) const ECHO_TO_CARD: &str = "TO='--dst 52:54:00:00:00:00'; . /cases/echo";

/// The end `near0` of a veth runs programs of several tools.
const XDP_TOOLS: &str = "[ -x /usr/sbin/xdp-loader ] || skip 'xdp-tools are not installed'
    runs() {
        xdp-loader status near0 >/tmp/chain || { cat /tmp/chain; fail 'xdp-loader'; }
        [ $(grep -c \" $1 \" /tmp/chain) -eq $2 ] || { cat /tmp/chain; fail \"$1: not $2 times\"; }
    }
    filter() { xdp-filter load near0 -p allow -f ethernet && xdp-filter ether -m dst $NINE || fail filter; }
    NINE=02:00:00:00:00:09
    trap 'ip link del near0; rm -rf /sys/fs/bpf/xdp/dispatch-*' EXIT
    ip link add near0 type veth && ip link set veth0 name far0 && up near0 far0 || fail veth";

/// `drop` beside xdp-filter, which drops frames to one address: with, without, and with it again.
pub(super) const BESIDE_XDP_FILTER: &str = ". /cases/xdp_tools
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

/// `drop` begins the chain; a killed run leaves its program to the next; xdp-loader removes it.
pub(super) const BESIDE_KILLED: &str = ". /cases/xdp_tools
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
    grep -q 'the XDP program of near0 was detached' /tmp/drop || fail 'it was not noticed'";

/// At the end a name of the chain is missing: the chain cannot be changed, and the program stays, with a
/// warning. The run passes.
pub(super) const BESIDE_STAYS: &str = "pair
    trap 'ip link del near; rm -rf /sys/fs/bpf/xdp/dispatch-*' EXIT
    start drop $P drop near --beside --verify --stats-every 0
    send far 100
    mv /sys/fs/bpf/xdp/dispatch-*/prog0-prog /sys/fs/bpf/xdp/aside || fail 'no name'
    stop drop
    rm /sys/fs/bpf/xdp/aside
    exactly drop 'numbered frames, intact' 100
    stays='warning: .* stays in the chain of near, .*`xdp-loader unload near --id '
    grep -q \"$stays\" /tmp/drop || fail 'no warning'";

/// 32 flows to eth0: queue 1 gets some, then all while the table is held, then as many as at first. igb's
/// hash key is random: flows that differ in 16 bits do not all fall to one side.
pub(super) const RSS: &str = "up eth0 eth1
    ip addr add 10.0.0.1/24 dev eth1
    arp -s 10.0.0.2 $(cat /sys/class/net/eth0/address)
    route add -net 10.1.0.0/16 gw 10.0.0.2
    trap 'ip addr flush dev eth1' EXIT
    for bit in 1 2 4 8 16 32 64 128; do flows=\"$flows 10.1.0.$bit 10.1.$bit.0\"; done
    for n in $(seq 16); do flows=\"$flows 10.1.$((n * 15)).$((n * 37 % 256))\"; done
    received_with() {
        pings=
        start drop $P drop eth0 --queues 1 --match 'net 10.1.0.0/16' --stats-every 0 $1
        up eth0 eth1
        if [ -n \"$1\" ]; then
            $P drop eth0 --queues 0 --rss >/tmp/second 2>&1 && fail 'a second --rss'
            cat /tmp/second
            grep -q \"process $(cat /tmp/drop.pid) spreads the flows\" /tmp/second || fail 'another reason'
        fi
        for to in $flows; do ping -c 1 -W 1 $to >/dev/null & pings=\"$pings $!\"; done
        wait $pings
        kill -TERM $(cat /tmp/drop.pid)
        wait $(cat /tmp/drop.pid)
        cat /tmp/drop
        got=$(figure drop 'packets received')
    }
    received_with; some=$got
    [ $some -gt 0 ] && [ $some -lt 32 ] || fail \"queue 1 got $some of 32\"
    received_with --rss
    [ $got -eq 32 ] || fail \"queue 1 got $got of 32 with --rss\"
    received_with
    [ $got -eq $some ] || fail \"queue 1 got $got after the end, and $some before\"";

/// virtio-net's page pool before and after 2,000 frames, which the kernel drops.
pub(super) const KERNEL_POOLS: &str = "up eth0 eth1
    counter() { $P list --kernel --json | grep -m 1 \"\\\"$1\\\"\" | tr -dc 0-9; }
    before=$(counter recycle_cached)
    send eth1 2000
    after=$(counter recycle_cached)
    $P list --kernel >/tmp/said
    cat /tmp/said
    grep -q 'eth0 (' /tmp/said || fail 'no pool of eth0'
    [ \"$(counter inflight)\" -gt 0 ] || fail 'its pool has no page'
    [ \"$after\" -gt \"$before\" ] || fail \"recycle_cached is $after, and was $before\"";

/// Scripts that others include, by their names in `/cases`.
pub(in crate::guest) const PARTS: [(&str, &str); 11] = [
    ("drop", DROP),
    ("drop_busy_poll", DROP_BUSY_POLL),
    ("gen", GEN),
    ("echo", ECHO),
    ("forward", FORWARD),
    ("stream", STREAM),
    ("tags", TAGS),
    ("queues", QUEUES),
    ("drop_as_user", DROP_AS_USER),
    ("xdp_tools", XDP_TOOLS),
    ("holder", HOLDER),
];
