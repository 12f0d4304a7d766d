//! A packet of several buffers, while its buffers come in one by one: for devices whose receive rings name
//! buffers, not packets.
//!
//! Trust  none: a buffer that is wrong ends its packet, and what follows is dropped up to the packet's end.

use pagepool::{PageBuf, XdpBuff};

use super::stats::DeviceStats;

/// The packet whose last buffer has not come yet.
#[derive(Debug)]
pub(crate) struct RxChain {
    packet: Option<XdpBuff>,
    /// Whether buffers are dropped up to the end of a packet of which one was wrong.
    skipping: bool,
    max_buffers: usize,
}

impl RxChain {
    pub(crate) fn new(max_buffers: usize) -> Self {
        Self { packet: None, skipping: false, max_buffers }
    }

    /// Whether the next buffer begins a packet.
    #[inline(always)]
    pub(crate) fn is_between_packets(&self) -> bool {
        self.packet.is_none() && !self.skipping
    }

    /// The packet whose last buffer has not come yet, to be continued, and how many buffers a packet may
    /// have; `None` while buffers are dropped up to the end of one.
    #[inline(always)]
    pub(crate) fn begun(&mut self) -> Option<(&mut Option<XdpBuff>, usize)> {
        (!self.skipping).then_some((&mut self.packet, self.max_buffers))
    }

    /// Adds a buffer, whose bytes from `offset` on are the packet's; gives the packet that ends with it.
    pub(crate) fn append(
        &mut self,
        buffer: PageBuf,
        offset: usize,
        len: usize,
        last: bool,
        stats: &mut DeviceStats,
    ) -> Option<XdpBuff> {
        // The device is not trusted: the length is checked before any byte is reached.
        if len == 0 || offset + len > buffer.len() {
            stats.rx_bad_length += 1;
            return self.spoilt(last);
        }
        if self.skipping {
            self.skipping = !last;
            return None;
        }
        let packet = match self.packet.take() {
            Some(packet) => self.joined(packet, buffer, offset, len),
            None => match XdpBuff::new(buffer, offset, len) {
                Ok(packet) => Some(packet),
                Err(_) => {
                    stats.rx_bad_length += 1; // it ends in its pool's tailroom
                    return self.spoilt(last);
                }
            },
        };
        if packet.is_none() {
            stats.rx_too_many_buffers += 1;
            return self.spoilt(last);
        }
        if last {
            return packet;
        }
        self.packet = packet;
        None
    }

    fn joined(&self, mut packet: XdpBuff, buffer: PageBuf, offset: usize, len: usize) -> Option<XdpBuff> {
        let fits = packet.frags().len() + 1 < self.max_buffers;
        (fits && packet.add_frag(buffer, offset, len).is_ok()).then_some(packet)
    }

    /// A buffer of the unfinished packet is wrong: the packet is dropped, and so is the rest of it.
    #[cold]
    pub(crate) fn spoilt(&mut self, last: bool) -> Option<XdpBuff> {
        self.packet = None;
        self.skipping = !last;
        None
    }

    /// Buffers that wait for the rest of their packet.
    pub(crate) fn held(&self) -> usize {
        self.packet.as_ref().map_or(0, |packet| 1 + packet.frags().len())
    }

    /// Drops them.
    pub(crate) fn clear(&mut self) {
        self.packet = None;
    }
}
