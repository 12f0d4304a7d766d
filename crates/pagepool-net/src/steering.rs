//! Selects packets for an XDP program: an expression over their headers.
//!
//! What   `parser` reads a [`Match`] from text into a tree (`expression`). `xsk/bpf/steer` translates the
//!        tree to BPF instructions. `holds` decides the same in this process, from bytes read by `headers`,
//!        for tests and users. `flow_rules` makes rules for a card's hardware that take these packets, or
//!        more.
//! Who    any thread, when programs are loaded; never per packet.

mod expression;
mod flow_rules;
mod headers;
mod parser;

use std::fmt;
use std::str::FromStr;

pub(crate) use expression::{Comparison, ETHER_IP, ETHER_IP6, Expression, Fact, ICMP6, TAG_TYPES};
pub(crate) use headers::{EXTENSIONS, Extension, Headers, MOST_EXTENSIONS, WITH_PORTS};
use pagepool::Error;

/// Selects the packets that go to AF_XDP sockets; all others go to the kernel's stack.
///
/// It is parsed from a text in the language of pcap-filter(7), with a few additions:
///
/// | text | packets |
/// |---|---|
/// | `all` | every packet; the default |
/// | `ethertype N`, `ether proto N` | with this EtherType (behind VLAN tags): a number, `ip`, `ip6`, `arp` |
/// | `ip`, `ip6`, `arp` | with this EtherType |
/// | `vlan`, `vlan ID` | with a VLAN tag; with a tag of this ID |
/// | `proto P`, `ip proto P`, `ip6 proto P` | with this IP protocol: a number, or a name such as `gre` |
/// | `tcp`, `udp`, `sctp`, `icmp`, `icmp6` | with this IP protocol |
/// | `nd` | IPv6 neighbour discovery: ICMPv6 types 133 to 137 |
/// | `port N`, `portrange N-M` | TCP, UDP and SCTP, from or to this port or range |
/// | `host A`, `net A/LENGTH` | IPv4 or IPv6, from or to this address or prefix |
/// | `fragment` | IP fragments, the first and later ones |
///
/// `src` or `dst` before `port`, `portrange`, `host` or `net` selects one side. `ip` and `ip6` may precede
/// those four, and `tcp`, `udp` and `sctp` the first two: `udp dst port 53`. `and`, `or`, `not` (`&&`, `||`,
/// `!`) and parentheses join parts. `not` binds closest. `and` after an `or` requires parentheses:
/// pcap-filter reads it from left to right, most languages do not.
///
/// # How packets are parsed
///
/// A part is false for a packet without the header it needs, and `not` of it is true: `not port 53` includes
/// ARP. Otherwise:
///
/// * Up to two VLAN tags (0x8100, 0x88a8, 0x9100) are skipped; every part looks behind them. `not vlan`
///   excludes packets with tags. A tag that the card or the sender's kernel removed is not in the packet.
/// * IPv4 options are skipped, and up to six IPv6 extension headers: hop-by-hop options, routing, destination
///   options, authentication, fragment. `proto` is the protocol behind them. With more than six, protocol and
///   ports are unknown.
/// * A later fragment has addresses and a protocol, but no ports.
/// * If a packet ends before a header is complete, no field of that header exists. Length fields and
///   checksums are not checked. If a packet spans several buffers, only the first is parsed.
///
/// ```
/// use pagepool_net::Match;
///
/// let ours: Match = "udp dst port 4789 and net 10.0.0.0/8 or ethertype 0x88b5".parse()?;
/// let mut frame = [0u8; 60];
/// frame[12..14].copy_from_slice(&[0x88, 0xb5]);
/// assert!(ours.matches(&frame));
/// frame[12..14].copy_from_slice(&[0x08, 0x06]); // ARP
/// assert!(!ours.matches(&frame));
///
/// let refused = "udp prot 53".parse::<Match>().unwrap_err().to_string();
/// assert!(refused.contains(r#""prot" at column 5"#), "{refused}");
/// # Ok::<(), pagepool::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Match {
    text: Box<str>,
    expression: Expression,
}

impl Match {
    /// Whether a packet with these bytes in its first buffer goes to a socket. The XDP program decides
    /// equally. For tests of an expression; see the type for an example.
    pub fn matches(&self, frame: &[u8]) -> bool {
        let headers = Headers::read(frame);
        self.expression.holds(&|fact| headers.fact(fact))
    }

    pub(crate) fn expression(&self) -> &Expression {
        &self.expression
    }
}

impl Default for Match {
    /// Selects every packet.
    fn default() -> Self {
        Self { text: "all".into(), expression: Expression::Always(true) }
    }
}

impl FromStr for Match {
    type Err = Error;

    /// Parses an expression of up to 256 parts. An error names the refused word, its column, and what may be
    /// there.
    fn from_str(text: &str) -> Result<Self, Error> {
        Ok(Self { text: text.trim().into(), expression: parser::parse(text)? })
    }
}

/// The text as it was parsed.
impl fmt::Display for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Match({:?})", self.text)
    }
}
