//! Every example that shows the library runs to its end, or until it is killed if it has none; each does what
//! it says. The tests of `pagepool-house` require a line here for each.

// UNSAFETY: a raw socket for echo requests.
#![allow(unsafe_code)]

#[path = "../examples/firewall.rs"]
mod firewall;
#[path = "../examples/jumbo.rs"]
mod jumbo;
#[path = "../examples/receive.rs"]
mod receive;
#[path = "../examples/receive_af_xdp.rs"]
mod receive_af_xdp;
#[path = "../examples/receive_loop.rs"]
mod receive_loop;
#[path = "../examples/udp_echo.rs"]
mod udp_echo;
#[path = "../examples/workers.rs"]
mod workers;

use crate::veth;
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::fd::FromRawFd;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use crate::veth::{Far, Veth};
use pagepool_lab::FrameSocket;
use pagepool_link::{Mac, Netlink};
use pagepool_testing::FarEnd;

#[test]
fn receive_loop_uses_pages_again() {
    receive_loop::main().expect("it runs");
}

#[test]
fn receive_af_xdp_runs_or_says_why_not() {
    receive_af_xdp::main().expect("it runs");
}

#[test]
fn jumbo_arrives_whole() {
    jumbo::main().expect("it runs");
}

/// Set in the processes that are an example.
const CHILD: &str = "PAGEPOOL_IS_AN_EXAMPLE";
/// Nothing is waited for longer.
const LIMIT: Duration = Duration::from_secs(60);
/// Where the example is, and where those who talk to it are.
const HERE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const THERE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// The UDP port of the example, and that of a service beside it.
const OURS: u16 = 7;
const KERNELS: u16 = 9;

/// An example in a process of its own, on `near0` of this thread's namespace. It is killed in the end.
struct Example {
    process: Child,
    lines: Receiver<String>,
}

impl Example {
    /// `test` is the test that calls this; there it is the example.
    fn start(test: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("a test is a program"));
        // The first argument is the example's; as a filter of tests, it selects none.
        command
            .args(["near0", &format!("examples::{test}"), "--exact", "--nocapture", "--include-ignored"])
            .env(CHILD, "1");
        let mut process = command.stdout(Stdio::piped()).spawn().expect("the same program");
        let (send, lines) = mpsc::channel();
        let out = process.stdout.take().expect("a pipe");
        thread::spawn(move || {
            BufReader::new(out).lines().map_while(Result::ok).all(|line| send.send(line).is_ok())
        });
        Self { process, lines }
    }

    /// Does it until it succeeds, while the example runs.
    fn until<T>(&mut self, what: &str, mut step: impl FnMut(&Receiver<String>) -> Option<T>) -> T {
        let start = Instant::now();
        while start.elapsed() < LIMIT {
            assert!(self.process.try_wait().expect("it is a child").is_none(), "{what}: the example ended");
            if let Some(done) = step(&self.lines) {
                return done;
            }
        }
        panic!("{what}: not within {LIMIT:?}");
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs the example if this is its process; else, where it can be, the test of it.
fn example(test: &str, main: fn() -> Result<(), pagepool::Error>, with: impl FnOnce(Rc<Veth>, Example)) {
    if std::env::var_os(CHILD).is_some() {
        return main().expect("it runs until it is killed");
    }
    if let Some(why) = veth::missing() {
        return println!("SKIP {test}: {why}");
    }
    let veth = Veth::new(2, 1500);
    // Parameters are dropped from the last to the first: an example without an interface complains.
    with(veth, Example::start(test));
}

#[test]
fn receive_prints_who_sent() {
    example("receive_prints_who_sent", receive::main, |veth, mut example| {
        let mut far = veth.far_end(0);
        let mut frame = [0; 60];
        example.until("the source is printed", |lines| {
            frame[..14].copy_from_slice(b"\x02to..\x01\x02from\x07\x88\xb5");
            far.send(&frame); // refused where there is no room
            let mut printed =
                lines.recv_timeout(Duration::from_millis(20)).into_iter().chain(lines.try_iter());
            printed.any(|line| line == "[02, 66, 72, 6f, 6d, 07]").then_some(())
        });
    });
}

/// A UDP packet with a number; the sum of its header is not looked at on the way.
fn datagram(number: u32) -> Vec<u8> {
    let mut frame = b"\x02to..\x01\x02from\x02\x08\x00\x45\0\0\x20\0\0\0\0\x40\x11\0\0".to_vec();
    frame.extend([THERE.octets(), HERE.octets()].concat());
    frame.extend([0x30, 0x39, 0, OURS as u8, 0, 12, 0, 0]);
    frame.extend(number.to_be_bytes());
    frame.resize(60, 0);
    frame
}

/// The number in an answer to one of those.
fn answered(answer: &[u8]) -> Option<u32> {
    let number = u32::from_be_bytes(answer.get(42..46)?.try_into().ok()?);
    let asked = datagram(number);
    let places = [(0, 6..12), (6, 0..6), (26, 30..34), (30, 26..30), (34, 36..38), (36, 34..36)];
    places.into_iter().all(|(at, from)| answer[at..at + from.len()] == asked[from]).then_some(number)
}

#[test]
fn workers_answer_packets() {
    example("workers_answer_packets", workers::main, |veth, mut example| {
        let (mut far, mut answer): (Far, _) = (veth.far_end(0), Vec::new());
        let (mut numbers, mut sent) = (BTreeSet::new(), 0);
        example.until("200 answers", |_| {
            far.send(&datagram(sent)); // lost before the example has opened its device
            sent += 1;
            while far.receive(&mut answer) {
                let number = answered(&answer).expect("it is an answer");
                assert!(numbers.insert(number), "each is answered once");
            }
            (numbers.len() >= 200).then_some(())
        });
    });
}

/// The workers and the forwarder are woken at most so many times a second while nothing comes: usually ten.
const WAKINGS: f64 = 30.0;
/// Answers take at most so many times as long as those of a thread that sleeps on an ordinary socket: here
/// two threads are woken, one after the other, and then the first one again.
const TIMES: u32 = 5;

#[test]
#[ignore = "measures time: .ci/timing runs it alone"]
fn workers_answer_soon_and_cost_nothing_while_idle() {
    let test = "workers_answer_soon_and_cost_nothing_while_idle";
    example(test, workers::main, |veth, mut example| {
        let [mut far, mut ordinary] = [0, 1].map(|pair| veth.far_end(pair));
        let (socket, stop) = (FrameSocket::open_here("near1").expect("it is there"), AtomicBool::new(false));
        example.until("the first answer", |_| {
            far.send(&datagram(0)); // lost before the example has opened its device
            far.receive(&mut Vec::new()).then_some(())
        });
        let medians = thread::scope(|threads| {
            threads.spawn(|| echo(&socket, &stop));
            let medians = answer_times([&mut far, &mut ordinary]);
            stop.store(true, Ordering::Relaxed);
            medians
        });
        println!("from packet to answer: {:?}, of an ordinary thread {:?}", medians[0], medians[1]);
        assert!(medians[0] < TIMES * medians[1], "{medians:?}");
        costs_nothing(example.process.id());
    });
}

/// Sends back what comes.
fn echo(socket: &FrameSocket, stop: &AtomicBool) {
    let mut bytes = [0; 2048];
    while !stop.load(Ordering::Relaxed) {
        if socket.wait(Duration::from_millis(100))
            && let Some(len) = socket.receive(&mut bytes).expect("the link is up")
        {
            assert!(socket.send(&bytes[..len]).expect("the link is up"));
        }
    }
}

/// What answers take at both far ends, where packets come one by one, in turn and 1 ms apart: the medians.
fn answer_times(mut ends: [&mut Far; 2]) -> [Duration; 2] {
    let mut times = [Vec::new(), Vec::new()];
    for number in 1..=500 {
        for (far, times) in ends.iter_mut().zip(&mut times) {
            thread::sleep(Duration::from_millis(1));
            let start = Instant::now();
            assert!(far.send(&datagram(number)), "there is room");
            let mut answers = (0..1000).map(|_| far.next()); // also those to the first datagrams
            assert!(answers.any(|answer| answer[42..46] == number.to_be_bytes()), "one is the answer");
            times.push(start.elapsed());
        }
    }
    times.map(|mut times| {
        times.sort_unstable();
        times[times.len() / 2]
    })
}

/// How often the threads of a process fell asleep so far, and how long they ran.
fn sleeps_and_time(process: u32) -> (u64, Duration) {
    let number = |word: Option<&str>| word.and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
    let (mut sleeps, mut nanos) = (0, 0);
    for thread in fs::read_dir(format!("/proc/{process}/task")).expect("it runs") {
        let text = |file| fs::read_to_string(thread.as_ref().expect("a thread").path().join(file));
        let status = text("status").unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        sleeps += number(line.map(str::trim));
        nanos += number(text("schedstat").unwrap_or_default().split(' ').next());
    }
    (sleeps, Duration::from_nanos(nanos))
}

/// A program for which nothing comes neither polls nor wakes often. What one waking costs depends on the
/// machine, so they are counted.
fn costs_nothing(process: u32) {
    let (start, before) = (Instant::now(), sleeps_and_time(process));
    thread::sleep(Duration::from_secs(3));
    let (after, passed) = (sleeps_and_time(process), start.elapsed());
    let (sleeps, ran) = (after.0 - before.0, after.1 - before.1);
    println!("idle for {passed:?}: woken {sleeps} times, ran for {ran:?}");
    assert!(sleeps as f64 <= WAKINGS * passed.as_secs_f64(), "woken {sleeps} times in {passed:?}");
    assert!(ran < passed / 4, "it polls: it ran {ran:?} of {passed:?}");
}

/// An echo request, and whether the kernel there answered.
fn ping(number: u16) -> bool {
    // SAFETY: the call takes three integers.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::IPPROTO_ICMP) };
    assert!(fd >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: it has no other owner. The type is one that sends to addresses, as this socket does.
    let socket = unsafe { UdpSocket::from_raw_fd(fd) };
    socket.set_read_timeout(Some(Duration::from_secs(1))).expect("a time");
    let [high, low] = number.to_be_bytes();
    let [sum_high, sum_low] = (!(0x0800u16.wrapping_add(number))).to_be_bytes();
    socket.send_to(&[8, 0, sum_high, sum_low, 0, 0, high, low], (HERE, 0)).expect("a link");
    let mut answer = [0; 64];
    // a raw socket hears all of it, with the IP headers
    (0..30).any(|_| {
        socket.recv(&mut answer).is_ok_and(|n| n >= 28 && answer[20] == 0 && answer[26..28] == [high, low])
    })
}

/// Sends a number to a port there; says whether it came back in so many looks of 100 ms.
fn asks(socket: &UdpSocket, port: u16, number: u32, looks: u32) -> bool {
    let sent = socket.connect((HERE, port)).and_then(|()| socket.send(&number.to_be_bytes()));
    let mut answer = [0; 16];
    // The kernel may have refused an earlier packet, before the example ran, and reports it now.
    let mut look = |_| socket.recv(&mut answer).is_ok_and(|n| answer[..n] == number.to_be_bytes());
    sent.is_ok() && (0..looks).any(&mut look)
}

/// Returns the MAC address of `near0`.
fn add_address_here() -> Mac {
    let mut here = Netlink::open().expect("a namespace of our own");
    let near = here.link("near0").expect("it is there");
    here.add_address(near.index, HERE, 24).expect("a free address");
    near.mac.expect("a veth has one")
}

fn add_address_there() {
    let mut there = Netlink::open().expect("a namespace of our own");
    let far = there.link("far0").expect("it is there").index;
    there.add_address(far, THERE, 24).expect("a free address");
    // Its kernel leaves checksums to the card; a veth would hand them over unfinished.
    let ethtool = pagepool_link::Ethtool::open().expect("a namespace of our own");
    ethtool.send_whole_packets("far0").expect("a veth can");
}

#[test]
fn udp_echo_answers_its_port_and_disturbs_nothing_else() {
    let test = "udp_echo_answers_its_port_and_disturbs_nothing_else";
    example(test, udp_echo::main, |veth, mut example| {
        add_address_here();
        let service = UdpSocket::bind((HERE, KERNELS)).expect("the address is here");
        thread::spawn(move || {
            let mut bytes = [0; 2048];
            while let Ok((n, from)) = service.recv_from(&mut bytes) {
                let _ = service.send_to(&bytes[..n], from);
            }
        });
        let socket = veth.far().run(|| {
            add_address_there();
            let socket = UdpSocket::bind((THERE, 0)).expect("the address is here");
            socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a time");
            socket
        });
        let (socket, mut number) = (std::sync::Arc::new(socket), 0);
        let mut asks = |port, looks| {
            let (socket, n) = (socket.clone(), number);
            number += 1;
            veth.far().run(move || asks(&socket, port, n, looks))
        };
        example.until("the first answer", |_| asks(OURS, 2).then_some(()));
        for round in 0..100 {
            assert!(asks(OURS, 200), "round {round}: the example answers");
            assert!(asks(KERNELS, 200), "round {round}: so does the kernel's service");
            assert!(veth.far().run(move || ping(round)), "round {round}: and the kernel");
        }
    });
}

/// The tokens of a source address, and how many it gets per second.
const TOKENS: usize = 1000;
/// Packets of the flood before each message of the session.
const WAVE: usize = 128;
const MESSAGES: u32 = 300;
const SSH: u16 = 22;

/// A datagram from a third host to a socket of the kernel.
fn flood_datagram(to: Mac) -> Vec<u8> {
    let mut frame = datagram(0);
    frame[..6].copy_from_slice(&to.0);
    frame[29] = 66;
    frame[37] = KERNELS as u8;
    let word = |at: usize| u32::from(u16::from_be_bytes([frame[at], frame[at + 1]]));
    let sum: u32 = (14..34).step_by(2).map(word).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    frame[24..26].copy_from_slice(&(!(folded as u16)).to_be_bytes());
    frame
}

/// Answers each message, as a shell echoes keys.
fn serve(listener: &TcpListener) {
    let (mut stream, _) = listener.accept().expect("the client connects");
    stream.set_nodelay(true).expect("it is open");
    let mut message = [0; 4];
    while stream.read_exact(&mut message).is_ok() {
        stream.write_all(&message).expect("the client reads");
    }
}

/// A message, and its answer.
fn type_key(stream: &mut TcpStream, number: u32) {
    let mut answer = [0; 4];
    stream.write_all(&number.to_be_bytes()).expect("the session is open");
    stream.read_exact(&mut answer).expect("an answer in time");
    assert_eq!(u32::from_be_bytes(answer), number);
}

#[test]
fn firewall_drops_a_flood_and_a_session_goes_on() {
    let test = "firewall_drops_a_flood_and_a_session_goes_on";
    example(test, firewall::main, |veth, mut example| {
        let flood = flood_datagram(add_address_here()).repeat(WAVE / 2);
        let victim = UdpSocket::bind((HERE, KERNELS)).expect("the address is here");
        victim.set_nonblocking(true).expect("it is open");
        let listener = TcpListener::bind((HERE, SSH)).expect("the address is here");
        let server = thread::spawn(move || serve(&listener));
        veth.far().run(add_address_there);
        let far = FrameSocket::open(veth.far(), "far0").expect("it is there");
        let connect = || TcpStream::connect_timeout(&(HERE, SSH).into(), LIMIT);
        let mut stream = veth.far().run(connect).expect("it listens");
        stream.set_nodelay(true).expect("it is open");
        stream.set_read_timeout(Some(LIMIT)).expect("a time");
        let mut wave = |number| {
            let mut send = |_| far.send_many(&flood, 60).expect("the link is up");
            let sent: usize = (0..2).map(&mut send).sum();
            type_key(&mut stream, number); // behind the flood, in the same queue
            (sent, std::iter::from_fn(|| victim.recv(&mut [0; 64]).ok()).count())
        };
        // Without the firewall, all arrive.
        example.until("the firewall drops", |_| (wave(0).1 < WAVE / 2).then_some(()));
        let (start, mut sent, mut arrived) = (Instant::now(), 0, 0);
        for (wave_sent, wave_arrived) in (1..=MESSAGES).map(wave) {
            (sent, arrived) = (sent + wave_sent, arrived + wave_arrived);
        }
        let most = TOKENS + (TOKENS as f64 * start.elapsed().as_secs_f64()) as usize + 1;
        println!("{arrived} of {sent} packets of the flood arrived, at most {most} had a token");
        assert!(arrived > 0 && arrived <= most && arrived < sent / 2, "{arrived} of {sent}, most {most}");
        stream.shutdown(Shutdown::Write).expect("it is open");
        server.join().expect("it does not panic");
    });
}
