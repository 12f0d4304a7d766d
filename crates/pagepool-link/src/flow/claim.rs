//! Lets only one process at a time spread the flows of a card, because each restores the table that it found.
//!
//! What   abstract names of Unix sockets. They belong to a network namespace, as cards do, and the kernel
//!        frees them when the process exits or is killed. One name marks the card as taken, another names the
//!        process.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use crate::error::LinkError;
use crate::link_info::LinkInfo;

/// The kernel's list of the Unix sockets of this thread's network namespace.
const SOCKETS: &str = "/proc/thread-self/net/unix";

fn name_of(link: &LinkInfo) -> String {
    format!("pagepool-flows-of-{}", link.index)
}

fn by(link: &LinkInfo) -> String {
    format!("{}-by-", name_of(link))
}

/// The error for a card that another process has taken.
fn held(link: &LinkInfo) -> LinkError {
    let by = format!("@{}", by(link));
    let all = sockets();
    let process =
        all.lines().find_map(|line| line.split_whitespace().last()?.strip_prefix(&by)?.parse().ok());
    LinkError::FlowsHeld { link: link.name.clone(), process }
}

/// Marks a card as taken while this lives.
#[derive(Debug)]
pub(super) struct Claim {
    _taken: UnixDatagram,
    _by: Option<UnixDatagram>,
}

impl Claim {
    /// Takes a link of this thread's network namespace; fails if it is taken.
    pub(super) fn take(link: &LinkInfo) -> Result<Self, LinkError> {
        let name = name_of(link);
        let taken = bind(&name).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => held(link),
            _ => LinkError::call("bind(AF_UNIX)", name, error),
        })?;
        // Without this name, others only learn that the card is taken.
        let by = bind(&format!("{}{}", by(link), std::process::id())).ok();
        Ok(Self { _taken: taken, _by: by })
    }

    /// Fails if the link is taken.
    pub(super) fn is_free(link: &LinkInfo) -> Result<(), LinkError> {
        let name = format!("@{}", name_of(link));
        match sockets().lines().any(|line| line.split_whitespace().last() == Some(&name)) {
            true => Err(held(link)),
            false => Ok(()),
        }
    }
}

fn bind(name: &str) -> io::Result<UnixDatagram> {
    UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name)?)
}

fn sockets() -> String {
    std::fs::read_to_string(SOCKETS).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::Netlink;

    #[test]
    fn a_second_claim_is_refused_with_the_process_of_the_first() {
        let mut link = Netlink::open().unwrap().link("lo").unwrap();
        link.index = u32::MAX; // no such card
        Claim::is_free(&link).unwrap();
        let claim = Claim::take(&link).unwrap();
        let own = std::process::id();
        let take = || Claim::take(&link);
        for refused in [Claim::is_free(&link).unwrap_err(), take().unwrap_err()] {
            assert!(
                matches!(refused, LinkError::FlowsHeld { process: Some(by), .. } if by == own),
                "{refused}"
            );
            assert!(refused.to_string().contains(&format!("process {own} ")), "{refused}");
        }
        drop(claim);
        Claim::is_free(&link).unwrap();
        take().map(drop).unwrap();
    }
}
