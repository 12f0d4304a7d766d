//! A UDP receiver that passes packets to many tasks as `Bytes`, in pages of a pool.
//!
//! One task receives and owns the pool: the future of `block_on`, which stays on its thread. The kernel
//! writes each packet into a page. The page becomes a `Bytes` without a copy and goes through a channel. A
//! task drops it on any thread, which returns the page. If all pages are out, the receiver sleeps on the
//! pool's descriptor until one returns.

mod buffers;

use std::net::{Ipv4Addr, SocketAddr, UdpSocket as StdSocket};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use buffers::Buffers;
use bytes::Bytes;
use lab::{Error, Options, Outcome, ticks};
use pagepool_link::Mac;
use pagepool_net::{NumberedFrames, Tally};
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Tasks that take packets.
const TASKS: usize = 16;
/// Most packets that wait for a task.
const QUEUE: usize = 16;
/// Bytes per packet: about an Ethernet frame.
const SIZE: usize = 1400;
/// Most packets in flight: fewer than a socket's buffer holds, so none can be lost.
const WINDOW: u64 = 48;
/// Longest time without an arrival.
const TIMEOUT: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    lab::main("tokio-bytes", 200_000, run)
}

fn run(options: &Options) -> Result<Outcome, Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let count = options.count;
    let socket = StdSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.set_nonblocking(true)?;
    let (to, arrived) = (socket.local_addr()?, Arc::new(AtomicU64::new(0)));
    let (tasks, queues) = start_tasks(&runtime, count, &arrived);
    let sender = thread::spawn(move || send(to, count, &arrived));
    let (buffers, moved, received) = runtime.block_on(async {
        let mut buffers = Buffers::new(options.allocator)?;
        let received = receive(&UdpSocket::from_std(socket)?, &mut buffers, queues, count).await?;
        let mut moved = Vec::new();
        for task in tasks {
            moved.push(task.await?);
        }
        Ok::<_, Error>((buffers, moved, received))
    })?;
    sender.join().map_err(|_| "the sender panicked")??;
    outcome(options, buffers, &moved, received)
}

/// Receives all packets and passes each to a task. Returns the ticks spent on buffers.
async fn receive(
    socket: &UdpSocket,
    buffers: &mut Buffers,
    queues: Vec<mpsc::Sender<Bytes>>,
    count: u64,
) -> Result<u64, Error> {
    let mut spent = 0;
    for _ in 0..count {
        let packet = tokio::time::timeout(TIMEOUT, buffers.receive(socket, &mut spent));
        let Ok(packet) = packet.await else { break }; // `outcome` counts missing packets
        let packet = packet?;
        let queue = queue_of(&packet);
        queues[queue].send(packet).await?;
    }
    Ok(spent)
}

/// The task for a packet. Equal numbers go to one task, like the packets of a flow.
fn queue_of(packet: &[u8]) -> usize {
    packet.get(21).map_or(0, |&byte| usize::from(byte) % TASKS)
}

/// What a task received.
struct Seen {
    tally: Tally,
    /// Ticks spent on dropping packets.
    ticks: u64,
}

type Tasks = (Vec<JoinHandle<Seen>>, Vec<mpsc::Sender<Bytes>>);

fn start_tasks(runtime: &tokio::runtime::Runtime, count: u64, arrived: &Arc<AtomicU64>) -> Tasks {
    let start = |_| {
        let (queue, mut packets) = mpsc::channel::<Bytes>(QUEUE);
        let arrived = arrived.clone();
        let task = async move {
            let mut seen = Seen { tally: Tally::new(count), ticks: 0 };
            while let Some(packet) = packets.recv().await {
                seen.tally.take(&packet);
                let start = ticks();
                drop(packet);
                seen.ticks += ticks() - start;
                arrived.fetch_add(1, Ordering::Relaxed);
            }
            seen
        };
        (runtime.spawn(task), queue)
    };
    (0..TASKS).map(start).unzip()
}

/// Sends numbered packets, at most [`WINDOW`] of them in flight.
fn send(to: SocketAddr, count: u64, arrived: &AtomicU64) -> std::io::Result<()> {
    let socket = StdSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let frames = NumberedFrames::new(Mac([2; 6]), Mac([2; 6]), SIZE).map_err(std::io::Error::other)?;
    let (mut packet, mut last, mut before) = ([0; SIZE], Instant::now(), 0);
    for number in 0..count {
        frames.write(number, &mut packet);
        loop {
            let now = arrived.load(Ordering::Relaxed);
            if now != before {
                (last, before) = (Instant::now(), now);
            }
            if number < now + WINDOW {
                break;
            }
            if last.elapsed() > TIMEOUT {
                return Ok(()); // `outcome` counts missing packets
            }
            thread::yield_now();
        }
        socket.send_to(&packet, to)?;
    }
    Ok(())
}

fn outcome(options: &Options, buffers: Buffers, seen: &[Seen], received: u64) -> Result<Outcome, Error> {
    let sum = |field: fn(&Seen) -> u64| seen.iter().map(field).sum::<u64>();
    let moved = sum(|seen| seen.tally.good);
    let wrong = sum(|seen| seen.tally.again + seen.tally.beyond + seen.tally.corrupt + seen.tally.unnumbered);
    let each = |ticks: u64| ticks as f64 / moved.max(1) as f64;
    let dropped = sum(|seen| seen.ticks);
    let cost = vec![
        ("buffer to Bytes, cycles per packet", each(received)),
        ("drop", each(dropped)),
        ("both", each(received + dropped)),
    ];
    let (waits, (buffers, returned)) = (buffers.waits(), buffers.close()?);
    let events = vec![("waits for a buffer", waits)];
    let missing = options.count - moved;
    Ok(Outcome { what: "packets", moved, missing, wrong, buffers, returned, cost, events })
}
