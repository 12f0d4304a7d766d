//! Finds nftables rules at the egress of a link: chains of the family netdev with a hook there. Packets that
//! the kernel sends pass them; packets of a transmit ring bypass them.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use crate::exchange::FinalMessage;
use crate::message::{Attributes, Malformed, NetlinkMessage, NetlinkMessages, Request, text_bytes, u32_at};
use crate::sys::{netlink, uapi};

/// Bytes for one datagram; the kernel sends at most 32 KiB at once.
const DATAGRAM: usize = 32 << 10;
/// The most datagrams that one call reads: some thousand chains.
const MOST: usize = 16;

/// The nftables rulesets of a network namespace. Requires `CAP_NET_ADMIN` in it.
#[derive(Debug)]
pub struct Rulesets {
    socket: OwnedFd,
    request: Request,
    sequence: u32,
    buffer: Box<[u8]>,
}

impl Rulesets {
    /// Opens a socket in the calling thread's namespace.
    pub fn open() -> io::Result<Self> {
        let chains = Request::new(uapi::NFT_GETCHAIN, uapi::NLM_F_DUMP, &uapi::NFT_NETDEV);
        let buffer = vec![0; DATAGRAM].into();
        Ok(Self { socket: netlink::open(uapi::NETLINK_NETFILTER)?, request: chains, sequence: 0, buffer })
    }

    /// Whether packets that leave the link with this name pass a chain. Also true if there are too many
    /// chains to read. Never waits, and allocates nothing.
    pub fn filter(&mut self, link: &str) -> io::Result<bool> {
        self.sequence = self.sequence.wrapping_add(1);
        netlink::send(self.socket.as_fd(), self.request.numbered(self.sequence))?;
        let mut found = false;
        for _ in 0..MOST {
            let (len, is_kernels) = netlink::receive(self.socket.as_fd(), &mut self.buffer)?;
            if !is_kernels {
                continue;
            }
            let (with, is_last) = read(&self.buffer[..len.min(DATAGRAM)], self.sequence, link.as_bytes())?;
            found |= with;
            if is_last {
                return Ok(found); // before its end, the next request would be refused
            }
        }
        Ok(true)
    }
}

/// Whether a datagram has such a chain, and whether it is the last of the answer.
fn read(datagram: &[u8], sequence: u32, link: &[u8]) -> io::Result<(bool, bool)> {
    let mut with = false;
    for message in NetlinkMessages(datagram) {
        let message = message?;
        if message.sequence != sequence {
            continue; // of an answer that was not read to its end
        }
        match FinalMessage::parse(&message)? {
            None => with |= message.kind == uapi::NFT_NEWCHAIN && is_at_egress(&message, link)?,
            Some(FinalMessage { errno: 0, .. }) => return Ok((with, true)),
            Some(end) => return Err(io::Error::from_raw_os_error(end.errno)),
        }
    }
    Ok((with, false))
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
    use super::*;
    use crate::message::nested;

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
            assert_eq!(read(&chain, 7, b"near0").unwrap(), (with, false), "{chain:?}");
            assert_eq!(read(&chain, 8, b"near0").unwrap(), (false, false), "another answer's");
            let end = Request::new(uapi::NLMSG_DONE, 0, &[0; 4]).numbered(7).to_vec();
            assert_eq!(read(&[chain, end].concat(), 7, b"near0").unwrap(), (with, true));
        }
    }

    #[test]
    fn an_answer_ends_where_the_kernel_says() {
        let end = |kind, errno: i32| Request::new(kind, 0, &errno.to_ne_bytes()).numbered(7).to_vec();
        assert_eq!(read(&end(uapi::NLMSG_DONE, 0), 7, b"near0").unwrap(), (false, true));
        let refused = read(&end(uapi::NLMSG_ERROR, -1), 7, b"near0").unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(1));
        assert!(read(&[0; 16], 7, b"near0").is_err(), "a length that cannot be");
    }
}
