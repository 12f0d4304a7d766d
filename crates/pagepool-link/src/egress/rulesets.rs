//! Finds nftables rules at the egress of a link: chains of the family netdev with a hook there. Packets that
//! the kernel sends pass them; packets of a transmit ring bypass them.

use std::time::Instant;

use crate::error::LinkError;
use crate::exchange::NetlinkSocket;
use crate::message::{Attributes, Malformed, NetlinkMessage, Request, text_bytes, u32_at};
use crate::sys::uapi;

/// The most datagrams that one call reads: some thousand chains.
const MOST: usize = 16;

/// The nftables rulesets of a network namespace. Requires `CAP_NET_ADMIN` in it.
#[derive(Debug)]
pub struct Rulesets {
    socket: NetlinkSocket,
    request: Request,
}

impl Rulesets {
    /// Opens a socket in the calling thread's namespace.
    pub fn open() -> Result<Self, LinkError> {
        NetlinkSocket::open(uapi::NETLINK_NETFILTER).map(Self::over)
    }

    fn over(socket: NetlinkSocket) -> Self {
        let request = Request::new(uapi::NFT_GETCHAIN, uapi::NLM_F_DUMP, &uapi::NFT_NETDEV);
        Self { socket, request }
    }

    /// Whether packets that leave the link with this name pass a chain. Also true if there are too many
    /// chains to read. Never waits; allocates nothing unless it fails.
    pub fn filter(&mut self, link: &str) -> Result<bool, LinkError> {
        self.filter_until(link, Instant::now())
    }

    fn filter_until(&mut self, link: &str, deadline: Instant) -> Result<bool, LinkError> {
        let (mut found, asked) = (false, ("list", "the chains of nftables"));
        let read = self.socket.ask(&mut self.request, asked, (deadline, MOST), |message| {
            found |= message.kind == uapi::NFT_NEWCHAIN && is_at_egress(message, link.as_bytes())?;
            Ok(())
        });
        match read {
            Err(LinkError::TooMuch { .. }) => Ok(true),
            read => read.map(|_| found),
        }
    }
}

/// Whether a message is about a chain with a hook at the egress of a link.
pub(crate) fn is_at_egress(message: &NetlinkMessage<'_>, link: &[u8]) -> Result<bool, Malformed> {
    let (_, attributes) = message.split(uapi::NFT_NETDEV.len())?;
    let Some(hook) = attributes.find(uapi::NFTA_CHAIN_HOOK)? else { return Ok(false) };
    let hook = Attributes(hook);
    let place = hook.find(uapi::NFTA_HOOK_HOOKNUM)?.and_then(|number| u32_at(number, 0));
    if place.map(u32::from_be) != Some(uapi::NF_NETDEV_EGRESS) {
        return Ok(false);
    }
    if hook.find(uapi::NFTA_HOOK_DEV)?.is_some_and(|name| text_bytes(name) == link) {
        return Ok(true);
    }
    for device in Attributes(hook.find(uapi::NFTA_HOOK_DEVS)?.unwrap_or_default()) {
        let (kind, name) = device?;
        // A name prefix has its own kind, or (Linux 6.16) no zero after it.
        let is_whole = kind == uapi::NFTA_DEVICE_NAME && name.contains(&0);
        let beginning = text_bytes(name);
        if beginning == link || !is_whole && link.starts_with(beginning) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::message::{NetlinkMessages, nested};

    /// A chain at a hook, for one device, or for several names with their kinds.
    fn chain(place: u32, device: Option<&str>, devices: &[(u16, &[u8])]) -> Vec<u8> {
        let mut chain = Request::new(uapi::NFT_NEWCHAIN, 0, &uapi::NFT_NETDEV);
        chain.text(1, "t").nest(nested(uapi::NFTA_CHAIN_HOOK), |hook| {
            hook.number(uapi::NFTA_HOOK_HOOKNUM, place.to_be());
            device.map(|name| hook.text(uapi::NFTA_HOOK_DEV, name));
            hook.nest(nested(uapi::NFTA_HOOK_DEVS), |all| {
                for (kind, name) in devices {
                    all.attribute(*kind, name);
                }
            });
        });
        chain.numbered(7).to_vec()
    }

    #[test]
    fn chains_of_a_link_are_distinguished_from_others() {
        let egress = uapi::NF_NETDEV_EGRESS;
        for (chain, with) in [
            (chain(egress, Some("near0"), &[]), true),
            (chain(egress, Some("near"), &[]), false),
            (chain(0, Some("near0"), &[]), false), // at the ingress
            (chain(egress, None, &[(1, b"other\0"), (1, b"near0\0")]), true),
            (chain(egress, None, &[(1, b"near\0")]), false),
            (chain(egress, None, &[(1, b"near")]), true),
            (chain(egress, None, &[(2, b"near\0")]), true),
            (chain(egress, None, &[(2, b"far\0"), (1, b"far")]), false),
            (Request::new(uapi::NFT_NEWCHAIN, 0, &uapi::NFT_NETDEV).numbered(7).to_vec(), false),
        ] {
            let message = NetlinkMessages(&chain).next().unwrap().unwrap();
            assert_eq!(is_at_egress(&message, b"near0"), Ok(with), "{chain:?}");
        }
    }

    fn rulesets(ours: UnixDatagram) -> Rulesets {
        Rulesets::over(NetlinkSocket::over(ours.into()))
    }

    /// The end of the answer to the first request.
    fn end() -> Vec<u8> {
        Request::new(uapi::NLMSG_DONE, 0, &[0; 4]).numbered(1).to_vec()
    }

    #[test]
    fn an_answer_that_is_too_long_may_have_a_chain() {
        let mut other = chain(uapi::NF_NETDEV_EGRESS, Some("far"), &[]);
        other[8..12].copy_from_slice(&1u32.to_ne_bytes());
        for (chains, expected) in [(MOST - 1, false), (MOST, true)] {
            let (ours, kernel) = UnixDatagram::pair().unwrap();
            let later = Instant::now() + Duration::from_secs(60);
            thread::scope(|threads| {
                threads.spawn(|| {
                    (0..chains).for_each(|_| assert!(kernel.send(&other).is_ok()));
                    let _ = kernel.send(&end()); // after too many, nobody reads it
                });
                let found = rulesets(ours).filter_until("near0", later);
                assert_eq!(found.unwrap(), expected, "after {chains} datagrams");
            });
        }
    }

    #[test]
    fn what_the_kernel_did_not_send_is_skipped() {
        let address = |name: &str| {
            SocketAddr::from_abstract_name(format!("{name} of pagepool {}", std::process::id())).unwrap()
        };
        // Its name has zeroes where a netlink address has the number that is zero for the kernel.
        let [to, kernel, other] = ["us", "k\0\0\0\0", "another"].map(address);
        let [ours, from_kernel, from_other] =
            [&to, &kernel, &other].map(|name| UnixDatagram::bind_addr(name).unwrap());
        let mut chain = chain(uapi::NF_NETDEV_EGRESS, Some("near0"), &[]);
        chain[8..12].copy_from_slice(&1u32.to_ne_bytes());
        from_other.send_to_addr(&chain, &to).unwrap();
        ours.connect_addr(&kernel).unwrap();
        from_kernel.send_to_addr(&end(), &to).unwrap();
        assert!(!rulesets(ours).filter("near0").unwrap());
    }
}
