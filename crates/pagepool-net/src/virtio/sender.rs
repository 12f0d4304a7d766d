//! The sending half: gives the buffers of frames to the device, and takes back completed frames.
//!
//! Layout the header lies right before the packet if there is room. Else it has a descriptor of its own, and
//!        16 bytes of the ring's memory. Bytes before a packet that are not its handle's are never written:
//!        they may be another fragment.
//! Trust  none: a head that is not being sent is counted. The links of a chain are kept here, not read back.
//! I4     a frame is in this table, where no code reaches its bytes, from before its buffers are on the ring
//!        until it is completed.
//! Cost   a frame of one buffer: its handle is stored, a header compared with 12 zeros, a descriptor written.

use pagepool::{DeviceAddr, ETH_HEADER, MAX_FRAGS, PageBuf, XdpBuff, XdpFrame, XdpFrameBulk};

use super::net_header;
use super::ring::{NEXT, Ring};
use crate::device::mapping_cache::MappingCache;
use crate::device::tx_slots::{self, TxFit, TxLimits, TxRing};
use crate::device::{DeviceStats, TxQueue};

/// Bytes between two headers in the ring's memory.
const HEADER_STRIDE: u64 = 16;

#[derive(Debug)]
pub(super) struct Sender {
    pub(super) ring: Ring,
    /// For each head, the buffer of a frame of one buffer.
    single: Box<[Option<PageBuf>]>,
    /// For each head, any other frame.
    several: Box<[Option<XdpFrame>]>,
    /// For each descriptor, the next one of its chain, or itself.
    links: Box<[u16]>,
    /// Buffers of all frames in the table.
    held: usize,
    /// The parts of the frame that is being sent.
    parts: [Part; MAX_FRAGS + 1],
    /// The device's address of the headers, one for each descriptor, all 0.
    headers: u64,
    limits: TxLimits,
}

/// A buffer to send: its bytes in the device's memory.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    at: u64,
    len: u32,
}

impl Sender {
    pub(super) fn new(ring: Ring, headers: u64, limits: TxLimits) -> Self {
        let size = ring.size();
        Self {
            ring,
            single: (0..size).map(|_| None).collect(),
            several: (0..size).map(|_| None).collect(),
            links: (0..size).collect(),
            held: 0,
            parts: [Part::default(); MAX_FRAGS + 1],
            headers,
            limits,
        }
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

    /// Takes packets of one buffer off the front, while there is room. Stops at a packet that has several, or
    /// that must be refused: the general path takes those.
    #[inline]
    fn transmit_packets(
        &mut self,
        packets: &mut Vec<XdpBuff>,
        mappings: &mut MappingCache,
        stats: &mut DeviceStats,
    ) -> usize {
        let room = self.ring.free().min(packets.len());
        let mut is_plain = |packet: &XdpBuff| {
            !packet.has_frags()
                && packet.headroom() >= net_header::LEN
                && (1..=self.limits.max_packet).contains(&packet.data_len())
                && mappings.addr_of(packet.buffer()).is_some()
        };
        let plain = packets[..room].iter().position(|packet| !is_plain(packet)).unwrap_or(room);
        let mut bytes = 0;
        for packet in packets.drain(..plain) {
            bytes += packet.data_len() as u64;
            self.post_plain(packet, mappings);
        }
        stats.tx_packets += plain as u64;
        stats.tx_bytes += bytes;
        plain
    }

    /// Gives the device a packet of one buffer, with its header before it. There is a descriptor.
    #[inline(always)]
    fn post_plain(&mut self, packet: XdpBuff, mappings: &mut MappingCache) {
        let (offset, len) = (packet.offset(), packet.data_len());
        let mut buffer = packet.into_buffer();
        let start = mappings.addr_of(&buffer).map_or(0, |start| start.0);
        write_header(&mut buffer, offset);
        let (at, len) = (start + (offset - net_header::LEN) as u64, len + net_header::LEN);
        if !mappings.is_coherent() {
            mappings.sync_for_device(DeviceAddr(at), len);
        }
        let head = self.ring.take_free();
        self.ring.describe(head, at, len as u32, 0, 0);
        self.links[usize::from(head)] = head;
        self.single[usize::from(head)] = Some(buffer);
        self.held += 1;
        self.ring.put(head);
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
        self.several[usize::from(head)] = Some(frame);
        self.held += buffers;
        self.ring.put(head);
    }

    /// Writes the header before the first byte of a frame in `parts`, where there is room.
    fn with_header(&mut self, frame: XdpFrame) -> XdpFrame {
        let mut packet = frame.into_buff();
        let len = net_header::LEN;
        if packet.adjust_head(-(len as isize)).is_ok() {
            packet.data_mut()[..len].copy_from_slice(&net_header::PLAIN);
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
        while frames < budget && self.ring.pending() > 0 {
            let head = self.ring.take().head;
            match self.single.get_mut(head as usize).and_then(Option::take) {
                Some(buffer) => {
                    self.ring.give_free(head as u16);
                    self.held -= 1;
                    bulk.push_buffer(buffer);
                    frames += 1;
                }
                None => frames += self.complete_chain(head, bulk, stats),
            }
        }
        stats.tx_completed += frames as u64;
        frames
    }

    #[inline(never)]
    fn complete_chain(&mut self, head: u32, bulk: &mut XdpFrameBulk, stats: &mut DeviceStats) -> usize {
        let Some(frame) = self.several.get_mut(head as usize).and_then(Option::take) else {
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

    /// Buffers of all frames in the table, sent or not.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// Drops all frames, to which the device has no more access, and empties the ring; returns how many
    /// buffers they had.
    pub(super) fn clear(&mut self) -> usize {
        self.single.iter_mut().for_each(|buffer| drop(buffer.take()));
        self.several.iter_mut().for_each(|frame| drop(frame.take()));
        self.ring.reset(false);
        std::mem::take(&mut self.held)
    }

    /// Leaks the frames that the device may still read, and keeps counting them.
    pub(super) fn forget(&mut self) {
        self.single.iter_mut().for_each(|buffer| std::mem::forget(buffer.take()));
        self.several.iter_mut().for_each(|frame| std::mem::forget(frame.take()));
    }
}

/// Writes the header before the packet at `offset`, unless it is there from the page's last use: then its
/// cache line need not move.
#[inline(always)]
fn write_header(buffer: &mut PageBuf, offset: usize) {
    let bytes = buffer.bytes_mut().and_then(|bytes| bytes.get_mut(offset - net_header::LEN..offset));
    if let Some(header) = bytes.and_then(|bytes| bytes.first_chunk_mut())
        && *header != net_header::PLAIN
    {
        *header = net_header::PLAIN;
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
        if buffers + usize::from(!has_room_for_header(frame)) > sender.ring.free() {
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
        if buffers == 1 && has_room {
            return self.sender.post_plain(frame.into_buff(), self.mappings);
        }
        let Self { sender, mappings } = self;
        let frame = if has_room { sender.with_header(frame) } else { frame };
        if !mappings.is_coherent() {
            let each = sender.parts[..buffers].iter();
            each.for_each(|part| mappings.sync_for_device(DeviceAddr(part.at), part.len as usize));
        }
        sender.post_chain(frame, buffers, !has_room);
    }
}

/// Whether the header can lie before the first byte.
#[inline(always)]
fn has_room_for_header(frame: &XdpFrame) -> bool {
    frame.headroom() >= net_header::LEN && frame.data_len() >= ETH_HEADER // as `adjust_head` requires
}
