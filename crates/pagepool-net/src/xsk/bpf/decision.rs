//! The expression that decides about a packet, over words of the program's stack.

use crate::steering::{Direction, Expression, ICMP6, ND_TYPES, Prefix, Test};

/// A word that the program reads from a packet's headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fact {
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
    /// Not of a packet: scratch space.
    Scratch,
}

impl Fact {
    /// The offset from the frame pointer, never a multiple of eight.
    pub(super) fn offset(self) -> i16 {
        let place = match self {
            Self::EtherType => 0,
            Self::Tag(which) => 1 + which,
            Self::Family => 3,
            Self::Protocol => 4,
            Self::Fragment => 5,
            Self::Icmp6 => 6,
            Self::Scratch => 7,
            Self::Port(side) => 8 + side,
            Self::Address(side, part) => 10 + 4 * side + part,
        };
        -4 - 8 * place as i16
    }
}

/// Whether the masked bits of a word are in a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Comparison {
    pub(super) word: Fact,
    pub(super) mask: u32,
    pub(super) first: u32,
    pub(super) last: u32,
}

/// How a packet is decided. `Always` is never part of another decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    Always(bool),
    If(Comparison),
    Not(Box<Decision>),
    And(Vec<Decision>),
    Or(Vec<Decision>),
}

impl Decision {
    pub(super) fn new(expression: &Expression) -> Self {
        match expression {
            Expression::All => Self::Always(true),
            Expression::Test(test) => Self::of_test(test),
            Expression::Not(part) => match Self::new(part) {
                Self::Always(all) => Self::Always(!all),
                part => Self::Not(Box::new(part)),
            },
            Expression::And(parts) => Self::joined(parts.iter().map(Self::new), true),
            Expression::Or(parts) => Self::joined(parts.iter().map(Self::new), false),
        }
    }

    /// All of some parts, or any of them. Constant parts are omitted, or decide.
    fn joined(parts: impl Iterator<Item = Self>, all: bool) -> Self {
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

    fn of_test(test: &Test) -> Self {
        let equal = |word, value: u32| Self::bits(word, !0, value);
        let within = |word, first: u32, last: u32| Self::If(Comparison { word, mask: !0, first, last });
        match test {
            Test::EtherType(ether_type) => equal(Fact::EtherType, (*ether_type).into()),
            Test::Tagged => within(Fact::Tag(0), 0, 0xfff),
            Test::Vlan(id) => Self::Or((0..2).map(|which| equal(Fact::Tag(which), (*id).into())).collect()),
            Test::Protocol(protocol) => equal(Fact::Protocol, (*protocol).into()),
            Test::NeighbourDiscovery => Self::And(vec![
                equal(Fact::Family, 6),
                equal(Fact::Protocol, ICMP6.into()),
                within(Fact::Icmp6, (*ND_TYPES.start()).into(), (*ND_TYPES.end()).into()),
            ]),
            Test::Ports(side, range) => Self::of_sides(*side, |side| {
                within(Fact::Port(side), (*range.start()).into(), (*range.end()).into())
            }),
            Test::Addresses(side, prefix) => Self::of_addresses(*side, prefix),
            Test::Fragment => equal(Fact::Fragment, 1),
        }
    }

    fn of_addresses(side: Direction, prefix: &Prefix) -> Self {
        let ((address, mask), is_v4) = (prefix.bits(), prefix.address.is_ipv4());
        let (family, parts) = if is_v4 { (4, 1) } else { (6, 4) };
        let word = |of: u128, part| (of >> (32 * (parts - 1 - part))) as u32;
        let bits = |side| {
            let parts = (0..parts).filter(|&part| word(mask, part) != 0);
            let equal = |part| Self::bits(Fact::Address(side, part), word(mask, part), word(address, part));
            Self::joined(parts.map(equal), true)
        };
        Self::joined([Self::bits(Fact::Family, !0, family), Self::of_sides(side, bits)].into_iter(), true)
    }

    fn of_sides(side: Direction, of: impl Fn(usize) -> Self) -> Self {
        Self::joined(side.places().iter().map(|&side| of(side)), false)
    }

    fn bits(word: Fact, mask: u32, value: u32) -> Self {
        Self::If(Comparison { word, mask, first: value, last: value })
    }

    pub(super) fn words(&self, into: &mut Vec<Fact>) {
        match self {
            Self::Always(_) => {}
            Self::If(comparison) => into.push(comparison.word),
            Self::Not(part) => part.words(into),
            Self::And(parts) | Self::Or(parts) => parts.iter().for_each(|part| part.words(into)),
        }
    }
}
