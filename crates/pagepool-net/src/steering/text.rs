//! Writes an expression as text that the parser accepts: for errors that name a part of it.

use std::fmt;

use super::expression::{Direction, Expression, Prefix, Test};

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Test(test) => write!(f, "{test}"),
            Self::Not(part) => write!(f, "not {part}"),
            Self::And(parts) => joined(f, parts, " and "),
            Self::Or(parts) => joined(f, parts, " or "),
        }
    }
}

fn joined(f: &mut fmt::Formatter<'_>, parts: &[Expression], by: &str) -> fmt::Result {
    let parts: Vec<String> = parts.iter().map(Expression::to_string).collect();
    write!(f, "({})", parts.join(by))
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EtherType(ether_type) => write!(f, "ethertype {ether_type:#06x}"),
            Self::Tagged => f.write_str("vlan"),
            Self::Vlan(id) => write!(f, "vlan {id}"),
            Self::Protocol(protocol) => write!(f, "proto {protocol}"),
            Self::NeighbourDiscovery => f.write_str("nd"),
            Self::Ports(side, ports) if ports.start() == ports.end() => {
                write!(f, "{side}port {}", ports.start())
            }
            Self::Ports(side, ports) => write!(f, "{side}portrange {}-{}", ports.start(), ports.end()),
            Self::Addresses(side, prefix) => write!(f, "{side}{prefix}"),
            Self::Fragment => f.write_str("fragment"),
        }
    }
}

/// The word before an endpoint.
impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Source => "src ",
            Self::Destination => "dst ",
            Self::Either => "",
        })
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self == Self::host(self.address) {
            true => write!(f, "host {}", self.address),
            false => write!(f, "net {}/{}", self.address, self.len),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Match;

    #[test]
    fn what_is_shown_is_read_as_the_same_again() {
        for text in [
            "all",
            "ethertype 0x88b5 or vlan 7 or vlan",
            "not (arp or icmp6 or nd) and not fragment",
            "(udp dst port 4789 and src net 10.0.0.0/8) or (dst net fd00::/8 and proto 47)",
            "tcp src portrange 5000-5999 and host fd00::1",
        ] {
            let first: Match = text.parse().unwrap();
            let shown = first.expression().to_string();
            let again: Match = shown.parse().unwrap();
            assert_eq!(again.expression(), first.expression(), "{text}: {shown}");
        }
    }
}
