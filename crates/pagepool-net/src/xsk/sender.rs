//! The sending half: gives the kernel the buffers of frames, and takes them back when they are sent.
//!
//! Table  a packet of one whole page is a byte, by the page's number. One of several whole pages is a byte
//!        per page: the last, which completes it, in one table, the others in a second. Each buffer of any
//!        other frame has a slot, found by the address that completes it, in a list per page, because several
//!        fragments of a page may be in transmit. A frame is done with its last buffer. What the kernel never
//!        completes (many kernels silently drop what they refuse) stays here until the close.
//! Trust  none: an address that is not being sent is counted. Of a page that is sent whole, only its number
//!        counts.
//! Check  what the kernel would refuse is refused and counted here: an empty buffer, one beyond the UMEM or
//!        across the end of a chunk, a packet of too many buffers.
//! Whole  a packet is put on the ring with all its buffers or not at all.

use pagepool::{DeviceTable, MAX_FRAGS, PAGE_SIZE, PageBuf, PageIdx, XdpBuff, XdpFrame, XdpFrameBulk};

use super::descriptor::Descriptor;
use super::layout::Layout;
use super::sys::ring::{Consumer, Entries, Producer, Slots};
use super::sys::socket::{CONTINUED, Mapped};
use super::tx_metadata::TxFeatures;
use super::tx_metadata::requests::Requests;
use crate::device::mapping_cache::MappingCache;
use crate::device::tx_metadata;
use crate::device::tx_slots::{self, TxFit, TxLimits, TxRing, TxSlots};
use crate::device::{DeviceStats, TxQueue};
use crate::sys::prefetch;

/// Completions per look.
const BURST: usize = 64;
const NONE: u32 = u32::MAX;

/// The rings of this half. While they are mapped the kernel keeps the socket, closed or not.
#[derive(Debug)]
pub(super) struct TxRings {
    pub(super) send: Producer<Mapped, 2>,
    pub(super) done: Consumer<Mapped, 1>,
}

#[derive(Debug)]
pub(super) struct Sender {
    layout: Layout,
    /// Start of the UMEM in copy mode, to prefetch packets that the kernel copies during the call. A few
    /// drivers (virtio_net) send the pages themselves; then the prefetch is wasted.
    copied_from: Option<usize>,
    /// Packets of one whole page each.
    whole: DeviceTable,
    /// Packets of several whole pages each, except the last page, which is in `whole`.
    before_last: DeviceTable,
    /// For each page, the first slot whose buffer is in it.
    pages: Box<[u32]>,
    /// The buffers of all other frames.
    slots: TxSlots<SlotOnPage>,
    /// The addresses that were written last.
    addrs: [u64; MAX_FRAGS + 1],
    limits: TxLimits,
    /// If packets may carry requests. All are then frames, so a completed packet still has its metadata.
    requests: Option<Box<Requests>>,
}

/// A buffer that is being sent: its address, and the next slot of its page.
#[derive(Clone, Copy, Debug)]
struct SlotOnPage {
    addr: u64,
    next: u32,
}

impl Sender {
    pub(super) fn new(layout: Layout, copied_from: Option<usize>, slots: usize, limits: TxLimits) -> Self {
        let pages = layout.pages();
        Self {
            layout,
            copied_from,
            whole: DeviceTable::new(pages),
            before_last: DeviceTable::new(if limits.max_buffers > 1 { pages } else { 0 }),
            pages: vec![NONE; pages].into(),
            slots: TxSlots::new(slots, || SlotOnPage { addr: 0, next: NONE }),
            addrs: [0; MAX_FRAGS + 1],
            limits,
            requests: None,
        }
    }

    /// Lets packets carry requests, before anything is sent.
    pub(super) fn serve(&mut self, requests: Requests) {
        self.requests = Some(Box::new(requests));
    }

    pub(super) fn features(&self) -> TxFeatures {
        self.requests.as_ref().map_or(TxFeatures::default(), |requests| requests.features())
    }

    pub(super) fn requests(&mut self) -> Option<&mut Requests> {
        self.requests.as_deref_mut()
    }

    /// Takes packets off the front while there is room. Stops at a packet that has a part of a page, or that
    /// must be refused: [`transmit`](Self::transmit) takes the others. Returns how many.
    #[inline]
    pub(super) fn transmit_packets(
        &mut self,
        rings: &mut TxRings,
        packets: &mut Vec<XdpBuff>,
        mappings: &mut MappingCache,
        stats: &mut DeviceStats,
    ) -> usize {
        let mut sent = 0;
        loop {
            // One check for each run of packets of one pool.
            let mut of_one_pool = self.transmit_pages_of_one_pool(rings, packets, mappings, stats);
            if of_one_pool == 0 && packets.first().is_some_and(XdpBuff::has_frags) {
                of_one_pool = self.transmit_chains(rings, packets, mappings, stats);
            }
            sent += of_one_pool;
            if of_one_pool == 0 || packets.is_empty() {
                break;
            }
        }
        sent
    }

    /// Not inlined, so that its loop has all registers.
    #[inline(never)]
    fn transmit_pages_of_one_pool(
        &mut self,
        rings: &mut TxRings,
        packets: &mut Vec<XdpBuff>,
        mappings: &mut MappingCache,
        stats: &mut DeviceStats,
    ) -> usize {
        let Some(first) = packets.first().map(XdpBuff::buffer) else { return 0 };
        // One check for the pool: in a UMEM a device address is the offset in the area.
        let at = mappings.addr_of(first).filter(|_| first.len() == 1 << self.layout.page_shift);
        if at.is_none_or(|at| self.layout.page_at(at.0) != Some(first.page())) {
            return 0;
        }
        // Free entries of the ring, and slots for buffers that are not completed.
        let room = rings.send.room(packets.len()).min(self.room());
        let (layout, copied_from, longest) = (self.layout, self.copied_from, self.limits.max_packet);
        let (mut slots, mut bytes) = (rings.send.slots(), 0);
        let sent = self.whole.insert_packets(packets, room, |at, len| {
            // A refused packet stays in the vector: the general path counts it.
            let Ok(descriptor) = layout.descriptor(at, len, false) else { return false };
            if len <= longest {
                slots.push(descriptor.to_words());
                fetch(copied_from, at, len);
                bytes += len as u64;
            }
            len <= longest
        });
        slots.commit();
        stats.tx_packets += sent as u64;
        stats.tx_bytes += bytes;
        sent
    }

    /// Takes packets of one or several whole pages, as [`transmit_packets`](Self::transmit_packets) does.
    /// Separate runs of either kind would move the rest of the burst to the front at each change.
    #[inline(never)]
    fn transmit_chains(
        &mut self,
        rings: &mut TxRings,
        packets: &mut Vec<XdpBuff>,
        mappings: &mut MappingCache,
        stats: &mut DeviceStats,
    ) -> usize {
        let Some(first) = packets.first() else { return 0 };
        let at = mappings.addr_of(first.buffer());
        if at.is_none_or(|at| self.layout.page_at(at.0) != Some(first.buffer().page())) {
            return 0;
        }
        let (layout, limits) = (self.layout, self.limits);
        let want = packets.len() * (1 + first.frags().len());
        let mut room = rings.send.room(want).min(self.room());
        let (mut slots, mut bytes) = (rings.send.slots(), 0);
        let sent = self.whole.insert_chained(&mut self.before_last, packets, usize::MAX, |packet| {
            let buffers = 1 + packet.frags().len();
            let fits = buffers <= limits.max_buffers.min(room);
            // A refused packet stays in the vector: the general path counts it.
            let Some(len) = fits.then(|| layout.put(packet, limits.max_packet, &mut slots)).flatten() else {
                return false;
            };
            (room, bytes) = (room - buffers, bytes + len as u64);
            true
        });
        slots.commit();
        stats.tx_packets += sent as u64;
        stats.tx_bytes += bytes;
        sent
    }

    /// Takes packets and frames off the front while there is room. Returns how many. Refuses those that can
    /// never be sent.
    #[inline]
    pub(super) fn transmit(
        &mut self,
        rings: &mut TxRings,
        queue: &mut TxQueue,
        mappings: &mut MappingCache,
        stats: &mut DeviceStats,
    ) -> usize {
        if self.requests.is_some() {
            return self.transmit_with_metadata(rings, queue, mappings, stats);
        }
        let mut taken = match queue.burst() {
            Some(packets) => self.transmit_packets(rings, packets, mappings, stats),
            None => 0,
        };
        let send = &mut rings.send;
        taken += tx_slots::send(&mut Sending::<false> { sender: self, send, mappings }, queue, stats);
        // After the entries are in the tables: the kernel may complete a frame as soon as it sees it (I4).
        rings.send.submit();
        taken
    }

    /// Takes frames that may carry requests. Separate, so that other packets do not pay for it.
    #[inline(never)]
    fn transmit_with_metadata(
        &mut self,
        rings: &mut TxRings,
        queue: &mut TxQueue,
        mappings: &mut MappingCache,
        stats: &mut DeviceStats,
    ) -> usize {
        let mut sending = Sending::<true> { sender: self, send: &mut rings.send, mappings };
        let taken = tx_slots::send(&mut sending, queue, stats);
        rings.send.submit(); // after the entries are in the tables (I4)
        taken
    }

    /// Stores a frame whose descriptors were written; there are slots for its buffers. Not inlined, so that
    /// the frame is copied whole: a copy in parts would read parts that are still in the store buffer, and
    /// stall.
    #[inline(never)]
    fn store(&mut self, frame: XdpFrame, buffers: usize) {
        let Self { layout, slots, pages, addrs, .. } = self;
        slots.insert(Some(frame), addrs[..buffers].iter(), |&addr, slot, tag| {
            let first = &mut pages[(addr >> layout.page_shift) as usize];
            *tag = SlotOnPage { addr, next: *first };
            *first = slot;
        });
    }

    /// Moves sent frames into the bulk, at most `budget`.
    #[inline]
    pub(super) fn complete(
        &mut self,
        rings: &mut TxRings,
        bulk: &mut XdpFrameBulk,
        budget: usize,
        stats: &mut DeviceStats,
    ) -> usize {
        match self.requests {
            // A loop for each size of pages: shifts by constants keep a register free.
            None if self.layout.page_shift == 11 => {
                self.complete_by(Self::finish::<11>, rings, bulk, budget, stats)
            }
            None => self.complete_by(Self::finish::<12>, rings, bulk, budget, stats),
            Some(_) => self.complete_by(Self::finish_with_metadata, rings, bulk, budget, stats),
        }
    }

    #[inline(always)]
    fn complete_by(
        &mut self,
        finish: impl Fn(&mut Self, u64, &mut XdpFrameBulk) -> Option<usize>,
        rings: &mut TxRings,
        bulk: &mut XdpFrameBulk,
        budget: usize,
        stats: &mut DeviceStats,
    ) -> usize {
        let done = &mut rings.done;
        let mut frames = 0;
        while frames < budget {
            // The budget counts frames; a completion ends at most one.
            let got = done.peek(BURST.min(budget - frames));
            if got == 0 {
                break;
            }
            done.prefetch(got);
            for [addr] in (0..got).map(done.read(got)) {
                match finish(self, addr, bulk) {
                    Some(finished) => frames += finished,
                    None => stats.tx_bad_descriptor += 1,
                }
            }
            done.release();
        }
        stats.tx_completed += frames as u64;
        frames
    }

    /// Completes an address, in pages of `1 << SHIFT` bytes. Returns how many frames that ends; `None` if it
    /// is not being sent.
    #[inline(always)]
    fn finish<const SHIFT: u32>(&mut self, addr: u64, bulk: &mut XdpFrameBulk) -> Option<usize> {
        // An address beyond the UMEM is in no table.
        let page = PageIdx(u32::try_from(addr >> SHIFT).ok()?);
        // Most packets are whole pages.
        match self.whole.remove(page) {
            Some(page) => bulk.push_buffer(page),
            None => return self.finish_other(addr, bulk),
        }
        Some(1)
    }

    #[inline]
    fn finish_other(&mut self, addr: u64, bulk: &mut XdpFrameBulk) -> Option<usize> {
        let page = self.layout.page_at(addr)?;
        if let Some(page) = self.before_last.remove(page) {
            bulk.push_buffer(page);
            return Some(0); // the packet is done with its last page
        }
        self.finish_slot(addr, bulk)
    }

    fn finish_slot(&mut self, addr: u64, bulk: &mut XdpFrameBulk) -> Option<usize> {
        let slot = self.unlink(addr)?;
        // No frame while the kernel reads some of its buffers.
        let Some(frame) = self.slots.finish(slot, |_| true).ok()? else { return Some(0) };
        bulk.push(frame);
        Some(1)
    }

    /// Completes an address, as [`finish`](Self::finish) does, of a frame that may have requested the time.
    #[inline(never)]
    fn finish_with_metadata(&mut self, addr: u64, bulk: &mut XdpFrameBulk) -> Option<usize> {
        let slot = self.unlink(addr)?;
        let Some(frame) = self.slots.finish(slot, |_| true).ok()? else { return Some(0) };
        self.requests.iter_mut().for_each(|requests| requests.completed(&frame));
        bulk.push(frame);
        Some(1)
    }

    /// Removes an address's slot from its page's list. Linux 6.18 clears the lowest bit of completed
    /// addresses in copy mode: an even address at which nothing was sent stands for the odd one behind it.
    #[inline]
    fn unlink(&mut self, addr: u64) -> Option<u32> {
        self.unlink_exactly(addr).or_else(|| if addr & 1 == 0 { self.unlink_exactly(addr | 1) } else { None })
    }

    fn unlink_exactly(&mut self, addr: u64) -> Option<u32> {
        let page = (addr >> self.layout.page_shift) as usize;
        // By page, instead of a search of all slots by address.
        let mut at = *self.pages.get(page)?;
        let mut before = NONE;
        while at != NONE {
            // Fragments of the page that are being sent: mostly one or two.
            let &mut SlotOnPage { addr: sent_at, next } = self.slots.tag(at as usize)?;
            if sent_at == addr {
                match before {
                    NONE => self.pages[page] = next,
                    before => self.slots.tag(before as usize)?.next = next,
                }
                return Some(at);
            }
            (before, at) = (at, next);
        }
        None
    }

    /// Buffers that may still be sent. A page sent whole counts as a slot.
    #[inline]
    pub(super) fn room(&self) -> usize {
        // All tables share the slots of the completion ring, of which the kernel reserves one before it
        // sends: it always finds one.
        self.slots.free().saturating_sub(self.whole.len() + self.before_last.len())
    }

    /// Buffers here, sent or not.
    #[inline]
    pub(super) fn held(&self) -> usize {
        self.slots.held() + self.whole.len() + self.before_last.len()
    }

    /// Frames to which the kernel may still write a time.
    pub(super) fn awaited_times(&self) -> usize {
        self.requests.as_ref().map_or(0, |requests| requests.awaited())
    }

    pub(super) fn forget(&mut self) {
        let others = self.whole.forget() + self.before_last.forget();
        self.slots.forget(others);
    }

    /// Takes everything back after the close. Returns how many buffers there were.
    pub(super) fn clear(&mut self) -> usize {
        let others = self.whole.clear() + self.before_last.clear();
        self.slots.clear() + others
    }
}

/// The ring and the device's memory. With `METADATA`, frames may carry requests.
struct Sending<'a, const METADATA: bool> {
    sender: &'a mut Sender,
    send: &'a mut Producer<Mapped, 2>,
    mappings: &'a mut MappingCache,
}

impl<const METADATA: bool> Sending<'_, METADATA> {
    #[inline(always)]
    fn option(&self, frame: &XdpFrame) -> Result<u32, TxFit> {
        match &self.sender.requests {
            Some(requests) if METADATA => requests.option(frame),
            _ => Ok(0),
        }
    }
}

impl<const METADATA: bool> TxRing for Sending<'_, METADATA> {
    /// Writes the descriptors of a frame that can be sent, and reserves their slots.
    #[inline]
    fn fit(&mut self, frame: &XdpFrame) -> TxFit {
        let mut option = match self.option(frame) {
            Ok(option) => option,
            Err(never) => return never,
        };
        let Self { sender, send, mappings } = self;
        let buffers = match sender.limits.buffers_of(frame) {
            Ok(buffers) => buffers,
            Err(never) => return never,
        };
        if buffers > sender.room() || send.room(buffers) < buffers {
            return TxFit::Later;
        }
        for (at, segment) in frame.segments().enumerate() {
            let addr = mappings.addr_of(segment.buffer).map(|start| start.0 + segment.offset as u64);
            let more = at + 1 < buffers;
            let descriptor = addr.ok_or(TxFit::Unmapped);
            let layout = sender.layout;
            let descriptor = descriptor.and_then(|addr| match METADATA {
                true => layout.descriptor_behind_metadata(addr, segment.len, more),
                false => layout.descriptor(addr, segment.len, more),
            });
            match descriptor {
                Ok(mut descriptor) => {
                    descriptor.options |= std::mem::take(&mut option);
                    sender.addrs[at] = descriptor.addr;
                    send.push(descriptor.to_words());
                    // Not for several buffers: a burst of them exceeds the caches.
                    fetch(sender.copied_from.filter(|_| buffers == 1), descriptor.addr, segment.len);
                }
                Err(never) => {
                    // The earlier ones were not published: the kernel never sees them.
                    send.cancel(at);
                    return never;
                }
            }
        }
        TxFit::Now(buffers)
    }

    #[inline]
    fn post(&mut self, frame: Option<XdpFrame>, buffers: usize) {
        // `fit` wrote the descriptors. Without a frame there is nothing to return later.
        if let Some(frame) = frame {
            if METADATA {
                self.sender.requests.iter_mut().for_each(|requests| requests.sent(&frame));
            }
            self.sender.store(frame, buffers);
        }
    }
}

/// Usually another CPU wrote the packets. Prefetching their lines together beats the misses of the call,
/// which copies packet by packet.
#[inline(always)]
fn fetch(copied_from: Option<usize>, at: u64, len: usize) {
    if let Some(base) = copied_from {
        prefetch::bytes(base.wrapping_add(at as usize), len);
    }
}

impl Layout {
    /// Writes the descriptors of a packet of one or several pages. Returns its length; `None`, without
    /// writing, if the kernel would refuse one, or the packet exceeds `longest`.
    #[inline(always)]
    fn put<E: Entries<2>>(
        &self,
        packet: &XdpBuff,
        longest: usize,
        slots: &mut Slots<'_, E, 2>,
    ) -> Option<usize> {
        let (frags, mut written) = (packet.frags(), 0);
        let mut put = |page: &PageBuf, offset: usize, len: usize| {
            let addr = self.start_of(page.page()) + offset as u64;
            let descriptor = self.descriptor(addr, len, written < frags.len()).ok()?;
            slots.push(descriptor.to_words());
            written += 1;
            Some(len)
        };
        let mut len = put(packet.buffer(), packet.offset(), packet.data_len());
        for frag in frags {
            len = len.and_then(|before| Some(before + put(frag.buffer(), frag.offset(), frag.len())?));
        }
        let len = len.filter(|&len| len <= longest);
        if len.is_none() {
            slots.cancel(written);
        }
        len
    }

    /// A buffer's descriptor, if the kernel accepts it: not empty, within the UMEM, not across the end of an
    /// aligned chunk. An unaligned one may be as long as a chunk.
    #[inline]
    fn descriptor(&self, addr: u64, len: usize, more: bool) -> Result<Descriptor, TxFit> {
        // The kernel drops an empty buffer, and never completes it.
        if len == 0 || len > self.chunk as usize {
            return Err(TxFit::TooLong);
        }
        let chunk = u64::from(self.chunk);
        let crosses = !self.unaligned && (addr & (chunk - 1)) + len as u64 > chunk;
        if crosses || addr + len as u64 > self.len {
            return Err(TxFit::Unmapped);
        }
        Ok(Descriptor { addr, len: len as u32, options: if more { CONTINUED } else { 0 } })
    }

    /// A buffer's descriptor, if the kernel also accepts the 48 bytes of metadata that it requires before
    /// each.
    #[inline]
    fn descriptor_behind_metadata(&self, addr: u64, len: usize, more: bool) -> Result<Descriptor, TxFit> {
        let before = tx_metadata::LEN as u64;
        let whole = self.descriptor(addr, len, more)?;
        // Unaligned with zero copy, the kernel silently drops what is in two pages.
        if addr & (PAGE_SIZE as u64 - 1) < before {
            return Err(TxFit::BadMetadata);
        }
        self.descriptor(addr - before, len + before as usize, more).map_err(|_| TxFit::BadMetadata)?;
        Ok(whole)
    }
}

#[cfg(test)]
mod tests {
    use pagepool::{Arena, ArenaParams, Pool, PoolParams, XdpBuff};

    use super::*;
    use crate::xsk::memory_kernel::umem_in_memory;
    use crate::xsk::params::UmemParams;

    impl Sender {
        /// Allows packets that the kernel refuses.
        pub(in crate::xsk) fn pretend_unaligned(&mut self) {
            self.layout.unaligned = true;
        }
    }

    const LIMITS: TxLimits = TxLimits { max_packet: 9000, max_buffers: 4 };

    #[test]
    fn a_frame_is_done_with_its_last_buffer_whatever_else_is_named() {
        let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() }).unwrap();
        let pool = Pool::new(PoolParams::default(), arena).unwrap().bind();
        let layout = Layout { chunk: 4096, before: 256, unaligned: false, page_shift: 12, len: 1 << 20 };
        let (mut sender, mut bulk, mut sent) =
            (Sender::new(layout, None, 16, LIMITS), XdpFrameBulk::new(), Vec::new());
        for step in 0..2000 {
            let buffers = 1 + step * 7 % 4;
            if sender.slots.free() >= buffers {
                // In two pages, at distinct places, some of them odd.
                for (at, addr) in (0..).zip(&mut sender.addrs[..buffers]) {
                    let place = 2 * (step as u64 * 4 + at) + step as u64 / 2 % 2;
                    *addr = ((step as u64 % 2) << 12) | (place % 4096);
                    sent.push((step, *addr));
                }
                let packet = XdpBuff::new(pool.alloc_page().unwrap(), 0, 60).unwrap();
                sender.store(packet.into(), buffers);
                continue;
            }
            let (frame, addr) = sent.swap_remove(step * 31 % sent.len());
            let is_last = sent.iter().all(|(of, _)| *of != frame);
            let named = if step % 3 == 0 { addr & !1 } else { addr };
            assert_eq!(sender.finish::<12>(named, &mut bulk), Some(usize::from(is_last)), "step {step}");
            let odd = sent.iter().find(|(_, addr)| addr & 1 == 0).map_or(u64::MAX, |(_, even)| even | 1);
            let never =
                [addr, odd, 5 << 12, 1 << 20, u64::MAX].map(|addr| sender.finish::<12>(addr, &mut bulk));
            assert_eq!(never, [None; 5], "step {step}");
            bulk.flush();
            let over = |head: &&SlotOnPage| sent.iter().all(|(_, addr)| *addr != head.addr);
            let waiting = sender.slots.heads().filter(over).count();
            assert_eq!(sender.slots.free(), 16 - sent.len() - waiting, "step {step}: no slot is lost");
        }
        assert!(sender.held() > 0 && sender.clear() > 0);
        assert_eq!(pool.inflight().out, 0);
    }

    #[test]
    fn a_page_is_done_with_once_and_counts_until_then() {
        let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() }).unwrap();
        let pool = Pool::new(PoolParams::default(), arena).unwrap().bind();
        let layout = Layout { chunk: 4096, before: 256, unaligned: false, page_shift: 12, len: 1 << 20 };
        let (mut sender, mut bulk) = (Sender::new(layout, None, 16, LIMITS), XdpFrameBulk::new());
        let packet = || XdpBuff::new(pool.alloc_page().unwrap(), 300, 60).unwrap();
        let (mut packets, mut sent) = (vec![packet(), packet(), packet()], Vec::new());
        sender.whole.insert_packets(&mut packets, 2, |at, _| {
            sent.push(at);
            true
        });
        assert_eq!((sender.held(), packets.len()), (2, 1));
        assert_eq!([sent[0], sent[0]].map(|addr| sender.finish::<12>(addr, &mut bulk)), [Some(1), None]);
        bulk.flush();
        assert_eq!((sender.held(), pool.inflight().out), (1, 2));
        assert_eq!((sender.clear(), sender.held(), pool.inflight().out), (1, 0, 1));
        sender.whole.insert_packets(&mut packets, 2, |_, _| true);
        sender.forget();
        assert_eq!((sender.held(), pool.inflight().out), (1, 1), "what is leaked is out, and counted");
    }

    #[test]
    fn multi_page_packets_take_no_slot_and_end_with_their_last_page() {
        let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, commit_all: true, ..Default::default() });
        let arena = arena.unwrap();
        let umem = umem_in_memory(UmemParams { multi_buffer: true, ..Default::default() }, &arena).unwrap();
        let params = PoolParams { domains: vec![umem.clone()], chains: 8, ..Default::default() };
        let pool = Pool::new(params, arena).unwrap().bind();
        let (mut sender, mut bulk) = (Sender::new(umem.layout(), None, 16, LIMITS), XdpFrameBulk::new());
        let mut mappings = MappingCache::new(umem.clone());
        let ([send, waiting], [done, _]) = (Mapped::pair::<2>(16).unwrap(), Mapped::pair::<1>(16).unwrap());
        let mut rings = TxRings { send: Producer::new(send, 16), done: Consumer::new(done, 16) };
        let mut waiting = Consumer::<_, 2>::new(waiting, 16);
        let packet = |lens: &[usize]| {
            let mut packet = XdpBuff::new(pool.alloc_page().unwrap(), 256, lens[0]).unwrap();
            lens[1..].iter().for_each(|&len| packet.add_frag(pool.alloc_page().unwrap(), 7, len).unwrap());
            packet
        };
        // The fourth has an empty first buffer, the fifth is too long; the rest take the general path.
        let mut packets: Vec<_> =
            [&[60, 70][..], &[80], &[3000, 3000, 3000], &[0, 90], &[3800, 4000, 2000], &[60; 4], &[60; 4]]
                .map(packet)
                .into();
        let mut stats = DeviceStats::default();
        let mut queue = TxQueue::new();
        queue.push_burst(&mut packets);
        assert_eq!(sender.transmit(&mut rings, &mut queue, &mut mappings, &mut stats), 5);
        assert_eq!((stats.tx_packets, stats.tx_bytes, stats.tx_too_long), (5, 9690, 2), "{stats:?}");
        let sent = waiting.peek(16);
        let sent: Vec<_> = (0..sent).map(waiting.read(sent)).map(Descriptor::of_words).collect();
        let shapes: Vec<_> = sent.iter().map(|part| (part.len, part.options)).collect();
        let first = [(60, 1), (70, 0), (80, 0), (3000, 1), (3000, 1), (3000, 0), (60, 1), (60, 1), (60, 1)];
        assert_eq!(shapes[..9], first);
        assert_eq!((sender.whole.len(), sender.before_last.len(), sender.slots.held()), (3, 3, 8));
        let finished: Vec<_> = sent
            .iter()
            .take(6)
            .map(|part| sender.finish::<12>(part.addr, &mut bulk))
            .map(Option::unwrap)
            .collect();
        assert_eq!(finished, [0, 1, 1, 0, 0, 1]);
        assert!(
            sent.iter().take(6).all(|part| sender.finish::<12>(part.addr, &mut bulk).is_none()),
            "each once"
        );
        bulk.flush();
        assert_eq!((sender.held(), sender.room(), pool.inflight().out), (8, 8, 8));
        assert_eq!((sender.clear(), pool.inflight().out), (8, 0));
    }

    #[test]
    fn what_crosses_a_chunk_or_the_end_is_not_taken() {
        let aligned = Layout { chunk: 2048, before: 256, unaligned: false, page_shift: 11, len: 1 << 20 };
        let takes = |layout: &Layout, addr, len| layout.descriptor(addr, len, false).is_ok();
        assert!(takes(&aligned, 0, 2048) && takes(&aligned, 2048 + 100, 1948));
        assert!(!takes(&aligned, 100, 1949), "across the chunk's end");
        assert!(!takes(&aligned, 0, 0) && !takes(&aligned, 0, 2049), "empty, and longer than a chunk");
        let unaligned = Layout { unaligned: true, ..aligned };
        assert!(takes(&unaligned, 100, 2048) && takes(&unaligned, (1 << 20) - 60, 60));
        assert!(!takes(&unaligned, (1 << 20) - 60, 61), "across the memory's end");
        for layout in [&aligned, &unaligned] {
            let fits = |addr| layout.descriptor_behind_metadata(addr, 60, false).is_ok();
            assert!(fits(4096 + 48) && fits(48), "behind 48 bytes of the page");
            assert!(!fits(4096 + 47) && !fits(4096) && !fits(47), "metadata in the page before");
        }
    }
}
