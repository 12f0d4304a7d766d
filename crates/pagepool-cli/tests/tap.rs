//! The commands over TAPs, where no AF_XDP is needed, and between a TAP and AF_XDP sockets.

use crate::between::{Place, hosts, number, ok, wait_until};
use pagepool_lab::FrameSocket;
use pagepool_link::{LinkError, Mac, Namespace, Tap, TwoHostsParams};
use pagepool_net::{NumberedFrames, Tally};

/// Fewer than the packets that the kernel keeps for a TAP.
const COUNT: u64 = 1000;
const SIZE: usize = 100;

/// A namespace that may have TAPs, or none after a line that says why.
fn place(test: &str) -> Option<Namespace> {
    let tried = Namespace::new("tap").and_then(|place| {
        place.run(|| Tap::open("trial0"))?;
        Ok(place)
    });
    match tried {
        Ok(place) => Some(place),
        Err(error @ LinkError::Call { .. }) => {
            println!("SKIP {test}: {error}");
            None
        }
        Err(error) => panic!("{test}: {error}"),
    }
}

/// Sends numbered frames through a socket.
fn send(socket: &FrameSocket) {
    let frames = ok(NumberedFrames::new(Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]), SIZE));
    let mut frame = [0; SIZE];
    for number in 0..COUNT {
        frames.write(number, &mut frame);
        assert!(ok(socket.send(&frame)), "there is room for frame {number}");
    }
}

/// Receives until all numbered frames are there, each once.
fn receive_all(socket: &FrameSocket) {
    let (mut tally, mut frame) = (Tally::new(COUNT), [0; 2048]);
    wait_until("numbered frames", || {
        while let Some(len) = ok(socket.receive(&mut frame)) {
            tally.take(&frame[..len]);
        }
        tally.good >= COUNT
    });
    assert_eq!((tally.good, tally.again, tally.corrupt), (COUNT, 0, 0));
}

#[test]
fn drop_takes_what_the_kernel_sends_through_a_tap() {
    let name = "drop_takes_what_the_kernel_sends_through_a_tap";
    let Some(place) = place(name) else { return };
    let running = Place::In(&place).start(name, &["drop", "tap:t0", "--verify"]);
    let running = running.expect("there are TAPs");
    send(&ok(FrameSocket::open(&place, "t0")));
    running.wait_for_count(&["rx_packets"], COUNT);
    let document = running.interrupt();
    assert_eq!(document["mode"], "tap", "{document}");
    assert_eq!((number(&document, "received"), number(&document, "lost_total")), (COUNT, 0), "{document}");
    assert_eq!(number(&document["numbered"], "good"), COUNT, "{document}");
    assert!(ok(place.netlink()).link("t0").is_err(), "the TAP ended with the command");
}

#[test]
fn echo_and_gen_send_into_a_tap() {
    let name = "echo_and_gen_send_into_a_tap";
    let Some(place) = place(name) else { return };
    let running = Place::In(&place).start(name, &["echo", "tap:t0"]).expect("there are TAPs");
    let socket = ok(FrameSocket::open(&place, "t0"));
    send(&socket);
    receive_all(&socket);
    assert_eq!(number(&running.interrupt(), "sent"), COUNT);
    let running = Place::In(&place).start(name, &["gen", "tap:t1", "--count", "1000", "--size", "1514"]);
    assert_eq!(number(&running.expect("there are TAPs").end(), "sent"), 1000);
}

#[test]
fn forward_joins_af_xdp_and_a_tap() {
    let name = "forward_joins_af_xdp_and_a_tap";
    let Some(hosts) = hosts(name, &TwoHostsParams::default()) else { return };
    if place(name).is_none() {
        return;
    }
    for interfaces in [["near0", "tap:t0"], ["tap:t0", "near0"]] {
        let arguments = ["forward", interfaces[0], interfaces[1]];
        let Some(running) = Place::Between(&hosts).start(name, &arguments) else { return };
        let kernel = ok(hosts.run_between(|| FrameSocket::open_here("t0")));
        let far = ok(FrameSocket::of(&hosts.a));
        send(&kernel);
        receive_all(&far);
        send(&far);
        receive_all(&kernel);
        let document = running.interrupt();
        assert_eq!((number(&document, "received"), number(&document, "sent")), (2 * COUNT, 2 * COUNT));
        let modes = document["interfaces"].as_array().expect("a list").iter().map(|of| of["mode"] == "tap");
        assert_eq!(modes.collect::<Vec<_>>(), interfaces.map(|of| of == "tap:t0"), "{document}");
    }
}

#[test]
fn options_of_af_xdp_are_refused_for_a_tap() {
    let Some(place) = place("options_of_af_xdp_are_refused_for_a_tap") else { return };
    for (arguments, words) in [
        (
            &["drop", "tap:t0", "--match", "udp"][..],
            "--match applies only to AF_XDP sockets, and tap:t0 has none",
        ),
        (&["drop", "tap:t0", "--mode", "copy"], "--mode applies only to AF_XDP sockets"),
        (&["gen", "tap:t0", "--tx-mode", "ring"], "--tx-mode applies only to AF_XDP sockets"),
        (&["drop", "tap:t0", "--queues", "1"], "t0 has no queue 1"),
        (&["drop", "tap:lo"], "is not a TAP"),
        (&["drop", "tap:"], "1 to 15 bytes"),
        (&["forward", "tap:t0", "tap:t0"], "another program uses this TAP"),
    ] {
        let said = Place::In(&place).error(arguments);
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
}
