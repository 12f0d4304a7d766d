//! The receiving half: gives buffers to the device, and makes packets of completed ones.
//!
//! Layout the header lies directly before the packet, in the headroom of its first buffer. Further buffers of
//!        a packet begin where the header would be.
//! Trust  none. A head that the device does not have is counted. A length beyond the buffer is counted, and
//!        the buffer returns to its pool. If one buffer of a packet is invalid, the whole packet is dropped.
//! I4     a page is in the table, where no code reaches its bytes, from before it is on the ring until it is
//!        completed.

// UNSAFETY: reads the headers of packets that the device has completed.
#![expect(unsafe_code)]

use pagepool::{Batch, Bound, DeviceTable, PageBuf, PageIdx, XdpBuff};

use super::layout::Layout;
use super::net_header;
use super::params::VirtioParams;
use super::ring::{Ring, Used, WRITE};
use super::sys::PacketMemory;
use crate::device::DeviceStats;
use crate::device::mapping_cache::MappingCache;
use crate::device::rx_chain::RxChain;

/// Completions taken off the ring at once.
const BURST: usize = 64;
/// Fewer free descriptors than this wait for more: a refill costs a fence, and perhaps a signal.
const REFILL: usize = 32;
/// The place of a descriptor that is not in use: in no page of the table.
const NONE: u64 = u64::MAX;
const HEADER: usize = net_header::LEN;

#[derive(Debug)]
pub(super) struct Receiver {
    pub(super) ring: Ring,
    layout: Layout,
    memory: PacketMemory,
    /// The pages that the device has.
    given: DeviceTable,
    /// For each descriptor in use, where its packet begins in the area.
    places: Box<[u64]>,
    burst: Box<[Used; BURST]>,
    chain: RxChain,
    /// Buffers that are still to come for the unfinished packet.
    missing: u16,
    /// Whether headers say how many buffers a packet has.
    reads_headers: bool,
    leaked: usize,
}

impl Receiver {
    pub(super) fn new(ring: Ring, layout: Layout, memory: PacketMemory, params: &VirtioParams) -> Self {
        let places = vec![NONE; ring.size().into()].into();
        Self {
            ring,
            layout,
            memory,
            given: DeviceTable::new(layout.pages),
            places,
            burst: Box::new([Used::default(); BURST]),
            chain: RxChain::new(params.max_buffers),
            missing: 0,
            reads_headers: params.has_several_buffers(),
            leaked: 0,
        }
    }

    #[inline]
    pub(super) fn receive(
        &mut self,
        into: &mut Vec<XdpBuff>,
        budget: usize,
        stats: &mut DeviceStats,
    ) -> usize {
        let before = into.len();
        let most = budget.min(into.capacity() - before);
        while into.len() - before < most {
            // Each becomes at most one packet.
            let got = self.ring.pending().min(BURST).min(most - (into.len() - before));
            if got == 0 {
                break;
            }
            self.ring.take_burst(&mut self.burst[..got]);
            self.accept(got, into, stats);
        }
        let n = into.len() - before;
        stats.rx_packets += n as u64;
        n
    }

    /// Takes back the buffers of a burst. A fast path takes packets of one page each, and writes each once,
    /// in its final place.
    #[inline(always)]
    fn accept(&mut self, n: usize, into: &mut Vec<XdpBuff>, stats: &mut DeviceStats) {
        let mut at = 0;
        loop {
            if self.missing == 0 {
                let (taken, bytes) = self.take_whole(at, n, into);
                at += taken;
                stats.rx_bytes += bytes;
            }
            if at == n {
                return;
            }
            if let Some(packet) = self.accept_one(self.burst[at], stats) {
                stats.rx_bytes += packet.len() as u64;
                into.push(packet);
            }
            at += 1;
        }
    }

    /// Takes packets of one page each at the front of a burst. Returns how many, and their bytes. Not inlined,
    /// so that its loop has all registers.
    #[inline(never)]
    fn take_whole(&mut self, at: usize, n: usize, into: &mut Vec<XdpBuff>) -> (usize, u64) {
        let Self { ring, given, places, burst, memory, .. } = self;
        let burst = &burst[at..n];
        let named = |places: &[u64], at: usize| {
            let Used { head, len } = burst[at];
            let place = *places.get(head as usize)?;
            Some((place, len.wrapping_sub(HEADER as u32))) // a shorter one wraps, and is refused
        };
        let (taken, bytes) = if self.reads_headers {
            let single = |at: usize| {
                let (place, len) = named(places, at)?;
                // SAFETY: I1, I4. The page of a descriptor in use is in the table, or, if the device named the
                // descriptor before in this burst, in a packet that no code reads yet. Any other place is
                // beyond the area, where nothing is read.
                let header = unsafe { memory.read_header(place) };
                (net_header::buffers(&header) == 1).then_some((place, len))
            };
            given.remove_packets(burst.len(), single, into)
        } else {
            given.remove_packets(burst.len(), |at| named(places, at), into)
        };
        for used in &burst[..taken] {
            places[used.head as usize] = NONE;
            ring.give_free(used.head as u16);
        }
        (taken, bytes)
    }

    /// Takes back any other buffer; returns the packet that ends with it.
    #[inline(never)]
    fn accept_one(&mut self, used: Used, stats: &mut DeviceStats) -> Option<XdpBuff> {
        let Some((buffer, place)) = self.take(used.head) else {
            stats.rx_bad_descriptor += 1;
            self.missing = self.missing.saturating_sub(1);
            return self.chain.spoilt(self.missing == 0);
        };
        let (len, offset) = (used.len as usize, (place - self.layout.start_of(buffer.page())) as usize);
        if self.missing > 0 {
            self.missing -= 1;
            return self.chain.append(buffer, offset - HEADER, len, self.missing == 0, stats);
        }
        // SAFETY: I1, I4. The buffer is here, and was in the table; nothing else refers to its bytes.
        let header = unsafe { self.memory.read_header(place) };
        let buffers = if self.reads_headers { net_header::buffers(&header) } else { 1 };
        let len = len.checked_sub(HEADER).filter(|&len| len > 0 && buffers > 0);
        self.missing = buffers.saturating_sub(1);
        let Some(len) = len else {
            stats.rx_bad_length += 1;
            return self.chain.spoilt(self.missing == 0);
        };
        self.chain.append(buffer, offset, len, self.missing == 0, stats)
    }

    /// Takes the page of a descriptor, if the device has it, and the place of its packet.
    fn take(&mut self, head: u32) -> Option<(PageBuf, u64)> {
        let place = std::mem::replace(self.places.get_mut(head as usize)?, NONE);
        let page = PageIdx(u32::try_from(place >> self.layout.page_shift).ok()?);
        let buffer = self.given.remove(page)?;
        self.ring.give_free(head as u16);
        Some((buffer, place))
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
        let least = if all { 1 } else { REFILL.min(self.places.len()) };
        self.ring.free() >= least && self.give_many(pool, mappings, stats)
    }

    fn give_many(&mut self, pool: &Bound, mappings: &mut MappingCache, stats: &mut DeviceStats) -> bool {
        while self.ring.free() > 0 {
            let want = self.ring.free().min(Batch::MAX);
            self.ring.prefetch_free(want);
            let batch = pool.alloc_batch(want);
            let got = batch.len();
            if let Err(unmapped) = self.give_pages(batch, mappings) {
                stats.rx_unmapped += unmapped.len() as u64; // they return
                break;
            }
            if got < want {
                break; // the pool is empty
            }
        }
        self.ring.publish()
    }

    /// Gives pages to the device, if they are in its memory.
    #[inline(always)]
    #[expect(clippy::result_large_err, reason = "returns the batch unchanged")]
    fn give_pages(&mut self, mut batch: Batch, mappings: &mut MappingCache) -> Result<(), Batch> {
        let Some(one) = batch.pop() else { return Ok(()) };
        // One check for the batch: all pages are of one pool, and thus of one area.
        let fits = self.layout.has(&one, mappings) && one.packet_offset() >= HEADER;
        let end = one.packet_offset() + one.packet_capacity();
        if batch.push(one).is_err() || !fits {
            return Err(batch);
        }
        let Self { ring, places, given, layout, .. } = self;
        // Table entries first, then the index: a page is in the table before the device sees it (I4).
        given.insert(batch, |page, offset| {
            let number = ring.take_free();
            let place = layout.start_of(page) + offset as u64;
            places[usize::from(number)] = place;
            let at = layout.base + place - HEADER as u64;
            ring.describe(number, at, (end - offset + HEADER) as u32, WRITE, 0);
            ring.put(number);
        })
    }

    /// Buffers that the device has, that wait for the rest of their packet, or that are leaked.
    pub(super) fn held(&self) -> usize {
        self.given.len() + self.chain.held() + self.leaked
    }

    /// Drops all buffers, to which the device has no more access; returns how many buffers there
    /// were.
    pub(super) fn clear(&mut self) -> usize {
        let held = self.held() - self.leaked;
        self.chain.clear();
        self.missing = 0;
        self.given.clear();
        self.places.fill(NONE);
        held
    }

    /// Leaks the buffers that the device may still write to, and keeps counting them; returns how many.
    pub(super) fn forget(&mut self) -> usize {
        self.chain.clear();
        self.missing = 0;
        let leaked = self.given.forget();
        self.leaked += leaked;
        self.places.fill(NONE);
        leaked
    }
}
