//! Rates of ordinary sockets on veth pairs: frames sent, frames received, and TCP through a forwarder of two
//! sockets.
//!
//! `cargo run --profile dist -p pagepool-net --example veth-rates`, as root, in its own namespaces, which are
//! gone at the end.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use pagepool_lab::{FrameBatch, FrameGenerator, FrameSocket, GeneratorMode, GeneratorParams};
use pagepool_link::{LinkError, TcpParams, TcpTransfer, TwoHosts, TwoHostsParams};
use pagepool_net::{NumberedFrames, Tally};

const SECONDS: Duration = Duration::from_secs(2);

fn main() -> Result<(), Box<dyn Error>> {
    let hosts = TwoHosts::new(&TwoHostsParams::default())?;
    for size in [64, 1500] {
        for mode in [GeneratorMode::Xdp, GeneratorMode::Same, GeneratorMode::Numbered] {
            send(&hosts, size, mode)?;
        }
        receive(&hosts, size)?;
    }
    Ok(tcp(&hosts)?)
}

fn params(hosts: &TwoHosts, size: usize, mode: GeneratorMode) -> Result<GeneratorParams, pagepool::Error> {
    let frames = NumberedFrames::between(&hosts.a.link, &hosts.near[0], size)?;
    Ok(GeneratorParams { frames, count: 100_000_000, limit: SECONDS, per_second: None, mode })
}

/// No socket listens: the kernel drops the frames behind the driver.
fn send(hosts: &TwoHosts, size: usize, mode: GeneratorMode) -> Result<(), Box<dyn Error>> {
    let source = FrameGenerator::start(&hosts.a.namespace, "far0", params(hosts, size, mode)?)?;
    let report = source.join()?;
    let what = match mode {
        GeneratorMode::Xdp => "made by the kernel", // and dropped: no program takes them
        GeneratorMode::Same => "all the same",
        GeneratorMode::Numbered => "each with its number",
    };
    println!("send    {size:4} bytes, {what:21} {:9.0} frames/s", report.rate());
    Ok(())
}

/// One socket receives frames and checks them.
fn receive(hosts: &TwoHosts, size: usize) -> Result<(), Box<dyn Error>> {
    let socket = open(hosts, 0)?;
    let (mut tally, mut batch) = (Tally::new(100_000_000), FrameBatch::new(2048));
    let source =
        FrameGenerator::start(&hosts.a.namespace, "far0", params(hosts, size, GeneratorMode::Numbered)?)?;
    let start = Instant::now();
    while !source.is_over() && start.elapsed() < 2 * SECONDS {
        if socket.receive_many(&mut batch)? == 0 {
            socket.wait(Duration::from_millis(10));
        }
        batch.frames().for_each(|frame| {
            tally.take(frame);
        });
    }
    let rate = tally.good as f64 / start.elapsed().as_secs_f64();
    let sent = source.join()?.rate();
    println!(
        "receive {size:4} bytes, checked               {rate:9.0} frames/s of {sent:.0}, corrupt {}",
        tally.corrupt
    );
    Ok(())
}

fn open(hosts: &TwoHosts, end: usize) -> Result<FrameSocket, LinkError> {
    let name = hosts.near[end].name.clone();
    hosts.run_between(move || FrameSocket::open_here(&name))
}

fn tcp(hosts: &TwoHosts) -> Result<(), LinkError> {
    let stop = Arc::new(AtomicBool::new(false));
    let bridge = forward([open(hosts, 0)?, open(hosts, 1)?], stop.clone());
    let params = TcpParams { duration: SECONDS, ..TcpParams::default() };
    let (a, b) = (&hosts.a.namespace, &hosts.b.namespace);
    let report = TcpTransfer::start(a, b, hosts.b.address, params)?.join();
    stop.store(true, Ordering::Relaxed);
    bridge.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    let report = report?;
    println!("TCP through two sockets: {:.2} Gbit/s, whole: {}", report.gbit_s(), report.is_whole());
    Ok(())
}

fn forward(ends: [FrameSocket; 2], stop: Arc<AtomicBool>) -> JoinHandle<Result<(), LinkError>> {
    thread::spawn(move || {
        let (start, mut batch) = (Instant::now(), FrameBatch::new(2048));
        while !stop.load(Ordering::Relaxed) && start.elapsed() < 10 * SECONDS {
            let mut idle = true;
            for (from, to) in [(0, 1), (1, 0)] {
                idle &= ends[from].receive_many(&mut batch)? == 0;
                for frame in batch.frames() {
                    ends[to].send(frame)?;
                }
            }
            if idle {
                ends[0].wait(Duration::from_micros(100));
            }
        }
        Ok(())
    })
}
