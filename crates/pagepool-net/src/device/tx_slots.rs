//! The table of what is being sent, for devices whose rings name buffers, not frames.
//!
//! What   a slot for each buffer of each frame that the device has. The first one has the frame; the others
//!        say where it is. A frame comes out with the last of its buffers, in whatever order they are
//!        completed. Each slot has a tag besides, by which a device finds it again, or knows that it is in
//!        use.
//! Trust  none: the code that takes a completion checks its slot by the tag. Then no buffer is completed
//!        twice, and no frame is freed of which the device still reads another buffer.
//! I4     a frame is in here, where nobody reaches its bytes, from before its buffers are on a ring until the
//!        last is completed.
//! Cost   a frame of one buffer: a slot off the stack of free ones and back. Nothing is allocated.

use pagepool::XdpFrame;

use super::stats::DeviceStats;
use super::tx_queue::TxQueue;

/// Frames that are being sent, by the slots of their buffers.
#[derive(Debug)]
pub(crate) struct TxSlots<T> {
    slots: Box<[TxSlot<T>]>,
    free: Vec<u32>,
    /// Buffers of all frames that are here.
    held: usize,
}

#[derive(Debug)]
struct TxSlot<T> {
    /// In the first slot of a frame.
    frame: Option<XdpFrame>,
    tag: T,
    /// The first slot of this one's frame.
    head: u32,
    /// In the first slot: buffers of the frame, and how many of them the device has still.
    buffers: u8,
    left: u8,
}

impl<T> TxSlots<T> {
    pub(crate) fn new(slots: usize, tag: impl Fn() -> T) -> Self {
        let slot = |_| TxSlot { frame: None, tag: tag(), head: 0, buffers: 0, left: 0 };
        Self { slots: (0..slots).map(slot).collect(), free: (0..slots as u32).rev().collect(), held: 0 }
    }

    /// Slots without a buffer.
    #[inline(always)]
    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    /// Buffers of the frames that are here, sent or not.
    #[inline(always)]
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// The tag of a slot, which need not be in use.
    #[inline(always)]
    pub(crate) fn tag(&mut self, slot: usize) -> Option<&mut T> {
        self.slots.get_mut(slot).map(|slot| &mut slot.tag)
    }

    /// Puts a frame in, for whose buffers there are free slots. Each is told to the closure, with the
    /// slot and its tag.
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

    /// The device is done with the buffer of a slot, if that is in use: the closure says so by its tag. Gives
    /// the frame of which it was the last.
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

    /// The tags of those slots that have a frame.
    #[cfg(test)]
    pub(crate) fn heads(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter(|slot| slot.frame.is_some()).map(|slot| &slot.tag)
    }

    /// Takes everything back, once the device is shut out; says how many buffers there were.
    pub(crate) fn clear(&mut self) -> usize {
        self.slots.iter_mut().for_each(|slot| drop(slot.frame.take()));
        std::mem::take(&mut self.held)
    }

    /// Leaks what the device has, and goes on counting it, with the buffers that are elsewhere.
    pub(crate) fn forget(&mut self, elsewhere: usize) {
        self.held += elsewhere;
        self.slots.iter_mut().for_each(|slot| std::mem::forget(slot.frame.take()));
    }
}

/// Nothing is being sent from a slot that a completion names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NotInUse;

/// The longest packet of a device, and the most buffers that one may have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TxLimits {
    pub(crate) max_packet: usize,
    pub(crate) max_buffers: usize,
}

impl TxLimits {
    /// How many buffers a frame has; none if it can never be sent.
    #[inline(always)]
    pub(crate) fn buffers_of(&self, frame: &XdpFrame) -> Result<usize, TxFit> {
        let buffers = frame.segment_count();
        if buffers > self.max_buffers || !(1..=self.max_packet).contains(&frame.len()) {
            return Err(TxFit::TooLong);
        }
        Ok(buffers)
    }
}

/// What becomes of the frame at the front of a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TxFit {
    /// Sent, as that many buffers.
    Now(usize),
    /// Not yet: there is no room.
    Later,
    TooLong,
    Unmapped,
    /// It asks for something that the device does not do.
    BadMetadata,
}

/// A ring that frames are put on.
pub(crate) trait TxRing {
    /// Whether the frame can be sent now. If so, `post` follows.
    fn fit(&mut self, frame: &XdpFrame) -> TxFit;

    /// Puts the frame, of that many buffers, on the ring.
    fn post(&mut self, frame: Option<XdpFrame>, buffers: usize);
}

/// Takes frames off the queue's front while there is room; says how many. Those that can never be sent are
/// refused.
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
