//! Requests of sent packets, and the answers: the kernel's `struct xsk_tx_metadata`, right before the packet
//! (Documentation/networking/xsk-tx-metadata.rst, v7.3).
//!
//! ```text
//!   packet - 48   flags                 ┐
//!   packet - 40   checksum              │ the kernel's: while the packet is sent it writes the time
//!   packet - 32   launch time           ┘ when it left in place of the checksum
//!   packet - 24   number                ┐
//!   packet - 16   checksum, once more   │ ours: the kernel takes it for padding
//!   packet - 8    mark                  ┘
//! ```
//!
//! Metadata without our mark is no request. The checksum is there twice, to detect whether a time was
//! written.

mod pseudo_header;
pub(super) mod requests;

use pagepool::{AdjustError, XdpBuff};

use super::sys::socket::tx_flags;

/// Bytes before a packet for metadata.
pub(super) const LEN: usize = 48;
const WORDS: usize = LEN / 8;
/// Random: not there by chance.
const MARK: u64 = 0x5f3a_91c6_e82b_704d;

/// Whether packets may carry requests to the kernel and the driver ([`TxMetadata`]), for all sockets over a
/// UMEM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TxMetadataMode {
    /// No TX metadata: requests are ignored. Costs nothing.
    #[default]
    Off,
    /// TX metadata on. Requires Linux 6.11, or a 6.8 to 6.10 stable release with `XDP_UMEM_TX_METADATA_LEN`.
    /// Packets go by the ring, not by [BPF batch](super::TxMode), on the slower path of frames. Every sent
    /// buffer requires 48 bytes before its first byte.
    On,
    /// TX metadata on, with checksums in software (`XDP_UMEM_TX_SW_CSUM`) in copy mode, completed before the
    /// driver has the packet. For tests, and for a veth's other end, which otherwise may see unfinished
    /// checksums. Not for packets of several buffers, and not with
    /// [`XskMode::ZeroCopy`](super::XskMode::ZeroCopy).
    SoftwareChecksum,
}

/// Requests of a sent packet to the kernel and the driver.
///
/// They are in the packet's metadata and move with it, even into copies with 48 bytes of headroom. A device
/// without support ignores them. A socket serves them if the UMEM has
/// [`tx_metadata`](super::UmemParams::tx_metadata).
///
/// If the socket cannot serve a request ([`tx_features`](super::XskDevice::tx_features)), or a checksum is
/// beyond the first buffer, the packet is dropped and counted
/// ([`tx_bad_metadata`](crate::DeviceStats::tx_bad_metadata)): sent without, it would be wrong, and
/// unnoticed.
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
    /// Report when the packet left, under this number of your choice: see
    /// [`XskDevice::take_tx_timestamps`](super::XskDevice::take_tx_timestamps). With zero copy, igc and
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
        let (checksum, timestamp) = (self.checksum.is_some(), self.timestamp.is_some());
        let flags = TxFeatures { checksum, timestamp, launch_time: self.launch_time.is_some() }.flags();
        let checksum = self.checksum.map_or(0, TxChecksum::to_word);
        let (launch, number) = (self.launch_time.unwrap_or(0), self.timestamp.unwrap_or(0));
        let words: [u64; WORDS] = [flags, checksum, launch, number, checksum, MARK];
        for (place, word) in packet.meta_mut().as_chunks_mut().0.iter_mut().zip(words) {
            *place = word.to_ne_bytes();
        }
        Ok(())
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

    /// The end of its two bytes, from its word.
    fn end(word: u64) -> usize {
        let [a, b, c, d, ..] = word.to_ne_bytes();
        usize::from(u16::from_ne_bytes([a, b])) + usize::from(u16::from_ne_bytes([c, d])) + 2
    }
}

/// When a packet left that requested its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxTimestamp {
    /// The number that [`TxMetadata::timestamp`] gave it.
    pub number: u64,
    /// Nanoseconds: with zero copy of the PTP hardware clock (`ethtool -T`); in copy mode of `CLOCK_TAI`,
    /// when the driver, or the other end of a veth, was done with the packet.
    pub at: u64,
}

/// The requests of [`TxMetadata`] that a socket serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxFeatures {
    /// [`TxMetadata::checksum`].
    pub checksum: bool,
    /// [`TxMetadata::timestamp`].
    pub timestamp: bool,
    /// [`TxMetadata::launch_time`].
    pub launch_time: bool,
}

impl TxFeatures {
    pub(super) fn flags(self) -> u64 {
        let flag = |has: bool, flag| if has { flag } else { 0 };
        flag(self.checksum, tx_flags::CHECKSUM)
            | flag(self.timestamp, tx_flags::TIMESTAMP)
            | flag(self.launch_time, tx_flags::LAUNCH_TIME)
    }
}

/// The metadata of a packet with requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Requested([u64; WORDS]);

impl Requested {
    /// Reads metadata with our mark.
    #[inline]
    pub(super) fn read(meta: &[u8]) -> Option<Self> {
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
    pub(super) fn flags(self) -> u64 {
        self.0[0]
    }

    /// Whether the checksum is in a first buffer of this length.
    #[inline]
    pub(super) fn fits(self, len: usize) -> bool {
        self.flags() & tx_flags::CHECKSUM == 0 || TxChecksum::end(self.0[1]) <= len
    }

    #[inline]
    pub(super) fn wants_time(self) -> bool {
        self.flags() & tx_flags::TIMESTAMP != 0
    }

    /// The time, if it was requested and written.
    #[inline]
    pub(super) fn timestamp(self) -> Option<TxTimestamp> {
        let [_, at, _, number, before, _] = self.0;
        (self.wants_time() && at != before).then_some(TxTimestamp { number, at })
    }
}
