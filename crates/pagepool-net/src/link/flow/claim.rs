//! Which process spreads the flows of a card, and which has rules there: one at a time, for each puts back
//! what it found.
//!
//! What   names of Unix sockets that are in no folder. Such names belong to a network namespace, as cards do,
//!        and the kernel frees them when the process ends, in whatever way. One name says that the card is
//!        taken, another by whom.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use crate::link::error::NetError;
use crate::link::link_info::LinkInfo;

/// Where the kernel lists the sockets of this thread's network namespace.
const SOCKETS: &str = "/proc/thread-self/net/unix";

/// What a card is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    /// Its indirection table.
    Flows,
    /// Rules for single flows.
    Rules,
}

impl Subject {
    fn name_of(self, link: &LinkInfo) -> String {
        let subject = match self {
            Self::Flows => "flows",
            Self::Rules => "rules",
        };
        format!("pagepool-{subject}-of-{}", link.index)
    }

    fn by(self, link: &LinkInfo) -> String {
        format!("{}-by-", self.name_of(link))
    }

    /// The error that somebody has it.
    fn held(self, link: &LinkInfo) -> NetError {
        let by = format!("@{}", self.by(link));
        let all = sockets();
        let process =
            all.lines().find_map(|line| line.split_whitespace().last()?.strip_prefix(&by)?.parse().ok());
        let link = link.name.clone();
        match self {
            Self::Flows => NetError::FlowsHeld { link, process },
            Self::Rules => NetError::FlowRulesHeld { link, process },
        }
    }
}

/// A card is taken as long as this lives.
#[derive(Debug)]
pub(super) struct Claim {
    _taken: UnixDatagram,
    _by: Option<UnixDatagram>,
}

impl Claim {
    /// Takes a link of this thread's network namespace; an error if somebody has it.
    pub(super) fn take(subject: Subject, link: &LinkInfo) -> Result<Self, NetError> {
        let name = subject.name_of(link);
        let taken = bind(&name).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => subject.held(link),
            _ => NetError::call("bind(AF_UNIX)", name, error),
        })?;
        // Without this name others are told that somebody has the card, and not who.
        let by = bind(&format!("{}{}", subject.by(link), std::process::id())).ok();
        Ok(Self { _taken: taken, _by: by })
    }

    /// An error if somebody has it.
    pub(super) fn is_free(subject: Subject, link: &LinkInfo) -> Result<(), NetError> {
        let name = format!("@{}", subject.name_of(link));
        match sockets().lines().any(|line| line.split_whitespace().last() == Some(&name)) {
            true => Err(subject.held(link)),
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
    use crate::link::netlink::Netlink;

    #[test]
    fn a_card_that_is_taken_is_refused_with_the_process_until_it_is_free() {
        let mut link = Netlink::open().unwrap().link("lo").unwrap();
        link.index = u32::MAX; // of no card
        Claim::is_free(Subject::Flows, &link).unwrap();
        let claim = Claim::take(Subject::Flows, &link).unwrap();
        let own = std::process::id();
        let take = || Claim::take(Subject::Flows, &link);
        for refused in [Claim::is_free(Subject::Flows, &link).unwrap_err(), take().unwrap_err()] {
            assert!(
                matches!(refused, NetError::FlowsHeld { process: Some(by), .. } if by == own),
                "{refused}"
            );
            assert!(refused.to_string().contains(&format!("process {own} ")), "{refused}");
        }
        let rules = Claim::take(Subject::Rules, &link).expect("another subject");
        let refused = Claim::is_free(Subject::Rules, &link).unwrap_err();
        assert!(
            matches!(refused, NetError::FlowRulesHeld { process: Some(by), .. } if by == own),
            "{refused}"
        );
        drop((claim, rules));
        Claim::is_free(Subject::Flows, &link).unwrap();
        take().map(drop).unwrap();
    }
}
