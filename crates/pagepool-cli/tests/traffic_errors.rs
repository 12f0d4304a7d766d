//! What `pagepool drop`, `echo`, `forward` and `gen` do not do, or warn of, and whether they say why and what
//! helps.

use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::between::{Place, binary, hosts, ok, text};
use pagepool_lab::{LinkSettings, TempFolder};
use pagepool_link::{Ethtool, Netlink, Offload, TwoHosts, TwoHostsParams, VethEnd};

/// Of nobody, who may do nothing.
const NOBODY: u32 = 65_534;

fn near(test: &str) -> Option<TwoHosts> {
    hosts(test, &TwoHostsParams::default())
}

/// A second of a command that is to work, and what it says on standard error.
fn works(hosts: &TwoHosts, mut command: Command) -> Option<String> {
    command.args(["--seconds", "1"]);
    let output = Place::Between(hosts).output(command);
    let said = text(&output.stderr).to_owned();
    if said.contains("CAP_") {
        return None;
    }
    let shown = text(&output.stdout);
    // Nothing is sent to it, which is all that is wrong.
    let well =
        output.status.success() || shown.trim_end().ends_with("No packets moved. Buffers: all returned.");
    assert!(well, "{said}{shown}");
    Some(said)
}

const COMMANDS: [&[&str]; 4] =
    [&["drop", "near0"], &["echo", "near0"], &["forward", "near1", "near0"], &["gen", "near0"]];

#[test]
fn the_default_route_is_refused_without_yes() {
    let name = "the_default_route_is_refused_without_yes";
    let Some(hosts) = near(name) else { return };
    let index = hosts.near[0].index;
    hosts.run_between(move || {
        let mut netlink = ok(Netlink::open());
        ok(netlink.add_address(index, [192, 0, 2, 8].into(), 24));
        ok(netlink.add_route([0, 0, 0, 0].into(), 0, [192, 0, 2, 1].into()));
    });
    for command in COMMANDS {
        let said = Place::Between(&hosts).error(command);
        assert!(
            said.contains("near0") && said.contains("the default route") && said.contains("--yes"),
            "{said}"
        );
    }
    Place::Between(&hosts).error(&["drop", "lo"]);
    let Some(said) = works(&hosts, binary(&["drop", "af_xdp:near1"])) else {
        return println!("SKIP {name}: no AF_XDP");
    };
    assert!(said.is_empty(), "nobody depends on that: {said}");
    let meant = works(&hosts, binary(&["drop", "near0", "--yes"])).unwrap_or_default();
    assert!(meant.contains("warning") && meant.contains("the default route"), "{meant}");
}

#[test]
fn the_own_ssh_session_is_refused() {
    let name = "the_own_ssh_session_is_refused";
    let Some(hosts) = near(name) else { return };
    let index = hosts.near[0].index;
    hosts.run_between(move || ok(ok(Netlink::open()).add_address(index, [192, 0, 2, 8].into(), 24)));
    let over_ssh = |arguments: &[&str], server: &str| {
        let mut command = binary(arguments);
        command.env("SSH_CONNECTION", format!("192.0.2.7 50000 {server} 22"));
        command
    };
    for command in COMMANDS {
        let output = Place::Between(&hosts).output(over_ssh(command, "192.0.2.8"));
        let said = text(&output.stderr);
        assert!(!output.status.success(), "{said}");
        assert!(said.contains("SSH session from 192.0.2.7") && said.contains("--yes"), "{said}");
    }
    let other = over_ssh(&["drop", "near1"], "192.0.2.8");
    if works(&hosts, other).is_none() {
        return println!("SKIP {name}: no AF_XDP");
    }
    works(&hosts, over_ssh(&["echo", "near0", "--yes"], "192.0.2.8"));
}

#[test]
fn errors_name_what_is_missing_and_what_exists() {
    let name = "errors_name_what_is_missing_and_what_exists";
    let Some(hosts) = near(name) else { return };
    let cases: [(&[&str], &[&str]); 27] = [
        (&["drop", "af_xdp:nope0"], &["nope0", "near0, near1"]),
        (&["drop", "vfio:0000:01:00.0"], &["vfio:0000:01:00.0", "af_xdp:INTERFACE"]),
        (&["gen", "memory:"], &["both ends of memory: are in this process", "af_xdp:INTERFACE"]),
        (&["forward", "af_xdp:near0", "near0"], &["the same interface", "pagepool echo near0"]),
        (&["drop", "nope0"], &["nope0", "near0, near1"]),
        (&["drop", "a/b"], &["a/b", "near0, near1"]),
        (&["drop", ""], &["1 to 127 bytes"]),
        (&["drop", "near0", "--queues", "1"], &["near0 has no queue 1", "its only queue is 0"]),
        (&["forward", "near0", "near1", "--queues", "0-3"], &["near0 has no queue 1"]),
        (
            &["forward", "near0", "near0"],
            &["IF1 and IF2 are the same interface, near0", "pagepool echo near0"],
        ),
        (&["drop", "near0", "--queues", "x"], &["0-3"]),
        (&["drop", "near0", "--cpus", "4000"], &["CPU 4000", "these are: 0"]),
        (&["drop", "near0", "--threads", "2"], &["--threads is 2", "at most 1"]),
        (&["drop", "near0", "--chunk-size", "3000"], &["2048 or 4096", "another multiple of 64"]),
        (&["gen", "near0", "--mode", "generic"], &["--mode is native or generic", "gen attaches no"]),
        (&["drop", "near0", "--ring", "100"], &["power of two"]),
        (&["drop", "near0", "--ring", "8192"], &["at most --ring 4096"]),
        (&["gen", "near0", "--size", "1515"], &["64 to 1514", "ip link set near0 mtu 1501"]),
        (&["gen", "near0", "--size", "63"], &["63", "64 to 9,000"]),
        (&["gen", "near0", "--dst", "1:2"], &["six bytes"]),
        (
            &["gen", "near0", "--rate", "1x"],
            &["'1x' is not a number of packets a second, e.g. 1000 (1k, 1M and 0.5G work"],
        ),
        (&["gen", "near0", "--count", "0"], &["the number of packets is at least 1"]),
        (&["drop", "near0", "--verify=1T"], &["'1T' is not a number of packets"]),
        (&["drop", "near0", "--pcap", "/nowhere/file"], &["/nowhere/file"]),
        (&["drop", "near0", "--pcap", "/dev/full"], &["/dev/full", "No space"]),
        (&["drop", "near0", "--threads", "1x"], &["'1x' is not a number of threads, 1 to 65,535"]),
        (&["drop", "near0", "--busy-poll=0"], &["the number of packets is 1 to 65,535"]),
    ];
    for (arguments, words) in cases {
        let said = Place::Between(&hosts).error(arguments);
        if said.contains("CAP_") {
            return println!("SKIP {name}: {}", said.trim());
        }
        assert!(said.starts_with("pagepool: ") && !said.contains("error: "), "{arguments:?}: {said}");
        for word in words {
            assert!(said.contains(word), "{arguments:?}: {word} is not in: {said}");
        }
    }
    let said = Place::Between(&hosts).error(&["drop", "near0", "--mode", "zerocopy"]);
    assert!(
        said.contains(
            "the driver does not support zero copy here (chunk 2048, no XDP program); use --mode copy"
        ),
        "{said}"
    );
}

#[test]
fn a_capture_refuses_symbolic_links_and_fifos_without_reader() {
    let name = "a_capture_refuses_symbolic_links_and_fifos_without_reader";
    let Some(hosts) = near(name) else { return };
    let folder = TempFolder::new("pagepool-links").expect("a new folder");
    let [new, link, fifo] = ["new", "link", "fifo"].map(|file| folder.path().join(file));
    let file = |path: &std::path::Path| path.to_str().expect("text").to_owned();
    let Some(_) = works(&hosts, binary(&["drop", "near0", "--pcap", &file(&new)])) else {
        return println!("SKIP {name}: no AF_XDP");
    };
    let made = std::fs::metadata(&new).expect("the command made it");
    assert_eq!((made.mode() & 0o777, made.len()), (0o600, 24), "its owner's alone");
    std::os::unix::fs::symlink(&new, &link).expect("a folder of this test");
    let said = Place::Between(&hosts).error(&["drop", "near0", "--pcap", &file(&link)]);
    assert!(said.contains("is a symbolic link: use the file"), "{said}");
    let Ok(true) = Command::new("mkfifo").arg(&fifo).status().map(|status| status.success()) else {
        return println!("SKIP {name}: this machine has no mkfifo");
    };
    let said = Place::Between(&hosts).error(&["drop", "near0", "--pcap", &file(&fifo)]);
    assert!(said.contains("has no reader: start its reader first"), "{said}");
    // Opened for writing, too: a reader alone would wait for its writer.
    let mut reader = std::fs::File::options().read(true).write(true).open(&fifo).expect("it is there");
    works(&hosts, binary(&["drop", "near0", "--pcap", &file(&fifo)]));
    let mut header = [0; 24];
    reader.read_exact(&mut header).expect("the command wrote it");
    assert_eq!(header[..4], 0xa1b2_3c4d_u32.to_ne_bytes());
}

#[test]
fn an_already_attached_program_is_named() {
    let name = "an_already_attached_program_is_named";
    let Some(hosts) = near(name) else { return };
    let Some(running) = Place::Between(&hosts).start(name, &["drop", "near0"]) else { return };
    let link = hosts.run_between(|| ok(ok(Netlink::open()).link("near0")));
    let id = link.xdp.first().expect("the first one's").id;
    let said = Place::Between(&hosts).error(&["echo", "near0"]);
    let why = format!(
        "pagepool: near0 already has XDP program {id} (another pagepool?). Stop it, or, if its process is \
         gone, remove its pinned link: rm /sys/fs/bpf/pagepool-near0, "
    );
    assert!(said.starts_with(&why), "{said}");
    let said = Place::Between(&hosts).error(&["gen", "near0"]);
    assert!(said.contains("queue 0") && said.contains("ss --xdp"), "whose queue it is: {said}");
    assert_eq!(running.interrupt()["interfaces"][0]["program_id"], id);
}

#[test]
fn the_error_names_all_capabilities_that_a_user_lacks() {
    let name = "the_error_names_all_capabilities_that_a_user_lacks";
    let Some(hosts) = near(name) else { return };
    for command in COMMANDS {
        let mut nobody = binary(command);
        nobody.uid(NOBODY).gid(NOBODY);
        if std::fs::metadata(env!("CARGO_BIN_EXE_pagepool")).is_err() || nobody_cannot_run() {
            return println!("SKIP {name}: nobody may not run the binary");
        }
        let output = Place::Between(&hosts).output(nobody);
        assert!(!output.status.success(), "{command:?}");
        let said = text(&output.stderr);
        let all = if command[0] == "gen" { " CAP_NET_RAW" } else { " CAP_NET_ADMIN, CAP_NET_RAW" };
        assert!(said.starts_with("pagepool: ") && said.contains(all), "{command:?}: {said}");
        assert!(command[0] == "gen" || said.contains("CAP_BPF"), "all at once: {said}");
        assert!(said.contains("it locks ") == said.contains("CAP_IPC_LOCK"), "{said}");
        let grant = "setcap cap_net_admin,cap_net_raw,cap_ipc_lock,cap_perfmon,cap_bpf+ep /";
        assert!(said.contains(grant) && said.lines().count() == 1, "{command:?}: {said}");
    }
}

fn nobody_cannot_run() -> bool {
    binary(&["--version"]).uid(NOBODY).gid(NOBODY).output().is_err()
}

#[test]
fn forward_warns_of_offloads_and_prints_the_command() {
    let name = "forward_warns_of_offloads_and_prints_the_command";
    let Some(hosts) = near(name) else { return };
    let forward =
        |arguments: &[&str]| works(&hosts, binary(&[&["forward", "near0", "near1"], arguments].concat()));
    let Some(said) = forward(&[]) else { return println!("SKIP {name}: no AF_XDP") };
    assert!(!said.contains("ethtool -K"), "all are off: {said}");

    // The other end is in another namespace.
    let set = |link: &'static str, offload: Offload| {
        hosts.run_between(move || ok(ok(Ethtool::open()).set_offload(link, offload, true)));
    };
    set("near0", Offload::TxChecksum);
    let said = forward(&[]).unwrap_or_default();
    let why = "pagepool: warning: packets from near0's peer arrive without checksums, if its offloads \
               equal those of near0. They cannot be read: no `ip netns` name and no visible process leads to \
               its namespace. Run at both ends, each with its own name: ethtool -K near0 tx off\n";
    assert_eq!(said, why, "it is in the namespace of a thread");
    // So does whoever answers, and it is said again at the end.
    let output = Place::Between(&hosts).output(binary(&["echo", "near0", "--seconds", "1"]));
    let (shown, said) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(said, why);
    assert!(shown.contains(&why["pagepool: ".len()..]), "{shown}");

    // What the kernel puts together before a generic program sees it.
    set("near1", Offload::Gro);
    assert!(!forward(&[]).unwrap_or_default().contains("near1"), "a native one sees it before that");
    let said = forward(&["--mode", "generic"]).unwrap_or_default();
    assert!(said.contains("ethtool -K near1 gro off"), "{said}");

    // The other end is here.
    hosts.run_between(|| {
        let mut netlink = ok(Netlink::open());
        let end = |name| VethEnd { name, namespace: None, mac: None, mtu: 1500, queues: 1 };
        ok(netlink.add_veth(&end("one"), &end("other")));
        for link in ["one", "other"] {
            let index = ok(netlink.link(link)).index;
            ok(netlink.set_up(index, true));
        }
        ok(ok(Ethtool::open()).set_offload("one", Offload::TxChecksum, false));
    });
    let said = works(&hosts, binary(&["forward", "near1", "one"])).unwrap_or_default();
    assert!(
        said.contains("packets from one's peer other arrive ") && said.contains("ethtool -K other "),
        "{said}"
    );
}

#[test]
fn an_interface_that_is_down_causes_a_warning() {
    let name = "an_interface_that_is_down_causes_a_warning";
    let Some(hosts) = near(name) else { return };
    let index = hosts.near[0].index;
    hosts.run_between(move || ok(ok(Netlink::open()).set_up(index, false)));
    let why = "pagepool: warning: near0 is down: no packets move. Run: ip link set dev near0 up\n";
    for command in [
        &["drop", "near0", "--verify"][..],
        &["gen", "near0"],
        &["gen", "near0", "--tx-mode", "ring"],
        &["echo", "near0"],
    ] {
        let output = Place::Between(&hosts).output(binary(&[command, &["--seconds", "1"]].concat()));
        let (shown, said) = (text(&output.stdout), text(&output.stderr));
        if said.contains("CAP_") {
            return println!("SKIP {name}: {}", said.trim());
        }
        assert_eq!(said, why, "{command:?}");
        assert_eq!(output.status.code(), Some(3), "{command:?}: {shown}");
        let verdict = "No packets moved. Buffers: all returned.";
        assert!(shown.lines().last().is_some_and(|last| last.starts_with(verdict)), "{command:?}: {shown}");
        let unsent = shown.lines().find(|line| line.starts_with("not sent"));
        assert!(unsent.is_none_or(|row| row.ends_with("  (interface down)")), "{command:?}: {shown}");
        let moved = shown.lines().find(|line| line.starts_with("packets sent"));
        assert!(moved.is_none_or(|row| row.contains("0.0 Mbit/s")), "{command:?}: {shown}");
        assert_eq!(
            command[0] == "gen",
            moved.is_some() && unsent.is_some() || shown.contains("\nlost "),
            "{shown}"
        );
    }
}

#[test]
fn every_option_has_a_help_text() {
    let common = [
        "--queues",
        "--mode",
        "--cpus",
        "--threads",
        "--chunk-size",
        "--hugepages",
        "--ring",
        "--busy-poll",
        "--seconds",
        "--json",
        "--pcap",
        "--stats-every",
        "--yes",
    ];
    for (command, own) in [
        ("drop", &["--match", "--verify"][..]),
        ("echo", &["--match", "--tx-mode"]),
        ("forward", &["--match", "--tx-mode"]),
        ("gen", &["--size", "--rate", "--count", "--dst", "--tx-mode"]),
    ] {
        let output = binary(&[command, "-h"])
            .env("COLUMNS", "1000")
            .output()
            .expect("the binary was built for this test");
        let help = text(&output.stdout);
        for option in common.iter().chain(own) {
            let line = help.lines().find(|line| line.trim_start().starts_with(option));
            let words = line.map_or(0, |line| line.split_whitespace().count());
            assert!(words > 3, "{command} {option}: {line:?}");
        }
    }
}

#[test]
fn the_short_help_of_forward_fits_one_screen() {
    let output = binary(&["forward", "-h"]).env("COLUMNS", "80").output().expect("it was built");
    let help = text(&output.stdout);
    assert!(help.lines().count() <= 40, "{} lines:\n{help}", help.lines().count());
    let options = help.lines().filter(|line| line.trim_start().starts_with("--")).count();
    assert!(options <= 24, "{options} options:\n{help}");
}

/// `ip` with these words; whether it did it.
fn ip(hosts: &TwoHosts, words: &'static str) -> bool {
    hosts.run_between(move || {
        let done = Command::new("ip").args(words.split(' ')).output();
        done.is_ok_and(|output| output.status.success())
    })
}

#[test]
fn an_interface_is_itself_under_another_name() {
    let name = "an_interface_is_itself_under_another_name";
    let Some(hosts) = near(name) else { return };
    if !ip(&hosts, "link property add dev near0 altname other0") {
        return println!("SKIP {name}: no `ip` that gives an interface a second name");
    }
    let said = Place::Between(&hosts).error(&["forward", "near0", "other0"]);
    assert!(said.contains("the same interface, near0") && said.contains("pagepool echo near0"), "{said}");
}

#[test]
fn what_has_no_ethernet_header_is_refused() {
    let name = "what_has_no_ethernet_header_is_refused";
    let Some(hosts) = near(name) else { return };
    if !ip(&hosts, "tuntap add dev tun0 mode tun") {
        return println!("SKIP {name}: no `ip` that makes a TUN");
    }
    for command in [&["drop", "tun0"][..], &["echo", "tun0"], &["forward", "near0", "tun0"], &["gen", "tun0"]]
    {
        let said = Place::Between(&hosts).error(command);
        assert!(said.contains("tun0 is not an Ethernet interface"), "{command:?}: {said}");
    }
}
