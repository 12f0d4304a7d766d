//! The rules that make a card send the packets of an expression to some of its queues.
//!
//! What   an expression becomes alternatives: lists of parts that must all be true. An alternative becomes
//!        one or more rules: for source and destination, IPv4 and IPv6, and each protocol with ports. A rule
//!        may take more packets than its alternative, because the XDP program checks each packet: rules
//!        ignore `not`.

use std::collections::BTreeMap;

use super::Match;
use super::expression::{Comparison, ETHER_IP, ETHER_IP6, Expression, Fact, address_of};
use super::headers::WITH_PORTS;
use crate::error::parameter;
use pagepool::Error;

/// The most rules of a match. igb has 16, other cards thousands.
const MOST: usize = 64;
/// The protocols with ports, and their flow names in `ethtool -N`.
const TRANSPORTS: [(u32, &str); 3] = [(6, "tcp"), (17, "udp"), (132, "sctp")];
const VLAN_ID: u16 = 0x0fff;
const SIDES: [&str; 2] = ["src", "dst"];

impl Match {
    /// Makes rules for a card's hardware that take the packets of the match, and maybe more: parts with `not`
    /// are left to the XDP program. A packet that the card does not recognise keeps its queue: fragments
    /// without ports, headers behind IPv6 extensions or tags. Rules for IPv4 and Ethernet come first.
    /// `ethtool -N INTERFACE RULE action QUEUE` adds a rule to a card.
    ///
    /// Fails for a part that rules cannot express, and names it: `all`, `vlan` without an ID, `nd`,
    /// `fragment`, a range of ports, an alternative of only `not`. Also fails for more than 64 rules, and
    /// for a match of no packet, such as `not all`.
    ///
    /// ```
    /// use pagepool_net::Match;
    /// let ours: Match = "udp dst port 4789 and not fragment".parse()?;
    /// assert_eq!(ours.flow_rules()?, ["flow-type udp4 dst-port 4789", "flow-type udp6 dst-port 4789"]);
    ///
    /// let refused = "udp portrange 5000-5999".parse::<Match>()?.flow_rules().unwrap_err().to_string();
    /// assert!(refused.contains("portrange 5000-5999"), "{refused}");
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    pub fn flow_rules(&self) -> Result<Vec<String>, Error> {
        let mut rules = Vec::new();
        for flow in self.flows(self.expression(), &self.text)? {
            if flow.facts.is_empty() {
                let part = if flow.left.is_empty() { "all".into() } else { flow.left.join(" and ") };
                return Err(self.unsayable(&part));
            }
            for rule in flow.rules() {
                if !rules.contains(&rule) {
                    rules.push(rule);
                }
            }
        }
        // Sorted, because rules go to queues in turn: else one of two queues would get all of IPv4.
        rules.sort_by_key(|&(is_v6, _)| is_v6);
        match rules.len() {
            0 => Err(parameter(
                "match",
                format!("{self:?}"),
                "one that a packet can match, to become rules of a card",
            )),
            1..=MOST => Ok(rules.into_iter().map(|(_, rule)| rule).collect()),
            _ => Err(self.too_many()),
        }
    }

    /// The alternatives of a part of this match, which has this text, without contradictory ones.
    fn flows(&self, part: &Expression, text: &str) -> Result<Vec<Alternative>, Error> {
        Ok(match part {
            Expression::Always(true) => vec![Alternative::default()],
            Expression::Always(false) => Vec::new(),
            Expression::Named(text, part) => self.flows(part, text)?,
            Expression::Not(_) => vec![Alternative { left: vec![text.into()], ..Alternative::default() }],
            Expression::If(comparison) => {
                vec![Alternative::new(comparison).ok_or_else(|| self.unsayable(text))?]
            }
            Expression::Or(parts) => self.joined(parts, text, Vec::new(), |mut all, more| {
                for flow in more {
                    if !all.contains(&flow) {
                        all.push(flow);
                    }
                }
                all
            })?,
            Expression::And(parts) => {
                self.joined(parts, text, vec![Alternative::default()], |all, more| {
                    all.iter().flat_map(|one| more.iter().filter_map(|other| one.and(other))).collect()
                })?
            }
        })
    }

    /// The alternatives of parts with this text, which `join` adds to `all`.
    fn joined(
        &self,
        parts: &[Expression],
        text: &str,
        mut all: Vec<Alternative>,
        join: impl Fn(Vec<Alternative>, Vec<Alternative>) -> Vec<Alternative>,
    ) -> Result<Vec<Alternative>, Error> {
        for part in parts {
            all = join(all, self.flows(part, text)?);
            if all.len() > MOST {
                return Err(self.too_many());
            }
        }
        Ok(all)
    }

    fn too_many(&self) -> Error {
        parameter("match", format!("{self:?}"), format!("one of at most {MOST} rules of a card"))
    }

    fn unsayable(&self, part: &str) -> Error {
        let must_be = format!(
            "without {part:?} to become rules of a card (ntuple): they match EtherTypes, VLAN IDs, \
             protocols, addresses and single ports. Without such rules the match works on every queue"
        );
        parameter("match", format!("{self:?}"), must_be)
    }
}

/// The header fields of the packets of an alternative.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Alternative {
    /// Each with its mask. The family is an EtherType, and a VLAN ID that of the outer tag.
    facts: BTreeMap<Fact, (u32, u32)>,
    /// The parts that no rule can express.
    left: Vec<String>,
}

impl Alternative {
    /// The packets for which a comparison is true; `None` if no rule can express it.
    fn new(&Comparison { fact, mask, first, last }: &Comparison) -> Option<Self> {
        let (fact, value) = match fact {
            _ if first != last => return None,
            Fact::Fragment | Fact::Icmp6 => return None,
            Fact::Family => (Fact::EtherType, u32::from(if first == 4 { ETHER_IP } else { ETHER_IP6 })),
            Fact::Tag(_) => (Fact::Tag(0), first),
            fact => (fact, first),
        };
        Some(Self { facts: BTreeMap::from([(fact, (value, mask))]), left: Vec::new() })
    }

    /// The packets in both; `None` if there are none.
    fn and(&self, other: &Self) -> Option<Self> {
        let mut both = self.clone();
        for (&fact, &(value, mask)) in &other.facts {
            let there = both.facts.entry(fact).or_default();
            if (there.0 ^ value) & there.1 & mask != 0 {
                return None;
            }
            *there = (there.0 | value, there.1 | mask);
        }
        both.left.extend_from_slice(&other.left);
        Some(both)
    }

    fn value(&self, fact: Fact) -> Option<u32> {
        self.facts.get(&fact).map(|(value, _)| *value)
    }

    /// An address and its mask.
    fn address(&self, is_v6: bool, side: usize) -> (u128, u128) {
        let words = (0..if is_v6 { 4 } else { 1 })
            .map(|part| self.facts.get(&Fact::Address(side, part)).copied().unwrap_or_default());
        words.fold((0, 0), |all, word| (all.0 << 32 | u128::from(word.0), all.1 << 32 | u128::from(word.1)))
    }

    /// The rules that take these packets, and whether each is for IPv6; none if there are no such packets.
    fn rules(&self) -> Vec<(bool, String)> {
        let has = |any: fn(&Fact) -> bool| self.facts.keys().any(any);
        let has_ports = has(|fact| matches!(fact, Fact::Port(_)));
        let (ether_type, protocol) = (self.value(Fact::EtherType), self.value(Fact::Protocol));
        if protocol.is_none() && !has_ports && !has(|fact| matches!(fact, Fact::Address(..))) {
            let of_type = ether_type.map(|of| format!(" proto {of:#06x}")).unwrap_or_default();
            return vec![(false, format!("flow-type ether{of_type}{}", self.vlan_text()))];
        }
        let with_ports = WITH_PORTS.map(u32::from);
        let protocols: Vec<Option<u32>> = match (has_ports, protocol) {
            (true, None) => with_ports.map(Some).to_vec(),
            (true, Some(other)) if !with_ports.contains(&other) => Vec::new(),
            (_, protocol) => vec![protocol],
        };
        let may_be = |of: u16| ether_type.is_none_or(|ether_type| ether_type == u32::from(of));
        let of = |protocol| {
            let rule = |is_v6| (is_v6, self.ip_rule(is_v6, protocol));
            [may_be(ETHER_IP).then(|| rule(false)), may_be(ETHER_IP6).then(|| rule(true))]
        };
        protocols.into_iter().flat_map(of).flatten().collect()
    }

    /// A rule in the syntax of `ethtool -N`, whose masks set the bits to ignore.
    fn ip_rule(&self, is_v6: bool, protocol: Option<u32>) -> String {
        let of_ports = TRANSPORTS.iter().find(|row| Some(row.0) == protocol).map(|row| row.1);
        let all = if is_v6 { u128::MAX } else { u32::MAX.into() };
        let mut rule = format!("flow-type {}{}", of_ports.unwrap_or("ip"), if is_v6 { 6 } else { 4 });
        for (at, side) in SIDES.iter().enumerate() {
            let (address, mask) = self.address(is_v6, at);
            if mask != 0 {
                rule += &format!(" {side}-ip {}", address_of(!is_v6, address));
            }
            if mask != 0 && mask != all {
                rule += &format!(" m {}", address_of(!is_v6, all & !mask));
            }
        }
        for (at, side) in SIDES.iter().enumerate() {
            self.value(Fact::Port(at)).iter().for_each(|port| rule += &format!(" {side}-port {port}"));
        }
        let other = protocol.filter(|_| of_ports.is_none());
        other.iter().for_each(|protocol| rule += &format!(" l4proto {protocol}"));
        rule + &self.vlan_text()
    }

    fn vlan_text(&self) -> String {
        self.value(Fact::Tag(0)).map(|id| format!(" vlan {id:#x} m {:#x}", !VLAN_ID)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> Vec<String> {
        let rules = text.parse::<Match>().unwrap().flow_rules();
        rules.unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn flow_rules_express_the_match() {
        for (text, expected) in [
            ("ethertype 0x88f7", &["flow-type ether proto 0x88f7"][..]),
            ("arp and vlan 100", &["flow-type ether proto 0x0806 vlan 0x64 m 0xf000"]),
            ("vlan 100", &["flow-type ether vlan 0x64 m 0xf000"]),
            ("udp dst port 53", &["flow-type udp4 dst-port 53", "flow-type udp6 dst-port 53"]),
            ("ip6 and tcp src port 80", &["flow-type tcp6 src-port 80"]),
            ("proto gre", &["flow-type ip4 l4proto 47", "flow-type ip6 l4proto 47"]),
            ("icmp", &["flow-type ip4 l4proto 1"]),
            ("src host 10.1.2.3", &["flow-type ip4 src-ip 10.1.2.3"]),
            ("dst net fd00::/8", &["flow-type ip6 dst-ip fd00:: m ff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"]),
            (
                "ip and udp port 53 and net 10.0.0.0/8 and dst host 10.1.0.9",
                &[
                    "flow-type udp4 src-ip 10.0.0.0 m 0.255.255.255 dst-ip 10.1.0.9 src-port 53",
                    "flow-type udp4 dst-ip 10.1.0.9 src-port 53",
                    "flow-type udp4 src-ip 10.0.0.0 m 0.255.255.255 dst-ip 10.1.0.9 dst-port 53",
                    "flow-type udp4 dst-ip 10.1.0.9 dst-port 53",
                ],
            ),
            ("tcp and udp or arp", &["flow-type ether proto 0x0806"]),
            ("udp and not port 53", &["flow-type udp4", "flow-type udp6"]),
            ("arp or arp", &["flow-type ether proto 0x0806"]),
            ("tcp or not all", &["flow-type tcp4", "flow-type tcp6"]),
            ("arp and not not all", &["flow-type ether proto 0x0806"]),
        ] {
            assert_eq!(rules(text), expected, "{text}");
        }
        assert_eq!(rules("dst port 53").len(), 6, "of three protocols over IPv4 and IPv6");
    }

    #[test]
    fn what_no_rule_says_is_named() {
        for (text, part) in [
            ("all", "without \"all\""),
            ("udp or all", "without \"all\""),
            ("vlan and udp", "without \"vlan\""),
            ("nd", "without \"nd\""),
            ("udp and fragment", "without \"fragment\""),
            ("udp dst portrange 1-2", "without \"udp dst portrange 1-2\""),
            ("not (arp or icmp)", "without \"not (arp or icmp)\""),
            ("udp or not tcp", "without \"not tcp\""),
            ("not not all", "without \"all\""),
            ("not all", "one that a packet can match"),
            ("tcp and not all", "one that a packet can match"),
            ("tcp and udp", "one that a packet can match"),
            ("proto 47 and port 1", "one that a packet can match"),
            ("ip and host fd00::1", "one that a packet can match"),
            ("src net 10.0.0.0/8 and src net 11.0.0.0/8", "one that a packet can match"),
        ] {
            let refused = text.parse::<Match>().unwrap().flow_rules().unwrap_err().to_string();
            assert!(refused.contains(part), "{text}: {refused}");
        }
    }

    #[test]
    fn a_match_has_at_most_as_many_rules_as_a_card_holds() {
        let some = "(port 1 or port 2 or port 3) and net 10.0.0.0/8";
        assert_eq!(rules(some).len(), 36, "of three ports, two sides of each, and three protocols");
        let many: Vec<String> = (1..=65).map(|port| format!("(ip and udp dst port {port})")).collect();
        assert_eq!(rules(&many[..64].join(" or ")).len(), 64);
        let any = vec!["(port 1 or port 2)"; 128].join(" and ");
        for text in [many.join(" or "), any] {
            let refused = text.parse::<Match>().unwrap().flow_rules().unwrap_err().to_string();
            assert!(refused.contains("at most 64 rules"), "{refused}");
        }
    }
}
