//! Netlink messages: built for the kernel, and parsed without trust.
//!
//! All numbers are in the machine's byte order. Parsing is total: any bytes give messages, attributes, or
//! `Malformed`. Every loop ends, because each step consumes at least a header.

use crate::error::LinkError;
use crate::sys::uapi::{NLA_ALIGNTO, NLA_F_NESTED, NLA_TYPE_MASK, NLM_F_REQUEST};

/// Bytes of `struct nlmsghdr` and of `struct nlattr`.
const MESSAGE_HEADER: usize = 16;
const ATTRIBUTE_HEADER: usize = 4;

/// The bytes do not follow the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

impl From<Malformed> for LinkError {
    fn from(Malformed(what): Malformed) -> Self {
        Self::Malformed { what }
    }
}

fn aligned(len: usize) -> usize {
    len.next_multiple_of(NLA_ALIGNTO)
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().copied().map(u16::from_ne_bytes)
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(u32::from_ne_bytes)
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().copied().map(u64::from_ne_bytes)
}

/// Text up to the first zero.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(text_bytes(bytes)).into_owned()
}

/// The bytes up to the first zero.
pub(crate) fn text_bytes(bytes: &[u8]) -> &[u8] {
    bytes.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// A request that is being built.
#[derive(Debug)]
pub struct Request {
    bytes: Vec<u8>,
}

impl Request {
    /// Begins a request with the fixed part of its kind.
    pub fn new(kind: u16, flags: u16, fixed: &[u8]) -> Self {
        let mut bytes = vec![0; MESSAGE_HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(flags | NLM_F_REQUEST).to_ne_bytes());
        bytes.extend_from_slice(fixed);
        Self { bytes }
    }

    /// Adds an attribute. None of our values exceeds the longest possible attribute.
    pub fn attribute(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        self.nest(kind, |inner| {
            inner.bytes.extend_from_slice(value);
        })
    }

    pub fn number(&mut self, kind: u16, value: u32) -> &mut Self {
        self.attribute(kind, &value.to_ne_bytes())
    }

    /// Adds text, with a zero after it.
    pub fn text(&mut self, kind: u16, value: &str) -> &mut Self {
        self.nest(kind, |inner| {
            inner.bytes.extend_from_slice(value.as_bytes());
            inner.bytes.push(0);
        })
    }

    /// Adds an attribute that contains what `fill` adds.
    pub fn nest(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) -> &mut Self {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; ATTRIBUTE_HEADER]);
        fill(self);
        let len =
            u16::try_from(self.bytes.len() - start).expect("requests of ours are a few hundred bytes long");
        self.bytes[start..start + 2].copy_from_slice(&len.to_ne_bytes());
        self.bytes[start + 2..start + 4].copy_from_slice(&kind.to_ne_bytes());
        self.bytes.resize(aligned(self.bytes.len()), 0);
        self
    }

    /// Adds bytes without an attribute header: the fixed part inside a nest.
    pub fn fixed(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// The bytes to send, with this sequence number.
    pub fn numbered(&mut self, sequence: u32) -> &[u8] {
        let len = u32::try_from(self.bytes.len()).expect("requests of ours are a few hundred bytes long");
        self.bytes[..4].copy_from_slice(&len.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        &self.bytes
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NetlinkMessage<'a> {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) sequence: u32,
    pub(crate) payload: &'a [u8],
}

impl<'a> NetlinkMessage<'a> {
    /// The fixed part of `fixed` bytes, and the attributes after it.
    pub(crate) fn split(&self, fixed: usize) -> Result<(&'a [u8], Attributes<'a>), Malformed> {
        let (fixed, rest) =
            self.payload.split_at_checked(fixed).ok_or(Malformed("a message without its fixed part"))?;
        Ok((fixed, Attributes(rest)))
    }
}

/// Takes the next of several aligned items from the bytes; `parse` returns it with its length. After a
/// malformed one nothing is left.
fn next_item<'a, T>(
    bytes: &mut &'a [u8],
    malformed: &'static str,
    parse: impl FnOnce(&'a [u8]) -> Option<(T, usize)>,
) -> Option<Result<T, Malformed>> {
    let all = (!bytes.is_empty()).then_some(*bytes)?;
    let (item, len) =
        parse(all).map_or((Err(Malformed(malformed)), all.len()), |(item, len)| (Ok(item), len));
    *bytes = all.get(aligned(len)..).unwrap_or_default();
    Some(item)
}

/// The messages of a datagram. The iteration ends at a malformed one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NetlinkMessages<'a>(pub(crate) &'a [u8]);

/// The kind and the address family of the first message of a datagram, which may be cut.
pub(crate) fn kind_and_family(datagram: &[u8]) -> Option<(u16, u8)> {
    Some((u16_at(datagram, 4)?, *datagram.get(MESSAGE_HEADER)?))
}

impl<'a> Iterator for NetlinkMessages<'a> {
    type Item = Result<NetlinkMessage<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        next_item(&mut self.0, "a message longer than its datagram, or shorter than a header", |bytes| {
            let len = usize::try_from(u32_at(bytes, 0)?).ok()?;
            let message = NetlinkMessage {
                kind: u16_at(bytes, 4)?,
                flags: u16_at(bytes, 6)?,
                sequence: u32_at(bytes, 8)?,
                payload: bytes.get(MESSAGE_HEADER..len)?,
            };
            Some((message, len))
        })
    }
}

/// The attributes in these bytes. The iteration ends at a malformed one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attributes<'a>(pub(crate) &'a [u8]);

impl<'a> Attributes<'a> {
    /// The last attribute of a kind.
    pub(crate) fn find(self, kind: u16) -> Result<Option<&'a [u8]>, Malformed> {
        let mut found = None;
        for attribute in self {
            let (this, value) = attribute?;
            if this == kind {
                found = Some(value);
            }
        }
        Ok(found)
    }

    /// The number in the last attribute of a kind.
    pub(crate) fn number(self, kind: u16) -> Result<Option<u32>, Malformed> {
        let number = |value| u32_at(value, 0).ok_or(Malformed("a number of less than four bytes"));
        self.find(kind)?.map(number).transpose()
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Result<(u16, &'a [u8]), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        next_item(&mut self.0, "an attribute longer than what holds it, or too short", |bytes| {
            let len = usize::from(u16_at(bytes, 0)?);
            let kind = u16_at(bytes, 2)? & NLA_TYPE_MASK;
            Some(((kind, bytes.get(ATTRIBUTE_HEADER..len)?), len))
        })
    }
}

/// The kind of an attribute that contains others.
pub const fn nested(kind: u16) -> u16 {
    kind | NLA_F_NESTED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_built_is_read() {
        let mut request = Request::new(7, 3, &[9; 8]);
        request.number(1, 5).text(2, "abc");
        request.nest(nested(3), |inner| {
            inner.fixed(&[1; 4]).attribute(4, &[8; 6]);
        });
        let bytes = request.numbered(77).to_vec();
        let messages: Vec<_> = NetlinkMessages(&bytes).collect();
        let [Ok(message)] = messages[..] else { panic!("{messages:?}") };
        assert_eq!((message.kind, message.flags, message.sequence), (7, 3, 77));
        let (fixed, attributes) = message.split(8).unwrap();
        assert_eq!((fixed, attributes.number(1)), (&[9; 8][..], Ok(Some(5))));
        assert_eq!(text(attributes.find(2).unwrap().unwrap()), "abc");
        let nest = attributes.find(3).unwrap().unwrap();
        assert_eq!(Attributes(&nest[4..]).find(4), Ok(Some(&[8; 6][..])));
        assert_eq!(attributes.find(9), Ok(None));
    }

    #[test]
    fn bytes_that_lie_about_their_length_end() {
        for len in [0u32, 1, 15, 17, u32::MAX] {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&len.to_ne_bytes());
            let all: Vec<_> = NetlinkMessages(&bytes).collect();
            assert_eq!(all.len(), 1, "{len}");
            assert!(all[0].is_err(), "{len}");
        }
        for len in [0u16, 1, 3, 5, u16::MAX] {
            let [low, high] = len.to_ne_bytes();
            let bytes = [low, high, 1, 0];
            let all: Vec<_> = Attributes(&bytes).collect();
            assert_eq!((all.len(), all[0].is_err()), (1, true), "{len}");
        }
        assert_eq!(Attributes(&[4, 0, 1]).count(), 1, "half a header");
        assert_eq!(NetlinkMessages(&[1, 2, 3]).count(), 1, "half a header");
        assert_eq!(
            Attributes(&6u64.to_le_bytes()[..6]).number(0),
            Err(Malformed("a number of less than four bytes"))
        );
    }
}
