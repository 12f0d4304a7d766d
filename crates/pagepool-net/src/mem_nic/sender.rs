//! The driver's sending half: gives the buffers of frames to the device, and the frames back when it is done with them.
//!
//! Trust  none, as in the receiving half. Each buffer of a frame has a slot and an id of its own, so that a device which
//!        completes one buffer twice does not get a frame freed of which it still reads another.

use pagepool::{MAX_FRAGS, XdpFrame, XdpFrameBulk};
use rtrb::{Consumer, Producer};

use super::descriptor::{BufferId, Posted};
use crate::device::mapping_cache::MappingCache;
use crate::device::{DeviceStats, TxQueue};

/// Completions that are taken off the ring at once.
const BURST: usize = 64;

#[derive(Debug)]
pub(super) struct Sender {
    send: Producer<Posted>,
    done: Consumer<BufferId>,
    burst: Box<[BufferId; BURST]>,
    slots: Box<[Slot]>,
    free: Vec<u16>,
    /// The descriptors of the frame that is being sent, on their way to the ring.
    parts: [Posted; MAX_FRAGS + 1],
    max_packet: usize,
    max_buffers: usize,
    /// Buffers of all frames that are here.
    held: usize,
}

#[derive(Debug)]
struct Slot {
    /// In the first slot of a frame.
    frame: Option<XdpFrame>,
    /// Buffers of that frame, and how many of them the device has still.
    buffers: u8,
    left: u8,
    /// The first slot of this one's frame.
    head: u16,
    life: u16,
    /// Whether the device has this slot's buffer.
    sending: bool,
}

/// What becomes of the frame at the front of a queue.
enum Verdict {
    /// Sent, as so many buffers.
    Fits(usize),
    /// Not yet.
    Full,
    TooLong,
    Unmapped,
}

impl Sender {
    pub(super) fn new(
        send: Producer<Posted>,
        done: Consumer<BufferId>,
        max_packet: usize,
        max_buffers: usize,
    ) -> Self {
        let slots = send.buffer().capacity();
        let slot = || Slot { frame: None, buffers: 0, left: 0, head: 0, life: 0, sending: false };
        Self {
            send,
            done,
            burst: Box::new([BufferId::default(); BURST]),
            slots: (0..slots).map(|_| slot()).collect(),
            free: (0..slots as u16).rev().collect(),
            parts: [Posted::NONE; MAX_FRAGS + 1],
            max_packet,
            max_buffers,
            held: 0,
        }
    }

    /// Takes frames off the front while there is room; says how many. Those that can never be sent are refused.
    #[inline]
    pub(super) fn transmit(
        &mut self,
        queue: &mut TxQueue,
        reach: &mut MappingCache,
        stats: &mut DeviceStats,
    ) -> usize {
        let mut taken = 0;
        while let Some(frame) = queue.front() {
            match self.judge(frame, reach) {
                Verdict::Full => {
                    stats.tx_full += 1;
                    break;
                }
                Verdict::TooLong => stats.tx_too_long += 1,
                Verdict::Unmapped => stats.tx_unmapped += 1,
                Verdict::Fits(buffers) => {
                    stats.tx_packets += 1;
                    stats.tx_bytes += frame.len() as u64;
                    self.post(queue.pop(), buffers, reach);
                    taken += 1;
                    continue;
                }
            }
            queue.refuse();
        }
        taken
    }

    /// Whether a frame can be sent; if so, addresses and lengths of its buffers stand in `parts`.
    #[inline]
    fn judge(&mut self, frame: &XdpFrame, reach: &mut MappingCache) -> Verdict {
        let buffers = frame.segment_count();
        if buffers > self.max_buffers || !(1..=self.max_packet).contains(&frame.len()) {
            return Verdict::TooLong;
        }
        if buffers > self.free.len() || !self.has_places(buffers) {
            return Verdict::Full;
        }
        let mut seen = 0;
        for (segment, part) in frame.segments().zip(&mut self.parts) {
            let Some(start) = segment.buffer().and_then(|buffer| reach.addr_of(buffer)) else {
                return Verdict::Unmapped;
            };
            part.at.0 = start.0 + segment.offset() as u64;
            part.len = segment.len() as u32;
            seen += 1;
        }
        // Memory that is no pool's has no segment, and no device address.
        if seen == buffers { Verdict::Fits(buffers) } else { Verdict::Unmapped }
    }

    /// Whether the ring has places for so many. As many as there are slots, unless the device completes what it has not
    /// taken off the ring.
    #[inline]
    fn has_places(&self, buffers: usize) -> bool {
        self.send.cached_slots() >= buffers || self.send.slots() >= buffers
    }

    /// Hands a frame to the device whose buffers stand in `parts`; there are slots and places
    /// for them.
    #[inline]
    fn post(&mut self, frame: Option<XdpFrame>, buffers: usize, reach: &MappingCache) {
        let head = self.free[self.free.len() - 1];
        for (at, part) in self.parts[..buffers].iter_mut().enumerate() {
            let free = self.free.pop().expect("slots were counted before");
            let slot = &mut self.slots[free as usize];
            (slot.head, slot.sending) = (head, true);
            part.id = BufferId::new(free, slot.life);
            part.last = at + 1 == buffers;
            reach.sync_for_device(part.at, part.len as usize);
        }
        let first = &mut self.slots[head as usize];
        (first.frame, first.buffers, first.left) = (frame, buffers as u8, buffers as u8);
        self.held += buffers;
        let pushed = self.send.push_entire_slice(&self.parts[..buffers]);
        pushed.expect("places were counted before");
    }

    /// Moves frames that were sent into the bulk, at most `budget`.
    #[inline]
    pub(super) fn complete(
        &mut self,
        bulk: &mut XdpFrameBulk,
        budget: usize,
        stats: &mut DeviceStats,
    ) -> usize {
        let mut frames = 0;
        loop {
            let want = BURST.min(budget - frames);
            let got = self.done.pop_partial_slice(&mut self.burst[..want]).0.len();
            for at in 0..got {
                match self.finish(self.burst[at]) {
                    Ok(None) => {}
                    Ok(Some(frame)) => {
                        bulk.push(frame);
                        frames += 1;
                    }
                    Err(()) => stats.tx_bad_descriptor += 1,
                }
            }
            if got < want || want == 0 {
                break;
            }
        }
        stats.tx_completed += frames as u64;
        frames
    }

    /// The device is done with a buffer; gives the frame that it was the last of. An error is an id that it does not
    /// have.
    #[inline]
    fn finish(&mut self, id: BufferId) -> Result<Option<XdpFrame>, ()> {
        let slot = self.slots.get_mut(id.slot()).filter(|slot| slot.sending && slot.life == id.life());
        let slot = slot.ok_or(())?;
        slot.sending = false;
        slot.life = slot.life.wrapping_add(1);
        let head = slot.head;
        if id.slot() != head as usize {
            self.free.push(id.slot() as u16);
        }
        let first = &mut self.slots[head as usize];
        first.left -= 1;
        if first.left > 0 {
            return Ok(None);
        }
        self.held -= first.buffers as usize;
        self.free.push(head);
        Ok(first.frame.take())
    }

    /// Buffers that there is room for.
    #[inline]
    pub(super) fn room(&self) -> usize {
        self.free.len()
    }

    /// Whether there are completions.
    pub(super) fn has_some(&self) -> bool {
        !self.done.is_empty()
    }

    /// Buffers of the frames that are here, sent or not.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// Takes everything back, once the port is shut out; says how many buffers there were.
    pub(super) fn clear(&mut self) -> usize {
        self.slots.iter_mut().for_each(|slot| drop(slot.frame.take()));
        std::mem::take(&mut self.held)
    }
}
