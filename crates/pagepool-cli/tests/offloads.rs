//! Offloads that falsify what the commands receive: what they do to packets, the warnings, and
//! `--fix-offloads`. Every frame comes from a TAP and goes to one, which show VLAN tags where they are.

// UNSAFETY: an option of sockets that the standard library has not.
#![expect(unsafe_code)]

use crate::between;
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::between::{BpfFolder, LIMIT, Place, Running, binary, ok, text, wait_until};
use pagepool_lab::{LinkSettings, TempFolder, or_skip};
use pagepool_link::{
    Ethtool, LinkError, Mac, Namespace, Netlink, Offload, Tap, VethEnd, XdpMode, offload_faults,
};
use pagepool_net::{NumberedFrames, Tally};

const HOST: Mac = Mac([2, 0, 0, 0, 0, 1]);
const ELSEWHERE: Mac = Mac([2, 0, 0, 0, 0, 9]);
const VLAN_100: &[u8] = &[0x81, 0x00, 0, 100];
/// 802.1ad: 200 around 300.
const QINQ: &[u8] = &[0x88, 0xa8, 0, 200, 0x81, 0x00, 1, 44];

/// `host0` is a TAP on a bridge, as a virtual machine's. The bridge's other port is `far0`, whose peer is
/// `near0`; there, or at `out0`, a TAP, a command works. A bridge has VLAN tags beside its packets.
struct Lab {
    namespace: Namespace,
    host: Tap,
    out: Tap,
}

fn ip(namespace: &Namespace, words: &str) -> bool {
    let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
    namespace.run(move || Command::new("ip").args(words).output().is_ok_and(|done| done.status.success()))
}

fn end<'a>(name: &'a str, namespace: Option<&'a Namespace>) -> VethEnd<'a> {
    VethEnd { name, namespace: namespace.map(AsFd::as_fd), mac: None, mtu: 1500, queues: 1 }
}

impl Lab {
    /// Or why there is none, which is printed.
    fn new(test: &str) -> Option<Self> {
        let namespace = or_skip(test, Namespace::new("between"))?;
        let taps: Result<_, LinkError> = namespace.run(|| Ok((Tap::open("host0")?, Tap::open("out0")?)));
        let (host, out) = match taps {
            Ok(taps) => taps,
            Err(error @ LinkError::Call { call: "open(/dev/net/tun)" | "ioctl(TUNSETIFF)", .. }) => {
                println!("SKIP {test}: no TAP: {error}");
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        let mut netlink = ok(namespace.netlink());
        ok(netlink.add_veth(&end("near0", None), &end("far0", None)));
        for link in ["near0", "far0"] {
            let index = ok(netlink.link(link)).index;
            ok(netlink.set_up(index, true));
        }
        for words in
            ["link add name br0 type bridge", "link set host0 master br0", "link set far0 master br0"]
        {
            if !ip(&namespace, words) {
                println!("SKIP {test}: no `ip`, or a kernel without bridges");
                return None;
            }
        }
        let index = ok(netlink.link("br0")).index;
        ok(netlink.set_up(index, true));
        for link in ["near0", "br0"] {
            ok(netlink.wait_up(link, LIMIT));
        }
        Some(Self { namespace, host, out })
    }

    fn start(&self, test: &str, arguments: &[&str]) -> Option<Running> {
        Place::In(&self.namespace).start(test, arguments)
    }

    /// The offloads of a link that are on.
    fn on(&self, link: &'static str) -> Vec<Offload> {
        self.namespace.run(move || ok(ok(Ethtool::open()).offloads(link)))
    }

    fn set(&self, link: &'static str, offload: Offload, on: bool) {
        self.namespace.run(move || ok(ok(Ethtool::open()).set_offload(link, offload, on)));
    }
}

/// A numbered frame with tags, and the number and the tags of one.
fn tagged(number: u64, tags: &[u8], size: usize) -> Vec<u8> {
    let frames = ok(NumberedFrames::new(HOST, ELSEWHERE, size));
    let mut frame = vec![0; size];
    frames.write(number, &mut frame);
    frame.splice(12..12, tags.iter().copied());
    frame
}

/// What is at the place of tags in the first numbered frame that comes, which is whole without them.
/// `again` sends one; on a busy machine the first may come before the command takes packets.
fn tags_of(from: &Tap, size: usize, mut again: impl FnMut()) -> Vec<u8> {
    let (start, mut room) = (Instant::now(), vec![0; 10_000]);
    while start.elapsed() < LIMIT {
        again();
        while from.wait(Duration::from_millis(500)) {
            let Some(len) = ok(from.receive(&mut room)) else { break };
            let Some(tags) = len.checked_sub(size).filter(|tags| [0, 4, 8].contains(tags)) else { continue };
            let mut frame = room[..len].to_vec();
            let tags: Vec<u8> = frame.drain(12..12 + tags).collect();
            let mut tally = Tally::new(1000);
            tally.take(&frame);
            if tally.good == 1 {
                return tags;
            }
        }
    }
    panic!("no numbered frame of {size} bytes came in {LIMIT:?}");
}

/// The tags of a frame that went from the host through `forward near0 out0`, or came back from `echo near0`.
fn through(lab: &Lab, back: bool, tags: &[u8]) -> Vec<u8> {
    let to = if back { &lab.host } else { &lab.out };
    tags_of(to, 64, || assert!(ok(lab.host.send(&tagged(7, tags, 64))), "there is room for a frame"))
}

#[test]
fn vlan_tags_vanish_with_a_warning_and_stay_with_fixed_offloads() {
    let name = "vlan_tags_vanish_with_a_warning_and_stay_with_fixed_offloads";
    let Some(lab) = Lab::new(name) else { return };
    let before = lab.on("far0");
    for (arguments, back) in [
        (&["forward", "near0", "out0"][..], false),
        (&["forward", "out0", "near0"], false),
        (&["echo", "near0"], true),
    ] {
        let Some(running) = lab.start(name, arguments) else { return };
        let said = running.said.concat();
        let line = "ethtool -K far0 ";
        assert!(said.contains(line) && said.contains(" txvlan off tx-vlan-stag-hw-insert off"), "{said}");
        let run = "VLAN tags, or longer than the MTU. Use --fix-offloads, or run: ethtool";
        assert!(said.contains(run), "{said}");
        assert_eq!(
            through(&lab, back, VLAN_100),
            [0; 0],
            "the tag is beside the packet, where XDP does not look"
        );
        assert_eq!(through(&lab, back, QINQ), QINQ[4..], "and so is the outer one of two");
        running.interrupt();
        assert_eq!(lab.on("far0"), before, "nothing is changed unasked");

        let Some(running) = lab.start(name, &[arguments, &["--fix-offloads"]].concat()) else { return };
        assert!(!running.said.concat().contains("warning"), "{:?}", running.said);
        assert_eq!(through(&lab, back, VLAN_100), VLAN_100);
        assert_eq!(through(&lab, back, QINQ), QINQ);
        running.interrupt();
        assert_eq!(lab.on("far0"), before, "put back");
    }
}

#[test]
fn a_veth_takes_no_tags_out_of_what_arrives() {
    let name = "a_veth_takes_no_tags_out_of_what_arrives";
    let Some(lab) = Lab::new(name) else { return };
    for offload in Offload::OF_SENDER {
        lab.set("far0", offload, false);
    }
    for link in ["native", "generic"] {
        assert!(lab.on("near0").contains(&Offload::RxVlan), "which has no effect");
        for link in ["near0", "out0"] {
            lab.set(link, Offload::Gro, false);
        }
        let Some(running) = lab.start(name, &["forward", "near0", "out0", "--mode", link]) else { return };
        assert!(!running.said.concat().contains("ethtool"), "{:?}", running.said);
        for tags in [VLAN_100, QINQ] {
            assert_eq!(through(&lab, false, tags), tags, "{link}");
        }
        running.interrupt();
    }
}

#[test]
fn drop_writes_the_tags_that_it_sees() {
    let name = "drop_writes_the_tags_that_it_sees";
    let Some(lab) = Lab::new(name) else { return };
    let folder = TempFolder::new("offloads").expect("a folder");
    for (more, tags) in [(&[][..], &[][..]), (&["--fix-offloads"], VLAN_100)] {
        let file = folder.path().join(format!("drop{}.pcap", more.len()));
        let path = file.to_str().expect("a path of ours");
        let arguments = [&["drop", "near0", "--pcap", path], more].concat();
        let Some(running) = lab.start(name, &arguments) else { return };
        wait_until("some frames come", || {
            assert!(ok(lab.host.send(&tagged(7, VLAN_100, 64))));
            running.counted(&["rx_packets"]) >= 5
        });
        let said = running.said.concat();
        assert_eq!(
            said.contains("warning: packets from near0's peer far0 arrive without "),
            more.is_empty(),
            "{said}"
        );
        running.interrupt();
        let bytes = std::fs::read(&file).expect("drop wrote it");
        let mut expected = tagged(7, tags, 64);
        expected.truncate(40);
        assert!(bytes.windows(40).any(|seen| seen == expected), "{more:?}: {} bytes", bytes.len());
    }
}

#[test]
fn offloads_are_put_back_whatever_the_end() {
    let name = "offloads_are_put_back_whatever_the_end";
    let Some(lab) = Lab::new(name) else { return };
    lab.set("far0", Offload::Tso, false);
    let before = lab.on("far0");
    assert!(before.contains(&Offload::TxVlan) && before.contains(&Offload::TxChecksum), "{before:?}");
    let drop = ["drop", "near0", "--fix-offloads"];

    // A refusal.
    let said = Place::In(&lab.namespace).error(&[&drop[..], &["--mode", "zerocopy"]].concat());
    assert!(said.contains("does not support zero copy") || said.contains("CAP_"), "{said}");
    assert_eq!(lab.on("far0"), before, "{said}");

    // The end of its time.
    let output = Place::In(&lab.namespace).output(binary(&[&drop[..], &["--seconds", "1"]].concat()));
    let said = text(&output.stderr);
    assert_eq!(lab.on("far0"), before, "{said}");

    for signal in ["-INT", "-TERM", "-HUP", "-KILL"] {
        let Some(running) = lab.start(name, &drop) else { return };
        let said = running.said.concat();
        assert!(Offload::OF_SENDER.iter().all(|offload| !lab.on("far0").contains(offload)), "{said}");
        let kill = Command::new("kill").args([signal, &running.id().to_string()]).status();
        assert!(kill.expect("every Linux has kill").success());
        let undo = said.split("undo that with ethtool ").nth(1).expect("it says how").lines().next();
        if signal != "-KILL" {
            running.end();
        } else {
            std::mem::drop(running); // waits for it
            assert!(!lab.on("far0").contains(&Offload::TxVlan), "SIGKILL leaves them off");
            let words: Vec<String> = undo.expect("a line").split(' ').map(str::to_owned).collect();
            let done = lab.namespace.run(move || Command::new("ethtool").args(words).output());
            match done {
                Ok(done) => assert!(done.status.success(), "{undo:?}: {}", text(&done.stderr)),
                Err(error) => return println!("SKIP the end of {name}: no ethtool: {error}"),
            }
        }
        assert_eq!(lab.on("far0"), before, "{signal}: what was off before stays off");
    }
}

/// Its XDP program stays attached in between.
#[test]
fn offloads_are_restored_by_a_run_with_a_pinned_link() {
    let name = "offloads_are_restored_by_a_run_with_a_pinned_link";
    let (Some(lab), Some(folder)) = (Lab::new(name), BpfFolder::new(name)) else { return };
    let (before, dir) = (lab.on("far0"), folder.path(""));
    let arguments = ["drop", "near0", "--mode", "generic", "--fix-offloads", "--pin", &dir];
    for _ in 0..2 {
        let Some(running) = lab.start(name, &arguments) else { return };
        let on = lab.on("far0");
        assert!(Offload::OF_SENDER.iter().all(|offload| !on.contains(offload)), "{on:?}");
        running.interrupt();
        assert_eq!(lab.on("far0"), before);
    }
}

#[test]
fn what_cannot_be_put_back_is_said() {
    let name = "what_cannot_be_put_back_is_said";
    let Some(lab) = Lab::new(name) else { return };
    let mut held = lab.namespace.run(|| {
        let (mut netlink, ethtool) = (ok(Netlink::open()), ok(Ethtool::open()));
        let link = ok(netlink.link("near0"));
        ok(ok(offload_faults(&mut netlink, &ethtool, &link, XdpMode::Native))[0].hold_off())
            .expect("those of far0")
    });
    let undo = held.undo();
    assert!(undo.contains("tx-tcp-segmentation on"), "{undo}");
    let Some(running) = lab.start(name, &["drop", "near0", "--mode", "native"]) else { return };
    let said = held.restore().expect_err("the kernel takes segmentation away").to_string();
    assert!(said.starts_with("tcp-segmentation-offload of \"far0\" stays off"), "{said}");
    assert!(lab.on("far0").contains(&Offload::TxVlan), "all else is put back");
    running.interrupt();
    lab.set("far0", Offload::Tso, true);
}

#[test]
fn what_a_generic_program_gets_merged_is_fixed() {
    let name = "what_a_generic_program_gets_merged_is_fixed";
    let Some(lab) = Lab::new(name) else { return };
    lab.set("near0", Offload::Gro, true);
    let drop = ["drop", "near0", "--mode", "generic"];
    let Some(running) = lab.start(name, &drop) else { return };
    let said = running.said.concat();
    assert!(said.contains("ethtool -K near0 gro off") && said.contains("longer than the MTU"), "{said}");
    running.interrupt();
    let Some(running) = lab.start(name, &[&drop[..], &["--fix-offloads"]].concat()) else { return };
    assert!(!lab.on("near0").contains(&Offload::Gro), "{:?}", running.said);
    running.interrupt();
    assert!(lab.on("near0").contains(&Offload::Gro));
}

/// `near1` of the lab, whose peer `far1` is in another namespace.
fn elsewhere(lab: &Lab) -> Namespace {
    let there = ok(Namespace::new("there"));
    let mut netlink = ok(lab.namespace.netlink());
    ok(netlink.add_veth(&end("near1", None), &end("far1", Some(&there))));
    let index = ok(netlink.link("near1")).index;
    ok(netlink.set_up(index, true));
    let far = ok(ok(there.netlink()).link("far1")).index;
    ok(ok(there.netlink()).set_up(far, true));
    ok(netlink.wait_up("near1", LIMIT));
    there
}

/// The offloads of `far1` that are on.
fn far_on(there: &Namespace) -> Vec<Offload> {
    ok(ok(there.ethtool()).offloads("far1"))
}

/// The kernel's number of a namespace.
fn id_of(namespace: &Namespace) -> u64 {
    namespace.run(|| std::fs::metadata("/proc/thread-self/ns/net")).expect("every Linux has it").ino()
}

/// A name of `ip netns` for a namespace.
struct Name(String);

impl Name {
    /// Gives it one, or prints why it cannot.
    fn new(test: &str, of: &Namespace) -> Option<Self> {
        let name = format!("pagepool-{}-{}", std::process::id(), id_of(of));
        let thread = of.run(|| std::fs::read_link("/proc/thread-self").expect("every Linux has /proc"));
        let thread = thread.file_name().and_then(|name| name.to_str()).expect("a number").to_owned();
        match Command::new("ip").args(["netns", "attach", &name, &thread]).output() {
            Ok(done) if done.status.success() => return Some(Self(name)),
            Ok(done) => println!("SKIP {test}: `ip netns attach`: {}", text(&done.stderr)),
            Err(error) => println!("SKIP {test}: no `ip`: {error}"),
        }
        None
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status(); // the name stays if it fails
    }
}

/// A process that is in a namespace until it is dropped.
struct Inhabitant(Child);

impl Inhabitant {
    fn of(namespace: &Namespace) -> Self {
        let cat = || Command::new("cat").stdin(Stdio::piped()).spawn().expect("every Linux has cat");
        Self(namespace.run(cat))
    }
}

impl Drop for Inhabitant {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_peer_in_an_unreachable_namespace_gets_a_warning_only() {
    let name = "a_peer_in_an_unreachable_namespace_gets_a_warning_only";
    let Some(lab) = Lab::new(name) else { return };
    let there = elsewhere(&lab);
    let seen = |lab: &Lab| (lab.on("near1"), far_on(&there));
    let before = seen(&lab);
    let Some(running) = lab.start(name, &["drop", "near1", "--fix-offloads"]) else { return };
    let said = running.said.concat();
    let words = [
        "warning: --fix-offloads changes nothing in namespaces that it cannot see: packets from ",
        "no visible process leads to its namespace. Run at both ends, each with its own name: ",
    ];
    assert!(words.iter().all(|words| said.contains(words)), "{said}");
    running.interrupt();
    assert_eq!(seen(&lab), before);
}

#[test]
fn warnings_match_the_offloads_of_a_peer_in_another_namespace() {
    let name = "warnings_match_the_offloads_of_a_peer_in_another_namespace";
    let Some(lab) = Lab::new(name) else { return };
    let there = elsewhere(&lab);
    let set = |on| {
        let of = Offload::OF_SENDER;
        there.run(move || {
            of.iter().for_each(|&offload| ok(ok(Ethtool::open()).set_offload("far1", offload, on)))
        });
    };
    let said = |lab: &Lab| {
        let running = lab.start(name, &["drop", "near1"])?;
        let said = running.said.concat();
        running.interrupt();
        Some(said)
    };
    let inhabitant = Inhabitant::of(&there);
    let Some(by_process) = said(&lab) else { return };
    let command = format!("nsenter --net=/proc/{}/ns/net ethtool -K far1 tx off ", inhabitant.0.id());
    assert!(by_process.contains(&command), "{command}: {by_process}");
    set(false);
    assert!(!said(&lab).expect("as before").contains("warning"), "near1 has them on, far1 has not");
    set(true);
    let Some(named) = Name::new(name, &there) else { return };
    let by_name = said(&lab).expect("as before");
    let command = format!(". Run: ip netns exec {} ethtool -K far1 tx off ", named.0);
    assert!(by_name.contains(&command), "{command}: {by_name}");
}

#[test]
fn offloads_in_another_namespace_are_warned_of_and_left_alone() {
    let name = "offloads_in_another_namespace_are_warned_of_and_left_alone";
    let Some(lab) = Lab::new(name) else { return };
    let there = elsewhere(&lab);
    let Some(named) = Name::new(name, &there) else { return };
    let (before, own) = (far_on(&there), lab.on("near1"));
    // A native program on a veth makes the kernel turn off segmentation at the other end.
    let drop = ["drop", "near1", "--mode", "generic", "--fix-offloads"];
    let Some(running) = lab.start(name, &drop) else { return };
    let said = running.said.concat();
    let words = [
        "warning: --fix-offloads changes nothing in other network namespaces: packets from ".to_owned(),
        format!(". Run: ip netns exec {} ethtool -K far1 tx off ", named.0),
    ];
    assert!(words.iter().all(|words| said.contains(words)), "{said}");
    assert_eq!((far_on(&there), lab.on("near1")), (before, own), "both ends are as they were");
    let threads = std::fs::read_dir(format!("/proc/{}/task", running.id())).expect("it runs");
    for thread in threads.map(|thread| thread.expect("it runs").path()) {
        let id = std::fs::metadata(thread.join("ns/net")).expect("it runs").ino();
        assert_eq!(id, id_of(&lab.namespace), "no thread stays in the other namespace");
    }
    running.interrupt();
}

#[test]
fn if_a_namespace_is_forbidden_the_command_for_it_is_printed() {
    let name = "if_a_namespace_is_forbidden_the_command_for_it_is_printed";
    let Some(lab) = Lab::new(name) else { return };
    let there = elsewhere(&lab);
    let Some(named) = Name::new(name, &there) else { return };
    let before = far_on(&there);
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-sys_admin", env!("CARGO_BIN_EXE_pagepool")]);
    command.args(["drop", "near1", "--fix-offloads", "--seconds", "1"]).env_remove("SSH_CONNECTION");
    command.env("PAGEPOOL_RUN", between::RUN_FOLDER);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if Command::new("setpriv").arg("--version").output().is_err() {
        return println!("SKIP {name}: this machine has no `setpriv` (util-linux)");
    }
    let said = text(&Place::In(&lab.namespace).output(command).stderr).to_owned();
    if !said.contains("setns") && said.contains("CAP_") {
        return println!("SKIP {name}: {said}");
    }
    let words = [
        "They cannot be read: setns failed: network namespace ".to_owned(),
        "CAP_SYS_ADMIN".to_owned(),
        format!(". Run: ip netns exec {} ethtool -K far1 tx off ", named.0),
    ];
    assert!(words.iter().all(|words| said.contains(words)), "{said}");
    assert_eq!(far_on(&there), before);
}

#[test]
fn without_the_right_to_look_at_processes_that_is_said() {
    let name = "without_the_right_to_look_at_processes_that_is_said";
    let Some(lab) = Lab::new(name) else { return };
    let there = elsewhere(&lab);
    let _inhabitant = Inhabitant::of(&there);
    if Command::new("setpriv").arg("--version").output().is_err() {
        return println!("SKIP {name}: this machine has no `setpriv` (util-linux)");
    }
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-sys_ptrace", env!("CARGO_BIN_EXE_pagepool"), "drop", "near1"]);
    command.args(["--seconds", "1"]).env_remove("SSH_CONNECTION");
    command.env("PAGEPOOL_RUN", between::RUN_FOLDER);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let said = text(&Place::In(&lab.namespace).output(command).stderr).to_owned();
    if !said.contains("cannot be read") && said.contains("CAP_") {
        return println!("SKIP {name}: {said}");
    }
    assert!(said.contains(" cannot be examined without CAP_SYS_PTRACE"), "{said}");
}

/// The namespace of a container that ends goes with its interfaces, and so does this end of the veth.
#[test]
fn fixing_offloads_keeps_no_unused_namespace_alive() {
    let name = "fixing_offloads_keeps_no_unused_namespace_alive";
    let Some(lab) = Lab::new(name) else { return };
    let there = elsewhere(&lab);
    let inhabitant = Inhabitant::of(&there);
    let Some(running) = lab.start(name, &["drop", "near1", "--fix-offloads"]) else { return };
    drop((there, inhabitant));
    let (document, said) = running.end_with_words();
    assert_eq!(document["ended_by"], "gone", "{said}");
}

#[test]
fn double_tagged_frames_of_full_mtu_size_are_forwarded() {
    let name = "double_tagged_frames_of_full_mtu_size_are_forwarded";
    let Some(lab) = Lab::new(name) else { return };
    // 3498 and two tags fill what a driver takes into one page.
    for (mtu, more) in [(1500, &[][..]), (1500, &["--chunk-size", "4096"]), (3498, &[])] {
        for link in ["host0", "out0"] {
            let mut netlink = ok(lab.namespace.netlink());
            let index = ok(netlink.link(link)).index;
            ok(netlink.set_mtu(index, mtu));
        }
        let arguments = [&["forward", "host0", "out0"], more].concat();
        let Some(running) = lab.start(name, &arguments) else { return };
        for tags in [&[][..], VLAN_100, QINQ] {
            for size in [64, mtu as usize + 14] {
                let frame = tagged(7, tags, size);
                let send = |tap: &Tap| assert!(ok(tap.send(&frame)), "there is room for a frame");
                assert_eq!(tags_of(&lab.out, size, || send(&lab.host)), tags, "{size} of MTU {mtu} {more:?}");
                assert_eq!(tags_of(&lab.host, size, || send(&lab.out)), tags, "and back");
            }
        }
        assert!(ok(lab.host.send(&tagged(7, QINQ, mtu as usize + 15))));
        wait_until("it is lost", || running.unreceived() + running.counted(&["tx_too_long"]) >= 1);
        let document = running.interrupt();
        let lost = &document["lost"];
        assert_eq!(between::number(&document, "lost_total"), 1, "one byte more than fits: {lost}");
    }
}

#[test]
fn a_veth_takes_one_tag_beyond_its_mtu() {
    let name = "a_veth_takes_one_tag_beyond_its_mtu";
    let Some(lab) = Lab::new(name) else { return };
    let Some(running) = lab.start(name, &["forward", "out0", "near0", "--fix-offloads"]) else { return };
    for (tags, size) in [(VLAN_100, 1514), (QINQ, 1510)] {
        let send = || assert!(ok(lab.out.send(&tagged(7, tags, size))), "there is room for a frame");
        assert_eq!(tags_of(&lab.host, size, send), tags, "{size}");
    }
    assert!(ok(lab.out.send(&tagged(7, QINQ, 1511))));
    running.wait_for_count(&["tx_too_long"], 1);
    let document = running.interrupt();
    assert_eq!(between::number(&document, "lost_total"), 1, "the kernel would drop it unseen: {document}");
}

/// The UDP packets that come out of `forward near0 out0` when the stack behind `far0` sends a datagram that
/// asks to be cut into 1,000 bytes each: their lengths, and how many have a right checksum. It is sent so
/// often until all has come.
fn datagrams(lab: &Lab, times: usize) -> (Vec<usize>, usize) {
    let socket = lab.namespace.run(|| UdpSocket::bind("198.18.0.1:9").expect("the address is br0's"));
    cut_into(&socket, 1000);
    let (mut room, mut seen, mut right) = (vec![0; 70_000], Vec::new(), 0);
    for time in 0..times as u8 {
        (seen, right) = (Vec::new(), 0);
        socket.send_to(&[time; 3000], "198.18.0.2:9").expect("the way is there");
        while seen.iter().sum::<usize>() < 3000 && lab.out.wait(Duration::from_millis(500)) {
            let Some(len) = ok(lab.out.receive(&mut room)) else { break };
            // Of an earlier one a part may come late.
            if len > 42 && room[12..14] == [8, 0] && room[23] == 17 && room[42] == time {
                seen.push(len - 42);
                right += usize::from(checksum_is_right(&room[14..len]));
            }
        }
        if seen.iter().sum::<usize>() >= 3000 {
            break;
        }
    }
    (seen, right)
}

/// Has what is sent at once cut into segments of so many bytes.
fn cut_into(socket: &UdpSocket, bytes: libc::c_int) {
    let (at, len) = ((&raw const bytes).cast(), size_of_val(&bytes) as libc::socklen_t);
    // SAFETY: the option is an int, which lives as long as the call.
    let done = unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, at, len) };
    assert_eq!(done, 0, "Linux 4.18 has it");
}

/// Whether the checksum of a UDP packet over IPv4, without options, is right.
fn checksum_is_right(packet: &[u8]) -> bool {
    let udp = &packet[20..];
    let words = |bytes: &[u8]| -> u32 {
        bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0))).sum()
    };
    let mut sum = words(&packet[12..20]) + 17 + udp.len() as u32 + words(udp);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum == 0xffff
}

#[test]
fn fixing_offloads_restores_checksums_and_segment_sizes() {
    let name = "fixing_offloads_restores_checksums_and_segment_sizes";
    let Some(lab) = Lab::new(name) else { return };
    let words = [
        "addr add 198.18.0.1/24 dev br0",
        "neigh add 198.18.0.2 lladdr 02:00:00:00:00:09 dev br0 nud permanent",
    ];
    assert!(words.iter().all(|words| ip(&lab.namespace, words)));
    for attach in ["native", "generic"] {
        let forward = ["forward", "near0", "out0", "--mode", attach];
        let Some(running) = lab.start(name, &forward) else { return };
        // The kernel keeps a native program's other end from sending long segments, and no other's.
        let cut = attach == "native";
        let expected = if cut { (vec![1000; 3], 0) } else { (Vec::new(), 0) };
        assert_eq!(datagrams(&lab, if cut { 40 } else { 3 }), expected, "{attach}");
        if !cut {
            wait_until("they are lost", || running.unreceived() + running.counted(&["tx_too_long"]) > 0);
        }
        let lost = between::number(&running.interrupt(), "lost_total");
        assert_eq!(lost > 0, !cut, "{attach}: {lost} were too long");
        let Some(running) = lab.start(name, &[&forward[..], &["--fix-offloads"]].concat()) else { return };
        assert_eq!(datagrams(&lab, 40), (vec![1000; 3], 3), "{attach}");
        running.interrupt();
    }
}
