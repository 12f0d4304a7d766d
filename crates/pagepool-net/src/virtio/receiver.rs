//! The receiving half: gives buffers to the device, and makes packets of completed ones.
//!
//! Layout the header lies right before the packet, in the headroom of its first buffer. Further buffers of a
//!        packet begin where the header would be.
//! Trust  none. A head that the device does not have is counted. A length beyond the buffer is counted, and
//!        the buffer returns to its pool. If one buffer of a packet is invalid, its packet is dropped up to
//!        the end.
//! I4     a buffer is in the table, where no code reaches its bytes, from before it is on the ring until it
//!        is completed.

use pagepool::{Batch, Bound, PageBuf, XdpBuff};

use super::net_header;
use super::ring::{Ring, Used, WRITE};
use crate::device::DeviceStats;
use crate::device::mapping_cache::MappingCache;
use crate::device::rx_chain::RxChain;

/// Fewer free descriptors than this wait for more: a refill costs a fence, and perhaps a signal.
const REFILL: usize = 32;

#[derive(Debug)]
pub(super) struct Receiver {
    pub(super) ring: Ring,
    /// For each descriptor, the buffer that the device has.
    slots: Box<[Option<PageBuf>]>,
    chain: RxChain,
    /// Buffers that are still to come for the unfinished packet.
    missing: u16,
    /// Whether headers say how many buffers a packet has.
    reads_headers: bool,
}

impl Receiver {
    pub(super) fn new(ring: Ring, max_buffers: usize) -> Self {
        let slots = (0..ring.size()).map(|_| None).collect();
        Self { ring, slots, chain: RxChain::new(max_buffers), missing: 0, reads_headers: max_buffers > 1 }
    }

    #[inline]
    pub(super) fn receive(
        &mut self,
        into: &mut Vec<XdpBuff>,
        budget: usize,
        mappings: &mut MappingCache,
        stats: &mut DeviceStats,
    ) -> usize {
        let before = into.len();
        let most = budget.min(into.capacity() - before);
        let mut bytes = 0;
        while into.len() - before < most && self.ring.pending() > 0 {
            let used = self.ring.take();
            if let Some(packet) = self.accept(used, mappings, stats) {
                bytes += packet.len() as u64;
                into.push(packet);
            }
        }
        let n = into.len() - before;
        stats.rx_packets += n as u64;
        stats.rx_bytes += bytes;
        n
    }

    /// Takes back a completed buffer; returns the packet if it was its last.
    #[inline(always)]
    fn accept(
        &mut self,
        used: Used,
        mappings: &mut MappingCache,
        stats: &mut DeviceStats,
    ) -> Option<XdpBuff> {
        let slot = self.slots.get_mut(used.head as usize);
        let Some(buffer) = slot.and_then(Option::take) else {
            stats.rx_bad_descriptor += 1;
            return self.spoilt();
        };
        self.ring.give_free(used.head as u16);
        if !mappings.is_coherent() {
            sync_for_cpu(&buffer, used.len as usize, mappings);
        }
        if self.reads_headers {
            return self.accept_part(buffer, used.len as usize, stats);
        }
        let len = (used.len as usize).wrapping_sub(net_header::LEN);
        match XdpBuff::received(buffer, len) {
            Ok(packet) if len > 0 => Some(packet),
            _ => {
                stats.rx_bad_length += 1;
                None
            }
        }
    }

    /// Takes a buffer of a packet that may have several.
    #[inline]
    fn accept_part(&mut self, buffer: PageBuf, len: usize, stats: &mut DeviceStats) -> Option<XdpBuff> {
        if self.missing > 0 {
            return self.accept_further(buffer, len, stats);
        }
        let Some(packet_len) = len.checked_sub(net_header::LEN).filter(|&len| len > 0) else {
            stats.rx_bad_length += 1;
            return None;
        };
        match buffers_of(&buffer) {
            1 => XdpBuff::received(buffer, packet_len).map_err(|_| stats.rx_bad_length += 1).ok(),
            0 => {
                stats.rx_bad_length += 1;
                None
            }
            buffers => {
                self.missing = buffers - 1;
                let offset = buffer.packet_offset();
                self.chain.append(buffer, offset, packet_len, false, stats)
            }
        }
    }

    #[inline(never)]
    fn accept_further(&mut self, buffer: PageBuf, len: usize, stats: &mut DeviceStats) -> Option<XdpBuff> {
        self.missing -= 1;
        let offset = buffer.packet_offset() - net_header::LEN;
        self.chain.append(buffer, offset, len, self.missing == 0, stats)
    }

    /// Drops the packet of an invalid buffer, and its further buffers as they come.
    #[cold]
    fn spoilt(&mut self) -> Option<XdpBuff> {
        self.missing = self.missing.saturating_sub(1);
        self.chain.spoilt(self.missing == 0)
    }

    /// Gives the device a buffer for every free descriptor, if there are enough of them or `all` is set.
    /// Returns whether the device wants a signal.
    #[inline]
    pub(super) fn refill(
        &mut self,
        pool: &Bound,
        all: bool,
        mappings: &mut MappingCache,
        stats: &mut DeviceStats,
    ) -> bool {
        let least = if all { 1 } else { REFILL.min(self.slots.len()) };
        if self.ring.free() < least {
            return false;
        }
        let sync = !mappings.is_coherent() && !pool.syncs_for(mappings.id());
        while self.ring.free() > 0 {
            let want = self.ring.free().min(Batch::MAX);
            let mut batch = pool.alloc_batch(want);
            let got = batch.len();
            let mut posted = 0;
            while let Some(buffer) = batch.pop() {
                posted += usize::from(self.post(buffer, sync, mappings));
            }
            stats.rx_unmapped += (got - posted) as u64;
            if posted < want {
                break; // the pool is empty, or not mapped
            }
        }
        self.ring.publish()
    }

    /// Gives the device a buffer, for which there is a descriptor. False if it is not mapped.
    #[inline(always)]
    fn post(&mut self, buffer: PageBuf, sync: bool, mappings: &mut MappingCache) -> bool {
        let Some(start) = mappings.addr_of(&buffer) else { return false };
        let at = start.0 + (buffer.packet_offset() - net_header::LEN) as u64;
        let len = buffer.packet_capacity() + net_header::LEN;
        if sync {
            mappings.sync_for_device(pagepool::DeviceAddr(at), len);
        }
        let number = self.ring.take_free();
        self.ring.describe(number, at, len as u32, WRITE, 0);
        self.slots[usize::from(number)] = Some(buffer);
        self.ring.put(number);
        true
    }

    /// Buffers that the device has, or that wait for the rest of their packet.
    pub(super) fn held(&self) -> usize {
        self.slots.len() - self.ring.free() + self.chain.held()
    }

    /// Drops all buffers, to which the device has no more access, and empties the ring; returns how many
    /// buffers there were.
    pub(super) fn clear(&mut self) -> usize {
        let held = self.held();
        self.chain.clear();
        self.missing = 0;
        self.slots.iter_mut().for_each(|slot| drop(slot.take()));
        self.ring.reset(false);
        held
    }

    /// Leaks the buffers that the device may still write to, and keeps counting them.
    pub(super) fn forget(&mut self) {
        self.chain.clear();
        self.slots.iter_mut().for_each(|slot| std::mem::forget(slot.take()));
    }
}

/// The number of buffers that the header before a packet says; 0 if the CPU cannot read it.
#[inline(always)]
fn buffers_of(buffer: &PageBuf) -> u16 {
    let header = buffer.packet_offset() - net_header::LEN;
    let bytes = buffer.bytes().and_then(|bytes| bytes.get(header..)?.first_chunk());
    bytes.map_or(0, net_header::buffers)
}

#[cold]
fn sync_for_cpu(buffer: &PageBuf, len: usize, mappings: &mut MappingCache) {
    let room = buffer.packet_capacity() + net_header::LEN;
    if let Some(start) = mappings.addr_of(buffer) {
        let at = start.0 + (buffer.packet_offset() - net_header::LEN) as u64;
        mappings.sync_for_cpu(pagepool::DeviceAddr(at), len.min(room));
    }
}
