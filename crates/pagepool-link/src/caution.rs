//! Finds the interfaces that the machine or the user depends on, so that no command cuts them off.

use std::fmt;
use std::fs;
use std::net::IpAddr;

use crate::error::LinkError;
use crate::link_info::LinkInfo;
use crate::netlink::Netlink;

/// The environment variable of an SSH session.
const VARIABLE: &str = "SSH_CONNECTION";
/// The most ancestors to search: `sudo` and others hide the variable.
const ANCESTORS: usize = 64;

/// A reason not to take an interface's packets away from the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Caution {
    /// The default route leaves through it.
    DefaultRoute,
    /// The SSH session of this process uses it.
    SshSession(SshSession),
}

impl fmt::Display for Caution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DefaultRoute => f.write_str("it carries the default route: this disconnects the machine"),
            Self::SshSession(SshSession { client, .. }) => {
                write!(f, "it carries your SSH session from {client}: this disconnects you")
            }
        }
    }
}

/// The two ends of an SSH session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SshSession {
    /// The address of the client.
    pub client: IpAddr,
    /// The address of this machine.
    pub server: IpAddr,
}

impl SshSession {
    /// Parses the text of sshd(8): `client port server port`. Drops zones of link-local addresses.
    ///
    /// ```
    /// use pagepool_link::SshSession;
    /// let session = SshSession::parse("192.0.2.7 50000 198.51.100.1 22").expect("addresses and ports");
    /// assert_eq!(session.client.to_string(), "192.0.2.7");
    /// ```
    pub fn parse(connection: &str) -> Option<Self> {
        let mut words = connection.split_ascii_whitespace();
        let mut address = || {
            let ip: IpAddr = words.next()?.split('%').next()?.parse().ok()?;
            words.next()?.parse::<u16>().ok()?;
            Some(ip.to_canonical())
        };
        Some(Self { client: address()?, server: address()? })
    }

    /// The SSH session of this process, from its environment or that of the nearest readable ancestor.
    pub fn current() -> Option<Self> {
        if let Ok(connection) = std::env::var(VARIABLE) {
            return Self::parse(&connection);
        }
        let mut process = std::process::id();
        for _ in 0..ANCESTORS {
            process = parent(process).filter(|&parent| parent > 1)?;
            let environment = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
            if let Some(connection) = variable(&environment) {
                return Self::parse(&connection);
            }
        }
        None
    }
}

/// The value of the variable in an environment from /proc.
fn variable(environment: &[u8]) -> Option<String> {
    let mut entries = environment.split(|&byte| byte == 0);
    let value = |entry: &[u8]| Some(entry.strip_prefix(VARIABLE.as_bytes())?.strip_prefix(b"=")?.to_vec());
    entries.find_map(value).and_then(|value| String::from_utf8(value).ok())
}

fn parent(process: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

/// Reasons to leave a link of `netlink`'s namespace alone. Empty if nothing is known to depend on it.
///
/// A link carries the traffic of a bridge or bond of which it is a port, and of a VLAN on top of it.
///
/// ```no_run
/// // The links of the machine that runs this are not known here.
/// use pagepool_link::{Netlink, SshSession, cautions};
/// let mut netlink = Netlink::open()?;
/// let link = netlink.link("eth0")?;
/// for reason in cautions(&mut netlink, link.index, SshSession::current())? {
///     eprintln!("{} is left alone: {reason}", link.name);
/// }
/// # Ok::<(), pagepool_link::LinkError>(())
/// ```
pub fn cautions(
    netlink: &mut Netlink,
    index: u32,
    session: Option<SshSession>,
) -> Result<Vec<Caution>, LinkError> {
    let links = netlink.links()?;
    let mut found = Vec::new();
    if carries(&links, index, &netlink.default_route_links()?) {
        found.push(Caution::DefaultRoute);
    }
    if let Some(session) = session
        && carries(&links, index, &session_links(netlink, session)?)
    {
        found.push(Caution::SshSession(session));
    }
    Ok(found)
}

/// The links that a session's packets use. Packets may arrive and leave by different links.
fn session_links(netlink: &mut Netlink, session: SshSession) -> Result<Vec<u32>, LinkError> {
    let mut links = netlink.links_with(session.server)?;
    links.extend(netlink.route_to(session.client)?);
    Ok(links)
}

/// Whether one of the users is this link, or on top of it, directly or not.
fn carries(links: &[LinkInfo], index: u32, users: &[u32]) -> bool {
    let mut above = vec![index];
    let mut at = 0;
    while let Some(&this) = above.get(at) {
        at += 1;
        let ports = links.iter().filter(|link| link.index == this).filter_map(|link| link.master);
        let standing = links.iter().filter(|link| link.lower == Some(this)).map(|link| link.index);
        let more: Vec<u32> = ports.chain(standing).filter(|link| !above.contains(link)).collect();
        above.extend(more);
    }
    above.iter().any(|link| users.contains(link))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link_info::{Mac, OperState};

    fn link(index: u32, master: Option<u32>, lower: Option<u32>) -> LinkInfo {
        LinkInfo {
            name: format!("l{index}"),
            index,
            mtu: 1500,
            mac: Some(Mac([2; 6])),
            is_ethernet: true,
            rx_queues: 1,
            tx_queues: 1,
            is_up: true,
            has_carrier: true,
            state: OperState::Up,
            kind: None,
            master,
            lower,
            lower_elsewhere: None,
            xdp: Vec::new(),
            promiscuity: 0,
        }
    }

    #[test]
    fn what_sshd_writes_is_read() {
        let session = SshSession::parse("192.0.2.7 50000 198.51.100.1 22").unwrap();
        assert_eq!((session.client, session.server), ([192, 0, 2, 7].into(), [198, 51, 100, 1].into()));
        let session = SshSession::parse("fe80::1%eth0 50000 ::ffff:198.51.100.1 22").unwrap();
        assert_eq!(session.server, IpAddr::from([198, 51, 100, 1]));
        for bad in
            ["", "192.0.2.7", "192.0.2.7 50000", "a b c d", "192.0.2.7 50000 1.2.3.4", "1.1.1.1 1 2.2.2.2 x"]
        {
            assert_eq!(SshSession::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_session_is_found_behind_what_hides_the_environment() {
        let environment = b"HOME=/root\0XSSH_CONNECTION=no\0SSH_CONNECTION=192.0.2.7 1 192.0.2.8 22\0";
        assert_eq!(variable(environment).as_deref(), Some("192.0.2.7 1 192.0.2.8 22"));
        assert_eq!(variable(b"\0=\0SSH_CONNECTION"), None);
        assert_eq!(parent(std::process::id()), Some(std::os::unix::process::parent_id()));
        assert_eq!(parent(u32::MAX), None);
    }

    #[test]
    fn a_link_carries_what_stands_on_it() {
        // 1 is a port of bridge 5; VLAN 6 is on 5, 7 on 6 and, oddly, 5 on 7.
        let links =
            [link(1, Some(5), None), link(5, None, Some(7)), link(6, None, Some(5)), link(7, None, Some(6))];
        for user in [1, 5, 6, 7] {
            assert!(carries(&links, 1, &[user]), "{user}");
        }
        assert!(!carries(&links, 1, &[2]) && !carries(&links, 2, &[1]));
        assert!(carries(&[], 3, &[3]), "a link that went away meanwhile");
    }

    #[test]
    fn reasons_are_given() {
        let session = SshSession::parse("192.0.2.7 1 192.0.2.8 22").unwrap();
        let text = Caution::SshSession(session).to_string();
        assert_eq!(text, "it carries your SSH session from 192.0.2.7: this disconnects you");
        assert!(Caution::DefaultRoute.to_string().contains("default route"));
    }
}
