//! A thread that sends numbered frames, at full speed or at a rate.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pagepool_link::{LinkError, Namespace};
use pagepool_net::NumberedFrames;

use crate::frame_socket::FrameSocket;
use crate::live_frames::LiveFrames;
use crate::sys::packet::Hears;

const BATCH: usize = 64;
/// The rough limit of a run of the kernel; a generator stops no sooner. The kernel spends some 20 ms on the
/// end of each run, which makes a few long runs best.
const RUN: Duration = Duration::from_millis(200);
const FRAMES: u64 = 1 << 22;
/// The pause without room in the driver, or without a due frame.
const NAP: Duration = Duration::from_micros(50);

/// The parameters of [`FrameGenerator`].
#[derive(Clone, Copy, Debug)]
pub struct GeneratorParams {
    /// The frames.
    pub frames: NumberedFrames,
    /// The most frames to send.
    pub count: u64,
    /// The longest time.
    pub limit: Duration,
    /// The most frames per second; `None`: as many as possible.
    pub per_second: Option<u64>,
    /// How frames are sent.
    pub mode: GeneratorMode,
}

/// How frames are sent: from the slowest, which accounts for each, to the fastest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GeneratorMode {
    /// Through a socket, each with its own number.
    Numbered,
    /// Through a socket, all with number 0.
    Same,
    /// By the kernel, which runs an XDP BPF program on copies of frame 0, without sockets: about ten times as
    /// fast, in bursts of many milliseconds. Requires Linux 5.18, `CAP_BPF`, frames of at most about 3400
    /// bytes, and on a veth an XDP receiver at the other end. The driver does not report drops.
    Xdp,
}

/// The result of a [`FrameGenerator`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GeneratorReport {
    /// Frames that the driver took, numbered 0 to `sent` − 1; with XDP: generated frames.
    pub sent: u64,
    /// Attempts without room in the driver. Their frames were sent later.
    pub refused: u64,
    /// The duration.
    pub elapsed: Duration,
}

impl GeneratorReport {
    /// Frames per second.
    pub fn rate(&self) -> f64 {
        self.sent as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

#[derive(Debug, Default)]
struct GeneratorState {
    sent: AtomicU64,
    stop: AtomicBool,
}

/// A thread that sends numbered frames until all are sent, its time is over, or it is stopped.
#[derive(Debug)]
pub struct FrameGenerator {
    state: Arc<GeneratorState>,
    thread: Option<JoinHandle<Result<GeneratorReport, LinkError>>>,
}

impl FrameGenerator {
    /// Starts the thread, on a link of a namespace.
    pub fn start(namespace: &Namespace, link: &str, params: GeneratorParams) -> Result<Self, LinkError> {
        let (name, mode) = (link.to_owned(), params.mode);
        let mut sink = namespace.run(move || Sink::open(&name, mode))?;
        let state = Arc::new(GeneratorState::default());
        let theirs = state.clone();
        let thread = namespace.spawn("frames", move || run(&mut sink, &params, &theirs))?;
        Ok(Self { state, thread: Some(thread) })
    }

    /// Frames sent up to now.
    pub fn sent(&self) -> u64 {
        self.state.sent.load(Ordering::Relaxed)
    }

    /// Makes the thread stop soon.
    pub fn stop(&self) {
        self.state.stop.store(true, Ordering::Relaxed);
    }

    /// Whether it sends no more, for any reason.
    pub fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for the end of the thread.
    pub fn join(mut self) -> Result<GeneratorReport, LinkError> {
        let thread = self.thread.take().expect("only this takes it, once");
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for FrameGenerator {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // only `join` needs the report
        }
    }
}

fn run(
    sink: &mut Sink,
    params: &GeneratorParams,
    state: &GeneratorState,
) -> Result<GeneratorReport, LinkError> {
    let size = params.frames.size();
    let mut bytes = vec![0; size * BATCH];
    bytes.chunks_exact_mut(size).for_each(|frame| params.frames.write(0, frame));
    let (start, mut sent, mut refused) = (Instant::now(), 0, 0);
    while sent < params.count && start.elapsed() < params.limit && !state.stop.load(Ordering::Relaxed) {
        let due = due(params, start, sent);
        let took = if due == 0 { 0 } else { sink.send(&mut bytes, params, sent, due)? };
        if took == 0 {
            refused += u64::from(due > 0);
            std::thread::sleep(NAP);
        }
        sent += took;
        state.sent.store(sent, Ordering::Relaxed);
    }
    Ok(GeneratorReport { sent, refused, elapsed: start.elapsed() })
}

fn due(params: &GeneratorParams, start: Instant, sent: u64) -> u64 {
    let due = params.per_second.map_or(u64::MAX, |rate| (start.elapsed().as_secs_f64() * rate as f64) as u64);
    due.min(params.count).saturating_sub(sent)
}

enum Sink {
    Socket(FrameSocket),
    Kernel {
        frames: LiveFrames,
        /// Adapted to the duration of runs.
        at_once: u64,
    },
}

impl Sink {
    fn open(link: &str, mode: GeneratorMode) -> Result<Self, LinkError> {
        if mode == GeneratorMode::Xdp {
            return Ok(Self::Kernel { frames: LiveFrames::load(link)?, at_once: 1 << 12 });
        }
        FrameSocket::with(link, Hears::Nothing).map(Self::Socket)
    }

    /// Sends at most `most` frames, from number `first` on. Returns how many.
    fn send(
        &mut self,
        bytes: &mut [u8],
        params: &GeneratorParams,
        first: u64,
        most: u64,
    ) -> Result<u64, LinkError> {
        let size = params.frames.size();
        match self {
            Self::Kernel { frames, at_once } => send_live(frames, &bytes[..size], most, at_once),
            Self::Socket(socket) => {
                let bytes = &mut bytes[..size * most.min(BATCH as u64) as usize];
                if params.mode == GeneratorMode::Numbered {
                    let frames = bytes.chunks_exact_mut(size);
                    frames.zip(first..).for_each(|(frame, number)| params.frames.write(number, frame));
                }
                Ok(socket.send_many(bytes, size)? as u64)
            }
        }
    }
}

/// Makes the kernel send at most `most` frames.
fn send_live(frames: &LiveFrames, frame: &[u8], most: u64, at_once: &mut u64) -> Result<u64, LinkError> {
    let (start, count) = (Instant::now(), most.min(*at_once));
    frames.send(frame, u32::try_from(count).unwrap_or(u32::MAX))?;
    if start.elapsed() < RUN / 2 {
        *at_once = (*at_once * 2).min(FRAMES);
    } else if start.elapsed() > RUN * 2 {
        *at_once = (*at_once / 2).max(BATCH as u64);
    }
    Ok(count)
}
