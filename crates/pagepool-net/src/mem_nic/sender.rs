//! The driver's sending half: gives the buffers of frames to the device, and the frames back when it is done
//! with them.
//!
//! Trust  none, as in the receiving half: each buffer of a frame has a slot, and an id of its own.

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
    /// The descriptors of the frame that is being sent, on their way to the ring.
    posted: [Posted; MAX_FRAGS + 1],
    limits: TxLimits,
}

/// Which of its lives a slot is in, and whether the device has its buffer.
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

    /// Takes frames off the front while there is room; says how many. Those that can never be sent are
    /// refused.
    #[inline]
    pub(super) fn transmit(
        &mut self,
        queue: &mut TxQueue,
        mappings: &mut MappingCache,
        stats: &mut DeviceStats,
    ) -> usize {
        tx_slots::send(&mut CableSending { sender: self, mappings }, queue, stats)
    }

    /// Whether the ring has room for `buffers` descriptors. As many as there are slots, unless the device
    /// completes what it has not taken off the ring.
    #[inline]
    fn has_places(&self, buffers: usize) -> bool {
        self.send.cached_slots() >= buffers || self.send.slots() >= buffers
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

    /// The device is done with a buffer; gives the frame that it was the last of.
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

    /// Buffers that there is room for.
    #[inline]
    pub(super) fn room(&self) -> usize {
        self.slots.free()
    }

    /// Whether there are completions.
    pub(super) fn has_some(&self) -> bool {
        !self.done.is_empty()
    }

    /// Buffers of the frames that are here, sent or not.
    pub(super) fn held(&self) -> usize {
        self.slots.held()
    }

    /// Takes everything back, once the port is shut out; says how many buffers there were.
    pub(super) fn clear(&mut self) -> usize {
        self.slots.clear()
    }
}

/// The ring, and the memory that the device can access.
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
        let mut seen = 0;
        for (segment, posted) in frame.segments().zip(&mut sender.posted) {
            let Some(start) = segment.buffer().and_then(|buffer| self.mappings.addr_of(buffer)) else {
                return TxFit::Unmapped;
            };
            posted.at.0 = start.0 + segment.offset() as u64;
            posted.len = segment.len() as u32;
            seen += 1;
        }
        // Memory that is no pool's has no segment, and no device address.
        if seen == buffers { TxFit::Now(buffers) } else { TxFit::Unmapped }
    }

    /// Hands a frame to the device whose buffers stand in `posted`; there are slots and places for them.
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
