//! The conformance suite: rules for every device, as a test that any crate can run on its own.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pagepool::{Arena, ArenaParams, Pool, PoolParams, XdpBuff, XdpFrame, XdpFrameBulk};
use pagepool_net::{DeviceExt, TxQueue, Wake};

use super::rig::{Rig, bytes_of, number_of, packet};

/// Checks a device against the rules of [`Device`](pagepool_net::Device); panics with the rule that it breaks.
/// `make` returns a fresh rig each time.
///
/// What [`Allowed`](crate::Allowed) forbids is checked exactly. A device that may lose, repeat or delay
/// packets must lose no buffer and count right.
///
/// ```
/// use pagepool::{Arena, ArenaParams, Pool, PoolParams};
/// use pagepool_net::{MemNicParams, NicDomain, mem_nic};
/// use pagepool_testing::{Rig, conformance_device};
/// conformance_device(|| {
///     let domain = NicDomain::new("mem0");
///     let provider = Arena::new(ArenaParams { max_bytes: 4 << 20, ..Default::default() }).unwrap();
///     let params = PoolParams { domains: vec![domain.clone()], ..Default::default() };
///     let pool = Pool::new(params, provider.clone()).unwrap().bind();
///     let rings = MemNicParams { rx_ring: 64, tx_ring: 64, ..Default::default() };
///     let (device, far) = mem_nic(rings, domain).unwrap();
///     Rig {
///         device: Box::new(device),
///         far: Box::new(far),
///         pool,
///         provider,
///         allowed: Default::default(),
///         verify: Box::new(|| {}),
///     }
/// });
/// ```
pub fn conformance_device(make: impl Fn() -> Rig) {
    every(make, 1);
}

/// Checks a device that takes long to open: drops its parts only in every 13th order. Otherwise like
/// [`conformance_device`].
pub fn conformance_slow_device(make: impl Fn() -> Rig) {
    every(make, 13);
}

fn every(make: impl Fn() -> Rig, orders: usize) {
    says_what_it_is(make());
    carries_packets_both_ways(make());
    keeps_to_budget_and_capacity(make());
    refuses_what_it_cannot_send(make());
    refuses_memory_that_it_does_not_reach(make());
    takes_everything_back_when_closed(make());
    bears_its_death(make());
    ends_in_orders(&make, orders, false);
    ends_in_orders(&make, orders, true);
    if make().allowed.is_nothing() {
        counts_packets_without_a_buffer(make());
        fills_its_ring_and_goes_on(make());
        leaves_whole_frames_in_the_queue(make());
        carries_jumbo_packets(make());
        waits_no_longer_than_asked(make());
    }
}

fn says_what_it_is(rig: Rig) {
    let can = rig.device.info();
    assert!(!rig.device.info().name.is_empty(), "a device has a name");
    assert!(can.rx_ring > 0 && can.tx_ring > 0 && can.max_packet >= 1514 && can.max_buffers >= 1, "{can:?}");
    // A device may have its buffers already, given to the kernel by calls. A card with zero copy requests
    // buffers from its start, and counts that it found none.
    let of_buffers = ["in_rx", "calls", "call_ticks", "rx_no_buffer"];
    let of_buffers = &of_buffers[..if rig.allowed.refusals { 4 } else { 3 }];
    let stats = rig.device.stats();
    let moved: u64 =
        stats.entries().filter(|(name, _)| !of_buffers.contains(name)).map(|(_, value)| value).sum();
    assert_eq!(moved, 0, "a fresh device has done nothing: {stats:?}");
    rig.end();
}

/// Packets are received, sent back, and arrive: each once, unchanged, in order, unless the device may do
/// otherwise.
fn carries_packets_both_ways(mut rig: Rig) {
    rig.start();
    let (rounds, burst) = (20, rig.device.info().rx_ring.min(16));
    let lengths = rig.far.longest().min(1460) - 60;
    let (mut echoed, mut sent) = (Vec::new(), 0);
    for _ in 0..rounds {
        for number in sent..sent + burst {
            rig.far.send(&packet(number, 60 + number * 37 % lengths));
        }
        sent += burst;
        let packets = rig.collect(burst);
        rig.adds_up(packets.len());
        let mut queue: TxQueue = packets.into_iter().map(XdpFrame::from).collect();
        echoed.extend(rig.send_all(&mut queue));
        rig.adds_up(queue.len());
    }
    check_echo(&rig, &echoed, sent);
    let stats = rig.device.stats();
    assert_eq!(stats.tx_completed, echoed.len() as u64, "each frame that was sent is given back once");
    assert_eq!((stats.rx_packets, stats.rx_bytes), (stats.tx_packets, stats.tx_bytes), "what came was sent");
    rig.end();
}

fn check_echo(rig: &Rig, echoed: &[Vec<u8>], sent: usize) {
    let numbers: Vec<_> = echoed.iter().filter_map(|bytes| number_of(bytes)).collect();
    let allowed = rig.allowed;
    assert!(numbers.len() == echoed.len() || allowed.corruption, "packets arrive as they were");
    assert!(numbers.iter().all(|&n| n < sent), "nothing arrives that was not sent");
    let mut distinct = numbers.clone();
    distinct.sort_unstable();
    assert!(distinct == numbers || allowed.disorder || allowed.duplicates, "packets arrive in order");
    distinct.dedup();
    assert!(distinct.len() == numbers.len() || allowed.duplicates, "packets arrive once");
    assert!(distinct.len() == sent || allowed.loss || allowed.corruption, "{} of {sent}", distinct.len());
    assert!(distinct.len() > sent / 4, "most packets arrive: {} of {sent}", distinct.len());
}

fn keeps_to_budget_and_capacity(mut rig: Rig) {
    rig.start();
    for number in 0..12 {
        rig.far.send(&packet(number, 60));
    }
    let has_all = |rig: &Rig| rig.device.stats().kernel.is_none_or(|kernel| kernel.received >= 12);
    rig.settle_until(has_all); // if the device does not report its ring's packets, the far end knows
    let exact = rig.allowed.is_nothing();
    let mut packets = Vec::with_capacity(8);
    for (budget, most) in [(0, 0), (3, 3), (64, 8), (64, 8)] {
        rig.far.settle();
        let before = packets.len();
        let n = rig.device.receive(&rig.pool, &mut packets, budget);
        assert_eq!(packets.len(), before + n, "receive says how many it added");
        assert!(packets.len() <= most && n <= budget, "{n} packets for a budget of {budget}");
        assert!(packets.len() == most || !exact, "{} of {most} packets", packets.len());
        assert_eq!(packets.capacity(), 8, "the vector never grows");
        rig.adds_up(packets.len());
    }
    let mut bare = Vec::new();
    assert_eq!((rig.device.receive(&rig.pool, &mut bare, 0), bare.capacity()), (0, 0), "a budget of 0");
    let n = rig.device.receive(&rig.pool, &mut bare, 2);
    assert!(n == bare.len() && (n == 2 || !exact), "{n} of 2 into a vector that had no capacity");
    drop((packets, bare));
    let mut rest = rig.collect(2);
    assert!(rest.len() == 2 || !exact, "what had no room waits");
    let (queue, mut done) = (&mut rest.drain(..).map(XdpFrame::from).collect(), XdpFrameBulk::new());
    rig.device.transmit(queue);
    assert_eq!(rig.device.complete(&mut done, 0), 0, "a budget of 0 completes nothing");
    rig.send_all(queue);
    queue.clear();
    rig.end();
}

/// More packets than buffers: those without one wait or are counted; the others, and later ones, arrive.
fn counts_packets_without_a_buffer(mut rig: Rig) {
    rig.start();
    let sent = rig.device.info().rx_ring + 10;
    for number in 0..sent {
        rig.far.send(&packet(number, 60));
        rig.far.settle();
    }
    let missed = |rig: &Rig| rig.far.lost().unwrap_or_else(|| rig.device.stats().rx_no_buffer) as usize;
    let far_knows = rig.far.lost().is_some();
    rig.settle_until(|rig| far_knows || missed(rig) > 0); // before there are new buffers
    let arrived = rig.collect_until(|rig, came| came + missed(rig) >= sent).len();
    let missed = missed(&rig);
    assert_eq!(arrived + missed, sent, "{arrived} arrived, {missed} had no buffer");
    assert!(missed > 0 || far_knows, "a device counts packets that have no buffer");
    for _ in 0..2 {
        rig.start();
        let can = rig.device.info();
        assert_eq!(rig.device.stats().in_rx, can.rx_ring as u64, "the ring is full of buffers again");
        rig.far.send(&packet(1, 60));
        assert_eq!(rig.collect(1).len(), 1, "there are buffers again");
    }
    rig.end();
}

/// The ring stays full for long: nothing is taken or lost, and everything is sent in order when it moves
/// again.
fn fills_its_ring_and_goes_on(mut rig: Rig) {
    let ring = rig.device.info().tx_ring;
    let count = 2 * ring + 5;
    let mut queue: TxQueue = (0..count).map(|number| rig.frame(&packet(number, 60))).collect();
    if rig.far.stall(true) {
        let taken = rig.device.transmit(&mut queue);
        assert_eq!((taken, queue.len()), (ring, count - ring), "as many as the ring has slots");
        let mut done = XdpFrameBulk::new();
        for _ in 0..1000 {
            assert_eq!(rig.device.transmit(&mut queue), 0, "a full ring takes nothing");
            assert_eq!(rig.device.complete(&mut done, 64), 0, "nothing was sent");
            rig.far.settle();
        }
        assert!(rig.device.stats().tx_full >= 1000, "a full ring is counted");
        rig.adds_up(queue.len());
        rig.far.stall(false);
    }
    let arrived: Vec<_> = rig.send_all(&mut queue).iter().map(|bytes| number_of(bytes)).collect();
    assert_eq!(arrived, (0..count).map(Some).collect::<Vec<_>>(), "all arrive in order");
    rig.adds_up(0);
    rig.end();
}

/// Repeated, because a lost slot shows when the ring is filled the next time.
fn leaves_whole_frames_in_the_queue(mut rig: Rig) {
    if rig.device.info().max_buffers >= 3 {
        (1..=3).for_each(|round| fill_with_whole_frames(&mut rig, round));
    }
    rig.end();
}

fn fill_with_whole_frames(rig: &mut Rig, round: usize) {
    let ring = rig.device.info().tx_ring;
    let fit = ring / 3;
    let count = fit + 2;
    let mut queue: TxQueue = (0..count).map(|_| rig.scattered(3)).collect();
    if rig.far.stall(true) {
        assert_eq!(rig.device.transmit(&mut queue), fit, "frames of three in a ring of {ring}");
        assert_eq!(rig.device.stats().in_tx, 3 * fit as u64);
        assert_eq!((queue.len(), queue.buffers()), (2, 6), "what stays is whole");
        let left = queue.front().expect("two are left");
        assert_eq!((left.segment_count(), left.len()), (3, 300), "what stays is whole");
        rig.adds_up(6);
        rig.far.stall(false);
    }
    let arrived = rig.send_all(&mut queue);
    assert!(arrived.iter().all(|bytes| *bytes == [9; 300]), "parts are put together in order");
    assert_eq!((arrived.len(), rig.device.stats().tx_completed), (count, (round * count) as u64));
}

fn carries_jumbo_packets(mut rig: Rig) {
    let can = rig.device.info();
    let most = can.max_packet.min(can.max_buffers * rig.capacity()).min(rig.far.longest());
    rig.start();
    for len in [rig.capacity() + 1, 9000, most].into_iter().filter(|&len| len <= most) {
        assert!(rig.far.send(&packet(len, len)), "a packet of {len} bytes");
        let packets = rig.collect(1);
        assert_eq!(packets.iter().map(XdpBuff::len).collect::<Vec<_>>(), [len]);
        assert_eq!(number_of(&bytes_of(&packets[0])), Some(len), "its parts are in order");
        rig.adds_up(1 + packets[0].frags().len());
        let mut queue = packets.into_iter().map(XdpFrame::from).collect();
        assert_eq!(rig.send_all(&mut queue), [packet(len, len)], "and go back as they came");
        rig.adds_up(0);
    }
    rig.end();
}

/// Frames that can never be sent are taken, counted, and return; the next one is sent.
fn refuses_what_it_cannot_send(mut rig: Rig) {
    let can = rig.device.info();
    let mut queue = TxQueue::new();
    queue.push(rig.frame(&[]));
    if can.max_packet < 17 * rig.capacity() {
        queue.push(rig.frame(&vec![1; can.max_packet + 1]));
    }
    if can.max_buffers < 18 {
        queue.push(rig.scattered(can.max_buffers + 1));
    }
    let bad = queue.len() as u64;
    queue.push(rig.frame(&packet(5, 60)));
    let arrived = rig.send_all(&mut queue);
    assert_eq!(arrived, [packet(5, 60)], "only what can be sent is");
    let stats = rig.device.stats();
    assert_eq!((stats.tx_too_long, stats.tx_packets, stats.tx_completed), (bad, 1, 1));
    rig.end();
}

/// Unmapped memory is refused in both directions, counted, and returns to its pool. A device without an
/// address space copies.
fn refuses_memory_that_it_does_not_reach(mut rig: Rig) {
    if rig.device.info().domain.is_none() {
        return;
    }
    let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() }).expect("1 MiB");
    let elsewhere = Pool::new(PoolParams::default(), arena).expect("a plain pool").bind();
    let page = elsewhere.alloc_page().expect("1 MiB is free");
    let stray = XdpFrame::from(XdpBuff::received(page, 60).expect("it fits"));
    let mut queue = TxQueue::from([stray, rig.frame(&packet(1, 60))]);
    assert_eq!(rig.send_all(&mut queue), [packet(1, 60)], "the device sends what it reaches");
    assert_eq!(rig.device.stats().tx_unmapped, 1);
    let (had, mut packets) = (rig.device.stats().in_rx, Vec::with_capacity(1));
    if had > 0 {
        // It was opened with buffers: it has room for another once it returns one.
        rig.far.send(&packet(2, 60));
    }
    for _ in 0..400 {
        rig.far.settle();
        rig.device.receive(&elsewhere, &mut packets, 1);
        if rig.device.stats().rx_unmapped > 0 {
            break;
        }
    }
    let stats = rig.device.stats();
    assert!(stats.rx_unmapped > 0, "buffers that it cannot fill: {stats:?}");
    assert_eq!(stats.in_rx, had - packets.len() as u64, "it has none of them: {stats:?}");
    drop(packets);
    assert_eq!(elsewhere.inflight().out, 0, "all are returned");
    rig.end();
}

/// Puts something on every ring: received packets, waiting buffers, frames that are not sent or not
/// completed. Returns packets that the scenario holds.
fn load(rig: &mut Rig) -> Vec<XdpBuff> {
    rig.start();
    for number in 0..6 {
        rig.far.send(&packet(number, 60));
    }
    let held = rig.collect(2);
    let mut queue: TxQueue = (0..4).map(|number| rig.frame(&packet(number, 60))).collect();
    queue.push(rig.scattered(rig.device.info().max_buffers.min(3)));
    rig.device.transmit(&mut queue);
    rig.far.receive(&mut Vec::new());
    for number in 6..9 {
        rig.far.send(&packet(number, 60));
    }
    held
}

fn takes_everything_back_when_closed(mut rig: Rig) {
    let held = load(&mut rig);
    rig.adds_up(held.len());
    let before = rig.device.stats();
    rig.device.close();
    let after = rig.device.stats();
    assert_eq!(after.closed_with, before.in_rx + before.in_tx, "close counts what it takes back");
    rig.adds_up(held.len());
    rig.device.close();
    assert_eq!(rig.device.stats(), after, "closing again does nothing");
    moves_nothing(&mut rig);
    drop(held);
    rig.end();
}

/// The device is gone: it reports that, and moves nothing.
fn moves_nothing(rig: &mut Rig) {
    let begun = Instant::now();
    assert_eq!(rig.device.wait(&rig.pool, Duration::from_secs(60)), Wake::Gone);
    assert!(begun.elapsed() < Duration::from_secs(30), "a wait for a device that is gone returns");
    rig.far.send(&packet(0, 60));
    let (mut packets, mut done) = (Vec::with_capacity(8), XdpFrameBulk::new());
    let late = packet(77, 60);
    let mut queue = TxQueue::from([rig.frame(&late)]);
    assert_eq!(rig.device.receive(&rig.pool, &mut packets, 8), 0, "nothing is received");
    assert_eq!((rig.device.transmit(&mut queue), queue.len()), (0, 1), "nothing is taken");
    assert_eq!(rig.device.complete(&mut done, 8), 0, "nothing is completed");
    let mut bytes = Vec::new();
    while rig.far.receive(&mut bytes) {
        assert_ne!(bytes, late, "nothing more is sent; packets that were already on their way may arrive");
    }
}

fn bears_its_death(mut rig: Rig) {
    let held = load(&mut rig);
    if !rig.far.die() {
        return;
    }
    rig.adds_up(held.len());
    moves_nothing(&mut rig);
    rig.adds_up(held.len());
    drop(held);
    rig.end();
}

/// Drops device, far end, pool, provider and packets in every order, or in one of `one_of`, alive or dead.
/// Everything must return, and the provider must be freed.
fn ends_in_orders(make: &impl Fn() -> Rig, one_of: usize, dead: bool) {
    for order in orders(5).into_iter().step_by(one_of) {
        let mut rig = make();
        let held = load(&mut rig);
        if dead && !rig.far.die() {
            return;
        }
        let Rig { device, far, pool, provider, verify, .. } = rig;
        let memory = Arc::downgrade(&provider);
        let parts: [Box<dyn Any>; 5] =
            [Box::new(device), Box::new(far), Box::new(pool), Box::new(provider), Box::new(held)];
        let mut parts = parts.map(Some);
        order.iter().for_each(|&part| drop(parts[part].take()));
        assert!(memory.upgrade().is_none(), "memory is still in use after drops in the order {order:?}");
        verify();
    }
}

/// Every order of the numbers below `n`.
fn orders(n: usize) -> Vec<Vec<usize>> {
    if n == 0 {
        return vec![Vec::new()];
    }
    let insert = |shorter: Vec<usize>| {
        (0..n).map(move |at| {
            let mut longer = shorter.clone();
            longer.insert(at, n - 1);
            longer
        })
    };
    orders(n - 1).into_iter().flat_map(insert).collect()
}

fn waits_no_longer_than_asked(mut rig: Rig) {
    rig.start();
    assert_eq!(rig.device.wait(&rig.pool, Duration::from_millis(2)), Wake::Timeout, "nothing happened");
    rig.far.send(&packet(1, 60));
    let begun = Instant::now();
    assert_eq!(rig.device.wait(&rig.pool, Duration::from_secs(60)), Wake::Ready, "a packet came");
    assert!(begun.elapsed() < Duration::from_secs(30), "a packet ends the wait");
    assert_eq!(rig.collect(1).len(), 1);
    completes_what_it_is_asked_for(&mut rig);
    rig.end();
}

/// Sent frames end a wait, however long ago they were sent, and are completed in portions.
fn completes_what_it_is_asked_for(rig: &mut Rig) {
    let mut queue = (0..5).map(|number| rig.frame(&packet(number, 60))).collect();
    assert_eq!(rig.device.transmit(&mut queue), 5, "the ring is empty");
    rig.far.settle();
    while rig.far.receive(&mut Vec::new()) {}
    let (mut done, mut completed, begun) = (XdpFrameBulk::new(), 0, Instant::now());
    while completed < 5 {
        assert_eq!(rig.device.wait(&rig.pool, Duration::from_secs(60)), Wake::Ready, "frames were sent");
        assert!(begun.elapsed() < Duration::from_secs(30), "what was sent ends the wait");
        let portion = rig.device.complete(&mut done, 2);
        assert!(portion <= 2, "{portion} frames for a budget of 2");
        completed += portion;
        rig.far.settle();
    }
    assert_eq!((completed, rig.device.stats().in_tx), (5, 0), "each is given back once");
    done.flush();
    rig.adds_up(0);
}
