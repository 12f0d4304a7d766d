//! The raw end of a link: frames as they are, sent and received by a socket of the kernel's.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use pagepool_net::link::{NetError, Netlink};

use crate::namespace::Namespace;
use crate::sys::packet::{self, BATCH, Hears};
use crate::sys::poll::wait_readable;

/// A raw socket for the frames of one link. Only [`FrameSocket::wait`] blocks.
///
/// It receives what comes over the wire, not what this machine sends. It bypasses the queueing discipline, so
/// the caller learns of each frame that the driver has no room for.
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
    /// Room for 64 frames of at most `frame_len` bytes.
    pub fn new(frame_len: usize) -> Self {
        let frame_len = frame_len.max(1);
        Self { bytes: vec![0; frame_len * BATCH], frame_len, lengths: [0; BATCH], count: 0 }
    }

    /// The frames that were received. Longer ones are cut.
    pub fn frames(&self) -> impl Iterator<Item = &[u8]> {
        let all = self.bytes.chunks_exact(self.frame_len).zip(self.lengths).take(self.count);
        all.map(|(frame, len)| &frame[..len.min(self.frame_len)])
    }
}

impl FrameSocket {
    /// A socket for sending and receiving on a link of a namespace.
    pub fn open(namespace: &Namespace, link: &str) -> Result<Self, NetError> {
        let name = link.to_owned();
        namespace.run(move || Self::open_here(&name))
    }

    /// The same, in the calling thread's namespace.
    pub fn open_here(link: &str) -> Result<Self, NetError> {
        Self::with(link, Hears::Wire)
    }

    /// The same, which also receives what this machine sends through the link, as tcpdump does.
    pub fn tap_here(link: &str) -> Result<Self, NetError> {
        Self::with(link, Hears::Both)
    }

    /// The same, or one that only sends: on that the kernel spends nothing when frames arrive.
    pub(crate) fn with(link: &str, hears: Hears) -> Result<Self, NetError> {
        let index = Netlink::open()?.link(link)?.index;
        let socket = packet::open(index, hears);
        let about = || format!("frames of interface {link:?}");
        let socket = socket.map_err(|error| NetError::call("socket(AF_PACKET)", about(), error))?;
        Ok(Self { socket, link: link.into() })
    }

    /// Sends a frame; false if the driver has no room for it.
    pub fn send(&self, frame: &[u8]) -> Result<bool, NetError> {
        let sent = packet::send(self.socket.as_fd(), frame);
        Ok(self.unless_full("send", sent)?.is_some())
    }

    /// Sends the frames of this length that stand one after the other, the first 64 of them; gives how many
    /// there was room for.
    pub fn send_many(&self, frames: &[u8], len: usize) -> Result<usize, NetError> {
        if len == 0 {
            let (value, range) = ("0".into(), "14 or more");
            return Err(NetError::OutOfRange { field: "the length of a frame", value, range });
        }
        let sent = packet::send_many(self.socket.as_fd(), frames, len);
        Ok(self.unless_full("sendmmsg", sent)?.unwrap_or(0))
    }

    /// Receives a frame, if one is there: its length, which is more than there was room for if it was cut.
    pub fn receive(&self, into: &mut [u8]) -> Result<Option<usize>, NetError> {
        let got = packet::receive(self.socket.as_fd(), into);
        self.unless_full("recv", got)
    }

    /// Receives what is there, at most 64 frames; gives how many.
    pub fn receive_many(&self, into: &mut FrameBatch) -> Result<usize, NetError> {
        let FrameBatch { bytes, frame_len, lengths, count } = into;
        let got = packet::receive_many(self.socket.as_fd(), bytes, *frame_len, lengths);
        *count = 0; // also after an error
        *count = self.unless_full("recvmmsg", got)?.unwrap_or(0);
        Ok(*count)
    }

    /// Sleeps until a frame is there, at most so long; says whether one is.
    pub fn wait(&self, limit: Duration) -> bool {
        wait_readable(self.socket.as_fd(), limit)
    }

    /// `None` where there is no room, or nothing to receive.
    fn unless_full<T>(&self, call: &'static str, result: io::Result<T>) -> Result<Option<T>, NetError> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) if packet::is_full(&error) => Ok(None),
            Err(error) => Err(NetError::call(call, format!("a frame of interface {:?}", self.link), error)),
        }
    }
}

impl AsFd for FrameSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
