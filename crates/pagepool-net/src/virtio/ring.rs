//! A split virtqueue: the rings that a driver and a device share, and the driver's half of them
//! (Virtual I/O Device specification, version 1.2, section 2.7).
//!
//! What   the driver describes buffers in a table, and puts the numbers of their first descriptors (heads)
//!        into the available ring. The device puts each head into the used ring when it is done with it, in
//!        any order.
//! Who    one thread at a time on the driver's side; the device, on any CPU, on the other.
//! Trust  none. Only what the device writes is read: indices, heads and lengths. An index beyond what was
//!        made available means that the device is broken ([`Ring::is_broken`]). The caller checks heads and
//!        lengths. This side keeps its own copies of all else.
//! Pairs  `publish` (Release) -> the device's load of the index (Acquire): descriptors, and buffers' bytes.
//!        The device's store of its index (Release) -> `look` (Acquire): used entries, and packets' bytes.
//!        Both directions of wake-ups: each side stores an index or its wish, then a SeqCst fence, then loads
//!        the other's wish or index. So at least one of the two sees the other's store, and no wake-up is
//!        lost.
//! Cost   a burst: a load of the device's index, a store of ours, a fence. Descriptors are used in a fixed
//!        order. If the device completes in order, the entries of the available ring never change: they are
//!        written once, and their cache lines never move.

#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicU16, AtomicU64, Ordering, fence};
#[cfg(not(all(test, loom)))]
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering, fence};

#[cfg(not(all(test, loom)))]
use std::sync::Arc;

#[cfg(not(all(test, loom)))]
use super::sys::RingMemory;
use super::sys::{Descriptor, Words};

/// Flags of a descriptor: another follows; the device writes its buffer.
pub(crate) const NEXT: u16 = 1;
pub(crate) const WRITE: u16 = 2;
/// The flag by which either side asks the other for no signals.
const NO_SIGNAL: u16 = 1;

const LINE: usize = 64;
/// Bytes of flags and index before the entries of a ring. They end a cache line, which the entries begin.
const HEAD: usize = 4;
/// Bytes of a page, on every machine that this runs on a multiple of this.
const PAGE: usize = 4096;

/// Where the parts of a queue are, in bytes from its beginning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueLayout {
    pub(crate) descriptors: usize,
    pub(crate) available: usize,
    pub(crate) used: usize,
    /// A header of 16 bytes for each descriptor.
    pub(crate) headers: usize,
    pub(crate) bytes: usize,
}

impl QueueLayout {
    pub(crate) fn new(size: u16) -> Self {
        let size = usize::from(size);
        let head_at = |after: usize| after.next_multiple_of(LINE) + LINE - HEAD;
        let available = head_at(16 * size);
        let used = head_at(available + HEAD + 2 * size + 2);
        let headers = (used + HEAD + 8 * size + 2).next_multiple_of(LINE);
        let bytes = (headers + 16 * size).next_multiple_of(PAGE);
        Self { descriptors: 0, available, used, headers, bytes }
    }
}

/// The parts of a queue, which both sides access.
#[derive(Clone, Debug)]
pub(crate) struct RingParts {
    pub(super) descriptors: Words<Descriptor>,
    pub(super) available: OneRing<AtomicU16>,
    pub(super) used: OneRing<AtomicU64>,
    pub(super) size: u16,
}

/// A ring: the flags and the index of the side that fills it, and at its end the wish of that side: after
/// which entry of the other ring it wants a signal.
#[derive(Debug)]
pub(super) struct OneRing<T> {
    pub(super) flags: Words<AtomicU16>,
    pub(super) index: Words<AtomicU16>,
    pub(super) entries: Words<T>,
    pub(super) wish: Words<AtomicU16>,
}

impl<T> Clone for OneRing<T> {
    fn clone(&self) -> Self {
        let Self { flags, index, entries, wish } = self;
        let (flags, index, wish) = (flags.clone(), index.clone(), wish.clone());
        Self { flags, index, entries: entries.clone(), wish }
    }
}

#[cfg(not(all(test, loom)))]
impl RingParts {
    /// The parts of a queue that begins `start` bytes behind the beginning of the memory.
    pub(crate) fn new(memory: &Arc<RingMemory>, start: usize, size: u16) -> Self {
        let layout = QueueLayout::new(size);
        let one = |offset: usize| Words::new(memory, start + offset, 1);
        let entries = usize::from(size);
        let (available, used) = (layout.available, layout.used);
        Self {
            descriptors: Words::new(memory, start, size),
            available: OneRing {
                flags: one(available),
                index: one(available + 2),
                entries: Words::new(memory, start + available + HEAD, size),
                wish: one(available + HEAD + 2 * entries),
            },
            used: OneRing {
                flags: one(used),
                index: one(used + 2),
                entries: Words::new(memory, start + used + HEAD, size),
                wish: one(used + HEAD + 8 * entries),
            },
            size,
        }
    }
}

/// What a device completed: the head of a chain, and how many bytes it wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Used {
    pub(crate) head: u32,
    pub(crate) len: u32,
}

/// The driver's half.
#[derive(Debug)]
pub(crate) struct Ring {
    parts: RingParts,
    mask: u16,
    /// Heads ever put, and published.
    put: u16,
    published: u16,
    /// Entries ever taken, and known to be there.
    taken: u16,
    seen: u16,
    /// What is in the available ring.
    placed: Box<[u16]>,
    free: FreeNumbers,
    has_wishes: bool,
    broken: bool,
}

impl Ring {
    /// The driver's half of a queue that no device uses.
    pub(crate) fn new(parts: RingParts) -> Self {
        let size = parts.size;
        let (placed, free) = (vec![0; size.into()].into(), FreeNumbers::new(size));
        let mut this = Self {
            parts,
            mask: size - 1,
            put: 0,
            published: 0,
            taken: 0,
            seen: 0,
            placed,
            free,
            has_wishes: false,
            broken: false,
        };
        this.reset(false);
        this
    }

    /// Empties the queue, of which no device completes anything more. `has_wishes`: whether both sides say
    /// after which entry they want a signal (`VIRTIO_F_EVENT_IDX`).
    pub(crate) fn reset(&mut self, has_wishes: bool) {
        (self.put, self.published, self.taken, self.seen) = (0, 0, 0, 0);
        (self.has_wishes, self.broken) = (has_wishes, false);
        self.free = FreeNumbers::new(self.parts.size);
        let RingParts { available, used, size, .. } = &self.parts;
        for number in 0..*size {
            self.placed[usize::from(number)] = number;
            available.entries.at(number).store(number.to_le(), Ordering::Relaxed);
        }
        [&available.index, &used.index, &used.flags, &used.wish]
            .iter()
            .for_each(|word| word.at(0).store(0, Ordering::Relaxed));
        available.flags.at(0).store(0, Ordering::Relaxed);
        self.decline_signals();
    }

    pub(crate) fn size(&self) -> u16 {
        self.parts.size
    }

    /// Whether the device's index was impossible. Nothing is taken from it any more.
    #[inline(always)]
    pub(crate) fn is_broken(&self) -> bool {
        self.broken
    }

    // ---- Descriptors -------------------------------------------------------------------------------------

    /// Descriptors that are not in use.
    #[inline(always)]
    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    /// Takes a free descriptor, of which there must be one.
    #[inline(always)]
    pub(crate) fn take_free(&mut self) -> u16 {
        self.free.take()
    }

    /// Frees a descriptor that `take_free` returned.
    #[inline(always)]
    pub(crate) fn give_free(&mut self, number: u16) {
        self.free.give(number);
    }

    #[inline(always)]
    pub(crate) fn describe(&mut self, number: u16, at: u64, len: u32, flags: u16, next: u16) {
        let Descriptor(first, second) = self.parts.descriptors.at(number);
        let rest = u64::from(len) | u64::from(flags) << 32 | u64::from(next) << 48;
        first.store(at.to_le(), Ordering::Relaxed);
        second.store(rest.to_le(), Ordering::Relaxed);
    }

    // ---- To the device -----------------------------------------------------------------------------------

    /// Puts the head of a chain into the available ring, unseen by the device.
    #[inline(always)]
    pub(crate) fn put(&mut self, head: u16) {
        let placed = &mut self.placed[usize::from(self.put & self.mask)];
        if *placed != head {
            *placed = head;
            self.parts.available.entries.at(self.put).store(head.to_le(), Ordering::Relaxed);
        }
        self.put = self.put.wrapping_add(1);
    }

    /// Publishes what was put. Returns whether the device wants a signal.
    #[inline(always)]
    pub(crate) fn publish(&mut self) -> bool {
        let before = std::mem::replace(&mut self.published, self.put);
        if before == self.put {
            return false;
        }
        let RingParts { available, used, .. } = &self.parts;
        available.index.at(0).store(self.put.to_le(), Ordering::Release); // pairs with the device's look
        fence(Ordering::SeqCst); // pairs with the fence of a device that goes to sleep
        if self.has_wishes {
            let wish = u16::from_le(used.wish.at(0).load(Ordering::Relaxed));
            is_passed(wish, self.put, before)
        } else {
            u16::from_le(used.flags.at(0).load(Ordering::Relaxed)) & NO_SIGNAL == 0
        }
    }

    // ---- From the device ---------------------------------------------------------------------------------

    /// Completed chains. Reads the device's index only if none is known.
    #[inline(always)]
    pub(crate) fn pending(&mut self) -> usize {
        match self.seen.wrapping_sub(self.taken) {
            0 => self.look(),
            known => known.into(),
        }
    }

    #[inline(always)]
    fn look(&mut self) -> usize {
        let index = self.parts.used.index.at(0).load(Ordering::Acquire); // pairs with the device's publish
        let index = u16::from_le(index);
        let there = index.wrapping_sub(self.taken);
        if there > self.published.wrapping_sub(self.taken) {
            self.broken = true;
            return 0;
        }
        self.seen = index;
        there.into()
    }

    /// Takes a completed chain, of which one must be [`pending`](Self::pending).
    #[inline(always)]
    pub(crate) fn take(&mut self) -> Used {
        let entry = u64::from_le(self.parts.used.entries.at(self.taken).load(Ordering::Relaxed));
        self.taken = self.taken.wrapping_add(1);
        Used { head: entry as u32, len: (entry >> 32) as u32 }
    }

    /// Takes as many completed chains as there is room for; so many must be [`pending`](Self::pending).
    #[inline(always)]
    pub(crate) fn take_burst(&mut self, into: &mut [Used]) {
        for used in into {
            *used = self.take();
        }
    }

    // ---- Sleeping ----------------------------------------------------------------------------------------

    /// From now on the device signals when it has completed `more` chains beyond the next. Look for pending
    /// ones before the sleep.
    pub(crate) fn request_signal(&mut self, more: u16) {
        let available = &self.parts.available;
        if self.has_wishes {
            let wish = self.taken.wrapping_add(more);
            available.wish.at(0).store(wish.to_le(), Ordering::Relaxed);
        } else {
            available.flags.at(0).store(0, Ordering::Relaxed);
        }
        fence(Ordering::SeqCst); // pairs with the fence of the device's publish
    }

    /// From now on the device need not signal.
    pub(crate) fn decline_signals(&mut self) {
        let available = &self.parts.available;
        if self.has_wishes {
            // The entry before the next: it is passed again after 65,536 entries.
            available.wish.at(0).store(self.taken.wrapping_sub(1).to_le(), Ordering::Relaxed);
        } else {
            available.flags.at(0).store(NO_SIGNAL.to_le(), Ordering::Relaxed);
        }
    }

    /// Chains that the device has.
    pub(crate) fn outstanding(&self) -> u16 {
        self.published.wrapping_sub(self.taken)
    }
}

/// Whether an index that went from `before` to `now` went past the entry after which a signal is wanted.
#[inline(always)]
pub(super) fn is_passed(wish: u16, now: u16, before: u16) -> bool {
    now.wrapping_sub(wish).wrapping_sub(1) < now.wrapping_sub(before)
}

/// Whether a side with these flags wants signals.
#[cfg(any(test, feature = "testing"))]
pub(super) fn wants_signals(flags: u16) -> bool {
    flags & NO_SIGNAL == 0
}

/// The flags of a side that wants signals, or does not.
#[cfg(any(test, feature = "testing"))]
pub(super) fn flags_of(wants: bool) -> u16 {
    if wants { 0 } else { NO_SIGNAL }
}

/// The numbers of free descriptors, first in, first out: if chains are completed in order, each descriptor
/// is always used at one place of the available ring.
#[derive(Debug)]
struct FreeNumbers {
    numbers: Box<[u16]>,
    taken: u16,
    given: u16,
}

impl FreeNumbers {
    fn new(size: u16) -> Self {
        Self { numbers: (0..size).collect(), taken: 0, given: size }
    }

    #[inline(always)]
    fn len(&self) -> usize {
        self.given.wrapping_sub(self.taken).into()
    }

    #[inline(always)]
    fn take(&mut self) -> u16 {
        debug_assert!(self.len() > 0, "the caller counted them");
        let at = usize::from(self.taken) & (self.numbers.len() - 1);
        self.taken = self.taken.wrapping_add(1);
        self.numbers[at]
    }

    #[inline(always)]
    fn give(&mut self, number: u16) {
        debug_assert!(self.len() < self.numbers.len(), "it was taken");
        let at = usize::from(self.given) & (self.numbers.len() - 1);
        self.given = self.given.wrapping_add(1);
        self.numbers[at] = number;
    }
}
