//! A forwarder sleeps on everything at once: what wakes it, that nothing is missed, and how often it wakes for nothing.

#![expect(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

mod veth;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pagepool::{Arena, ArenaParams, Bound, Buff, DmaDomain, Pool, PoolParams};
use pagepool_net::testing::FarEnd;
use pagepool_net::{
    Action, Attach, Forwarder, Ingress, MemNicParams, NicDomain, NicPort, PortId, Program, Redirect, Stack,
    Umem, UmemParams, Wake, XskDevice, XskMode, XskParams, handoff, mem_nic,
};
use veth::Veth;

/// Longer than anything takes that is not lost.
const LIMIT: Duration = Duration::from_secs(60);
/// Most times a second that an idle forwarder may wake.
const WAKES: f64 = 25.0;

fn pool(bytes: u64, domain: Arc<dyn DmaDomain>) -> Bound {
    let arena = Arena::new(ArenaParams { max_bytes: bytes, ..Default::default() }).unwrap();
    let params = PoolParams { wakeup: true, domains: vec![domain], ..Default::default() };
    Pool::new(params, arena).unwrap().bind()
}

/// Adds an in-memory NIC over so much memory.
fn add_nic<P: Program, S: Stack>(forwarder: &mut Forwarder<P, S>, name: &str, bytes: u64) -> NicPort {
    let domain = NicDomain::new(name);
    let (nic, wire) = mem_nic(MemNicParams::default(), domain.clone()).unwrap();
    forwarder.add_port(Box::new(nic), pool(bytes, domain));
    wire
}

fn across(_: &mut Buff, at: Ingress) -> Action {
    Action::Redirect(PortId(1 - at.port.0))
}

/// How often this thread went to sleep so far.
fn sleeps() -> f64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.unwrap().trim().parse().unwrap()
}

/// How often a second a forwarder sleeps that has nothing to do, as a program would wait with it.
fn sleeps_a_second<P: Program, S: Stack>(forwarder: &mut Forwarder<P, S>) -> f64 {
    while forwarder.poll() > 0 || forwarder.wait(Duration::from_millis(50)) == Wake::Ready {}
    let (start, before) = (Instant::now(), sleeps());
    while start.elapsed() < Duration::from_secs(2) {
        forwarder.poll();
        let _ = forwarder.wait(Duration::from_secs(1));
    }
    (sleeps() - before) / start.elapsed().as_secs_f64()
}

#[test]
fn an_idle_forwarder_between_in_memory_nics_sleeps() {
    let mut forwarder = Forwarder::new(across);
    let _wires = ["mem0", "mem1"].map(|name| add_nic(&mut forwarder, name, 16 << 20));
    let (_outlet, inlet) = handoff(64).unwrap();
    forwarder.add_inlet(PortId(1), inlet).unwrap();
    let sleeps = sleeps_a_second(&mut forwarder);
    println!("in memory: an idle forwarder wakes {sleeps:.1} times a second");
    assert!(sleeps < WAKES, "{sleeps}");
}

#[test]
fn an_idle_forwarder_between_interfaces_sleeps_and_a_packet_wakes_it() {
    if let Some(why) = veth::missing() {
        return println!("SKIP an_idle_forwarder_between_interfaces: {why}");
    }
    let veth = Veth::new(2, 1500);
    let arena = ArenaParams { max_bytes: 16 << 20, commit_all: true, ..Default::default() };
    let arena = Arena::new(arena).unwrap();
    let umem = Umem::new(UmemParams { mode: XskMode::Copy, ..Default::default() }, &*arena).unwrap();
    let mut forwarder = Forwarder::new(across);
    for interface in ["near0", "near1"] {
        let redirect = Some(Redirect::attach(interface, Attach::Native, false).unwrap());
        let params = XskParams { interface: interface.into(), redirect, ..Default::default() };
        let device = XskDevice::open(params, &umem).unwrap();
        let params =
            PoolParams { headroom: 256, wakeup: true, domains: vec![umem.clone()], ..Default::default() };
        forwarder.add_port(Box::new(device), Pool::new(params, arena.clone()).unwrap().bind());
    }
    let sleeps = sleeps_a_second(&mut forwarder);
    println!("AF_XDP: an idle forwarder wakes {sleeps:.1} times a second");
    assert!(sleeps < WAKES, "{sleeps}");

    let (mut left, mut right) = (veth.far_end(0), veth.far_end(1));
    let mut got = Vec::new();
    for number in 0..200u8 {
        let (from, to) = if number % 2 == 0 { (&mut left, &mut right) } else { (&mut right, &mut left) };
        assert!(from.send(&[number; 100]));
        let start = Instant::now();
        while forwarder.poll() == 0 {
            assert_eq!(forwarder.wait(LIMIT), Wake::Ready);
        }
        assert!(start.elapsed() < LIMIT / 2);
        while forwarder.poll() > 0 {}
        assert!(to.receive(&mut got) && got == [number; 100], "packet {number}");
    }
}

/// Keeps what it is given.
#[derive(Clone, Debug, Default)]
struct Shelf(Arc<Mutex<Vec<Buff>>>);

impl Stack for Shelf {
    fn deliver(&mut self, packet: Buff, _: Ingress) -> Result<(), Buff> {
        self.0.lock().unwrap().push(packet);
        Ok(())
    }
}

#[test]
fn a_pool_that_ran_dry_wakes_the_forwarder_whichever_port_it_is_of() {
    let shelf = Shelf::default();
    let mut forwarder = Forwarder::with_stack(|_: &mut Buff, _: Ingress| Action::Pass, shelf.clone());
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
            assert_eq!(forwarder.wait(LIMIT), Wake::Ready, "round {round}: a buffer came home");
            forwarder.poll();
        }
        assert!(start.elapsed() < LIMIT / 2);
        returning.join().unwrap();
    }
}

#[test]
fn what_another_thread_hands_over_wakes_the_forwarder() {
    let (outlet, inlet) = handoff(64).unwrap();
    let mut here = Forwarder::new(|_: &mut Buff, _: Ingress| Action::Redirect(PortId(1)));
    let mut first = add_nic(&mut here, "mem0", 4 << 20);
    here.add_remote(outlet);
    here.poll();
    let (wires, wire) = std::sync::mpsc::channel();
    let stop = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let there = threads.spawn(|| {
            let mut there = Forwarder::new(|_: &mut Buff, _: Ingress| Action::Drop);
            wires.send(add_nic(&mut there, "mem1", 4 << 20)).unwrap();
            there.add_inlet(PortId(0), inlet).unwrap();
            let mut woken = 0;
            while !stop.load(Ordering::Relaxed) {
                while there.poll() > 0 {}
                match there.wait(LIMIT) {
                    Wake::Ready => woken += 1,
                    Wake::Timeout => panic!("a frame was handed over, and nobody woke"),
                    Wake::Gone => break,
                }
            }
            woken
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
        second.die();
        println!("{} wake-ups for 3000 frames", there.join().unwrap());
    });
}
