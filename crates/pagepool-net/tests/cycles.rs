//! Where a forwarder says that its time went: nothing is missing from it, nothing is in it twice.

use crate::veth;
use std::time::{Duration, Instant};

use crate::veth::Veth;
use pagepool::{Arena, ArenaParams, Pool, PoolParams, XdpBuff};
use pagepool_net::{
    Action, Attach, Forwarder, Ingress, MemNicParams, NicDomain, NicPort, PartCycles, PortId, Redirect, Umem,
    UmemParams, Wake, XskDevice, XskMode, XskParams, handoff, mem_nic, ticks,
};
use pagepool_testing::FarEnd;

/// A forwarder with one in-memory port, and the other end of that.
fn bed(action: Action) -> (Forwarder<impl FnMut(&mut XdpBuff, Ingress) -> Action>, PortId, NicPort) {
    let arena = Arena::new(ArenaParams { max_bytes: 8 << 20, ..Default::default() }).expect("8 MiB");
    let domain = NicDomain::new("mem0");
    let params = PoolParams { domains: vec![domain.clone()], ..Default::default() };
    let (nic, wire) = mem_nic(MemNicParams::default(), domain).expect("a descriptor is free");
    let mut forwarder = Forwarder::new(move |_: &mut XdpBuff, _: Ingress| action);
    let port = forwarder.add_port(nic, Pool::new(params, arena).expect("the domain maps").bind());
    forwarder.poll();
    (forwarder, port, wire)
}

fn sum(spent: &PartCycles) -> u64 {
    let parts = spent.receive_ticks + spent.handler_ticks + spent.transmit_ticks + spent.return_ticks;
    parts + spent.call_ticks + spent.idle_ticks
}

#[test]
fn nothing_is_measured_unless_switched_on() {
    let (mut forwarder, _, mut wire) = bed(Action::Tx);
    assert!(wire.deliver(&[7; 60]) && forwarder.poll() > 0);
    assert_eq!(forwarder.cycles(), PartCycles::default());
    forwarder.sample(1);
    assert!(wire.deliver(&[7; 60]) && forwarder.poll() > 0);
    forwarder.sample(0);
    let spent = forwarder.cycles();
    assert!(wire.deliver(&[7; 60]) && forwarder.poll() > 0);
    assert_eq!((forwarder.cycles(), spent.rx_packets, spent.tx_packets), (spent, 1, 1));
}

#[test]
fn the_parts_add_up_to_the_time_of_the_rounds() {
    let (mut forwarder, port, mut wire) = bed(Action::Tx);
    forwarder.sample(1);
    let mut whole = 0;
    for _ in 0..1000 {
        (0..10).for_each(|_| assert!(wire.deliver(&[7; 60])));
        let (start, before) = (ticks(), forwarder.cycles());
        assert!(forwarder.poll() >= 20);
        forwarder.poll(); // takes back what was sent
        let (round, spent) = (ticks() - start, forwarder.cycles().since(&before));
        assert!(sum(&spent) <= round, "{spent:?} of {round}");
        whole += usize::from(sum(&spent) >= round / 2);
        while wire.take(|_| ()) {}
    }
    let spent = forwarder.cycles();
    // The thread may lose its CPU outside of the parts, in some rounds.
    assert!(whole > 900, "in {whole} of 1000 rounds the parts are at least half: {spent:?}");
    assert_eq!((spent.rx_packets, spent.rx_bursts, spent.tx_packets), (10_000, 1000, 10_000));
    assert_eq!(forwarder.device(port).unwrap().stats().rx_packets, 10_000);
    assert_eq!((spent.calls, spent.call_ticks), (0, 0), "the in-memory NIC makes none");
    let parts = [spent.receive_ticks, spent.handler_ticks, spent.transmit_ticks, spent.return_ticks];
    assert!(parts.iter().all(|&part| part > 0) && spent.idle_ticks > 0, "{spent:?}");
}

#[test]
fn the_time_of_a_part_is_in_that_part() {
    let (mut forwarder, _, mut wire) = bed(Action::Drop);
    forwarder.sample(1);
    let before = forwarder.cycles();
    (0..1000).for_each(|_| assert_eq!(forwarder.poll(), 0));
    let idle = forwarder.cycles().since(&before);
    assert_eq!((sum(&idle), idle.rx_bursts), (idle.idle_ticks, 0), "nothing came");
    assert!(wire.deliver(&[7; 60]) && forwarder.poll() > 0);
    let mut both = forwarder.cycles().since(&idle);
    assert_eq!((both.rx_packets, both.transmit_ticks), (1, 0), "nothing was to be sent");
    both += idle;
    assert_eq!(both, forwarder.cycles());
}

#[test]
fn what_another_thread_hands_over_is_part_of_sending() {
    let (mut forwarder, port, mut wire) = bed(Action::Redirect(PortId(1)));
    let (outlet, inlet) = handoff(64).unwrap();
    assert_eq!(forwarder.add_remote(outlet), PortId(1));
    forwarder.add_handoff(port, inlet).unwrap(); // to itself, as a second thread would
    forwarder.sample(1);
    assert!(wire.deliver(&[7; 60]) && forwarder.poll() == 1);
    assert_eq!(forwarder.cycles().tx_packets, 0);
    forwarder.poll();
    let spent = forwarder.cycles();
    assert!((spent.tx_packets, spent.rx_packets) == (1, 1) && spent.transmit_ticks > 0, "{spent:?}");
}

#[test]
fn a_sample_is_of_whole_rounds_and_of_about_as_many_as_was_said() {
    let (mut forwarder, _, mut wire) = bed(Action::Tx);
    forwarder.sample(16);
    let rounds = 16_000;
    for _ in 0..rounds {
        (0..3).for_each(|_| assert!(wire.deliver(&[7; 60])));
        assert!(forwarder.poll() >= 6);
        while wire.take(|_| ()) {}
    }
    let spent = forwarder.cycles();
    assert_eq!((spent.rx_packets, spent.tx_packets), (3 * spent.rx_bursts, 3 * spent.rx_bursts), "whole");
    assert!((800..=1200).contains(&spent.rx_bursts), "one in 16 of {rounds}: {spent:?}");
    forwarder.sample(0);
    assert!(wire.deliver(&[7; 60]) && forwarder.poll() > 0);
    assert_eq!(forwarder.cycles(), spent);
}

#[test]
fn system_calls_are_apart() {
    if let Some(why) = veth::missing() {
        return println!("SKIP system_calls_are_apart: {why}");
    }
    let veth = Veth::new(1, 1500);
    let arena =
        Arena::new(ArenaParams { max_bytes: 4 << 20, commit_all: true, ..Default::default() }).unwrap();
    let umem = Umem::new(UmemParams { mode: XskMode::Copy, ..Default::default() }, &arena).unwrap();
    let params = PoolParams { headroom: 256, domains: vec![umem.clone()], ..Default::default() };
    let pool = Pool::new(params, arena).unwrap().bind();
    let redirect = Some(Redirect::attach("near0", Attach::Auto, false).unwrap());
    let params = XskParams { interface: "near0".into(), rx_ring: 256, redirect, ..Default::default() };
    let mut forwarder = Forwarder::new(|_: &mut XdpBuff, _: Ingress| Action::Tx);
    let port = forwarder.add_port(XskDevice::open(params, &umem, &pool).unwrap(), pool);
    forwarder.poll();
    forwarder.sample(1);
    let (mut far, start) = (veth.far_end(0), Instant::now());
    for _ in 0..100 {
        assert!(far.send(&[7; 60]));
    }
    let mut rounds = 0;
    while forwarder.device(port).unwrap().stats().tx_completed < 100 && start.elapsed() < veth::LIMIT {
        let before = ticks();
        forwarder.poll();
        rounds += ticks() - before;
        let _: Wake = forwarder.wait(Duration::from_millis(1));
    }
    let (spent, took) = (forwarder.cycles(), forwarder.device(port).unwrap().stats());
    assert_eq!((spent.rx_packets, spent.tx_packets), (100, 100));
    assert!((1..=took.calls).contains(&spent.calls), "{spent:?}, {took:?}");
    assert!((1..=took.call_ticks).contains(&spent.call_ticks), "{spent:?}, {took:?}");
    let state = forwarder.device(port).unwrap().state().calls;
    assert_eq!((took.calls, took.call_ticks), (state.count, state.ticks));
    assert!(sum(&spent) <= rounds, "no call is in a part, too: {spent:?} of {rounds}");
    assert!(far.arriving(100) == vec![[7; 60]; 100]);
}
