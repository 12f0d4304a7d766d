//! Reads the headers that expressions test from a packet's bytes. The XDP program reads them equally; tests
//! compare the two.

use super::expression::{ETHER_IP, ETHER_IP6, Fact, ICMP6, TAG_TYPES};

/// VLAN tags that are skipped.
const MOST_TAGS: usize = 2;
/// IPv6 extension headers that are skipped. RFC 8200 lists six that may precede the payload, each once.
pub(crate) const MOST_EXTENSIONS: usize = 6;

/// The unit of the length field of an IPv6 extension header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extension {
    /// Units of eight bytes after the first.
    Options,
    /// Words after the first two.
    Authentication,
    /// Always eight bytes.
    Fragment,
}

/// The numbers of the extension headers that are skipped.
pub(crate) const EXTENSIONS: [(u8, Extension); 5] = [
    (0, Extension::Options),  // hop by hop
    (43, Extension::Options), // routing
    (60, Extension::Options), // for the destination
    (51, Extension::Authentication),
    (44, Extension::Fragment),
];

/// Protocols whose header begins with the ports.
pub(crate) const WITH_PORTS: [u8; 3] = [6, 17, 132]; // TCP, UDP, SCTP

/// The header fields of a packet, if present.
#[derive(Clone, Debug, Default)]
pub(crate) struct Headers {
    /// IDs of tags.
    tags: [Option<u16>; MOST_TAGS],
    ether_type: Option<u16>,
    /// Source and destination.
    pub(crate) v4: Option<[u32; 2]>,
    pub(crate) v6: Option<[u128; 2]>,
    pub(crate) protocol: Option<u8>,
    pub(crate) is_fragment: bool,
    /// Offsets of the IP header and its payload; `None` for fragments after the first.
    pub(crate) places: Option<[usize; 2]>,
    ports: Option<[u16; 2]>,
    icmp6_type: Option<u8>,
}

fn bytes<const N: usize>(frame: &[u8], at: usize) -> Option<[u8; N]> {
    frame.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn half(frame: &[u8], at: usize) -> Option<u16> {
    bytes(frame, at).map(u16::from_be_bytes)
}

impl Headers {
    pub(crate) fn read(frame: &[u8]) -> Self {
        let mut this = Self::default();
        let network = this.link(frame);
        let transport = network.and_then(|at| match this.ether_type {
            Some(ETHER_IP) => this.ip(frame, at),
            Some(ETHER_IP6) => this.ip6(frame, at),
            _ => None,
        });
        this.places = network.zip(transport).map(|(network, transport)| [network, transport]);
        if let (Some(at), Some(protocol)) = (transport, this.protocol) {
            this.transport(frame, at, protocol);
        }
        this
    }

    /// The value of a field, if the packet has it.
    pub(super) fn fact(&self, fact: Fact) -> Option<u32> {
        match fact {
            Fact::EtherType => self.ether_type.map(u32::from),
            Fact::Tag(which) => self.tags[which].map(u32::from),
            Fact::Family => self.v4.map(|_| 4).or(self.v6.map(|_| 6)),
            Fact::Protocol => self.protocol.map(u32::from),
            Fact::Fragment => Some(self.is_fragment.into()),
            Fact::Port(side) => self.ports.map(|ports| ports[side].into()),
            Fact::Icmp6 => self.icmp6_type.map(u32::from),
            Fact::Address(side, part) => {
                let word = |all: [u128; 2]| (all[side] >> (96 - 32 * part)) as u32;
                self.v4.map(|all| all[side]).or(self.v6.map(word))
            }
        }
    }

    /// Reads the tags and the EtherType. Like the next functions, it returns the offset behind them.
    fn link(&mut self, frame: &[u8]) -> Option<usize> {
        let (mut at, mut ether_type) = (14, half(frame, 12)?);
        for tag in &mut self.tags {
            if TAG_TYPES.contains(&ether_type) {
                let [control, inner] = [half(frame, at)?, half(frame, at + 2)?];
                (*tag, ether_type) = (Some(control & 0xfff), inner);
                at += 4;
            }
        }
        self.ether_type = Some(ether_type);
        Some(at)
    }

    fn ip(&mut self, frame: &[u8], at: usize) -> Option<usize> {
        let header: [u8; 20] = bytes(frame, at)?;
        let words = usize::from(header[0] & 15);
        if header[0] >> 4 != 4 || words < 5 {
            return None;
        }
        let word = |at: usize| bytes(&header, at).map(u32::from_be_bytes);
        self.v4 = Some([word(12)?, word(16)?]);
        self.protocol = Some(header[9]);
        let place = half(&header, 6)?;
        self.is_fragment = place & 0x3fff != 0; // its offset, and whether more fragments follow
        (place & 0x1fff == 0).then_some(at + 4 * words)
    }

    fn ip6(&mut self, frame: &[u8], at: usize) -> Option<usize> {
        let header: [u8; 40] = bytes(frame, at)?;
        if header[0] >> 4 != 6 {
            return None;
        }
        let address = |at: usize| bytes(&header, at).map(u128::from_be_bytes);
        self.v6 = Some([address(8)?, address(24)?]);
        let (mut at, mut next) = (at + 40, header[6]);
        let kind = |next: u8| EXTENSIONS.iter().find(|(number, _)| *number == next).map(|(_, kind)| *kind);
        for _ in 0..MOST_EXTENSIONS {
            let Some(kind) = kind(next) else { break };
            let [following, len, high, low, ..]: [u8; 8] = bytes(frame, at)?;
            next = following;
            at += match kind {
                Extension::Options => 8 * (usize::from(len) + 1),
                Extension::Authentication => 4 * (usize::from(len) + 2),
                Extension::Fragment => {
                    let place = u16::from_be_bytes([high, low]);
                    self.is_fragment |= place & 0xfff9 != 0; // offset, 2 unused bits, more flag
                    if place & 0xfff8 != 0 {
                        self.protocol = Some(next);
                        return None;
                    }
                    8
                }
            };
        }
        if kind(next).is_some() {
            return None;
        }
        self.protocol = Some(next);
        Some(at)
    }

    fn transport(&mut self, frame: &[u8], at: usize, protocol: u8) {
        if WITH_PORTS.contains(&protocol) {
            self.ports = half(frame, at).zip(half(frame, at + 2)).map(|(source, to)| [source, to]);
        }
        if protocol == ICMP6 && self.v6.is_some() {
            self.icmp6_type = frame.get(at).copied();
        }
    }
}
