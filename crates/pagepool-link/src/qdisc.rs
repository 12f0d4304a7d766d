//! Parses queueing disciplines.

use crate::message::{Malformed, NetlinkMessage, text, u32_at};
use crate::sys::uapi;

/// Bytes of `struct tcmsg`; all zero in a request for all queueing disciplines.
pub(crate) const HEADER: usize = 20;

/// Parses a queueing discipline, or a place for filters: its link and its kind.
pub(crate) fn parse(message: &NetlinkMessage<'_>) -> Result<(u32, String), Malformed> {
    let (fixed, attributes) = message.split(HEADER)?;
    let kind = attributes.find(uapi::TCA_KIND)?.ok_or(Malformed("a queueing discipline without a kind"))?;
    let link = u32_at(fixed, 4).ok_or(Malformed("a queueing discipline without a link"))?;
    Ok((link, text(kind)))
}
