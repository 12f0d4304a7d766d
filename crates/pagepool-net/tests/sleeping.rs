//! A forwarder sleeps on everything at once: what wakes it, that nothing is missed, and how often it wakes
//! for nothing.

#![expect(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

use crate::veth;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use crate::veth::Veth;
use pagepool::{Arena, ArenaParams, Bound, DmaDomain, Pool, PoolParams, XdpBuff};
use pagepool_lab::FrameSocket;
use pagepool_net::{
    Action, Attach, Device, DeviceExt, Forwarder, Ingress, MemNicParams, NicDomain, NicPort, PacketHandler,
    PortId, Redirect, Stack, Umem, UmemParams, Wake, XskDevice, XskMode, XskParams, handoff, mem_nic,
    testing::{umem_in_memory, xsk_in_memory},
};
use pagepool_testing::FarEnd;

/// Longer than anything takes that is not lost.
const LIMIT: Duration = Duration::from_secs(60);
/// Most times a second that an idle forwarder may wake.
const WAKES: f64 = 8.0;

fn pool(bytes: u64, domain: Arc<dyn DmaDomain>) -> Bound {
    let arena = Arena::new(ArenaParams { max_bytes: bytes, ..Default::default() }).unwrap();
    let params = PoolParams { wakeup: true, domains: vec![domain], ..Default::default() };
    Pool::new(params, arena).unwrap().bind()
}

/// Adds an in-memory NIC over so much memory.
fn add_nic<P: PacketHandler, S: Stack>(forwarder: &mut Forwarder<P, S>, name: &str, bytes: u64) -> NicPort {
    let domain = NicDomain::new(name);
    let (nic, wire) = mem_nic(MemNicParams::default(), domain.clone()).unwrap();
    forwarder.add_port(nic, pool(bytes, domain));
    wire
}

fn across(_: &mut XdpBuff, at: Ingress) -> Action {
    Action::Redirect(PortId(1 - at.port.0))
}

/// How often this thread went to sleep so far.
fn sleeps() -> f64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.unwrap().trim().parse().unwrap()
}

/// How often a second a forwarder that has nothing to do sleeps, or returns from a wait at once, as a program
/// would wait with it.
fn wakes_a_second<P: PacketHandler, S: Stack>(forwarder: &mut Forwarder<P, S>) -> f64 {
    let settling = Instant::now();
    while forwarder.poll() > 0 || forwarder.wait(Duration::from_millis(50)) == Wake::Ready {
        assert!(settling.elapsed() < LIMIT / 2, "it always finds something");
    }
    let (start, before, mut waits) = (Instant::now(), sleeps(), 0);
    while start.elapsed() < Duration::from_secs(2) {
        forwarder.poll();
        let _ = forwarder.wait(Duration::from_secs(1));
        waits += 1;
    }
    (sleeps() - before + f64::from(waits)) / start.elapsed().as_secs_f64()
}

#[test]
fn an_idle_forwarder_between_in_memory_nics_sleeps() {
    let mut forwarder = Forwarder::new(across);
    let _wires = ["mem0", "mem1"].map(|name| add_nic(&mut forwarder, name, 16 << 20));
    let (_outlet, inlet) = handoff(64).unwrap();
    forwarder.add_handoff(PortId(1), inlet).unwrap();
    let wakes = wakes_a_second(&mut forwarder);
    println!("in memory: an idle forwarder wakes {wakes:.1} times a second");
    assert!(wakes < WAKES, "{wakes}");
}

/// Over the AF_XDP sockets of `count` interfaces.
fn between_interfaces(count: usize) -> Forwarder<impl PacketHandler> {
    let arena = ArenaParams { max_bytes: 16 << 20, commit_all: true, ..Default::default() };
    let arena = Arena::new(arena).unwrap();
    let umem = Umem::new(UmemParams { mode: XskMode::Copy, ..Default::default() }, &arena).unwrap();
    let mut forwarder = Forwarder::new(across);
    for interface in &["near0", "near1"][..count] {
        let redirect = Some(Redirect::attach(interface, Attach::Native, false).unwrap());
        let params = XskParams { interface: interface.to_string(), redirect, ..Default::default() };
        let of_pool =
            PoolParams { headroom: 256, wakeup: true, domains: vec![umem.clone()], ..Default::default() };
        let pool = Pool::new(of_pool, arena.clone()).unwrap().bind();
        forwarder.add_port(XskDevice::open(params, &umem, &pool).unwrap(), pool);
    }
    forwarder
}

#[test]
fn an_idle_forwarder_between_interfaces_sleeps_until_a_packet() {
    if let Some(why) = veth::missing() {
        return println!("SKIP an_idle_forwarder_between_interfaces_sleeps_until_a_packet: {why}");
    }
    let veth = Veth::new(2, 1500);
    let mut forwarder = between_interfaces(2);
    let wakes = wakes_a_second(&mut forwarder);
    println!("AF_XDP: an idle forwarder wakes {wakes:.1} times a second");
    assert!(wakes < WAKES, "{wakes}");

    let (mut left, mut right) = (veth.far_end(0), veth.far_end(1));
    for number in 0..200u8 {
        let (from, to) = if number % 2 == 0 { (&mut left, &mut right) } else { (&mut right, &mut left) };
        assert!(from.send(&[number; 100]));
        let start = Instant::now();
        while forwarder.poll() == 0 {
            assert_eq!(forwarder.wait(LIMIT), Wake::Ready);
        }
        assert!(start.elapsed() < LIMIT / 2);
        while forwarder.poll() > 0 {}
        assert_eq!(to.next(), [number; 100], "packet {number}");
    }
}

#[test]
fn a_packet_wakes_a_forwarder_that_sleeps_already() {
    if let Some(why) = veth::missing() {
        return println!("SKIP a_packet_wakes_a_forwarder: {why}");
    }
    let veth = Veth::new(2, 1500);
    for ports in [1, 2] {
        let mut forwarder = between_interfaces(ports);
        while forwarder.poll() > 0 || forwarder.wait(Duration::from_millis(50)) == Wake::Ready {}
        let far = FrameSocket::open(veth.far(), "far0").unwrap();
        let ((ask, asked), (woke, woken)) = (mpsc::channel(), mpsc::channel());
        std::thread::scope(|threads| {
            let sender = threads.spawn(move || {
                let is_late = |()| {
                    // it sleeps by now, for a second if nothing wakes it
                    std::thread::sleep(Duration::from_millis(10));
                    assert!(far.send(&[7; 60]).unwrap());
                    let late = woken.recv_timeout(Duration::from_millis(500)).is_err();
                    late && woken.recv().is_ok()
                };
                asked.iter().map(is_late).filter(|late| *late).count()
            });
            for _ in 0..21 {
                ask.send(()).unwrap();
                let start = Instant::now();
                while forwarder.poll() == 0 {
                    assert_eq!(forwarder.wait(LIMIT), Wake::Ready);
                }
                assert!(start.elapsed() < LIMIT / 2);
                woke.send(()).unwrap();
                while forwarder.poll() > 0 {}
            }
            drop(ask);
            let late = sender.join().unwrap();
            println!("{ports} ports: {late} of 21 packets waited for half a second");
            assert!(late < 10, "{late} of 21: half the time that it sleeps if nothing wakes it");
        });
    }
}

/// Keeps what it is given.
#[derive(Clone, Debug, Default)]
struct Shelf(Arc<Mutex<Vec<XdpBuff>>>);

impl Stack for Shelf {
    fn deliver(&mut self, packet: XdpBuff, _: Ingress) -> Result<(), XdpBuff> {
        self.0.lock().unwrap().push(packet);
        Ok(())
    }
}

#[test]
fn a_return_to_the_empty_pool_of_any_port_wakes_the_forwarder() {
    let shelf = Shelf::default();
    let mut forwarder = Forwarder::with_stack(|_: &mut XdpBuff, _: Ingress| Action::Pass, shelf.clone());
    let _quiet = add_nic(&mut forwarder, "quiet", 16 << 20);
    let mut wire = add_nic(&mut forwarder, "dry", 64 << 10); // 16 pages
    forwarder.poll();
    for round in 0..300u32 {
        let before = forwarder.device(PortId(1)).unwrap().stats();
        for at in 0..16 {
            assert!(wire.deliver(&(round * 16 + at).to_be_bytes().repeat(15)), "round {round}");
        }
        assert!(!wire.deliver(&[0; 60]), "there is no buffer");
        while forwarder.poll() > 0 {}
        let packets = std::mem::take(&mut *shelf.0.lock().unwrap());
        for (at, packet) in (0..16).zip(&packets) {
            assert_eq!(packet.data(), (round * 16 + at).to_be_bytes().repeat(15), "as it was sent");
        }
        let stats = forwarder.device(PortId(1)).unwrap().stats();
        assert_eq!((packets.len(), stats.in_rx, stats.rx_no_buffer - before.rx_no_buffer), (16, 0, 1));
        let returning = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(u64::from(round % 7) * 50));
            drop(packets);
        });
        let start = Instant::now();
        while forwarder.device(PortId(1)).unwrap().stats().in_rx < 16 {
            assert_eq!(forwarder.wait(LIMIT), Wake::Ready, "round {round}: a buffer returned");
            forwarder.poll();
        }
        assert!(start.elapsed() < LIMIT / 2);
        returning.join().unwrap();
    }
    let wakes = wakes_a_second(&mut forwarder);
    assert!(wakes < WAKES, "{wakes}: the pool's signal was taken");
}

#[test]
fn what_another_thread_hands_over_wakes_the_forwarder() {
    let (outlet, inlet) = handoff(64).unwrap();
    let mut here = Forwarder::new(|_: &mut XdpBuff, _: Ingress| Action::Redirect(PortId(1)));
    let mut first = add_nic(&mut here, "mem0", 4 << 20);
    here.add_remote(outlet);
    here.poll();
    let (wires, wire) = std::sync::mpsc::channel();
    let stop = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let there = threads.spawn(|| {
            let mut there = Forwarder::new(|_: &mut XdpBuff, _: Ingress| Action::Drop);
            wires.send(add_nic(&mut there, "mem1", 4 << 20)).unwrap();
            there.add_handoff(PortId(0), inlet).unwrap();
            let mut woken = 0;
            while !stop.load(Ordering::Relaxed) {
                while there.poll() > 0 {}
                match there.wait(LIMIT) {
                    Wake::Ready => woken += 1,
                    Wake::Timeout => panic!("a frame was handed over, and nobody woke"),
                    Wake::Gone => panic!("both NICs are there"),
                }
            }
            (woken, wakes_a_second(&mut there))
        });
        let mut second = wire.recv().unwrap();
        for number in 0..3000u32 {
            assert!(first.deliver(&number.to_be_bytes().repeat(15)));
            while here.poll() > 0 {}
            let start = Instant::now();
            let mut came = false;
            while !came {
                assert!(start.elapsed() < LIMIT / 2, "frame {number}");
                second.take(|packet| came = packet == number.to_be_bytes().repeat(15));
                std::thread::yield_now();
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert!(first.deliver(&[0; 60]));
        while here.poll() > 0 {}
        let (woken, wakes) = there.join().unwrap();
        println!("{woken} wake-ups for 3000 frames");
        assert!(wakes < WAKES, "{wakes}: the bell's signal was taken");
    });
}

/// Sixteen packets, which are all the buffers that the NIC's pool has, put on the shelf.
fn fill_shelf<P: PacketHandler>(forwarder: &mut Forwarder<P, Shelf>, wire: &mut NicPort, shelf: &Shelf) {
    while forwarder.poll() > 0 {}
    (0..16u8).for_each(|number| assert!(wire.deliver(&[number; 60])));
    while forwarder.poll() > 0 {}
    assert_eq!(shelf.0.lock().unwrap().len(), 16);
}

/// Waits until a port's device has that many buffers.
fn until_given<P: PacketHandler, S: Stack>(forwarder: &mut Forwarder<P, S>, port: u32, buffers: u64) {
    let start = Instant::now();
    while forwarder.device(PortId(port)).unwrap().stats().in_rx < buffers {
        assert_eq!(forwarder.wait(LIMIT), Wake::Ready, "there are buffers for it");
        forwarder.poll();
    }
    assert!(start.elapsed() < LIMIT / 2);
}

#[test]
fn own_returns_before_a_sleep_reach_a_device_without_buffers() {
    for others in 0..2 {
        let shelf = Shelf::default();
        let mut forwarder = Forwarder::with_stack(|_: &mut XdpBuff, _: Ingress| Action::Pass, shelf.clone());
        let mut wire = add_nic(&mut forwarder, "dry", 64 << 10); // 16 pages
        let _quiet: Vec<_> = (0..others).map(|_| add_nic(&mut forwarder, "quiet", 1 << 20)).collect();
        for _ in 0..3 {
            fill_shelf(&mut forwarder, &mut wire, &shelf);
            shelf.0.lock().unwrap().clear(); // as a stack does that looks at them when nothing more comes
            until_given(&mut forwarder, 0, 16);
        }
    }
}

#[test]
fn own_returns_before_a_sleep_reach_a_socket_without_buffers() {
    if let Some(why) = veth::missing() {
        return println!("SKIP own_returns_before_a_sleep_reach_a_socket_without_buffers: {why}");
    }
    let veth = Veth::new(1, 1500);
    let arena = ArenaParams { max_bytes: 64 << 10, commit_all: true, ..Default::default() }; // 16 pages
    let arena = Arena::new(arena).unwrap();
    let umem = Umem::new(UmemParams { mode: XskMode::Copy, ..Default::default() }, &arena).unwrap();
    let redirect = Some(Redirect::attach("near0", Attach::Native, false).unwrap());
    let params =
        XskParams { interface: "near0".into(), rx_ring: 16, tx_ring: 16, redirect, ..Default::default() };
    let of_pool =
        PoolParams { headroom: 256, wakeup: true, domains: vec![umem.clone()], ..Default::default() };
    let pool = Pool::new(of_pool, arena).unwrap().bind();
    let device = XskDevice::open(params, &umem, &pool).unwrap();
    let shelf = Shelf::default();
    let mut forwarder = Forwarder::with_stack(|_: &mut XdpBuff, _: Ingress| Action::Pass, shelf.clone());
    forwarder.add_port(device, pool);
    while forwarder.poll() > 0 {}
    let mut far = veth.far_end(0);
    for round in 0..3 {
        (0..16).for_each(|_| assert!(far.send(&[round; 60])));
        let start = Instant::now();
        while shelf.0.lock().unwrap().len() < 16 && start.elapsed() < LIMIT / 2 {
            let _ = forwarder.wait(Duration::from_millis(10));
            while forwarder.poll() > 0 {}
        }
        let packets = std::mem::take(&mut *shelf.0.lock().unwrap());
        assert!(
            packets.len() == 16 && packets.iter().all(|packet| packet.data() == [round; 60]),
            "{packets:?}"
        );
        drop(packets);
        until_given(&mut forwarder, 0, 16);
    }
}

#[test]
fn what_a_device_that_died_gave_back_reaches_another_at_once() {
    let mut forwarder = Forwarder::new(|_: &mut XdpBuff, _: Ingress| Action::Redirect(PortId(1)));
    let mut first = add_nic(&mut forwarder, "dry", 64 << 10); // 16 pages
    let mut second = add_nic(&mut forwarder, "dying", 1 << 20);
    let _third = add_nic(&mut forwarder, "quiet", 1 << 20);
    while forwarder.poll() > 0 {}
    (0..16u8).for_each(|number| assert!(first.deliver(&[number; 60])));
    while forwarder.poll() > 0 {}
    let in_rx = |forwarder: &Forwarder<_>| forwarder.device(PortId(0)).unwrap().stats().in_rx;
    assert_eq!((in_rx(&forwarder), forwarder.device(PortId(1)).unwrap().stats().in_tx), (0, 16));
    second.die();
    until_given(&mut forwarder, 0, 16);
    assert_eq!(forwarder.device(PortId(1)).unwrap().stats().closed_with, 16 + 256);
}

#[test]
fn a_handoff_before_a_panic_wakes_the_other_thread() {
    let (outlet, inlet) = handoff(64).unwrap();
    let mut there = Forwarder::new(|_: &mut XdpBuff, _: Ingress| Action::Drop);
    let mut second = add_nic(&mut there, "mem1", 4 << 20);
    there.add_handoff(PortId(0), inlet).unwrap();
    while there.poll() > 0 {}
    let start = Instant::now();
    let panics = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100)); // the other one sleeps
        let mut here = Forwarder::new(|packet: &mut XdpBuff, _: Ingress| match packet.data()[0] {
            0 => Action::Redirect(PortId(2)),
            _ => panic!("as this test wants it"),
        });
        let mut wires = ["mem0", "mem2"].map(|name| add_nic(&mut here, name, 4 << 20));
        here.add_remote(outlet);
        here.poll();
        assert!(wires[0].deliver(&[0; 60]) && wires[1].deliver(&[1; 60])); // in bursts of their own
        here.poll();
    });
    assert_eq!(there.wait(LIMIT), Wake::Ready);
    assert!(start.elapsed() < LIMIT / 2 && panics.join().is_err());
    while there.poll() > 0 {}
    assert!(second.take(|packet| assert_eq!(packet, [0; 60])));
}

#[test]
fn a_signal_ends_the_sleep_of_one_port_and_of_several() {
    if let Some(why) = veth::missing() {
        return println!("SKIP a_signal_ends_the_sleep: {why}");
    }
    let _veth = Veth::new(2, 1500);
    for ports in [1, 2] {
        let mut forwarder = between_interfaces(ports);
        while forwarder.poll() > 0 || forwarder.wait(Duration::from_millis(50)) == Wake::Ready {}
        let (start, signals) = (Instant::now(), veth::interrupt_me(Duration::from_millis(50)));
        assert_eq!(forwarder.wait(LIMIT), Wake::Timeout);
        assert!(start.elapsed() < LIMIT / 2, "the end does not wait");
        drop(signals);
    }
}

/// Drops packets that it is sent, at moments that differ, until there are no more.
fn return_late(packets: &mpsc::Receiver<XdpBuff>) {
    for (number, packet) in packets.iter().enumerate() {
        for _ in 0..number * 7919 % 3000 {
            std::hint::spin_loop();
        }
        drop(packet);
    }
}

#[test]
fn buffers_returned_as_a_forwarder_falls_asleep_wake_it() {
    const PAGES: u64 = 4;
    const DRY: u64 = 100;
    let (to_returner, packets) = mpsc::channel();
    let stack = move |packet: XdpBuff, _: Ingress| to_returner.send(packet).map_err(|refused| refused.0);
    let mut forwarder = Forwarder::with_stack(|_: &mut XdpBuff, _: Ingress| Action::Pass, stack);
    let _quiet = add_nic(&mut forwarder, "quiet", 1 << 20);
    let mut wire = add_nic(&mut forwarder, "dry", PAGES * 4096);
    let (stop, delivered) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut dry = 0;
    std::thread::scope(|threads| {
        threads.spawn(move || return_late(&packets));
        threads.spawn(|| {
            let start = Instant::now();
            while !stop.load(Ordering::Relaxed) && start.elapsed() < 3 * LIMIT {
                let number = delivered.load(Ordering::Relaxed);
                match wire.deliver(&number.to_be_bytes().repeat(8)) {
                    true => _ = delivered.fetch_add(1, Ordering::Relaxed),
                    false => std::thread::yield_now(),
                }
            }
            wire.die();
        });
        let start = Instant::now();
        while (dry <= DRY || start.elapsed() < Duration::from_secs(3)) && start.elapsed() < LIMIT {
            while forwarder.poll() > 0 {}
            let nic = forwarder.device(PortId(1)).unwrap().stats();
            dry += u64::from(nic.in_rx == 0);
            if forwarder.wait(LIMIT) == Wake::Timeout {
                stop.store(true, Ordering::Relaxed);
                panic!("{} packets arrived, and nothing woke it: {nic:?}", nic.rx_packets);
            }
        }
        stop.store(true, Ordering::Relaxed);
        while forwarder.wait(Duration::from_millis(1)) != Wake::Gone && start.elapsed() < 2 * LIMIT {
            forwarder.poll();
            forwarder.close_port(PortId(0));
        }
        drop(forwarder); // the last sender of packets
    });
    println!("{} packets, {dry} sleeps without a buffer", delivered.load(Ordering::Relaxed));
    assert!(dry > DRY, "it was rarely dry: this proves nothing");
}

/// A device over rings in memory, and its pool.
fn in_memory() -> (XskDevice, Bound) {
    let arena = ArenaParams { max_bytes: 1 << 20, commit_all: true, ..Default::default() };
    let arena = Arena::new(arena).unwrap();
    let umem = umem_in_memory(UmemParams::default(), &arena).unwrap();
    let params =
        PoolParams { headroom: 256, wakeup: true, domains: vec![umem.clone()], ..Default::default() };
    let pool = Pool::new(params, arena).unwrap().bind();
    let (mut device, _) = xsk_in_memory(&umem, 64).unwrap();
    device.receive(&pool, &mut Vec::new(), 0);
    (device, pool)
}

#[test]
fn a_device_waker_ends_waits_of_the_device_and_its_forwarder() {
    let (mut device, pool) = in_memory();
    let waker = device.waker().unwrap();
    waker.wake();
    assert_eq!(device.wait(&pool, LIMIT), Wake::Ready, "a call before the wait counts");
    assert_eq!(device.wait(&pool, Duration::ZERO), Wake::Timeout, "once");
    let start = Instant::now();
    std::thread::scope(|threads| {
        threads.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            waker.wake();
        });
        assert_eq!(device.wait(&pool, LIMIT), Wake::Ready);
    });
    let (other, others) = in_memory();
    let mut forwarder = Forwarder::new(|_, _| Action::Drop);
    forwarder.add_port(device, pool);
    forwarder.add_port(other, others);
    while forwarder.poll() > 0 || forwarder.wait(Duration::ZERO) == Wake::Ready {}
    std::thread::scope(|threads| {
        threads.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            waker.wake();
        });
        assert_eq!(forwarder.wait(LIMIT), Wake::Ready);
    });
    assert!(start.elapsed() < LIMIT);
}

#[test]
fn a_forwarder_waker_ends_its_sleep_with_one_port_or_two() {
    let mut forwarder = Forwarder::new(|_, _| Action::Drop);
    let waker = forwarder.waker().unwrap();
    for _ in 0..2 {
        let (device, pool) = in_memory();
        forwarder.add_port(device, pool);
        while forwarder.poll() > 0 {}
        waker.wake();
        assert_eq!(forwarder.wait(LIMIT), Wake::Ready, "a call before the wait counts");
        assert_eq!(forwarder.wait(Duration::ZERO), Wake::Timeout, "once");
        for _ in 0..50 {
            std::thread::scope(|threads| {
                threads.spawn(|| waker.wake());
                assert_eq!(forwarder.wait(LIMIT), Wake::Ready);
            });
        }
        let again = (0..3).filter(|_| forwarder.wait(Duration::ZERO) == Wake::Ready).count();
        assert!(again <= 1, "a call that ends a sleep may stand for the next one, once");
    }
}

#[test]
fn a_forwarder_with_a_waker_runs_on_asleep_until_it_is_called() {
    let mut forwarder = Forwarder::new(|_, _| Action::Drop);
    let (device, pool) = in_memory();
    forwarder.add_port(device, pool);
    let (waker, stop) = (forwarder.waker().unwrap(), AtomicBool::new(false));
    let (begun, before, mut took) = (Instant::now(), sleeps(), Duration::ZERO);
    std::thread::scope(|threads| {
        let stopping = threads.spawn(|| {
            std::thread::sleep(Duration::from_millis(1500));
            stop.store(true, Ordering::Relaxed);
            waker.wake();
            Instant::now()
        });
        forwarder.run(&stop).unwrap();
        took = Instant::now() - stopping.join().unwrap();
    });
    let slept = (sleeps() - before) / begun.elapsed().as_secs_f64();
    println!("it slept {slept:.1} times a second, and ended after {took:?}");
    assert!(slept < 6.0, "{slept} times a second; without a waker it is 10"); // and once for the join
}

#[test]
fn a_worker_that_waits_gets_every_frame_and_learns_of_the_end() {
    const FRAMES: usize = 5_000;
    let (_device, pool) = in_memory();
    let (mut to_worker, mut work) = handoff(8).unwrap();
    let worker = std::thread::spawn(move || {
        let mut frames = 0;
        loop {
            match work.wait(LIMIT) {
                Wake::Ready => frames += std::iter::from_fn(|| work.recv()).count(),
                Wake::Gone => break frames,
                Wake::Timeout => panic!("nobody woke it after {frames}"),
            }
        }
    });
    let mut sent = 0;
    while sent < FRAMES {
        let frame = XdpBuff::received(pool.alloc_page().expect("few are out"), 60).unwrap();
        match to_worker.send(frame.into()) {
            Ok(()) => sent += 1,
            Err(_) => std::thread::yield_now(), // the ring is full
        }
        if !sent.is_multiple_of(7) {
            to_worker.flush(); // the drop does it for the last ones
        }
    }
    drop(to_worker);
    assert_eq!(worker.join().unwrap(), FRAMES);
}
