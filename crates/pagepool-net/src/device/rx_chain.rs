//! Joins the buffers of a packet as they arrive, for devices whose receive rings name buffers, not packets.
//!
//! Trust  none: an invalid buffer ends its packet, and the rest is dropped up to the packet's end.

use pagepool::{PageBuf, XdpBuff};

use super::stats::DeviceStats;

#[derive(Debug)]
pub(crate) struct RxChain {
    packet: Option<XdpBuff>,
    /// Whether buffers are dropped up to the end of a packet that had an invalid buffer.
    skipping: bool,
    max_buffers: usize,
}

impl RxChain {
    pub(crate) fn new(max_buffers: usize) -> Self {
        Self { packet: None, skipping: false, max_buffers }
    }

    #[inline(always)]
    pub(crate) fn is_between_packets(&self) -> bool {
        self.packet.is_none() && !self.skipping
    }

    /// The unfinished packet, to be continued, and the most buffers of a packet; `None` while buffers are
    /// dropped up to the end of a packet.
    #[inline(always)]
    pub(crate) fn begun(&mut self) -> Option<(&mut Option<XdpBuff>, usize)> {
        (!self.skipping).then_some((&mut self.packet, self.max_buffers))
    }

    /// Adds a buffer whose bytes from `offset` on belong to the packet; returns the packet if it is complete.
    pub(crate) fn append(
        &mut self,
        buffer: PageBuf,
        offset: usize,
        len: usize,
        last: bool,
        stats: &mut DeviceStats,
    ) -> Option<XdpBuff> {
        // The device is not trusted: the length is checked before any byte is read.
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

    /// Drops the unfinished packet, because a buffer is invalid, and the rest of it when it arrives.
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

    pub(crate) fn clear(&mut self) {
        (self.packet, self.skipping) = (None, false);
    }
}
