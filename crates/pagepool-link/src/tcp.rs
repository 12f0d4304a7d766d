//! A TCP transfer between two kernels, every byte checked.
//!
//! A connection that both sides have not ended is discarded at once, even by a kill: otherwise the kernel
//! would keep sending without a forwarder, and keep the namespace alive.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::error::LinkError;
use crate::namespace::Namespace;
use crate::sys::poll::wait_readable;
use crate::sys::socket::forget_on_close;

/// How long a call may wait before it checks for the end.
const SLICE: Duration = Duration::from_millis(50);
const CHUNK: usize = 256 << 10;
/// The content repeats after a prime number of bytes: a misplaced segment shows, unless it is this many
/// segments away, and no window is that long.
const PERIOD: usize = 65_521;

const ABOUT: &str = "a TCP transfer";
const NOT_FORWARDED: &str = "is something between the two hosts forwarding, ARP included?";

/// The parameters of a [`TcpTransfer`].
#[derive(Clone, Copy, Debug)]
pub struct TcpParams {
    /// The most bytes to send.
    pub bytes: u64,
    /// The longest time of sending; something is sent in any case, and what was sent is received.
    pub duration: Duration,
    /// The longest time to connect, and the longest time without progress.
    pub patience: Duration,
}

impl Default for TcpParams {
    fn default() -> Self {
        Self { bytes: u64::MAX, duration: Duration::from_secs(5), patience: Duration::from_secs(30) }
    }
}

/// The result of a [`TcpTransfer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TcpReport {
    /// Bytes that the sender's kernel accepted.
    pub sent: u64,
    /// Bytes that the receiver's kernel delivered.
    pub received: u64,
    /// The position of the first byte that differs from what was sent.
    pub corrupt_at: Option<u64>,
    /// The time from the accepted connection to the end of the stream.
    pub elapsed: Duration,
}

impl TcpReport {
    /// Whether everything arrived unchanged.
    pub fn is_whole(&self) -> bool {
        self.sent == self.received && self.corrupt_at.is_none()
    }

    /// Gbit/s of content.
    pub fn gbit_s(&self) -> f64 {
        self.received as f64 * 8e-9 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

#[derive(Debug, Default)]
struct TransferState {
    sent: AtomicU64,
    received: AtomicU64,
    /// Ends the sender; what it sent is received.
    stop: AtomicBool,
    /// One end failed: the other need not wait.
    failed: AtomicBool,
}

/// A TCP sender in one namespace and a receiver in another, each on its own thread.
///
/// Nothing in it waits without a limit; a failure at one end ends the other.
///
/// ```
/// use pagepool_link::{Namespace, TcpParams, TcpTransfer};
/// let lab = match Namespace::new("lab") {
///     Ok(lab) => lab,
///     Err(error) if error.is_permission() => return Ok(()), // not root
///     Err(error) => return Err(error),
/// };
/// let mut netlink = lab.netlink()?;
/// let loopback = netlink.link("lo")?.index;
/// netlink.set_up(loopback, true)?;
/// let params = TcpParams { bytes: 1 << 20, ..TcpParams::default() };
/// let report = TcpTransfer::start(&lab, &lab, [127, 0, 0, 1].into(), params)?.join()?;
/// assert!(report.is_whole() && report.received == 1 << 20);
/// # Ok::<(), pagepool_link::LinkError>(())
/// ```
#[derive(Debug)]
pub struct TcpTransfer {
    state: Arc<TransferState>,
    /// Returns its stream, which stays open until all is received: closing it discards what is on the way.
    sender: Option<JoinHandle<Result<TcpStream, LinkError>>>,
    receiver: Option<JoinHandle<Result<TcpReport, LinkError>>>,
}

impl TcpTransfer {
    /// Starts the transfer, to an address of namespace `to`.
    pub fn start(
        from: &Namespace,
        to: &Namespace,
        at: Ipv4Addr,
        params: TcpParams,
    ) -> Result<Self, LinkError> {
        let bound = to.run(move || {
            let listener = TcpListener::bind((at, 0))?;
            listener.set_nonblocking(true)?;
            forget_on_close(listener.as_fd())?;
            Ok((listener.local_addr()?, listener))
        });
        let (address, listener) = bound.map_err(|error| LinkError::call("bind", at.to_string(), error))?;
        let state = Arc::new(TransferState::default());
        let (ours, theirs) = (state.clone(), state.clone());
        let receiver = to.spawn("tcp-receive", move || ours.watch(receive(&listener, &params, &ours)))?;
        let mut transfer = Self { state, sender: None, receiver: Some(receiver) };
        transfer.sender =
            Some(from.spawn("tcp-send", move || theirs.watch(send(address, &params, &theirs)))?);
        Ok(transfer)
    }

    /// Bytes received and checked up to now.
    pub fn received(&self) -> u64 {
        self.state.received.load(Ordering::Relaxed)
    }

    /// Whether both ends are done, and [`TcpTransfer::join`] does not wait.
    pub fn is_over(&self) -> bool {
        let sender = self.sender.as_ref().is_none_or(JoinHandle::is_finished);
        sender && self.receiver.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Makes the sender stop soon. What was sent is still received.
    pub fn stop(&self) {
        self.state.stop.store(true, Ordering::Relaxed);
    }

    /// Waits for the end, and returns the result.
    pub fn join(mut self) -> Result<TcpReport, LinkError> {
        let sender = self.sender.take().map(wait);
        let receiver = self.receiver.take().map(wait).expect("only this takes it, once");
        sender.transpose()?; // its error says more: the receiver only sees that nothing arrives
        Ok(TcpReport { sent: self.state.sent.load(Ordering::Relaxed), ..receiver? })
    }
}

impl Drop for TcpTransfer {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::Relaxed);
        self.state.failed.store(true, Ordering::Relaxed);
        // Only `join` needs the report.
        let _ = self.sender.take().map(wait);
        let _ = self.receiver.take().map(wait);
    }
}

fn wait<T>(thread: JoinHandle<T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

impl TransferState {
    fn watch<T>(&self, result: Result<T, LinkError>) -> Result<T, LinkError> {
        if result.is_err() {
            self.failed.store(true, Ordering::Relaxed);
        }
        result
    }

    fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }
}

/// Repeats a call that waits a slice until it succeeds. `None` if it is over first. Fails after too long.
fn patiently<T>(
    what: &'static str,
    limit: Duration,
    is_over: impl Fn() -> bool,
    mut call: impl FnMut() -> io::Result<T>,
) -> Result<Option<T>, LinkError> {
    let start = Instant::now();
    while !is_over() {
        match call() {
            Ok(value) => return Ok(Some(value)),
            Err(error) if !is_slow(&error) => return Err(LinkError::call(what, ABOUT, error)),
            Err(_) if start.elapsed() >= limit => return Err(late(what, limit)),
            Err(_) => {}
        }
    }
    Ok(None)
}

fn is_slow(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

fn late(what: &str, limit: Duration) -> LinkError {
    LinkError::TimedOut { what: format!("{what} of {ABOUT}"), limit, remedy: NOT_FORWARDED }
}

/// The content, from any position on, for at least a chunk.
struct Pattern(Vec<u8>);

impl Pattern {
    fn new() -> Self {
        let mut state = 1u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        let mut bytes: Vec<u8> = (0..PERIOD).map(|_| next()).collect();
        while bytes.len() < PERIOD + CHUNK {
            bytes.extend_from_within(..PERIOD);
        }
        Self(bytes)
    }

    fn at(&self, offset: u64, len: usize) -> &[u8] {
        let start = (offset % PERIOD as u64) as usize;
        &self.0[start..start + len.min(CHUNK)]
    }
}

/// Sends, and returns the stream after its end was sent.
fn send(to: SocketAddr, params: &TcpParams, state: &TransferState) -> Result<TcpStream, LinkError> {
    let stream = connect(to, params)?;
    let pattern = Pattern::new();
    let (start, mut sent) = (Instant::now(), 0);
    while sent < params.bytes {
        let left = usize::try_from(params.bytes - sent).unwrap_or(CHUNK);
        // Sends at least once, however late this thread runs. On a failure, the receiver reports why.
        let is_over = || {
            let is_late = sent > 0 && start.elapsed() >= params.duration;
            is_late || state.stop.load(Ordering::Relaxed) || state.has_failed()
        };
        let write = || (&stream).write(pattern.at(sent, left));
        let Some(bytes) = patiently("send", params.patience, is_over, write)? else { break };
        sent += bytes as u64;
        state.sent.store(sent, Ordering::Relaxed);
    }
    let shut = stream.shutdown(Shutdown::Write);
    shut.map_err(|error| LinkError::call("shutdown", ABOUT, error))?;
    Ok(stream)
}

fn connect(to: SocketAddr, params: &TcpParams) -> Result<TcpStream, LinkError> {
    let stream = TcpStream::connect_timeout(&to, params.patience).and_then(|stream| {
        forget_on_close(stream.as_fd())?;
        stream.set_write_timeout(Some(SLICE))?;
        Ok(stream)
    });
    stream.map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut => late("connect", params.patience),
        _ => LinkError::call("connect", format!("to {to}; {NOT_FORWARDED}"), error),
    })
}

fn receive(
    listener: &TcpListener,
    params: &TcpParams,
    state: &TransferState,
) -> Result<TcpReport, LinkError> {
    let mut report = TcpReport { sent: 0, received: 0, corrupt_at: None, elapsed: Duration::ZERO };
    let (limit, is_over) = (params.patience, || state.has_failed());
    let accept = || {
        wait_readable([Some(listener.as_fd())], SLICE);
        listener.accept()
    };
    let Some((mut stream, _)) = patiently("accept", limit, is_over, accept)? else { return Ok(report) };
    let limited = stream.set_read_timeout(Some(SLICE));
    limited.map_err(|error| LinkError::call("setsockopt", ABOUT, error))?;
    let (start, pattern, mut buffer) = (Instant::now(), Pattern::new(), vec![0; CHUNK]);
    while let Some(bytes @ 1..) = patiently("receive", limit, is_over, || stream.read(&mut buffer))? {
        let differs = differs_at(&buffer[..bytes], pattern.at(report.received, bytes));
        report.corrupt_at = report.corrupt_at.or(differs.map(|at| report.received + at as u64));
        report.received += bytes as u64;
        state.received.store(report.received, Ordering::Relaxed);
    }
    report.elapsed = start.elapsed();
    Ok(report)
}

fn differs_at(one: &[u8], other: &[u8]) -> Option<usize> {
    if one == other {
        return None; // by far the fastest path
    }
    one.iter().zip(other).position(|(one, other)| one != other).or(Some(one.len().min(other.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_content_says_where_it_is() {
        let pattern = Pattern::new();
        assert_eq!(pattern.at(0, 100), pattern.at(PERIOD as u64, 100));
        assert_eq!(pattern.at(PERIOD as u64 - 1, CHUNK).len(), CHUNK);
        for shift in [1, 64, 1448, 4096, 65_160] {
            assert_ne!(pattern.at(0, 64), pattern.at(shift, 64), "{shift}");
        }
        let mut copy = pattern.at(7, 1000).to_vec();
        assert_eq!(differs_at(&copy, pattern.at(7, 1000)), None);
        copy[999] ^= 1;
        assert_eq!(differs_at(&copy, pattern.at(7, 1000)), Some(999));
        assert_eq!(differs_at(&copy[..9], pattern.at(7, 8)), Some(8));
    }
}
