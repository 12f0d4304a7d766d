//! The forwarding loop: each verdict and its counter, rings that stay full, devices that die, threads.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Barrier, mpsc};
use std::time::{Duration, Instant};

use crate::fake::{FakeNic, Hand, number, packet, pool};
use pagepool::{PoolRef, XdpBuff, XdpFrame};
use pagepool_net::{Action, ForwardStats, Forwarder, Ingress, PacketHandler, PortId, Stack, Wake, handoff};

/// A forwarder with one port.
fn one_port<P: PacketHandler>(program: P) -> (Forwarder<P>, PortId, Hand) {
    let (nic, hand) = FakeNic::copying();
    let mut forwarder = Forwarder::with_handler(program);
    let port = forwarder.add_port(nic, pool(Vec::new()));
    (forwarder, port, hand)
}

fn settle<P: PacketHandler, S: Stack>(forwarder: &mut Forwarder<P, S>) {
    while forwarder.poll() > 0 {}
}

fn out(pool: &PoolRef) -> u64 {
    pool.inflight().out
}

#[test]
fn each_verdict_and_its_counters() {
    let cases = [
        (Action::Drop, ForwardStats { rx: 100, drop: 100, ..Default::default() }, 0),
        (Action::Aborted, ForwardStats { rx: 100, aborted: 100, ..Default::default() }, 0),
        (Action::Pass, ForwardStats { rx: 100, pass: 100, pass_refused: 100, ..Default::default() }, 0),
        (Action::Tx, ForwardStats { rx: 100, tx: 100, ..Default::default() }, 100),
        (
            Action::Redirect(PortId(0)),
            ForwardStats { rx: 100, redirect_out: 100, redirect_in: 100, ..Default::default() },
            100,
        ),
        (
            Action::Redirect(PortId(7)),
            ForwardStats { rx: 100, redirect_nowhere: 100, ..Default::default() },
            0,
        ),
    ];
    for (action, expected, sent) in cases {
        let (mut forwarder, port, hand) = one_port(move |_: &mut XdpBuff, _: Ingress| action);
        (0..100).for_each(|n| hand.arrive(packet(n, 60)));
        settle(&mut forwarder);
        assert_eq!(forwarder.stats(port), Some(expected), "{action:?}");
        let bytes = hand.sent();
        assert_eq!(bytes.len(), sent, "{action:?}");
        assert!((0..).zip(&bytes).all(|(n, bytes)| *bytes == packet(n, 60)), "{action:?}");
        assert_eq!(forwarder.pool(port).unwrap().inflight().out, 0, "{action:?}: all returned");
    }
}

#[test]
fn redirect_goes_out_of_the_other_port() {
    let (one, in_hand) = FakeNic::copying();
    let (two, out_hand) = FakeNic::copying();
    let mut forwarder =
        Forwarder::new(|_: &mut XdpBuff, at: Ingress| Action::Redirect(PortId(1 - at.port.0)));
    let [a, b] = [one, two].map(|nic| forwarder.add_port(nic, pool(Vec::new())));
    (0..200).for_each(|n| in_hand.arrive(packet(n, 60)));
    settle(&mut forwarder);
    let sent = out_hand.sent();
    assert!((0..200).zip(&sent).all(|(n, bytes)| *bytes == packet(n, 60)) && sent.len() == 200);
    let stats = [a, b].map(|port| forwarder.stats(port).unwrap());
    assert_eq!((stats[0].redirect_out, stats[0].redirect_in), (200, 0));
    assert_eq!((stats[1].redirect_out, stats[1].redirect_in), (0, 200));
    assert_eq!(forwarder.paths(b).unwrap().reused, 200, "a device that copies reaches all that the CPU does");
}

#[test]
fn what_a_program_changes_is_sent() {
    let (mut forwarder, _, hand) = one_port(|packet: &mut XdpBuff, _: Ingress| {
        packet.adjust_head(-4).unwrap();
        packet.data_mut()[..4].copy_from_slice(b"tag ");
        Action::Tx
    });
    hand.arrive(packet(1, 60));
    settle(&mut forwarder);
    assert_eq!(hand.sent(), [[b"tag ".to_vec(), packet(1, 60)].concat()]);
}

#[test]
fn too_short_for_a_header_never_reaches_the_program() {
    let mut asked = 0;
    let (nic, hand) = FakeNic::copying();
    let mut forwarder = Forwarder::new(|_: &mut XdpBuff, _: Ingress| {
        asked += 1;
        Action::Tx
    });
    let port = forwarder.add_port(nic, pool(Vec::new()));
    [0, 1, 13, 14].into_iter().for_each(|len| hand.arrive(vec![7; len]));
    settle(&mut forwarder);
    let stats = forwarder.stats(port).unwrap();
    assert_eq!((stats.rx, stats.too_short, stats.tx, stats.drop), (4, 3, 1, 0));
    assert_eq!(forwarder.pool(port).unwrap().inflight().out, 0);
    drop(forwarder);
    assert_eq!((asked, hand.sent()), (1, vec![vec![7; 14]]));
}

#[test]
fn a_stack_takes_what_it_wants() {
    let mut kept = Vec::new();
    let (nic, hand) = FakeNic::copying();
    let stack = |packet: XdpBuff, _: Ingress| {
        if number(packet.data()).is_multiple_of(4) {
            kept.push(packet);
            return Ok(());
        }
        Err(packet)
    };
    let mut forwarder = Forwarder::with_stack(|_: &mut XdpBuff, _: Ingress| Action::Pass, stack);
    let port = forwarder.add_port(nic, pool(Vec::new()));
    (0..100).for_each(|n| hand.arrive(packet(n, 60)));
    settle(&mut forwarder);
    let stats = forwarder.stats(port).unwrap();
    assert_eq!((stats.pass, stats.pass_refused), (100, 75));
    let handle = forwarder.pool(port).unwrap().handle();
    assert_eq!(out(&handle), 25);
    drop(forwarder);
    drop(kept); // the pool has ended, and this was its last use
    assert_eq!(handle.inflight().total, 0);
}

#[test]
fn the_short_way_overtakes_nothing_and_counts_the_same() {
    // What it takes, call by call, from the end: all, in part, none; and all it is asked for once the ring
    // moves again.
    let short_way = vec![24, 24, 24, 24, 0, 7, 20, 24];
    for (verdict, back) in [(Action::Tx, true), (Action::Redirect(PortId(0)), false)] {
        let (nic, hand) = FakeNic::copying();
        let mut forwarder = Forwarder::new(move |_: &mut XdpBuff, _: Ingress| verdict);
        let nic = nic.tx_ring(64).short_way(short_way.clone());
        let port = forwarder.add_port(nic, pool(Vec::new()));
        forwarder.sample(1);
        let mut waited = Vec::new();
        for burst in 0..8 {
            hand.wire().stuck = burst == 4 || burst == 5;
            (0..24).for_each(|n| hand.arrive(packet(burst * 24 + n, 60)));
            waited.push(forwarder.waiting(port).unwrap().len());
            forwarder.poll();
        }
        assert_eq!(waited, [0, 0, 0, 0, 0, 0, 8, 0], "the seventh burst came while others waited");
        settle(&mut forwarder);
        assert!(hand.sent().iter().map(|bytes| number(bytes)).eq(0..192), "{verdict:?}: in order");
        let stats = forwarder.stats(port).unwrap();
        let expected = match back {
            true => ForwardStats { rx: 192, tx: 192, ..Default::default() },
            false => ForwardStats { rx: 192, redirect_out: 192, redirect_in: 192, ..Default::default() },
        };
        assert_eq!((stats, forwarder.device(port).unwrap().stats().tx_packets), (expected, 192));
        assert_eq!((forwarder.cycles().rx_packets, forwarder.cycles().tx_packets), (192, 192));
        assert_eq!(forwarder.paths(port).unwrap().reused, if back { 0 } else { 192 });
        assert_eq!(forwarder.pool(port).unwrap().inflight().out, 0, "all returned");
    }
}

#[test]
fn several_ports_into_one_lose_nothing_while_it_sends() {
    let program = |_: &mut XdpBuff, at: Ingress| match at.port {
        PortId(0) => Action::Drop,
        _ => Action::Redirect(PortId(0)),
    };
    let mut forwarder = Forwarder::new(program);
    let (nic, out) = FakeNic::copying();
    let one = forwarder.add_port(nic.tx_ring(64).short_way(vec![usize::MAX; 100]), pool(Vec::new()));
    let sources: Vec<_> = (0..6).map(|_| FakeNic::copying()).collect();
    let mut hands = Vec::new();
    for (nic, hand) in sources {
        forwarder.add_port(nic, pool(Vec::new()));
        hands.push(hand);
    }
    forwarder.set_budget(128).unwrap();
    for round in 0..4 {
        for (hand, source) in hands.iter().zip(0..) {
            (0..128).for_each(|n| hand.arrive(packet((source * 4 + round) * 128 + n, 60)));
        }
        forwarder.poll();
    }
    settle(&mut forwarder);
    let mut sent: Vec<u32> = out.sent().iter().map(|bytes| number(bytes)).collect();
    sent.sort_unstable();
    assert!(sent.iter().copied().eq(0..6 * 4 * 128), "{} came out", sent.len());
    let stats = forwarder.stats(one).unwrap();
    assert_eq!((stats.redirect_in, stats.tx_overflow, stats.redirect_out), (6 * 4 * 128, 0, 0));
    assert_eq!(forwarder.stats(PortId(3)).unwrap().redirect_out, 4 * 128);
    assert_eq!(forwarder.paths(one).unwrap().reused, 6 * 4 * 128);
}

#[test]
fn a_handler_that_reads_nothing_gets_every_packet() {
    struct Unseen;
    impl PacketHandler for Unseen {
        fn handle(&mut self, _: &mut XdpBuff, _: Ingress) -> Action {
            Action::Tx
        }
        fn reads(&self) -> bool {
            false
        }
    }
    let (mut forwarder, port, hand) = one_port(Unseen);
    (0..100).for_each(|n| hand.arrive(packet(n, 60)));
    settle(&mut forwarder);
    let sent: Vec<u32> = hand.sent().iter().map(|bytes| number(bytes)).collect();
    assert_eq!((sent, forwarder.stats(port).unwrap().tx), ((0..100).collect(), 100));
    [0, 1, 13].into_iter().for_each(|len| hand.arrive(vec![7; len]));
    settle(&mut forwarder);
    let stats = forwarder.stats(port).unwrap();
    assert_eq!((stats.rx, stats.tx, stats.too_short), (103, 103, 0), "also those without a header");
    assert_eq!(forwarder.pool(port).unwrap().inflight().out, 0);
}

#[test]
fn a_transmit_ring_that_is_full_for_ever_holds_up_nothing() {
    let (nic, hand) = FakeNic::copying();
    let mut forwarder = Forwarder::new(|_: &mut XdpBuff, _: Ingress| Action::Tx);
    let port = forwarder.add_port(nic.tx_ring(8), pool(Vec::new()));
    hand.wire().stuck = true;
    for _ in 0..100 {
        (0..100).for_each(|n| hand.arrive(packet(n, 60)));
        settle(&mut forwarder);
    }
    let stats = forwarder.stats(port).unwrap();
    let held = 8 + 64; // on the ring, and waiting for it
    assert_eq!((stats.rx, stats.tx, stats.tx_overflow), (10_000, 10_000, 10_000 - held));
    let handle = forwarder.pool(port).unwrap().handle();
    assert_eq!((out(&handle), handle.stats().hold <= 256), (held, true), "memory is bounded");
    assert_eq!(forwarder.wait(Duration::from_millis(1)), Wake::Timeout);
    hand.wire().stuck = false;
    settle(&mut forwarder);
    assert_eq!((hand.sent().len() as u64, out(&handle)), (held, 0));
}

#[test]
fn a_device_that_dies_gives_everything_back() {
    let (one, in_hand) = FakeNic::copying();
    let (two, out_hand) = FakeNic::copying();
    let mut forwarder = Forwarder::new(|_: &mut XdpBuff, _: Ingress| Action::Redirect(PortId(1)));
    let [a, b] = [one, two.tx_ring(8)].map(|nic| forwarder.add_port(nic, pool(Vec::new())));
    out_hand.wire().stuck = true;
    (0..50).for_each(|n| in_hand.arrive(packet(n, 60)));
    settle(&mut forwarder);
    let handle = forwarder.pool(a).unwrap().handle();
    assert_eq!(out(&handle), 50, "8 on the ring, 42 wait");
    out_hand.wire().dead = true;
    assert_eq!(forwarder.wait(Duration::ZERO), Wake::Ready, "buffers returned");
    assert_eq!((out(&handle), forwarder.stats(b).unwrap().tx_gone), (0, 42));
    assert_eq!(forwarder.wait(Duration::ZERO), Wake::Timeout, "the other device is there");
    (0..50).for_each(|n| in_hand.arrive(packet(n, 60)));
    settle(&mut forwarder);
    assert_eq!((out(&handle), forwarder.stats(b).unwrap().tx_gone), (0, 92));
    in_hand.wire().dead = true;
    assert_eq!(forwarder.wait(Duration::from_secs(60)), Wake::Gone);
    assert_eq!(forwarder.poll(), 0);
}

#[test]
fn a_device_that_dies_behind_a_busy_one_is_closed() {
    let (one, in_hand) = FakeNic::copying();
    let (two, out_hand) = FakeNic::copying();
    let mut forwarder = Forwarder::new(|_: &mut XdpBuff, _: Ingress| Action::Redirect(PortId(1)));
    let [a, b] = [one, two].map(|nic| forwarder.add_port(nic, pool(Vec::new())));
    out_hand.wire().stuck = true;
    (0..50).for_each(|n| in_hand.arrive(packet(n, 60)));
    settle(&mut forwarder);
    out_hand.wire().dead = true;
    in_hand.arrive(packet(50, 60));
    assert_eq!(forwarder.wait(Duration::ZERO), Wake::Ready, "a packet is there");
    assert_eq!(forwarder.pool(a).unwrap().inflight().out, 0, "what the other device had has returned");
    settle(&mut forwarder);
    assert_eq!(forwarder.stats(b).unwrap().tx_gone, 1);
}

#[test]
fn a_program_that_panics_loses_its_burst_and_no_buffer() {
    let (mut forwarder, port, hand) = one_port(|packet: &mut XdpBuff, _: Ingress| {
        assert_ne!(number(packet.data()), 10, "on purpose");
        Action::Tx
    });
    (0..100).for_each(|n| hand.arrive(packet(n, 60)));
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| forwarder.poll()));
    assert!(caught.is_err());
    settle(&mut forwarder);
    let sent: Vec<_> = hand.sent().iter().map(|bytes| number(bytes)).collect();
    assert_eq!(sent, (64..100).collect::<Vec<_>>(), "the next burst goes on");
    assert_eq!(forwarder.pool(port).unwrap().inflight().out, 0);
}

#[test]
fn a_stack_that_panics_loses_its_burst_and_no_buffer() {
    let (nic, hand) = FakeNic::copying();
    let stack = |packet: XdpBuff, _: Ingress| -> Result<(), XdpBuff> {
        assert_ne!(number(packet.data()), 10, "on purpose");
        Err(packet)
    };
    let mut forwarder = Forwarder::with_stack(|_: &mut XdpBuff, _: Ingress| Action::Pass, stack);
    let port = forwarder.add_port(nic, pool(Vec::new()));
    (0..64).for_each(|n| hand.arrive(packet(n, 60)));
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| forwarder.poll()));
    assert!(caught.is_err());
    forwarder.poll();
    assert_eq!(forwarder.pool(port).unwrap().inflight().out, 0, "those before it, too");
}

#[test]
fn a_jumbo_packet_goes_through_whole() {
    let (mut forwarder, port, hand) = one_port(|packet: &mut XdpBuff, _: Ingress| {
        assert_eq!((packet.len(), packet.frags().len()), (9000, 5));
        Action::Redirect(PortId(0))
    });
    (0..20).for_each(|n| hand.arrive(packet(n, 9000)));
    settle(&mut forwarder);
    assert!((0..20).zip(hand.sent()).all(|(n, bytes)| bytes == packet(n, 9000)));
    assert_eq!(forwarder.pool(port).unwrap().inflight().out, 0);
}

#[test]
fn the_budget_bounds_a_round() {
    let (mut forwarder, port, hand) = one_port(|_: &mut XdpBuff, _: Ingress| Action::Drop);
    for refused in [0, 4097] {
        let error = forwarder.set_budget(refused).unwrap_err().to_string();
        assert_eq!(error, format!("budget is {refused}, but must be 1 to 4096"));
    }
    (0..300).for_each(|n| hand.arrive(packet(n, 60)));
    for (budget, rx) in [(64, 64), (7, 71), (200, 271)] {
        forwarder.set_budget(budget).unwrap();
        forwarder.poll();
        assert_eq!(forwarder.stats(port).unwrap().rx, rx);
    }
}

#[test]
fn waiting_ends_when_any_device_has_work() {
    let nics = [FakeNic::copying(), FakeNic::copying()];
    let hands = nics.each_ref().map(|(_, hand)| hand.clone());
    let mut forwarder = Forwarder::new(|_: &mut XdpBuff, _: Ingress| Action::Drop);
    let ports = nics.map(|(nic, _)| forwarder.add_port(nic, pool(Vec::new())));
    assert_eq!(forwarder.wait(Duration::from_millis(2)), Wake::Timeout);
    for (hand, port) in hands.iter().zip(ports) {
        hand.arrive(packet(1, 60));
        let start = Instant::now();
        assert_eq!(forwarder.wait(Duration::from_secs(60)), Wake::Ready);
        assert_eq!(forwarder.wait_on(port, Duration::from_secs(60)), Wake::Ready);
        assert!(start.elapsed() < Duration::from_secs(30), "it was there before");
        settle(&mut forwarder);
        assert_eq!(forwarder.wait_on(port, Duration::ZERO), Wake::Timeout);
    }
    assert_eq!(forwarder.wait_on(PortId(9), Duration::ZERO), Wake::Gone);
}

#[test]
fn a_handoff_without_room_or_without_another_end_drops() {
    let (nic, hand) = FakeNic::copying();
    let mut forwarder = Forwarder::new(|_: &mut XdpBuff, _: Ingress| Action::Redirect(PortId(1)));
    let port = forwarder.add_port(nic, pool(Vec::new()));
    let (outlet, inlet) = handoff(10).unwrap();
    assert_eq!(forwarder.add_remote(outlet), PortId(1));
    let (_, other) = handoff(1).unwrap();
    let refused = forwarder.add_handoff(PortId(1), other).unwrap_err().to_string();
    assert!(refused.starts_with("port is 1, but must be a port that add_port"), "{refused}");
    let handle = forwarder.pool(port).unwrap().handle();
    (0..30).for_each(|n| hand.arrive(packet(n, 60)));
    settle(&mut forwarder);
    let stats = forwarder.stats(port).unwrap();
    assert_eq!((stats.redirect_out, stats.handoff_full, out(&handle)), (30, 20, 10));
    drop(inlet);
    assert_eq!(out(&handle), 0, "what was in it returned");
    (0..30).for_each(|n| hand.arrive(packet(n, 60)));
    settle(&mut forwarder);
    assert_eq!((forwarder.stats(port).unwrap().handoff_full, out(&handle)), (50, 0));
}

#[test]
fn a_handoff_passes_frames_in_batches_and_in_order() {
    let (pool, (mut outlet, mut inlet)) = (pool(Vec::new()), handoff(40).expect("a size that may be"));
    let frame = |len| XdpFrame::from(XdpBuff::received(pool.alloc_page().unwrap(), len).unwrap());
    let mut burst = Vec::with_capacity(24);
    for len in 1..=31 {
        outlet.send(frame(len)).expect("there is room");
    }
    assert_eq!(inlet.recv_burst(&mut burst), 0, "the sender keeps them");
    outlet.send(frame(32)).expect("there is room");
    (33..=40).for_each(|len| outlet.send(frame(len)).expect("there is room"));
    assert!(outlet.send(frame(41)).is_err(), "with the kept ones the ring is full");
    assert_eq!(inlet.recv_burst(&mut burst), 24, "as many as the vector holds");
    assert_eq!((burst.capacity(), inlet.recv_burst(&mut burst)), (24, 0));
    let mut lengths: Vec<_> = burst.drain(..).map(|frame| frame.len()).collect();
    assert!(outlet.send(frame(41)).is_ok());
    drop(outlet);
    lengths.extend(std::iter::from_fn(|| inlet.recv()).map(|frame| frame.len()));
    assert_eq!(lengths, Vec::from_iter(1..=41), "a drop flushes");
    assert_eq!((inlet.wait(Duration::ZERO), pool.inflight().out), (Wake::Gone, 0));
}

#[test]
fn a_handoff_returns_kept_frames_when_its_receiver_has_ended() {
    let (pool, (mut outlet, inlet)) = (pool(Vec::new()), handoff(40).expect("a size that may be"));
    let frame = || XdpFrame::from(XdpBuff::received(pool.alloc_page().unwrap(), 60).unwrap());
    (0..3).for_each(|_| outlet.send(frame()).expect("there is room"));
    drop(inlet);
    assert_eq!(pool.inflight().out, 3);
    outlet.flush();
    assert_eq!(pool.inflight().out, 0);
    drop(outlet.send(frame()).expect_err("nobody would get it"));
}

/// How the two threads run decides whether the ring is ever empty: so several times.
#[test]
fn a_receiver_ends_while_its_sender_goes_on() {
    (0..30).for_each(|_| receiver_ends());
}

fn receiver_ends() {
    const ROOM: usize = 64;
    const ALL: usize = 1000;
    let (pool, (mut outlet, inlet)) = (pool(Vec::new()), handoff(ROOM).expect("a size that may be"));
    let frame = || XdpBuff::received(pool.alloc_page()?, 60).ok().map(XdpFrame::from);
    let mut frames: Vec<_> = (0..ALL).map(|_| frame().expect("there are as many pages")).collect();
    while let Some(frame) = frames.pop() {
        let Err(frame) = outlet.send(frame) else { continue };
        frames.push(frame);
        break;
    }
    let ends = std::thread::spawn(move || drop(inlet));
    while !ends.is_finished() {
        let Some(frame) = frames.pop() else { break };
        frames.extend(outlet.send(frame).err());
    }
    ends.join().expect("it only drops");
    let taken = ALL - frames.len();
    assert!(taken <= 2 * ROOM, "it took {taken} frames, and has room for {ROOM}");
    drop((frames, outlet));
    assert_eq!(pool.inflight().out, 0);
}

/// Packets of each direction.
const EACH: u32 = 60_000;

/// A queue that sends to the other thread's queue, until both have sent all; gives its pool to be looked at
/// afterwards.
fn crosswise(
    (nic, hand): (FakeNic, Hand),
    (outlet, inlet): (pagepool_net::HandoffTx, pagepool_net::HandoffRx),
    done: &AtomicUsize,
    handles: mpsc::Sender<PoolRef>,
    end: &Barrier,
) -> (ForwardStats, Vec<Vec<u8>>) {
    let mut forwarder = Forwarder::new(|_: &mut XdpBuff, _: Ingress| Action::Redirect(PortId(1)));
    let port = forwarder.add_port(nic, pool(Vec::new()));
    forwarder.add_remote(outlet);
    forwarder.add_handoff(port, inlet).expect("the port is here");
    handles.send(forwarder.pool(port).expect("the port is here").handle()).expect("the test waits for it");
    let (mut fed, mut sent) = (0, Vec::new());
    let (mut reported, mut progress) = (false, Instant::now());
    while done.load(Ordering::SeqCst) < 2 {
        let in_time = progress.elapsed() < Duration::from_secs(120);
        assert!(in_time && sent.len() <= EACH as usize, "{fed} fed, {} sent", sent.len());
        // What arrives is as much as the other thread keeps up with, so that nothing has to be dropped, for
        // want of room on the ring or of pages.
        let stats = forwarder.stats(port).expect("the port is here");
        if hand.wire().arriving.is_empty() && u64::from(fed) < stats.redirect_in + 300 && fed < EACH {
            (fed..fed + 50).for_each(|n| hand.arrive(packet(n, 60)));
            fed += 50;
        }
        if forwarder.poll() == 0 {
            let _ = forwarder.wait(Duration::from_micros(100));
        }
        let more = hand.sent();
        if !more.is_empty() {
            progress = Instant::now();
        }
        sent.extend(more);
        if sent.len() as u32 == EACH && fed == EACH && !reported {
            reported = true;
            done.fetch_add(1, Ordering::SeqCst);
        }
    }
    let stats = forwarder.stats(port).expect("the port is here");
    end.wait(); // both have what they wanted before either goes
    (stats, sent)
}

#[test]
fn two_queues_on_two_threads_send_crosswise() {
    let (to_one, at_one) = handoff(1024).unwrap();
    let (to_two, at_two) = handoff(1024).unwrap();
    let (done, end) = (AtomicUsize::new(0), Barrier::new(2));
    let (handles, pools) = mpsc::channel();
    let ends = [(to_two, at_one), (to_one, at_two)];
    let results = std::thread::scope(|threads| {
        let spawned = ends.map(|ends| {
            let (handles, done, end) = (handles.clone(), &done, &end);
            threads.spawn(move || {
                let (nic, hand) = FakeNic::copying();
                crosswise((nic.tx_ring(256), hand), ends, done, handles, end)
            })
        });
        spawned.map(|thread| thread.join().unwrap())
    });
    for (stats, sent) in &results {
        let lost = stats.handoff_full + stats.tx_overflow + stats.tx_gone;
        assert_eq!((stats.rx, stats.redirect_in, lost), (EACH.into(), EACH.into(), 0));
        assert!((0..EACH).zip(sent).all(|(n, bytes)| *bytes == packet(n, 60)), "content, in order");
    }
    for pool in pools.iter().take(2) {
        assert_eq!(
            pool.inflight().total,
            0,
            "every page of both pools has returned, and the pools have ended"
        );
    }
}

#[test]
fn order_is_kept_per_flow_through_both_kinds_of_redirect() {
    let (one, hand) = FakeNic::copying();
    let (two, far) = FakeNic::copying();
    let by_flow = |packet: &mut XdpBuff, _: Ingress| match number(packet.data()) % 3 {
        0 => Action::Tx,
        1 => Action::Redirect(PortId(1)),
        _ => Action::Drop,
    };
    let mut forwarder = Forwarder::new(by_flow);
    for nic in [one, two] {
        forwarder.add_port(nic, pool(Vec::new()));
    }
    for burst in 0..30 {
        (0..90).for_each(|n| hand.arrive(packet(burst * 90 + n, 60)));
        settle(&mut forwarder);
    }
    let mut flows: HashMap<u32, Vec<u32>> = HashMap::new();
    for bytes in hand.sent().iter().chain(&far.sent()) {
        flows.entry(number(bytes) % 3).or_default().push(number(bytes));
    }
    for flow in [0, 1] {
        assert_eq!(flows[&flow], (0..900).map(|n| n * 3 + flow).collect::<Vec<_>>());
    }
    assert!(!flows.contains_key(&2));
}

#[test]
fn run_stops_on_request_and_names_devices_that_are_gone() {
    let mut forwarder = Forwarder::new(|_, _| Action::Drop);
    let none = forwarder.run(&AtomicBool::new(false)).unwrap_err().to_string();
    assert_eq!(none, "ports is 0, but must be 1 or more: call add_port before run");
    let (nic, hand) = FakeNic::copying();
    let port = forwarder.add_port(nic, pool(Vec::new()));
    (0..100).for_each(|number| hand.arrive(packet(number, 60)));
    let stop = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let start = Instant::now();
            while !hand.wire().arriving.is_empty() && start.elapsed() < Duration::from_secs(60) {
                std::thread::yield_now();
            }
            stop.store(true, Ordering::Relaxed); // in the middle of the last round, or later
        });
        forwarder.run(&stop).expect("it was asked to stop");
    });
    assert!(stop.load(Ordering::Relaxed));
    assert_eq!(forwarder.stats(port).expect("it was added").drop, 100);
    hand.wire().dead = true;
    let gone = forwarder.run(&AtomicBool::new(false)).unwrap_err().to_string();
    assert!(gone.starts_with("Forwarder::run failed: all devices are gone ("), "{gone}");
}
