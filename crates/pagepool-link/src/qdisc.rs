//! Parses queueing disciplines.

use crate::message::{Malformed, NetlinkMessage, text, u32_at};
use crate::sys::uapi;

/// Bytes of `struct tcmsg`; all zero in a request for all queueing disciplines.
pub(crate) const HEADER: usize = 20;

/// The parameters of a token bucket: a queueing discipline that limits a link's rate (`tbf`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    /// Rate in bytes per second: at least 1.
    pub rate: u32,
    /// Bytes sent at once: at least the link's longest packet.
    pub burst: u32,
    /// Bytes of packets that wait in it. Packets that arrive when it is full are dropped.
    pub limit: u32,
}

impl TokenBucket {
    /// `struct tc_tbf_qopt`.
    pub(crate) fn to_bytes(self) -> [u8; 36] {
        let mut bytes = [0; 36];
        bytes[1] = uapi::TC_LINKLAYER_ETHERNET;
        bytes[8..12].copy_from_slice(&self.rate.to_ne_bytes());
        bytes[24..28].copy_from_slice(&self.limit.to_ne_bytes());
        bytes
    }
}

/// The fixed part of a message about the root queueing discipline of a link.
pub(crate) fn root_of(link: u32) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    bytes[4..8].copy_from_slice(&link.to_ne_bytes());
    bytes[12..16].copy_from_slice(&uapi::TC_H_ROOT.to_ne_bytes());
    bytes
}

/// A queueing discipline of a link, or a place for filters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Qdisc {
    pub(crate) link: u32,
    pub(crate) kind: String,
}

impl Qdisc {
    pub(crate) fn parse(message: &NetlinkMessage<'_>) -> Result<Self, Malformed> {
        let (fixed, attributes) = message.split(HEADER)?;
        let kind =
            attributes.find(uapi::TCA_KIND)?.ok_or(Malformed("a queueing discipline without a kind"))?;
        let link = u32_at(fixed, 4).ok_or(Malformed("a queueing discipline without a link"))?;
        Ok(Self { link, kind: text(kind) })
    }
}
