//! The end of AF_XDP devices: in any order, and by being killed. Afterwards all buffers have returned, nothing is
//! attached, and the next start works at once.

use crate::veth;
use std::any::Any;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::veth::{Far, Veth};
use pagepool::{Arena, ArenaParams, Bound, Pool, PoolParams, PoolRef, XdpBuff, XdpFrame, XdpFrameBulk};
use pagepool_link::Netlink;
use pagepool_net::{
    Attach, Device, DeviceExt, Redirect, TxQueue, Umem, UmemParams, XskDevice, XskMode, XskParams,
};
use pagepool_testing::FarEnd;

/// Set in the process that is to be killed.
const CHILD: &str = "PAGEPOOL_TEST_HOLDS_A_DEVICE";
const LIMIT: Duration = veth::LIMIT;

fn needs_veth(name: &str, test: impl FnOnce()) {
    match veth::missing() {
        Some(why) => println!("SKIP {name}: {why}"),
        None => test(),
    }
}

/// A packet with a number, and bytes that follow from it.
fn packet(number: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..60 + number * 7 % 1400).map(|at| (at * 5 + number * 3) as u8).collect();
    bytes[..14].copy_from_slice(b"\x02to..\x01\x02from\x01\x88\xb5");
    bytes[14] = u8::from(number >= OURS);
    bytes
}

/// The first of the packets that are to come back.
const OURS: usize = 1000;

fn is_ours(packet: &[u8]) -> bool {
    packet[14] == 1
}

/// Memory, registered.
fn memory() -> (Arc<Arena>, Arc<Umem>) {
    let params = ArenaParams { max_bytes: 4 << 20, commit_all: true, ..Default::default() };
    let arena = Arena::new(params).expect("4 MiB");
    let params = UmemParams { mode: XskMode::Copy, ..Default::default() };
    let umem = Umem::new(params, &arena).expect("memory to lock");
    (arena, umem)
}

/// The device of an interface, and its pool.
fn open(
    interface: &str,
    redirect: &Arc<Redirect>,
    (arena, umem): &(Arc<Arena>, Arc<Umem>),
) -> (XskDevice, Bound) {
    let rings = XskParams { rx_ring: 64, tx_ring: 64, ..Default::default() };
    // On a busy machine the kernel takes its time to end the last socket.
    let rings = XskParams { busy_limit: LIMIT, ..rings };
    let params = XskParams { interface: interface.into(), redirect: Some(redirect.clone()), ..rings };
    let of_pool =
        PoolParams { headroom: 256, wakeup: true, domains: vec![umem.clone()], ..Default::default() };
    let pool = Pool::new(of_pool, arena.clone()).expect("parameters in range").bind();
    let mut device = XskDevice::open(params, umem, &pool).expect("a free queue");
    device.receive(&pool, &mut Vec::new(), 0);
    (device, pool)
}

fn attach(interface: &str) -> Arc<Redirect> {
    Redirect::attach(interface, Attach::Native, false).expect("nothing is attached")
}

/// Receives until that many packets have come.
fn collect(device: &mut XskDevice, pool: &Bound, count: usize) -> Vec<XdpBuff> {
    let (mut packets, start) = (Vec::with_capacity(count), Instant::now());
    while packets.len() < count && start.elapsed() < LIMIT {
        device.receive(pool, &mut packets, 64);
        let _ = device.wait(pool, Duration::from_millis(1));
    }
    packets
}

/// Ten packets there and back. Others may be on their way, either way, from or to one that was killed.
fn echoes(device: &mut XskDevice, pool: &Bound, far: &mut Far) {
    let ours: Vec<_> = (OURS..OURS + 10).map(packet).collect();
    ours.iter().for_each(|packet| assert!(far.send(packet)));
    let (mut packets, start) = (Vec::new(), Instant::now());
    while packets.len() < 10 && start.elapsed() < LIMIT {
        packets.extend(collect(device, pool, 1).into_iter().filter(|packet| is_ours(packet.data())));
    }
    let mut queue: TxQueue = packets.into_iter().map(XdpFrame::from).collect();
    assert_eq!((queue.len(), device.transmit(&mut queue)), (10, 10));
    for (number, sent) in ours.iter().enumerate() {
        let back = (0..10_000).map(|_| far.next()).find(|packet| is_ours(packet));
        assert!(back.as_ref() == Some(sent), "packet {number} comes back as it was");
    }
    let (mut done, start) = (XdpFrameBulk::new(), Instant::now());
    while device.stats().in_tx > 0 && start.elapsed() < LIMIT {
        device.complete(&mut done, 64);
    }
}

/// Numbers that look random, the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % most as u64) as usize
    }
}

/// Two devices over one UMEM with something in every place: all that is to be dropped, and what shows that it
/// was.
struct Everything {
    parts: Vec<(&'static str, Box<dyn Any>)>,
    handles: [PoolRef; 2],
    umem: Weak<Umem>,
    arena: Weak<Arena>,
}

fn everything(far: &mut [Far; 2], random: &mut Random) -> Everything {
    let memory = memory();
    let redirects = ["near0", "near1"].map(attach);
    let [mut left, mut right] = [0, 1].map(|at| open(["near0", "near1"][at], &redirects[at], &memory));
    for far in &mut *far {
        (0..20).for_each(|number| assert!(far.send(&packet(number))));
    }
    let held = [&mut left, &mut right].map(|(device, pool)| collect(device, pool, 5 + random.below(5)));
    let [mut to_right, mut to_left] =
        held.map(|held| held.into_iter().map(XdpFrame::from).collect::<Vec<_>>());
    let (kept_left, kept_right) = (to_right.split_off(2), to_left.split_off(2));
    right.0.transmit(&mut to_right.into_iter().collect()); // each sends what is the other's
    left.0.transmit(&mut to_left.into_iter().collect());
    let handles = [left.1.handle(), right.1.handle()];
    let (umem, arena) = (Arc::downgrade(&memory.1), Arc::downgrade(&memory.0));
    let [redirect_left, redirect_right] = redirects;
    let parts: Vec<(&str, Box<dyn Any>)> = vec![
        ("left device", Box::new(left.0)),
        ("right device", Box::new(right.0)),
        ("left pool", Box::new(left.1)),
        ("right pool", Box::new(right.1)),
        ("left redirect", Box::new(redirect_left)),
        ("right redirect", Box::new(redirect_right)),
        ("arena", Box::new(memory.0)),
        ("UMEM", Box::new(memory.1)),
        ("left packets", Box::new(kept_left)),
        ("right packets", Box::new(kept_right)),
    ];
    Everything { parts, handles, umem, arena }
}

#[test]
fn teardown_in_any_order_returns_everything() {
    needs_veth("any order", || {
        let veth = Veth::new(2, 1500);
        let mut far = [veth.far_end(0), veth.far_end(1)];
        let (mut random, mut netlink) =
            (Random(88_172_645_463_325_252), Netlink::open().expect("a namespace of ours"));
        for round in 0..60 {
            let Everything { mut parts, handles, umem, arena } = everything(&mut far, &mut random);
            let mut order = Vec::new();
            while !parts.is_empty() {
                let (name, part) = parts.swap_remove(random.below(parts.len()));
                order.push(name);
                drop(part);
            }
            let total: i64 = handles.iter().map(|pool| pool.inflight().total).sum();
            assert_eq!(total, 0, "round {round}: {order:?}");
            drop(handles);
            assert!(umem.upgrade().is_none() && arena.upgrade().is_none(), "round {round}: {order:?}");
            for interface in ["near0", "near1"] {
                assert_eq!(netlink.link(interface).expect("it is there").xdp, [], "round {round}: {order:?}");
            }
            for far in &mut far {
                while far.receive(&mut Vec::new()) {} // what was sent
            }
        }
    });
}

/// Holds a device, and sends back what comes, until it is killed.
fn hold() {
    let memory = memory();
    let (mut device, pool) = open("near0", &attach("near0"), &memory);
    println!("\nREADY");
    let (mut packets, mut queue, mut done) = (Vec::with_capacity(64), TxQueue::new(), XdpFrameBulk::new());
    let start = Instant::now();
    while start.elapsed() < LIMIT {
        device.receive(&pool, &mut packets, 64);
        queue.extend(packets.drain(..).map(XdpFrame::from));
        device.transmit(&mut queue);
        device.complete(&mut done, 64);
        done.flush();
        let _ = device.wait(&pool, Duration::from_millis(10));
    }
}

/// A process of this namespace that holds the device of near0.
fn holder() -> Child {
    let name = "xsk_teardown::the_next_start_works_right_after_a_crash";
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", name, "--nocapture"]).env(CHILD, "1");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut child = command.spawn().expect("it can be run again");
    let output = BufReader::new(child.stdout.take().expect("a pipe"));
    let ready = output.lines().map_while(Result::ok).any(|line| line == "READY");
    assert!(ready, "it opened the device");
    child
}

#[test]
fn the_next_start_works_right_after_a_crash() {
    if std::env::var_os(CHILD).is_some() {
        return hold();
    }
    needs_veth("crash", || {
        let veth = Veth::new(1, 1500);
        let mut far = veth.far_end(0);
        for round in 0..8 {
            let mut child = holder();
            for number in 0..50 * round {
                far.send(&packet(number)); // it is killed in the middle of them
            }
            child.kill().expect("it runs");
            child.wait().expect("it is ours");
            let start = Instant::now();
            let redirect = attach("near0");
            let (mut device, pool) = open("near0", &redirect, &memory());
            let opened = start.elapsed();
            echoes(&mut device, &pool, &mut far);
            println!("round {round}: opened {:.1} ms after the other's death", opened.as_secs_f64() * 1e3);
            device.close();
            assert_eq!(pool.inflight().out, 0);
        }
    });
}
