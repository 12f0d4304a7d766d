//! The tree of an expression: comparisons of header fields, which `not`, `and` and `or` join.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub(crate) const ETHER_IP: u16 = 0x0800;
pub(crate) const ETHER_IP6: u16 = 0x86dd;
/// EtherTypes of VLAN tags: customer, provider, and the outer tag of older switches.
pub(crate) const TAG_TYPES: [u16; 3] = [0x8100, 0x88a8, 0x9100];
/// The protocol number of ICMPv6.
pub(crate) const ICMP6: u8 = 58;

/// A field of a packet's headers, as a number of up to 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fact {
    EtherType,
    /// The ID of a VLAN tag: outer (0) or second (1).
    Tag(usize),
    /// 4 or 6, if there is an IP header.
    Family,
    Protocol,
    /// 1 for a fragment.
    Fragment,
    /// The port of source (0) or destination (1).
    Port(usize),
    /// The type of an ICMPv6 message.
    Icmp6,
    /// Which address, and which word of it.
    Address(usize, usize),
}

/// Whether the masked bits of a field are in a range. False for a packet without the field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Comparison {
    pub(crate) fact: Fact,
    pub(crate) mask: u32,
    pub(crate) first: u32,
    pub(crate) last: u32,
}

/// How a packet is decided. `Always` is never part of another expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expression {
    Always(bool),
    If(Comparison),
    Not(Box<Expression>),
    And(Vec<Expression>),
    Or(Vec<Expression>),
    /// An expression with its text, for errors that name it.
    Named(Box<str>, Box<Expression>),
}

impl Expression {
    pub(super) fn equal(fact: Fact, value: impl Into<u32>) -> Self {
        Self::bits(fact, !0, value.into())
    }

    pub(super) fn within(fact: Fact, first: u16, last: u16) -> Self {
        Self::If(Comparison { fact, mask: !0, first: first.into(), last: last.into() })
    }

    fn bits(fact: Fact, mask: u32, value: u32) -> Self {
        Self::If(Comparison { fact, mask, first: value, last: value })
    }

    /// Whether one of these addresses has this prefix: 0 is the source, 1 the destination.
    pub(super) fn addresses(sides: &[usize], prefix: &Prefix) -> Self {
        let ((address, mask), is_v4) = (prefix.bits(), prefix.address.is_ipv4());
        let (family, parts) = if is_v4 { (4u32, 1) } else { (6, 4) };
        let word = |of: u128, part| (of >> (32 * (parts - 1 - part))) as u32;
        let bits = |&side: &usize| {
            let parts = (0..parts).filter(|&part| word(mask, part) != 0);
            let equal = |part| Self::bits(Fact::Address(side, part), word(mask, part), word(address, part));
            Self::joined(parts.map(equal), true)
        };
        Self::joined([Self::equal(Fact::Family, family), Self::joined(sides.iter().map(bits), false)], true)
    }

    /// All of some parts, or any of them. Constant parts are omitted, or decide.
    pub(super) fn joined(parts: impl IntoIterator<Item = Self>, all: bool) -> Self {
        let mut open = Vec::new();
        for part in parts {
            match part {
                Self::Always(holds) if holds == all => {}
                Self::Always(holds) => return Self::Always(holds),
                part => open.push(part),
            }
        }
        match open.len() {
            0 => Self::Always(all),
            1 => open.remove(0),
            _ if all => Self::And(open),
            _ => Self::Or(open),
        }
    }

    pub(super) fn negated(self) -> Self {
        match self {
            Self::Always(all) => Self::Always(!all),
            part => Self::Not(part.into()),
        }
    }

    pub(super) fn named(self, text: &str) -> Self {
        match self {
            Self::Always(_) => self,
            part => Self::Named(text.into(), part.into()),
        }
    }

    /// Whether it is true for a packet with these values of fields.
    pub(super) fn holds(&self, value_of: &dyn Fn(Fact) -> Option<u32>) -> bool {
        match self {
            Self::Always(holds) => *holds,
            Self::If(Comparison { fact, mask, first, last }) => {
                value_of(*fact).is_some_and(|value| (*first..=*last).contains(&(value & mask)))
            }
            Self::Not(part) => !part.holds(value_of),
            Self::And(parts) => parts.iter().all(|part| part.holds(value_of)),
            Self::Or(parts) => parts.iter().any(|part| part.holds(value_of)),
            Self::Named(_, part) => part.holds(value_of),
        }
    }

    /// Adds the fields that it compares.
    pub(crate) fn facts(&self, into: &mut Vec<Fact>) {
        match self {
            Self::Always(_) => {}
            Self::If(comparison) => into.push(comparison.fact),
            Self::Not(part) | Self::Named(_, part) => part.facts(into),
            Self::And(parts) | Self::Or(parts) => parts.iter().for_each(|part| part.facts(into)),
        }
    }
}

/// An address, and the length of its prefix in bits.
#[derive(Clone, Debug)]
pub(super) struct Prefix {
    pub(super) address: IpAddr,
    pub(super) len: u32,
}

impl Prefix {
    /// The prefix that is one address.
    pub(super) fn host(address: IpAddr) -> Self {
        Self { address, len: if address.is_ipv4() { 32 } else { 128 } }
    }

    /// The bits of the address, and its mask; those of IPv4 are the lowest 32.
    pub(super) fn bits(&self) -> (u128, u128) {
        let (address, all) = match self.address {
            IpAddr::V4(address) => (u32::from(address).into(), u32::MAX.into()),
            IpAddr::V6(address) => (address.into(), u128::MAX),
        };
        (address, all & !all.checked_shr(self.len).unwrap_or(0))
    }
}

/// The address with these bits.
pub(super) fn address_of(is_v4: bool, bits: u128) -> IpAddr {
    if is_v4 { Ipv4Addr::from(bits as u32).into() } else { Ipv6Addr::from(bits).into() }
}
