//! A thread that sends numbered frames, as fast as it can or at a rate.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::error::NetError;
use super::frame_socket::FrameSocket;
use super::namespace::Namespace;
use super::numbered::NumberedFrames;

/// Frames of one system call.
const BATCH: usize = 64;
/// How long it rests when the driver has no room, or the rate none.
const NAP: Duration = Duration::from_micros(50);

/// What is sent.
#[derive(Clone, Copy, Debug)]
pub struct SourceParams {
    /// The frames.
    pub frames: NumberedFrames,
    /// How many at most.
    pub count: u64,
    /// How long at most.
    pub limit: Duration,
    /// How many a second at most; without, as many as go.
    pub per_second: Option<u64>,
    /// Whether every frame has its own number. Otherwise all are number 0, which costs the sender less.
    pub numbered: bool,
}

/// What was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SourceReport {
    /// Frames that the driver took: the numbers from 0 on, up to and without this one.
    pub sent: u64,
    /// Attempts for which there was no room. What was refused is sent later.
    pub refused: u64,
    /// How long it took.
    pub elapsed: Duration,
}

impl SourceReport {
    /// Frames a second.
    pub fn rate(&self) -> f64 {
        self.sent as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

#[derive(Debug, Default)]
struct Shared {
    sent: AtomicU64,
    stop: AtomicBool,
}

/// Sends on a thread of its own until it has sent all, is late, or is stopped.
#[derive(Debug)]
pub struct FrameSource {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Result<SourceReport, NetError>>>,
}

impl FrameSource {
    /// Starts it on a link of a namespace.
    pub fn start(namespace: &Namespace, link: &str, params: SourceParams) -> Result<Self, NetError> {
        let name = link.to_owned();
        let socket = namespace.run(move || FrameSocket::sender_here(&name))?;
        let shared = Arc::new(Shared::default());
        let theirs = shared.clone();
        let thread = namespace.spawn("frames", move || run(&socket, &params, &theirs))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Frames sent up to now.
    pub fn sent(&self) -> u64 {
        self.shared.sent.load(Ordering::Relaxed)
    }

    /// Ends it soon.
    pub fn stop(&self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }

    /// Whether it sends no more: it has sent all, was late or stopped, or failed.
    pub fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for its end.
    pub fn join(mut self) -> Result<SourceReport, NetError> {
        let thread = self.thread.take().expect("only this takes it, once");
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for FrameSource {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // whoever wants to know what it says calls `join`
        }
    }
}

fn run(socket: &FrameSocket, params: &SourceParams, shared: &Shared) -> Result<SourceReport, NetError> {
    let size = params.frames.size();
    let mut bytes = vec![0; size * BATCH];
    bytes.chunks_exact_mut(size).for_each(|frame| params.frames.write(0, frame));
    let (start, mut sent, mut refused) = (Instant::now(), 0, 0);
    while sent < params.count && start.elapsed() < params.limit && !shared.stop.load(Ordering::Relaxed) {
        let batch = allowed(params, start, sent);
        if batch == 0 {
            std::thread::sleep(NAP);
            continue;
        }
        let frames = &mut bytes[..size * batch];
        if params.numbered {
            let numbers = sent..;
            frames
                .chunks_exact_mut(size)
                .zip(numbers)
                .for_each(|(frame, number)| params.frames.write(number, frame));
        }
        let took = socket.send_many(frames, size)?;
        if took == 0 {
            refused += 1;
            std::thread::sleep(NAP);
        }
        sent += took as u64;
        shared.sent.store(sent, Ordering::Relaxed);
    }
    Ok(SourceReport { sent, refused, elapsed: start.elapsed() })
}

/// How many frames may go now.
fn allowed(params: &SourceParams, start: Instant, sent: u64) -> usize {
    let due = params.per_second.map_or(u64::MAX, |rate| (start.elapsed().as_secs_f64() * rate as f64) as u64);
    let left = due.min(params.count).saturating_sub(sent);
    usize::try_from(left).unwrap_or(BATCH).min(BATCH)
}
