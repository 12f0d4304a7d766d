//! Forwarders with many ports: idle ones cost a busy one nothing, and are looked at soon enough.

use std::time::Duration;

use crate::fake::{FakeNic, Hand, packet, pool};
use pagepool::XdpBuff;
use pagepool_net::{Action, Forwarder, Ingress, PortId, Wake};

const PORTS: usize = 64;

/// What port 7 receives goes out of port 8; other packets return.
fn bed() -> (Forwarder<impl FnMut(&mut XdpBuff, Ingress) -> Action>, Vec<Hand>) {
    let program = |_: &mut XdpBuff, at: Ingress| match at.port {
        PortId(7) => Action::Redirect(PortId(8)),
        _ => Action::Tx,
    };
    let (mut forwarder, mut hands) = (Forwarder::new(program), Vec::new());
    for _ in 0..PORTS {
        let (nic, hand) = FakeNic::copying();
        forwarder.add_port(nic.short_way(vec![usize::MAX; 4096]), pool(Vec::new()));
        hands.push(hand);
    }
    (forwarder, hands)
}

fn busy_round(
    forwarder: &mut Forwarder<impl FnMut(&mut XdpBuff, Ingress) -> Action>,
    hands: &[Hand],
    burst: u32,
) {
    (0..burst).for_each(|n| hands[7].arrive(packet(n, 60)));
    assert!(forwarder.poll() > 0);
}

fn asked(hands: &[Hand]) -> u64 {
    hands.iter().map(|hand| hand.wire().asked).sum()
}

#[test]
fn idle_ports_are_polled_rarely_while_others_are_busy() {
    for (measured, burst, at_most) in [(false, 64, 20), (true, 64, 52), (false, 1, 12), (true, 1, 24)] {
        let (mut forwarder, hands) = bed();
        forwarder.sample(u32::from(measured));
        (0..20).for_each(|_| busy_round(&mut forwarder, &hands, burst));
        let before = asked(&hands);
        (0..320).for_each(|_| busy_round(&mut forwarder, &hands, burst));
        let each = (asked(&hands) - before) / 320;
        assert!(each <= at_most, "bursts of {burst}, measured {measured}: {each} calls to devices a round");
        while forwarder.poll() > 0 {}
        let sent = hands[8].sent();
        assert_eq!(sent.len(), 340 * burst as usize);
        assert!(sent.iter().zip((0..burst).cycle()).all(|(sent, n)| *sent == packet(n, 60)), "in order");
    }
}

#[test]
fn an_idle_port_is_polled_within_32_rounds_and_512_packets() {
    for (burst, rounds) in [(1, 32), (32, 16), (64, 8)] {
        let (mut forwarder, hands) = bed();
        (0..100).for_each(|_| busy_round(&mut forwarder, &hands, burst));
        hands[40].arrive(packet(77, 60));
        (0..=rounds).for_each(|_| busy_round(&mut forwarder, &hands, burst));
        assert_eq!(forwarder.stats(PortId(40)).unwrap().rx, 1, "bursts of {burst}");
    }
}

#[test]
fn a_round_that_moves_nothing_has_polled_every_port() {
    let (mut forwarder, hands) = bed();
    (0..100).for_each(|_| busy_round(&mut forwarder, &hands, 1));
    while forwarder.poll() > 0 {}
    busy_round(&mut forwarder, &hands, 1);
    for _ in 0..50 {
        forwarder.poll();
    }
    // Nothing is left of the busy port, and all others rest or do not: it makes no difference.
    hands[63].arrive(packet(1, 60));
    assert!(forwarder.poll() > 0 && forwarder.stats(PortId(63)).unwrap().rx == 1);
    while forwarder.poll() > 0 {}
    hands[3].arrive(packet(1, 60));
    assert_eq!(forwarder.wait(Duration::from_millis(1)), Wake::Ready);
    assert!(forwarder.poll() > 0 && forwarder.stats(PortId(3)).unwrap().rx == 1, "the round after a wait");
    assert_eq!((hands[63].sent().len(), forwarder.stats(PortId(3)).unwrap().tx), (1, 1));
}

#[test]
fn an_idle_port_sends_at_once_and_completes_its_frames() {
    let (mut forwarder, hands) = bed();
    (0..100).for_each(|_| busy_round(&mut forwarder, &hands, 1));
    hands[8].wire().stuck = true;
    busy_round(&mut forwarder, &hands, 32);
    (0..100).for_each(|_| {
        hands[9].arrive(packet(1, 60));
        assert!(forwarder.poll() > 0);
    });
    assert!(hands[8].sent().len() < 132, "stuck");
    hands[8].wire().stuck = false;
    hands[9].arrive(packet(1, 60));
    forwarder.poll();
    assert!(hands[8].sent().len() >= 32, "it is asked in every round while frames are on its ring");
}
