//! An nftables ruleset that drops everything that leaves a link, for tests.

use std::io;
use std::os::fd::OwnedFd;

use pagepool_link::message::{Request, nested};
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

/// The name of its table; a network namespace has one.
const TABLE: &str = "pagepool_drops";

/// From include/uapi/linux/netfilter/nfnetlink.h and nf_tables.h, v7.3: messages of nftables, the fixed part
/// of those about devices (family, version, no resource id) and of both ends of a batch (the subsystem).
const NEWTABLE: u16 = nft(libc::NFT_MSG_NEWTABLE);
const DELTABLE: u16 = nft(libc::NFT_MSG_DELTABLE);
const NEWCHAIN: u16 = nft(libc::NFT_MSG_NEWCHAIN);
const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;
const NETDEV: [u8; 4] = [libc::NFPROTO_NETDEV as u8, 0, 0, 0];
const BATCH: [u8; 4] = [0, 0, 0, libc::NFNL_SUBSYS_NFTABLES as u8];
/// Attributes: numbers in them are big-endian.
const TABLE_NAME: u16 = 1;
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const CHAIN_POLICY: u16 = 5;
const CHAIN_TYPE: u16 = 7;
const HOOK_NUMBER: u16 = 1;
const HOOK_PRIORITY: u16 = 2;
const HOOK_DEVICE: u16 = 3;
const EGRESS: u32 = 1;
const DROP: u32 = 0;

const NEW: u16 = (libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16;
const ACK: u16 = libc::NLM_F_ACK as u16;

const fn nft(message: libc::c_int) -> u16 {
    (libc::NFNL_SUBSYS_NFTABLES << 8 | message) as u16
}

/// A netdev table whose chain at the egress of a link drops everything, until this is dropped.
#[derive(Debug)]
pub struct DropRule {
    socket: OwnedFd,
}

impl DropRule {
    /// Adds it in the calling thread's network namespace. Fails if the kernel has no such hook (Linux 5.16,
    /// `CONFIG_NETFILTER_EGRESS`).
    pub fn add(link: &str) -> io::Result<Self> {
        let protocol = Some(net::netlink::NETFILTER);
        let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
        let this = Self { socket: net::socket_with(family, kind, SocketFlags::CLOEXEC, protocol)? };
        let mut table = Request::new(NEWTABLE, NEW, &NETDEV);
        table.text(TABLE_NAME, TABLE);
        let mut chain = Request::new(NEWCHAIN, NEW | ACK, &NETDEV);
        chain.text(CHAIN_TABLE, TABLE).text(CHAIN_NAME, "egress");
        chain.nest(nested(CHAIN_HOOK), |hook| {
            hook.number(HOOK_NUMBER, EGRESS.to_be());
            hook.number(HOOK_PRIORITY, 0).text(HOOK_DEVICE, link);
        });
        chain.number(CHAIN_POLICY, DROP.to_be()).text(CHAIN_TYPE, "filter");
        this.commit(vec![table, chain])?;
        Ok(this)
    }

    /// Makes changes together. The kernel answers the last one, or the one that it refuses.
    fn commit(&self, changes: Vec<Request>) -> io::Result<()> {
        let border = |kind| [Request::new(kind, 0, &BATCH)];
        let batch = border(BATCH_BEGIN).into_iter().chain(changes).chain(border(BATCH_END));
        let all: Vec<u8> =
            (0..).zip(batch).flat_map(|(number, mut one)| one.numbered(number).to_vec()).collect();
        net::send(&self.socket, &all, SendFlags::empty())?;
        let mut answer = [0; 4096];
        net::recv(&self.socket, &mut answer[..], RecvFlags::empty())?;
        let kind = u16::from_ne_bytes([answer[4], answer[5]]);
        match i32::from_ne_bytes([answer[16], answer[17], answer[18], answer[19]]) {
            _ if i32::from(kind) != libc::NLMSG_ERROR => Err(io::ErrorKind::InvalidData.into()),
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(-errno)),
        }
    }
}

impl Drop for DropRule {
    fn drop(&mut self) {
        let mut table = Request::new(DELTABLE, ACK, &NETDEV);
        table.text(TABLE_NAME, TABLE);
        let _ = self.commit(vec![table]); // else it ends with its namespace
    }
}
