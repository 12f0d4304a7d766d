//! Two hosts in namespaces of the test's own, against the kernel: TCP between them, through a forwarder of
//! ordinary sockets; and that nothing stays behind, whichever side ends.

#![expect(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use pagepool_lab::{FrameBatch, FrameSocket, or_skip};
use pagepool_link::{
    LinkError, Namespace, Netlink, Offload, OperState, TcpParams, TcpTransfer, TwoHosts, TwoHostsParams,
    VethEnd,
};

/// Nothing here takes as long.
const LIMIT: Duration = Duration::from_secs(60);
/// Names the role of a child process.
const CHILD: &str = "PAGEPOOL_TEST_HOLDS_TWO_HOSTS";

/// The hosts, if this machine can have them.
fn hosts(test: &str, params: &TwoHostsParams) -> Option<TwoHosts> {
    or_skip(test, TwoHosts::new(params))
}

/// A namespace to look from, if this machine can have one.
fn observer(test: &str) -> Option<Namespace> {
    or_skip(test, Namespace::new("observer"))
}

fn links_of(namespace: &Namespace) -> Vec<String> {
    namespace.netlink().unwrap().links().unwrap().into_iter().map(|link| link.name).collect()
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < LIMIT, "{what}, after {LIMIT:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Forwards between the near ends with two ordinary sockets, until it is dropped.
struct Bridge {
    stop: Arc<AtomicBool>,
    forwarded: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Bridge {
    fn start(hosts: &TwoHosts) -> Self {
        let (stop, forwarded) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let names = hosts.near.each_ref().map(|link| link.name.clone());
        let sockets = hosts.run_between(move || names.map(|name| FrameSocket::open_here(&name).unwrap()));
        let (stopped, counted) = (stop.clone(), forwarded.clone());
        let thread = thread::spawn(move || Self::run(&sockets, &stopped, &counted));
        Self { stop, forwarded, thread: Some(thread) }
    }

    fn run(sockets: &[FrameSocket; 2], stop: &AtomicBool, forwarded: &AtomicU64) {
        let (start, mut batch) = (Instant::now(), FrameBatch::new(16 << 10));
        while !stop.load(Ordering::Relaxed) && start.elapsed() < 4 * LIMIT {
            let mut moved = 0;
            for (from, to) in [(0, 1), (1, 0)] {
                sockets[from].receive_many(&mut batch).unwrap();
                for frame in batch.frames() {
                    // TCP sends again what found no room.
                    moved += u64::from(sockets[to].send(frame).unwrap());
                }
            }
            forwarded.fetch_add(moved, Ordering::Relaxed);
            if moved == 0 {
                // Woken by the first socket, or soon by time: it is no benchmark.
                sockets[0].wait(Duration::from_micros(100));
            }
        }
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || thread::panicking());
    }
}

/// A transfer through the bridge, whole; and what there is to say of it. `gro`: whether the hosts merge.
fn transfer(params: &TwoHostsParams, gro: bool, bytes: u64, test: &str) {
    let Some(hosts) = hosts(test, params) else { return };
    for host in [&hosts.a, &hosts.b] {
        host.namespace.ethtool().unwrap().set_offload(&host.link.name, Offload::Gro, gro).unwrap();
    }
    let bridge = Bridge::start(&hosts);
    let over = TcpParams { bytes, duration: LIMIT, patience: LIMIT };
    for (from, to) in [(&hosts.a, &hosts.b), (&hosts.b, &hosts.a)] {
        let transfer = TcpTransfer::start(&from.namespace, &to.namespace, to.address, over).unwrap();
        let report = transfer.join().unwrap_or_else(|error| panic!("{error}"));
        assert!(report.is_whole(), "{report:?}");
        assert_eq!(report.received, bytes);
        println!("{test}: {:.2} Gbit/s through ordinary sockets", report.gbit_s());
    }
    let frames = bridge.forwarded.load(Ordering::Relaxed);
    let least = 2 * bytes / u64::from(params.mtu);
    assert!(frames > least, "{frames} frames for what takes {least}: segments were larger than the MTU");
}

#[test]
fn tcp_goes_through_a_forwarder_whole() {
    transfer(&TwoHostsParams::default(), true, 20 << 20, "tcp_goes_through_a_forwarder_whole");
}

#[test]
fn tcp_goes_through_with_jumbo_packets_and_queues() {
    let params = TwoHostsParams { mtu: 8000, queues: 2, ..TwoHostsParams::default() };
    transfer(&params, false, 20 << 20, "tcp_goes_through_with_jumbo_packets_and_queues");
}

#[test]
fn a_transfer_lasts_for_the_given_duration() {
    let name = "a_transfer_lasts_for_the_given_duration";
    let Some(hosts) = hosts(name, &TwoHostsParams::default()) else { return };
    let _bridge = Bridge::start(&hosts);
    let (a, b) = (&hosts.a.namespace, &hosts.b.namespace);
    let (start, duration) = (Instant::now(), Duration::from_millis(300));
    let params = TcpParams { duration, patience: LIMIT, ..TcpParams::default() };
    let report = TcpTransfer::start(a, b, hosts.b.address, params).unwrap().join().unwrap();
    assert!(report.is_whole() && report.sent > 0 && start.elapsed() >= duration, "{report:?}");
    let params = TcpParams { duration: LIMIT, ..params };
    let transfer = TcpTransfer::start(a, b, hosts.b.address, params).unwrap();
    wait_until("something arrives", || transfer.received() > 0);
    assert!(!transfer.is_over());
    transfer.stop();
    let report = transfer.join().unwrap();
    assert!(report.is_whole() && report.elapsed < LIMIT, "{report:?}");
    let transfer = TcpTransfer::start(a, b, hosts.b.address, params).unwrap();
    let start = Instant::now();
    drop(transfer);
    assert!(start.elapsed() < LIMIT, "a transfer that nobody waits for ends");
}

#[test]
fn without_a_forwarder_a_transfer_ends_with_the_reason() {
    let name = "without_a_forwarder_a_transfer_ends_with_the_reason";
    let Some(hosts) = hosts(name, &TwoHostsParams::default()) else { return };
    let patience = Duration::from_millis(300);
    let params = TcpParams { patience, ..TcpParams::default() };
    let (start, [a, b]) = (Instant::now(), [&hosts.a, &hosts.b]);
    let error =
        TcpTransfer::start(&a.namespace, &b.namespace, b.address, params).unwrap().join().unwrap_err();
    assert!(matches!(error, LinkError::TimedOut { limit, .. } if limit == patience), "{error:?}");
    assert!(error.to_string().contains("forwarding, ARP included?"), "{error}");
    assert!(start.elapsed() < LIMIT, "sooner than TCP, which tries for two minutes");
}

#[test]
fn hosts_have_the_requested_parameters() {
    let name = "hosts_have_the_requested_parameters";
    let params = TwoHostsParams { mtu: 3000, queues: 3, ..TwoHostsParams::default() };
    let Some(hosts) = hosts(name, &params) else { return };
    let between = &hosts.between;
    let sides = [(between, &hosts.near[0]), (between, &hosts.near[1]), (&hosts.a.namespace, &hosts.a.link)];
    for (namespace, link) in sides.into_iter().chain([(&hosts.b.namespace, &hosts.b.link)]) {
        assert_eq!((link.mtu, link.rx_queues, link.tx_queues, link.state), (3000, 3, 3, OperState::Up));
        let on = namespace.ethtool().unwrap().offloads(&link.name).unwrap();
        assert!(Offload::OF_SENDER.iter().all(|offload| !on.contains(offload)), "{on:?}");
        assert_eq!(on.contains(&Offload::Gro), link.name.starts_with("far"), "{on:?}");
    }
    assert_eq!(hosts.near.each_ref().map(|link| link.name.as_str()), ["near0", "near1"]);
    assert_eq!(links_of(&hosts.a.namespace), ["lo", "far0"]);
}

#[test]
fn nothing_is_left_when_the_hosts_are_dropped() {
    let name = "nothing_is_left_when_the_hosts_are_dropped";
    let Some(observer) = observer(name) else { return };
    for _ in 0..3 {
        let hosts = TwoHosts::new(&TwoHostsParams::default()).unwrap();
        let mut between = hosts.between.netlink().unwrap(); // keeps the namespace
        add_probes(&mut observer.netlink().unwrap(), &hosts);
        drop(hosts);
        let left: Vec<_> = between.links().unwrap().into_iter().map(|link| link.name).collect();
        assert_eq!(left, ["lo", "end"], "the links go at once");
        drop(between);
        wait_until("the namespaces are gone, with the probes' ends", || links_of(&observer) == ["lo"]);
    }
}

/// Adds a veth to each namespace of the hosts: the other end is gone when the namespace is.
fn add_probes(observer: &mut Netlink, hosts: &TwoHosts) {
    let namespaces = [&hosts.a.namespace, &hosts.b.namespace, &hosts.between];
    for (name, namespace) in ["probe0", "probe1", "probe2"].into_iter().zip(namespaces) {
        let end = |name, namespace| VethEnd { name, namespace, mac: None, mtu: 1500, queues: 1 };
        observer.add_veth(&end(name, None), &end("end", Some(namespace.as_fd()))).unwrap();
    }
}

/// Not a test of its own: the child of the next one, which is the same program.
#[test]
fn a_child_holds_two_hosts() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let hosts = TwoHosts::new(&TwoHostsParams::default()).unwrap();
    add_probes(&mut Netlink::open().unwrap(), &hosts);
    let _bridge = Bridge::start(&hosts);
    let over = TcpParams { duration: LIMIT, patience: LIMIT, ..TcpParams::default() };
    let to = &hosts.b;
    let transfer = TcpTransfer::start(&hosts.a.namespace, &to.namespace, to.address, over).unwrap();
    wait_until("something arrives", || transfer.received() > 0);
    println!("\nREADY");
    thread::sleep(LIMIT); // it is killed long before
}

/// A process that makes two hosts, with a probe from this namespace to each of theirs.
fn child_in(observer: &Namespace) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "two_hosts::a_child_holds_two_hosts", "--nocapture"]).env(CHILD, "1");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    // A process begins in the namespace of the thread that starts it.
    observer.run(move || command.spawn()).unwrap()
}

/// Kills it and waits until the namespaces that it had are gone, with the probes.
fn kill(mut child: Child, observer: &Namespace) -> Duration {
    child.kill().unwrap();
    child.wait().unwrap();
    let killed = Instant::now();
    wait_until("the kernel removed the links", || links_of(observer) == ["lo"]);
    killed.elapsed()
}

#[test]
fn nothing_is_left_of_a_process_that_is_killed() {
    let name = "nothing_is_left_of_a_process_that_is_killed";
    let Some(observer) = observer(name) else { return };
    for round in 0..3 {
        let mut child = child_in(&observer);
        let output = BufReader::new(child.stdout.take().unwrap());
        let ready = output.lines().map_while(Result::ok).any(|line| line == "READY");
        let seen = links_of(&observer);
        let gone = kill(child, &observer);
        assert!(ready && seen.len() == 4, "round {round}: the child had {seen:?}");
        println!("{name}: links gone {:.2} s after the process", gone.as_secs_f64());
    }
}

#[test]
fn nothing_is_left_of_a_process_that_is_killed_at_any_moment() {
    let name = "nothing_is_left_of_a_process_that_is_killed_at_any_moment";
    let Some(observer) = observer(name) else { return };
    let mut met = 0;
    for millis in [0, 1, 2, 3, 5, 8, 12, 17, 23, 30, 40, 60, 90] {
        let child = child_in(&observer);
        thread::sleep(Duration::from_millis(millis));
        met += usize::from(links_of(&observer).len() > 1);
        kill(child, &observer);
    }
    println!("{name}: {met} of 13 had links by then");
}

#[test]
fn hosts_with_a_namespace_between_leave_their_makers_alone() {
    let name = "hosts_with_a_namespace_between_leave_their_makers_alone";
    let Some(observer) = observer(name) else { return };
    let hosts = observer.run(|| TwoHosts::new(&TwoHostsParams::default())).unwrap();
    assert_eq!(links_of(&observer), ["lo"]);
    drop(hosts);
    assert_eq!(links_of(&observer), ["lo"]);
}
