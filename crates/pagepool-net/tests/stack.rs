//! What a forwarder lends its stack, and when it calls it. Over in-memory NICs, without root.

use std::time::{Duration, Instant};

use pagepool::{Arena, ArenaParams, Pool, PoolParams, PoolRef, XdpBuff};
use pagepool_net::{
    Action, Armed, Forwarder, Ingress, MemNicParams, NicDomain, NicPort, Outlets, PacketHandler, PortId,
    Stack, Wake, mem_nic,
};

/// Longer than any test.
const HOUR: Duration = Duration::from_secs(3600);

/// Answers each packet with a copy in a packet of its own; says what it was asked.
#[derive(Default)]
struct Copier {
    held: Vec<(XdpBuff, Ingress)>,
    flushes: u32,
    refused: u32,
    due: Option<Instant>,
}

impl Stack for Copier {
    fn deliver(&mut self, packet: XdpBuff, at: Ingress) -> Result<(), XdpBuff> {
        self.held.push((packet, at));
        Ok(())
    }

    fn flush(&mut self, out: &mut Outlets<'_>) {
        self.flushes += 1;
        self.due = None;
        for (packet, at) in self.held.drain(..) {
            let (room, pool) = (out.room(at.port), out.pool(at.port).expect("it has one"));
            let mut copy = pool.packet(packet.len()).expect("pages enough");
            assert_eq!(packet.copy_to(copy.data_mut()), packet.len());
            let sent = out.send(at.port, copy.into());
            assert_eq!(sent.is_ok(), room > 0, "room says what send does");
            self.refused += u32::from(sent.is_err());
        }
    }

    fn due(&self) -> Option<Instant> {
        self.due
    }
}

struct Bed<P, S> {
    forwarder: Forwarder<P, S>,
    wire: NicPort,
    pool: PoolRef,
}

fn bed<P: PacketHandler>(handler: P, tx_ring: usize) -> Bed<P, Copier> {
    bed_with(handler, tx_ring, Copier::default())
}

fn bed_with<P: PacketHandler, S: Stack>(handler: P, tx_ring: usize, stack: S) -> Bed<P, S> {
    let arena = Arena::new(ArenaParams { max_bytes: 16 << 20, ..Default::default() }).expect("it is free");
    let domain = NicDomain::new("mem0");
    let params = PoolParams { domains: vec![domain.clone()], ..Default::default() };
    let pool = Pool::new(params, arena).expect("a pool over it").bind();
    let (nic, wire) = mem_nic(MemNicParams { tx_ring, ..Default::default() }, domain).expect("a descriptor");
    let handle = pool.handle();
    let mut forwarder = Forwarder::with_stack(handler, stack);
    forwarder.add_port(nic, pool);
    forwarder.poll(); // the receive ring is filled
    Bed { forwarder, wire, pool: handle }
}

fn pass(_: &mut XdpBuff, _: Ingress) -> Action {
    Action::Pass
}

#[test]
fn a_stack_is_called_once_after_each_burst_and_sends() {
    let mut bed = bed(pass, 256);
    for burst in 1..=10u8 {
        (0..7).for_each(|number| assert!(bed.wire.deliver(&[burst ^ number; 60])));
        bed.forwarder.poll();
        assert_eq!(bed.forwarder.stack_mut().flushes, u32::from(burst), "after burst {burst}");
        for number in 0..7 {
            assert!(bed.wire.take(|packet| assert_eq!(packet, [burst ^ number; 60])), "in the same round");
        }
    }
    let stats = bed.forwarder.stats(PortId(0)).expect("it was added");
    assert_eq!((stats.pass, stats.pass_refused, stats.redirect_in), (70, 0, 70));
    drop(bed.forwarder);
    assert_eq!(bed.pool.inflight().total, 0);
}

#[test]
fn a_burst_that_is_dropped_whole_calls_it_too() {
    let mut bed = bed(|_: &mut XdpBuff, _: Ingress| Action::Drop, 256);
    assert!(bed.wire.deliver(&[1; 60]));
    bed.forwarder.poll();
    assert_eq!(bed.forwarder.stack_mut().flushes, 1);
    bed.forwarder.poll();
    assert_eq!(bed.forwarder.stack_mut().flushes, 1, "a round without a packet does not");
}

#[test]
fn a_full_port_has_no_room_and_takes_nothing() {
    let mut bed = bed(pass, 32);
    for _ in 0..20 {
        (0..64).for_each(|_| _ = bed.wire.deliver(&[3; 60]));
        bed.forwarder.poll(); // nobody takes packets from the wire
    }
    let refused = bed.forwarder.stack_mut().refused;
    let stats = bed.forwarder.stats(PortId(0)).expect("it was added");
    assert!(refused > 0);
    assert_eq!(u64::from(refused), stats.tx_overflow);
    drop(bed.forwarder);
    assert_eq!(bed.pool.inflight().total, 0);
}

#[test]
fn a_port_that_does_not_exist_has_nothing() {
    struct Asks;
    impl Stack for Asks {
        fn deliver(&mut self, packet: XdpBuff, _: Ingress) -> Result<(), XdpBuff> {
            Err(packet)
        }
        fn flush(&mut self, out: &mut Outlets<'_>) {
            let none = PortId(7);
            let packet = out.pool(PortId(0)).expect("added first").packet(60).expect("a page");
            assert!(out.pool(none).is_none() && out.info(none).is_none() && out.room(none) == 0);
            assert!(out.send(none, packet.into()).is_err());
            assert_eq!(out.info(PortId(0)).expect("added first").name, "mem0");
        }
    }
    let mut bed = bed_with(pass, 256, Asks);
    assert!(bed.wire.deliver(&[1; 60]));
    bed.forwarder.poll();
    assert_eq!(bed.forwarder.stats(PortId(0)).expect("added first").pass_refused, 1);
}

#[test]
fn a_sleep_ends_when_the_stack_is_due() {
    let mut bed = bed(pass, 256);
    bed.forwarder.stack_mut().due = Some(Instant::now() + HOUR);
    assert_eq!(bed.forwarder.poll(), 0);
    assert_eq!(bed.forwarder.stack_mut().flushes, 0, "not before");
    let soon = Instant::now() + Duration::from_millis(30);
    bed.forwarder.stack_mut().due = Some(soon);
    assert_eq!(bed.forwarder.wait(Duration::from_secs(60)), Wake::Ready);
    assert!(Instant::now() >= soon);
    bed.forwarder.poll();
    assert_eq!((bed.forwarder.stack_mut().flushes, bed.forwarder.stack_mut().due), (1, None));
    assert_eq!(bed.forwarder.wait(Duration::from_millis(1)), Wake::Timeout, "nothing is due");
}

#[test]
fn an_event_loop_sleeps_no_longer_than_the_stack_allows() {
    let mut bed = bed(pass, 256);
    bed.forwarder.stack_mut().due = Some(Instant::now() + HOUR);
    assert_eq!(bed.forwarder.poll(), 0);
    match bed.forwarder.arm().expect("descriptors are left") {
        Armed::Idle { at_most, .. } => assert!(at_most <= HOUR, "{at_most:?}"),
        armed => panic!("{armed:?}"),
    }
    bed.forwarder.stack_mut().due = Some(Instant::now());
    assert!(matches!(bed.forwarder.arm(), Ok(Armed::Ready)), "it is due now");
}

#[test]
fn a_due_stack_sends_without_a_packet() {
    let mut bed = bed(pass, 256);
    let packet = bed.forwarder.pool(PortId(0)).expect("it has one").packet(60).expect("a page");
    let stack = bed.forwarder.stack_mut();
    stack.held.push((packet, Ingress { port: PortId(0) }));
    stack.due = Some(Instant::now());
    assert!(bed.forwarder.poll() > 0, "it moved a packet");
    assert!(bed.wire.take(|packet| assert_eq!(packet.len(), 60)));
}
