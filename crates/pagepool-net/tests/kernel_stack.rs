//! Packets that user space passes on to the kernel's stack of the same interface.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream, UdpSocket};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::veth::{self, CAP_PERFMON, CAP_SYS_ADMIN, Veth};
use pagepool::{Arena, ArenaParams, Bound, DeviceMemory, NodeId, Pool, PoolParams, XdpBuff};
use pagepool_lab::FrameSocket;
use pagepool_link::{TwoHosts, TwoHostsParams};
use pagepool_net::{
    Action, Attach, ForwardStats, Forwarder, Ingress, KernelStack, KernelStackStats, PortId, Redirect, Stack,
    Umem, UmemParams, XskDevice, XskMode, XskParams,
};

/// The address of the kernel behind user space.
const OURS: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 9);

/// The longest MTU of a veth whose packets have one buffer.
const ONE_BUFFER: u32 = 3400;

/// What a forwarder saw until it ended.
struct Ended {
    stack: KernelStackStats,
    stopped: Option<String>,
    port: ForwardStats,
    /// Pages that did not return.
    missing: i64,
    /// The numbers of our packets, as user space received them.
    order: Vec<u32>,
}

/// Two hosts; the near end of the first has an address, and all its packets go through user space.
struct Bed {
    hosts: TwoHosts,
    stop: Arc<AtomicBool>,
    forwarder: JoinHandle<Ended>,
}

fn device(attach: Attach, several: bool) -> (XskDevice, Bound) {
    try_device_on("near0", XskMode::Copy, attach, several).expect("the queue is free")
}

fn try_device_on(
    interface: &str,
    mode: XskMode,
    attach: Attach,
    several: bool,
) -> Result<(XskDevice, Bound), pagepool::Error> {
    let arena = Arena::new(ArenaParams { max_bytes: 32 << 20, commit_all: true, ..Default::default() });
    let arena = arena.expect("32 MiB are free");
    let umem = UmemParams { mode, multi_buffer: several, ..Default::default() };
    let umem = Umem::new(umem, &arena).expect("the kernel registers it");
    let domains: Vec<Arc<dyn pagepool::DmaDomain>> = vec![umem.clone()];
    let params = PoolParams { headroom: 256, wakeup: true, domains, ..Default::default() };
    let pool = Pool::new(params, arena).expect("a pool over it").bind();
    let redirect = Some(Redirect::attach(interface, attach, several).expect("no other program is there"));
    let params =
        XskParams { interface: interface.into(), redirect, busy_limit: veth::LIMIT, ..Default::default() };
    Ok((XskDevice::open(params, &umem, &pool)?, pool))
}

/// `near0` in this thread's namespace, with its other end; `None` after a line that says what is missing.
fn near(name: &str) -> Option<Rc<Veth>> {
    let missing = veth::missing();
    missing.iter().for_each(|why| println!("SKIP {name}: {why}"));
    missing.is_none().then(|| Veth::new(1, 1500))
}

/// Polls until `stop`, with a handler that passes all packets. Calls `ready` when the device has buffers.
fn pass_all(
    (device, pool): (XskDevice, Bound),
    stack: KernelStack,
    stop: &AtomicBool,
    ready: impl FnOnce(),
) -> Ended {
    let handle = pool.handle();
    let order = Rc::new(RefCell::new(Vec::new()));
    let seen = order.clone();
    let pass = move |packet: &mut XdpBuff, _: Ingress| {
        if packet.data()[12..14] == [0x88, 0xb5] {
            seen.borrow_mut().push(number_of(packet.data()));
        }
        Action::Pass
    };
    let mut forwarder = Forwarder::with_stack(pass, stack);
    let port = forwarder.add_port(device, pool);
    forwarder.poll();
    ready();
    let _ = forwarder.run(stop); // an error: the interface was removed
    let port = forwarder.stats(port).expect("it was added");
    let (stack, stopped) =
        (forwarder.stack_mut().stats(), forwarder.stack_mut().stopped().map(str::to_owned));
    drop(forwarder);
    Ended { stack, stopped, port, missing: handle.inflight().total, order: order.take() }
}

impl Bed {
    fn new(name: &str, mtu: u32) -> Option<Self> {
        if let Some(why) = veth::missing() {
            println!("SKIP {name}: {why}");
            return None;
        }
        if let Some(why) = veth::no_multi_buffer().filter(|_| mtu > ONE_BUFFER) {
            println!("SKIP {name}: {why}");
            return None;
        }
        let hosts = TwoHosts::new(&TwoHostsParams { mtu, ..Default::default() }).expect("root may have them");
        let index = hosts.near[0].index;
        let mut here = hosts.between.netlink().expect("a namespace of our own");
        here.add_address(index, OURS, 24).expect("it is free");
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, (ready, is_ready)) = (stop.clone(), mpsc::channel());
        let several = mtu > ONE_BUFFER;
        let forwarder = hosts.between.spawn("forwarder", move || {
            let opened = device(Attach::Native, several);
            let stack = KernelStack::new("near0").expect("root may load it");
            pass_all(opened, stack, &stopped, || ready.send(()).expect("the test waits"))
        });
        is_ready.recv_timeout(veth::LIMIT).expect("it opens");
        Some(Self { hosts, stop, forwarder: forwarder.expect("a thread") })
    }

    /// A raw socket at the other end, and one that sees what reaches the stack, as tcpdump does.
    fn wire(&self) -> (FrameSocket, FrameSocket) {
        let far = FrameSocket::of(&self.hosts.a).expect("it is there");
        let near = self.hosts.run_between(|| FrameSocket::tap_here("near0")).expect("it is there");
        (far, near)
    }

    fn end(self) -> (Ended, TwoHosts) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.forwarder.join().expect("it does not panic");
        assert_eq!(ended.missing, 0, "every page returned");
        let KernelStackStats { passed, refused, too_long, .. } = ended.stack;
        assert_eq!(passed + refused + too_long, ended.port.pass, "each packet is counted once");
        (ended, self.hosts)
    }
}

/// The byte at this place of a stream.
fn byte(at: u64) -> u8 {
    (at % 251) as u8
}

fn send_stream(stream: &mut TcpStream, bytes: u64) {
    let block: Vec<u8> = (0..251 * 1024).map(byte).collect();
    let mut left = bytes as usize;
    while left > 0 {
        let at = (bytes as usize - left) % 251;
        let n = (block.len() - at).min(left);
        stream.write_all(&block[at..at + n]).expect("the other side reads");
        left -= n;
    }
    stream.shutdown(Shutdown::Write).expect("it is open");
}

fn check_stream(stream: &mut TcpStream, bytes: u64) {
    let (mut got, mut block) = (0, vec![0; 1 << 18]);
    loop {
        let n = stream.read(&mut block).expect("the other side sends");
        if n == 0 {
            break;
        }
        let wrong = block[..n].iter().zip(got..).find(|(is, at)| **is != byte(*at));
        assert_eq!(wrong, None, "a byte of the stream");
        got += n as u64;
    }
    assert_eq!(got, bytes);
}

/// A packet to everybody that no protocol wants, with a number and bytes that follow from it.
fn frame(number: u32, len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..len).map(|at| (at as u32 * 7 + number) as u8).collect();
    bytes[..14].copy_from_slice(b"\xff\xff\xff\xff\xff\xff\x02from\x01\x88\xb5");
    bytes[14..18].copy_from_slice(&number.to_be_bytes());
    bytes
}

fn number_of(packet: &[u8]) -> u32 {
    u32::from_be_bytes(packet[14..18].try_into().expect("four bytes"))
}

/// The next packet with our EtherType (0x88b5), or with a VLAN tag.
fn next_of_ours(socket: &FrameSocket) -> Vec<u8> {
    next_with(socket, |packet| matches!(packet[12..14], [0x88, 0xb5] | [0x81, 0]))
}

/// The next packet that satisfies the condition.
fn next_with(socket: &FrameSocket, is_wanted: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let (start, mut packet) = (Instant::now(), vec![0; 1 << 16]);
    while start.elapsed() < veth::LIMIT {
        socket.wait(veth::LIMIT);
        if let Ok(Some(len)) = socket.receive(&mut packet)
            && is_wanted(&packet[..len])
        {
            return packet[..len].to_vec();
        }
    }
    panic!("no packet within {:?}", veth::LIMIT);
}

#[test]
fn udp_reaches_sockets_and_answers_return() {
    let Some(bed) = Bed::new("udp through user space", 1500) else { return };
    let server = bed.hosts.run_between(|| UdpSocket::bind((OURS, 9))).expect("its own address");
    let echo = std::thread::spawn(move || {
        let mut bytes = vec![0; 1 << 16];
        while let Ok((n, from)) = server.recv_from(&mut bytes)
            && n > 0
        {
            server.send_to(&bytes[..n], from).expect("the way back is the kernel's");
        }
    });
    let client = bed.hosts.a.namespace.run(|| UdpSocket::bind(("198.18.0.1", 0))).expect("its own address");
    client.connect((OURS, 9)).expect("a route");
    client.set_read_timeout(Some(veth::LIMIT)).expect("it is open");
    let mut bytes = vec![0; 1 << 16];
    for number in 0..300usize {
        let len = [1, 700, 1472, 5000, 20000][number % 5]; // the last two in fragments
        client.send(&vec![number as u8; len]).expect("a route");
        let n = client.recv(&mut bytes).expect("an answer");
        assert_eq!((n, bytes[..n].iter().all(|is| *is == number as u8)), (len, true), "datagram {number}");
    }
    client.send(&[]).expect("a route");
    echo.join().expect("it does not panic");
    let (ended, _) = bed.end();
    assert!(ended.stack.passed >= 300 && ended.stack.refused == 0, "{:?}", ended.stack);
}

/// A stream each way between a socket behind user space and one of the other host.
fn stream_both_ways(name: &str, mtu: u32, bytes: u64) {
    let Some(bed) = Bed::new(name, mtu) else { return };
    let listener = bed.hosts.run_between(|| TcpListener::bind((OURS, 7777))).expect("its own address");
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("the client connects");
        check_stream(&mut stream, bytes);
        send_stream(&mut stream, bytes);
    });
    let connect = || TcpStream::connect_timeout(&(OURS, 7777).into(), veth::LIMIT);
    let mut stream = bed.hosts.a.namespace.run(connect).expect("it listens");
    send_stream(&mut stream, bytes);
    check_stream(&mut stream, bytes);
    server.join().expect("it does not panic");
    let (ended, _) = bed.end();
    assert!(ended.stack.passed > bytes / u64::from(mtu), "{:?}", ended.stack);
}

#[test]
fn tcp_of_64_mib_each_way_has_every_byte() {
    let bytes = if std::env::var_os("PAGEPOOL_TRIMMED").is_some() { 1 << 20 } else { 64 << 20 };
    stream_both_ways("TCP through user space", 1500, bytes);
}

#[test]
fn tcp_in_packets_of_three_buffers_has_every_byte() {
    let bytes = if std::env::var_os("PAGEPOOL_TRIMMED").is_some() { 1 << 20 } else { 16 << 20 };
    stream_both_ways("TCP at MTU 9000", 9000, bytes);
}

/// A socket with an address of its own that was just added: the kernel may still be busy with it.
fn bound_soon(address: &str, port: u16) -> UdpSocket {
    let mut socket = None;
    veth::wait_until("its own address", || {
        socket = UdpSocket::bind((address, port)).ok();
        socket.is_some()
    });
    socket.expect("it waited for that")
}

#[test]
fn ping_and_ipv6_are_answered_by_the_kernel() {
    let Some(bed) = Bed::new("ping and IPv6", 1500) else { return };
    let (far, _) = bed.wire();
    let to = bed.hosts.near[0].mac.expect("a veth has one").0;
    let from = bed.hosts.a.link.mac.expect("a veth has one").0;
    assert!(far.send(&echo_request(to, from)).expect("it is up"));
    let is_reply = |packet: &[u8]| packet[12..14] == [8, 0] && packet[23] == 1 && packet[34] == 0;
    next_with(&far, is_reply);
    for (namespace, link, address) in
        [(&bed.hosts.a.namespace, "far0", "fd00::1/64"), (&bed.hosts.between, "near0", "fd00::9/64")]
    {
        namespace.run(move || {
            for (setting, value) in [("accept_dad", "0"), ("disable_ipv6", "0")] {
                let path = format!("/proc/sys/net/ipv6/conf/{link}/{setting}");
                std::fs::write(path, value).expect("root may");
            }
            let add = ["-6", "addr", "add", address, "dev", link, "nodad"];
            pagepool_lab::run(std::process::Command::new("ip").args(add));
        });
    }
    let server = bed.hosts.run_between(|| bound_soon("fd00::9", 9));
    let client = bed.hosts.a.namespace.run(|| bound_soon("fd00::1", 0));
    server.set_read_timeout(Some(veth::LIMIT)).expect("it is open");
    for number in 0..50u8 {
        client.send_to(&[number; 1000], ("fd00::9", 9)).expect("a route");
        let mut bytes = [0; 2000];
        assert_eq!((server.recv(&mut bytes).expect("it goes up"), bytes[0]), (1000, number));
    }
    let listener = bed.hosts.run_between(|| TcpListener::bind(("fd00::9", 7777))).expect("its own address");
    let mut stream = bed.hosts.a.namespace.run(|| TcpStream::connect(("fd00::9", 7777))).expect("it listens");
    let sender = std::thread::spawn(move || send_stream(&mut stream, 1 << 20));
    check_stream(&mut listener.accept().expect("it connected").0, 1 << 20);
    sender.join().expect("it does not panic");
    let _ = bed.end();
}

/// An ICMP echo request from the first host to [`OURS`].
fn echo_request(to: [u8; 6], from: [u8; 6]) -> Vec<u8> {
    let mut icmp = vec![8, 0, 0, 0, 0, 1, 0, 1, 9, 9, 9, 9];
    let sum = checksum(&icmp);
    icmp[2..4].copy_from_slice(&sum);
    let mut ip = vec![0x45, 0, 0, 32, 0, 1, 0, 0, 64, 1, 0, 0, 198, 18, 0, 1, 198, 18, 0, 9];
    let sum = checksum(&ip);
    ip[10..12].copy_from_slice(&sum);
    [&to[..], &from, &[8, 0], &ip, &icmp].concat()
}

fn checksum(bytes: &[u8]) -> [u8; 2] {
    let words = bytes.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum: u32 = words.sum();
    (!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes()
}

#[test]
fn rules_of_nftables_see_each_packet_once() {
    if !pagepool_lab::has_tool("nft") {
        return;
    }
    let Some(bed) = Bed::new("nftables", 1500) else { return };
    const RULES: &str = "
table netdev t {
    chain c { type filter hook ingress device near0 priority 0; udp dport 9 counter; }
}
table inet t {
    chain c { type filter hook input priority 0; udp dport 9 counter; }
}";
    bed.hosts.run_between(|| pagepool_lab::run(std::process::Command::new("nft").arg(RULES)));
    let server = bed.hosts.run_between(|| UdpSocket::bind((OURS, 9))).expect("its own address");
    server.set_read_timeout(Some(veth::LIMIT)).expect("it is open");
    let client = bed.hosts.a.namespace.run(|| UdpSocket::bind(("198.18.0.1", 0))).expect("its own address");
    for number in 0..30u8 {
        client.send_to(&[number; 100], (OURS, 9)).expect("a route");
        assert_eq!(server.recv(&mut [0; 200]).expect("it goes up"), 100);
    }
    let list = || pagepool_lab::run(std::process::Command::new("nft").args(["list", "ruleset"])).stdout;
    let rules = String::from_utf8(bed.hosts.run_between(list)).expect("it is text");
    assert_eq!(rules.matches("counter packets 30 ").count(), 2, "{rules}");
    let _ = bed.end();
}

#[test]
fn a_packet_of_any_length_goes_up_once_as_it_was() {
    let Some(bed) = Bed::new("packets of any length", 9000) else { return };
    let (far, near) = bed.wire();
    let lengths = [60, 61, 1514, 3839, 3841, 4096, 8000, 9014];
    for (number, len) in (0..).zip(lengths.into_iter().cycle().take(200)) {
        assert!(far.send(&frame(number, len)).expect("it is up"), "room for a packet");
        assert_eq!(next_of_ours(&near), frame(number, len), "packet {number} of {len} bytes");
    }
    let (ended, _) = bed.end();
    assert_eq!((ended.stack.passed, ended.stack.refused, ended.stack.too_long), (200, 0, 0));
}

#[test]
fn bursts_go_up_in_order_in_few_calls() {
    let Some(bed) = Bed::new("bursts", 1500) else { return };
    let (far, near) = bed.wire();
    const COUNT: u32 = 2000;
    let mut seen = Vec::new();
    for burst in 0..COUNT / 50 {
        let frames: Vec<u8> = (burst * 50..(burst + 1) * 50).flat_map(|number| frame(number, 200)).collect();
        assert_eq!(far.send_many(&frames, 200).expect("it is up"), 50);
        while seen.last().is_none_or(|number| number % 50 < 49 || number / 50 < burst) {
            let packet = next_of_ours(&near);
            let number = number_of(&packet);
            assert_eq!(packet, frame(number, 200));
            seen.push(number);
        }
    }
    let (ended, _) = bed.end();
    assert!(
        seen.iter().copied().eq(0..COUNT),
        "{} of {COUNT}: {:?} {:?}",
        seen.len(),
        ended.stack,
        ended.port
    );
    assert_eq!(ended.stack.passed, u64::from(COUNT));
}

#[test]
fn a_call_passes_64_packets_and_buffers_return() {
    let Some(_veth) = near("64 packets per call") else { return };
    let mut stack = KernelStack::new("near0").expect("root may load it");
    let tap = FrameSocket::tap_here("near0").expect("it is there");
    let arena = Arena::new(ArenaParams { max_bytes: 4 << 20, ..Default::default() }).expect("it is free");
    let pool = Pool::new(PoolParams::default(), arena).expect("a pool over it").bind();
    for number in 0..100 {
        let mut packet = pool.packet(100).expect("pages enough");
        packet.data_mut().copy_from_slice(&frame(number, 100));
        stack.deliver(packet, Ingress { port: PortId(0) }).expect("it fits");
    }
    assert_eq!((stack.stats().passed, pool.inflight().out), (64, 36), "those that were full");
    stack.send();
    assert_eq!((stack.stats().passed, stack.stats().runs, pool.inflight().out), (100, 2, 0));
    (0..100).for_each(|number| assert_eq!(next_of_ours(&tap), frame(number, 100)));
    let memory = DeviceMemory::new("hbm0", 1 << 20, NodeId(0)).expect("a provider");
    let device = Pool::new(PoolParams::default(), memory).expect("a pool over it").bind();
    let mut mixed = pool.packet(100).expect("pages enough");
    mixed.add_frag(device.alloc_page().expect("a page"), 0, 100).expect("it fits");
    assert!(stack.deliver(mixed, Ingress { port: PortId(0) }).is_err(), "the CPU cannot read the rest");
    assert_eq!((stack.stats().refused, device.inflight().out), (1, 0));
}

#[test]
fn vlan_tags_and_packets_for_others_go_up_unchanged() {
    let Some(bed) = Bed::new("VLAN tags and other hosts", 1500) else { return };
    let (far, near) = bed.wire();
    let mut tagged = frame(7, 100);
    tagged.splice(12..12, [0x81, 0, 0x20, 5]);
    let mut for_another = frame(8, 100);
    for_another[..6].copy_from_slice(b"\x02other");
    for packet in [&tagged, &for_another] {
        assert!(far.send(packet).expect("it is up"));
    }
    // The kernel takes the tag out of the bytes before a tap sees them.
    let seen = next_of_ours(&near);
    assert_eq!((&seen[..12], &seen[seen.len() - 80..]), (&tagged[..12], &tagged[tagged.len() - 80..]));
    assert_eq!(next_of_ours(&near), for_another);
    let (ended, _) = bed.end();
    assert_eq!((ended.stack.passed, ended.stack.refused), (2, 0));
}

#[test]
fn a_vlan_interface_gets_the_packets_of_its_tag() {
    let Some(bed) = Bed::new("a VLAN interface", 1500) else { return };
    let add = "ip link add link near0 name v5 type vlan id 5 && ip link set v5 up";
    let add = || std::process::Command::new("sh").args(["-c", add]).output().expect("a shell");
    if !bed.hosts.run_between(add).status.success() {
        return println!("SKIP a VLAN interface: the kernel has none");
    }
    let far = FrameSocket::of(&bed.hosts.a).expect("it is there");
    let tap = bed.hosts.run_between(|| FrameSocket::tap_here("v5")).expect("it is there");
    for number in 0..20 {
        let (mut other, mut tagged) = (frame(100 + number, 100), frame(number, 100));
        other.splice(12..12, [0x81, 0, 0x20, 6]);
        tagged.splice(12..12, [0x81, 0, 0x20, 5]);
        assert!(far.send(&other).expect("it is up") && far.send(&tagged).expect("it is up"));
        assert_eq!(next_of_ours(&tap), frame(number, 100), "without its tag, and none of another");
    }
    let _ = bed.end();
}

#[test]
fn the_kernel_forwards_what_was_passed() {
    let Some(bed) = Bed::new("forwarding after user space", 1500) else { return };
    let near1 = bed.hosts.near[1].index;
    bed.hosts
        .between
        .netlink()
        .expect("ours")
        .add_address(near1, Ipv4Addr::new(198, 19, 0, 9), 24)
        .expect("free");
    let b = bed.hosts.b.link.index;
    bed.hosts
        .b
        .namespace
        .netlink()
        .expect("ours")
        .add_address(b, Ipv4Addr::new(198, 19, 0, 2), 24)
        .expect("free");
    bed.hosts.run_between(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")).expect("root may");
    route(&bed.hosts.a.namespace, "198.19.0.0/24", "198.18.0.9");
    route(&bed.hosts.b.namespace, "198.18.0.1/32", "198.19.0.9");
    let server = bed.hosts.b.namespace.run(|| UdpSocket::bind(("198.19.0.2", 9))).expect("its own address");
    server.set_read_timeout(Some(veth::LIMIT)).expect("it is open");
    let client = bed.hosts.a.namespace.run(|| UdpSocket::bind(("198.18.0.1", 5))).expect("its own address");
    for number in 0..20u8 {
        client.send_to(&[number; 100], ("198.19.0.2", 9)).expect("a route");
        let mut bytes = [0; 200];
        let (n, from) = server.recv_from(&mut bytes).expect("the kernel forwards it");
        assert_eq!((n, bytes[0], from.port()), (100, number, 5));
    }
    let _ = bed.end();
}

fn route(namespace: &pagepool_link::Namespace, to: &str, via: &str) {
    let (to, via) = (to.to_owned(), via.to_owned());
    namespace.run(move || {
        pagepool_lab::run(std::process::Command::new("ip").args(["route", "add", &to, "via", &via]))
    });
}

#[test]
fn a_generic_program_is_refused_with_the_reason() {
    let Some(_veth) = near("a generic XDP program") else { return };
    let _generic = Redirect::attach("near0", Attach::Generic, false).expect("any interface has it");
    let error = KernelStack::new("near0").expect_err("each packet would come back").to_string();
    let starts = "interface is near0, but must be an interface without a generic XDP program";
    assert!(error.starts_with(starts) && error.contains("TAP"), "{error}");
    let missing = KernelStack::new("near7").expect_err("there is none").to_string();
    assert!(missing.contains("near7") && missing.contains("near0"), "{missing}");
}

#[test]
fn a_later_generic_program_stops_it_before_a_loop() {
    let Some(veth) = near("a later generic program") else { return };
    let stack = KernelStack::new("near0").expect("there is no program yet");
    let (device, pool) = device(Attach::Generic, false);
    let far = FrameSocket::open(veth.far(), "far0").expect("it is there");
    let (mut forwarder, start) =
        (Forwarder::with_stack(|_: &mut XdpBuff, _: Ingress| Action::Pass, stack), Instant::now());
    let port = forwarder.add_port(device, pool);
    forwarder.poll(); // the device has buffers
    (0..10).for_each(|number| assert!(far.send(&frame(number, 100)).expect("it is up")));
    let passed = |forwarder: &Forwarder<_, _>| forwarder.stats(port).expect("it was added").pass;
    while passed(&forwarder) < 10 && start.elapsed() < veth::LIMIT {
        if forwarder.poll() == 0 {
            let _ = forwarder.wait(Duration::from_millis(100));
        }
    }
    (0..1000).for_each(|_| _ = forwarder.poll()); // a loop would show
    assert_eq!(passed(&forwarder), 10, "each packet came once");
    let stats = forwarder.stack_mut().stats();
    assert_eq!((stats.passed, stats.refused, stats.runs), (0, 10, 0));
    assert_eq!(forwarder.stack_mut().stopped(), Some("a generic XDP program was attached to near0"));
}

#[test]
fn a_missing_capability_is_named() {
    let Some(_veth) = near("a missing capability") else { return };
    let error = veth::without(&[CAP_PERFMON, CAP_SYS_ADMIN], || KernelStack::new("near0").map(drop));
    let error = error.expect_err("the program reads memory").to_string();
    assert!(error.contains("CAP_PERFMON") && !error.contains("CAP_BPF"), "{error}");
}

#[test]
fn in_another_namespace_it_stops_and_nothing_leaks() {
    let Some(veth) = near("another namespace") else { return };
    let stack = KernelStack::new("near0").expect("root may load it");
    let (device, pool) = device(Attach::Native, false);
    let far = FrameSocket::open(veth.far(), "far0").expect("it is there");
    let pool = pool.unbind();
    let ended = veth.far().run(move || {
        let (pool, start) = (pool.bind(), Instant::now());
        let handle = pool.handle();
        let mut forwarder = Forwarder::with_stack(|_: &mut XdpBuff, _: Ingress| Action::Pass, stack);
        let port = forwarder.add_port(device, pool);
        forwarder.poll(); // the device has buffers
        (0..10).for_each(|number| assert!(far.send(&frame(number, 100)).expect("it is up")));
        while forwarder.stats(port).expect("added").pass < 10 && start.elapsed() < veth::LIMIT {
            forwarder.poll();
        }
        let stopped = forwarder.stack_mut().stopped().map(str::to_owned);
        let stack = forwarder.stack_mut().stats();
        let port = forwarder.stats(port).expect("it was added");
        drop(forwarder);
        Ended { stack, stopped, port, missing: handle.inflight().total, order: Vec::new() }
    });
    assert_eq!((ended.stack.passed, ended.stack.refused, ended.port.pass, ended.missing), (0, 10, 10, 0));
    assert_eq!(ended.stopped.as_deref(), Some("the forwarder ran in another network namespace"));
}

#[test]
fn an_interface_down_and_removed_under_load_loses_no_page() {
    let Some(bed) = Bed::new("down and removed", 1500) else { return };
    let stop = Arc::new(AtomicBool::new(false));
    let (stopped, far) = (stop.clone(), FrameSocket::of(&bed.hosts.a).expect("it is there"));
    let frames: Vec<u8> = (0..64).flat_map(|number| frame(number, 200)).collect();
    let load = std::thread::spawn(move || {
        while !stopped.load(Ordering::Relaxed) {
            let _ = far.send_many(&frames, 200); // the link may be down or gone
        }
    });
    let (_, near) = bed.wire();
    next_of_ours(&near); // the load is on
    let index = bed.hosts.near[0].index;
    let mut here = bed.hosts.between.netlink().expect("ours");
    for _ in 0..5 {
        here.set_up(index, false).expect("ours");
        here.set_up(index, true).expect("ours");
        here.wait_up("near0", veth::LIMIT).expect("it comes up");
    }
    here.delete(index).expect("ours");
    stop.store(true, Ordering::Relaxed);
    load.join().expect("it does not panic");
    let (ended, _) = bed.end();
    assert!(ended.stack.passed + ended.stack.refused > 0, "{:?}", ended.stack);
}

/// On a card that moves packets without a copy. `PAGEPOOL_CARDS=eth0,eth1` names two cards on one wire.
#[test]
fn what_a_card_receives_goes_up_once() {
    let Ok(cards) = std::env::var("PAGEPOOL_CARDS") else {
        return println!("SKIP cards: it requires two cards on one wire, PAGEPOOL_CARDS=eth0,eth1");
    };
    let (near, far) = cards.split_once(',').expect("two names");
    let opened = match try_device_on(near, XskMode::ZeroCopy, Attach::Native, false) {
        Ok(opened) => opened,
        Err(error) => return println!("SKIP cards: {near} has no zero copy: {error}"),
    };
    let stack = KernelStack::new(near).expect("root may load it");
    let tap = FrameSocket::tap_here(near).expect("it is there");
    let far = FrameSocket::open_here(far).expect("it is there");
    let (stop, start) = (AtomicBool::new(false), Instant::now());
    let (ended, seen) = std::thread::scope(|threads| {
        let watcher = threads.spawn(|| {
            let (mut seen, mut number, mut packet) = (Vec::new(), 0, vec![0; 2048]);
            while seen.len() < 50 && start.elapsed() < veth::LIMIT {
                // While the link restarts it may be lost.
                let _ = far.send(&frame(number, 60 + number as usize % 900));
                number += 1;
                while tap.wait(Duration::from_millis(20)) {
                    match tap.receive(&mut packet) {
                        Ok(Some(len)) if packet[12..14] == [0x88, 0xb5] => seen.push(packet[..len].to_vec()),
                        _ => {}
                    }
                }
            }
            stop.store(true, Ordering::Relaxed);
            seen
        });
        (pass_all(opened, stack, &stop, || {}), watcher.join().expect("it does not panic"))
    });
    let numbers: Vec<u32> = seen.iter().map(|packet| number_of(packet)).collect();
    assert_eq!(numbers, ended.order[..numbers.len()], "each goes up once, in order");
    let as_it_was = |packet: &Vec<u8>| *packet == frame(number_of(packet), packet.len());
    assert!(seen.len() >= 50 && seen.iter().all(as_it_was), "{} packets", seen.len());
    assert_eq!((ended.stack.refused, ended.missing), (0, 0));
}
