//! A TAP: an interface whose other end is a file of this process.
//!
//! What   what the kernel sends through the interface is read from the file, frame by frame; what is written
//!        to the file arrives at the interface. Frames are whole, with their VLAN tags, without a checksum or
//!        a segmentation left to hardware. (A packet socket gets the tags separately.)
//! Who    one file at a time, or several, between which the kernel spreads the flows. A name without an
//!        interface makes one, which ends with the last file, and is set up at once. A TAP that
//!        `ip tuntap add` made stays, and is left as it is, up or down.
//! Down   while the interface is down, a write fails with EIO, and nothing is read. When it is deleted, both
//!        fail with EBADFD, and a sleep on the file ends. The file can be attached to another TAP of the name.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use crate::error::LinkError;
use crate::link_info::check_name;
use crate::netlink::Netlink;
use crate::sys::errno;
use crate::sys::poll::wait_readable;
use crate::sys::tap::{self, Kind};

/// A TAP: an interface whose frames this value sends and receives, byte for byte.
///
/// ```
/// use pagepool_link::{Namespace, Tap};
/// let lab = match Namespace::new("lab") {
///     Ok(lab) => lab,
///     Err(error) if error.is_permission() => return Ok(()), // not root
///     Err(error) => return Err(error),
/// };
/// let tap = match lab.run(|| Tap::open("tap0")) {
///     Ok(tap) => tap,
///     Err(error) => return Ok(println!("SKIP: {error}")), // a kernel without TAPs
/// };
/// assert!(lab.netlink()?.link("tap0")?.is_up);
/// assert!(tap.send(&[2; 60])?, "the kernel has a frame more");
/// assert_eq!(tap.receive(&mut [0; 2048])?, None, "it sent nothing");
/// # Ok::<(), pagepool_link::LinkError>(())
/// ```
#[derive(Debug)]
pub struct Tap {
    file: File,
    name: String,
    kind: Kind,
    is_new: bool,
}

impl Tap {
    /// Opens the TAP with this name in the calling thread's network namespace, or creates it and sets it up.
    /// Requires CAP_NET_ADMIN, except for a TAP that belongs to the user (`ip tuntap add … user NAME`).
    pub fn open(name: &str) -> Result<Self, LinkError> {
        let tap = Self::attached(name, Kind { has_header: false, is_shared: false })?;
        tap.set_up_if_new()?;
        Ok(tap)
    }

    /// Opens so many queues of a TAP, like [`open`](Self::open). The kernel spreads flows over them. Each frame
    /// has 12 bytes before it, which are 0 or of no consequence: the header of virtio-net
    /// (`struct virtio_net_hdr_v1`), as vhost-net needs it. Several queues of a TAP that was made before require
    /// `multi_queue`.
    pub fn open_with_header(name: &str, queues: usize) -> Result<Vec<Self>, LinkError> {
        let attached = |is_shared| Self::attached(name, Kind { has_header: true, is_shared });
        let first = match attached(queues > 1) {
            // It was made with `multi_queue`.
            Err(error) if queues == 1 && error.errno() == Some(errno::EINVAL) => attached(true),
            first => first,
        };
        let first = first?;
        first.set_up_if_new()?;
        [Ok(first)].into_iter().chain((1..queues).map(|_| attached(true))).collect()
    }

    fn attached(name: &str, kind: Kind) -> Result<Self, LinkError> {
        check_name(name)?;
        let failed = |call| move |error| LinkError::call(call, format!("TAP {name:?}"), error);
        let file = tap::device().map_err(failed("open(/dev/net/tun)"))?;
        tap::attach(&file, name, kind).map_err(failed("ioctl(TUNSETIFF)"))?;
        let is_new = !tap::is_persistent(&file).map_err(failed("ioctl(TUNGETIFF)"))?;
        Ok(Self { file, name: name.into(), kind, is_new })
    }

    fn set_up_if_new(&self) -> Result<(), LinkError> {
        if !self.is_new {
            return Ok(());
        }
        let mut netlink = Netlink::open()?;
        let index = netlink.link(&self.name)?.index;
        netlink.set_up(index, true)
    }

    /// Attaches the file to another TAP of its name, in the network namespace in which it was opened, after its
    /// interface was deleted. There must be one: else the kernel makes one that is down.
    pub fn attach_again(&self) -> Result<(), LinkError> {
        let failed = |error| LinkError::call("ioctl(TUNSETIFF)", format!("TAP {:?}", self.name), error);
        tap::attach(&self.file, &self.name, self.kind).map_err(failed)
    }

    /// Turns on checksum offload and TCP segmentation offload (TSO): the reader of a frame computes checksums
    /// and segments it. Requires [headers](Self::has_header), which say so. The next file that is attached to
    /// the interface ends it.
    pub fn leave_offloads(&self) -> Result<(), LinkError> {
        if !self.has_header() {
            let (value, range) = (self.name.clone(), "one of `Tap::open_with_header`");
            return Err(LinkError::OutOfRange { field: "the TAP", value, range });
        }
        let failed = |error| LinkError::call("ioctl(TUNSETOFFLOAD)", format!("TAP {:?}", self.name), error);
        tap::leave_offloads(&self.file).map_err(failed)
    }

    /// Whether frames have a header: it was opened by [`open_with_header`](Self::open_with_header).
    pub fn has_header(&self) -> bool {
        self.kind.has_header
    }

    /// The name by which it was opened.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it was created when it was opened. Then it ends with this value, or with the last of its queues.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// The file, which never blocks: each `read` takes a frame, each `write` sends one.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Makes the interface receive a frame. Returns false if the kernel has no room.
    pub fn send(&self, frame: &[u8]) -> Result<bool, LinkError> {
        Ok(self.unless_full("write", self.file().write(frame))?.is_some())
    }

    /// Takes a frame that the interface sent, if available. Returns its length, at most that of `into`.
    pub fn receive(&self, into: &mut [u8]) -> Result<Option<usize>, LinkError> {
        self.unless_full("read", self.file().read(into))
    }

    /// Sleeps at most `limit` until the interface sends a frame. Returns whether it did.
    pub fn wait(&self, limit: Duration) -> bool {
        wait_readable([Some(self.file.as_fd())], limit).is_some_and(|ready| ready[0])
    }

    fn unless_full(&self, call: &'static str, result: io::Result<usize>) -> Result<Option<usize>, LinkError> {
        match result {
            Ok(len) => Ok(Some(len)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(LinkError::call(call, format!("a frame of TAP {:?}", self.name), error)),
        }
    }
}
