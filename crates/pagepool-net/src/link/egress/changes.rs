//! Changes of a link and of its queueing disciplines, which the kernel tells of as they happen.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use crate::link::message::NetlinkMessages;
use crate::link::sys::{netlink, uapi};

/// Bytes of a message that are read: what kind it is stands at its front.
const FRONT: usize = 64;
/// Most messages that one look reads; the next one reads the rest.
const MOST: usize = 64;

/// What has happened since the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Nothing,
    /// The link or its queueing disciplines are not what they were.
    Something,
    /// The link was removed, or moved to another network namespace.
    Removed,
}

/// Hears of one link.
#[derive(Debug)]
pub(crate) struct LinkChanges {
    socket: OwnedFd,
}

impl LinkChanges {
    /// Listens for the link of this number, in the calling thread's namespace.
    pub(crate) fn of(index: u32) -> io::Result<Self> {
        Ok(Self { socket: netlink::listen(index)? })
    }

    /// Looks what has happened. Never waits; a system call where nothing has.
    pub(crate) fn look(&self) -> Change {
        let (mut front, mut seen) = ([0; FRONT], Change::Nothing);
        for _ in 0..MOST {
            match netlink::receive(self.socket.as_fd(), &mut front) {
                Ok((len, true)) if is_removal(&front[..len.min(FRONT)]) => return Change::Removed,
                Ok((_, true)) => seen = Change::Something,
                Ok((_, false)) => {} // another process's
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // More than the socket has room for: whatever it was, ask anew.
                Err(_) => seen = Change::Something,
            }
        }
        seen
    }
}

/// Whether a datagram, which may be cut, tells that the link is gone.
fn is_removal(datagram: &[u8]) -> bool {
    NetlinkMessages::first_kind(datagram) == Some(uapi::RTM_DELLINK)
}
