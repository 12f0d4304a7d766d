//! Zero-copy sends on a socket (`MSG_ZEROCOPY`). Its error queue reports when pages are free again.
//!
//! What   the kernel sends from the application's pages, which it pins. It reads them until the last byte is
//!        acknowledged or the last copy of a datagram is gone. [`ZeroCopySocket`] is an [`InUse`]: its pages
//!        are deferred in their pool.
//! Who    any thread sends, one at a time; any thread polls. The send lock is held across `sendmsg`, to
//!        number sends in the kernel's order; on a blocking socket other senders wait. The window's lock is
//!        held only briefly: a poll never waits for a send.
//! Count  the kernel numbers the zero-copy sends that it accepts, from 0, and the socket counts along.
//!        Therefore no other code may send on this socket with `MSG_ZEROCOPY`. A failed send is not counted
//!        if the kernel returns its error before counting, or after undoing the count
//!        (net/ipv4/tcp.c:tcp_sendmsg_locked, net/ipv4/ip_output.c:__ip_append_data, v7.3). After any other
//!        error of a datagram socket (a firewall's EPERM) the kernel's count is unknown, and the socket only
//!        sends copies from then on.
//! End    closing a TCP socket does not free its pages: the kernel retransmits from them. A pool keeps the
//!        socket, and its descriptor, while pages wait for it. To end early, shut the connection down through
//!        the descriptor, and drop nothing. If the peer is gone, the wait ends after the kernel's
//!        retransmissions. After a reset it ends at once: the kernel drops unsent data, and reports that in
//!        the error queue. If the descriptor is closed with pages in use, they are never reported free.
//! Cost   a send: the system call and two uncontended locks. `in_use`: one lock.

mod sys;
mod window;

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pagepool::{Error, InUse};

use sys::Note;
use window::Window;

use crate::sys::remedy::failed;

/// The most notes that one `refresh` takes from the error queue.
const NOTES: usize = 64;

/// A connected socket that sends from the pages of a pool.
///
/// ```
/// use pagepool::{Arena, ArenaParams, Pool, PoolParams};
/// use pagepool_net::ZeroCopySocket;
/// use std::{io::IoSlice, net::UdpSocket, sync::Arc, time::Duration};
///
/// let receiver = UdpSocket::bind("127.0.0.1:0")?;
/// let sender = UdpSocket::bind("127.0.0.1:0")?;
/// sender.connect(receiver.local_addr()?)?;
/// let socket = match ZeroCopySocket::new(sender) {
///     Ok(socket) => Arc::new(socket),
///     Err(refused) => return Ok(println!("SKIP {refused}")),
/// };
/// let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
/// let pool = Pool::new(PoolParams { defer_capacity: 64, ..Default::default() }, arena)?.bind();
/// let user = pool.deferred_user(socket.clone())?;
///
/// let mut buffer = pool.alloc_page().unwrap();
/// buffer.bytes_mut().unwrap()[..5].copy_from_slice(b"hello");
/// let sent = socket.send(&[IoSlice::new(&buffer.bytes().unwrap()[..5])])?;
/// match sent.cookie {
///     Some(cookie) => pool.defer(&user, buffer, cookie).expect("there is room for 64"),
///     None => drop(buffer), // it was copied
/// }
/// let mut packet = [0; 16];
/// assert_eq!(receiver.recv(&mut packet)?, 5);
/// assert!(pool.destroy().wait(Duration::from_secs(10)), "the kernel is done with it");
/// let stats = socket.stats();
/// assert_eq!((stats.sends + stats.refused, stats.sends), (1, stats.copied + stats.zero_copy));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ZeroCopySocket {
    fd: OwnedFd,
    datagrams: bool,
    /// Whether the kernel's count of sends is unknown. Written by a failed send, under `sending`.
    uncertain: AtomicBool,
    sending: Mutex<()>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    window: Window,
    stats: ZeroCopyStats,
}

/// The result of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a buffer whose cookie is not waited for may be used again while the kernel reads it"]
pub struct Sent {
    /// Bytes that the kernel accepted: all of a datagram, perhaps fewer of a stream.
    pub bytes: usize,
    /// The cookie to [`defer`](pagepool::Bound::defer) the buffers with; `None` if the kernel copied the
    /// bytes, and the buffers are free.
    ///
    /// On a stream a cookie covers all earlier sends, too: defer a buffer that took several sends with the
    /// last cookie.
    pub cookie: Option<u64>,
}

/// The counters of a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ZeroCopyStats {
    /// Sends from the application's pages: `zero_copy` + `copied`, once all are complete.
    pub sends: u64,
    /// Completed sends without a copy.
    pub zero_copy: u64,
    /// Completed sends that the kernel copied after all, as it does on loopback. If the kernel reports
    /// several sends together, all count like the first.
    pub copied: u64,
    /// Sends copied at once, because the kernel had no memory for more notes about zero-copy sends (ENOBUFS:
    /// `net.core.optmem_max`, or RLIMIT_MEMLOCK).
    pub refused: u64,
    /// Sends copied at once, because 4096 sends were incomplete, the kernel's count was unknown, or there
    /// were no bytes.
    pub ordinary: u64,
    /// Other notes in the error queue, which are dropped.
    pub other_notes: u64,
}

impl ZeroCopySocket {
    /// Takes a connected UDP or TCP socket, over IPv4 or IPv6. No other code may send, or have sent, with
    /// `MSG_ZEROCOPY` on it.
    ///
    /// Fails if the kernel refuses `SO_ZEROCOPY`, and for a datagram socket with `IP_RECVERR`.
    ///
    /// ```
    /// # use std::os::unix::net::UnixDatagram;
    /// let (unix, _) = UnixDatagram::pair().unwrap();
    /// let error = pagepool_net::ZeroCopySocket::new(unix).unwrap_err();
    /// assert!(error.to_string().starts_with("setsockopt(SO_ZEROCOPY) failed"));
    /// ```
    pub fn new(socket: impl Into<OwnedFd>) -> Result<Self, Error> {
        let fd = socket.into();
        let refused = |call, known: &'static str| move |source| failed(call, source, known);
        let remedy = "use a UDP or TCP socket on Linux 5.0 or later, or send without zero copy";
        sys::allow_zero_copy(fd.as_fd()).map_err(refused("setsockopt(SO_ZEROCOPY)", remedy))?;
        let datagrams = sys::is_datagram(fd.as_fd()).map_err(refused("getsockopt(SO_TYPE)", remedy))?;
        if datagrams && sys::queues_errors(fd.as_fd()) {
            let what = "zero-copy sends on a datagram socket with IP_RECVERR are not supported: it is \
                        unknown whether the kernel counts a send that fails. Turn IP_RECVERR off";
            return Err(Error::Unsupported { what: what.into() });
        }
        let state = State { window: Window::starting_at(0), stats: ZeroCopyStats::default() };
        let (sending, state) = (Mutex::new(()), Mutex::new(state));
        Ok(Self { fd, datagrams, uncertain: AtomicBool::new(false), sending, state })
    }

    /// Sends to the socket's peer, from the slices' pages if the kernel accepts that, else by copy. The
    /// slices must not change until [`in_use`](InUse::in_use) returns false for the cookie: the kernel may
    /// still read them.
    ///
    /// Returns the errors of `sendmsg`: then nothing was sent, and the slices are free.
    pub fn send(&self, slices: &[IoSlice<'_>]) -> io::Result<Sent> {
        let _in_order = lock(&self.sending);
        if let Some(sent) = self.send_from_pages(slices)? {
            return Ok(sent);
        }
        let bytes = sys::send(self.fd.as_fd(), slices, false)?;
        Ok(Sent { bytes, cookie: None })
    }

    /// Its counters.
    pub fn stats(&self) -> ZeroCopyStats {
        self.state().stats
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Returns `None`, and counts the reason, if a copy must be sent. Before it gives up, it reads the error
    /// queue, whose notes use up the kernel's memory and the window. Call it under `sending`.
    fn send_from_pages(&self, slices: &[IoSlice<'_>]) -> io::Result<Option<Sent>> {
        // The kernel counts an empty datagram, but not an empty send on a stream: neither is tried.
        let nothing = slices.iter().all(|slice| slice.is_empty());
        let mut refused = false;
        // Relaxed: written and read under `sending`.
        if !nothing && !self.uncertain.load(Ordering::Relaxed) {
            for again in [false, true] {
                if again {
                    self.refresh();
                }
                match self.try_send(slices) {
                    Some(Err(error)) if error.raw_os_error() == Some(libc::ENOBUFS) => refused = true,
                    Some(sent) => return sent.map(Some),
                    None => {}
                }
            }
        }
        let stats = &mut self.state().stats;
        let counter = if refused { &mut stats.refused } else { &mut stats.ordinary };
        *counter += 1;
        Ok(None)
    }

    /// Returns `None` if the window is full. Takes the number before the send: the kernel may complete it
    /// before the call returns.
    fn try_send(&self, slices: &[IoSlice<'_>]) -> Option<io::Result<Sent>> {
        let cookie = self.state().window.begin()?;
        let sent = sys::send(self.fd.as_fd(), slices, true);
        let state = &mut *self.state();
        match &sent {
            Ok(_) => state.stats.sends += 1,
            Err(error) => {
                state.window.take_back();
                if self.datagrams && !is_before_the_count(error) {
                    self.uncertain.store(true, Ordering::Relaxed);
                }
            }
        }
        Some(sent.map(|bytes| Sent { bytes, cookie: Some(cookie) }))
    }
}

impl AsFd for ZeroCopySocket {
    /// The descriptor, to sleep on: `POLLERR` means that sends are complete. Do not read its error queue,
    /// send on it with `MSG_ZEROCOPY` or turn `IP_RECVERR` on.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl InUse for ZeroCopySocket {
    /// Reads at most 64 notes from the error queue; each may cover many sends.
    fn refresh(&self) {
        for _ in 0..NOTES {
            let Some(note) = sys::next_note(self.fd.as_fd()) else { return };
            let state = &mut *self.state();
            match note {
                Note::Completed { first, last, copied } => {
                    let sends = state.window.complete(first, last);
                    let counter = if copied { &mut state.stats.copied } else { &mut state.stats.zero_copy };
                    *counter += sends;
                }
                Note::Other => state.stats.other_notes += 1,
            }
        }
    }

    /// Whether the send is incomplete; on a stream, whether it or any earlier send is.
    fn in_use(&self, cookie: u64) -> bool {
        let window = &self.state().window;
        if self.datagrams { window.is_out(cookie) } else { window.is_out_up_to(cookie) }
    }
}

/// No user code runs under these locks: a panic cannot leave their data inconsistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Errors of a datagram send that the kernel returns before counting it, or after undoing the count. ENOBUFS
/// is one, because [`ZeroCopySocket::new`] refuses sockets to which the network may return it, too.
fn is_before_the_count(error: &io::Error) -> bool {
    let known = [
        libc::EAGAIN,
        libc::EINTR,
        libc::EMSGSIZE,
        libc::ENOBUFS,
        libc::ENOMEM,
        libc::EFAULT,
        libc::EPIPE,
        libc::ENOTCONN,
        libc::EDESTADDRREQ,
        libc::ECONNREFUSED,
        libc::ENETUNREACH,
    ];
    error.raw_os_error().is_some_and(|errno| known.contains(&errno))
}
