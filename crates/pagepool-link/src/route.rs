//! Parses routes and addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::message::{Attributes, Malformed, NetlinkMessage, u32_at};
use crate::sys::uapi;

/// Bytes of `struct rtmsg` and of `struct ifaddrmsg`.
const ROUTE_HEADER: usize = 12;
const ADDRESS_HEADER: usize = 8;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// The length of its destination prefix, in bits.
    pub(crate) prefix: u8,
    /// The interfaces by which packets leave.
    pub(crate) links: Vec<u32>,
}

impl Route {
    /// Parses a message about a route; `None` for routes that do not forward packets.
    pub(crate) fn parse(message: &NetlinkMessage<'_>) -> Result<Option<Self>, Malformed> {
        let (fixed, attributes) = message.split(ROUTE_HEADER)?;
        if fixed[7] != uapi::RTN_UNICAST {
            return Ok(None);
        }
        let mut links = Vec::from_iter(attributes.number(uapi::RTA_OIF)?);
        // A `struct rtnexthop` is laid out like an attribute that begins with the link.
        for hop in Attributes(attributes.find(uapi::RTA_MULTIPATH)?.unwrap_or_default()) {
            links.push(u32_at(hop?.1, 0).ok_or(Malformed("a next hop without a link"))?);
        }
        Ok(Some(Self { prefix: fixed[1], links }))
    }

    /// Whether it is a default route. Half of the address space counts: some tunnels replace the default
    /// route by two halves.
    pub(crate) fn is_default(&self) -> bool {
        self.prefix <= 1
    }
}

/// Parses a message about an address: its link and itself; `None` for families other than IPv4 and IPv6.
pub(crate) fn address(message: &NetlinkMessage<'_>) -> Result<Option<(u32, IpAddr)>, Malformed> {
    let (fixed, attributes) = message.split(ADDRESS_HEADER)?;
    // On a point-to-point link `IFA_ADDRESS` is the peer's.
    let local = attributes.find(uapi::IFA_LOCAL)?;
    let Some(bytes) = local.or(attributes.find(uapi::IFA_ADDRESS)?) else { return Ok(None) };
    let link = u32_at(fixed, 4).ok_or(Malformed("an address without a link"))?;
    Ok(ip(fixed[0], bytes)?.map(|ip| (link, ip)))
}

fn ip(family: u8, bytes: &[u8]) -> Result<Option<IpAddr>, Malformed> {
    let odd = Malformed("an address that is not as long as its family says");
    match family {
        uapi::AF_INET => Ok(Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).map_err(|_| odd)?).into())),
        uapi::AF_INET6 => Ok(Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).map_err(|_| odd)?).into())),
        _ => Ok(None),
    }
}

/// The fixed part of a request about routes, with the length of a destination prefix.
pub(crate) fn header(family: u8, bits: u8) -> [u8; ROUTE_HEADER] {
    let mut header = [0; ROUTE_HEADER];
    header[..2].copy_from_slice(&[family, bits]);
    header
}

/// The fixed part of a request about an address.
pub(crate) fn address_header(family: u8, bits: u8, link: u32) -> [u8; ADDRESS_HEADER] {
    let mut header = [0; ADDRESS_HEADER];
    header[..2].copy_from_slice(&[family, bits]);
    header[4..].copy_from_slice(&link.to_ne_bytes());
    header
}

pub(crate) fn octets(ip: IpAddr) -> (u8, Vec<u8>) {
    match ip {
        IpAddr::V4(ip) => (uapi::AF_INET, ip.octets().to_vec()),
        IpAddr::V6(ip) => (uapi::AF_INET6, ip.octets().to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{NetlinkMessages, Request};

    fn route(kind: u8, prefix: u8, fill: impl FnOnce(&mut Request)) -> Result<Option<Route>, Malformed> {
        let mut fixed = header(uapi::AF_INET, prefix);
        fixed[7] = kind;
        let mut request = Request::new(uapi::RTM_NEWROUTE, 0, &fixed);
        fill(&mut request);
        Route::parse(&NetlinkMessages(request.numbered(1)).next().unwrap().unwrap())
    }

    #[test]
    fn routes_over_several_links_name_all() {
        let mut hops = Vec::new();
        for link in [3u32, 4] {
            hops.extend_from_slice(&[8, 0, 0, 0]);
            hops.extend_from_slice(&link.to_ne_bytes());
        }
        let read = route(uapi::RTN_UNICAST, 0, |route| {
            route.attribute(uapi::RTA_MULTIPATH, &hops);
        });
        assert_eq!(read, Ok(Some(Route { prefix: 0, links: vec![3, 4] })));
        for cut in 1..hops.len() {
            let read = route(uapi::RTN_UNICAST, 0, |route| {
                route.attribute(uapi::RTA_MULTIPATH, &hops[..cut]);
            });
            assert_eq!(read.is_err(), cut != 8, "{cut}");
        }
        let blackhole = route(6, 0, |_| ()).unwrap();
        assert_eq!(blackhole, None);
        let half = route(uapi::RTN_UNICAST, 1, |route| {
            route.number(uapi::RTA_OIF, 2);
        });
        assert!(half.unwrap().unwrap().is_default());
    }

    #[test]
    fn addresses_are_as_long_as_their_family_says() {
        assert_eq!(ip(uapi::AF_INET, &[1, 2, 3, 4]), Ok(Some(IpAddr::from([1, 2, 3, 4]))));
        assert!(ip(uapi::AF_INET, &[1, 2, 3]).is_err() && ip(uapi::AF_INET6, &[0; 4]).is_err());
        assert_eq!(ip(17, &[0; 6]), Ok(None));
    }
}
