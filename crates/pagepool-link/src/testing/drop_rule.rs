//! An nftables ruleset that drops everything that leaves a link, for tests.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use crate::exchange::FinalMessage;
use crate::message::{NetlinkMessages, Request, nested};
use crate::sys::poll::wait_readable;
use crate::sys::{netlink, uapi};

/// The name of its table; a network namespace has one.
const TABLE: &str = "pagepool_drops";
/// The time limit for an answer.
const LIMIT: Duration = Duration::from_secs(10);

/// A netdev table whose chain at the egress of a link drops everything, until this is dropped.
#[derive(Debug)]
pub struct DropRule {
    socket: OwnedFd,
}

impl DropRule {
    /// Adds it in the calling thread's network namespace. Fails if the kernel has no such hook (Linux 5.16,
    /// `CONFIG_NETFILTER_EGRESS`).
    pub fn add(link: &str) -> io::Result<Self> {
        let this = Self { socket: netlink::open_netfilter()? };
        let mut table = Request::new(uapi::NFT_NEWTABLE, uapi::NEW_ONLY, &uapi::NFT_NETDEV);
        table.text(uapi::NFTA_TABLE_NAME, TABLE);
        let mut chain = Request::new(uapi::NFT_NEWCHAIN, uapi::NEW_ONLY, &uapi::NFT_NETDEV);
        chain.text(uapi::NFTA_CHAIN_TABLE, TABLE).text(uapi::NFTA_CHAIN_NAME, "egress");
        chain.nest(nested(uapi::NFTA_CHAIN_HOOK), |hook| {
            hook.number(uapi::NFTA_HOOK_HOOKNUM, uapi::NF_NETDEV_EGRESS.to_be());
            hook.number(uapi::NFTA_HOOK_PRIORITY, 0).text(uapi::NFTA_HOOK_DEV, link);
        });
        chain.number(uapi::NFTA_CHAIN_POLICY, uapi::NF_DROP.to_be());
        chain.text(uapi::NFTA_CHAIN_TYPE, "filter");
        this.commit([table, chain])?;
        Ok(this)
    }

    /// Makes changes together. The kernel answers a change that requests an answer, or that it refuses.
    fn commit<const N: usize>(&self, changes: [Request; N]) -> io::Result<()> {
        let mut all = Vec::new();
        let border = |kind| Request::new(kind, 0, &uapi::NFT_BATCH);
        let begin = [border(uapi::NFNL_MSG_BATCH_BEGIN)];
        let end = [border(uapi::NFNL_MSG_BATCH_END)];
        for (number, mut change) in (0..).zip(begin.into_iter().chain(changes).chain(end)) {
            all.extend_from_slice(change.acknowledged(number == N as u32).numbered(number));
        }
        netlink::send(self.socket.as_fd(), &all)?;
        let mut buffer = [0; 4096];
        wait_readable([Some(self.socket.as_fd())], LIMIT);
        let (len, _) = netlink::receive(self.socket.as_fd(), &mut buffer)?;
        for message in NetlinkMessages(&buffer[..len.min(4096)]).flatten() {
            if let Ok(Some(end)) = FinalMessage::of(&message) {
                let number = end.errno();
                return if number == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(number)) };
            }
        }
        Err(io::ErrorKind::InvalidData.into())
    }
}

impl Drop for DropRule {
    fn drop(&mut self) {
        let mut table = Request::new(uapi::NFT_DELTABLE, 0, &uapi::NFT_NETDEV);
        table.text(uapi::NFTA_TABLE_NAME, TABLE);
        let _ = self.commit([table]); // else it ends with its namespace
    }
}
