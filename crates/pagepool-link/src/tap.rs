//! A TAP: an interface whose other end is a file of this process.
//!
//! What   what the kernel sends through the interface is read from the file, frame by frame; what is written
//!        to the file arrives at the interface. Frames are whole, with their VLAN tags, without a checksum or
//!        a segmentation left to hardware. (A packet socket gets the tags separately.)
//! Who    one file at a time. A name without an interface makes one, which ends with the file, and is set up
//!        at once. A TAP that `ip tuntap add` made stays, and is left as it is, up or down.
//! Down   while the interface is down, a write fails with EIO, and nothing is read. When it is deleted, both
//!        fail with EBADFD, and a sleep on the file ends.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use crate::error::LinkError;
use crate::link_info::check_name;
use crate::netlink::Netlink;
use crate::sys::poll::wait_readable;
use crate::sys::tap;

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
    is_new: bool,
}

impl Tap {
    /// Opens the TAP with this name in the calling thread's network namespace, or creates it and sets it up.
    /// Requires CAP_NET_ADMIN, except for a TAP that belongs to the user (`ip tuntap add … user NAME`).
    pub fn open(name: &str) -> Result<Self, LinkError> {
        check_name(name)?;
        let failed = |call| move |error| LinkError::call(call, format!("TAP {name:?}"), error);
        let file = tap::device().map_err(failed("open(/dev/net/tun)"))?;
        tap::attach(&file, name).map_err(failed("ioctl(TUNSETIFF)"))?;
        let is_new = !tap::is_persistent(&file).map_err(failed("ioctl(TUNGETIFF)"))?;
        if is_new {
            let mut netlink = Netlink::open()?;
            let index = netlink.link(name)?.index;
            netlink.set_up(index, true)?;
        }
        Ok(Self { file, name: name.into(), is_new })
    }

    /// The name by which it was opened.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether [`open`](Self::open) created it. Then it ends with this value.
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
