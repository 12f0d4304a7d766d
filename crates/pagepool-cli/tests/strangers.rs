//! `forward` between programs of others: iperf3 at both ends (TCP both ways, UDP), and dpdk-testpmd that
//! sends.

mod between;

use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use between::{Place, hosts, number, text};
use pagepool_lab::{Host, TwoHosts, TwoHostsParams};
use serde_json::Value;

/// Seconds of a transfer.
const SECONDS: &str = "2";

/// Whether a program is there; says SKIP if not.
fn has(test: &str, program: &str, version: &str) -> bool {
    let found = Command::new(program).arg(version).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if found.is_err() {
        println!("SKIP {test}: {program} is not installed");
    }
    found.is_ok()
}

/// A process that ends with this value.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill(); // it may have ended by itself
        let _ = self.0.wait();
    }
}

/// iperf3's server in a host, which ends after one client.
fn server(host: &Host) -> Ends {
    let mut command = Command::new("iperf3");
    command.args(["--server", "--one-off", "--bind", &host.address.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Ends(Place::In(&host.namespace).spawn(command))
}

/// What iperf3's client says of a transfer to the other host. Where the server does not listen yet, it is
/// asked again.
fn transfer(hosts: &TwoHosts, options: &[&str]) -> Value {
    let to: Ipv4Addr = hosts.b.address;
    let start = Instant::now();
    loop {
        let _server = server(&hosts.b);
        std::thread::sleep(Duration::from_millis(100));
        let mut command = Command::new("iperf3");
        command.args(["--json", "--time", SECONDS, "--client", &to.to_string()]).args(options);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = Place::In(&hosts.a.namespace).output(command);
        let said: Value = serde_json::from_str(text(&output.stdout)).expect("iperf3 prints JSON");
        if output.status.success() && said.get("error").is_none() {
            return said["end"].clone();
        }
        assert!(start.elapsed() < Duration::from_secs(10), "{options:?}: {said}");
    }
}

#[test]
fn iperf_moves_all_that_it_sends() {
    let name = "iperf_moves_all_that_it_sends";
    if !has(name, "iperf3", "--version") {
        return;
    }
    let Some(hosts) = hosts(name, &TwoHostsParams::default()) else { return };
    let Some(running) = Place::Between(&hosts).start(name, &["forward", "near0", "near1"]) else { return };
    for options in [&["--parallel", "4"][..], &["--reverse"]] {
        let end = transfer(&hosts, options);
        let [sent, received] = ["sum_sent", "sum_received"].map(|sum| number(&end[sum], "bytes"));
        let rate = end["sum_received"]["bits_per_second"].as_f64().expect("a number") / 1e9;
        println!("TCP {options:?}: {received} of {sent} bytes, {rate:.2} Gbit/s");
        // What is in flight when the time is over counts as sent alone.
        assert!(received > 10 << 20 && sent - received.min(sent) < 16 << 20, "{options:?}: {end}");
    }
    let end = transfer(&hosts, &["--udp", "--bitrate", "50M", "--length", "1200"]);
    let [packets, lost] = ["packets", "lost_packets"].map(|key| number(&end["sum"], key));
    println!("UDP: {lost} of {packets} packets lost");
    let document = running.interrupt();
    let dropped = number(&document, "lost_total");
    // The socket of a server that waits for a CPU drops some itself.
    assert!(
        packets > 5000 && lost <= dropped + packets / 10,
        "{lost} of {packets} lost, {dropped} dropped: {end}"
    );
    assert!(number(&document, "received") > packets, "{document}");
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
    let mut command = Command::new("timeout");
    command.args([
        "30",
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
    std::thread::sleep(Duration::from_secs(3)); // it takes one to begin
    drop(testpmd.stdin.take()); // ends it
    let output = testpmd.wait_with_output().expect("it ended");
    let said = text(&output.stdout);
    let sent = total(said, "TX-packets:");
    let document = running.interrupt();
    let [received, lost] = ["received", "lost_total"].map(|key| number(&document, key));
    println!("{sent} sent, {received} received, {lost} lost");
    assert!(sent > 10_000 && received > 1_000, "{said}{document}");
    assert_eq!(received + lost, sent, "{said}{document}");
}
