//! Queries and changes the kernel's links, addresses, routes and queueing disciplines over netlink.
//!
//! Written by hand: for our fourteen kinds of message, netlink-packet-route and netlink-sys would add a dozen
//! crates, with a procedural macro, and have no exchange with a time limit. `libc` has the numbers.

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::LinkError;
use crate::exchange::NetlinkSocket;
use crate::link_info::{
    self, LinkElsewhere, LinkInfo, Mac, OperState, check_alternative_name, check_name, is_long,
};
use crate::message::{Malformed, NetlinkMessage, Request, nested};
use crate::qdisc;
use crate::route::{self, Route};
use crate::sys::errno::{self, EAFNOSUPPORT, EHOSTUNREACH, ENETUNREACH};
use crate::sys::{socket, uapi};

/// The pause between two checks of a link that is coming up.
const NAP: Duration = Duration::from_millis(1);

/// One end of a veth pair.
#[derive(Clone, Copy, Debug)]
pub struct VethEnd<'a> {
    /// Its name: 1 to 15 bytes.
    pub name: &'a str,
    /// The namespace in which it is made; `None` for that of the [`Netlink`].
    pub namespace: Option<BorrowedFd<'a>>,
    /// Its address; `None` lets the kernel choose.
    pub mac: Option<Mac>,
    /// Its MTU: the largest packet without the Ethernet header, 68 to 65535.
    pub mtu: u32,
    /// Number of receive queues and of transmit queues: 1 to 4096.
    pub queues: u32,
}

/// A netlink socket for links, addresses and routes of the network namespace in which it was opened. Any
/// thread may use it.
#[derive(Debug)]
pub struct Netlink {
    socket: NetlinkSocket,
}

impl Netlink {
    /// Opens a socket in the calling thread's namespace.
    pub fn open() -> Result<Self, LinkError> {
        Ok(Self { socket: NetlinkSocket::open(uapi::NETLINK_ROUTE)? })
    }

    /// The cookie of its namespace, unique since boot; 0 before Linux 5.14.
    #[doc(hidden)]
    pub fn namespace(&self) -> u64 {
        socket::namespace(self.socket.fd())
    }

    /// Every link of the namespace.
    pub fn links(&mut self) -> Result<Vec<LinkInfo>, LinkError> {
        let request = about_link(uapi::RTM_GETLINK, uapi::NLM_F_DUMP, 0);
        self.socket.exchange(request, ("list", "the links"), uapi::RTM_NEWLINK, LinkInfo::parse)
    }

    /// The link with this name, or with this alternative name, which may have 127 bytes.
    pub fn link(&mut self, name: &str) -> Result<LinkInfo, LinkError> {
        check_alternative_name(name)?;
        let mut request = get_link(0);
        request.text(if is_long(name) { uapi::IFLA_ALT_IFNAME } else { uapi::IFLA_IFNAME }, name);
        let found = match self.look_up(request, name, LinkInfo::parse) {
            // A kernel before 5.5 knows no alternative names, and sees a request for no link.
            Err(error) if is_long(name) && error.errno() == Some(errno::EINVAL) => None,
            found => found?,
        };
        if let Some(link) = found {
            return Ok(link);
        }
        let known = self.links()?.into_iter().map(|link| link.name).collect();
        Err(LinkError::NoLink { name: name.into(), known })
    }

    /// The link with this index, which does not change when the link is renamed; `None` if there is none.
    ///
    /// ```
    /// use pagepool_link::Netlink;
    /// let mut netlink = Netlink::open()?;
    /// let loopback = netlink.link("lo")?;
    /// assert_eq!(netlink.link_at(loopback.index)?.map(|link| link.name).as_deref(), Some("lo"));
    /// assert_eq!(netlink.link_at(0x7fff_ffff)?, None);
    /// # Ok::<(), pagepool_link::LinkError>(())
    /// ```
    pub fn link_at(&mut self, index: u32) -> Result<Option<LinkInfo>, LinkError> {
        self.look_up(get_link(index), &named(index), LinkInfo::parse)
    }

    /// The packets that all programs sent through the link with this index; `None` if there is no such link.
    pub fn sent_at(&mut self, index: u32) -> Result<Option<u64>, LinkError> {
        self.look_up(get_link(index), &named(index), link_info::packets_sent)
    }

    /// The packets that the link with this index did not send because its driver had no room; `None` if there
    /// is no such link.
    pub fn unsent_at(&mut self, index: u32) -> Result<Option<u64>, LinkError> {
        self.look_up(get_link(index), &named(index), link_info::packets_unsent)
    }

    /// Queries a link and parses the answer; `None` if there is no such link.
    fn look_up<T>(
        &mut self,
        request: Request,
        about: &str,
        parse: fn(&NetlinkMessage<'_>) -> Result<T, Malformed>,
    ) -> Result<Option<T>, LinkError> {
        match self.socket.exchange(request, ("look up", about), uapi::RTM_NEWLINK, parse) {
            Ok(found) => Ok(found.into_iter().next()),
            Err(error) if error.errno() == Some(errno::ENODEV) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The current name of a link; its last known one if the link is gone.
    pub(crate) fn name_now(&mut self, link: &LinkInfo) -> String {
        self.link_at(link.index).ok().flatten().map_or_else(|| link.name.clone(), |now| now.name)
    }

    /// A link in another namespace, from [`LinkInfo::lower_elsewhere`]. Requires CAP_NET_ADMIN there.
    pub(crate) fn link_elsewhere(&mut self, at: LinkElsewhere) -> Result<Option<LinkInfo>, LinkError> {
        let mut request = get_link(at.index);
        request.number(uapi::IFLA_TARGET_NETNSID, at.namespace);
        let about = format!("link {} of namespace {}", at.index, at.namespace);
        self.look_up(request, &about, LinkInfo::parse)
    }

    /// This namespace's id for the namespace of an open file, if it has one.
    pub(crate) fn number_of(&mut self, namespace: BorrowedFd<'_>) -> Result<Option<u32>, LinkError> {
        let mut request = Request::new(uapi::RTM_GETNSID, uapi::NLM_F_ACK, &[0; link_info::NAMESPACE_HEADER]);
        request.number(uapi::NETNSA_FD, namespace.as_raw_fd().cast_unsigned());
        let asked = ("look up", "the number of a network namespace");
        let found = self.socket.exchange(request, asked, uapi::RTM_NEWNSID, link_info::namespace_number)?;
        Ok(found.into_iter().next().flatten())
    }

    /// Creates a veth pair: each end receives what is sent to the other. Both are down.
    pub fn add_veth(&mut self, near: &VethEnd<'_>, far: &VethEnd<'_>) -> Result<(), LinkError> {
        check_name(near.name)?;
        check_name(far.name)?;
        let mut request = about_link(uapi::RTM_NEWLINK, uapi::NEW_ONLY | uapi::NLM_F_ACK, 0);
        describe(&mut request, near);
        request.nest(nested(uapi::IFLA_LINKINFO), |info| {
            info.text(uapi::IFLA_INFO_KIND, "veth").nest(nested(uapi::IFLA_INFO_DATA), |data| {
                data.nest(nested(uapi::VETH_INFO_PEER), |peer| {
                    describe(peer.fixed(&link_info::header(0, 0, 0)), far);
                });
            });
        });
        let about = format!("the veth pair {} and {}", near.name, far.name);
        self.change(request, "make", &about)
    }

    /// Deletes a link, and with a veth its peer.
    pub fn delete(&mut self, index: u32) -> Result<(), LinkError> {
        self.change(about_link(uapi::RTM_DELLINK, uapi::NLM_F_ACK, index), "delete", &named(index))
    }

    /// Sets a link up or down.
    pub fn set_up(&mut self, index: u32, up: bool) -> Result<(), LinkError> {
        let flags = if up { uapi::IFF_UP } else { 0 };
        let request =
            Request::new(uapi::RTM_NEWLINK, uapi::NLM_F_ACK, &link_info::header(index, flags, uapi::IFF_UP));
        self.change(request, if up { "turn on" } else { "turn off" }, &named(index))
    }

    /// Sets how many packets may wait in a link for its driver to send them: `txqueuelen`.
    pub fn set_queue(&mut self, index: u32, packets: u32) -> Result<(), LinkError> {
        let mut request = about_link(uapi::RTM_NEWLINK, uapi::NLM_F_ACK, index);
        request.number(uapi::IFLA_TXQLEN, packets);
        self.change(request, "set the queue", &format!("of link {index} to {packets} packets"))
    }

    /// Waits until a link that is set up passes packets, and returns it.
    pub fn wait_up(&mut self, name: &str, limit: Duration) -> Result<LinkInfo, LinkError> {
        let start = Instant::now();
        loop {
            let link = self.link(name)?;
            if link.state == OperState::Up {
                return Ok(link);
            }
            if start.elapsed() >= limit {
                let what = format!("waiting for interface {name:?}, now {:?}, to come up", link.state);
                return Err(LinkError::TimedOut {
                    what,
                    limit,
                    remedy: "try again when the machine is less busy",
                });
            }
            thread::sleep(NAP);
        }
    }

    /// Gives a link an address, in a subnet of `bits` bits.
    pub fn add_address(&mut self, index: u32, ip: Ipv4Addr, bits: u8) -> Result<(), LinkError> {
        let fixed = route::address_header(uapi::AF_INET, bits, index);
        let mut request = Request::new(uapi::RTM_NEWADDR, uapi::NEW_ONLY | uapi::NLM_F_ACK, &fixed);
        request.attribute(uapi::IFA_LOCAL, &ip.octets());
        request.attribute(uapi::IFA_ADDRESS, &ip.octets());
        self.change(request, "add the address", &format!("{ip}/{bits} to link {index}"))
    }

    /// The links of the default routes, in all tables, for IPv4 and IPv6.
    pub(crate) fn default_route_links(&mut self) -> Result<Vec<u32>, LinkError> {
        let mut links = Vec::new();
        for family in [uapi::AF_INET, uapi::AF_INET6] {
            let request = Request::new(uapi::RTM_GETROUTE, uapi::NLM_F_DUMP, &route::header(family, 0));
            let routes =
                self.socket.exchange(request, ("list", "the routes"), uapi::RTM_NEWROUTE, Route::parse)?;
            let default = routes.into_iter().flatten().filter(Route::is_default);
            links.extend(default.flat_map(|route| route.links));
        }
        Ok(links)
    }

    /// The link through which a packet to this address would leave, if there is a route.
    pub(crate) fn route_to(&mut self, to: IpAddr) -> Result<Option<u32>, LinkError> {
        let (family, octets) = route::octets(to);
        let bits = u8::try_from(octets.len() * 8).expect("an address has at most 128 bits");
        let mut request = Request::new(uapi::RTM_GETROUTE, uapi::NLM_F_ACK, &route::header(family, bits));
        request.attribute(uapi::RTA_DST, &octets);
        let asked = ("find the way to", &*to.to_string());
        match self.socket.exchange(request, asked, uapi::RTM_NEWROUTE, Route::parse) {
            Ok(routes) => Ok(routes.into_iter().flatten().flat_map(|route| route.links).next()),
            Err(error) if matches!(error.errno(), Some(ENETUNREACH | EHOSTUNREACH | EAFNOSUPPORT)) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The links that have this address.
    pub(crate) fn links_with(&mut self, ip: IpAddr) -> Result<Vec<u32>, LinkError> {
        let request = Request::new(uapi::RTM_GETADDR, uapi::NLM_F_DUMP, &route::address_header(0, 0, 0));
        let asked = ("list", "the addresses");
        let addresses = self.socket.exchange(request, asked, uapi::RTM_NEWADDR, route::address)?;
        let those = addresses.into_iter().flatten().filter(|(_, address)| *address == ip);
        Ok(those.map(|(link, _)| link).collect())
    }

    /// The queueing disciplines for packets that leave through a link; `noqueue` alone means none. Empty for
    /// a link that was never up.
    pub fn qdiscs(&mut self, index: u32) -> Result<Vec<String>, LinkError> {
        let request = Request::new(uapi::RTM_GETQDISC, uapi::NLM_F_DUMP, &[0; qdisc::HEADER]);
        let asked = ("list", "the queueing disciplines");
        let all = self.socket.exchange(request, asked, uapi::RTM_NEWQDISC, qdisc::parse)?;
        let leaves = all.into_iter().filter(|(link, kind)| *link == index && kind != "ingress");
        Ok(leaves.map(|(_, kind)| kind).collect())
    }

    /// Attaches an XDP program to a link: in place of `old` if that is attached, or without `old` if none is.
    /// Without `new` it detaches `old`. Unlike a BPF link, the program stays when this process ends.
    #[doc(hidden)] // for programs of `pagepool-net`
    pub fn exchange_xdp(
        &mut self,
        index: u32,
        generic: bool,
        old: Option<BorrowedFd<'_>>,
        new: Option<BorrowedFd<'_>>,
    ) -> Result<(), LinkError> {
        let mode = if generic { uapi::XDP_FLAGS_SKB_MODE } else { uapi::XDP_FLAGS_DRV_MODE };
        let condition = old.map_or(uapi::XDP_FLAGS_UPDATE_IF_NOEXIST, |_| uapi::XDP_FLAGS_REPLACE);
        let mut request = about_link(uapi::RTM_NEWLINK, uapi::NLM_F_ACK, index);
        request.nest(nested(uapi::IFLA_XDP), |xdp| {
            let number = |program: BorrowedFd<'_>| program.as_raw_fd().cast_unsigned();
            xdp.number(uapi::IFLA_XDP_FD, new.map_or(u32::MAX, number)); // -1: no program
            xdp.number(uapi::IFLA_XDP_FLAGS, mode | condition);
            if let Some(old) = old {
                xdp.number(uapi::IFLA_XDP_EXPECTED_FD, number(old));
            }
        });
        self.change(request, "exchange the XDP program", &format!("of link {index}"))
    }

    /// Sends a request whose answer is only whether it succeeded.
    #[doc(hidden)] // for what only tests change
    pub fn change(&mut self, request: Request, what: &'static str, about: &str) -> Result<(), LinkError> {
        // The answer is error 0, without data.
        self.socket.exchange(request, (what, about), uapi::NLMSG_DONE, |_| Ok(())).map(drop)
    }
}

fn get_link(index: u32) -> Request {
    about_link(uapi::RTM_GETLINK, uapi::NLM_F_ACK, index)
}

/// A request about a link, which changes none of its flags.
fn about_link(kind: u16, flags: u16, index: u32) -> Request {
    Request::new(kind, flags, &link_info::header(index, 0, 0))
}

/// A link without a known name, for errors.
fn named(index: u32) -> String {
    format!("link {index}")
}

fn describe(request: &mut Request, end: &VethEnd<'_>) {
    request.text(uapi::IFLA_IFNAME, end.name).number(uapi::IFLA_MTU, end.mtu);
    request.number(uapi::IFLA_NUM_TX_QUEUES, end.queues).number(uapi::IFLA_NUM_RX_QUEUES, end.queues);
    if let Some(Mac(mac)) = end.mac {
        request.attribute(uapi::IFLA_ADDRESS, &mac);
    }
    if let Some(namespace) = end.namespace {
        request.number(uapi::IFLA_NET_NS_FD, namespace.as_raw_fd().cast_unsigned());
    }
}
