//! Measures the ways to move smoltcp's packets, in turn: streams out and in, and a round trip of one packet.

use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use pagepool_net::TxMode;
use pagepool_smoltcp::afxdp::Error;
use pagepool_smoltcp::pattern;
use pagepool_smoltcp::server::Service;
use pagepool_smoltcp::wire::{HOST, Running, SERVER, Way, Wire};

/// The ways, with their names.
const WAYS: [(&str, Way); 4] = [
    ("pool", Way::Pool(TxMode::Auto)),
    ("pool, transmit by ring", Way::Pool(TxMode::Ring)),
    ("own", Way::Own(TxMode::Auto)),
    ("TunTapInterface", Way::Tap),
];
const SERVICES: &[(Service, usize)] = &[(Service::Echo, 1), (Service::Discard, 1), (Service::Generate, 1)];
/// Bytes of a socket's buffers.
const BUFFER: usize = 512 << 10;
/// How long a stream runs before it is measured, and then.
const STREAM: [Duration; 2] = [Duration::from_millis(150), Duration::from_millis(500)];
const ROUND_TRIPS: usize = 2000;
const CHUNK: usize = 64 << 10;
/// Longest wait for a packet.
const LIMIT: Duration = Duration::from_secs(10);

/// What is measured, with its unit.
const FIGURES: [&str; 5] =
    ["out, Gbit/s", "CPU, ns per KiB", "in, Gbit/s", "CPU, ns per KiB", "round trip, us"];

/// Measures each way so many times, and prints medians.
pub fn run(runs: usize) -> Result<(), Error> {
    let mut all: [Vec<[f64; 5]>; WAYS.len()] = Default::default();
    for run in 0..runs {
        for at in (0..WAYS.len()).map(|at| (at + run) % WAYS.len()) {
            let wire = if WAYS[at].1 == Way::Tap { Wire::for_tap() } else { Wire::veth(1500, true) };
            let wire = match wire {
                Err(error) if error.is_permission() => {
                    println!("SKIP smoltcp: {error}");
                    return Ok(());
                }
                wire => wire?,
            };
            all[at].push(measure(&wire, WAYS[at])?);
        }
    }
    println!("median [least to most] of {runs} runs each");
    for ((name, _), runs) in WAYS.iter().zip(&all) {
        let figures = (0..FIGURES.len()).map(|at| summary(at, runs)).collect::<Vec<_>>();
        println!("{name}: {}", figures.join("; "));
    }
    Ok(())
}

fn summary(at: usize, runs: &[[f64; 5]]) -> String {
    let mut all: Vec<f64> = runs.iter().map(|figures| figures[at]).collect();
    all.sort_by(f64::total_cmp);
    match all[..] {
        [] => String::new(),
        [least, .., most] => format!("{} {:.2} [{least:.2} to {most:.2}]", FIGURES[at], all[all.len() / 2]),
        [one] => format!("{} {one:.2}", FIGURES[at]),
    }
}

/// One way, once. Fails if a byte is wrong, or a buffer has not returned.
fn measure(wire: &Wire, (name, way): (&str, Way)) -> Result<[f64; 5], Error> {
    let server = Running::start(wire, way, SERVICES, BUFFER)?;
    let (server, figures) = wire.far.run(move || {
        let figures = figures(&server);
        (server, figures)
    });
    let report = server.stop()?;
    let (figures, slow) = figures?;
    let shown = figures.iter().zip(FIGURES).map(|(figure, name)| format!("{name} {figure:.2}"));
    let shown = shown.collect::<Vec<_>>().join("; ");
    println!("{name}: {shown}; slow allocations {slow}, missing {}", report.missing);
    match (report.missing, report.wrong) {
        (0, 0) => Ok(figures),
        _ => Err("data is wrong, or a buffer has not returned".into()),
    }
}

/// The figures, and how often the pool took pages from its arena while a stream was measured.
fn figures(server: &Running) -> Result<([f64; 5], u64), Error> {
    let round_trip = round_trip()?;
    let (out, slow_out) = stream(server, Service::Generate, receive)?;
    let (into, slow_in) = stream(server, Service::Discard, send)?;
    Ok(([out[0], out[1], into[0], into[1], round_trip], slow_out + slow_in))
}

/// What is read before and after a stream.
struct Reading {
    at: Instant,
    position: u64,
    cpu: Duration,
    slow: u64,
}

impl Reading {
    fn new(server: &Running, position: u64) -> Result<Self, Error> {
        let slow = server.pool.as_ref().map_or(0, |pool| pool.stats().alloc_slow);
        Ok(Self { at: Instant::now(), position, cpu: server.cpu()?, slow })
    }
}

/// Gbit/s of a stream, the CPU time of the server's thread per KiB, and slow allocations.
fn stream(server: &Running, service: Service, step: Step) -> Result<([f64; 2], u64), Error> {
    let mut tcp = TcpStream::connect((SERVER, service.port()))?;
    tcp.set_read_timeout(Some(LIMIT))?;
    tcp.set_write_timeout(Some(LIMIT))?;
    let (mut position, mut buffer) = (0, vec![0; CHUNK]);
    let mut from = Reading::new(server, 0)?;
    for part in STREAM {
        from = Reading::new(server, position)?;
        while from.at.elapsed() < part {
            position += step(&mut tcp, position, &mut buffer)? as u64;
        }
    }
    let to = Reading::new(server, position)?;
    let (bytes, elapsed) = ((to.position - from.position) as f64, to.at - from.at);
    let cpu = (to.cpu - from.cpu).as_nanos() as f64 / (bytes / 1024.0);
    Ok(([bytes * 8e-9 / elapsed.as_secs_f64(), cpu], to.slow - from.slow))
}

/// Moves a part of a stream. Returns its length.
type Step = fn(&mut TcpStream, u64, &mut [u8]) -> Result<usize, Error>;

fn receive(tcp: &mut TcpStream, position: u64, buffer: &mut [u8]) -> Result<usize, Error> {
    let len = tcp.read(buffer)?;
    if len == 0 || !pattern::is(position, &buffer[..len]) {
        return Err(format!("the stream is wrong near byte {position}").into());
    }
    Ok(len)
}

fn send(tcp: &mut TcpStream, position: u64, _: &mut [u8]) -> Result<usize, Error> {
    Ok(tcp.write(pattern::from(position, CHUNK))?)
}

/// The median time of a packet there and back, in microseconds.
fn round_trip() -> Result<f64, Error> {
    let socket = UdpSocket::bind((HOST, 0))?;
    socket.connect((SERVER, Service::Echo.port()))?;
    socket.set_read_timeout(Some(LIMIT))?;
    let (mut times, mut answer) = (Vec::with_capacity(ROUND_TRIPS), [0; 64]);
    for number in 0..ROUND_TRIPS as u64 {
        let start = Instant::now();
        socket.send(&number.to_be_bytes())?;
        let len = socket.recv(&mut answer)?;
        times.push(start.elapsed());
        if answer[..len] != number.to_be_bytes() {
            return Err(format!("datagram {number} has another answer").into());
        }
    }
    times.sort_unstable();
    Ok(times[ROUND_TRIPS / 2].as_nanos() as f64 / 1000.0)
}
