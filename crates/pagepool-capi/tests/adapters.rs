//! The C programs of examples/, each against the real other side, in namespaces of the test's own: what they
//! move is checked by content, and every buffer is back at the end. A machine without one of the libraries
//! prints SKIP. `examples/run adapters` prints what they cost, by the ignored test `costs`.

#![expect(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::installed::{compiled, compiled_with, has};
use pagepool_lab::{FrameSocket, TempFolder, or_skip};
use pagepool_link::{Namespace, TwoHosts, TwoHostsParams};
use pagepool_net::{NumberedFrames, Tally};
use pagepool_watch::{EntryView, RunFolder};

/// Nothing here takes as long.
const LIMIT: Duration = Duration::from_secs(60);

/// What a program leaves unset holds a pattern, so that it fails in each run rather than by chance.
const SANITIZED: [&str; 4] =
    ["-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-ftrivial-auto-var-init=pattern"];

/// What the comparison is compiled with: the same program over another allocator.
const PLAIN: [&str; 2] = ["-O2", "-DPLAIN"];

/// What a program said of its allocator: ticks for a unit of its work, and nanoseconds of all of it.
#[derive(Clone, Copy)]
struct Cost {
    ticks: f64,
    nanoseconds: f64,
}

impl Cost {
    /// Of a line that ends like "a frame took 4.5 ticks in the allocator (pool), 9.0 on average, and 700 ns
    /// in all".
    fn of(said: &str) -> Self {
        let number = |from: &str, to: &str| {
            let rest = said.rsplit_once(from).expect(said).1;
            rest.split_once(to).expect(said).0.parse().expect(said)
        };
        Self { ticks: number(" took ", " ticks"), nanoseconds: number(" and ", " ns in all") }
    }
}

/// Whether a header is there; prints SKIP if it is not.
fn has_header(test: &str, header: &str, package: &str) -> bool {
    let there = Path::new("/usr/include").join(header).is_file();
    if !there {
        println!("SKIP {test}: {header} is missing, of Debian's package {package}");
    }
    there
}

/// The hosts, if this machine can have them.
fn hosts(test: &str) -> Option<TwoHosts> {
    or_skip(test, TwoHosts::new(&TwoHostsParams::default()))
}

/// A program that says when it is ready, and ends when its input does.
struct Program {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Program {
    /// Starts it on the calling thread, so in that thread's namespace.
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    /// Waits until it has said the line. It says that, or ends, or is killed by who waits for its end.
    fn until(mut self, line: &str) -> Self {
        let mut said = String::new();
        self.output.read_line(&mut said).unwrap();
        if said.trim_end() != line {
            let _ = self.child.kill(); // one that waits for packets would not end
        }
        assert_eq!(said.trim_end(), line, "{:?}", self.child.wait());
        self
    }

    /// Ends it, and gives what it said; it must have succeeded.
    fn end(mut self) -> String {
        drop(self.child.stdin.take());
        let start = Instant::now();
        let status = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break status,
                None if start.elapsed() > LIMIT => self.child.kill().unwrap(),
                None => thread::sleep(Duration::from_millis(5)),
            }
        };
        let mut said = String::new();
        self.output.read_to_string(&mut said).unwrap();
        assert!(status.success(), "{status}: {said}");
        said
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill(); // one that has ended is as good
        let _ = self.child.wait();
    }
}

/// The bytes that a writer and a reader agree on: each depends on its place.
fn pattern(from: u64, into: &mut [u8]) {
    for (at, byte) in (from..).zip(into) {
        *byte = (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u8;
    }
}

// ---- libxdp ----

/// Frames on the way at once: fewer than any ring or queue holds, so that none may be lost.
const WINDOW: u64 = 64;

/// Sends numbered frames both ways, and has each arrive before too many others go.
fn exchange(hosts: &TwoHosts, frames: u64) {
    let ends = [&hosts.a, &hosts.b].map(|host| FrameSocket::of(host).unwrap());
    let [a, b] = [&hosts.a.link, &hosts.b.link];
    let numbered = [(a, b), (b, a)].map(|(from, to)| NumberedFrames::between(from, to, 700).unwrap());
    let (mut sent, mut tallies) = ([0; 2], [Tally::new(frames), Tally::new(frames)]);
    let (mut frame, start) = ([0; 2048], Instant::now());
    while tallies.iter().any(|tally| tally.good < frames) {
        assert!(start.elapsed() < LIMIT, "{sent:?} sent, {tallies:?}");
        for way in 0..2 {
            while sent[way] < frames.min(tallies[way].good + WINDOW) {
                numbered[way].write(sent[way], &mut frame[..700]);
                if !ends[way].send(&frame[..700]).unwrap() {
                    break;
                }
                sent[way] += 1;
            }
            while let Some(len) = ends[1 - way].receive(&mut frame).unwrap() {
                tallies[way].take(&frame[..len]);
            }
        }
        ends[0].wait(Duration::from_micros(100));
    }
    for tally in tallies {
        let Tally { good, again, beyond, corrupt, overtaken, .. } = tally;
        assert_eq!((good, again, beyond, corrupt, overtaken), (frames, 0, 0, 0, 0));
    }
}

/// What is published of a forwarder at rest: all that is out waits for packets at its two sockets.
fn frames_of_fill_rings_wait(folder: &Path) {
    let start = Instant::now();
    loop {
        let process = RunFolder::at(folder).processes().remove(0).unwrap();
        let sockets: Vec<_> = process.entries.iter().filter(|entry| entry.kind == "socket").collect();
        let counter = |name: &str| -> u64 {
            let of = |entry: &&EntryView| entry.counters.iter().find(|(known, _)| known == name).unwrap().1;
            sockets.iter().map(of).sum()
        };
        let pool = &process.pools[0];
        assert!(sockets.len() == 2 && sockets.iter().all(|entry| entry.pool_id() == Some(pool.id.into())));
        if counter("in_rx") > 0 && counter("in_rx") + counter("in_tx") == pool.inflight.out {
            return;
        }
        assert!(start.elapsed() < LIMIT, "{:?} of {:?}", sockets, pool.inflight);
        thread::sleep(Duration::from_millis(20));
    }
}

/// Between hosts of its own: a queue is free again some time after its socket was closed.
fn forward(test: &str, program: &Path, frames: u64, shown: bool) -> Option<Cost> {
    let hosts = hosts(test)?;
    let [near0, near1] = hosts.near.each_ref().map(|link| link.name.clone());
    let mut command = Command::new(program);
    let folder = TempFolder::new("pagepool-forward").unwrap();
    command.args([near0, near1]);
    if shown {
        command.env("PAGEPOOL_RUN", folder.path());
    } else {
        command.env_remove("PAGEPOOL_RUN");
    }
    let forwarder = hosts.run_between(move || Program::start(&mut command)).until("ready");
    exchange(&hosts, frames);
    if shown {
        frames_of_fill_rings_wait(folder.path());
    }
    let said = forwarder.end();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "the program took its file back");
    print!("{said}");
    assert!(said.starts_with(&format!("forwarded {}, dropped 0, missing 0;", 2 * frames)), "{said}");
    Some(Cost::of(&said))
}

/// Whether libxdp is there; prints SKIP if it is not.
fn has_libxdp(test: &str) -> bool {
    has("cc") && has_header(test, "xdp/xsk.h", "libxdp-dev") && has_header(test, "bpf/libbpf.h", "libbpf-dev")
}

fn forwarder(how: &str, flags: &[&str]) -> PathBuf {
    compiled_with("../../examples/libxdp/forward.c", how, flags, &["-lxdp", "-lbpf"])
}

#[test]
fn libxdp_forwards_with_our_frames() {
    let test = "libxdp_forwards_with_our_frames";
    if !has_libxdp(test) {
        return;
    }
    for (how, flags) in [("static-asan", &SANITIZED[..]), ("static", &["-O2"]), ("static-plain", &PLAIN)] {
        forward(test, &forwarder(how, flags), 5_000, flags != PLAIN);
    }
}

/// What the receiver says first: its fill ring took as many frames as it has entries.
const READY: &str = "ready, 2048 frames on the fill ring";

/// Floods the program with frames until it has all that it waits for, and checks what it says of them: rings
/// overflow, which loses packets and no buffer.
fn receive_frames(program: &Path, frames: u64) {
    let Some(hosts) = hosts("libxdp_receives_into_our_frames") else { return };
    let mut command = Command::new(program);
    command.args([hosts.near[0].name.clone(), frames.to_string()]);
    let mut receiver = hosts.run_between(move || Program::start(&mut command)).until(READY);
    let (end, link) = (FrameSocket::of(&hosts.a).unwrap(), &hosts.a.link);
    let (numbered, mut frame) = (NumberedFrames::between(link, link, 700).unwrap(), [0; 700]);
    let start = Instant::now();
    for number in 0.. {
        if receiver.child.try_wait().unwrap().is_some() {
            break;
        }
        assert!(start.elapsed() < LIMIT, "{number} frames were sent");
        numbered.write(number, &mut frame);
        let _ = end.send(&frame).unwrap(); // a full queue takes the next one
    }
    let said = receiver.end();
    print!("{said}");
    assert!(said.contains(" packets, ") && said.ends_with(" bytes, 0 buffers missing\n"), "{said}");
    let packets: u64 = said.split(' ').next().unwrap().parse().unwrap();
    assert!(packets >= frames && said.contains(&format!(" {} bytes", 700 * packets)), "{said}");
}

#[test]
fn libxdp_receives_into_our_frames() {
    let test = "libxdp_receives_into_our_frames";
    if !has_libxdp(test) {
        return;
    }
    for (how, flags) in [("static", &["-O2"][..]), ("static-asan", &SANITIZED)] {
        let program = compiled_with("../../examples/libxdp/receive.c", how, flags, &["-lxdp", "-lbpf"]);
        receive_frames(&program, 5_000);
    }
}

// ---- lwIP ----

/// Sends a pattern and reads it back, every byte checked.
fn talk(to: SocketAddr, bytes: u64) {
    let stream = TcpStream::connect_timeout(&to, LIMIT).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.set_write_timeout(Some(LIMIT)).unwrap();
    let mut writer = stream.try_clone().unwrap();
    let sending = thread::spawn(move || {
        let mut chunk = [0; 8192];
        for from in (0..bytes).step_by(chunk.len()) {
            pattern(from, &mut chunk);
            writer.write_all(&chunk).unwrap();
        }
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let (mut got, mut expected, mut at) = (vec![0; 65536], vec![0; 65536], 0);
    loop {
        let len = (&stream).read(&mut got).unwrap();
        if len == 0 {
            break;
        }
        pattern(at, &mut expected[..len]);
        assert!(got[..len] == expected[..len], "after byte {at}");
        at += len as u64;
    }
    sending.join().unwrap();
    assert_eq!(at, bytes);
}

fn echo(lab: &Namespace, program: &Path, bytes: u64) -> Cost {
    let mut command = Command::new(program);
    command.args(["tap0", "198.18.1.2"]);
    let echo = lab.run(move || Program::start(&mut command)).until("ready");
    let mut netlink = lab.netlink().unwrap();
    let index = netlink.link("tap0").unwrap().index;
    netlink.add_address(index, Ipv4Addr::new(198, 18, 1, 1), 24).unwrap();
    netlink.set_up(index, true).unwrap();
    lab.run(move || talk(SocketAddr::from(([198, 18, 1, 2], 7)), bytes));
    let said = echo.end();
    print!("{said}");
    assert!(
        said.starts_with(&format!("echoed {bytes} bytes of ")) && said.contains(", missing 0;"),
        "{said}"
    );
    Cost::of(&said)
}

/// A namespace for the echo server, if it can run; prints SKIP if not.
fn echo_lab(test: &str) -> Option<Namespace> {
    if !(has("cc") && has_header(test, "lwip/lwip/tcp.h", "liblwip-dev")) {
        return None;
    }
    if !Path::new("/dev/net/tun").exists() {
        println!("SKIP {test}: there is no /dev/net/tun");
        return None;
    }
    or_skip(test, Namespace::new("lwip"))
}

fn echo_server(how: &str, flags: &[&str]) -> PathBuf {
    let flags = [flags, &["-isystem", "/usr/include/lwip"]].concat();
    compiled_with("../../examples/lwip/echo.c", how, &flags, &["-llwip"])
}

#[test]
fn lwip_echoes_from_our_buffers() {
    let Some(lab) = echo_lab("lwip_echoes_from_our_buffers") else { return };
    for (how, flags) in [("static-asan", &SANITIZED[..]), ("static", &["-O2"]), ("static-plain", &PLAIN)] {
        echo(&lab, &echo_server(how, flags), 4 << 20);
    }
}

// ---- Zero-copy sends ----

/// Reads a stream, or datagrams which it answers as the example asks, and checks every byte.
fn receive(bytes: u64, mut read: impl FnMut(&mut [u8]) -> usize) {
    let (mut got, mut expected, mut at) = (vec![0; 65536], vec![0; 65536], 0);
    while at < bytes {
        let len = read(&mut got);
        assert!(len > 0, "it ended after byte {at} of {bytes}");
        pattern(at, &mut expected[..len]);
        assert!(got[..len] == expected[..len], "after byte {at}");
        at += len as u64;
    }
    assert_eq!(at, bytes);
}

fn receive_stream(listener: &TcpListener, bytes: u64) {
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    receive(bytes, |into| stream.read(into).unwrap());
    assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0, "it sent more");
}

fn receive_datagrams(socket: &UdpSocket, bytes: u64) {
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    let mut datagrams = 0;
    receive(bytes, |into| {
        let (len, from) = socket.recv_from(into).unwrap();
        datagrams += 1;
        if datagrams % 32 == 0 {
            socket.send_to(&[1], from).unwrap();
        }
        len
    });
}

/// Runs the sender against a receiver on loopback; gives how many sends were not copied, and the cost.
fn send(program: &Path, protocol: &str, bytes: u64) -> (u64, Cost) {
    let (listener, socket) =
        (TcpListener::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    let of_listener = listener.local_addr().unwrap().port();
    let port = if protocol == "tcp" { of_listener } else { socket.local_addr().unwrap().port() };
    let mut command = Command::new(program);
    command.args([protocol, "127.0.0.1", &port.to_string(), &bytes.to_string()]);
    let sender = Program::start(&mut command);
    if protocol == "tcp" {
        receive_stream(&listener, bytes)
    } else {
        receive_datagrams(&socket, bytes)
    }
    let said = sender.end();
    print!("{protocol}: {said}");
    let rest = said.strip_prefix(&format!("sent {bytes} bytes, missing 0; ")).expect(&said);
    let words: Vec<&str> = rest.split_whitespace().collect();
    let numbers = [0, 5, 7].map(|at| words[at].parse::<u64>().unwrap());
    assert!(numbers.iter().sum::<u64>() >= bytes / 4096, "every send is one of the three: {said}");
    (numbers[0], Cost::of(&said))
}

/// A namespace with a loopback; prints SKIP if there cannot be one.
fn send_lab(test: &str) -> Option<Namespace> {
    if !has("cc") {
        return None;
    }
    let lab = or_skip(test, Namespace::new("zerocopy"))?;
    let mut netlink = lab.netlink().unwrap();
    let loopback = netlink.link("lo").unwrap().index;
    netlink.set_up(loopback, true).unwrap();
    Some(lab)
}

fn sender(how: &str, flags: &[&str]) -> PathBuf {
    compiled("../../examples/zerocopy/send.c", how, flags)
}

#[test]
fn zero_copy_sends_wait_for_the_kernel() {
    let Some(lab) = send_lab("zero_copy_sends_wait_for_the_kernel") else { return };
    let mut without_a_copy = 0;
    for (how, flags) in [("static-asan", &SANITIZED[..]), ("static", &["-O2"]), ("static-plain", &PLAIN)] {
        let program = sender(how, flags);
        let sent = move |protocol| send(&program, protocol, 4 << 20).0;
        without_a_copy += lab.run(move || ["tcp", "udp"].map(sent).iter().sum::<u64>());
    }
    if without_a_copy == 0 {
        println!("SKIP zero_copy_sends_are_not_copied: the kernel copied all of them, as on loopback");
    }
}

// ---- What they cost ----

/// Medians, and the least and the most.
fn middle(mut of: Vec<f64>) -> String {
    of.sort_by(f64::total_cmp);
    format!("{:.1} ({:.1} to {:.1})", of[of.len() / 2], of[0], of[of.len() - 1])
}

/// A row of the table: the program over the pool and over its other allocator, in turn. None where it cannot
/// run.
fn row(what: &str, other: &str, rounds: usize, run: impl Fn(bool) -> Option<Cost>) {
    let mut costs = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        for (plain, costs) in [false, true].into_iter().zip(&mut costs) {
            let Some(cost) = run(plain) else { return };
            costs.push(cost);
        }
    }
    let ticks = |of: &Vec<Cost>| middle(of.iter().map(|cost| cost.ticks).collect());
    let all = |of: &Vec<Cost>| middle(of.iter().map(|cost| cost.nanoseconds).collect());
    let [pool, plain] = &costs;
    println!("| {what} | {} | {} | {other} | {} | {} |", ticks(pool), ticks(plain), all(pool), all(plain));
}

/// Prints the table of examples/README.md; `ROUNDS` says how often each program runs.
#[test]
#[ignore = "a measurement: examples/run adapters"]
fn costs() {
    let rounds = std::env::var("ROUNDS").map_or(9, |rounds| rounds.parse().unwrap());
    let both = |compile: fn(&str, &[&str]) -> PathBuf| {
        [compile("static", &["-O2"]), compile("static-plain", &PLAIN)]
    };
    println!(
        "| | ticks, pool | ticks, other allocator | other allocator | thread ns, pool | thread ns, other |"
    );
    println!("|---|---|---|---|---|---|");
    if has_libxdp("costs") {
        let programs = both(forwarder);
        row("`libxdp/forward.c`, per frame", "an array of free addresses", rounds, |plain| {
            forward("costs", &programs[usize::from(plain)], 20_000, false)
        });
    }
    if let Some(lab) = echo_lab("costs") {
        let programs = both(echo_server);
        row("`lwip/echo.c`, per received frame", "`malloc`", rounds, |plain| {
            Some(echo(&lab, &programs[usize::from(plain)], 8 << 20))
        });
    }
    if let Some(lab) = send_lab("costs") {
        let programs = both(sender);
        for protocol in ["tcp", "udp"] {
            row(&format!("`zerocopy/send.c`, per send over {protocol}"), "pages in turn", rounds, |plain| {
                let program = programs[usize::from(plain)].clone();
                Some(lab.run(move || send(&program, protocol, 16 << 20).1))
            });
        }
    }
}
