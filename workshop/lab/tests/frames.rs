//! Raw and numbered frames between two hosts in namespaces of the test's own, against the kernel.

#![expect(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use pagepool_lab::{
    DropRule, FrameBatch, FrameGenerator, FrameSocket, GeneratorMode, GeneratorParams, Hook, or_skip,
};
use pagepool_link::{LinkError, Mac, Offload, TwoHosts, TwoHostsParams};
use pagepool_net::{Arrival, NumberedFrames, Tally};

/// Nothing here takes as long.
const LIMIT: Duration = Duration::from_secs(60);

/// The hosts, if this machine can have them.
fn hosts(test: &str, params: &TwoHostsParams) -> Option<TwoHosts> {
    or_skip(test, TwoHosts::new(params))
}

/// Receives what a source sends, and accounts for every frame.
fn receive(socket: &FrameSocket, source: &FrameGenerator, tally: &mut Tally) {
    let (start, mut batch) = (Instant::now(), FrameBatch::new(2048));
    while tally.good < source.sent() || !source.is_over() {
        assert!(start.elapsed() < LIMIT, "{tally:?} of {}", source.sent());
        if socket.receive_many(&mut batch).unwrap() == 0 {
            socket.wait(Duration::from_millis(10));
        }
        for frame in batch.frames() {
            assert!(matches!(tally.take(frame), Arrival::Good(_) | Arrival::Unnumbered), "{tally:?}");
        }
    }
}

#[test]
fn every_numbered_frame_is_accounted_for() {
    let name = "every_numbered_frame_is_accounted_for";
    let Some(hosts) = hosts(name, &TwoHostsParams::default()) else { return };
    let socket = FrameSocket::open(&hosts.between, "near0").unwrap();
    for (size, rate) in [(64, None), (1500, Some(50_000))] {
        let frames = NumberedFrames::new(Mac([2; 6]), hosts.near[0].mac.unwrap(), size).unwrap();
        let params = GeneratorParams {
            frames,
            count: 10_000,
            limit: LIMIT,
            per_second: rate,
            mode: GeneratorMode::Numbered,
        };
        let start = Instant::now();
        let source = FrameGenerator::start(&hosts.a.namespace, "far0", params).unwrap();
        let mut tally = Tally::new(params.count);
        receive(&socket, &source, &mut tally);
        let report = source.join().unwrap();
        assert_eq!((report.sent, tally.good, tally.missing(report.sent)), (10_000, 10_000, 0));
        assert_eq!((tally.corrupt, tally.again, tally.beyond, tally.overtaken), (0, 0, 0, 0));
        let least = rate.map_or(Duration::ZERO, |rate| Duration::from_secs_f64(9e3 / rate as f64));
        assert!(start.elapsed() >= least, "faster than {rate:?} a second");
    }
}

#[test]
fn the_kernel_sends_copies_of_a_frame_by_xdp() {
    let name = "the_kernel_sends_copies_of_a_frame_by_xdp";
    let Some(hosts) = hosts(name, &TwoHostsParams::default()) else { return };
    let between = &hosts.between;
    // Then the driver polls, which is all that frames of XDP need at the other end.
    between.ethtool().unwrap().set_offload("near0", Offload::Gro, true).unwrap();
    let socket = FrameSocket::open(between, "near0").unwrap();
    let frames = NumberedFrames::new(Mac([2; 6]), hosts.near[0].mac.unwrap(), 64).unwrap();
    let params =
        GeneratorParams { frames, count: 5000, limit: LIMIT, per_second: None, mode: GeneratorMode::Xdp };
    let source = match FrameGenerator::start(&hosts.a.namespace, "far0", params).map(FrameGenerator::join) {
        Ok(Ok(report)) => report,
        Ok(Err(error)) | Err(error) => {
            let too_old = error.to_string().starts_with("bpf(BPF_PROG_RUN)"); // it does not know the flag
            assert!(error.is_permission() || too_old, "{error}");
            println!("SKIP {name}: {error}");
            return;
        }
    };
    assert_eq!(source.sent, 5000);
    let (mut tally, mut batch) = (Tally::new(1), FrameBatch::new(2048));
    let start = Instant::now();
    // Until there are some, then until it is silent: there are never too many.
    while socket.wait(Duration::from_millis(100)) || tally.again == 0 {
        assert!(start.elapsed() < LIMIT, "{tally:?}");
        socket.receive_many(&mut batch).unwrap();
        batch.frames().for_each(|frame| assert_ne!(tally.take(frame), Arrival::Corrupt));
    }
    assert!(tally.good == 1 && (1..5000).contains(&tally.again), "{tally:?}");
}

#[test]
fn single_frames_go_both_ways_and_not_back_to_who_sent_them() {
    let name = "single_frames_go_both_ways_and_not_back_to_who_sent_them";
    let Some(hosts) = hosts(name, &TwoHostsParams::default()) else { return };
    let near = FrameSocket::open(&hosts.between, "near1").unwrap();
    let far = FrameSocket::of(&hosts.b).unwrap();
    let frames = NumberedFrames::new(Mac([2; 6]), Mac([4; 6]), 100).unwrap();
    let (mut frame, mut room) = ([0; 100], [0; 200]);
    frames.write(5, &mut frame);
    for (from, to) in [(&near, &far), (&far, &near)] {
        assert!(from.send(&frame).unwrap());
        assert!(to.wait(LIMIT));
        assert_eq!(to.receive(&mut room).unwrap(), Some(100));
        assert_eq!(room[..100], frame);
        assert_eq!(from.receive(&mut room).unwrap(), None, "its own");
    }
    assert!(near.send(&frame).unwrap());
    assert!(far.wait(LIMIT));
    assert_eq!(far.receive(&mut room[..20]).unwrap(), Some(100), "it says that it was cut");
    let long = near.send(&[0; 9000]).unwrap_err();
    assert!(long.to_string().contains("\"near1\""), "{long}");
    assert!(matches!(near.send_many(&frame, 0), Err(LinkError::OutOfRange { .. })));
}

#[test]
fn a_drop_rule_of_either_hook_drops_until_it_ends() {
    let name = "a_drop_rule_of_either_hook_drops_until_it_ends";
    let Some(hosts) = hosts(name, &TwoHostsParams::default()) else { return };
    let (near, here) = (hosts.near[0].index, Ipv4Addr::new(198, 18, 0, 9));
    hosts.between.netlink().unwrap().add_address(near, here, 24).unwrap();
    let to = hosts.run_between(move || UdpSocket::bind((here, 9))).unwrap();
    let host = hosts.a.address;
    let from = hosts.a.namespace.run(move || UdpSocket::bind((host, 0))).unwrap();
    from.connect((here, 9)).unwrap();
    to.set_read_timeout(Some(LIMIT)).unwrap();
    let ask = |number: u8| {
        from.send(&[number]).unwrap();
        let mut got = [0; 2];
        to.recv(&mut got).unwrap();
        assert_eq!(got[0], number);
    };
    ask(0); // the host knows the MAC address now
    for (number, hook) in [(1, Hook::Ingress), (3, Hook::Egress)] {
        let add = move |link| DropRule::add(hook, link);
        let rule = match hook {
            Hook::Ingress => hosts.run_between(move || add("near0")),
            Hook::Egress => hosts.a.namespace.run(move || add("far0")),
        };
        let Ok(rule) = rule.inspect_err(|why| println!("SKIP {hook:?}: {why}")) else { continue };
        let _ = from.send(&[number]); // refused at the egress
        drop(rule);
        ask(number + 1); // behind it
    }
}
