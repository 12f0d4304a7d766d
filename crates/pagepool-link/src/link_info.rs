//! Reads what the kernel reports about an interface.

use std::fmt;

use crate::error::LinkError;
use crate::message::{Attributes, Malformed, NetlinkMessage, text, u16_at, u32_at, u64_at};
use crate::sys::uapi;

/// Bytes of `struct ifinfomsg`.
const HEADER: usize = 16;
/// The offsets of packets that were sent, and that were dropped instead, in `struct rtnl_link_stats64`.
const PACKETS_SENT: usize = 8;
const PACKETS_UNSENT: usize = 56;
/// Bytes of `struct rtgenmsg`, with the padding after it.
pub(crate) const NAMESPACE_HEADER: usize = 4;

/// A MAC address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mac(pub [u8; 6]);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// The operational state: `IF_OPER_UP` and others (RFC 2863).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OperState {
    /// The driver does not report it; for example, loopback.
    Unknown,
    /// Packets pass.
    Up,
    /// No packets pass.
    Down,
    /// No packets pass, because of the link below.
    LowerLayerDown,
    /// Another state, by number.
    Other(u8),
}

impl OperState {
    fn from_number(number: u8) -> Self {
        match i32::from(number) {
            uapi::IF_OPER_UNKNOWN => Self::Unknown,
            uapi::IF_OPER_DOWN => Self::Down,
            uapi::IF_OPER_LOWERLAYERDOWN => Self::LowerLayerDown,
            uapi::IF_OPER_UP => Self::Up,
            _ => Self::Other(number),
        }
    }
}

/// Where an XDP program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpMode {
    /// In the driver.
    Native,
    /// In the kernel behind the driver, on socket buffers.
    Generic,
    /// In the hardware.
    Offloaded,
}

impl fmt::Display for XdpMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Native => "native",
            Self::Generic => "generic",
            Self::Offloaded => "offloaded",
        })
    }
}

/// An XDP program that is attached to an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttachedXdp {
    /// Its id, as in `bpftool prog`.
    pub id: u32,
    /// Where it runs.
    pub mode: XdpMode,
}

/// An interface in another network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkElsewhere {
    /// This namespace's id for the other one: `link-netnsid` in `ip link`.
    pub(crate) namespace: u32,
    /// The interface's index there.
    pub(crate) index: u32,
}

/// An interface at the time of the query.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinkInfo {
    /// Its name.
    pub name: String,
    /// Its index in its namespace.
    pub index: u32,
    /// Its MTU: the largest packet without the Ethernet header.
    pub mtu: u32,
    /// Its MAC address, if it is an Ethernet interface.
    pub mac: Option<Mac>,
    /// Whether its packets begin with an Ethernet header; true for loopback.
    pub is_ethernet: bool,
    /// The kernel's receive queues for it. A driver may use fewer: see
    /// [`Ethtool::channels`](crate::Ethtool::channels).
    pub rx_queues: u32,
    /// Transmit queues.
    pub tx_queues: u32,
    /// Whether it is administratively up.
    pub is_up: bool,
    /// Whether the driver has a link. While a card restarts its link, it is `false` before `state` changes.
    pub has_carrier: bool,
    /// Whether packets pass.
    pub state: OperState,
    /// The kind of a virtual interface: `veth`, `bridge`. `None` for hardware.
    pub kind: Option<String>,
    /// The bridge or bond of which it is a port.
    pub master: Option<u32>,
    /// The interface of this namespace below it, or its peer.
    pub lower: Option<u32>,
    /// The interface of another namespace below it, or its peer.
    pub(crate) lower_elsewhere: Option<LinkElsewhere>,
    /// Attached XDP programs; driver and kernel can have one each.
    pub xdp: Vec<AttachedXdp>,
    /// How many programs on the machine have it in promiscuous mode: see [`Promiscuous`](crate::Promiscuous).
    pub promiscuity: u32,
}

impl LinkInfo {
    pub(crate) fn parse(message: &NetlinkMessage<'_>) -> Result<Self, Malformed> {
        let (fixed, attributes) = message.split(HEADER)?;
        let number = |kind| attributes.number(kind);
        let mac = attributes.find(uapi::IFLA_ADDRESS)?.and_then(|mac| mac.try_into().ok().map(Mac));
        let state = attributes.find(uapi::IFLA_OPERSTATE)?.and_then(|state| state.first().copied());
        let (namespace, lower) = (number(uapi::IFLA_LINK_NETNSID)?, number(uapi::IFLA_LINK)?);
        Ok(Self {
            name: text(attributes.find(uapi::IFLA_IFNAME)?.ok_or(Malformed("a link without a name"))?),
            index: u32_at(fixed, 4).ok_or(Malformed("a link without a number"))?,
            mtu: number(uapi::IFLA_MTU)?.unwrap_or(0),
            mac,
            is_ethernet: u16_at(fixed, 2).is_some_and(uapi::is_ethernet),
            rx_queues: number(uapi::IFLA_NUM_RX_QUEUES)?.unwrap_or(0),
            tx_queues: number(uapi::IFLA_NUM_TX_QUEUES)?.unwrap_or(0),
            is_up: u32_at(fixed, 8).is_some_and(|flags| flags & uapi::IFF_UP != 0),
            has_carrier: attributes
                .find(uapi::IFLA_CARRIER)?
                .is_some_and(|carrier| carrier.first() == Some(&1)),
            state: OperState::from_number(state.unwrap_or(0)),
            kind: kind_in(attributes)?,
            master: number(uapi::IFLA_MASTER)?,
            lower: lower.filter(|_| namespace.is_none()),
            lower_elsewhere: namespace
                .zip(lower)
                .map(|(namespace, index)| LinkElsewhere { namespace, index }),
            xdp: programs_in(attributes)?,
            promiscuity: number(uapi::IFLA_PROMISCUITY)?.unwrap_or(0),
        })
    }
}

pub(crate) fn packets_sent(message: &NetlinkMessage<'_>) -> Result<u64, Malformed> {
    counter(message, PACKETS_SENT)
}

/// Parses the number of packets that a link dropped instead of sending them.
pub(crate) fn packets_unsent(message: &NetlinkMessage<'_>) -> Result<u64, Malformed> {
    counter(message, PACKETS_UNSENT)
}

fn counter(message: &NetlinkMessage<'_>, at: usize) -> Result<u64, Malformed> {
    let counters = message.split(HEADER)?.1.find(uapi::IFLA_STATS64)?;
    counters.and_then(|counters| u64_at(counters, at)).ok_or(Malformed("a link without counters"))
}

/// Parses a namespace's id for another; `None` if it has none.
pub(crate) fn namespace_number(message: &NetlinkMessage<'_>) -> Result<Option<u32>, Malformed> {
    let number = message.split(NAMESPACE_HEADER)?.1.number(uapi::NETNSA_NSID)?;
    Ok(number.filter(|number| number.cast_signed() >= 0)) // -1: none
}

fn kind_in(attributes: Attributes<'_>) -> Result<Option<String>, Malformed> {
    let Some(info) = attributes.find(uapi::IFLA_LINKINFO)? else { return Ok(None) };
    Ok(Attributes(info).find(uapi::IFLA_INFO_KIND)?.map(text))
}

fn programs_in(attributes: Attributes<'_>) -> Result<Vec<AttachedXdp>, Malformed> {
    let Some(xdp) = attributes.find(uapi::IFLA_XDP)? else { return Ok(Vec::new()) };
    let modes = [
        (uapi::IFLA_XDP_DRV_PROG_ID, XdpMode::Native),
        (uapi::IFLA_XDP_SKB_PROG_ID, XdpMode::Generic),
        (uapi::IFLA_XDP_HW_PROG_ID, XdpMode::Offloaded),
    ];
    let one = |(kind, mode)| {
        let id = Attributes(xdp).number(kind)?;
        Ok(id.filter(|&id| id != 0).map(|id| AttachedXdp { id, mode }))
    };
    modes.into_iter().map(one).filter_map(Result::transpose).collect()
}

/// The fixed part of a request about a link. `change` selects the bits of `flags` that are set.
pub(crate) fn header(index: u32, flags: u32, change: u32) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header[8..12].copy_from_slice(&flags.to_ne_bytes());
    header[12..].copy_from_slice(&change.to_ne_bytes());
    header
}

/// Most bytes of a name.
const LONGEST: usize = 15;
/// Most bytes of an alternative name (ALTIFNAMSIZ).
const LONGEST_ALTERNATIVE: usize = 127;

/// Checks that the kernel would accept an interface name (net/core/dev.c:dev_valid_name, v7.3).
pub(crate) fn check_name(name: &str) -> Result<(), LinkError> {
    let odd = |c: char| c == '/' || c == ':' || c.is_ascii_whitespace() || c == '\0' || c == '%';
    let is_valid = !is_long(name) && !["", ".", ".."].contains(&name) && !name.contains(odd);
    let range = "1 to 15 bytes without slash, colon, percent sign and blanks, not \".\" or \"..\"";
    if is_valid { Ok(()) } else { Err(bad_name(name, range)) }
}

/// Checks that an interface may have this alternative name (`ip link property add`), or name.
pub(crate) fn check_alternative_name(name: &str) -> Result<(), LinkError> {
    let is_valid = (1..=LONGEST_ALTERNATIVE).contains(&name.len()) && !name.contains('\0');
    if is_valid { Ok(()) } else { Err(bad_name(name, "1 to 127 bytes without a zero byte")) }
}

fn bad_name(name: &str, range: &'static str) -> LinkError {
    LinkError::OutOfRange { field: "the name of an interface", value: format!("{name:?}"), range }
}

/// Whether only an alternative name can be this long.
pub(crate) fn is_long(name: &str) -> bool {
    name.len() > LONGEST
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{NetlinkMessages, Request, nested};

    #[test]
    fn everything_that_is_said_is_read() {
        let mut fixed = header(5, uapi::IFF_UP, 0);
        fixed[2] = 1; // ARPHRD_ETHER
        let mut request = Request::new(uapi::RTM_NEWLINK, 0, &fixed);
        request
            .text(uapi::IFLA_IFNAME, "eth0")
            .number(uapi::IFLA_MTU, 9000)
            .attribute(uapi::IFLA_ADDRESS, &[2; 6]);
        request
            .number(uapi::IFLA_NUM_RX_QUEUES, 3)
            .number(uapi::IFLA_NUM_TX_QUEUES, 4)
            .attribute(uapi::IFLA_OPERSTATE, &[6])
            .attribute(uapi::IFLA_CARRIER, &[1]);
        request.number(uapi::IFLA_PROMISCUITY, 2);
        request.number(uapi::IFLA_LINK, 9).number(uapi::IFLA_MASTER, 8);
        request.nest(nested(uapi::IFLA_LINKINFO), |info| {
            info.text(uapi::IFLA_INFO_KIND, "veth");
        });
        request.nest(nested(uapi::IFLA_XDP), |xdp| {
            xdp.number(uapi::IFLA_XDP_DRV_PROG_ID, 77).number(uapi::IFLA_XDP_SKB_PROG_ID, 0);
        });
        let bytes = request.numbered(1);
        let link = LinkInfo::parse(&NetlinkMessages(bytes).next().unwrap().unwrap()).unwrap();
        let expected = LinkInfo {
            name: "eth0".into(),
            index: 5,
            mtu: 9000,
            mac: Some(Mac([2; 6])),
            is_ethernet: true,
            rx_queues: 3,
            tx_queues: 4,
            is_up: true,
            has_carrier: true,
            state: OperState::Up,
            kind: Some("veth".into()),
            master: Some(8),
            lower: Some(9),
            lower_elsewhere: None,
            xdp: vec![AttachedXdp { id: 77, mode: XdpMode::Native }],
            promiscuity: 2,
        };
        assert_eq!(link, expected);
    }

    #[test]
    fn an_xdp_program_is_parsed_and_truncated_answers_have_none() {
        let mut request = Request::new(uapi::RTM_NEWLINK, 0, &header(5, 0, 0));
        request.text(uapi::IFLA_IFNAME, "veth0").nest(nested(uapi::IFLA_XDP), |xdp| {
            xdp.attribute(2, &[1]).number(4, 77).number(uapi::IFLA_XDP_DRV_PROG_ID, 77);
        });
        let bytes = request.numbered(1);
        let message = NetlinkMessages(bytes).next().unwrap().unwrap();
        assert_eq!(LinkInfo::parse(&message).unwrap().xdp, [AttachedXdp { id: 77, mode: XdpMode::Native }]);
        for len in 0..message.payload.len() {
            let cut = NetlinkMessage { payload: &message.payload[..len], ..message };
            assert!(LinkInfo::parse(&cut).map_or(true, |link| link.xdp.is_empty()), "cut at {len}");
        }
    }

    #[test]
    fn a_peer_in_another_namespace_is_no_link_of_this_one() {
        let mut request = Request::new(uapi::RTM_NEWLINK, 0, &header(5, 0, 0));
        request.text(uapi::IFLA_IFNAME, "v").number(uapi::IFLA_LINK, 9).number(uapi::IFLA_LINK_NETNSID, 0);
        let bytes = request.numbered(1);
        let link = LinkInfo::parse(&NetlinkMessages(bytes).next().unwrap().unwrap()).unwrap();
        assert_eq!(link.lower, None);
        assert_eq!(link.lower_elsewhere, Some(LinkElsewhere { namespace: 0, index: 9 }));
    }

    #[test]
    fn counters_of_packets_are_found() {
        let mut answer = Request::new(uapi::RTM_NEWLINK, 0, &header(5, 0, 0));
        answer
            .attribute(uapi::IFLA_STATS64, &[7u64, 1 << 40, 2, 3, 4, 5, 6, 9].map(u64::to_ne_bytes).concat());
        let message = NetlinkMessages(answer.numbered(1)).next().unwrap().unwrap();
        assert_eq!((packets_sent(&message), packets_unsent(&message)), (Ok(1 << 40), Ok(9)));
        let mut answer = Request::new(uapi::RTM_NEWLINK, 0, &header(5, 0, 0));
        let message = NetlinkMessages(answer.numbered(1)).next().unwrap().unwrap();
        packets_sent(&message).unwrap_err();
    }

    #[test]
    fn a_namespace_has_a_number_or_none() {
        for (number, expected) in [(0u32, Some(0)), (7, Some(7)), (u32::MAX, None)] {
            let mut answer = Request::new(uapi::RTM_NEWNSID, 0, &[0; NAMESPACE_HEADER]);
            answer.number(uapi::NETNSA_NSID, number);
            let message = NetlinkMessages(answer.numbered(1)).next().unwrap().unwrap();
            assert_eq!(namespace_number(&message), Ok(expected));
        }
    }

    #[test]
    fn names_are_checked() {
        for good in ["a", "eth0.100", "fifteen-letters"] {
            check_name(good).unwrap();
        }
        for bad in ["", ".", "..", "a/b", "a b", "a:1", "pp%d", "sixteen-letters.", "a\0"] {
            let error = check_name(bad).unwrap_err().to_string();
            assert!(error.contains(&format!("{bad:?}")), "{error}");
        }
        let long = "n".repeat(LONGEST_ALTERNATIVE);
        for good in ["a", "rack 7/uplink:0", &long] {
            check_alternative_name(good).unwrap();
        }
        for bad in ["", "a\0", &(long.clone() + "n")] {
            check_alternative_name(bad).unwrap_err();
        }
        assert!(is_long("sixteen-letters.") && !is_long("fifteen-letters"));
    }
}
