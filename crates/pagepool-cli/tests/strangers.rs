//! `forward` between programs of others: iperf3 at both ends (TCP both ways, UDP), and dpdk-testpmd that
//! sends.

use std::net::Ipv4Addr;
use std::process::{Command, Stdio};

use crate::between::{
    Ends, LinkLosses, Place, Running, dropped_by_link, hosts, number, text, unreceived, wait_until,
};
use pagepool_link::{Host, TwoHosts, TwoHostsParams};
use serde_json::Value;

/// What is sent: bytes over TCP, and packets of UDP.
const BYTES: u64 = 128 << 20;
const PACKETS: u64 = 5000;
/// What a connection may have on its way when all is sent: that counts as sent alone.
const ON_ITS_WAY: u64 = 4 << 20;

/// Whether a program is there; says SKIP if not.
fn has(test: &str, program: &str, version: &str) -> bool {
    let found = Command::new(program).arg(version).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if found.is_err() {
        println!("SKIP {test}: {program} is not installed");
    }
    found.is_ok()
}

/// iperf3's server in a host, which listens, and ends after one client.
fn server(host: &Host) -> Ends {
    let mut command = Command::new("iperf3");
    command.args(["--server", "--one-off", "--bind", &host.address.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let server = Ends(Place::In(&host.namespace).spawn(command));
    let listens = || {
        let sockets = host.namespace.run(|| std::fs::read_to_string("/proc/thread-self/net/tcp"));
        // Port 5201, in the state LISTEN.
        sockets.expect("/proc").lines().any(|socket| socket.contains(":1451 00000000:0000 0A "))
    };
    wait_until("iperf3 listens", listens);
    server
}

/// What iperf3's client says of a transfer to the other host.
fn transfer(hosts: &TwoHosts, options: &[&str]) -> Value {
    let to: Ipv4Addr = hosts.b.address;
    let _server = server(&hosts.b);
    let mut command = Command::new("iperf3");
    command.args(["--json", "--client", &to.to_string()]).args(options);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = Place::In(&hosts.a.namespace).output(command);
    let said: Value = serde_json::from_str(text(&output.stdout)).expect("iperf3 prints JSON");
    assert!(output.status.success() && said.get("error").is_none(), "{options:?}: {said}");
    said["end"].clone()
}

/// UDP packets that the sockets of a host had no room for.
fn dropped_by_sockets(host: &Host) -> u64 {
    let table = host.namespace.run(|| std::fs::read_to_string("/proc/thread-self/net/snmp"));
    let table = table.expect("/proc");
    let mut rows = table.lines().filter_map(|line| line.strip_prefix("Udp: ")).map(str::split_whitespace);
    let (heads, counts) = (rows.next().expect("its heads"), rows.next().expect("its counts"));
    let of = heads.zip(counts).filter(|(head, _)| *head == "InErrors");
    of.map(|(_, count)| count.parse::<u64>().expect("a number")).sum()
}

/// Packets from the first host to the second one that somebody counts as dropped: the links, the command, and
/// the receiver's sockets.
fn dropped(hosts: &TwoHosts, running: &Running) -> u64 {
    let near = ["near0", "near1"].map(|name| hosts.run_between(move || dropped_by_link(name)));
    let far =
        hosts.a.namespace.run(|| dropped_by_link("far0")) + hosts.b.namespace.run(|| dropped_by_link("far1"));
    let counters = ["tx_dropped", "tx_overflow"];
    near.iter().sum::<u64>()
        + far
        + running.unreceived()
        + running.counted(&counters)
        + dropped_by_sockets(&hosts.b)
}

#[test]
fn iperf_moves_all_that_it_sends() {
    let name = "iperf_moves_all_that_it_sends";
    if !has(name, "iperf3", "--version") {
        return;
    }
    let Some(hosts) = hosts(name, &TwoHostsParams::default()) else { return };
    let Some(running) = Place::Between(&hosts).start(name, &["forward", "near0", "near1"]) else { return };
    let bytes = BYTES.to_string();
    for (connections, options) in [(4, &["--parallel", "4"][..]), (1, &["--reverse"])] {
        let end = transfer(&hosts, &[options, &["--bytes", &bytes]].concat());
        let [sent, received] = ["sum_sent", "sum_received"].map(|sum| number(&end[sum], "bytes"));
        let rate = end["sum_received"]["bits_per_second"].as_f64().expect("a number") / 1e9;
        println!("TCP {options:?}: {received} of {sent} bytes, {rate:.2} Gbit/s");
        assert!(sent >= BYTES && received + connections * ON_ITS_WAY >= sent, "{options:?}: {end}");
    }
    let (before, packets) = (dropped(&hosts, &running), PACKETS.to_string());
    let udp = ["--udp", "--bitrate", "50M", "--length", "1200", "--blockcount", &packets];
    let end = transfer(&hosts, &udp);
    let [packets, lost] = ["packets", "lost_packets"].map(|key| number(&end["sum"], key));
    println!("UDP: {lost} of {packets} packets lost");
    let all = || dropped(&hosts, &running) - before;
    wait_until(&format!("{lost} lost packets are counted by somebody: {end}"), || all() >= lost);
    let document = running.interrupt();
    assert!(packets >= PACKETS && number(&document, "received") > packets - lost, "{end} {document}");
}

/// The number behind a word in what DPDK prints at its end, of all ports.
fn total(said: &str, word: &str) -> u64 {
    let (_, all) = said.split_once("forward statistics for all ports").unwrap_or_else(|| panic!("{said}"));
    let (_, number) = all.split_once(word).unwrap_or_else(|| panic!("no {word}: {said}"));
    number.split_whitespace().next().and_then(|number| number.parse().ok()).expect("a number")
}

#[test]
fn all_that_testpmd_sends_is_forwarded_or_counted() {
    let name = "all_that_testpmd_sends_is_forwarded_or_counted";
    if !has(name, "dpdk-testpmd", "-v") {
        return;
    }
    let Some(hosts) = hosts(name, &TwoHostsParams::default()) else { return };
    let Some(running) = Place::Between(&hosts).start(name, &["forward", "near0", "near1"]) else { return };
    let before = LinkLosses::now(&hosts);
    let mut command = Command::new("timeout");
    command.args([
        "120",
        "dpdk-testpmd",
        "-l",
        "0,1",
        "--no-huge",
        "-m",
        "128",
        "--no-pci",
        "--no-telemetry",
        "--no-shconf",
    ]);
    command.args(["--vdev=net_af_packet0,iface=far0", "--", "--forward-mode=txonly", "--auto-start"]);
    command.args(["--total-num-mbufs=4096", "--no-mlockall", "--burst=32"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut testpmd = Place::In(&hosts.a.namespace).spawn(command);
    running.wait_for_count(&["rx_packets"], 10_000);
    drop(testpmd.stdin.take()); // ends it
    let output = testpmd.wait_with_output().expect("it ended");
    let said = text(&output.stdout);
    let sent = total(said, "TX-packets:");
    before.wait_for_all(&hosts, &running, sent);
    let document = running.interrupt();
    let received = number(&document, "received");
    let lost = LinkLosses::now(&hosts).since(&before, unreceived(&document));
    println!("{sent} sent, {received} received, {lost} lost");
    assert_eq!(received + lost, sent, "{said}{document}");
}
