//! The tree of an expression.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

pub(crate) const ETHER_IP: u16 = 0x0800;
pub(crate) const ETHER_IP6: u16 = 0x86dd;
/// EtherTypes of VLAN tags: customer, provider, and the outer tag of older switches.
pub(crate) const TAG_TYPES: [u16; 3] = [0x8100, 0x88a8, 0x9100];
/// The protocol number of ICMPv6, and its types for neighbour discovery (RFC 4861).
pub(crate) const ICMP6: u8 = 58;
pub(crate) const ND_TYPES: RangeInclusive<u8> = 133..=137;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expression {
    All,
    Test(Test),
    Not(Box<Expression>),
    And(Vec<Expression>),
    Or(Vec<Expression>),
}

/// A test of one header field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Test {
    EtherType(u16),
    Tagged,
    Vlan(u16),
    Protocol(u8),
    NeighbourDiscovery,
    Ports(Direction, RangeInclusive<u16>),
    Addresses(Direction, Prefix),
    Fragment,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Source,
    Destination,
    Either,
}

impl Direction {
    /// The indices to test: 0 is the source, 1 the destination.
    pub(crate) fn places(self) -> &'static [usize] {
        match self {
            Self::Source => &[0],
            Self::Destination => &[1],
            Self::Either => &[0, 1],
        }
    }
}

/// An address, and the length of its prefix in bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Prefix {
    pub(crate) address: IpAddr,
    pub(crate) len: u32,
}

impl Prefix {
    /// The prefix that is one address.
    pub(crate) fn host(address: IpAddr) -> Self {
        Self { address, len: if address.is_ipv4() { 32 } else { 128 } }
    }

    /// The bits of the address, and its mask; those of IPv4 are the lowest 32.
    pub(crate) fn bits(&self) -> (u128, u128) {
        let (address, all) = match self.address {
            IpAddr::V4(address) => (u32::from(address).into(), u32::MAX.into()),
            IpAddr::V6(address) => (address.into(), u128::MAX),
        };
        (address, all & !all.checked_shr(self.len).unwrap_or(0))
    }
}

/// The address with these bits.
pub(crate) fn address_of(is_v4: bool, bits: u128) -> IpAddr {
    if is_v4 { Ipv4Addr::from(bits as u32).into() } else { Ipv6Addr::from(bits).into() }
}
