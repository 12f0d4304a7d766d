//! The receiving half: reads packets into buffers that are kept for them.
//!
//! What   a stack of the pool's buffers. A read takes as many from its top as the longest packet needs, with
//!        one byte behind them, which only a packet that is too long reaches. What the packet did not fill
//!        stays, so the buffers that are used next are those that the CPU's cache has.

use std::fs::File;
use std::io::{self, IoSliceMut, Read};

use pagepool::{Bound, MAX_FRAGS, PageBuf, XdpBuff};

use crate::device::rx_chain::RxChain;
use crate::device::{Calls, DeviceStats};
use crate::sys::errno;

#[derive(Debug)]
pub(super) struct Receiver {
    buffers: Vec<PageBuf>,
    /// The number of buffers to keep.
    slots: usize,
    max_packet: usize,
    max_buffers: usize,
    chain: RxChain,
}

impl Receiver {
    pub(super) fn new(slots: usize, max_packet: usize, max_buffers: usize) -> Self {
        let (buffers, chain) = (Vec::with_capacity(slots), RxChain::new(max_buffers));
        Self { buffers, slots, max_packet, max_buffers, chain }
    }

    /// Reads at most `budget` packets, while the vector has room; returns how many, and whether the interface
    /// is gone.
    #[inline]
    pub(super) fn receive(
        &mut self,
        file: &File,
        into: &mut Vec<XdpBuff>,
        budget: usize,
        calls: &mut Calls,
        stats: &mut DeviceStats,
    ) -> (usize, bool) {
        let (before, most) = (into.len(), budget.min(into.capacity() - into.len()));
        let (mut reads, mut gone) = (0, false);
        while reads < most && self.has_enough() {
            reads += 1;
            match calls.make(|| self.read(file)) {
                Ok((len, room)) => into.extend(self.accept(len, room, stats)),
                Err(error) => {
                    gone = error.raw_os_error() == Some(errno::EBADFD);
                    break; // else nothing is there, or a signal came
                }
            }
        }
        let packets = &into[before..];
        stats.rx_packets += packets.len() as u64;
        stats.rx_bytes += packets.iter().map(|packet| packet.len() as u64).sum::<u64>();
        (packets.len(), gone)
    }

    /// The length of the packet that was read, at most one more than the room; and the room.
    fn read(&mut self, file: &File) -> io::Result<(usize, usize)> {
        let (mut room, mut count, mut beyond) = (0, 0, [0]);
        let mut parts: [_; MAX_FRAGS + 2] = std::array::from_fn(|_| IoSliceMut::new(&mut []));
        let places = self.buffers.iter_mut().rev().take(self.max_buffers);
        for place in places.filter_map(PageBuf::packet_mut) {
            if room >= self.max_packet {
                break;
            }
            room += place.len();
            parts[count] = IoSliceMut::new(place);
            count += 1;
        }
        parts[count] = IoSliceMut::new(&mut beyond);
        let mut file = file;
        Ok((file.read_vectored(&mut parts[..=count])?, room))
    }

    /// Takes the buffers of a packet, unless it is too long, or empty.
    fn accept(&mut self, len: usize, room: usize, stats: &mut DeviceStats) -> Option<XdpBuff> {
        if len > room.min(self.max_packet) {
            stats.rx_too_long += 1;
            return None;
        }
        let mut left = len;
        loop {
            let buffer = self.buffers.pop()?;
            let (offset, part) = (buffer.packet_offset(), left.min(buffer.packet_capacity()));
            left -= part;
            let packet = self.chain.append(buffer, offset, part, left == 0, stats);
            if left == 0 {
                return packet;
            }
        }
    }

    /// Whether there are buffers for the longest packet.
    #[inline]
    pub(super) fn has_enough(&self) -> bool {
        let capacity = self.buffers.last().map_or(0, PageBuf::packet_capacity);
        let room = capacity * self.buffers.len();
        capacity > 0 && (room >= self.max_packet || self.buffers.len() >= self.max_buffers)
    }

    /// Takes fresh buffers of the pool for those that packets took.
    #[inline]
    pub(super) fn refill(&mut self, pool: &Bound, stats: &mut DeviceStats) {
        let before = self.buffers.len();
        if before < self.slots {
            let n = pool.alloc_bulk(&mut self.buffers, self.slots - before);
            if self.buffers.last().is_some_and(|buffer| buffer.as_ptr().is_none()) {
                stats.rx_unmapped += n as u64; // no read writes memory that the CPU cannot
                self.buffers.truncate(before);
            }
        }
    }

    pub(super) fn held(&self) -> usize {
        self.buffers.len()
    }

    /// Returns all buffers; returns how many.
    pub(super) fn clear(&mut self) -> usize {
        let held = self.held();
        self.buffers.clear();
        held
    }
}
