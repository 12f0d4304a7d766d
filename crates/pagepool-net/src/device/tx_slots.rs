//! The table of frames that are being sent, for devices whose rings name buffers, not frames.
//!
//! What   one slot for each buffer of each frame that the device has. The first slot of a frame has the
//!        frame; the others refer to the first. A frame leaves with its last completed buffer, in any order.
//!        The tag of a slot lets a device find it, or know that it is in use.
//! Trust  none: a completion's slot is checked by its tag. Then no buffer is completed twice, and no frame is
//!        freed while the device still reads one of its buffers.
//! I4     a frame is in this table, where no code reaches its bytes, from before its buffers are on a ring
//!        until the last is completed.
//! Cost   a frame of one buffer: pop and push a free slot. Nothing is allocated.

use pagepool::XdpFrame;

use super::stats::DeviceStats;
use super::tx_queue::TxQueue;

#[derive(Debug)]
pub(crate) struct TxSlots<T> {
    slots: Box<[TxSlot<T>]>,
    free: Vec<u32>,
    /// Buffers of all frames in the table.
    held: usize,
}

#[derive(Debug)]
struct TxSlot<T> {
    /// Only in the first slot of a frame.
    frame: Option<XdpFrame>,
    tag: T,
    /// The first slot of this one's frame.
    head: u32,
    /// Only in the first slot: buffers of the frame, and how many of them the device still has.
    buffers: u8,
    left: u8,
}

impl<T> TxSlots<T> {
    pub(crate) fn new(slots: usize, tag: impl Fn() -> T) -> Self {
        let slot = |_| TxSlot { frame: None, tag: tag(), head: 0, buffers: 0, left: 0 };
        Self { slots: (0..slots).map(slot).collect(), free: (0..slots as u32).rev().collect(), held: 0 }
    }

    #[inline(always)]
    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    #[inline(always)]
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// The tag of a slot, in use or not.
    #[inline(always)]
    pub(crate) fn tag(&mut self, slot: usize) -> Option<&mut T> {
        self.slots.get_mut(slot).map(|slot| &mut slot.tag)
    }

    /// Inserts a frame; there must be a free slot for each of its buffers. Calls `each` with every buffer,
    /// its slot and the slot's tag.
    #[inline(always)]
    pub(crate) fn insert<B>(
        &mut self,
        frame: Option<XdpFrame>,
        buffers: impl ExactSizeIterator<Item = B>,
        mut each: impl FnMut(B, u32, &mut T),
    ) {
        let head = self.free[self.free.len() - 1];
        let count = buffers.len();
        for buffer in buffers {
            let free = self.free.pop().expect("slots were counted before");
            let slot = &mut self.slots[free as usize];
            slot.head = head;
            each(buffer, free, &mut slot.tag);
        }
        let first = &mut self.slots[head as usize];
        (first.frame, first.buffers, first.left) = (frame, count as u8, count as u8);
        self.held += count;
    }

    /// Marks the buffer of a slot as completed, if `is_in_use` accepts the slot's tag. Returns the frame if
    /// this was its last buffer.
    #[inline(always)]
    pub(crate) fn finish(
        &mut self,
        slot: u32,
        is_in_use: impl FnOnce(&mut T) -> bool,
    ) -> Result<Option<XdpFrame>, NotInUse> {
        let found = self.slots.get_mut(slot as usize).ok_or(NotInUse)?;
        if !is_in_use(&mut found.tag) {
            return Err(NotInUse);
        }
        let head = found.head;
        if slot != head {
            self.free.push(slot);
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

    #[cfg(test)]
    pub(crate) fn heads(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter(|slot| slot.frame.is_some()).map(|slot| &slot.tag)
    }

    /// Drops all frames, once the device has no more access; returns how many buffers they had.
    pub(crate) fn clear(&mut self) -> usize {
        self.slots.iter_mut().for_each(|slot| drop(slot.frame.take()));
        std::mem::take(&mut self.held)
    }

    /// Leaks the frames that the device has, and keeps counting them and the `elsewhere` buffers.
    pub(crate) fn forget(&mut self, elsewhere: usize) {
        self.held += elsewhere;
        self.slots.iter_mut().for_each(|slot| std::mem::forget(slot.frame.take()));
    }
}

/// A completion names a slot from which nothing is being sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NotInUse;

/// The longest packet of a device, and the most buffers of a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TxLimits {
    pub(crate) max_packet: usize,
    pub(crate) max_buffers: usize,
}

impl TxLimits {
    /// The number of buffers of a frame; an error if it can never be sent.
    #[inline(always)]
    pub(crate) fn buffers_of(&self, frame: &XdpFrame) -> Result<usize, TxFit> {
        let buffers = frame.segment_count();
        if buffers > self.max_buffers || !(1..=self.max_packet).contains(&frame.len()) {
            return Err(TxFit::TooLong);
        }
        Ok(buffers)
    }
}

/// Whether the frame at the front of a queue can be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TxFit {
    /// It can be sent now, as that many buffers.
    Now(usize),
    /// It cannot be sent yet: there is no room.
    Later,
    TooLong,
    Unmapped,
    /// It requests something that the device does not support.
    BadMetadata,
}

pub(crate) trait TxRing {
    /// Whether the frame can be sent now. If so, `post` must follow.
    fn fit(&mut self, frame: &XdpFrame) -> TxFit;

    /// Puts the frame, of that many buffers, on the ring.
    fn post(&mut self, frame: Option<XdpFrame>, buffers: usize);
}

/// Sends frames from the queue's front while there is room; returns how many. Refuses frames that can never
/// be sent.
#[inline(always)]
pub(crate) fn send(ring: &mut impl TxRing, queue: &mut TxQueue, stats: &mut DeviceStats) -> usize {
    let mut sent = 0;
    while let Some(frame) = queue.front() {
        match ring.fit(frame) {
            TxFit::Later => {
                stats.tx_full += 1;
                break;
            }
            TxFit::TooLong => stats.tx_too_long += 1,
            TxFit::Unmapped => stats.tx_unmapped += 1,
            TxFit::BadMetadata => stats.tx_bad_metadata += 1,
            TxFit::Now(buffers) => {
                stats.tx_packets += 1;
                stats.tx_bytes += frame.len() as u64;
                ring.post(queue.pop_shown(), buffers);
                sent += 1;
                continue;
            }
        }
        queue.refuse();
    }
    sent
}
