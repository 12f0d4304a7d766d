//! Changes of a link and of its queueing disciplines, which the kernel reports as they happen.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use crate::message::kind_and_family;
use crate::sys::{netlink, uapi};

/// Bytes of a message that are read; its kind is at the front.
const FRONT: usize = 64;
/// The most messages that one call reads; the next call reads the rest.
const MOST: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Nothing,
    /// The link or its queueing disciplines changed.
    Something,
    /// The link was removed, or moved to another network namespace.
    Removed,
}

#[derive(Debug)]
pub struct LinkChanges {
    socket: OwnedFd,
}

impl LinkChanges {
    /// Listens for changes of the link with this index, in the calling thread's namespace.
    pub fn listen(index: u32) -> io::Result<Self> {
        Ok(Self { socket: netlink::listen(index)? })
    }

    /// Returns what changed since the last call. Never waits; one system call if nothing changed.
    pub fn read(&self) -> Change {
        let (mut front, mut seen) = ([0; FRONT], Change::Nothing);
        for _ in 0..MOST {
            match netlink::receive(self.socket.as_fd(), &mut front) {
                Ok((len, true)) if is_removal(&front[..len.min(FRONT)]) => return Change::Removed,
                Ok((_, true)) => seen = Change::Something,
                Ok((_, false)) => {} // from another process
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // More than the socket has room for: something changed.
                Err(_) => seen = Change::Something,
            }
        }
        seen
    }
}

/// Whether a datagram, which may be cut, reports that the link is gone. A bridge reports a port that leaves
/// it by a message of this kind too, but with its own address family; a removed link has none.
fn is_removal(datagram: &[u8]) -> bool {
    kind_and_family(datagram) == Some((uapi::RTM_DELLINK, uapi::AF_UNSPEC))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link_info;
    use crate::message::Request;

    #[test]
    fn a_port_that_leaves_a_bridge_is_no_link_that_is_removed() {
        let says = |kind, family| {
            let mut fixed = link_info::header(7, 0, 0);
            fixed[0] = family;
            is_removal(Request::new(kind, 0, &fixed).numbered(1))
        };
        const AF_BRIDGE: u8 = libc::AF_BRIDGE as u8;
        assert!(says(uapi::RTM_DELLINK, uapi::AF_UNSPEC));
        assert!(!says(uapi::RTM_DELLINK, AF_BRIDGE));
        assert!(!says(uapi::RTM_NEWLINK, uapi::AF_UNSPEC) && !is_removal(&[0; 16]));
    }
}
