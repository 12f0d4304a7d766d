//! The services answer a kernel over a veth, beside the kernel of their own namespace.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use pagepool_link::LinkError;
use pagepool_net::TxMode;
use pagepool_smoltcp::pattern;
use pagepool_smoltcp::server::Service;
use pagepool_smoltcp::wire::{HOST, Report, Running, SERVER, Way, Wire};

/// Nothing is waited for longer.
const LIMIT: Duration = Duration::from_secs(60);
const FEW: &[(Service, usize)] =
    &[(Service::Echo, 4), (Service::Discard, 2), (Service::Generate, 2), (Service::Http, 2)];
const MANY: &[(Service, usize)] = &[(Service::Echo, 1000)];

/// The namespaces, unless this process may not make them.
fn wire(test: &str, mtu: u32, checksums: bool) -> Option<Wire> {
    or_skip(test, Wire::veth(mtu, checksums))
}

fn or_skip(test: &str, wire: Result<Wire, LinkError>) -> Option<Wire> {
    match wire {
        Err(error) if error.is_permission() => {
            println!("SKIP {test}: {error}");
            None
        }
        wire => Some(wire.expect("namespaces and their links")),
    }
}

/// Runs the server while the host asks. No buffer is missing then, and nothing arrived wrong.
fn serve(
    wire: &Wire,
    way: Way,
    (services, buffer): (&'static [(Service, usize)], usize),
    ask: impl FnOnce() + Send + 'static,
) -> Report {
    let server = Running::start(wire, way, services, buffer).expect("the server starts");
    wire.far.run(ask);
    let report = server.stop().expect("the server ends");
    assert_eq!((report.missing, report.wrong), (0, 0), "{report:?}");
    report
}

fn connect(port: u16) -> TcpStream {
    let tcp = TcpStream::connect((SERVER, port)).expect("the server accepts");
    tcp.set_read_timeout(Some(LIMIT)).expect("a time above 0");
    tcp.set_write_timeout(Some(LIMIT)).expect("a time above 0");
    tcp
}

/// Sends a stream and gets it back, on two threads.
fn echo(bytes: u64) {
    let tcp = connect(Service::Echo.port());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            send(&tcp, bytes);
            tcp.shutdown(Shutdown::Write).expect("it is open");
        });
        receive(&tcp, bytes);
        assert_eq!((&tcp).read(&mut [0]).expect("the end"), 0);
    });
}

fn send(mut tcp: &TcpStream, bytes: u64) {
    let mut position = 0;
    while position < bytes {
        let part = pattern::from(position, (bytes - position).min(60_000) as usize);
        position += tcp.write(part).expect("it is taken") as u64;
    }
}

fn receive(mut tcp: &TcpStream, bytes: u64) {
    let (mut position, mut buffer) = (0, vec![0; 1 << 16]);
    while position < bytes {
        let most = (bytes - position).min(1 << 16) as usize;
        let len = tcp.read(&mut buffer[..most]).expect("more of the stream");
        assert!(len > 0 && pattern::is(position, &buffer[..len]), "near byte {position}");
        position += len as u64;
    }
}

/// All services, each byte checked.
fn ask_all() {
    echo(8 << 20);
    receive(&connect(Service::Generate.port()), 16 << 20);
    let tcp = connect(Service::Discard.port());
    send(&tcp, 16 << 20);
    tcp.shutdown(Shutdown::Write).expect("it is open");
    assert_eq!((&tcp).read(&mut [0]).expect("the end, after all has arrived"), 0);
    datagrams();
    let (mut http, mut page) = (connect(Service::Http.port()), String::new());
    http.write_all(b"GET / HTTP/1.1\r\nHost: it\r\n\r\n").expect("it is taken");
    http.read_to_string(&mut page).expect("a page, and the end");
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n") && page.ends_with("\r\n\r\nhello\n"), "{page}");
}

fn datagrams() {
    let socket = UdpSocket::bind((HOST, 0)).expect("a port");
    socket.connect((SERVER, 7)).expect("a route");
    socket.set_read_timeout(Some(LIMIT)).expect("a time above 0");
    for size in [0, 1, 100, 1472] {
        let (mut sent, mut answer) = (vec![0; size], [0; 2000]);
        pattern::write(size as u64, &mut sent);
        socket.send(&sent).expect("it is taken");
        let len = socket.recv(&mut answer).expect("an answer");
        assert_eq!(answer[..len], sent);
    }
}

#[test]
fn all_services_answer_in_each_way() {
    let Some(wire) = wire("all_services_answer_in_each_way", 1500, true) else { return };
    for way in [Way::Pool(TxMode::Auto), Way::Pool(TxMode::Ring), Way::Own(TxMode::Auto)] {
        let report = serve(&wire, way, (FEW, 256 << 10), ask_all);
        assert_eq!(report.copied, [0, 0]);
    }
}

#[test]
fn all_services_answer_over_a_tap() {
    let Some(wire) = or_skip("all_services_answer_over_a_tap", Wire::for_tap()) else { return };
    if let Err(error) = File::options().read(true).write(true).open("/dev/net/tun") {
        return println!("SKIP all_services_answer_over_a_tap: /dev/net/tun: {error}");
    }
    serve(&wire, Way::Tap, (FEW, 256 << 10), ask_all);
}

#[test]
fn all_services_answer_in_packets_of_8000_bytes() {
    let Some(wire) = wire("all_services_answer_in_packets_of_8000_bytes", 8000, true) else { return };
    let report = serve(&wire, Way::Pool(TxMode::Auto), (FEW, 256 << 10), ask_all);
    assert!(report.copied.iter().all(|&copied| copied > 1000), "{report:?}");
}

#[test]
fn checksums_may_be_unfinished_if_the_peer_does_so() {
    let Some(wire) = wire("checksums_may_be_unfinished_if_the_peer_does_so", 1500, false) else { return };
    serve(&wire, Way::Pool(TxMode::Auto), (FEW, 256 << 10), ask_all);
}

/// Connections that are open at the same time.
fn connections(test: &str, count: usize) {
    let Some(wire) = wire(test, 1500, true) else { return };
    serve(&wire, Way::Pool(TxMode::Auto), (MANY, 4096), move || {
        let all: Vec<_> = (0..count).map(|_| connect(Service::Echo.port())).collect();
        for _ in 0..3 {
            all.iter().for_each(|tcp| send(tcp, 1000));
            all.iter().for_each(|tcp| receive(tcp, 1000));
        }
    });
}

#[test]
fn two_hundred_connections_are_echoed() {
    connections("two_hundred_connections_are_echoed", 200);
}

#[test]
fn a_thousand_connections_are_echoed() {
    connections("a_thousand_connections_are_echoed", 1000);
}

#[test]
fn the_server_ends_at_full_load() {
    let Some(wire) = wire("the_server_ends_at_full_load", 1500, true) else { return };
    let server = Running::start(&wire, Way::Pool(TxMode::Auto), FEW, 256 << 10).expect("the server starts");
    let streams = wire.far.run(|| {
        let (out, into) = (connect(Service::Generate.port()), connect(Service::Discard.port()));
        receive(&out, 1 << 20); // and more is on the way
        send(&into, 1 << 20);
        [out, into]
    });
    let report = server.stop().expect("the server ends");
    assert_eq!((report.missing, report.wrong), (0, 0), "{report:?}");
    drop(streams);
}

/// The program itself, which is killed in the end.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_program_answers_beside_the_kernel() {
    let Some(wire) = wire("the_program_answers_beside_the_kernel", 1500, true) else { return };
    let mut command = Command::new(env!("CARGO_BIN_EXE_pagepool-smoltcp"));
    command.args(["near0", &format!("{SERVER}/24")]);
    let listener = wire.near.run(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 22)).expect("a free port"));
    let mut program = Program(wire.near.run(move || command.spawn()).expect("the program starts"));
    let start = Instant::now();
    // Until it has its device, the kernel answers that nobody listens.
    while wire.far.run(|| TcpStream::connect((SERVER, 7))).is_err() {
        assert!(program.0.try_wait().expect("it is a child").is_none(), "the program ended");
        assert!(start.elapsed() < LIMIT, "the program does not answer");
    }
    wire.far.run(ask_all);
    // What stands for ssh is the kernel's, as before.
    let tcp = wire.far.run(|| connect(22));
    let (accepted, _) = listener.accept().expect("the connection");
    std::thread::scope(|scope| {
        scope.spawn(|| send(&tcp, 1 << 20));
        receive(&accepted, 1 << 20);
    });
}
