//! Which packets an XDP program takes: an expression over their headers.
//!
//! What   a [`Match`] is read from text (`parser`) into a tree (`expression`). `xsk/bpf/steer` translates the
//!        tree to instructions of BPF; `evaluation` says the same of what `headers` reads from bytes in this
//!        process, for tests and users. `flow_rules` gives rules for a card's hardware that take the same, or
//!        more; `text` names a part in errors.
//! Who    any thread, when programs are loaded; never per packet.

mod evaluation;
mod expression;
pub(crate) mod flow_rule;
mod flow_rules;
mod headers;
mod parser;
mod text;

use std::fmt;
use std::str::FromStr;

pub(crate) use expression::{
    Direction, ETHER_IP, ETHER_IP6, Expression, ICMP6, ND_TYPES, Prefix, TAG_TYPES, Test,
};
pub(crate) use headers::{EXTENSIONS, Extension, Headers, MOST_EXTENSIONS, WITH_PORTS};
use pagepool::Error;

/// Which packets go to AF_XDP sockets; all others go to the kernel's stack.
///
/// It is read from a text in the words of pcap-filter(7), as far as that has them:
///
/// | text | packets |
/// |---|---|
/// | `all` | every one; the default |
/// | `ethertype N`, `ether proto N` | of this EtherType (behind VLAN tags): a number, `ip`, `ip6` or `arp` |
/// | `ip`, `ip6`, `arp` | of this EtherType |
/// | `vlan`, `vlan ID` | with a VLAN tag; with one of this ID |
/// | `proto P`, `ip proto P`, `ip6 proto P` | of this IP protocol: a number, or a name such as `gre` |
/// | `tcp`, `udp`, `sctp`, `icmp`, `icmp6` | of this IP protocol |
/// | `nd` | neighbour discovery: ICMPv6 of the types 133 to 137 |
/// | `port N`, `portrange N-M` | TCP, UDP and SCTP from or to this port, or one of the range |
/// | `host A`, `net A/LENGTH` | IPv4 or IPv6 from or to this address, or one with this prefix |
/// | `fragment` | a part of an IP packet: the first, or a later one |
///
/// `src` or `dst` before `port`, `portrange`, `host` and `net` asks for that side alone. `ip` and `ip6` may
/// stand before any of the four, and `tcp`, `udp` and `sctp` before the first two: `udp dst port 53`. Parts
/// are joined by `and`, `or`, `not` (`&&`, `||`, `!`) and parentheses. `not` binds closest. `and` behind an
/// `or` requires parentheses: pcap-filter reads it from left to right, and most languages do not.
///
/// # What is read of a packet
///
/// A part is false of a packet that does not have what it asks for, and `not` of it is true: `not port 53`
/// includes ARP. Otherwise:
///
/// * Up to two VLAN tags (0x8100, 0x88a8, 0x9100) are skipped; every part looks behind them. `not vlan`
///   excludes packets with tags. A tag that the card or the sender's kernel put aside is not in the packet.
/// * IPv4 options are skipped, and up to six IPv6 extension headers: hop-by-hop options, routing,
///   destination options, authentication, fragment. `proto` means what is behind them. With more of them the
///   protocol and the ports are unknown.
/// * A later fragment has addresses and a protocol, and no ports.
/// * A packet that ends before a header is complete has nothing of that header. Lengths that headers tell,
///   and checksums, are not looked at; of a packet of several buffers only the first one is.
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
    /// Whether a packet goes to a socket, if these are the bytes of its first buffer. The XDP program says
    /// the same of each packet. For tests of an expression; see the type for an example.
    pub fn matches(&self, frame: &[u8]) -> bool {
        self.expression.holds(&Headers::read(frame))
    }

    pub(crate) fn expression(&self) -> &Expression {
        &self.expression
    }
}

impl Default for Match {
    /// Every packet.
    fn default() -> Self {
        Self { text: "all".into(), expression: Expression::All }
    }
}

impl FromStr for Match {
    type Err = Error;

    /// Reads an expression of up to 256 parts. An error names the word that is refused, its column, and what
    /// may stand there.
    fn from_str(text: &str) -> Result<Self, Error> {
        Ok(Self { text: text.trim().into(), expression: parser::parse(text)? })
    }
}

/// As it was written.
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
