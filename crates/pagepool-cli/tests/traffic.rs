//! `pagepool drop`, `echo`, `forward` and `gen` on veths, as a user runs them: every packet is accounted for
//! by content.

use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use crate::between::{
    LIMIT, LinkLosses, Place, Reading, Running, binary, capture, far_ends, frames, hosts, number, ok, pass,
    send, signal, text, wait_until,
};
use pagepool_lab::{LinkSettings, TempFolder, TokenBucket};
use pagepool_link::{Netlink, TwoHosts, TwoHostsParams};
use pagepool_net::Tally;
use serde_json::Value;

/// What is sent in each way of most tests.
const NUMBERS: u64 = 500;

fn params(mtu: u32, queues: u32) -> TwoHostsParams {
    TwoHostsParams { mtu, queues, ..TwoHostsParams::default() }
}

/// Sends numbered frames to a near end.
fn feed(hosts: &TwoHosts, numbers: std::ops::Range<u64>, size: usize) {
    let [far, _] = far_ends(hosts);
    let (frames, mut frame) = (frames(hosts, 0, size), vec![0; size]);
    for number in numbers {
        frames.write(number, &mut frame);
        send(&far, &frame);
        if number % 64 == 63 {
            std::thread::sleep(Duration::from_millis(2)); // the link has room for some hundred
        }
    }
}

/// The same, and waits until a command there has seen them.
fn feed_to(running: &Running, hosts: &TwoHosts, numbers: std::ops::Range<u64>, size: usize) {
    let (before, came) = (LinkLosses::now(hosts), running.counted(&["rx_packets"]) + running.unreceived());
    let count = numbers.end - numbers.start;
    feed(hosts, numbers, size);
    before.wait_for_all(hosts, running, came + count);
}

#[test]
fn drop_receives_and_verifies_every_packet() {
    let name = "drop_receives_and_verifies_every_packet";
    let Some(hosts) = hosts(name, &params(1500, 1)) else { return };
    for size in [64, 1514] {
        let place = Place::Between(&hosts);
        let Some(running) = place.start(name, &["drop", "near0", "--verify"]) else { return };
        let before = LinkLosses::now(&hosts);
        feed_to(&running, &hosts, 0..NUMBERS, size);
        feed_to(&running, &hosts, NUMBERS + 3..NUMBERS + 5, size); // three are missing, and two there
        let document = running.interrupt();
        let numbered = &document["numbered"];
        let lost = LinkLosses::now(&hosts).since(&before, number(&document, "lost_total"));
        assert_eq!(number(numbered, "good") + lost, NUMBERS + 2, "{document}");
        assert_eq!(number(numbered, "missing"), 3 + lost, "{document}");
        assert_eq!(number(numbered, "corrupt") + number(numbered, "duplicates"), 0, "{document}");
        assert_eq!(number(&document, "received"), number(&document, "dropped"), "{document}");
        assert!(number(&document, "received") >= number(numbered, "good"), "{document}");
        assert_eq!((&document["mode"], &document["command"]), (&"af_xdp_native_copy".into(), &"drop".into()));
        assert!(document["cycles"]["receive"].as_f64().is_some_and(|cycles| cycles > 0.0), "{document}");
    }
}

#[test]
fn drop_detects_damaged_packets_and_fails() {
    let name = "drop_detects_damaged_packets_and_fails";
    let Some(hosts) = hosts(name, &params(1500, 1)) else { return };
    let Some(running) = Place::Between(&hosts).start(name, &["drop", "near0", "--verify=100"]) else {
        return;
    };
    let mut frame = [0; 64];
    frames(&hosts, 0, 64).write(7, &mut frame);
    frame[40] ^= 1;
    send(&far_ends(&hosts)[0], &frame);
    running.wait_for_count(&["rx_packets"], 1);
    signal("-INT", running.id());
    let (document, _) = running.fails(&["1 numbered frames were damaged"]);
    assert_eq!((number(&document["numbered"], "corrupt"), &document["ok"]), (1, &false.into()), "{document}");
}

#[test]
fn what_does_not_match_goes_to_the_kernel() {
    let name = "what_does_not_match_goes_to_the_kernel";
    let Some(hosts) = hosts(name, &params(1500, 2)) else { return };
    let near = Ipv4Addr::new(198, 18, 0, 9); // near0 is a host of a's subnet
    hosts.run_between(move || {
        let mut links = ok(Netlink::open());
        let index = ok(links.link("near0")).index;
        ok(links.add_address(index, near, 24));
    });
    let arguments = ["drop", "near0", "--match", "udp dst port 7000"];
    let Some(running) = Place::Between(&hosts).start(name, &arguments) else { return };
    let kernel = hosts.run_between(|| UdpSocket::bind("0.0.0.0:7001").expect("the port is free"));
    let to = |port| {
        hosts.a.namespace.run(move || {
            let socket = UdpSocket::bind("0.0.0.0:0").expect("a free port");
            socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
            socket.connect((near, port)).expect("a route");
            socket
        })
    };
    let ([ours, theirs, nobody], mut bytes) = ([7000, 7001, 7002].map(to), [0; 16]);
    for _ in 0..100 {
        ours.send(b"to the socket").expect("it is sent");
        theirs.send(b"to the kernel").expect("ARP was answered");
        let (len, from) = kernel.recv_from(&mut bytes).expect("it came");
        kernel.send_to(&bytes[..len], from).expect("it is sent");
        assert_eq!(theirs.recv(&mut bytes).map(|len| &bytes[..len]).expect("the answer"), b"to the kernel");
    }
    nobody.send(b"to no socket").expect("it is sent");
    let refused = nobody.recv(&mut bytes).map_err(|error| error.kind());
    assert_eq!(refused, Err(std::io::ErrorKind::ConnectionRefused), "by ICMP of the kernel");
    running.wait_for_count(&["rx_packets"], 100);
    let document = running.interrupt();
    assert_eq!((number(&document, "received"), number(&document, "lost_total")), (100, 0), "{document}");
    assert_eq!(document["interfaces"][0]["match"], "udp dst port 7000", "{document}");
}

#[test]
fn match_works_with_echo_and_forward_and_errors_name_the_column() {
    let name = "match_works_with_echo_and_forward_and_errors_name_the_column";
    let Some(hosts) = hosts(name, &params(1500, 1)) else { return };
    let wrong = Place::Between(&hosts).error(&["drop", "near0", "--match", "udp prot 53"]);
    assert!(wrong.contains("\"prot\" at column 5"), "{wrong}");
    let both = Place::Between(&hosts).error(&["drop", "near0", "--match", "udp", "--map", "/sys/fs/bpf/map"]);
    assert!(both.contains("--map") && both.contains("cannot be used with"), "{both}");
    let Some(document) = forward(name, &hosts, 64, &["--match", "ethertype 0x88b5"]) else { return };
    assert_eq!(document["interfaces"][1]["match"], "ethertype 0x88b5", "{document}");
    let options = ["echo", "near0", "--match", "not ethertype 0x88b5"];
    let Some(running) = Place::Between(&hosts).start(name, &options) else { return };
    feed(&hosts, 0..NUMBERS, 64);
    let [far, _] = far_ends(&hosts);
    let mut other = [0; 64];
    frames(&hosts, 0, 64).write(0, &mut other);
    other[13] = 0xb6;
    send(&far, &other);
    assert!(far.wait(LIMIT), "it comes back");
    let document = running.interrupt();
    assert_eq!(number(&document, "sent"), 1, "{document}");
}

#[test]
fn echo_returns_packets_with_swapped_addresses() {
    let name = "echo_returns_packets_with_swapped_addresses";
    let Some(hosts) = hosts(name, &params(1500, 1)) else { return };
    let Some(running) = Place::Between(&hosts).start(name, &["echo", "near0"]) else { return };
    let [far, _] = far_ends(&hosts);
    pass(&frames(&hosts, 0, 700), NUMBERS, &far, &far);
    let mut frame = [0; 64];
    frames(&hosts, 0, 64).write(0, &mut frame);
    send(&far, &frame);
    let mut back = [0; 64];
    // A longer one may come late that was sent again meanwhile.
    wait_until("it comes back", || ok(far.receive(&mut back)) == Some(64));
    assert_eq!((&back[..6], &back[6..12], &back[12..]), (&frame[6..12], &frame[..6], &frame[12..]));
    let document = running.interrupt();
    assert!(number(&document, "sent") > NUMBERS, "{document}");
    let all = number(&document, "sent") + number(&document, "lost_total") + number(&document, "unsent");
    assert!(all >= number(&document, "received"), "{document}");
}

/// Forwards both ways with these options, and says what became of it.
fn forward(test: &str, hosts: &TwoHosts, size: usize, options: &[&str]) -> Option<Value> {
    let arguments = [&["forward", "near0", "near1"], options].concat();
    let running = Place::Between(hosts).start(test, &arguments)?;
    let [a, b] = far_ends(hosts);
    pass(&frames(hosts, 0, size), NUMBERS, &a, &b);
    pass(&frames(hosts, 1, size), NUMBERS, &b, &a);
    let document = running.interrupt();
    assert!(number(&document, "sent") >= 2 * NUMBERS, "{document}");
    for port in document["ports"].as_array().expect("a list") {
        assert_eq!(number(port, "copied") + number(port, "mapped"), 0, "all are over one memory: {document}");
    }
    Some(document)
}

#[test]
fn forward_takes_packets_for_every_address_until_it_ends() {
    let name = "forward_takes_packets_for_every_address_until_it_ends";
    let Some(hosts) = hosts(name, &params(1500, 1)) else { return };
    let asked = |hosts: &TwoHosts| {
        hosts.run_between(|| ["near0", "near1"].map(|name| ok(ok(Netlink::open()).link(name)).promiscuity))
    };
    let before = asked(&hosts);
    for (option, more) in [(&[][..], 1), (&["--no-promisc"], 0)] {
        let arguments = [&["forward", "near0", "near1"], option].concat();
        let Some(running) = Place::Between(&hosts).start(name, &arguments) else { return };
        assert_eq!(asked(&hosts), before.map(|before| before + more), "{option:?}");
        let [a, b] = far_ends(&hosts);
        pass(&frames(&hosts, 0, 64), 64, &a, &b);
        running.interrupt();
        assert_eq!(asked(&hosts), before, "{option:?}");
    }
    let Some(running) = Place::Between(&hosts).start(name, &["forward", "near0", "near1"]) else { return };
    drop(running); // which kills it
    assert_eq!(asked(&hosts), before);
}

#[test]
fn forward_works_in_both_directions_with_every_chunk_size() {
    let name = "forward_works_in_both_directions_with_every_chunk_size";
    let Some(hosts) = hosts(name, &params(1500, 1)) else { return };
    let layouts: [(&[&str], u64); 7] = [
        (&[], 2048),
        (&["--chunk-size", "4096"], 4096),
        (&["--chunk-size", "3072"], 3072),
        (&["--chunk-size", "2112"], 2112),
        (&["--ring", "64", "--cpus", "0"], 2048),
        (&["--mode", "native"], 2048),
        (&["--mode", "generic"], 2048),
    ];
    for (options, chunk) in layouts {
        let Some(document) = forward(name, &hosts, 1514, options) else { return };
        let opened = &document["interfaces"][1];
        assert_eq!((number(opened, "chunk"), &opened["name"]), (chunk, &"near1".into()), "{document}");
        let attach = if options.contains(&"generic") { "generic" } else { "native" };
        assert_eq!(opened["attach"], attach, "{options:?}");
        assert_eq!(document["mode"], format!("af_xdp_{attach}_copy"), "{options:?}");
    }
}

#[test]
fn packets_of_several_chunks_pass_too() {
    let name = "packets_of_several_chunks_pass_too";
    let Some(hosts) = hosts(name, &params(9000, 1)) else { return };
    let layouts: [(usize, &[&str]); 4] = [
        (9014, &[]),
        (9014, &["--chunk-size", "2048"]),
        (4000, &["--chunk-size", "2048"]),
        (4000, &["--chunk-size", "2112"]),
    ];
    for (size, options) in layouts {
        let Some(document) = forward(name, &hosts, size, options) else { return };
        assert_eq!(document["interfaces"][0]["multi_buffer"], true, "{document}");
    }
}

#[test]
fn several_queues_have_a_thread_each_and_every_queue_is_served() {
    let name = "several_queues_have_a_thread_each_and_every_queue_is_served";
    let Some(hosts) = hosts(name, &params(1500, 2)) else { return };
    let Some(document) = forward(name, &hosts, 64, &[]) else { return };
    assert_eq!(document["interfaces"][0]["queues"], serde_json::json!([0, 1]));
    let port =
        |at: usize| (document["ports"][at]["interface"].as_str(), document["ports"][at]["queue"].as_u64());
    let named = [("near0", 0), ("near1", 0), ("near0", 1), ("near1", 1)];
    assert_eq!([0, 1, 2, 3].map(port), named.map(|(name, queue)| (Some(name), Some(queue))), "{document}");
    let Some(document) = forward(name, &hosts, 64, &["--queues", "0-1", "--cpus", "0"]) else { return };
    assert_eq!(document["pools"].as_array().map(Vec::len), Some(4), "a pool for each queue");
    assert_eq!(document["ports"].as_array().map(Vec::len), Some(4), "{document}");

    let fewer = hosts.run_between(|| {
        std::process::Command::new("ethtool").args(["-L", "near1", "rx", "1", "tx", "1"]).status()
    });
    if !fewer.is_ok_and(|status| status.success()) {
        return println!("SKIP {name}: no `ethtool` that changes the number of queues");
    }
    let Some(document) = forward(name, &hosts, 64, &[]) else { return };
    assert_eq!(document["interfaces"][1]["queues"], serde_json::json!([0]), "{document}");
    assert_eq!(document["ports"].as_array().map(Vec::len), Some(3), "one thread has all of them: {document}");
}

#[test]
fn threads_share_queues_and_each_pair_has_bounded_memory() {
    const PAIRS: usize = 8;
    let name = "threads_share_queues_and_each_pair_has_bounded_memory";
    let Some(hosts) = hosts(name, &params(1500, PAIRS as u32)) else { return };
    for (options, threads) in [(&["--threads", "3"][..], 3), (&["--threads", "1"], 1), (&[], PAIRS)] {
        let Some(document) = forward(name, &hosts, 64, options) else { return };
        assert_eq!(document["ports"].as_array().map(Vec::len), Some(2 * PAIRS), "{document}");
        let arguments = [&["forward", "near0", "near1"], options].concat();
        let Some(running) = Place::Between(&hosts).start(name, &arguments) else { return };
        let tasks = std::fs::read_dir(format!("/proc/{}/task", running.id())).expect("it runs");
        assert_eq!(tasks.count(), threads + 1, "{options:?}");
        let status = std::fs::read_to_string(format!("/proc/{}/status", running.id())).expect("it runs");
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("Linux has it");
        let peak: usize = peak.trim().trim_end_matches(" kB").parse().expect("a number");
        assert!(peak <= (PAIRS * 24) << 10, "{options:?}: {peak} KiB, of 24 MiB a pair of queues");
        running.interrupt();
    }
    // At a rate: without one, the first thread can send all before the other has begun.
    let paced = ["--threads", "2", "--rate", "8000"];
    let Some((sent, _)) = generate(name, &hosts, 8000, &paced) else { return };
    let ports = sent["ports"].as_array().expect("a list");
    assert!(ports.iter().all(|port| number(&port["nic"], "tx_packets") > 0), "each queue sends: {sent}");
}

#[test]
fn hugepages_hold_packets_or_the_error_names_the_number() {
    let name = "hugepages_hold_packets_or_the_error_names_the_number";
    let Some(hosts) = hosts(name, &params(1500, 1)) else { return };
    let _shared = pagepool_lab::share_huge_pages();
    let free = std::fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
    let free: u64 = free.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    if free >= 32 {
        forward(name, &hosts, 64, &["--hugepages"]);
        return;
    }
    let output = Place::Between(&hosts).output(binary(&[
        "forward",
        "near0",
        "near1",
        "--hugepages",
        "--seconds",
        "1",
    ]));
    if output.status.success() {
        return println!("SKIP {name}: others gave huge pages back meanwhile");
    }
    let said = text(&output.stderr);
    if !said.contains("hugepages") {
        return println!("SKIP {name}: {}", said.trim());
    }
    assert!(said.contains("nr_hugepages"), "{said}");
    println!("SKIP {name}: {free} huge pages of 2 MiB are free, of 32; the error was looked at");
}

#[test]
fn busy_polling_passes_packets_too() {
    let name = "busy_polling_passes_packets_too";
    let Some(hosts) = hosts(name, &params(1500, 1)) else { return };
    for options in [&["--busy-poll"][..], &["--busy-poll=8"]] {
        let Some(document) = forward(name, &hosts, 64, options) else { return };
        assert!(document["interfaces"][0]["busy_polled"].is_u64(), "{document}");
    }
}

/// Sends from one host with `gen`, and drops at the end of its link with `drop --verify`.
fn generate(test: &str, hosts: &TwoHosts, count: u64, options: &[&str]) -> Option<(Value, Value)> {
    let count_text = count.to_string();
    let dropping = Place::Between(hosts).start(test, &["drop", "near0", "--verify"])?;
    let before = LinkLosses::now(hosts);
    let arguments = [&["gen", "far0", "--count", &count_text], options].concat();
    let sent = Place::In(&hosts.a.namespace).start(test, &arguments)?.end();
    before.wait_for_all(hosts, &dropping, count);
    let received = dropping.interrupt();
    // The link has room for some hundred.
    let went = number(&sent, "sent") + number(&sent["lost"], "tx_dropped");
    assert_eq!((went, &sent["ended_by"]), (count, &"sent".into()), "{sent}");
    let numbered = &received["numbered"];
    let lost = LinkLosses::now(hosts).since(&before, number(&received, "lost_total"));
    assert_eq!(number(numbered, "good") + lost, count, "lost {lost}: {received}");
    assert!(number(numbered, "good") > 0 && number(numbered, "duplicates") == 0, "{received}");
    Some((sent, received))
}

#[test]
fn what_gen_sends_is_what_drop_verifies() {
    let name = "what_gen_sends_is_what_drop_verifies";
    let Some(hosts) = hosts(name, &params(1500, 2)) else { return };
    let layouts: [&[&str]; 5] = [
        &["--rate", "20000"],
        &["--rate", "20000", "--size", "1514"],
        &["--rate", "20000", "--size", "1500", "--chunk-size", "4096"],
        &["--rate", "20000", "--size", "1500", "--chunk-size", "3072"],
        &["--rate", "20000", "--dst", "02:70:70:00:00:00", "--queues", "1"],
    ];
    for options in layouts {
        let Some((sent, _)) = generate(name, &hosts, 5000, options) else { return };
        assert_eq!(sent["mode"], "af_xdp_copy", "it has no program: {sent}");
        assert_eq!(sent["interfaces"][0]["attach"], Value::Null, "{sent}");
    }
}

/// The link counts a frame as dropped that the socket had no room for, and so does the socket.
#[test]
fn a_frame_that_is_lost_is_counted_once() {
    let name = "a_frame_that_is_lost_is_counted_once";
    let Some(hosts) = hosts(name, &params(1500, 1)) else { return };
    let Some(dropping) = Place::Between(&hosts).start(name, &["drop", "near0", "--verify"]) else { return };
    let before = LinkLosses::now(&hosts);
    signal("-STOP", dropping.id());
    let arguments = ["gen", "far0", "--count", "5000", "--rate", "20000"];
    let sent = Place::In(&hosts.a.namespace).start(name, &arguments).expect("as the other one").end();
    signal("-CONT", dropping.id());
    before.wait_for_all(&hosts, &dropping, 5000);
    let received = dropping.interrupt();
    assert_eq!(number(&sent, "sent"), 5000, "{sent}");
    let lost = LinkLosses::now(&hosts).since(&before, number(&received, "lost_total"));
    assert!(number(&received, "lost_total") > 1000, "its rings were full: {received}");
    assert_eq!(number(&received["numbered"], "good") + lost, 5000, "lost {lost}: {received}");
}

#[test]
fn gen_sends_frames_of_several_chunks() {
    let name = "gen_sends_frames_of_several_chunks";
    let Some(hosts) = hosts(name, &params(9000, 1)) else { return };
    for options in [
        &["--size", "9000", "--rate", "5000"][..],
        &["--size", "9000", "--rate", "5000", "--chunk-size", "2048"],
        &["--size", "4000", "--rate", "5000", "--chunk-size", "2048"],
        &["--size", "4000", "--rate", "5000", "--chunk-size", "3072"],
    ] {
        if generate(name, &hosts, 1000, options).is_none() {
            return;
        }
    }
}

#[test]
fn packets_dropped_by_a_qdisc_count_as_lost() {
    let name = "packets_dropped_by_a_qdisc_count_as_lost";
    let Some(hosts) = hosts(name, &params(1500, 1)) else { return };
    let Some(running) = Place::Between(&hosts).start(name, &["forward", "near0", "near1"]) else { return };
    let bucket = TokenBucket { rate: 100_000, burst: 10_000, limit: 20_000 };
    let added = hosts.run_between(move || {
        let mut netlink = Netlink::open()?;
        let index = netlink.link("near1")?.index;
        netlink.add_token_bucket(index, bucket)
    });
    let [_, far] = far_ends(&hosts);
    feed_to(&running, &hosts, 0..NUMBERS, 1514);
    let document = running.interrupt(); // which checks that all packets were sent or lost
    if added.is_err() || document["interfaces"][1]["tx_mode"] != "bpf-batch" {
        return println!("SKIP {name}: no tbf, or no BPF batch: {added:?}");
    }
    let (sent, dropped) = (number(&document, "sent"), number(&document["lost"], "tx_dropped"));
    assert!(dropped > NUMBERS / 2, "{document}");
    let (mut bytes, mut arrived) = ([0; 2048], 0);
    let mut receive = || {
        while ok(far.receive(&mut bytes)).is_some() {
            arrived += 1;
        }
        arrived
    };
    wait_until("what was sent arrives", || receive() >= sent);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(receive(), sent, "and no more: {document}");
}

#[test]
fn gen_keeps_its_rate() {
    let name = "gen_keeps_its_rate";
    let Some(hosts) = hosts(name, &params(1500, 2)) else { return }; // of both queues together
    let arguments = ["gen", "far0", "--rate", "1000", "--count", "2000"];
    let Some(running) = Place::In(&hosts.a.namespace).start(name, &arguments) else { return };
    let document = running.end();
    assert_eq!((&document["ended_by"], number(&document, "sent")), (&"sent".into(), 2000), "{document}");
    // It may be later: what a busy machine misses is let go.
    let seconds = document["seconds"].as_f64().expect("a number");
    assert!(seconds > 1.9, "{seconds} s for what takes two");
}

#[test]
fn what_is_on_its_way_at_the_end_goes_out() {
    let name = "what_is_on_its_way_at_the_end_goes_out";
    let Some(hosts) = hosts(name, &params(1500, 1)) else { return };
    for _ in 0..3 {
        let generating = ["gen", "far0", "--seconds", "1"];
        let Some(running) = Place::In(&hosts.a.namespace).start(name, &generating) else { return };
        assert_eq!(number(&running.end(), "unsent"), 0);
    }
}

/// Ticks of CPU time, a hundredth of a second each, that a process had.
fn cpu_ticks(process: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("it runs");
    let fields: Vec<&str> = stat.rsplit_once(')').expect("a name").1.split_whitespace().collect();
    fields[11..13].iter().map(|field| field.parse::<u64>().expect("a number")).sum()
}

#[test]
fn threads_without_packets_sleep() {
    let name = "threads_without_packets_sleep";
    let Some(hosts) = hosts(name, &params(1500, 2)) else { return };
    let Some(running) = Place::Between(&hosts).start(name, &["forward", "near0", "near1"]) else { return };
    std::thread::sleep(Duration::from_millis(500));
    let before = cpu_ticks(running.id());
    std::thread::sleep(Duration::from_secs(2));
    let spent = cpu_ticks(running.id()) - before;
    assert!(spent < 15, "{spent} hundredths of a second in two");
    running.interrupt();
}

#[test]
fn each_thread_stays_on_its_cpu() {
    let name = "each_thread_stays_on_its_cpu";
    let Some(hosts) = hosts(name, &params(1500, 2)) else { return };
    let cpus = ["1", "0"];
    let status = std::fs::read_to_string("/proc/thread-self/status").expect("/proc");
    if !status.lines().any(|line| line.starts_with("Cpus_allowed_list:") && line.contains("0-")) {
        return println!("SKIP {name}: CPUs 0 and 1 may not both be used");
    }
    let Some(running) = Place::Between(&hosts).start(name, &["drop", "near0", "--cpus", "1,0"]) else {
        return;
    };
    let tasks = std::fs::read_dir(format!("/proc/{}/task", running.id())).expect("it runs").flatten();
    let mut found = 0;
    for task in tasks {
        let text = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
        let field = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
        let Some(number) = field("Name:").and_then(|name| name.strip_prefix("queue")) else { continue };
        let number: usize = number.parse().expect("queues have numbers");
        assert_eq!(field("Cpus_allowed_list:"), Some(cpus[number]), "{text}");
        found += 1;
    }
    assert_eq!(found, 2, "a thread for each queue");
    running.interrupt();
}

#[test]
fn capture_files_hold_every_packet_whole() {
    let name = "capture_files_hold_every_packet_whole";
    let Some(hosts) = hosts(name, &params(9000, 1)) else { return };
    let folder = TempFolder::new("pagepool-capture").expect("a new folder");
    let [received, sent] = ["received", "sent"].map(|file| folder.path().join(file));
    let arguments = ["drop", "near0", "--pcap", received.to_str().expect("text")];
    let Some(dropping) = Place::Between(&hosts).start(name, &arguments) else { return };
    let before = LinkLosses::now(&hosts);
    let size = "9000";
    let arguments = [
        "gen",
        "far0",
        "--size",
        size,
        "--count",
        "300",
        "--rate",
        "3000",
        "--pcap",
        sent.to_str().expect("text"),
    ];
    let Some(sending) = Place::In(&hosts.a.namespace).start(name, &arguments) else { return };
    let sending = sending.end();
    before.wait_for_all(&hosts, &dropping, 300);
    let dropping = dropping.interrupt();
    for (path, document, count) in
        [(&sent, &sending, 300), (&received, &dropping, number(&dropping, "received"))]
    {
        let mut tally = Tally::new(300);
        let packets = capture(path);
        assert!(packets.is_sorted_by_key(|(time, _)| *time), "{path:?}");
        packets.iter().for_each(|(_, packet)| {
            tally.take(packet);
        });
        assert_eq!(
            (number(document, "captured"), number(document, "not_captured")),
            (count, 0),
            "{document}"
        );
        assert_eq!(tally.good + tally.unnumbered, count, "{tally:?} {document}");
        assert!(tally.good > 0 && tally.corrupt == 0, "{tally:?} {document}");
    }
}

#[test]
fn a_run_survives_a_link_that_goes_down_and_up() {
    let name = "a_run_survives_a_link_that_goes_down_and_up";
    let Some(hosts) = hosts(name, &params(1500, 1)) else { return };
    let Some(running) = Place::Between(&hosts).start(name, &["forward", "near0", "near1"]) else { return };
    let [a, b] = far_ends(&hosts);
    pass(&frames(&hosts, 0, 64), 100, &a, &b);
    let index = hosts.near[0].index;
    for (up, said) in [(false, "near0 is down"), (true, "near0 is up")] {
        hosts.run_between(move || ok(ok(pagepool_link::Netlink::open()).set_up(index, up)));
        running.wait_for_words(said);
    }
    drop((a, b)); // a socket tells once that its link was down
    let [a, b] = far_ends(&hosts);
    pass(&frames(&hosts, 0, 64), 100, &a, &b);
    pass(&frames(&hosts, 1, 64), 100, &b, &a);
    assert!(number(&running.interrupt(), "received") >= 300);
}

#[test]
fn a_removed_interface_ends_the_run_with_a_verdict() {
    let name = "a_removed_interface_ends_the_run_with_a_verdict";
    for command in
        [&["drop", "near0"][..], &["forward", "near1", "near0"], &["gen", "near0", "--rate", "100"]]
    {
        let Some(hosts) = hosts(name, &params(1500, 1)) else { return };
        let Some(running) = Place::Between(&hosts).start(name, command) else { return };
        let index = hosts.near[0].index;
        hosts.run_between(move || ok(ok(pagepool_link::Netlink::open()).delete(index)));
        let document = running.end();
        assert_eq!(
            (&document["ended_by"], &document["gone"]),
            (&"gone".into(), &"near0:0".into()),
            "{command:?}"
        );
    }
}

/// What a person reads, of every command.
#[test]
fn a_person_reads_figures_and_a_verdict() {
    let name = "a_person_reads_figures_and_a_verdict";
    let Some(hosts) = hosts(name, &params(1500, 1)) else { return };
    for command in
        [&["drop", "near0"][..], &["echo", "near0"], &["forward", "near0", "near1"], &["gen", "near0"]]
    {
        let mut reading = Reading::new(Place::Between(&hosts).spawn(binary(command)));
        let ([far, _], mut frame, mut number) = (far_ends(&hosts), [0; 64], 0);
        let (mut shown, mut is_told) = (String::new(), false);
        while let Some(line) = reading.line() {
            shown += &format!("{line}\n");
            if line.contains("s  in ") && !std::mem::replace(&mut is_told, true) {
                reading.signal("-INT");
            }
            frames(&hosts, 0, 64).write(number, &mut frame);
            send(&far, &frame);
            number += 1;
        }
        let (status, said) = (reading.child.wait().expect("a child"), reading.said());
        if said.contains("CAP_") {
            return println!("SKIP {name}: {}", said.trim());
        }
        for word in [
            "near0: ",
            "copy, queue 0 (1 of 1)",
            "rings of 1024 slots",
            "s  in ",
            "recycled",
            ": fill ",
            "PASS",
        ] {
            assert!(shown.contains(word), "{command:?}, {word}: {shown}{said}");
        }
        assert!(status.success(), "{shown}");
    }
}

#[test]
fn a_run_without_packets_proves_nothing() {
    let name = "a_run_without_packets_proves_nothing";
    let Some(hosts) = hosts(name, &params(1500, 1)) else { return };
    for command in [&["drop", "near0"][..], &["echo", "near0"], &["forward", "near0", "near1"]] {
        let output = Place::Between(&hosts).output(binary(&[command, &["--seconds", "1"]].concat()));
        let (shown, said) = (text(&output.stdout), text(&output.stderr));
        if said.contains("CAP_") {
            return println!("SKIP {name}: {}", said.trim());
        }
        assert_eq!(output.status.code(), Some(3), "{shown}{said}");
        assert!(shown.ends_with("\n\nNo packets moved. Buffers: all returned.\n"), "{shown}{said}");
        let none = shown.lines().find(|line| line.starts_with("packets dropped"));
        assert!(
            command[0] != "drop" || none.is_some_and(|row| row.ends_with("0  (none received)")),
            "{shown}"
        );
    }
}

/// One that another process holds does not keep the other from ending.
#[test]
fn a_killed_run_leaves_nothing_attached() {
    let name = "a_killed_run_leaves_nothing_attached";
    let Some(hosts) = hosts(name, &params(1500, 1)) else { return };
    for _ in 0..3 {
        let Some(running) = Place::Between(&hosts).start(name, &["echo", "near0"]) else { return };
        drop::<Running>(running); // kills it
    }
    let [far, _] = far_ends(&hosts);
    let Some(running) = Place::Between(&hosts).start(name, &["echo", "near0"]) else { return };
    pass(&frames(&hosts, 0, 64), 64, &far, &far);
    running.interrupt();
    let link = hosts.run_between(|| ok(ok(pagepool_link::Netlink::open()).link("near0")));
    assert_eq!(link.xdp, [], "nothing is attached any more");
}
