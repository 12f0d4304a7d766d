//! The sending half: gives the buffers of frames to the device, and takes back completed frames.
//!
//! Layout the header lies directly before the packet if there is room. Otherwise it has a descriptor of its
//!        own, and 16 bytes of the ring's memory. A header is never written outside the packet's own buffer:
//!        those bytes may be another fragment. A header with requests only lies before the packet.
//! Trust  none: a head that is not being sent is counted. The links of a chain are kept here, not read back.
//! I4     a frame is in this table, where no code reaches its bytes, from before its buffers are on the ring
//!        until it is completed.

// UNSAFETY: writes the headers of packets that are in the table.
#![expect(unsafe_code)]

use pagepool::{DeviceTable, ETH_HEADER, MAX_FRAGS, PageIdx, XdpBuff, XdpFrame, XdpFrameBulk};

use super::layout::Layout;
use super::net_header;
use super::ring::{NEXT, Ring, Used};
use super::sys::PacketMemory;
use crate::device::mapping_cache::MappingCache;
use crate::device::tx_metadata::Requested;
use crate::device::tx_slots::{self, TxFit, TxLimits, TxRing};
use crate::device::{DeviceStats, TxQueue};

/// Bytes between two headers in the ring's memory.
const HEADER_STRIDE: u64 = 16;

/// Completions taken off the ring at once.
const BURST: usize = 64;
/// The page of a head that has no page.
const NONE: u32 = u32::MAX;

#[derive(Debug)]
pub(super) struct Sender {
    pub(super) ring: Ring,
    layout: Layout,
    memory: PacketMemory,
    /// Packets of one whole page each.
    whole: DeviceTable,
    /// For each head, the page of such a packet.
    pages: Box<[u32]>,
    /// For each head, any other frame.
    frames: Box<[Option<XdpFrame>]>,
    /// For each descriptor, the next one of its chain, or itself.
    links: Box<[u16]>,
    /// Buffers of all other frames.
    held: usize,
    leaked: usize,
    burst: Box<[Used; BURST]>,
    /// The parts of the frame that is being sent.
    parts: [Part; MAX_FRAGS + 1],
    /// The device's address of the headers, one for each descriptor, all 0.
    headers: u64,
    limits: TxLimits,
    /// Whether the requests of packets are served. All packets are then frames: `whole` has no page.
    serves: bool,
    /// The header of the frame that is being sent.
    header: [u8; net_header::LEN],
}

/// A buffer to send: its bytes in the device's memory.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    at: u64,
    len: u32,
}

impl Sender {
    pub(super) fn new(
        ring: Ring,
        layout: Layout,
        memory: PacketMemory,
        headers: u64,
        limits: TxLimits,
    ) -> Self {
        let size = ring.size();
        Self {
            ring,
            layout,
            memory,
            whole: DeviceTable::new(layout.pages),
            pages: vec![NONE; size.into()].into(),
            frames: (0..size).map(|_| None).collect(),
            links: (0..size).collect(),
            held: 0,
            leaked: 0,
            burst: Box::new([Used::default(); BURST]),
            parts: [Part::default(); MAX_FRAGS + 1],
            headers,
            limits,
            serves: false,
            header: net_header::PLAIN,
        }
    }

    /// Serves the requests of packets, or not, before anything is sent.
    pub(super) fn serving(mut self, serves: bool) -> Self {
        self.serves = serves;
        if serves {
            self.whole = DeviceTable::new(0);
        }
        self
    }

    /// Sends frames from the queue's front while there is room; returns how many, and whether the device
    /// wants a signal. Refuses frames that can never be sent.
    #[inline]
    pub(super) fn transmit(
        &mut self,
        queue: &mut TxQueue,
        mappings: &mut MappingCache,
        stats: &mut DeviceStats,
    ) -> (usize, bool) {
        let mut sent = match queue.burst() {
            Some(packets) => self.transmit_packets(packets, mappings, stats),
            None => 0,
        };
        sent += tx_slots::send(&mut Sending { sender: self, mappings }, queue, stats);
        (sent, self.ring.publish())
    }

    /// Takes packets off the front while there is room. Stops at a packet that is no whole page, or that must
    /// be refused: the general path takes the others. Returns how many.
    #[inline]
    fn transmit_packets(
        &mut self,
        packets: &mut Vec<XdpBuff>,
        mappings: &mut MappingCache,
        stats: &mut DeviceStats,
    ) -> usize {
        let mut sent = 0;
        loop {
            // One check for each run of packets of one pool.
            let of_one_pool = self.transmit_pages_of_one_pool(packets, mappings, stats);
            sent += of_one_pool;
            if of_one_pool == 0 || packets.is_empty() {
                return sent;
            }
        }
    }

    /// Not inlined, so that its loop has all registers.
    #[inline(never)]
    fn transmit_pages_of_one_pool(
        &mut self,
        packets: &mut Vec<XdpBuff>,
        mappings: &mut MappingCache,
        stats: &mut DeviceStats,
    ) -> usize {
        if !packets.first().is_some_and(|first| self.layout.has(first.buffer(), mappings)) {
            return 0;
        }
        let Self { ring, layout, memory, whole, pages, limits, .. } = self;
        let (longest, room, mut bytes) = (limits.max_packet, ring.free(), 0);
        ring.prefetch_free(room.min(packets.len()));
        let in_page = (1 << layout.page_shift) - 1;
        let sent = whole.insert_packets(packets, room, |place, len| {
            // A refused packet stays in the vector: the general path counts it.
            let fits = len.wrapping_sub(1) < longest && place & in_page >= net_header::LEN as u64;
            if fits {
                // SAFETY: I1, I4. The packet's page is whole, and now the device's; the bytes before it are
                // of the same page.
                unsafe { memory.clear_header(place) };
                let head = ring.take_free();
                pages[usize::from(head)] = (place >> layout.page_shift) as u32;
                let at = layout.base + place - net_header::LEN as u64;
                ring.describe(head, at, (len + net_header::LEN) as u32, 0, 0);
                ring.put(head);
                bytes += len as u64;
            }
            fits
        });
        stats.tx_packets += sent as u64;
        stats.tx_bytes += bytes;
        sent
    }

    /// Gives the device a frame whose buffers are in `parts`. There are descriptors. `header`: the frame has no
    /// header before its first byte, and needs a descriptor for one.
    #[inline(never)]
    fn post_chain(&mut self, frame: XdpFrame, buffers: usize, header: bool) {
        let head = self.ring.take_free();
        let (mut number, mut parts) = (head, self.parts[..buffers].iter().copied());
        let at = self.headers + u64::from(head) * HEADER_STRIDE;
        let own = header.then_some(Part { at, len: net_header::LEN as u32 });
        let mut part = own.or_else(|| parts.next()).unwrap_or_default();
        for following in parts {
            let next = self.ring.take_free();
            self.ring.describe(number, part.at, part.len, NEXT, next);
            self.links[usize::from(number)] = next;
            (number, part) = (next, following);
        }
        self.ring.describe(number, part.at, part.len, 0, 0);
        self.links[usize::from(number)] = number;
        self.frames[usize::from(head)] = Some(frame);
        self.held += buffers;
        self.ring.put(head);
    }

    /// Writes the header before the first byte of a frame in `parts`, where there is room, in place of its
    /// metadata.
    fn with_header(&mut self, frame: XdpFrame) -> XdpFrame {
        let mut packet = frame.into_buff();
        let _ = packet.adjust_meta((packet.offset() - packet.headroom()) as isize); // all that it has
        let len = net_header::LEN;
        if packet.adjust_head(-(len as isize)).is_ok() {
            packet.data_mut()[..len].copy_from_slice(&self.header);
            let first = &mut self.parts[0];
            *first = Part { at: first.at - len as u64, len: first.len + len as u32 };
        }
        packet.into()
    }

    /// Moves at most `budget` sent frames into the bulk; returns how many.
    #[inline]
    pub(super) fn complete(
        &mut self,
        bulk: &mut XdpFrameBulk,
        budget: usize,
        stats: &mut DeviceStats,
    ) -> usize {
        let mut frames = 0;
        while frames < budget {
            let got = self.ring.pending().min(BURST).min(budget - frames);
            if got == 0 {
                break;
            }
            self.ring.take_burst(&mut self.burst[..got]);
            for at in 0..got {
                let head = self.burst[at].head;
                let page = self.pages.get_mut(head as usize);
                let page = page.map_or(NONE, |page| std::mem::replace(page, NONE));
                match self.whole.remove(PageIdx(page)) {
                    Some(page) => {
                        self.ring.give_free(head as u16);
                        bulk.push_buffer(page);
                        frames += 1;
                    }
                    None => frames += self.complete_frame(head, bulk, stats),
                }
            }
        }
        stats.tx_completed += frames as u64;
        frames
    }

    #[inline(never)]
    fn complete_frame(&mut self, head: u32, bulk: &mut XdpFrameBulk, stats: &mut DeviceStats) -> usize {
        let Some(frame) = self.frames.get_mut(head as usize).and_then(Option::take) else {
            stats.tx_bad_descriptor += 1;
            return 0;
        };
        self.held -= frame.segment_count();
        let mut number = head as u16;
        loop {
            self.ring.give_free(number);
            let next = self.links[usize::from(number)];
            if next == number {
                break;
            }
            number = next;
        }
        bulk.push(frame);
        1
    }

    /// Descriptors for further frames.
    #[inline]
    pub(super) fn room(&self) -> usize {
        self.ring.free()
    }

    /// Buffers of all frames in the tables, sent or not.
    pub(super) fn held(&self) -> usize {
        self.whole.len() + self.held + self.leaked
    }

    /// Drops all frames, to which the device has no more access; returns how many buffers they
    /// had.
    pub(super) fn clear(&mut self) -> usize {
        let held = self.held() - self.leaked;
        self.whole.clear();
        self.pages.fill(NONE);
        self.frames.iter_mut().for_each(|frame| drop(frame.take()));
        self.held = 0;
        held
    }

    /// Leaks the frames that the device may still read, and keeps counting them; returns how many buffers they
    /// have.
    pub(super) fn forget(&mut self) -> usize {
        let leaked = self.whole.forget() + std::mem::take(&mut self.held);
        self.leaked += leaked;
        self.pages.fill(NONE);
        self.frames.iter_mut().for_each(|frame| std::mem::forget(frame.take()));
        leaked
    }
}

/// The sender, and the memory that the device can access.
struct Sending<'a> {
    sender: &'a mut Sender,
    mappings: &'a mut MappingCache,
}

impl TxRing for Sending<'_> {
    /// Leaves addresses and lengths of the frame's buffers in `parts`.
    #[inline]
    fn fit(&mut self, frame: &XdpFrame) -> TxFit {
        let sender = &mut *self.sender;
        let buffers = match sender.limits.buffers_of(frame) {
            Ok(buffers) => buffers,
            Err(never) => return never,
        };
        let has_room = has_room_for_header(frame);
        if sender.serves {
            let Some(header) = header_of(frame, has_room) else { return TxFit::BadMetadata };
            sender.header = header;
        }
        if buffers + usize::from(!has_room) > sender.ring.free() {
            return TxFit::Later;
        }
        for (segment, part) in frame.segments().zip(&mut sender.parts) {
            let Some(start) = self.mappings.addr_of(segment.buffer) else { return TxFit::Unmapped };
            *part = Part { at: start.0 + segment.offset as u64, len: segment.len as u32 };
        }
        TxFit::Now(buffers)
    }

    #[inline]
    fn post(&mut self, frame: Option<XdpFrame>, buffers: usize) {
        let Some(frame) = frame else { return };
        let has_room = has_room_for_header(&frame);
        let frame = if has_room { self.sender.with_header(frame) } else { frame };
        self.sender.post_chain(frame, buffers, !has_room);
    }
}

/// The header of a frame that may have requests; `None` if they cannot be served. Not inlined, so that other
/// frames do not pay for it.
#[inline(never)]
fn header_of(frame: &XdpFrame, has_room: bool) -> Option<[u8; net_header::LEN]> {
    let Some(requested) = Requested::read(frame.meta()) else { return Some(net_header::PLAIN) };
    let header = net_header::requesting(requested, frame.data_len())?;
    // One in the ring's memory is always plain.
    (has_room || header == net_header::PLAIN).then_some(header)
}

/// Whether the header can lie before the first byte, in place of metadata.
#[inline(always)]
fn has_room_for_header(frame: &XdpFrame) -> bool {
    frame.offset() >= net_header::LEN && frame.data_len() >= ETH_HEADER // as `adjust_head` requires
}
