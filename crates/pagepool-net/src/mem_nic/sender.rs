//! The driver's sending half: gives the buffers of frames to the device, and takes back completed frames.
//!
//! Trust  none: each buffer of a frame has its own slot and id.

use pagepool::{MAX_FRAGS, XdpFrame, XdpFrameBulk};
use rtrb::{Consumer, Producer};

use super::descriptor::{BufferId, Posted};
use crate::device::mapping_cache::MappingCache;
use crate::device::tx_slots::{self, NotInUse, TxFit, TxLimits, TxRing, TxSlots};
use crate::device::{DeviceStats, TxQueue};

/// Completions taken off the ring in one read.
const BURST: usize = 64;

#[derive(Debug)]
pub(super) struct Sender {
    send: Producer<Posted>,
    done: Consumer<BufferId>,
    burst: Box<[BufferId; BURST]>,
    slots: TxSlots<SlotLife>,
    /// The descriptors of the frame that is being sent.
    posted: [Posted; MAX_FRAGS + 1],
    limits: TxLimits,
}

/// The current life of a slot, and whether the device has its buffer.
#[derive(Debug)]
struct SlotLife {
    life: u16,
    sending: bool,
}

impl Sender {
    pub(super) fn new(send: Producer<Posted>, done: Consumer<BufferId>, limits: TxLimits) -> Self {
        let slots = send.buffer().capacity();
        Self {
            send,
            done,
            burst: Box::new([BufferId::default(); BURST]),
            slots: TxSlots::new(slots, || SlotLife { life: 0, sending: false }),
            posted: [Posted::NONE; MAX_FRAGS + 1],
            limits,
        }
    }

    /// Sends frames from the queue's front while there is room; returns how many. Refuses frames that can
    /// never be sent.
    #[inline]
    pub(super) fn transmit(
        &mut self,
        queue: &mut TxQueue,
        mappings: &mut MappingCache,
        stats: &mut DeviceStats,
    ) -> usize {
        tx_slots::send(&mut CableSending { sender: self, mappings }, queue, stats)
    }

    /// Whether the ring has room for `buffers` descriptors. It has one for each free slot, unless the device
    /// completes descriptors that are still on the ring.
    #[inline]
    fn has_places(&self, buffers: usize) -> bool {
        self.send.cached_slots() >= buffers || self.send.slots() >= buffers
    }

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
                    Err(NotInUse) => stats.tx_bad_descriptor += 1,
                }
            }
            if got < want || want == 0 {
                break;
            }
        }
        stats.tx_completed += frames as u64;
        frames
    }

    /// Takes back a completed buffer; returns the frame if it was its last.
    #[inline]
    fn finish(&mut self, id: BufferId) -> Result<Option<XdpFrame>, NotInUse> {
        self.slots.finish(id.slot() as u32, |slot| {
            let is_in_use = slot.sending && slot.life == id.life();
            if is_in_use {
                slot.sending = false;
                slot.life = slot.life.wrapping_add(1);
            }
            is_in_use
        })
    }

    #[inline]
    pub(super) fn room(&self) -> usize {
        self.slots.free()
    }

    pub(super) fn has_some(&self) -> bool {
        !self.done.is_empty()
    }

    /// Buffers of all frames in the table, sent or not.
    pub(super) fn held(&self) -> usize {
        self.slots.held()
    }

    /// Drops all frames, once the port has no more access; returns how many buffers they had.
    pub(super) fn clear(&mut self) -> usize {
        self.slots.clear()
    }
}

/// The sender, and the memory that the device can access.
struct CableSending<'a> {
    sender: &'a mut Sender,
    mappings: &'a mut MappingCache,
}

impl TxRing for CableSending<'_> {
    /// Leaves addresses and lengths of the frame's buffers in `posted`.
    #[inline]
    fn fit(&mut self, frame: &XdpFrame) -> TxFit {
        let sender = &mut *self.sender;
        let buffers = match sender.limits.buffers_of(frame) {
            Ok(buffers) => buffers,
            Err(never) => return never,
        };
        if buffers > sender.slots.free() || !sender.has_places(buffers) {
            return TxFit::Later;
        }
        for (segment, posted) in frame.segments().zip(&mut sender.posted) {
            let Some(start) = self.mappings.addr_of(segment.buffer) else { return TxFit::Unmapped };
            posted.at.0 = start.0 + segment.offset as u64;
            posted.len = segment.len as u32;
        }
        TxFit::Now(buffers)
    }

    /// Gives a frame to the device, whose buffers are in `posted`. There must be slots and places for them.
    #[inline]
    fn post(&mut self, frame: Option<XdpFrame>, buffers: usize) {
        let Sender { send, slots, posted, .. } = &mut *self.sender;
        let each = posted[..buffers].iter_mut().enumerate();
        slots.insert(frame, each, |(at, posted), slot, tag| {
            tag.sending = true;
            posted.id = BufferId::new(slot as u16, tag.life);
            posted.last = at + 1 == buffers;
            self.mappings.sync_for_device(posted.at, posted.len as usize);
        });
        send.push_entire_slice(&posted[..buffers]).expect("places were counted before");
    }
}
