//! The raw end of a link: a socket that sends and receives frames unchanged.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use pagepool_link::sys::poll::wait_readable;
use pagepool_link::{Host, LinkError, Namespace, Netlink};

use crate::sys::packet::{self, BATCH, Hears};

/// A raw socket for the frames of one link. Only [`FrameSocket::wait`] blocks.
///
/// It receives frames from the wire, not those that this machine sends. It bypasses the queueing discipline:
/// the caller learns of each frame for which the driver has no room.
#[derive(Debug)]
pub struct FrameSocket {
    socket: OwnedFd,
    link: String,
}

/// Up to 64 received frames.
#[derive(Debug)]
pub struct FrameBatch {
    bytes: Vec<u8>,
    frame_len: usize,
    lengths: [usize; BATCH],
    count: usize,
}

impl FrameBatch {
    /// Makes room for 64 frames of at most `frame_len` bytes.
    pub fn new(frame_len: usize) -> Self {
        let frame_len = frame_len.max(1);
        Self { bytes: vec![0; frame_len * BATCH], frame_len, lengths: [0; BATCH], count: 0 }
    }

    /// Longer frames are cut.
    pub fn frames(&self) -> impl Iterator<Item = &[u8]> {
        let all = self.bytes.chunks_exact(self.frame_len).zip(self.lengths).take(self.count);
        all.map(|(frame, len)| &frame[..len.min(self.frame_len)])
    }
}

impl FrameSocket {
    /// Opens a socket on a link of a namespace.
    pub fn open(namespace: &Namespace, link: &str) -> Result<Self, LinkError> {
        let name = link.to_owned();
        namespace.run(move || Self::open_here(&name))
    }

    /// Opens a socket for the frames of a host's link.
    pub fn of(host: &Host) -> Result<Self, LinkError> {
        Self::open(&host.namespace, &host.link.name)
    }

    /// Opens a socket on a link of the calling thread's namespace.
    pub fn open_here(link: &str) -> Result<Self, LinkError> {
        Self::with(link, Hears::Wire)
    }

    /// Opens a socket that also receives what this machine sends through the link, as tcpdump does.
    pub fn tap_here(link: &str) -> Result<Self, LinkError> {
        Self::with(link, Hears::Both)
    }

    /// A socket that only sends costs the kernel nothing when frames arrive.
    pub(crate) fn with(link: &str, hears: Hears) -> Result<Self, LinkError> {
        let index = Netlink::open()?.link(link)?.index;
        let socket = packet::open(index, hears);
        let about = || format!("frames of interface {link:?}");
        let socket = socket.map_err(|error| LinkError::call("socket(AF_PACKET)", about(), error))?;
        Ok(Self { socket, link: link.into() })
    }

    /// Returns false if the driver has no room for the frame.
    pub fn send(&self, frame: &[u8]) -> Result<bool, LinkError> {
        let sent = packet::send(self.socket.as_fd(), frame);
        Ok(self.unless_full("send", sent)?.is_some())
    }

    /// Sends consecutive frames of `len` bytes, at most 64. Returns how many the driver took.
    pub fn send_many(&self, frames: &[u8], len: usize) -> Result<usize, LinkError> {
        if len == 0 {
            let (value, range) = ("0".into(), "14 or more");
            return Err(LinkError::OutOfRange { field: "the length of a frame", value, range });
        }
        let sent = packet::send_many(self.socket.as_fd(), frames, len);
        Ok(self.unless_full("sendmmsg", sent)?.unwrap_or(0))
    }

    /// Receives a frame, if available. Returns its length, larger than `into` if it was cut.
    pub fn receive(&self, into: &mut [u8]) -> Result<Option<usize>, LinkError> {
        let got = packet::receive(self.socket.as_fd(), into);
        self.unless_full("recv", got)
    }

    /// Receives the available frames, at most 64. Returns how many.
    pub fn receive_many(&self, into: &mut FrameBatch) -> Result<usize, LinkError> {
        let FrameBatch { bytes, frame_len, lengths, count } = into;
        let got = packet::receive_many(self.socket.as_fd(), bytes, *frame_len, lengths);
        *count = 0; // even after an error
        *count = self.unless_full("recvmmsg", got)?.unwrap_or(0);
        Ok(*count)
    }

    /// Sleeps at most `limit` until a frame is available. Returns whether one is.
    pub fn wait(&self, limit: Duration) -> bool {
        wait_readable([Some(self.socket.as_fd())], limit).is_some_and(|ready| ready[0])
    }

    /// `None`: no room, or nothing to receive.
    fn unless_full<T>(&self, call: &'static str, result: io::Result<T>) -> Result<Option<T>, LinkError> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) if packet::is_full(&error) => Ok(None),
            Err(error) => Err(LinkError::call(call, format!("a frame of interface {:?}", self.link), error)),
        }
    }
}

impl AsFd for FrameSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
