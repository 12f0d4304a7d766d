//! Settings of links that only tests change, over netlink.

use std::net::Ipv4Addr;

use pagepool_link::message::{Request, nested};
use pagepool_link::{LinkError, Mac, Netlink};

use crate::sys::netlink::{self as uapi, ACK, NEW_ONLY};

/// The parameters of a token bucket: a queueing discipline that limits a link's rate (`tbf`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    /// Rate in bytes per second: at least 1.
    pub rate: u32,
    /// Bytes sent at once: at least the link's longest packet.
    pub burst: u32,
    /// Bytes of packets that wait in it. Packets that arrive when it is full are dropped.
    pub limit: u32,
}

/// Changes settings of links, in the namespace of a [`Netlink`].
pub trait LinkSettings {
    /// Sets the MTU of a link.
    fn set_mtu(&mut self, index: u32, mtu: u32) -> Result<(), LinkError>;

    /// Sets the MAC address of a link.
    fn set_mac(&mut self, index: u32, mac: Mac) -> Result<(), LinkError>;

    /// Adds a route to a network with a prefix of `bits` bits, through a neighbour on one of the links. 0
    /// bits: the default route.
    fn add_route(&mut self, to: Ipv4Addr, bits: u8, through: Ipv4Addr) -> Result<(), LinkError>;

    /// Makes a token bucket the queueing discipline of a link, in place of the kernel's default. Requires a
    /// kernel with `tbf`.
    fn add_token_bucket(&mut self, index: u32, bucket: TokenBucket) -> Result<(), LinkError>;

    /// Deletes the queueing discipline of a link, with the packets in it. The kernel restores the default, or
    /// none.
    fn delete_qdisc(&mut self, index: u32) -> Result<(), LinkError>;

    /// Detaches the XDP program of a link that has no BPF link, as `ip link set LINK xdp off` does.
    fn detach_xdp(&mut self, index: u32) -> Result<(), LinkError>;
}

impl LinkSettings for Netlink {
    fn set_mtu(&mut self, index: u32, mtu: u32) -> Result<(), LinkError> {
        let mut request = Request::new(uapi::RTM_NEWLINK, ACK, &link_header(index));
        request.number(uapi::IFLA_MTU, mtu);
        self.change(request, "set the MTU", &format!("of link {index} to {mtu}"))
    }

    fn set_mac(&mut self, index: u32, mac: Mac) -> Result<(), LinkError> {
        let mut request = Request::new(uapi::RTM_NEWLINK, ACK, &link_header(index));
        request.attribute(uapi::IFLA_ADDRESS, &mac.0);
        self.change(request, "set the MAC address", &format!("of link {index} to {mac}"))
    }

    fn add_route(&mut self, to: Ipv4Addr, bits: u8, through: Ipv4Addr) -> Result<(), LinkError> {
        let mut request = Request::new(uapi::RTM_NEWROUTE, NEW_ONLY | ACK, &route_header(bits));
        if bits > 0 {
            request.attribute(uapi::RTA_DST, &to.octets());
        }
        request.attribute(uapi::RTA_GATEWAY, &through.octets());
        self.change(request, "add the route", &format!("to {to}/{bits} through {through}"))
    }

    fn add_token_bucket(&mut self, index: u32, bucket: TokenBucket) -> Result<(), LinkError> {
        let mut request = Request::new(uapi::RTM_NEWQDISC, NEW_ONLY | ACK, &root_of(index));
        request.text(uapi::TCA_KIND, "tbf").nest(nested(uapi::TCA_OPTIONS), |options| {
            options.attribute(uapi::TCA_TBF_PARMS, &token_bucket(bucket));
            options.number(uapi::TCA_TBF_BURST, bucket.burst);
        });
        self.change(request, "add the token bucket", &format!("{bucket:?} to link {index}"))
    }

    fn delete_qdisc(&mut self, index: u32) -> Result<(), LinkError> {
        let request = Request::new(uapi::RTM_DELQDISC, ACK, &root_of(index));
        self.change(request, "delete the queueing discipline", &format!("of link {index}"))
    }

    fn detach_xdp(&mut self, index: u32) -> Result<(), LinkError> {
        let mut request = Request::new(uapi::RTM_NEWLINK, ACK, &link_header(index));
        request.nest(nested(uapi::IFLA_XDP), |xdp| {
            xdp.number(uapi::IFLA_XDP_FD, u32::MAX); // -1: no program
        });
        self.change(request, "detach the XDP program", &format!("of link {index}"))
    }
}

/// `struct ifinfomsg` of a link.
fn link_header(index: u32) -> [u8; 16] {
    let mut header = [0; 16];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header
}

/// `struct rtmsg` of an IPv4 route in the main table, made by an administrator.
fn route_header(bits: u8) -> [u8; 12] {
    let (table, made_by) = (uapi::RT_TABLE_MAIN, uapi::RTPROT_STATIC);
    [uapi::AF_INET as u8, bits, 0, 0, table, made_by, 0, uapi::RTN_UNICAST, 0, 0, 0, 0]
}

/// `struct tcmsg` of the root queueing discipline of a link.
fn root_of(link: u32) -> [u8; 20] {
    let mut bytes = [0; 20];
    bytes[4..8].copy_from_slice(&link.to_ne_bytes());
    bytes[12..16].copy_from_slice(&uapi::TC_H_ROOT.to_ne_bytes());
    bytes
}

/// `struct tc_tbf_qopt`.
fn token_bucket(bucket: TokenBucket) -> [u8; 36] {
    let mut bytes = [0; 36];
    bytes[1] = uapi::TC_LINKLAYER_ETHERNET;
    bytes[8..12].copy_from_slice(&bucket.rate.to_ne_bytes());
    bytes[24..28].copy_from_slice(&bucket.limit.to_ne_bytes());
    bytes
}
