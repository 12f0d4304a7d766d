//! The scripts of the doctor's cases: each causes a fault, and checks that the doctor finds it, and none
//! without it.

/// Copy mode on a card with zero copy, and generic XDP. With zero copy the driver has further buffers, and
/// the receive ring fills up while the process is stopped.
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

/// eth0 is a card of node 1, with memory there; CPU 0 belongs to node 0.
pub(super) const DOCTOR_OF_NODES: &str = "up eth0 eth1
    start drop $P drop eth0 --mode zerocopy --cpus 0 --stats-every 0
    interrupts virtio 1
    doctor finds off_node_card off_node_irq off_node_memory
    stop drop
    start drop $P drop eth0 --mode zerocopy --stats-every 0
    doctor lacks off_node_card off_node_irq off_node_memory
    stop drop";

/// Thread and pktgen run on CPU 1: then each packet causes an interrupt. Interrupts go to that CPU, and later
/// to the other. The thread's work must take half of the CPU.
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

/// Packets from 64 addresses arrive at both queues of igb. Its interrupts go to one CPU, and later to one CPU
/// each.
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

/// The ring of an RTL8139C+ has 64 slots: it holds bursts of eight packets, and drops some of 200, which the
/// card counts.
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

/// `hold` starts a process on CPU 1 that reads nothing from its port, 67: busybox's DHCP server. The driver
/// is on CPU 0, and each packet takes a page.
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

/// At first the kernel drops all packets, and its page pool gets their pages back. Then a socket that holds
/// 1,000 closes on another CPU: more than the pool's ring takes, and the driver requests pages from the
/// system.
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

/// The driver releases its page pool while a socket holds packets of it for a minute. Then the card gets its
/// driver back.
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
