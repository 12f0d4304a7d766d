//! What the cases of the doctor run: it finds what a script brings about, and nothing of the kind without.

/// The doctor finds that a socket copies on a card that has zero copy, and that its program runs in generic
/// mode; nothing of the kind with zero copy. There the driver has buffers beside those for the receive ring,
/// which becomes full while the process stands still.
pub(super) const DOCTOR_OF_COPY: &str = "up eth0 eth1
    start drop $P drop eth0 --mode copy --stats-every 0
    doctor finds copy_mode
    stop drop
    start drop $P drop eth0 --mode zerocopy --stats-every 0
    doctor lacks copy_mode generic_xdp rx_ring_full
    stop drop
    start drop $P drop eth0 --mode zerocopy --ring 64 --stats-every 0
    process=$(cat /tmp/drop.pid)
    while kill -STOP $process; do sleep 0.3; kill -CONT $process; sleep 0.2; done &
    halting=$!
    doctor finds rx_ring_full
    kill $halting
    kill -CONT $process
    stop drop
    start drop $P drop eth0 --mode generic --stats-every 0
    doctor finds generic_xdp
    stop drop";

/// eth0 is a card of node 1, and CPU 0 is of node 0. The memory is on the card's node.
pub(super) const DOCTOR_OF_NODES: &str = "up eth0 eth1
    start drop $P drop eth0 --mode zerocopy --cpus 0 --stats-every 0
    interrupts virtio 1
    doctor finds off_node_card off_node_irq off_node_memory
    stop drop
    start drop $P drop eth0 --mode zerocopy --stats-every 0
    doctor lacks off_node_card off_node_irq off_node_memory
    stop drop";

/// The thread is on CPU 1, as pktgen is: then there are as many interrupts as packets. They come to that CPU,
/// and then to the other. What the thread does with a packet has to take half of the CPU.
pub(super) const DOCTOR_OF_A_SHARED_CPU: &str =
    "mtu() { ip link set eth0 mtu $1 && ip link set eth1 mtu $1; }
    mtu 3400 || fail 'no MTU of 3400'
    trap 'mtu 1500' EXIT
    up eth0 eth1
    start drop $P echo eth0 --mode copy --cpus 1 --rx-usecs 0 --pcap /dev/null --stats-every 0
    interrupts input 1
    crowded irq_on_cpu 60 echo clone_skb=1000 pkt_size=3400
    interrupts input 0
    flood eth1 eth0 delay=$delay clone_skb=1000 pkt_size=3400
    look echo
    flood_ends
    lacks irq_on_cpu
    stop drop";

/// Packets from 64 addresses come to both queues of igb, whose interrupts go to one CPU, then to one each.
pub(super) const DOCTOR_OF_INTERRUPTS: &str = "up eth0 eth1
    start drop $P drop eth0 --mode zerocopy --cpus 0 --rx-usecs 10000 --stats-every 0
    up eth0
    interrupts eth0-rx 1
    crowded irqs_on_one_cpu 0 drop src_max=10.0.0.66 flag=IPSRC_RND
    interrupts eth0-rx-0 0
    flood eth1 eth0 delay=$delay src_max=10.0.0.66 flag=IPSRC_RND
    look drop
    flood_ends
    lacks irqs_on_one_cpu
    stop drop";

/// The ring of an RTL8139C+ has 64 slots. A driver that is given eight packets at a time has all of them, one
/// that is given 200 has not, and the card counts the others.
pub(super) const DOCTOR_OF_A_SHORT_RING: &str = "up eth2 eth3
    start drop $P drop eth2 --mode copy --stats-every 0
    flood eth3 eth2 clone_skb=1000 burst=8 delay=20000000
    look drop
    flood_ends
    lacks card_dropped
    flood eth3 eth2 clone_skb=1000 burst=200 delay=50000000
    look drop
    flood_ends
    finds card_dropped
    stop drop";

/// `hold` starts somebody on CPU 1 who reads nothing of what comes to his port, 67: busybox has a server of
/// DHCP. The driver is on CPU 0, and each packet has a page.
pub(super) const HOLDER: &str =
    "ip link set eth0 mtu 9000 && ip link set eth1 mtu 9000 || fail 'no MTU of 9000'
    up eth0 eth1
    interrupts input 0
    ip addr add 10.0.0.1/24 dev eth0
    sysctl -q -w net.core.rmem_default=67108864
    printf 'start 10.0.0.20\nend 10.0.0.30\ninterface eth0\nlease_file /tmp/leases\n' >/tmp/udhcpd.conf
    : >/tmp/leases
    hold() {
        taskset 2 udhcpd -f /tmp/udhcpd.conf >/dev/null 2>&1 &
        holder=$!
        tries=0
        while ! grep -q ':0043 ' /proc/net/udp; do
            [ $tries -lt 100 ] || fail 'no udhcpd'
            tries=$((tries + 1))
            sleep 0.1
        done
        kill -STOP $holder
    }
    hold_and_drop() { hold; arrive eth0 1000; kill -9 $holder; wait $holder; }
    flood eth1 eth0 pkt_size=4000 clone_skb=1000 burst=16 delay=4000000 udp_dst_min=67 udp_dst_max=67";

/// The kernel drops all packets at once, and its page pool has their pages again. Then a socket has 1,000 of
/// them when it ends on another CPU: more than the pool's ring takes, so that the driver asks the system.
pub(super) const DOCTOR_OF_KERNEL_POOLS: &str = ". /cases/holder
    look
    lacks kernel_slow kernel_ring_full
    while hold_and_drop; [ ! -e /tmp/enough ]; do :; done 2>/dev/null &
    holding=$!
    sleep 0.5
    look
    : >/tmp/enough
    wait $holding
    flood_ends
    finds kernel_slow kernel_ring_full
    ip addr flush dev eth0
    ip link set eth0 mtu 1500; ip link set eth1 mtu 1500";

/// The driver gives up its page pool while a socket has packets of it, for a minute. Afterwards the card has
/// its driver again.
pub(super) const DOCTOR_OF_A_POOL_GIVEN_UP: &str = ". /cases/holder
    hold
    arrive eth0 500
    flood_ends
    card=$(basename $(readlink -f /sys/class/net/eth0/device))
    echo $card >/sys/bus/virtio/drivers/virtio_net/unbind || fail 'the driver does not go'
    look
    lacks kernel_detached
    sleep 60
    look
    finds kernel_detached
    kill -9 $holder
    sleep 3
    look
    lacks kernel_detached
    echo $card >/sys/bus/virtio/drivers/virtio_net/bind
    ip link set eth1 mtu 1500";
