//! A rule of a card for single flows, in the syntax of `ethtool -N`.

use std::fmt;

use super::expression::address_of;

/// A rule of a card (ntuple filter): packets that match all of it go to one of its queues.
///
/// [`Match::flow_rules`](crate::Match::flow_rules) makes it. `Display` writes the syntax of `ethtool -N`,
/// without the leading `ethtool -N INTERFACE` and the trailing `action QUEUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowRule {
    pub(super) vlan: Option<u16>,
    pub(super) headers: FlowHeaders,
}

/// The required headers behind the tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlowHeaders {
    /// The EtherType.
    Ether(Option<u16>),
    Ip4(IpFlow),
    Ip6(IpFlow),
}

/// Source and destination of addresses and ports. A mask of zero allows any address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct IpFlow {
    pub(super) protocol: Option<u8>,
    pub(super) addresses: [(u128, u128); 2],
    pub(super) ports: [Option<u16>; 2],
}

/// The protocols with ports, and their flow names in `ethtool -N`.
const TRANSPORTS: [(u8, &str); 3] = [(6, "tcp"), (17, "udp"), (132, "sctp")];

const VLAN_ID: u16 = 0x0fff;

fn transport(protocol: Option<u8>) -> Option<&'static str> {
    TRANSPORTS.iter().find(|row| Some(row.0) == protocol).map(|row| row.1)
}

/// The syntax of `ethtool -N`, whose masks set the bits to ignore.
impl fmt::Display for FlowRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.headers {
            FlowHeaders::Ether(ether_type) => {
                f.write_str("flow-type ether")?;
                ether_type.iter().try_for_each(|of| write!(f, " proto {of:#06x}"))?;
            }
            FlowHeaders::Ip4(flow) => write_flow(f, true, flow)?,
            FlowHeaders::Ip6(flow) => write_flow(f, false, flow)?,
        }
        self.vlan.iter().try_for_each(|id| write!(f, " vlan {id:#x} m {:#x}", !VLAN_ID))
    }
}

/// Writes a flow. `shown` returns an address and, if needed, its mask.
fn write_flow(f: &mut fmt::Formatter<'_>, is_v4: bool, flow: &IpFlow) -> fmt::Result {
    let (of_ports, all) = (transport(flow.protocol), if is_v4 { u32::MAX.into() } else { u128::MAX });
    write!(f, "flow-type {}{}", of_ports.unwrap_or("ip"), if is_v4 { 4 } else { 6 })?;
    for (side, (address, mask)) in ["src", "dst"].iter().zip(flow.addresses) {
        if mask != 0 {
            write!(f, " {side}-ip {}", address_of(is_v4, address))?;
        }
        if mask != 0 && mask != all {
            write!(f, " m {}", address_of(is_v4, all & !mask))?;
        }
    }
    for (side, port) in ["src", "dst"].iter().zip(flow.ports) {
        port.iter().try_for_each(|port| write!(f, " {side}-port {port}"))?;
    }
    let other = flow.protocol.filter(|_| of_ports.is_none());
    other.iter().try_for_each(|protocol| write!(f, " l4proto {protocol}"))
}
