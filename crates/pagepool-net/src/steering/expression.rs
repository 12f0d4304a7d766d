//! The tree of an expression.

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

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Prefix {
    V4 { address: u32, mask: u32 },
    V6 { address: u128, mask: u128 },
}
