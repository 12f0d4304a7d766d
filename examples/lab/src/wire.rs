//! Two hosts that send each other numbered frames, and a forwarder between them.
//!
//! ```text
//!   host a ─── far0 ═══ near0 ── the forwarder ── near1 ═══ far1 ─── host b
//! ```
//!
//! Each host has at most [`WINDOW`] frames in flight. Every queue holds more, so no frame can be lost,
//! however busy the machine is.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use pagepool_lab::{FrameBatch, FrameSocket};
use pagepool_link::{Host, LinkError, LinkInfo, TwoHosts, TwoHostsParams};
use pagepool_net::{Arrival, NumberedFrames, Tally};

use crate::{Allocator, Error, Options, Outcome, Skip, ticks};

/// Most frames in flight per host; a veth's queue holds 256.
pub const WINDOW: u64 = 128;
/// Bytes per frame.
const SIZE: usize = 256;
/// Frames per system call.
const BATCH: usize = 64;
/// Longest time without an arrival.
const TIMEOUT: Duration = Duration::from_secs(20);
const NAP: Duration = Duration::from_micros(20);

/// A forwarder between the hosts. It stays on one thread.
pub trait Forwarder: Sized {
    /// Opens both interfaces, in their network namespace.
    fn open(interfaces: [&str; 2], allocator: Allocator) -> Result<Self, Error>;

    /// Moves the frames that are ready. Returns whether there were any.
    fn poll(&mut self) -> Result<bool, Error>;

    /// Closes both interfaces and returns all buffers.
    fn close(self) -> Result<Closed, Error>;
}

/// What a forwarder reports when it closes.
#[derive(Clone, Copy, Debug)]
pub struct Closed {
    /// Number of buffers.
    pub buffers: u64,
    /// Buffers that are free at the end.
    pub returned: u64,
    /// Ticks spent on moving buffers from the allocator to fill rings, and from completion rings back to the
    /// allocator.
    pub allocator_ticks: u64,
}

/// Makes a forwarder move `options.count` packets each way.
pub fn forward<F: Forwarder>(options: &Options) -> Result<Outcome, Error> {
    let hosts = TwoHosts::new(&TwoHostsParams::default()).map_err(|error| skip_or_fail(&error))?;
    let names = hosts.near.each_ref().map(|link| link.name.clone());
    let (stop, (ready, is_ready)) = (Arc::new(AtomicBool::new(false)), mpsc::channel());
    let (until, allocator) = (stop.clone(), options.allocator);
    let thread = hosts.between.spawn("forwarder", move || {
        let forwarder = F::open(names.each_ref().map(String::as_str), allocator)?;
        let _ = ready.send(()); // without it, `recv` fails when the thread exits
        poll(forwarder, &until)
    })?;
    let mut ends =
        [End::new(&hosts.a, &hosts.near[0], options)?, End::new(&hosts.b, &hosts.near[1], options)?];
    if is_ready.recv().is_ok() {
        exchange(&mut ends, options.count)?;
    }
    stop.store(true, Ordering::Relaxed);
    let (closed, ticks) = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    Ok(outcome(&ends, options, closed, ticks))
}

fn skip_or_fail(error: &LinkError) -> Error {
    if error.is_permission() { Skip(error.to_string()).into() } else { error.to_string().into() }
}

/// Polls until `until` is set. Also returns the ticks of the rounds that moved frames.
fn poll(mut forwarder: impl Forwarder, until: &AtomicBool) -> Result<(Closed, u64), Error> {
    let mut busy = 0;
    while !until.load(Ordering::Relaxed) {
        let start = ticks();
        if forwarder.poll()? {
            busy += ticks() - start;
        } else {
            thread::sleep(NAP); // a real program would sleep on its sockets
        }
    }
    Ok((forwarder.close()?, busy))
}

/// A host: what it sends, and which frames of the other host arrived.
struct End {
    socket: FrameSocket,
    frames: NumberedFrames,
    bytes: Vec<u8>,
    sent: u64,
    batch: FrameBatch,
    tally: Tally,
}

impl End {
    fn new(host: &Host, near: &LinkInfo, options: &Options) -> Result<Self, Error> {
        let frames = NumberedFrames::between(&host.link, near, SIZE)?;
        let socket = FrameSocket::of(host)?;
        let (bytes, batch, tally) = (vec![0; SIZE * BATCH], FrameBatch::new(SIZE), Tally::new(options.count));
        Ok(Self { socket, frames, bytes, sent: 0, batch, tally })
    }

    /// Sends frames until the window is full.
    fn send(&mut self, arrived: u64, count: u64) -> Result<(), Error> {
        let free = (arrived + WINDOW).min(count).saturating_sub(self.sent).min(BATCH as u64);
        let bytes = &mut self.bytes[..SIZE * free as usize];
        for (frame, number) in bytes.chunks_exact_mut(SIZE).zip(self.sent..) {
            self.frames.write(number, frame);
        }
        if free > 0 {
            self.sent += self.socket.send_many(bytes, SIZE)? as u64;
        }
        Ok(())
    }

    /// Counts the frames that arrived. Returns whether a good one did.
    fn receive(&mut self) -> Result<bool, Error> {
        let some = self.socket.receive_many(&mut self.batch)? > 0;
        let good = |arrival| matches!(arrival, Arrival::Good(_));
        Ok(self.batch.frames().filter(|frame| good(self.tally.take(frame))).count() > 0 && some)
    }
}

fn exchange(ends: &mut [End; 2], count: u64) -> Result<(), Error> {
    let mut last = Instant::now();
    while ends.iter().any(|end| end.tally.good < count) && last.elapsed() < TIMEOUT {
        let arrived = [ends[1].tally.good, ends[0].tally.good];
        for (end, arrived) in ends.iter_mut().zip(arrived) {
            end.send(arrived, count)?;
        }
        let [one, other] = ends;
        if one.receive()? | other.receive()? {
            last = Instant::now();
        } else {
            thread::yield_now();
        }
    }
    Ok(())
}

fn outcome(ends: &[End; 2], options: &Options, closed: Closed, ticks: u64) -> Outcome {
    let sum = |field: fn(&Tally) -> u64| ends.iter().map(|end| field(&end.tally)).sum();
    let (moved, wrong): (u64, _) = (sum(|t| t.good), sum(|t| t.again + t.beyond + t.corrupt));
    let each = |ticks: u64| ticks as f64 / moved.max(1) as f64;
    let cost = vec![
        ("fill and completion, cycles per packet", each(closed.allocator_ticks)),
        ("all work of the thread", each(ticks)),
    ];
    let (buffers, returned) = (closed.buffers, closed.returned);
    Outcome {
        what: "packets",
        moved,
        missing: 2 * options.count - moved,
        wrong,
        buffers,
        returned,
        cost,
        events: vec![],
    }
}
