//! Whether an expression is true for a packet, given its headers.

use super::expression::{Expression, ND_TYPES, Test};
use super::headers::Headers;

impl Expression {
    pub(super) fn holds(&self, of: &Headers) -> bool {
        match self {
            Self::All => true,
            Self::Test(test) => test.holds(of),
            Self::Not(part) => !part.holds(of),
            Self::And(parts) => parts.iter().all(|part| part.holds(of)),
            Self::Or(parts) => parts.iter().any(|part| part.holds(of)),
        }
    }
}

impl Test {
    fn holds(&self, of: &Headers) -> bool {
        match self {
            Self::EtherType(ether_type) => of.ether_type == Some(*ether_type),
            Self::Tagged => of.tags[0].is_some(),
            Self::Vlan(id) => of.tags.contains(&Some(*id)),
            Self::Protocol(protocol) => of.protocol == Some(*protocol),
            Self::NeighbourDiscovery => of.icmp6_type.is_some_and(|kind| ND_TYPES.contains(&kind)),
            Self::Ports(side, range) => {
                of.ports.is_some_and(|ports| side.places().iter().any(|&at| range.contains(&ports[at])))
            }
            Self::Addresses(side, prefix) => {
                let (address, mask) = prefix.bits();
                let v4 = of.v4.map(|all| all.map(u128::from));
                let all = if prefix.address.is_ipv4() { v4 } else { of.v6 };
                all.is_some_and(|all| side.places().iter().any(|&at| all[at] & mask == address))
            }
            Self::Fragment => of.is_fragment,
        }
    }
}
