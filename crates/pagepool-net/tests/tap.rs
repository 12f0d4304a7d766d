//! TAPs as devices, with the kernel at their other end, in network namespaces of the tests' own.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::veth::{self, CAP_NET_ADMIN, LIMIT, Veth};
use pagepool::{Arena, ArenaParams, Bound, Error, PoolParams, XdpBuff, XdpFrame, XdpFrameBulk};
use pagepool_lab::{FrameSocket, LinkSettings};
use pagepool_link::{LinkError, Namespace, Netlink, Tap};
use pagepool_net::{
    Action, Armed, Device, DeviceExt, Forwarder, Ingress, OpenParams, OpenedDevice, PortId, TxQueue, Wake,
    open_device, open_devices,
};
use pagepool_testing::{Allowed, FarEnd, Rig, conformance_device, conformance_slow_device};

/// A namespace that may have TAPs, or none after a line that says why.
pub fn place(test: &str) -> Option<Rc<Namespace>> {
    let tried = Namespace::new("tap").and_then(|place| {
        place.run(|| Tap::open("trial0"))?;
        Ok(place)
    });
    match tried {
        Ok(place) => Some(Rc::new(place)),
        Err(error @ LinkError::Call { .. }) => {
            println!("SKIP {test}: {error}");
            None
        }
        Err(error) => panic!("{test}: {error}"),
    }
}

pub fn arena() -> Arc<Arena> {
    Arena::new(ArenaParams { max_bytes: 4 << 20, commit_all: true, ..Default::default() }).expect("4 MiB")
}

pub fn params() -> OpenParams {
    let pool = PoolParams { chains: 512, headroom: 256, wakeup: true, ..Default::default() };
    OpenParams { rx_ring: 64, tx_ring: 64, pool, ..Default::default() }
}

fn open(place: &Namespace, params: OpenParams, arena: &Arc<Arena>) -> Result<OpenedDevice, Error> {
    let arena = arena.clone();
    place.run(move || open_device("tap:t0", &params, &arena))
}

/// The kernel's end: raw frames of the interface.
#[derive(Debug)]
pub struct KernelEnd {
    place: Rc<Namespace>,
    socket: FrameSocket,
    mtu: usize,
}

impl KernelEnd {
    pub fn of(place: &Rc<Namespace>) -> Self {
        let mtu = place.netlink().and_then(|mut netlink| netlink.link("t0")).expect("it is there").mtu;
        let socket = FrameSocket::open(place, "t0").expect("it is there");
        Self { place: place.clone(), socket, mtu: mtu as usize }
    }

    pub fn with_link(&self, work: impl FnOnce(&mut Netlink, u32) -> Result<(), LinkError>) {
        let mut netlink = self.place.netlink().expect("a namespace of our own");
        let index = netlink.link("t0").expect("it is there").index;
        work(&mut netlink, index).expect("it is ours");
    }
}

impl FarEnd for KernelEnd {
    fn send(&mut self, packet: &[u8]) -> bool {
        self.socket.send(packet).unwrap_or(false)
    }

    fn receive(&mut self, packet: &mut Vec<u8>) -> bool {
        packet.resize(1 << 16, 0);
        let got = self.socket.receive(packet).unwrap_or(None);
        packet.truncate(got.unwrap_or(0));
        got.is_some()
    }

    fn longest(&self) -> usize {
        self.mtu + 14
    }

    fn die(&mut self) -> bool {
        self.with_link(Netlink::delete);
        true
    }
}

fn rig(place: &Rc<Namespace>, params: OpenParams) -> Rig {
    let provider = arena();
    let opened = open(place, params, &provider).expect("it was open before");
    let (device, pool) = (opened.device, opened.pool.bind());
    let far = Box::new(KernelEnd::of(place));
    Rig { device, far, pool, provider, allowed: Allowed::default(), verify: Box::new(|| {}) }
}

pub fn frame(pool: &Bound, len: usize) -> XdpFrame {
    let mut packet = pool.packet(len).expect("a free page");
    packet.data_mut().fill(9);
    packet.into()
}

/// Polls until so many packets have arrived.
pub fn receive(device: &mut dyn Device, pool: &Bound, count: usize) -> Vec<XdpBuff> {
    let (mut packets, start) = (Vec::with_capacity(count.max(1)), Instant::now());
    while packets.len() < count {
        assert!(start.elapsed() < LIMIT, "{} of {count} packets", packets.len());
        device.receive(pool, &mut packets, count);
        let _ = device.wait(pool, Duration::from_millis(100));
    }
    packets
}

#[test]
fn a_tap_keeps_the_rules_of_devices() {
    let Some(place) = place("a_tap_keeps_the_rules_of_devices") else { return };
    conformance_device(|| rig(&place, params()));
}

#[test]
fn a_tap_with_long_packets_keeps_the_rules_of_devices() {
    let Some(place) = place("a_tap_with_long_packets_keeps_the_rules_of_devices") else { return };
    conformance_slow_device(|| {
        let tap = place.run(|| {
            let (tap, mut netlink) = (Tap::open("t0")?, Netlink::open()?);
            let index = netlink.link("t0")?.index;
            netlink.set_mtu(index, 9000).map(|()| tap)
        });
        let taps = vec![Arc::new(tap.expect("it was open before"))];
        rig(&place, OpenParams { multi_buffer: true, taps, ..params() })
    });
}

#[test]
fn an_interface_that_is_down_keeps_the_frames_in_the_queue() {
    let Some(place) = place("an_interface_that_is_down_keeps_the_frames_in_the_queue") else { return };
    let Rig { mut device, pool, .. } = rig(&place, params());
    let turn = |up| KernelEnd::of(&place).with_link(|netlink, index| netlink.set_up(index, up));
    device.receive(&pool, &mut Vec::new(), 0);
    turn(false);
    let mut queue = TxQueue::from([frame(&pool, 60), frame(&pool, 61)]);
    assert_eq!((device.transmit(&mut queue), queue.len()), (0, 2));
    assert_eq!((device.stats().calls_refused, device.stats().tx_packets), (1, 0));
    let Armed::Idle { at_most, .. } = device.arm(&pool) else { panic!("it is neither ready nor gone") };
    assert!(at_most < Duration::from_secs(1), "nothing tells that the interface is up: {at_most:?}");
    turn(true);
    let (mut far, mut packet) = (KernelEnd::of(&place), Vec::new());
    assert_eq!((device.transmit(&mut queue), queue.len()), (2, 0));
    for len in [60, 61] {
        assert!(far.receive(&mut packet) && packet.len() == len, "{} bytes", packet.len());
    }
    let mut done = XdpFrameBulk::new();
    assert_eq!(device.complete(&mut done, 64), 2);
    done.flush();
    device.close();
    assert_eq!(pool.inflight().out, 0);
}

#[test]
fn a_removed_interface_ends_the_sleep() {
    let Some(place) = place("a_removed_interface_ends_the_sleep") else { return };
    let Rig { mut device, pool, .. } = rig(&place, params());
    device.receive(&pool, &mut Vec::new(), 0);
    let mut netlink = place.netlink().expect("a namespace of our own");
    let index = netlink.link("t0").expect("it is there").index;
    let woken = std::thread::scope(|threads| {
        threads.spawn(move || netlink.delete(index).expect("it is there"));
        // The first one may be over because the interface is about to be removed.
        (0..3).map(|_| device.wait(&pool, LIMIT)).find(|wake| *wake != Wake::Ready)
    });
    assert_eq!(woken, Some(Wake::Gone));
    device.close();
    assert_eq!(pool.inflight().out, 0);
}

#[test]
fn what_the_kernel_drops_and_what_is_too_long_is_counted() {
    let Some(place) = place("what_the_kernel_drops_and_what_is_too_long_is_counted") else { return };
    let Rig { mut device, mut far, pool, .. } = rig(&place, params());
    device.receive(&pool, &mut Vec::new(), 0);
    let sent = (0..100).filter(|_| far.send(&[7; 1514])).count();
    assert_eq!(
        (sent, device.stats().rx_no_buffer),
        (64, 36),
        "the interface has a queue as long as the ring"
    );
    assert_eq!(receive(&mut *device, &pool, 64).len(), 64);
    let end = KernelEnd::of(&place);
    end.with_link(|netlink, index| netlink.set_mtu(index, 9000));
    assert!(far.send(&[7; 9000]) && far.send(&[8; 100]));
    let packets = receive(&mut *device, &pool, 1);
    assert_eq!((packets[0].data(), device.stats().rx_too_long), (&[8; 100][..], 1));
    let mut queue = TxQueue::from([frame(&pool, 13), frame(&pool, 14)]);
    assert_eq!((device.transmit(&mut queue), device.stats().tx_too_long), (1, 1), "shorter than a header");
}

#[test]
fn a_pool_without_pages_lets_packets_wait_in_the_kernel() {
    let Some(place) = place("a_pool_without_pages_lets_packets_wait_in_the_kernel") else { return };
    let Rig { mut device, mut far, pool, .. } = rig(&place, params());
    let held: Vec<_> = std::iter::from_fn(|| pool.alloc_page()).collect();
    device.receive(&pool, &mut Vec::new(), 0);
    assert!(far.send(&[7; 60]));
    assert_eq!(device.wait(&pool, Duration::from_millis(1)), Wake::Timeout, "there is no buffer for it");
    drop(held);
    assert_eq!(receive(&mut *device, &pool, 1)[0].len(), 60);
}

/// Makes a TAP that stays, and is down. False without a program for that.
pub fn make_tap(place: &Namespace) -> bool {
    let programs = [("ip", &["tuntap", "add", "t0", "mode", "tap"][..]), ("tunctl", &["-t", "t0"])];
    let made = |(program, words): (&str, &[&str])| {
        let done = std::process::Command::new(program).args(words).output();
        done.is_ok_and(|done| done.status.success())
    };
    place.run(move || programs.into_iter().any(made))
}

#[test]
fn a_tap_that_was_made_before_stays_and_is_left_as_it_is() {
    let name = "a_tap_that_was_made_before_stays_and_is_left_as_it_is";
    let Some(place) = place(name) else { return };
    if !make_tap(&place) {
        return println!("SKIP {name}: no `ip` that makes TAPs");
    }
    let mut netlink = place.netlink().expect("a namespace of our own");
    let before = netlink.link("t0").expect("it is there");
    for _ in 0..2 {
        drop(open(&place, params(), &arena()).expect("it is there, and nobody has it"));
        let now = netlink.link("t0").expect("it stays");
        assert_eq!((now.index, now.is_up, before.is_up), (before.index, false, false));
    }
}

#[test]
fn errors_name_what_is_wrong_and_what_helps() {
    let Some(place) = place("errors_name_what_is_wrong_and_what_helps") else { return };
    let why = |name: &'static str, queue| {
        let arena = arena();
        let opened = place.run(move || open_devices(&[(name, &[queue])], &params(), &arena).map(drop));
        opened.unwrap_err().to_string()
    };
    assert_eq!(why("tap:t0", 1), "queue is 1, but must be 0: a TAP has one queue");
    assert!(why("tap:a-name-too-long0", 0).contains("1 to 15 bytes"), "{}", why("tap:a-name-too-long0", 0));
    assert!(why("tap:", 0).contains("1 to 15 bytes"));
    assert!(
        why("tap:lo", 0).contains("TAP \"lo\": the interface with this name is not a TAP"),
        "{}",
        why("tap:lo", 0)
    );
    let open_now = open(&place, params(), &arena()).expect("nobody has it");
    assert!(why("tap:t0", 0).contains("another program uses this TAP"), "{}", why("tap:t0", 0));
    drop(open_now);
    let denied = place
        .run(|| veth::without(&[CAP_NET_ADMIN], || open_device("tap:t0", &params(), &arena()).map(drop)));
    let denied = denied.unwrap_err().to_string();
    assert!(denied.contains("ioctl(TUNSETIFF)") && denied.contains("CAP_NET_ADMIN"), "{denied}");
}

#[test]
fn packets_cross_between_af_xdp_and_a_tap_without_a_copy() {
    let name = "packets_cross_between_af_xdp_and_a_tap_without_a_copy";
    if let Some(why) = veth::missing() {
        return println!("SKIP {name}: {why}");
    }
    if place(name).is_none() {
        return;
    }
    let veth = Veth::new(1, 1500); // this thread is in its namespace now
    let opened = open_devices(&[("af_xdp:near0", &[0]), ("tap:t0", &[0])], &params(), &arena());
    let opened = opened.expect("both are free").into_iter().flatten();
    let mut forwarder =
        Forwarder::new(|_: &mut XdpBuff, at: Ingress| Action::Redirect(PortId(1 - at.port.0)));
    let ports: Vec<_> = opened.map(|of| forwarder.add_port(of.device, of.pool.bind())).collect();
    let (mut far, kernel) = (veth.far_end(0), FrameSocket::open_here("t0").expect("it is there"));
    forwarder.poll();
    let (mut bytes, mut crossed, start) = ([0; 2048], [0, 0], Instant::now());
    for n in 0..40 {
        let packet = [n; 100];
        assert!(far.send(&packet) && kernel.send(&packet).expect("it is up"));
        while crossed != [usize::from(n) + 1; 2] {
            assert!(start.elapsed() < LIMIT, "{crossed:?} of {n}");
            forwarder.poll();
            crossed[0] += usize::from(kernel.receive(&mut bytes).expect("it is up") == Some(100));
            let mut came = Vec::new();
            crossed[1] += usize::from(far.receive(&mut came) && came == packet);
        }
    }
    for port in ports {
        let stats = forwarder.stats(port).expect("it is there");
        assert_eq!((stats.rx, stats.redirect_out, stats.redirect_in), (40, 40, 40), "{port:?}");
        assert_eq!(forwarder.paths(port).expect("it is there").copied, 0, "one memory serves both");
    }
}
