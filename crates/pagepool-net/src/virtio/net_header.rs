//! The header before each packet on a virtio queue: `struct virtio_net_hdr_v1` (Virtual I/O Device
//! specification, version 1.2, section 5.1.6).
//!
//! ```text
//!   0   flags
//!   1   what is cut into segments
//!   2   bytes of all headers
//!   4   bytes of payload in a segment
//!   6   where the checksum begins
//!   8   where it is stored, from there
//!   10  buffers of a received packet
//! ```
//!
//! Trust  none: what a received header says is checked against the packet's first buffer, and ignored if it
//!        cannot be. The bytes of all headers are counted, not read: many devices write other numbers there.

use pagepool::XdpBuff;

use crate::device::rx_metadata::RxMetadata;
use crate::device::tx_metadata::{Requested, SegmentKind, TxChecksum, TxSegment, flag, tcp_end};

/// Bytes of a header.
pub(crate) const LEN: usize = 12;

/// A header of a sent packet that asks for nothing.
pub(crate) const PLAIN: [u8; LEN] = [0; LEN];

/// Flags: the checksum is to be computed; it is right.
const NEEDS_CHECKSUM: u8 = 1;
const CHECKSUM_OK: u8 = 2;
/// What is cut into segments, or was.
const TCP4: u8 = 1;
const TCP6: u8 = 4;
/// Where the number of buffers is.
const BUFFERS: usize = 10;
/// Where a TCP header has its checksum.
const TCP_CHECKSUM: u16 = 16;
/// The requests that a virtio device serves.
const SERVED: u64 = flag::CHECKSUM | flag::TCP4_SEGMENTS | flag::TCP6_SEGMENTS;

/// Number of buffers of a received packet, from its header.
#[inline(always)]
pub(crate) fn buffers(header: &[u8; LEN]) -> u16 {
    u16::from_le_bytes([header[10], header[11]])
}

/// The header of a sent packet with requests, whose first buffer has `len` bytes; `None` if a device cannot
/// serve them.
pub(super) fn requesting(requested: Requested, len: usize) -> Option<[u8; LEN]> {
    let (checksum, segment) = (requested.checksum(), requested.segment());
    let is_valid = |segment: TxSegment| {
        // A device cuts only packets whose checksum it computes.
        let covers = checksum.is_some_and(|checksum| checksum.end() <= segment.headers.into());
        segment.size > 0 && usize::from(segment.headers) <= len && covers
    };
    if requested.flags() & !SERVED != 0 || !requested.fits(len) || !segment.is_none_or(is_valid) {
        return None;
    }
    let flags = if checksum.is_some() { NEEDS_CHECKSUM } else { 0 };
    let kind = segment.map_or(0, |segment| match segment.kind {
        SegmentKind::Tcp4 => TCP4,
        SegmentKind::Tcp6 => TCP6,
    });
    let [start, offset] = checksum.map_or([0; 2], |TxChecksum { start, offset }| [start, offset]);
    let [headers, size] = segment.map_or([0; 2], |TxSegment { headers, size, .. }| [headers, size]);
    let [[h, i], [j, k], [l, m], [n, o]] = [headers, size, start, offset].map(u16::to_le_bytes);
    Some([flags, kind, h, i, j, k, l, m, n, o, 0, 0])
}

/// Reads the header that a device wrote directly before a packet, once.
pub(crate) fn take(packet: &mut XdpBuff) -> Option<RxMetadata> {
    packet.adjust_meta(packet.meta().len() as isize - LEN as isize).ok()?;
    let header = packet.meta().first_chunk().copied().filter(|header| buffers(header) > 0);
    if header.is_some() {
        packet.meta_mut()[BUFFERS..].fill(0);
    }
    let _ = packet.adjust_meta(LEN as isize); // it had as much before
    Some(read(header?, packet.data()))
}

/// What a header says of a packet, whose first buffer has these bytes.
fn read(header: [u8; LEN], packet: &[u8]) -> RxMetadata {
    let [flags, kind, _, _, size_low, size_high, a, b, c, d, _, _] = header;
    let word = |low, high| u16::from_le_bytes([low, high]);
    let needed = TxChecksum { start: word(a, b), offset: word(c, d) };
    let needs = flags & NEEDS_CHECKSUM != 0;
    let checksum = Some(needed).filter(|needed| needs && needed.end() <= packet.len());
    let checksum_ok = if needs { checksum.is_some() } else { flags & CHECKSUM_OK != 0 };
    let segment = segment(kind, word(size_low, size_high), checksum, packet);
    RxMetadata { checksum_ok, checksum, segment, ..RxMetadata::default() }
}

fn segment(kind: u8, size: u16, checksum: Option<TxChecksum>, packet: &[u8]) -> Option<TxSegment> {
    let kind = match kind {
        TCP4 => SegmentKind::Tcp4,
        TCP6 => SegmentKind::Tcp6,
        _ => return None,
    };
    let start = checksum.filter(|checksum| size > 0 && checksum.offset == TCP_CHECKSUM)?.start;
    Some(TxSegment { kind, size, headers: tcp_end(packet, start.into())? })
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::TxMetadata;
    use pagepool::{Arena, ArenaParams, Bound, Pool, PoolParams};

    fn pool() -> Bound {
        let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() }).unwrap();
        Pool::new(PoolParams { headroom: 128, ..Default::default() }, arena).unwrap().bind()
    }

    /// A packet of TCP over IPv4 with a header of 32 bytes.
    fn tcp() -> [u8; 200] {
        let mut packet = [0; 200];
        packet[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 186, 0, 0, 0, 0, 64, 6]);
        packet[46] = 8 << 4;
        packet
    }

    const CHECKSUM: TxChecksum = TxChecksum { start: 34, offset: 16 };
    const SEGMENT: TxSegment = TxSegment { kind: SegmentKind::Tcp4, size: 1448, headers: 66 };

    fn header_of(asks: TxMetadata) -> Option<[u8; LEN]> {
        let mut packet = XdpBuff::received(pool().alloc_page().unwrap(), 200).unwrap();
        asks.write(&mut packet).unwrap();
        requesting(Requested::read(packet.meta()).unwrap(), packet.data_len())
    }

    #[test]
    fn a_request_is_the_header_of_the_specification() {
        let checksum = Some(CHECKSUM);
        let with = |segment| header_of(TxMetadata { checksum, segment, ..Default::default() });
        assert_eq!(header_of(TxMetadata::default()), Some(PLAIN));
        assert_eq!(with(None), Some([1, 0, 0, 0, 0, 0, 34, 0, 16, 0, 0, 0]));
        assert_eq!(with(Some(SEGMENT)), Some([1, 1, 66, 0, 0xa8, 5, 34, 0, 16, 0, 0, 0]));
        let v6 = TxSegment { kind: SegmentKind::Tcp6, ..SEGMENT };
        assert_eq!(with(Some(v6)), Some([1, 4, 66, 0, 0xa8, 5, 34, 0, 16, 0, 0, 0]));
    }

    #[test]
    fn what_a_device_cannot_serve_has_no_header() {
        let (checksum, segment) = (Some(CHECKSUM), Some(SEGMENT));
        let at = |start, offset| Some(TxChecksum { start, offset });
        let asks = [
            TxMetadata { timestamp: Some(1), ..Default::default() },
            TxMetadata { checksum, launch_time: Some(1), ..Default::default() },
            TxMetadata { segment, ..Default::default() },
            TxMetadata { checksum: at(190, 9), ..Default::default() },
            TxMetadata { checksum: at(u16::MAX, u16::MAX), ..Default::default() },
            TxMetadata { checksum: at(60, 6), segment, ..Default::default() },
            TxMetadata { checksum, segment: Some(TxSegment { size: 0, ..SEGMENT }), ..Default::default() },
            TxMetadata {
                checksum,
                segment: Some(TxSegment { headers: 201, ..SEGMENT }),
                ..Default::default()
            },
        ];
        assert_eq!(asks.map(header_of), [None; 8]);
    }

    #[test]
    fn a_received_header_says_what_to_request() {
        let packet = tcp();
        assert_eq!(TxSegment::find(&packet, 1448), Some(SEGMENT));
        // The bytes of all headers are not believed.
        let received = read([1, 1, 0xff, 0xff, 0xa8, 5, 34, 0, 16, 0, 1, 0], &packet);
        let seen = (received.checksum_ok, received.checksum, received.segment);
        assert_eq!(seen, (true, Some(CHECKSUM), Some(SEGMENT)));
        let asks = TxMetadata::from(received);
        assert_eq!(header_of(asks), Some([1, 1, 66, 0, 0xa8, 5, 34, 0, 16, 0, 0, 0]));
        let verified = read([2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0], &packet);
        assert_eq!((verified.checksum_ok, TxMetadata::from(verified)), (true, TxMetadata::default()));
        assert_eq!(read([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0], &packet), RxMetadata::default());
    }

    #[test]
    fn a_header_that_lies_says_nothing() {
        let packet = tcp();
        let none = RxMetadata::default();
        for header in [
            [1, 0, 0, 0, 0, 0, 200, 0, 0, 0, 1, 0],  // begins behind the packet
            [3, 0, 0, 0, 0, 0, 34, 0, 165, 0, 1, 0], // ends behind it
            [1, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 1, 0], // the sum of both is large
            [0, 1, 66, 0, 0xa8, 5, 34, 0, 16, 0, 1, 0], // segments without a checksum
            [0xfc, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], // unknown flags
        ] {
            assert_eq!(read(header, &packet), none, "{header:?}");
        }
        let segment = |kind, size, start, offset, packet: &[u8]| {
            let received = read([1, kind, 0, 0, size, 0, start, 0, offset, 0, 1, 0], packet);
            (received.checksum.is_some(), received.segment)
        };
        assert!(segment(1, 100, 34, 16, &packet).1.is_some(), "an honest one");
        for kind in [0, 2, 3, 5, 0x80, 0x81, 0xff] {
            assert_eq!(segment(kind, 100, 34, 16, &packet), (true, None), "unknown: {kind}");
        }
        assert_eq!(segment(1, 0, 34, 16, &packet), (true, None), "no payload in a segment");
        assert_eq!(segment(1, 100, 34, 6, &packet), (true, None), "not of TCP");
        assert_eq!(segment(1, 100, 34, 16, &packet[..52]), (true, None), "the headers are cut");
        let mut short = packet;
        short[46] = 4 << 4;
        assert_eq!(segment(1, 100, 34, 16, &short), (true, None), "a TCP header of 16 bytes");
    }

    #[test]
    fn a_header_is_read_once_and_leaves_the_headroom() {
        let pool = pool();
        let mut buffer = pool.alloc_page().unwrap();
        buffer.bytes_mut().unwrap()[128 - LEN..128].copy_from_slice(&[2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
        let mut packet = XdpBuff::received(buffer, 60).unwrap();
        let read = take(&mut packet).unwrap();
        assert_eq!((read.checksum_ok, packet.meta().len(), packet.headroom()), (true, 0, 128));
        assert_eq!(take(&mut packet), None);
        let mut tight = XdpBuff::new(pool.alloc_page().unwrap(), LEN - 4, 60).unwrap();
        assert_eq!((take(&mut tight), tight.headroom()), (None, LEN - 4));
    }
}
