//! A rule of a card for single flows, as ethtool's interface has it.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// A rule of a card (ntuple filter): packets that have all of this go to one of its queues.
///
/// [`Match::flow_rules`](crate::Match::flow_rules) makes them, and
/// [`HeldFlowRules`](crate::link::HeldFlowRules) gives them to a card. Shown in the words of `ethtool -N`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowRule {
    /// What of a match it stands for.
    pub(crate) part: String,
    /// The ID of the packet's VLAN tag.
    pub(crate) vlan: Option<u16>,
    pub(crate) headers: FlowHeaders,
}

impl FlowRule {
    /// Whether a card sees no difference.
    pub(crate) fn takes_the_same(&self, other: &Self) -> bool {
        (self.vlan, self.headers) == (other.vlan, other.headers)
    }
}

/// What is asked of the headers behind the tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlowHeaders {
    /// The EtherType.
    Ether(Option<u16>),
    Ip4(IpFlow<u32>),
    Ip6(IpFlow<u128>),
}

/// Source and destination of each; an address with its mask, which is zero if any will do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct IpFlow<A> {
    pub(crate) protocol: Option<u8>,
    pub(crate) addresses: [(A, A); 2],
    pub(crate) ports: [Option<u16>; 2],
}

/// Bytes of the fields that depend on the type, and of those that do not behind them: `union
/// ethtool_flow_union` and `struct ethtool_flow_ext`.
pub(crate) const FLOW_BYTES: usize = 52 + 20;
/// Where `vlan_tci` is in them, and its bits of the ID.
const VLAN_TCI: usize = 52 + 10;
const VLAN_ID: u16 = 0x0fff;

/// Types of flows: of TCP, UDP and SCTP over IPv4, of any protocol, and of Ethernet (include/uapi/linux/
/// ethtool.h, v7.3).
const TRANSPORTS: [(u8, &str, u32, u32); 3] =
    [(6, "tcp", 0x01, 0x05), (17, "udp", 0x02, 0x06), (132, "sctp", 0x03, 0x07)];
const IPV4_USER_FLOW: u32 = 0x0d;
const IPV6_USER_FLOW: u32 = 0x0e;
const ETHER_FLOW: u32 = 0x12;
/// The fields behind those of the type count.
const FLOW_EXT: u32 = 0x8000_0000;
/// `ETH_RX_NFC_IP4`, in the field `ip_ver` of `IPV4_USER_FLOW`.
const IP4: u8 = 1;

/// A rule as the kernel takes it: the fields, and which of their bits count, in network byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlowSpec {
    pub(crate) flow_type: u32,
    pub(crate) fields: [u8; FLOW_BYTES],
    pub(crate) mask: [u8; FLOW_BYTES],
}

impl FlowSpec {
    fn of_type(flow_type: u32) -> Self {
        Self { flow_type, fields: [0; FLOW_BYTES], mask: [0; FLOW_BYTES] }
    }

    fn put(&mut self, at: usize, field: &[u8], mask: &[u8]) {
        self.fields[at..][..field.len()].copy_from_slice(field);
        self.mask[at..][..mask.len()].copy_from_slice(mask);
    }

    fn put_ports(&mut self, at: usize, ports: [Option<u16>; 2]) {
        for (side, port) in ports.into_iter().enumerate() {
            port.iter().for_each(|port| self.put(at + 2 * side, &port.to_be_bytes(), &[0xff; 2]));
        }
    }
}

impl FlowRule {
    pub(crate) fn spec(&self) -> FlowSpec {
        let mut spec = match &self.headers {
            FlowHeaders::Ether(ether_type) => ether(*ether_type),
            FlowHeaders::Ip4(flow) => ip4(flow),
            FlowHeaders::Ip6(flow) => ip6(flow),
        };
        if let Some(id) = self.vlan {
            spec.flow_type |= FLOW_EXT;
            spec.put(VLAN_TCI, &id.to_be_bytes(), &VLAN_ID.to_be_bytes());
        }
        spec
    }
}

fn ether(ether_type: Option<u16>) -> FlowSpec {
    let mut spec = FlowSpec::of_type(ETHER_FLOW);
    ether_type.iter().for_each(|of| spec.put(12, &of.to_be_bytes(), &[0xff; 2]));
    spec
}

/// The row of a protocol that has ports.
fn transport(protocol: Option<u8>) -> Option<(&'static str, u32, u32)> {
    let row = TRANSPORTS.iter().find(|row| Some(row.0) == protocol);
    row.map(|&(_, name, over_4, over_6)| (name, over_4, over_6))
}

fn ip4(flow: &IpFlow<u32>) -> FlowSpec {
    let of_ports = transport(flow.protocol);
    let mut spec = FlowSpec::of_type(of_ports.map_or(IPV4_USER_FLOW, |(_, over_4, _)| over_4));
    for (side, (address, mask)) in flow.addresses.into_iter().enumerate() {
        spec.put(4 * side, &address.to_be_bytes(), &mask.to_be_bytes());
    }
    match (of_ports, flow.protocol) {
        (Some(_), _) => spec.put_ports(8, flow.ports),
        (None, protocol) => {
            spec.put(13, &[IP4], &[]);
            protocol.iter().for_each(|&protocol| spec.put(14, &[protocol], &[0xff]));
        }
    }
    spec
}

fn ip6(flow: &IpFlow<u128>) -> FlowSpec {
    let of_ports = transport(flow.protocol);
    let mut spec = FlowSpec::of_type(of_ports.map_or(IPV6_USER_FLOW, |(_, _, over_6)| over_6));
    for (side, (address, mask)) in flow.addresses.into_iter().enumerate() {
        spec.put(16 * side, &address.to_be_bytes(), &mask.to_be_bytes());
    }
    match (of_ports, flow.protocol) {
        (Some(_), _) => spec.put_ports(32, flow.ports),
        (None, protocol) => protocol.iter().for_each(|&protocol| spec.put(37, &[protocol], &[0xff])),
    }
    spec
}

/// In the words of `ethtool -N`, whose masks have the bits set that do not count.
impl fmt::Display for FlowRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.headers {
            FlowHeaders::Ether(ether_type) => {
                f.write_str("flow-type ether")?;
                ether_type.iter().try_for_each(|of| write!(f, " proto {of:#06x}"))?;
            }
            FlowHeaders::Ip4(flow) => {
                write_flow(f, "4", flow, |(address, mask)| {
                    (mask != 0)
                        .then(|| (Ipv4Addr::from(address), (!mask != 0).then(|| Ipv4Addr::from(!mask))))
                })?;
            }
            FlowHeaders::Ip6(flow) => {
                write_flow(f, "6", flow, |(address, mask)| {
                    (mask != 0)
                        .then(|| (Ipv6Addr::from(address), (!mask != 0).then(|| Ipv6Addr::from(!mask))))
                })?;
            }
        }
        self.vlan.iter().try_for_each(|id| write!(f, " vlan {id:#x} m {:#x}", !VLAN_ID))
    }
}

/// An address and a mask, if it has one, by `shown`.
fn write_flow<A: Copy, S: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    version: &str,
    flow: &IpFlow<A>,
    shown: impl Fn((A, A)) -> Option<(S, Option<S>)>,
) -> fmt::Result {
    let of_ports = transport(flow.protocol);
    write!(f, "flow-type {}{version}", of_ports.map_or("ip", |(name, ..)| name))?;
    for (side, address) in ["src", "dst"].iter().zip(flow.addresses) {
        if let Some((address, mask)) = shown(address) {
            write!(f, " {side}-ip {address}")?;
            mask.iter().try_for_each(|mask| write!(f, " m {mask}"))?;
        }
    }
    for (side, port) in ["src", "dst"].iter().zip(flow.ports) {
        port.iter().try_for_each(|port| write!(f, " {side}-port {port}"))?;
    }
    let other = flow.protocol.filter(|_| of_ports.is_none());
    other.iter().try_for_each(|protocol| write!(f, " l4proto {protocol}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(headers: FlowHeaders) -> FlowSpec {
        FlowRule { part: String::new(), vlan: None, headers }.spec()
    }

    /// The bytes that count, with their places, as offsets in `struct ethtool_rx_flow_spec` from `h_u`.
    fn counted(spec: &FlowSpec) -> Vec<(usize, u8, u8)> {
        let all = spec.fields.iter().zip(&spec.mask).enumerate();
        all.filter(|(_, bytes)| *bytes != (&0, &0)).map(|(at, (&field, &mask))| (at, field, mask)).collect()
    }

    #[test]
    fn an_ethertype_is_behind_the_addresses_of_ethernet() {
        let mut rule =
            FlowRule { part: String::new(), vlan: None, headers: FlowHeaders::Ether(Some(0x88f7)) };
        assert_eq!(rule.spec().flow_type, 0x12);
        assert_eq!(counted(&rule.spec()), [(12, 0x88, 0xff), (13, 0xf7, 0xff)]);
        rule.vlan = Some(0x123);
        assert_eq!(rule.spec().flow_type, 0x8000_0012);
        assert_eq!(counted(&rule.spec())[2..], [(62, 0x01, 0x0f), (63, 0x23, 0xff)]);
    }

    #[test]
    fn addresses_and_ports_of_ipv4_are_in_network_byte_order() {
        let addresses = [(0x0a00_0000, 0xff00_0000), (0, 0)];
        let udp = IpFlow { protocol: Some(17), addresses, ports: [None, Some(4789)] };
        let of_udp = spec(FlowHeaders::Ip4(udp));
        assert_eq!(of_udp.flow_type, 0x02);
        assert_eq!(counted(&of_udp), [(0, 10, 0xff), (10, 0x12, 0xff), (11, 0xb5, 0xff)]);
        let gre = spec(FlowHeaders::Ip4(IpFlow { protocol: Some(47), ports: [None; 2], ..udp }));
        assert_eq!(gre.flow_type, 0x0d);
        assert_eq!(counted(&gre), [(0, 10, 0xff), (13, 1, 0), (14, 47, 0xff)]);
    }

    #[test]
    fn those_of_ipv6_are_behind_longer_addresses() {
        let addresses = [(0, 0), (0xfd << 120, 0xff << 120)];
        let tcp = IpFlow { protocol: Some(6), addresses, ports: [Some(80), None] };
        let of_tcp = spec(FlowHeaders::Ip6(tcp));
        assert_eq!(of_tcp.flow_type, 0x05);
        assert_eq!(counted(&of_tcp), [(16, 0xfd, 0xff), (32, 0, 0xff), (33, 80, 0xff)]);
        let icmp = spec(FlowHeaders::Ip6(IpFlow { protocol: Some(58), ports: [None; 2], ..tcp }));
        assert_eq!((icmp.flow_type, counted(&icmp)), (0x0e, vec![(16, 0xfd, 0xff), (37, 58, 0xff)]));
    }
}
