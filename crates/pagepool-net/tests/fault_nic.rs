//! Faults are what they were asked to be, counted, and cost no buffer.

use std::time::Duration;

use pagepool::{Arena, ArenaParams, Bound, Pool, PoolParams, XdpBuff, XdpFrame, XdpFrameBulk};
use pagepool_net::{
    Armed, Device, DeviceExt, MemNic, MemNicParams, NicDomain, NicPort, TxQueue, Wake, mem_nic,
};
use pagepool_testing::{Chance, FaultCounts, FaultNic, FaultParams};

fn faulty(faults: FaultParams) -> (FaultNic<MemNic>, NicPort, Bound) {
    let domain = NicDomain::new("mem0");
    let arena = Arena::new(ArenaParams { max_bytes: 4 << 20, ..Default::default() }).expect("4 MiB");
    let params = PoolParams { domains: vec![domain.clone()], ..Default::default() };
    let pool = Pool::new(params, arena).expect("parameters in range").bind();
    let (nic, port) = mem_nic(MemNicParams::default(), domain).expect("parameters in range");
    let mut nic = FaultNic::new(nic, faults).expect("parameters in range");
    nic.inner().receive(&pool, &mut Vec::new(), 0); // the first buffers
    (nic, port, pool)
}

/// The first byte of each packet that a poll gives.
fn poll(nic: &mut FaultNic<MemNic>, pool: &Bound) -> Vec<u8> {
    let mut packets = Vec::with_capacity(64);
    nic.receive(pool, &mut packets, 64);
    packets.iter().map(|packet: &XdpBuff| packet.data()[0]).collect()
}

#[test]
fn faults_drop_double_reorder_and_delay_packets() {
    let every = |n| FaultParams { delay_polls: 2, ..FaultParams { seed: n, ..Default::default() } };
    let cases: [(FaultParams, &[&[u8]]); 4] = [
        (FaultParams { drop: Chance::Every(2), ..every(1) }, &[&[0, 2, 4], &[], &[]]),
        (FaultParams { duplicate: Chance::Every(3), ..every(1) }, &[&[0, 1, 2, 2, 3, 4, 5, 5], &[], &[]]),
        (FaultParams { reorder: Chance::Every(2), ..every(1) }, &[&[1, 3, 5, 4, 2, 0], &[], &[]]),
        (FaultParams { delay: Chance::Every(3), ..every(1) }, &[&[0, 1, 3, 4], &[], &[2, 5]]),
    ];
    for (faults, expected) in cases {
        let (mut nic, mut port, pool) = faulty(faults.clone());
        assert!((0..6).all(|number| port.deliver(&[number; 60])));
        for polled in expected {
            let mut got = poll(&mut nic, &pool);
            let mut wanted = polled.to_vec();
            if faults.reorder != Chance::Never {
                assert_ne!(got, [0, 1, 2, 3, 4, 5]);
                got.sort_unstable();
                wanted.sort_unstable();
            }
            assert_eq!(got, wanted, "{faults:?}");
        }
        nic.close();
        assert_eq!(pool.inflight().out, 0);
    }
}

#[test]
fn a_packet_that_nothing_follows_is_overtaken_by_the_next_poll() {
    let (mut nic, mut port, pool) = faulty(FaultParams { reorder: Chance::Every(1), ..Default::default() });
    assert!(port.deliver(&[1; 60]));
    assert_eq!(poll(&mut nic, &pool), []);
    assert_eq!(nic.stats().in_rx, 513, "it is held back");
    assert_eq!(nic.wait(&pool, Duration::from_secs(60)), Wake::Ready, "a poll is what it waits for");
    assert!(matches!(nic.arm(&pool), Armed::Ready), "likewise where others are waited for, too");
    assert_eq!(poll(&mut nic, &pool), [1]);
    assert_eq!(nic.counts(), FaultCounts { reordered: 1, ..Default::default() });
}

#[test]
fn a_corrupted_packet_differs_in_one_bit() {
    let (mut nic, mut port, pool) = faulty(FaultParams { corrupt: Chance::Every(1), ..Default::default() });
    assert!(port.deliver(&[0; 60]));
    let mut packets = Vec::with_capacity(1);
    assert_eq!(nic.receive(&pool, &mut packets, 1), 1);
    let ones: u32 = packets[0].data().iter().map(|byte| byte.count_ones()).sum();
    assert_eq!((ones, nic.counts().corrupted), (1, 1));
}

#[test]
fn a_jumbo_packet_is_doubled_whole() {
    let (mut nic, mut port, pool) = faulty(FaultParams { duplicate: Chance::Every(1), ..Default::default() });
    assert!(port.deliver(&[3; 9000]));
    let mut packets = Vec::with_capacity(2);
    assert_eq!(nic.receive(&pool, &mut packets, 2), 2);
    for packet in &packets {
        assert_eq!((packet.len(), packet.frags().len()), (9000, 2));
        assert!(packet.data().iter().chain(packet.frags()[1].data()).all(|&byte| byte == 3));
    }
    drop(packets);
    nic.close();
    assert_eq!(pool.inflight().out, 0);
}

#[test]
fn faults_stall_completions_and_refuse_transmits() {
    let (mut nic, mut port, pool) = faulty(FaultParams {
        stall_completions: Chance::Every(2),
        refuse_transmits: Chance::Every(2),
        ..Default::default()
    });
    let mut done = XdpFrameBulk::new();
    let frame = || XdpFrame::from(XdpBuff::received(pool.alloc_page().expect("pages"), 60).expect("fits"));
    for (sent, completed) in [(1, 1), (0, 0), (2, 1), (0, 0), (2, 1)] {
        let mut queue: TxQueue = (0..sent.max(1)).map(|_| frame()).collect();
        assert_eq!(nic.transmit(&mut queue), sent);
        port.take(|_| ());
        assert_eq!(nic.complete(&mut done, 1), completed);
    }
    assert_eq!((nic.counts().refused, nic.counts().stalled), (2, 2));
    nic.close();
    drop(done);
    assert_eq!(pool.inflight().out, 0);
}

#[test]
fn a_fault_kills_the_device_and_close_takes_everything_back() {
    let faults = FaultParams { die: Chance::Every(3), delay: Chance::Every(2), ..Default::default() };
    let (mut nic, mut port, pool) = faulty(faults);
    assert!((0..4).all(|number| port.deliver(&[number; 60])));
    assert_eq!(poll(&mut nic, &pool), [0, 2]);
    assert_eq!(poll(&mut nic, &pool), []);
    assert!(port.deliver(&[9; 60]), "the hardware knows nothing of it");
    for _ in 0..3 {
        assert_eq!(poll(&mut nic, &pool), []);
        assert_eq!(nic.wait(&pool, Duration::from_secs(60)), Wake::Gone);
    }
    assert_eq!((nic.counts().died, nic.stats().in_rx, pool.inflight().out), (1, 514, 514));
    nic.close();
    assert_eq!((nic.stats().closed_with, nic.stats().in_rx, pool.inflight().out), (514, 0, 0));
}

#[test]
fn the_same_seed_gives_the_same_faults() {
    let run = |seed| {
        let (mut nic, mut port, pool) = faulty(FaultParams {
            seed,
            drop: Chance::OneIn(4),
            corrupt: Chance::OneIn(4),
            reorder: Chance::OneIn(4),
            ..Default::default()
        });
        let mut came = Vec::new();
        for number in 0..200 {
            assert!(port.deliver(&[number; 60]));
            came.extend(poll(&mut nic, &pool));
        }
        (came, nic.counts())
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
    let counts = run(7).1;
    assert!(counts.dropped > 20 && counts.corrupted > 15 && counts.reordered > 15, "{counts:?}");
}
