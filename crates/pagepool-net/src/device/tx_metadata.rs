//! Requests of sent packets, right before the packet: the kernel's `struct xsk_tx_metadata`
//! (Documentation/networking/xsk-tx-metadata.rst, v7.3), which an AF_XDP socket passes on. A virtio device
//! makes its header of them.
//!
//! ```text
//!   packet - 48   flags                       ┐
//!   packet - 40   checksum, segments          │ the kernel's: while the packet is sent it writes the time
//!   packet - 32   launch time                 ┘ when it left in place of the checksum
//!   packet - 24   number                      ┐
//!   packet - 16   checksum, segments, again   │ ours: the kernel takes it for padding
//!   packet - 8    mark                        ┘
//! ```
//!
//! Metadata without our mark is no request. The checksum is there twice, to detect whether a time was
//! written. The flags of segments are ours, so the kernel never sees them: no socket serves them.

mod pseudo_header;

use pagepool::{AdjustError, XdpBuff};

use crate::steering::Headers;

/// Bytes before a packet for metadata.
pub(crate) const LEN: usize = 48;
const WORDS: usize = LEN / 8;
/// Random: not there by chance.
const MARK: u64 = 0x5f3a_91c6_e82b_704d;

/// What is requested: the kernel's flags (include/uapi/linux/if_xdp.h, v6.15), and ours.
pub(crate) mod flag {
    pub(crate) const TIMESTAMP: u64 = 1 << 0;
    pub(crate) const CHECKSUM: u64 = 1 << 1;
    pub(crate) const LAUNCH_TIME: u64 = 1 << 2;
    pub(crate) const TCP4_SEGMENTS: u64 = 1 << 32;
    pub(crate) const TCP6_SEGMENTS: u64 = 1 << 33;
}

/// Requests of a sent packet to the kernel and the driver.
///
/// They are in the packet's metadata and move with it, even into copies with 48 bytes of headroom. A device
/// without support ignores them. An AF_XDP socket serves them if the UMEM has
/// [`tx_metadata`](crate::UmemParams::tx_metadata). A `vhost_user:` or `vhost_net:` device serves checksums
/// and segments if it was opened with [`offloads`](crate::OpenParams::offloads).
///
/// If such a device cannot serve a request (for a socket see
/// [`tx_features`](crate::XskDevice::tx_features)), or a checksum is beyond the first buffer, the packet is
/// dropped and counted ([`tx_bad_metadata`](crate::DeviceStats::tx_bad_metadata)): sent without, it would be
/// wrong, and unnoticed.
///
/// ```
/// use pagepool::{Arena, ArenaParams, Pool, PoolParams, XdpBuff};
/// use pagepool_net::{TxChecksum, TxMetadata};
///
/// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
/// let pool = Pool::new(PoolParams { headroom: 256, ..Default::default() }, arena)?.bind();
/// let mut packet = XdpBuff::received(pool.alloc_page().unwrap(), 60).unwrap();
/// packet.data_mut().fill(0);
/// packet.data_mut()[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17]); // IPv4, UDP
///
/// let checksum = TxChecksum::prepare(packet.data_mut()); // Some: the packet has one
/// TxMetadata { checksum, timestamp: Some(7), ..Default::default() }.write(&mut packet)?;
/// assert_eq!((packet.len(), packet.headroom()), (60, 256 - 48));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxMetadata {
    /// Compute a checksum.
    pub checksum: Option<TxChecksum>,
    /// Cut the packet into segments. Requires the checksum of TCP, too. No AF_XDP socket does it.
    pub segment: Option<TxSegment>,
    /// Report when the packet left, under this number of your choice: see
    /// [`XskDevice::take_tx_timestamps`](crate::XskDevice::take_tx_timestamps). With zero copy, igc and
    /// stmmac require a setting (`hwstamp_ctl -i IF -t 1`).
    pub timestamp: Option<u64>,
    /// Send the packet at this time, in nanoseconds of the PTP hardware clock (Linux 6.15; igc and stmmac).
    /// Later packets of the queue wait. How far ahead it may be depends on the driver. Requires a setting
    /// (`tc qdisc ... etf ... offload`).
    pub launch_time: Option<u64>,
}

impl TxMetadata {
    /// Writes the requests before the packet, in place of other metadata. Call it last: metadata moves when
    /// headers are added or removed, but [`TxChecksum::start`] does not change.
    ///
    /// Requires 48 bytes of headroom, else [`AdjustError::NoRoom`]. Any thread; some 20 instructions, and
    /// writes the cache line before the packet.
    pub fn write(&self, packet: &mut XdpBuff) -> Result<(), AdjustError> {
        packet.adjust_meta(packet.meta().len() as isize - LEN as isize)?;
        let checksum =
            self.checksum.map_or(0, TxChecksum::to_word) | self.segment.map_or(0, TxSegment::to_word);
        let flags = self.flags();
        let (launch, number) = (self.launch_time.unwrap_or(0), self.timestamp.unwrap_or(0));
        let words: [u64; WORDS] = [flags, checksum, launch, number, checksum, MARK];
        for (place, word) in packet.meta_mut().as_chunks_mut().0.iter_mut().zip(words) {
            *place = word.to_ne_bytes();
        }
        Ok(())
    }

    fn flags(&self) -> u64 {
        let when = |has: bool, flag| if has { flag } else { 0 };
        when(self.checksum.is_some(), flag::CHECKSUM)
            | when(self.timestamp.is_some(), flag::TIMESTAMP)
            | when(self.launch_time.is_some(), flag::LAUNCH_TIME)
            | self.segment.map_or(0, |segment| segment.kind.flag())
    }
}

/// A checksum to compute (`csum_start`, `csum_offset`): the Internet checksum (RFC 1071) from
/// [`start`](Self::start) to the packet's end, stored at `start + offset`. For TCP and UDP, that place must
/// first hold the pseudo-header checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxChecksum {
    /// Where it begins, in bytes from the packet's beginning.
    pub start: u16,
    /// Where its two bytes are stored, in bytes from `start`.
    pub offset: u16,
}

impl TxChecksum {
    /// Finds the checksum of a TCP or UDP packet over IPv4 or IPv6, behind up to two VLAN tags, and writes
    /// the pseudo-header checksum there, as the request requires. `None`, and writes nothing, for other
    /// packets, for fragments, and if the TCP or UDP header is incomplete in `packet`.
    ///
    /// With a routing header, write the sum for the final destination yourself. Padding after the IP payload
    /// must be zero, because the sum includes it. Any thread; 100 to 200 instructions, and reads the headers.
    ///
    /// ```
    /// use pagepool_net::TxChecksum;
    ///
    /// let mut packet = [0u8; 60];
    /// packet[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 6]); // IPv4, TCP
    /// packet[26..34].copy_from_slice(&[192, 0, 2, 1, 192, 0, 2, 2]);
    /// assert_eq!(TxChecksum::prepare(&mut packet), Some(TxChecksum { start: 34, offset: 16 }));
    /// assert_eq!(packet[50..52], [0x84, 0x24]); // addresses, the protocol, and 26 bytes
    /// ```
    pub fn prepare(packet: &mut [u8]) -> Option<Self> {
        let (start, offset, sum) = pseudo_header::locate(packet)?;
        packet.get_mut(start + offset..)?.first_chunk_mut().map(|place| *place = sum.to_be_bytes())?;
        Some(Self { start: u16::try_from(start).ok()?, offset: offset as u16 })
    }

    fn to_word(self) -> u64 {
        let ([a, b], [c, d]) = (self.start.to_ne_bytes(), self.offset.to_ne_bytes());
        u64::from_ne_bytes([a, b, c, d, 0, 0, 0, 0])
    }

    fn of_word(word: u64) -> Self {
        let [a, b, c, d, ..] = word.to_ne_bytes();
        Self { start: u16::from_ne_bytes([a, b]), offset: u16::from_ne_bytes([c, d]) }
    }

    /// The end of its two bytes.
    pub(crate) fn end(self) -> usize {
        usize::from(self.start) + usize::from(self.offset) + 2
    }
}

/// How a TCP packet is cut: into packets with its headers, and [`size`](Self::size) bytes of its payload
/// each. The device sets lengths, sequence numbers and checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxSegment {
    /// What is cut.
    pub kind: SegmentKind,
    /// Bytes of payload in each segment except the last: more than 0.
    pub size: u16,
    /// Bytes of all headers, from Ethernet to TCP: in the first buffer.
    pub headers: u16,
}

/// What is cut into segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentKind {
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
}

impl TxSegment {
    /// Finds the headers of a TCP packet over IPv4 or IPv6, behind up to two VLAN tags. `None` for other
    /// packets, for fragments, and if the headers are incomplete in `packet`. [`TxChecksum::prepare`] does
    /// the rest.
    ///
    /// Any thread; some 100 instructions, and reads the headers.
    pub fn find(packet: &[u8], size: u16) -> Option<Self> {
        const TCP: u8 = 6;
        let headers = Headers::read(packet);
        let [_, transport] =
            headers.places.filter(|_| headers.protocol == Some(TCP) && !headers.is_fragment)?;
        let kind = if headers.v4.is_some() { SegmentKind::Tcp4 } else { SegmentKind::Tcp6 };
        Some(Self { kind, size, headers: tcp_end(packet, transport)? })
    }

    fn to_word(self) -> u64 {
        let ([a, b], [c, d]) = (self.size.to_ne_bytes(), self.headers.to_ne_bytes());
        u64::from_ne_bytes([0, 0, 0, 0, a, b, c, d])
    }
}

impl SegmentKind {
    fn flag(self) -> u64 {
        match self {
            Self::Tcp4 => flag::TCP4_SEGMENTS,
            Self::Tcp6 => flag::TCP6_SEGMENTS,
        }
    }
}

/// Where a TCP header ends that begins at `start`, if it is complete.
pub(crate) fn tcp_end(packet: &[u8], start: usize) -> Option<u16> {
    const OFFSET: usize = 12;
    let len = 4 * usize::from(packet.get(start + OFFSET)? >> 4);
    let end = Some(start + len).filter(|&end| len >= 20 && end <= packet.len())?;
    end.try_into().ok()
}

/// The metadata of a packet with requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requested([u64; WORDS]);

impl Requested {
    /// Reads metadata with our mark.
    #[inline]
    pub(crate) fn read(meta: &[u8]) -> Option<Self> {
        let bytes: &[u8; LEN] = meta.try_into().ok()?;
        let mut words = [0; WORDS];
        words
            .iter_mut()
            .zip(bytes.as_chunks().0)
            .for_each(|(word, bytes)| *word = u64::from_ne_bytes(*bytes));
        (words[WORDS - 1] == MARK).then_some(Self(words))
    }

    /// The requests, as the kernel's flags.
    #[inline]
    pub(crate) fn flags(self) -> u64 {
        self.0[0]
    }

    #[inline]
    pub(crate) fn checksum(self) -> Option<TxChecksum> {
        (self.flags() & flag::CHECKSUM != 0).then(|| TxChecksum::of_word(self.0[1]))
    }

    pub(crate) fn segment(self) -> Option<TxSegment> {
        let kinds = [SegmentKind::Tcp4, SegmentKind::Tcp6];
        let kind = kinds.into_iter().find(|kind| self.flags() & kind.flag() != 0)?;
        let [.., a, b, c, d] = self.0[1].to_ne_bytes();
        Some(TxSegment { kind, size: u16::from_ne_bytes([a, b]), headers: u16::from_ne_bytes([c, d]) })
    }

    /// Whether the checksum is in a first buffer of this length.
    #[inline]
    pub(crate) fn fits(self, len: usize) -> bool {
        self.checksum().is_none_or(|checksum| checksum.end() <= len)
    }

    #[inline]
    pub(crate) fn wants_time(self) -> bool {
        self.flags() & flag::TIMESTAMP != 0
    }

    /// The number and the time, if it was requested and written.
    #[inline]
    pub(crate) fn timestamp(self) -> Option<(u64, u64)> {
        let [_, at, _, number, before, _] = self.0;
        (self.wants_time() && at != before).then_some((number, at))
    }
}
