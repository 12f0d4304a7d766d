//! The C programs of examples/, each against the real other side, in namespaces of the test's own: what they
//! move is checked by content, and every buffer is back at the end. A machine without one of the libraries
//! prints SKIP.

#![expect(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

mod installed;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use installed::{compiled, compiled_with, has};
use pagepool_lab::{Namespace, NumberedFrames, Tally, TwoHosts, TwoHostsParams, or_skip};

/// Nothing here takes as long.
const LIMIT: Duration = Duration::from_secs(60);

/// What a program leaves unset holds a pattern, so that it fails in each run rather than by chance.
const SANITIZED: [&str; 4] =
    ["-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-ftrivial-auto-var-init=pattern"];

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

/// The same bytes for whoever writes and whoever reads: at each place what depends on it.
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
    let ends = [&hosts.a, &hosts.b].map(|host| host.frame_socket().unwrap());
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

fn forward(program: &Path, allocator: &[&str], frames: u64) {
    let Some(hosts) = hosts("libxdp_forwards_with_our_frames") else { return };
    let [near0, near1] = hosts.near.each_ref().map(|link| link.name.clone());
    let mut command = Command::new(program);
    command.args([near0, near1]).args(allocator);
    let forwarder = hosts.run_between(move || Program::start(&mut command)).until("ready");
    exchange(&hosts, frames);
    let said = forwarder.end();
    print!("{said}");
    assert!(said.starts_with(&format!("forwarded {}, dropped 0, missing 0;", 2 * frames)), "{said}");
}

#[test]
fn libxdp_forwards_with_our_frames() {
    let test = "libxdp_forwards_with_our_frames";
    if !(has("cc")
        && has_header(test, "xdp/xsk.h", "libxdp-dev")
        && has_header(test, "bpf/libbpf.h", "libbpf-dev"))
    {
        return;
    }
    let compiled = |how, flags: &[&str]| {
        compiled_with("../../examples/libxdp/forward.c", how, flags, &["-lxdp", "-lbpf"])
    };
    let (fast, sanitized) = (compiled("static", &["-O2"]), compiled("static-asan", &SANITIZED));
    forward(&sanitized, &[], 5_000);
    for _ in 0..3 {
        forward(&fast, &[], 20_000);
        forward(&fast, &["--allocator", "stack"], 20_000);
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
    let (end, link) = (hosts.a.frame_socket().unwrap(), &hosts.a.link);
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
    if !(has("cc")
        && has_header(test, "xdp/xsk.h", "libxdp-dev")
        && has_header(test, "bpf/libbpf.h", "libbpf-dev"))
    {
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

fn echo(lab: &Namespace, program: &Path, allocator: &[&str], bytes: u64) {
    let mut command = Command::new(program);
    command.args(["tap0", "198.18.1.2"]).args(allocator);
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
}

#[test]
fn lwip_echoes_from_our_buffers() {
    let test = "lwip_echoes_from_our_buffers";
    if !(has("cc") && has_header(test, "lwip/lwip/tcp.h", "liblwip-dev")) {
        return;
    }
    let lab = match Namespace::new("lwip") {
        Ok(lab) if Path::new("/dev/net/tun").exists() => lab,
        Ok(_) => return println!("SKIP {test}: there is no /dev/net/tun"),
        Err(error) => return println!("SKIP {test}: {error}"),
    };
    let compiled = |how, flags: &[&str]| {
        let flags = [flags, &["-isystem", "/usr/include/lwip"]].concat();
        compiled_with("../../examples/lwip/echo.c", how, &flags, &["-llwip"])
    };
    let (fast, sanitized) = (compiled("static", &["-O2"]), compiled("static-asan", &SANITIZED));
    echo(&lab, &sanitized, &[], 4 << 20);
    for _ in 0..3 {
        echo(&lab, &fast, &[], 8 << 20);
        echo(&lab, &fast, &["--allocator", "malloc"], 8 << 20);
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

/// Runs the sender against a receiver on loopback; gives how many sends were not copied.
fn send(program: &Path, protocol: &str, allocator: &[&str], bytes: u64) -> u64 {
    let (listener, socket) =
        (TcpListener::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    let of_listener = listener.local_addr().unwrap().port();
    let port = if protocol == "tcp" { of_listener } else { socket.local_addr().unwrap().port() };
    let mut command = Command::new(program);
    command.args([protocol, "127.0.0.1", &port.to_string(), &bytes.to_string()]).args(allocator);
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
    numbers[0]
}

#[test]
fn zero_copy_sends_wait_for_the_kernel() {
    let test = "zero_copy_sends_wait_for_the_kernel";
    if !has("cc") {
        return;
    }
    let Some(lab) = or_skip(test, Namespace::new("zerocopy")) else { return };
    let mut netlink = lab.netlink().unwrap();
    let loopback = netlink.link("lo").unwrap().index;
    netlink.set_up(loopback, true).unwrap();
    let file = "../../examples/zerocopy/send.c";
    let (fast, sanitized) = (compiled(file, "static", &["-O2"]), compiled(file, "static-asan", &SANITIZED));
    let mut without_a_copy = 0;
    for protocol in ["tcp", "udp"] {
        let (fast, sanitized) = (fast.clone(), sanitized.clone());
        without_a_copy += lab.run(move || {
            let mut sum = send(&sanitized, protocol, &[], 4 << 20);
            for _ in 0..3 {
                sum += send(&fast, protocol, &[], 16 << 20);
                sum += send(&fast, protocol, &["--allocator", "ring"], 16 << 20);
            }
            sum
        });
    }
    if without_a_copy == 0 {
        println!("SKIP zero_copy_sends_are_not_copied: the kernel copied all of them, as on loopback");
    }
}
