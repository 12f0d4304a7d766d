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
//!        Wake-ups: each side stores its index or its request for a signal, then a SeqCst fence, then loads
//!        the other's. At least one sees the other's store, so none is lost.
//! Cost   a burst: a load of the device's index, a store of ours, a fence. Descriptors are used in a fixed
//!        order. If the device completes in order, the entries of the available ring never change: they are
//!        written once, and their cache lines never move.

#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicU16, AtomicU64, Ordering, fence};
#[cfg(not(all(test, loom)))]
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering, fence};

use std::sync::Arc;

use super::sys::{Descriptor, RingMemory, Words};
use crate::sys::prefetch;

/// Flags of a descriptor: another follows; the device writes its buffer.
pub(crate) const NEXT: u16 = 1;
pub(crate) const WRITE: u16 = 2;
/// The flag by which either side asks the other for no signals.
const NO_SIGNAL: u16 = 1;

const LINE: usize = prefetch::LINE;
/// Descriptors, and used entries, in a cache line.
const IN_LINE: usize = LINE / size_of::<Descriptor>();
const USED_IN_LINE: usize = LINE / size_of::<u64>();
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

/// A ring: the flags and the index of the side that fills it, and at its end that side's request for a signal
/// (`wish`): after which entry of the other ring it wants one.
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

    /// Fetches the lines of the next `n` free descriptors, which the device's CPU may have: together, the misses
    /// overlap.
    #[inline(always)]
    pub(crate) fn prefetch_free(&self, n: usize) {
        let first = self.free.next();
        for number in (0..n as u16).step_by(IN_LINE) {
            // Near enough: out of order, some of them are others.
            prefetch::to_write(self.parts.descriptors.at(first.wrapping_add(number)));
        }
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
            0 if self.broken => 0,
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
        for number in (0..into.len() as u16).step_by(USED_IN_LINE) {
            prefetch::to_read(self.parts.used.entries.at(self.taken.wrapping_add(number)));
        }
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

    /// The number that is taken next, if there is one.
    #[inline(always)]
    fn next(&self) -> u16 {
        self.numbers[usize::from(self.taken) & (self.numbers.len() - 1)]
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

#[cfg(test)]
fn halves(size: u16, has_wishes: bool) -> (Ring, super::device_ring::DeviceRing) {
    let memory = RingMemory::new(QueueLayout::new(size).bytes).expect("a page or two");
    let parts = RingParts::new(&memory, 0, size);
    let mut driver = Ring::new(parts.clone());
    driver.reset(has_wishes);
    let mut device = super::device_ring::DeviceRing::new(parts, has_wishes);
    device.want_signals(false);
    (driver, device)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn parts_neither_overlap_nor_leave_their_alignment() {
        for size in [2, 8, 256, 1 << 15] {
            let layout = QueueLayout::new(size);
            let entries = usize::from(size);
            assert!(16 * entries <= layout.available && layout.available % 2 == 0);
            assert!(layout.available + 6 + 2 * entries <= layout.used && layout.used % 4 == 0);
            assert!(layout.used + 6 + 8 * entries <= layout.headers && layout.headers % 16 == 0);
            assert!(layout.headers + 16 * entries <= layout.bytes && layout.bytes % PAGE == 0);
            assert_eq!((layout.used + HEAD) % LINE, 0, "an entry is one aligned word");
        }
    }

    /// Sends `rounds` times as many chains as the queue has room for; the device completes each burst in the
    /// order that `arrange` makes.
    fn exchange(has_wishes: bool, rounds: u32, arrange: fn(&mut [u16])) -> (Ring, usize) {
        let (mut driver, mut device) = halves(8, has_wishes);
        let mut changes = 0;
        for round in 0..rounds {
            while driver.free() > 0 {
                let number = driver.take_free();
                driver.describe(number, u64::from(round), u32::from(number), 0, 0);
                changes += usize::from(driver.placed[usize::from(driver.put & 7)] != number);
                driver.put(number);
            }
            assert!(!driver.publish(), "the device declines signals");
            let mut heads: Vec<u16> = (0..device.pending()).map(|_| device.take()).collect();
            assert_eq!(heads.len(), 8);
            arrange(&mut heads);
            for &head in &heads {
                let described = device.described(head);
                assert_eq!((described.at, described.len), (round.into(), head.into()));
                device.complete(Used { head: head.into(), len: 7 });
            }
            assert!(!device.publish(), "so does the driver");
            for head in heads {
                assert!(driver.pending() > 0);
                assert_eq!(driver.take(), Used { head: head.into(), len: 7 });
                driver.give_free(head);
            }
            assert_eq!((driver.pending(), driver.outstanding(), driver.is_broken()), (0, 0, false));
        }
        (driver, changes)
    }

    #[test]
    fn indices_wrap_around() {
        for has_wishes in [false, true] {
            // A request at the last entry is passed once in 65,536: one signal too many, not one too few.
            exchange(has_wishes, 8191, |_| {});
        }
        exchange(false, 3 * 8192 + 1, |_| {});
    }

    #[test]
    fn in_order_the_available_ring_never_changes() {
        assert_eq!(exchange(true, 100, |_| {}).1, 0);
        assert!(exchange(true, 100, |heads| heads.reverse()).1 > 0);
    }

    #[test]
    fn an_index_beyond_what_was_made_available_is_never_followed() {
        for by in [1, 2, 7, 0x7fff, 0x8000, 0xffff] {
            let (mut driver, mut device) = halves(8, false);
            driver.take_free();
            driver.put(0);
            driver.publish();
            assert_eq!(driver.pending(), 0);
            device.shift(by);
            device.publish();
            let there = driver.pending();
            assert_eq!((there, driver.is_broken()), (usize::from(by == 1), by != 1), "by {by}");
        }
    }

    #[test]
    fn a_signal_is_wanted_after_the_entry_that_was_named() {
        let (mut driver, mut device) = halves(8, true);
        let send = |driver: &mut Ring, n: usize| {
            for _ in 0..n {
                let number = driver.take_free();
                driver.put(number);
            }
            driver.publish()
        };
        assert!(!send(&mut driver, 3));
        driver.request_signal(1); // after the second
        let complete = |device: &mut super::super::device_ring::DeviceRing| {
            let head = device.take().into();
            device.complete(Used { head, len: 0 });
            device.publish()
        };
        assert_eq!(device.pending(), 3);
        assert_eq!([(); 3].map(|()| complete(&mut device)), [false, true, false]);
        device.want_signals(true);
        assert!(send(&mut driver, 1) && !send(&mut driver, 1), "only the next one");
    }
}

/// Checks every interleaving, in every order that the memory model allows.
#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU32;
    use loom::thread;

    #[test]
    fn what_is_published_arrives_whole_and_returns_whole() {
        loom::model(|| {
            let (mut driver, mut device) = halves(2, false);
            let bytes = Arc::new(AtomicU32::new(0));
            let written = bytes.clone();
            let device = thread::spawn(move || {
                for _ in 0..2 {
                    if device.pending() > 0 {
                        let head = device.take();
                        assert_eq!((device.described(head).at, bytes.load(Ordering::Relaxed)), (5, 1));
                        bytes.store(2, Ordering::Relaxed);
                        device.complete(Used { head: head.into(), len: 3 });
                        device.publish();
                        break;
                    }
                    thread::yield_now();
                }
            });
            written.store(1, Ordering::Relaxed);
            let number = driver.take_free();
            driver.describe(number, 5, 60, 0, 0);
            driver.put(number);
            driver.publish();
            if driver.pending() > 0 {
                assert_eq!(driver.take(), Used { head: number.into(), len: 3 });
                assert_eq!(written.load(Ordering::Relaxed), 2);
            }
            device.join().unwrap();
        });
    }

    /// A device that goes to sleep sees the head, or is signalled.
    fn device_sleeps(has_wishes: bool) {
        let (mut driver, mut device) = halves(2, has_wishes);
        let device = thread::spawn(move || {
            device.want_signals(true);
            device.pending() > 0
        });
        let number = driver.take_free();
        driver.put(number);
        let signals = driver.publish();
        assert!(device.join().unwrap() || signals, "asleep, and nothing wakes it");
    }

    /// A driver that goes to sleep sees what was completed, or is signalled; also after an earlier sleep.
    fn driver_sleeps(has_wishes: bool) {
        let (mut driver, mut device) = halves(2, has_wishes);
        for _ in 0..2 {
            let number = driver.take_free();
            driver.put(number);
        }
        driver.publish();
        let event = Arc::new(AtomicU32::new(0));
        let signals = event.clone();
        let device = thread::spawn(move || {
            for head in 0..2 {
                assert_eq!(device.pending(), 2 - head as usize);
                device.take();
                device.complete(Used { head, len: 0 });
                if device.publish() {
                    signals.fetch_add(1, Ordering::AcqRel);
                }
            }
        });
        driver.request_signal(0);
        let first = driver.pending();
        (0..first).for_each(|_| _ = driver.take());
        driver.decline_signals();
        event.swap(0, Ordering::AcqRel);
        driver.request_signal(0);
        let second = driver.pending();
        device.join().unwrap();
        let is_awake = second > 0 || event.load(Ordering::Acquire) > 0;
        assert!(first == 2 || is_awake, "asleep after {first}, and nothing wakes it");
    }

    #[test]
    fn no_signal_is_lost() {
        for has_wishes in [false, true] {
            loom::model(move || device_sleeps(has_wishes));
            loom::model(move || driver_sleeps(has_wishes));
        }
    }
}
