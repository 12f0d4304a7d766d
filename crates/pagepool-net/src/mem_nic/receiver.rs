//! The driver's receiving half: gives buffers to the device, and makes packets of completed ones.
//!
//! Trust  none. Everything that the device reports is checked against the table. A buffer that it does not
//!        have is counted. A length beyond the buffer is counted, and the buffer returns to its pool. If one
//!        buffer of a packet is invalid, the packet is dropped up to its end.

use pagepool::{Batch, Bound, DeviceAddr, PageBuf, XdpBuff};
use rtrb::{Consumer, Producer};

use super::descriptor::{BufferId, Posted, Received};
use crate::device::DeviceStats;
use crate::device::mapping_cache::MappingCache;
use crate::device::rx_chain::RxChain;

/// Completions taken off the ring in one read.
const BURST: usize = 64;

#[derive(Debug)]
pub(super) struct Receiver {
    fill: Producer<Posted>,
    done: Consumer<Received>,
    burst: Box<[Received; BURST]>,
    slots: Box<[Slot]>,
    free: Vec<u16>,
    chain: RxChain,
}

#[derive(Debug)]
struct Slot {
    /// The buffer, while the device has it.
    buffer: Option<PageBuf>,
    /// The address to which the device writes its packet.
    at: DeviceAddr,
    life: u16,
}

impl Receiver {
    pub(super) fn new(fill: Producer<Posted>, done: Consumer<Received>, max_buffers: usize) -> Self {
        let slots = fill.buffer().capacity();
        Self {
            fill,
            done,
            burst: Box::new([Received::default(); BURST]),
            slots: (0..slots).map(|_| Slot { buffer: None, at: DeviceAddr(0), life: 0 }).collect(),
            free: (0..slots as u16).rev().collect(),
            chain: RxChain::new(max_buffers),
        }
    }

    #[inline]
    pub(super) fn receive(
        &mut self,
        into: &mut Vec<XdpBuff>,
        budget: usize,
        mapping: &MappingCache,
        stats: &mut DeviceStats,
    ) -> usize {
        let most = budget.min(into.capacity() - into.len());
        let before = into.len();
        loop {
            let want = BURST.min(most - (into.len() - before));
            let got = self.done.pop_partial_slice(&mut self.burst[..want]).0.len();
            for at in 0..got {
                if let Some(packet) = self.accept(self.burst[at], mapping, stats) {
                    stats.rx_bytes += packet.len() as u64;
                    into.push(packet);
                }
            }
            if got < want || want == 0 {
                break;
            }
        }
        let n = into.len() - before;
        stats.rx_packets += n as u64;
        n
    }

    /// Takes back a completed buffer; returns the packet if it was its last.
    #[inline]
    fn accept(&mut self, got: Received, mapping: &MappingCache, stats: &mut DeviceStats) -> Option<XdpBuff> {
        let Some((buffer, at)) = self.take(got.id) else {
            stats.rx_bad_descriptor += 1;
            return self.chain.spoilt(got.last);
        };
        let len = got.len as usize;
        if got.last && self.chain.is_between_packets() && len > 0 {
            mapping.sync_for_cpu(at, len.min(buffer.packet_capacity()));
            return XdpBuff::received(buffer, len).map_err(|_| stats.rx_bad_length += 1).ok();
        }
        if len == 0 || len > buffer.packet_capacity() {
            stats.rx_bad_length += 1;
            return self.chain.spoilt(got.last);
        }
        mapping.sync_for_cpu(at, len);
        let offset = buffer.packet_offset();
        self.chain.append(buffer, offset, len, got.last, stats)
    }

    /// Takes the buffer of an id, if the device has it.
    #[inline]
    fn take(&mut self, id: BufferId) -> Option<(PageBuf, DeviceAddr)> {
        let slot = self.slots.get_mut(id.slot())?;
        if slot.life != id.life() {
            return None;
        }
        let buffer = slot.buffer.take()?;
        slot.life = slot.life.wrapping_add(1);
        self.free.push(id.slot() as u16);
        Some((buffer, slot.at))
    }

    /// Passes packets of one buffer to `look`, in place, and gives their buffers to the device again.
    #[cfg(any(test, feature = "testing"))]
    #[inline]
    pub(super) fn look_in_place(
        &mut self,
        budget: usize,
        mapping: &MappingCache,
        stats: &mut DeviceStats,
        mut look: impl FnMut(&mut [u8]),
    ) -> usize {
        let mut n = 0;
        while n < budget
            && let Ok(got) = self.done.pop()
        {
            let Some((mut buffer, at)) = self.take(got.id) else {
                stats.rx_bad_descriptor += 1;
                continue;
            };
            let len = got.len as usize;
            if got.last && (1..=buffer.packet_capacity()).contains(&len) {
                mapping.sync_for_cpu(at, len);
                look(buffer.packet_mut().map_or(&mut [], |bytes| &mut bytes[..len]));
                stats.rx_packets += 1;
                stats.rx_bytes += len as u64;
                n += 1;
            } else {
                stats.rx_bad_length += 1;
            }
            if !self.fill.is_full() {
                let capacity = buffer.packet_capacity();
                mapping.sync_for_device(at, capacity);
                self.put_on_ring(buffer, at, capacity);
            } // else the device completed descriptors still on the ring, and the buffer returns
        }
        n
    }

    /// Gives the device a buffer for every free slot for which the ring has a place. A device that completes
    /// descriptors that are still on the ring gets fewer.
    #[inline]
    pub(super) fn refill(&mut self, pool: &Bound, mapping: &mut MappingCache, stats: &mut DeviceStats) {
        let sync = !mapping.is_coherent() && !pool.syncs_for(mapping.id());
        let mut room = if self.free.is_empty() { 0 } else { self.free.len().min(self.fill.slots()) };
        while room > 0 {
            let want = room.min(Batch::MAX);
            let mut batch = pool.alloc_batch(want);
            let got = batch.len();
            let posted = self.post(&mut batch, sync, mapping);
            stats.rx_unmapped += (got - posted) as u64;
            if posted < want {
                return; // the pool is empty or not mapped; buffers that were not posted return to it
            }
            room -= got;
        }
    }

    /// Gives buffers to the device; there must be slots and places for them. Returns how many are mapped.
    #[inline]
    fn post(&mut self, batch: &mut Batch, sync: bool, mapping: &mut MappingCache) -> usize {
        let Self { fill, free, slots, .. } = self;
        let Ok(places) = fill.write_chunk_uninit(batch.len()) else { return 0 };
        places.fill_from_iter(std::iter::from_fn(|| {
            let buffer = batch.pop()?;
            let at = DeviceAddr(mapping.addr_of(&buffer)?.0 + buffer.packet_offset() as u64);
            let len = buffer.packet_capacity();
            if sync {
                mapping.sync_for_device(at, len);
            }
            let free = free.pop()?;
            let slot = &mut slots[free as usize];
            (slot.buffer, slot.at) = (Some(buffer), at);
            Some(Posted { at, len: len as u32, id: BufferId::new(free, slot.life), last: false })
        }))
    }

    /// Gives a buffer to the device, if there is a slot for it.
    #[cfg(any(test, feature = "testing"))]
    #[inline]
    fn put_on_ring(&mut self, buffer: PageBuf, at: DeviceAddr, len: usize) {
        let Some(free) = self.free.pop() else { return };
        let slot = &mut self.slots[free as usize];
        (slot.buffer, slot.at) = (Some(buffer), at);
        let posted = Posted { at, len: len as u32, id: BufferId::new(free, slot.life), last: false };
        self.fill.push(posted).expect("places were counted before");
    }

    pub(super) fn has_some(&self) -> bool {
        !self.done.is_empty()
    }

    /// Buffers that the device has, or that wait for the rest of their packet.
    pub(super) fn held(&self) -> usize {
        self.slots.len() - self.free.len() + self.chain.held()
    }

    /// Drops all buffers, once the port has no more access; returns how many there were.
    pub(super) fn clear(&mut self) -> usize {
        let held = self.held();
        self.chain.clear();
        for (at, slot) in self.slots.iter_mut().enumerate() {
            if slot.buffer.take().is_some() {
                slot.life = slot.life.wrapping_add(1);
                self.free.push(at as u16);
            }
        }
        held
    }
}
