//! An nftables ruleset that drops everything that a link sends or receives, for tests.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use pagepool_link::message::{Request, nested};
use rustix::net::sockopt::Timeout;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use crate::sys::netlink::{ACK, NEW_ONLY, NLMSG_ERROR, nft};

/// The time limit for an answer.
const LIMIT: Duration = Duration::from_secs(10);

/// Where a link's packets meet a [`DropRule`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// Where it received them.
    Ingress,
    /// Where it sends them. Fails before Linux 5.16, and without `CONFIG_NETFILTER_EGRESS`.
    Egress,
}

/// A netdev table whose chain at a link drops everything, until this is dropped.
#[derive(Debug)]
pub struct DropRule {
    socket: OwnedFd,
    /// The table; each link may have one.
    table: String,
}

impl DropRule {
    /// Adds it in the calling thread's network namespace. Fails if the kernel has no such hook.
    pub fn add(hook: Hook, link: &str) -> io::Result<Self> {
        let protocol = Some(net::netlink::NETFILTER);
        let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
        let socket = net::socket_with(family, kind, SocketFlags::CLOEXEC, protocol)?;
        let this = Self { socket, table: format!("pagepool_drops_{link}") };
        net::sockopt::set_socket_timeout(&this.socket, Timeout::Recv, Some(LIMIT))?;
        let mut table = Request::new(nft::NEWTABLE, NEW_ONLY, &nft::NETDEV);
        table.text(nft::TABLE_NAME, &this.table);
        let mut chain = Request::new(nft::NEWCHAIN, NEW_ONLY | ACK, &nft::NETDEV);
        chain.text(nft::CHAIN_TABLE, &this.table).text(nft::CHAIN_NAME, "drops");
        let number = match hook {
            Hook::Ingress => nft::INGRESS,
            Hook::Egress => nft::EGRESS,
        };
        chain.nest(nested(nft::CHAIN_HOOK), |hook| {
            hook.number(nft::HOOK_NUMBER, number.to_be());
            hook.number(nft::HOOK_PRIORITY, 0).text(nft::HOOK_DEVICE, link);
        });
        chain.number(nft::CHAIN_POLICY, nft::DROP.to_be()).text(nft::CHAIN_TYPE, "filter");
        this.commit(vec![table, chain])?;
        Ok(this)
    }

    /// Makes changes together. The kernel answers the last one, or the one that it refuses.
    fn commit(&self, changes: Vec<Request>) -> io::Result<()> {
        let border = |kind| [Request::new(kind, 0, &nft::BATCH)];
        let batch = border(nft::BATCH_BEGIN).into_iter().chain(changes).chain(border(nft::BATCH_END));
        let all: Vec<u8> =
            (0..).zip(batch).flat_map(|(number, mut one)| one.numbered(number).to_vec()).collect();
        net::send(&self.socket, &all, SendFlags::empty())?;
        let mut answer = [0; 4096];
        net::recv(&self.socket, &mut answer[..], RecvFlags::empty())?;
        let kind = u16::from_ne_bytes([answer[4], answer[5]]);
        match i32::from_ne_bytes([answer[16], answer[17], answer[18], answer[19]]) {
            _ if kind != NLMSG_ERROR => Err(io::ErrorKind::InvalidData.into()),
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(-errno)),
        }
    }
}

impl Drop for DropRule {
    fn drop(&mut self) {
        let mut table = Request::new(nft::DELTABLE, ACK, &nft::NETDEV);
        table.text(nft::TABLE_NAME, &self.table);
        let _ = self.commit(vec![table]); // else it ends with its namespace
    }
}
