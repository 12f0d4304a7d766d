//! A rule of a card for single flows, in the words of `ethtool -N`.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// A rule of a card (ntuple filter): packets that match all of it go to one of its queues.
///
/// Made by [`Match::flow_rules`](crate::Match::flow_rules). Displayed in the words of `ethtool -N`, without
/// `ethtool -N INTERFACE` before it and `action QUEUE` behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowRule {
    /// The ID of the packet's VLAN tag.
    pub(super) vlan: Option<u16>,
    pub(super) headers: FlowHeaders,
}

/// What is asked of the headers behind the tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlowHeaders {
    /// The EtherType.
    Ether(Option<u16>),
    Ip4(IpFlow<u32>),
    Ip6(IpFlow<u128>),
}

/// Source and destination of each; an address with its mask, which is zero if any will do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct IpFlow<A> {
    pub(super) protocol: Option<u8>,
    pub(super) addresses: [(A, A); 2],
    pub(super) ports: [Option<u16>; 2],
}

/// The protocols that have ports, as `ethtool -N` calls their flows.
const TRANSPORTS: [(u8, &str); 3] = [(6, "tcp"), (17, "udp"), (132, "sctp")];

/// The bits of a tag that are the VLAN's ID.
const VLAN_ID: u16 = 0x0fff;

/// What `ethtool -N` calls flows of a protocol that has ports.
fn transport(protocol: Option<u8>) -> Option<&'static str> {
    TRANSPORTS.iter().find(|row| Some(row.0) == protocol).map(|row| row.1)
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
    write!(f, "flow-type {}{version}", of_ports.unwrap_or("ip"))?;
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
