//! The commands over vhost-user devices, with a switch of the tests behind their sockets.

use std::path::PathBuf;

use crate::between::{LIMIT, Place, Running, capture, hosts, number, ok, signal, text, wait_until};
use crate::program::binary;
use pagepool_lab::{FakeSwitch, Fault, Frame, FrameSocket, SwitchParams, TempFolder, Work, request};
use pagepool_link::{Mac, TwoHostsParams};
use pagepool_net::{NumberedFrames, Tally};

const COUNT: u64 = 1000;
const SIZE: usize = 100;

/// A folder with sockets.
struct Sockets(TempFolder);

impl Sockets {
    fn new() -> Self {
        Self(ok(TempFolder::new("pagepool-vhost")))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The device at a socket.
    fn device(&self, name: &str) -> String {
        format!("vhost_user:{}", self.path(name).display())
    }

    fn switch(&self, name: &str, work: Work) -> FakeSwitch {
        ok(FakeSwitch::listen(&self.path(name), SwitchParams { work, ..Default::default() }))
    }
}

fn start(test: &str, arguments: &[&str]) -> Running {
    Place::Here.start(test, arguments).expect("it needs no capability")
}

fn frame(number: u64, size: usize) -> Vec<u8> {
    let frames = ok(NumberedFrames::new(Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]), size));
    let mut bytes = vec![0; size];
    frames.write(number, &mut bytes);
    bytes
}

/// Sends numbered frames on a pair of queues.
fn send(switch: &FakeSwitch, pair: u16) {
    (0..COUNT).for_each(|number| switch.send(Frame { pair, bytes: frame(number, SIZE), ..Frame::default() }));
}

/// Receives so many numbered frames, each once, on pairs of queues.
fn receive_all(switch: &FakeSwitch, count: u64) -> Vec<u16> {
    let (mut tally, mut pairs) = (Tally::new(count), Vec::new());
    while tally.good < count {
        let frame = switch.receive(LIMIT).unwrap_or_else(|| panic!("{} of {count}", tally.good));
        tally.take(&frame.bytes);
        pairs.push(frame.pair);
    }
    assert_eq!((tally.again, tally.corrupt), (0, 0));
    pairs.sort_unstable();
    pairs.dedup();
    pairs
}

#[test]
fn drop_and_echo_take_what_a_switch_sends() {
    let name = "drop_and_echo_take_what_a_switch_sends";
    let sockets = Sockets::new();
    let (switch, device) = (sockets.switch("s", Work::Keep), sockets.device("s"));
    let running = start(name, &["drop", &device, "--verify"]);
    send(&switch, 0);
    running.wait_for_count(&["rx_packets"], COUNT);
    let document = running.interrupt();
    assert_eq!(
        (&document["mode"], &document["interfaces"][0]["name"]),
        (&"vhost_user".into(), &(&*device).into())
    );
    assert_eq!((number(&document, "received"), number(&document, "lost_total")), (COUNT, 0), "{document}");
    assert_eq!(number(&document["numbered"], "good"), COUNT, "{document}");
    assert_eq!(document["ports"][0]["name"], format!("{device}:0"));
    let captured = sockets.path("packets");
    let arguments = ["echo", &device, "--busy-poll", "--pcap", captured.to_str().expect("text")];
    let running = start(name, &arguments);
    send(&switch, 0);
    assert_eq!(receive_all(&switch, COUNT), [0]);
    let document = running.interrupt();
    assert_eq!((number(&document, "sent"), number(&document, "captured")), (COUNT, COUNT), "{document}");
    let packets = capture(&captured);
    assert!(packets.iter().zip(0..).all(|((_, bytes), number)| *bytes == frame(number, SIZE)));
    assert!(document.get("kept").is_none() && document.get("link_lost").is_none(), "{document}");
}

#[test]
fn gen_sends_long_packets_to_a_switch() {
    let name = "gen_sends_long_packets_to_a_switch";
    let sockets = Sockets::new();
    let (switch, device) = (sockets.switch("s", Work::Keep), sockets.device("s"));
    let running = start(name, &["gen", &device, "--count", "1000", "--size", "9000"]);
    let first = switch.receive(LIMIT).expect("it sends");
    assert_eq!(
        (first.bytes.len(), &first.bytes[..8]),
        (9000, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0][..])
    );
    assert_eq!(number(&running.end(), "sent"), 1000);
    assert!(switch.wait(LIMIT, |counts| counts.taken == 1000));
}

#[test]
fn each_pair_of_queues_has_its_thread() {
    let name = "each_pair_of_queues_has_its_thread";
    let sockets = Sockets::new();
    let (switch, device) = (sockets.switch("s", Work::Keep), sockets.device("s"));
    let running = start(name, &["echo", &device, "--queues", "0,1"]);
    for pair in [0, 1] {
        send(&switch, pair);
        assert_eq!(receive_all(&switch, COUNT), [pair]);
    }
    let document = running.interrupt();
    let names = [0, 1].map(|queue| format!("{device}:{queue}"));
    let ports = document["ports"].as_array().expect("a list");
    assert_eq!(ports.iter().map(|port| &port["name"]).collect::<Vec<_>>(), names.each_ref());
    assert!(ports.iter().all(|port| number(port, "tx") == COUNT), "{document}");
    let said = Place::Here.error(&["drop", &device, "--queues", "0-5"]);
    assert!(said.contains("has no queue 5: its back end has 4 of them"), "{said}");
}

#[test]
fn forward_joins_two_switches() {
    let name = "forward_joins_two_switches";
    let sockets = Sockets::new();
    let switches = ["a", "b"].map(|name| sockets.switch(name, Work::Keep));
    let devices = ["a", "b"].map(|name| sockets.device(name));
    let running = start(name, &["forward", &devices[0], &devices[1], "--queues", "0,1"]);
    for [from, to] in [[0, 1], [1, 0]] {
        for pair in [0, 1] {
            send(&switches[from], pair);
            assert_eq!(receive_all(&switches[to], COUNT), [pair]);
        }
    }
    let document = running.interrupt();
    assert_eq!((number(&document, "received"), number(&document, "sent")), (4 * COUNT, 4 * COUNT));
    let paths = document["ports"].as_array().expect("a list").iter().map(|port| number(port, "copied"));
    assert_eq!(paths.sum::<u64>(), 0, "packets are sent from where they were received: {document}");
}

#[test]
fn forward_joins_af_xdp_and_a_switch() {
    let name = "forward_joins_af_xdp_and_a_switch";
    let Some(hosts) = hosts(name, &TwoHostsParams::default()) else { return };
    let sockets = Sockets::new();
    let (switch, device) = (sockets.switch("s", Work::Keep), sockets.device("s"));
    for interfaces in [["near0", &device], [&device, "near0"]] {
        let arguments = ["forward", interfaces[0], interfaces[1]];
        let Some(running) = Place::Between(&hosts).start(name, &arguments) else { return };
        let far = ok(FrameSocket::of(&hosts.a));
        for number in 0..COUNT {
            assert!(ok(far.send(&frame(number, SIZE))));
            if number % 64 == 63 {
                running.wait_for_count(&["rx_packets"], number + 1);
            }
        }
        receive_all(&switch, COUNT);
        send(&switch, 0);
        let (mut tally, mut room) = (Tally::new(COUNT), [0; 2048]);
        wait_until("numbered frames", || {
            while let Some(len) = ok(far.receive(&mut room)) {
                tally.take(&room[..len]);
            }
            tally.good >= COUNT
        });
        let document = running.interrupt();
        assert_eq!((number(&document, "received"), number(&document, "sent")), (2 * COUNT, 2 * COUNT));
        let modes = document["interfaces"].as_array().expect("a list").iter();
        let modes: Vec<_> = modes.map(|of| of["mode"] == "vhost_user").collect();
        assert_eq!(modes, interfaces.map(|of| of != "near0"), "{document}");
    }
}

#[test]
fn a_command_goes_on_while_its_back_end_dies() {
    let name = "a_command_goes_on_while_its_back_end_dies";
    let sockets = Sockets::new();
    let (switch, device) = (sockets.switch("s", Work::Echo), sockets.device("s"));
    let running = start(name, &["echo", &device]);
    (0..32).for_each(|number| switch.send(&frame(number, SIZE)[..]));
    for deaths in 1..=3 {
        let before = switch.counts().taken;
        assert!(switch.wait(LIMIT, |counts| counts.taken > before + 1000), "packets go round");
        switch.disconnect();
        running.wait_for_count(&["link_lost"], deaths);
        // What was in the front end's rings is gone.
        (0..32).for_each(|number| switch.send(&frame(number, SIZE)[..]));
    }
    switch.stop();
    running.wait_for_words("is gone: no packets move until one is connected again");
    let switch = sockets.switch("s", Work::Drop);
    running.wait_for_words(&format!("the back end of {device} is connected"));
    switch.send(&frame(0, SIZE)[..]);
    assert!(switch.wait(LIMIT, |counts| counts.taken == 1), "packets move again");
    let document = running.interrupt();
    assert_eq!(number(&document, "link_lost"), 4, "{document}");
}

#[test]
fn a_command_waits_for_the_back_end_that_connects() {
    let name = "a_command_waits_for_the_back_end_that_connects";
    let sockets = Sockets::new();
    let device = sockets.device("s");
    let running = start(name, &["drop", &format!("{device},server=1")]);
    running.wait_for_words(&format!("no back end has connected to {device}: no packets move until one does"));
    let switch = ok(FakeSwitch::connect(&sockets.path("s"), SwitchParams::default()));
    running.wait_for_words(&format!("the back end of {device} is connected"));
    send(&switch, 0);
    running.wait_for_count(&["rx_packets"], COUNT);
    let document = running.interrupt();
    assert_eq!(document["ports"][0]["name"], format!("{device}:0"), "without the option");
    assert!(!sockets.path("s").exists(), "the socket is removed at the end");
}

#[test]
fn buffers_that_a_hung_back_end_keeps_are_counted() {
    let name = "buffers_that_a_hung_back_end_keeps_are_counted";
    let sockets = Sockets::new();
    let (switch, device) = (sockets.switch("s", Work::Keep), sockets.device("s"));
    let running = start(name, &["drop", &device]);
    switch.send(&frame(0, SIZE)[..]);
    running.wait_for_count(&["rx_packets"], 1);
    switch.set_fault(Some(Fault::Silent(request::GET_VRING_BASE)));
    signal("-INT", running.id());
    let (output, document, said) = running.ended();
    let [kept, missing] = ["kept", "missing"].map(|key| number(&document, key));
    assert!(kept >= 1024 && missing == 0 && output.status.success(), "{said}{document}");
    assert_eq!(kept, number(&document["ports"][0]["nic"], "kept"));
    let out = |pool: &serde_json::Value| number(pool, "hold") - number(pool, "release");
    assert_eq!(document["pools"].as_array().expect("a list").iter().map(out).sum::<u64>(), kept);
}

#[test]
fn what_a_switch_does_not_have_is_refused() {
    let sockets = Sockets::new();
    let (_switch, device) = (sockets.switch("s", Work::Keep), sockets.device("s"));
    let missing = sockets.device("missing");
    for (arguments, words) in [
        (&["drop", &device, "--match", "udp"][..], "--match applies only to AF_XDP sockets, and vhost_user:"),
        (&["drop", &device, "--mode", "copy"], "--mode applies only to AF_XDP sockets"),
        (&["drop", &device, "--pin", "/sys/fs/bpf"], "--pin applies only to AF_XDP sockets"),
        (&["gen", &device, "--tx-mode", "ring"], "--tx-mode applies only to AF_XDP sockets"),
        (
            &["forward", &device, &format!("{device},server=0")],
            "IF1 and IF2 are the same interface, vhost_user:",
        ),
        (&["drop", &format!("{device},mtu=9000")], "the option is mtu=9000, but must be server=1 to listen"),
        (&["drop", "vhost_user:"], "device is vhost_user:, but must be vhost_user:PATH of a socket"),
        (&["drop", &missing], "start the back end, or listen yourself"),
        (&["drop", &format!("{device},server=1")], "another process listens at "),
    ] {
        let said = Place::Here.error(arguments);
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
}

/// What an observer prints on standard output.
fn said(arguments: &[&str]) -> String {
    let output = Place::Here.output(binary(arguments));
    text(&output.stdout).to_owned()
}

#[test]
fn the_doctor_finds_that_the_back_end_is_gone() {
    let sockets = Sockets::new();
    let (switch, device) = (sockets.switch("s", Work::Keep), sockets.device("s"));
    let running = start("the_doctor_finds_that_the_back_end_is_gone", &["drop", &device]);
    switch.send(&frame(0, SIZE)[..]);
    running.wait_for_count(&["rx_packets"], 1);
    switch.stop();
    running.wait_for_count(&["link_lost"], 1);
    let said = said(&["doctor", "--json", &running.id().to_string()]);
    let document: serde_json::Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}"));
    let found = document["findings"].as_array().expect("a list");
    assert_eq!(found.iter().map(|of| &of["rule"]).collect::<Vec<_>>(), ["back_end_lost"], "{document}");
    assert!(
        found[0]["place"].as_str().is_some_and(|place| place.ends_with(&format!("{device}:0"))),
        "{document}"
    );
    running.interrupt();
}

#[test]
fn observers_name_the_socket() {
    let name = "observers_name_the_socket";
    let sockets = Sockets::new();
    let (switch, device) = (sockets.switch("s", Work::Keep), sockets.device("s"));
    let running = start(name, &["drop", &device]);
    switch.send(&frame(0, SIZE)[..]);
    running.wait_for_count(&["rx_packets"], 1);
    let queue = format!("{device}:0");
    for arguments in [&["show", &queue][..], &["list"]] {
        let said = said(arguments);
        assert!(said.contains(&queue), "{arguments:?}: {said}");
    }
    running.interrupt();
}
