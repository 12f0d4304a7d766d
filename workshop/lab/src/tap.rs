//! A link whose other end is a file of this process.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use pagepool_link::sys::poll::wait_readable;
use pagepool_link::{LinkError, Netlink};

use crate::sys::tap;

/// A TAP: a link whose frames this value sends and receives, byte for byte, with their VLAN tags. (A packet
/// socket gets the tags separately.) The link takes frames of any length, and ends with the value.
///
/// ```
/// use pagepool_lab::{FrameSocket, Tap};
/// use pagepool_link::Namespace;
/// # use std::time::Duration;
/// let lab = match Namespace::new("lab") {
///     Ok(lab) => lab,
///     Err(error) if error.is_permission() => return Ok(()), // not root
///     Err(error) => return Err(error),
/// };
/// let tap = match lab.run(|| Tap::new("tap0")) {
///     Ok(tap) => tap,
///     Err(error) => return Ok(println!("SKIP: {error}")), // a kernel without TAPs
/// };
/// let socket = FrameSocket::open(&lab, "tap0")?;
/// let mut frame = [0; 64];
/// assert!(socket.send(&[1; 60])? && tap.wait(Duration::from_secs(5)));
/// assert_eq!(tap.receive(&mut frame)?, Some(60));
/// assert!(tap.send(&[2; 60])? && socket.wait(Duration::from_secs(5)));
/// assert_eq!(socket.receive(&mut frame)?, Some(60));
/// # Ok::<(), pagepool_link::LinkError>(())
/// ```
#[derive(Debug)]
pub struct Tap {
    file: File,
    link: String,
}

impl Tap {
    /// Creates a TAP in the calling thread's network namespace, and sets it up.
    pub fn new(link: &str) -> Result<Self, LinkError> {
        let failed = |call| move |error| LinkError::call(call, format!("TAP {link:?}"), error);
        let file = tap::device().map_err(failed("open(/dev/net/tun)"))?;
        tap::make(&file, link).map_err(failed("ioctl(TUNSETIFF)"))?;
        let mut netlink = Netlink::open()?;
        let index = netlink.link(link)?.index;
        netlink.set_up(index, true)?;
        Ok(Self { file, link: link.into() })
    }

    /// Makes the link receive a frame. Returns false if it has no room.
    pub fn send(&self, frame: &[u8]) -> Result<bool, LinkError> {
        Ok(self.unless_full("write", (&self.file).write(frame))?.is_some())
    }

    /// Takes a frame that the link sent, if available. Returns its length, at most that of `into`.
    pub fn receive(&self, into: &mut [u8]) -> Result<Option<usize>, LinkError> {
        self.unless_full("read", (&self.file).read(into))
    }

    /// Sleeps at most `limit` until the link sends a frame. Returns whether it did.
    pub fn wait(&self, limit: Duration) -> bool {
        wait_readable([Some(self.file.as_fd())], limit).is_some_and(|ready| ready[0])
    }

    fn unless_full(&self, call: &'static str, result: io::Result<usize>) -> Result<Option<usize>, LinkError> {
        match result {
            Ok(len) => Ok(Some(len)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(LinkError::call(call, format!("a frame of TAP {:?}", self.link), error)),
        }
    }
}
