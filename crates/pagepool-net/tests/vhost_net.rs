//! The kernel's vhost-net as a device, with the kernel at both ends of its TAP, in network namespaces of the
//! tests' own. With `PAGEPOOL_TRIMMED` parts are dropped in every 13th order only.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::crafted;
use crate::tap::{KernelEnd, arena, frame, make_tap, params, place, receive};
use crate::veth::{LIMIT, wait_until};
use pagepool::{Arena, ArenaParams, Backing, Bound, Error, XdpBuff, XdpFrameBulk};
use pagepool_lab::{FrameSocket, LinkSettings};
use pagepool_link::{Namespace, Netlink, Tap};
use pagepool_net::{
    Action, Device, DeviceExt, Forwarder, Ingress, OpenParams, OpenedDevice, PortId, TxQueue, Wake,
    open_devices, swap_macs,
};
use pagepool_testing::{Allowed, FarEnd, Rig, conformance_device, conformance_slow_device};

const DEVICE: &str = "/dev/vhost-net";

/// A namespace that may have TAPs with vhost-net, or none after a line that says why.
fn vhost_place(test: &str) -> Option<Rc<Namespace>> {
    match fs::File::options().read(true).write(true).open(DEVICE) {
        Ok(_) => place(test),
        Err(error) => {
            println!("SKIP {test}: {DEVICE}: {error}");
            None
        }
    }
}

fn open(
    place: &Namespace,
    queues: &'static [u32],
    params: OpenParams,
    arena: &Arc<Arena>,
) -> Result<Vec<OpenedDevice>, Error> {
    let arena = arena.clone();
    place.run(move || Ok(open_devices(&[("vhost_net:t0", queues)], &params, &arena)?.remove(0)))
}

/// The kernel's end, which knows when vhost-net has passed on what it sent.
#[derive(Debug)]
struct VhostEnd {
    kernel: KernelEnd,
    netlink: Netlink,
    index: u32,
    /// What the interface had sent before, and the frames that it took since.
    before: u64,
    taken: u64,
    /// The states of vhost-net's threads.
    workers: Vec<PathBuf>,
}

impl VhostEnd {
    /// The kernel keeps at most two packets for which there is no buffer, and drops further ones.
    fn of(place: &Rc<Namespace>) -> Self {
        let (kernel, mut netlink) = (KernelEnd::of(place), place.netlink().expect("a namespace of our own"));
        let index = netlink.link("t0").expect("it is there").index;
        netlink.set_queue(index, 2).expect("it is ours");
        let before = netlink.sent_at(index).expect("it is there").unwrap_or(0);
        Self { kernel, netlink, index, before, taken: 0, workers: workers() }
    }

    /// Frames that vhost-net took out of the TAP; `None` without an interface.
    fn passed(&mut self) -> Option<u64> {
        Some(self.netlink.sent_at(self.index).ok()?? - self.before)
    }
}

/// The threads that the kernel started for vhost-net's devices of this process. Their names end with the
/// number of the thread that opened the device.
fn workers() -> Vec<PathBuf> {
    let entries = |path: &str| fs::read_dir(path).expect("proc(5) is mounted").flatten().map(|of| of.path());
    let ours = |path: &PathBuf| {
        let name = fs::read_to_string(path.join("comm")).unwrap_or_default();
        let opener = name.trim_end().strip_prefix("vhost-").map(|number| number.to_owned());
        opener.is_some_and(|number| fs::exists(format!("/proc/self/task/{number}")).unwrap_or(false))
    };
    let all = entries("/proc").chain(entries("/proc/self/task"));
    all.filter(ours).map(|path| path.join("stat")).collect()
}

/// Whether a thread waits for work, or is gone.
fn is_asleep(stat: &PathBuf) -> bool {
    let text = fs::read_to_string(stat).unwrap_or_default();
    text.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with('S'))
}

impl FarEnd for VhostEnd {
    fn send(&mut self, packet: &[u8]) -> bool {
        self.settle();
        let taken = self.kernel.send(packet);
        self.taken += u64::from(taken);
        taken
    }

    fn receive(&mut self, packet: &mut Vec<u8>) -> bool {
        self.kernel.receive(packet)
    }

    fn longest(&self) -> usize {
        self.kernel.longest()
    }

    /// Waits until vhost-net's threads have nothing more to do. They copy a packet first, which the interface
    /// counts, and say so in the ring before they sleep. Without a buffer they copy nothing.
    fn settle(&mut self) {
        let (start, mut last, mut looks) = (Instant::now(), None, 0);
        while looks < 20 && start.elapsed() < LIMIT {
            let passed = self.passed();
            if !self.workers.iter().all(is_asleep) {
                looks = 0;
                continue;
            }
            if passed.is_none_or(|passed| passed >= self.taken) {
                return;
            }
            looks = if passed == last { looks + 1 } else { 0 };
            last = passed;
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

fn rig_over(place: &Rc<Namespace>, params: OpenParams, provider: Arc<Arena>) -> Rig {
    let opened = open(place, &[0], params, &provider).expect("it was open before").remove(0);
    let (device, pool) = (opened.device, opened.pool.bind());
    let far = Box::new(VhostEnd::of(place));
    Rig { device, far, pool, provider, allowed: Allowed::default(), verify: Box::new(|| {}) }
}

fn rig(place: &Rc<Namespace>, params: OpenParams) -> Rig {
    rig_over(place, params, arena())
}

/// Parameters with queues of a TAP that this test keeps, with an MTU.
fn with_taps(place: &Namespace, queues: usize, mtu: u32, params: OpenParams) -> OpenParams {
    let taps = place.run(move || {
        let (taps, mut netlink) = (Tap::open_with_header("t0", queues)?, Netlink::open()?);
        let index = netlink.link("t0")?.index;
        netlink.set_mtu(index, mtu).map(|()| taps)
    });
    let taps = taps.expect("nobody has it").into_iter().map(Arc::new).collect();
    OpenParams { taps, ..params }
}

#[test]
fn vhost_net_keeps_the_rules_of_devices() {
    let Some(place) = vhost_place("vhost_net_keeps_the_rules_of_devices") else { return };
    match std::env::var_os("PAGEPOOL_TRIMMED") {
        Some(_) => conformance_slow_device(|| rig(&place, params())),
        None => conformance_device(|| rig(&place, params())),
    }
}

#[test]
fn vhost_net_with_long_packets_keeps_the_rules() {
    let Some(place) = vhost_place("vhost_net_with_long_packets_keeps_the_rules") else { return };
    let long = || OpenParams { multi_buffer: true, ..params() };
    conformance_slow_device(|| rig(&place, with_taps(&place, 1, 9000, long())));
}

/// Sends frames of these lengths, one after another, and expects each back with its addresses swapped.
fn echoes(rig: Rig, lengths: impl Iterator<Item = usize>) {
    let Rig { device, mut far, pool, .. } = rig;
    let mut forwarder = Forwarder::new(|packet: &mut XdpBuff, _: Ingress| {
        swap_macs(packet.data_mut());
        Action::Tx
    });
    let port = forwarder.add_port(device, pool);
    forwarder.poll();
    let (mut came, mut count) = (Vec::new(), 0);
    for len in lengths {
        let mut bytes: Vec<u8> = (0..len).map(|at| (at * 3 + len) as u8).collect();
        assert!(far.send(&bytes), "{len} bytes");
        let start = Instant::now();
        while !far.receive(&mut came) {
            assert!(start.elapsed() < LIMIT, "{len} bytes do not come back");
            forwarder.poll();
        }
        swap_macs(&mut bytes);
        assert!(came == bytes, "{len} bytes are changed");
        count += 1;
    }
    let stats = forwarder.stats(port).expect("it is there");
    assert_eq!((stats.rx, stats.tx), (count, count));
    forwarder.close_all();
    assert_eq!(forwarder.pool(port).expect("it is there").inflight().out, 0, "all buffers returned");
}

#[test]
fn packets_of_60_to_1514_bytes_are_echoed() {
    let Some(place) = vhost_place("packets_of_60_to_1514_bytes_are_echoed") else { return };
    echoes(rig(&place, params()), (60..1514).step_by(5).chain([1500, 1514]));
}

#[test]
fn packets_of_9000_bytes_are_echoed() {
    let Some(place) = vhost_place("packets_of_9000_bytes_are_echoed") else { return };
    let params = with_taps(&place, 1, 9000, OpenParams { multi_buffer: true, ..params() });
    echoes(rig(&place, params), (60..9014).step_by(97).chain([4096, 9000, 9014]));
}

/// The kernel reaches the arena by its addresses in this process, whatever holds it.
#[test]
fn vhost_net_takes_an_arena_in_a_file() {
    let Some(place) = vhost_place("vhost_net_takes_an_arena_in_a_file") else { return };
    let backing = Backing::Memfd { huge: false };
    let file = ArenaParams { max_bytes: 4 << 20, backing, ..Default::default() };
    echoes(rig_over(&place, params(), Arena::new(file).expect("4 MiB")), 60..100);
}

/// A UDP packet of a flow.
fn of_flow(number: u8) -> Vec<u8> {
    let ip = crafted::ip([10, 0, 0, number], [10, 0, 1, 1], 17, 0, 0, &crafted::udp(1000, 2000));
    let mut frame = crafted::frame(&[], 0x0800, &ip);
    frame.resize(100, number);
    frame
}

#[test]
fn flows_are_spread_over_the_queues_of_a_tap() {
    let Some(place) = vhost_place("flows_are_spread_over_the_queues_of_a_tap") else { return };
    let mut opened = open(&place, &[0, 1], params(), &arena()).expect("nobody has it");
    let (second, first) = (opened.remove(1), opened.remove(0));
    let mut both = [first, second].map(|of| (of.device, of.pool.bind()));
    let (mut far, mut came) = (KernelEnd::of(&place), [0; 2]);
    for number in 0..64 {
        assert!(far.send(&of_flow(number)));
        let (start, mut packets) = (Instant::now(), Vec::with_capacity(1));
        while packets.is_empty() {
            assert!(start.elapsed() < LIMIT, "flow {number} does not come");
            for ((device, pool), came) in both.iter_mut().zip(&mut came) {
                *came += device.receive(pool, &mut packets, 1);
            }
        }
        assert!(packets[0].data() == of_flow(number));
    }
    assert!(came[0] > 0 && came[1] > 0 && came[0] + came[1] == 64, "{came:?}");
    sends_after_the_other_queue_is_closed(both, &mut far);
}

/// Each queue sends. Then the first is closed, and all flows come to the second.
fn sends_after_the_other_queue_is_closed(both: [(Box<dyn Device>, Bound); 2], far: &mut KernelEnd) {
    let mut bytes = Vec::new();
    let [(mut first, of_first), (mut second, of_second)] = both;
    for (device, pool) in [(&mut first, &of_first), (&mut second, &of_second)] {
        assert_eq!(device.transmit(&mut TxQueue::from([frame(pool, 70)])), 1);
        wait_until("a frame arrives", || far.receive(&mut bytes));
        assert_eq!(bytes.len(), 70);
    }
    first.close();
    assert_eq!(of_first.inflight().out, 0, "all buffers returned");
    for number in 0..16 {
        assert!(far.send(&of_flow(number)));
    }
    let packets = receive(&mut *second, &of_second, 16);
    assert!(packets.iter().enumerate().all(|(number, packet)| packet.data() == of_flow(number as u8)));
    drop(packets);
    second.close();
    assert_eq!(of_second.inflight().out, 0, "all buffers returned");
}

/// All pages are free after `close`, and the kernel writes into none of them, although packets come.
#[test]
fn a_closed_queue_is_not_written_to() {
    let Some(place) = vhost_place("a_closed_queue_is_not_written_to") else { return };
    let params = with_taps(&place, 1, 1500, params());
    let kept = params.taps.clone();
    let Rig { mut device, mut far, pool, .. } = rig(&place, params);
    device.receive(&pool, &mut Vec::new(), 0);
    let mut socket = KernelEnd::of(&place);
    (0..8).for_each(|_| assert!(far.send(&[7; 1000])));
    (0..2).for_each(|_| _ = socket.send(&[7; 1000])); // some may come while it is closed
    device.close();
    assert_eq!(pool.inflight().out, 0, "all buffers returned");
    let mut pages: Vec<_> = std::iter::from_fn(|| pool.alloc_page()).collect();
    pages.iter_mut().for_each(|page| page.bytes_mut().expect("memory").fill(0xee));
    (0..100).for_each(|_| _ = socket.send(&[7; 1000]));
    far.settle();
    let is_untouched =
        |page: &pagepool::PageBuf| page.bytes().expect("memory").iter().all(|&byte| byte == 0xee);
    assert!(pages.iter().all(is_untouched), "the kernel wrote into a page that it does not have");
    drop(kept);
}

#[test]
fn a_deleted_interface_is_a_lost_link_until_it_is_back() {
    let name = "a_deleted_interface_is_a_lost_link_until_it_is_back";
    let Some(place) = vhost_place(name) else { return };
    let Rig { mut device, pool, .. } = rig(&place, params());
    let mut queue = TxQueue::from([frame(&pool, 60)]);
    assert_eq!(device.transmit(&mut queue), 1);
    KernelEnd::of(&place).die();
    assert_eq!(device.wait(&pool, Duration::from_millis(300)), Wake::Timeout, "nothing comes");
    let stats = device.stats();
    assert_eq!((stats.link_lost, stats.in_rx, stats.in_tx, pool.inflight().out), (1, 0, 0, 0), "{stats:?}");
    assert_eq!(device.receive(&pool, &mut Vec::new(), 8), 0);
    let gone = place.netlink().expect("a namespace of our own").link("t0");
    assert!(gone.is_err(), "who deleted it decides whether there is another");
    if !make_tap(&place) {
        return println!("SKIP {name}: no program that makes TAPs");
    }
    KernelEnd::of(&place).with_link(|netlink, index| netlink.set_up(index, true));
    let mut far = KernelEnd::of(&place);
    wait_until("the link is back", || {
        device.receive(&pool, &mut Vec::new(), 8);
        device.stats().in_rx > 0
    });
    assert!(far.send(&[7; 60]));
    assert_eq!(receive(&mut *device, &pool, 1)[0].data(), [7; 60]);
    let mut bytes = Vec::new();
    assert_eq!(device.transmit(&mut TxQueue::from([frame(&pool, 61)])), 1);
    wait_until("a frame arrives", || far.receive(&mut bytes));
    assert_eq!(bytes.len(), 61);
    device.close();
    assert_eq!((device.stats().link_lost, pool.inflight().out), (1, 0));
}

/// What is sent while the interface is down is lost, and its buffers return.
#[test]
fn an_interface_that_is_down_keeps_no_buffer() {
    let Some(place) = vhost_place("an_interface_that_is_down_keeps_no_buffer") else { return };
    let Rig { mut device, pool, .. } = rig(&place, params());
    let turn = |up| KernelEnd::of(&place).with_link(|netlink, index| netlink.set_up(index, up));
    turn(false);
    assert_eq!(device.transmit(&mut TxQueue::from([frame(&pool, 60), frame(&pool, 61)])), 2);
    let mut done = XdpFrameBulk::new();
    wait_until("both are completed", || {
        device.complete(&mut done, 64);
        device.stats().in_tx == 0
    });
    done.flush();
    turn(true);
    assert!(KernelEnd::of(&place).send(&[7; 60]));
    assert_eq!(receive(&mut *device, &pool, 1)[0].data(), [7; 60]);
    device.close();
    assert_eq!(pool.inflight().out, 0);
}

#[test]
fn packets_cross_to_a_tap_without_a_copy() {
    let Some(place) = vhost_place("packets_cross_to_a_tap_without_a_copy") else { return };
    let (arena, names) = (arena(), [("vhost_net:t0", &[0][..]), ("tap:t1", &[0])]);
    let opened = place.run(move || open_devices(&names, &params(), &arena)).expect("nobody has them");
    let mut forwarder =
        Forwarder::new(|_: &mut XdpBuff, at: Ingress| Action::Redirect(PortId(1 - at.port.0)));
    let ports: Vec<_> =
        opened.into_iter().flatten().map(|of| forwarder.add_port(of.device, of.pool.bind())).collect();
    let ends = ["t0", "t1"].map(|name| FrameSocket::open(&place, name).expect("it is there"));
    forwarder.poll();
    let (mut bytes, mut crossed, start) = ([0; 2048], [0; 2], Instant::now());
    for n in 0..40 {
        assert!(ends.iter().all(|end| end.send(&[n; 100]).expect("it is up")));
        while crossed != [usize::from(n) + 1; 2] {
            assert!(start.elapsed() < LIMIT, "{crossed:?} of {n}");
            forwarder.poll();
            for (end, crossed) in ends.iter().zip(&mut crossed) {
                *crossed += usize::from(end.receive(&mut bytes).expect("it is up") == Some(100));
            }
        }
    }
    for port in ports {
        let stats = forwarder.stats(port).expect("it is there");
        assert_eq!((stats.rx, stats.redirect_out, stats.redirect_in), (40, 40, 40), "{port:?}");
        assert_eq!(forwarder.paths(port).expect("it is there").copied, 0, "one memory serves both");
    }
}

/// Says that this process is the one to be killed.
const CHILD: &str = "PAGEPOOL_TO_BE_KILLED";

/// Sends back what comes over the TAP of this process's namespace.
fn echo_until_killed() {
    let opened = open_devices(&[("vhost_net:t0", &[0])], &params(), &arena()).expect("nobody has it");
    let mut forwarder = Forwarder::new(|_: &mut XdpBuff, _: Ingress| Action::Tx);
    for of in opened.into_iter().flatten() {
        forwarder.add_port(of.device, of.pool.bind());
    }
    let start = Instant::now();
    while start.elapsed() < 2 * LIMIT {
        forwarder.poll();
        forwarder.wait(Duration::from_millis(1));
    }
}

/// Children are killed before, while and after they open the device, and while they echo.
#[test]
fn a_killed_process_leaves_the_tap_to_the_next() {
    let name = "a_killed_process_leaves_the_tap_to_the_next";
    if std::env::var_os(CHILD).is_some() {
        return echo_until_killed();
    }
    let Some(place) = vhost_place(name) else { return };
    if !make_tap(&place) {
        return println!("SKIP {name}: no program that makes TAPs");
    }
    KernelEnd::of(&place).with_link(|netlink, index| netlink.set_up(index, true));
    let (mut dice, mut opening, mut bytes) = (crafted::Dice::new(7), None, Vec::new());
    for _ in 0..10 {
        let mut far = KernelEnd::of(&place);
        let mut child = Command::new(std::env::current_exe().expect("a test is a program"));
        child.args(["--exact", &format!("vhost_net::{name}")]).env(CHILD, "1").stdout(Stdio::null());
        let mut child = place.run(move || child.spawn()).expect("the same program");
        // The first one lives until it answers; the others at most twice as long.
        let (start, mut answers) = (Instant::now(), false);
        let life = opening.map_or(LIMIT, |opening: Duration| opening * dice.below(200) as u32 / 100);
        while start.elapsed() < life && (opening.is_some() || !answers) {
            far.send(&[9; 100]); // refused where there is no room
            answers |= far.receive(&mut bytes);
        }
        assert!(opening.is_some() || answers, "the first one answers within {LIMIT:?}");
        opening = opening.or(Some(start.elapsed()));
        assert!(child.try_wait().expect("it is a child").is_none(), "it ended by itself");
        child.kill().expect("it is a child");
        child.wait().expect("it is a child");
    }
    echoes(rig(&place, params()), 60..100);
}

/// Why a device is not opened, in the words of its error.
fn why(place: &Namespace, name: &'static str, queues: &'static [u32], params: OpenParams) -> String {
    let arena = arena();
    let opened = place.run(move || open_devices(&[(name, queues)], &params, &arena).map(drop));
    opened.expect_err("a device").to_string()
}

#[test]
fn errors_name_the_value_and_the_remedy() {
    let Some(place) = place("errors_name_the_value_and_the_remedy") else { return };
    assert_eq!(why(&place, "vhost_net:t0", &[256], params()), "queue is 256, but must be 0 to 255");
    for name in ["vhost_net:", "vhost_net:a-name-too-long0"] {
        let said = why(&place, name, &[0], params());
        assert!(said.contains("1 to 15 bytes"), "{said}");
    }
    let said = why(&place, "vhost_net:lo", &[0], params());
    assert!(said.contains("TAP \"lo\": the interface with this name is not a TAP"), "{said}");
    let plain = place.run(|| Tap::open("t0")).expect("nobody has it");
    let said = why(&place, "vhost_net:t0", &[0], OpenParams { taps: vec![plain.into()], ..params() });
    assert!(said.contains("must be 1 queues of t0, opened by `Tap::open_with_header`"), "{said}");
    let one = with_taps(&place, 1, 1500, params());
    let said = why(&place, "vhost_net:t0", &[0, 1], one);
    assert!(said.starts_with("taps is 1 queues of it"), "{said}");
}

#[test]
fn without_vhost_net_the_error_says_how_to_get_it() {
    let test = "without_vhost_net_the_error_says_how_to_get_it";
    let Some(place) = place(test) else { return };
    if fs::exists(DEVICE).unwrap_or(true) {
        return println!("SKIP {test}: there is {DEVICE}");
    }
    let said = why(&place, "vhost_net:t0", &[0], params());
    assert!(said.starts_with("open(/dev/vhost-net) failed") && said.contains("modprobe vhost_net"), "{said}");
    let left = place.netlink().expect("a namespace of our own").link("t0");
    assert!(left.is_err(), "an error leaves no trace");
}
