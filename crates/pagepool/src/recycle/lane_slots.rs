//! The slots of lanes: what a slot of a lane carries, and how runs of them are read. The protocol is in
//! lane.rs.

// UNSAFETY: slots are reached by address, read without atomics when known to be written, and written four
// at a time; one prefetch instruction.
#![expect(unsafe_code)]

use std::ptr::NonNull;
use std::sync::Arc;

use crate::error::Error;
use crate::mem::page::PageIdx;
use crate::recycle::message::{FRAG, LIFE, Message};
#[cfg(loom)]
use crate::sys::sync::OneAtATime;
use crate::sys::sync::{AtomicU32, Ordering};
use crate::sys::table::Table;

#[cfg(not(loom))]
const _: () = assert!(size_of::<[LaneSlot; 4]>() == 16, "one store writes four slots");

/// Slots in a cache line; few under loom, whose models have small lanes.
pub(crate) const SLOTS_A_LINE: usize = if cfg!(loom) { 2 } else { 16 };

#[derive(Debug, Default)]
pub(crate) struct LaneSlot {
    pub(crate) word: AtomicU32,
    /// Touched by the writer, and by the thread that takes the message.
    #[cfg(loom)]
    pub(crate) watch: OneAtATime,
}

impl LaneSlot {
    #[inline(always)]
    pub(crate) fn write(&self, message: Message, phase: u32) {
        #[cfg(loom)]
        self.watch.touch();
        // pairs with message() and take_run()
        self.word.store(message.bits() << 1 | phase, Ordering::Release);
    }

    /// Writes the life in the word beside a slot, before the slot.
    #[inline(always)]
    pub(crate) fn write_life(&self, life: u32) {
        self.word.store(life, Ordering::Relaxed);
    }

    /// Reads the slot. The caller has seen this lap's message in this slot or a later one.
    #[inline(always)]
    pub(crate) fn read(&self) -> u32 {
        #[cfg(loom)]
        {
            self.watch.touch();
            self.word.load(Ordering::Relaxed)
        }
        // SAFETY: this lap's message was written before what the caller has seen, and the producer writes no
        // other before the consumer's `at` has passed this slot.
        #[cfg(not(loom))]
        unsafe {
            self.word.as_ptr().read()
        }
    }
}

/// A cache line of slots.
#[derive(Debug, Default)]
#[cfg_attr(not(loom), repr(align(64)))]
#[expect(dead_code, reason = "slots are reached by address")]
struct SlotLine([LaneSlot; SLOTS_A_LINE]);

// SAFETY: a slot is an atomic integer, and zero is one.
#[cfg(not(loom))]
unsafe impl crate::sys::table::Zeroable for SlotLine {}

/// A lane's slots; each end has this on its own cache line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneSlots {
    pub(crate) first: NonNull<LaneSlot>,
    /// The number of slots, a power of two, minus one.
    pub(crate) mask: usize,
    /// Bytes from a slot to the life beside it; 0 in a pool without lives.
    pub(crate) to_life: usize,
}

impl LaneSlots {
    /// The word beside a slot, in a pool with lives.
    #[inline(always)]
    pub(crate) fn life_beside(&self, slot: &LaneSlot) -> &LaneSlot {
        debug_assert!(self.to_life != 0, "I1: a life in a pool without lives");
        // SAFETY: the lane's `lines` have a life for each slot, at this distance.
        let life = unsafe { NonNull::from(slot).byte_add(self.to_life) };
        // SAFETY: it is a word of the lane, whose `lines` live as long as the lane.
        unsafe { life.as_ref() }
    }

    /// Writes a message, after its life if it has one.
    #[inline(always)]
    pub(crate) fn write(&self, slot: &LaneSlot, message: Message, phase: u32) {
        if message.life() != 0 {
            self.life_beside(slot).write_life(message.life());
        }
        slot.write(message, phase);
    }

    /// The message that a slot of this lap has.
    #[inline(always)]
    pub(crate) fn read(&self, slot: &LaneSlot, word: u32) -> Message {
        if self.to_life == 0 {
            return Message::from_bits(word >> 1);
        }
        Message::with_life(word >> 1, || self.life_beside(slot).word.load(Ordering::Relaxed))
    }

    /// The bits with which a message is not simply of a page.
    #[inline(always)]
    pub(crate) fn not_a_page(&self) -> u32 {
        if self.to_life == 0 { FRAG } else { FRAG | LIFE }
    }

    /// The slot of a position; positions continue from lap to lap.
    #[inline(always)]
    pub(crate) fn address(self, at: usize) -> NonNull<LaneSlot> {
        // SAFETY: the lane's `lines` have a slot for each number up to the mask.
        unsafe { self.first.add(at & self.mask) }
    }

    #[inline(always)]
    pub(crate) fn at(&self, at: usize) -> &LaneSlot {
        // SAFETY: it is a slot of the lane, whose `lines` live as long as the lane.
        unsafe { self.address(at).as_ref() }
    }

    /// The slots from a position to the end of its line or lap, at most `most`.
    #[inline(always)]
    pub(crate) fn run(&self, at: usize, most: usize) -> &[LaneSlot] {
        let (line, lap) = (SLOTS_A_LINE - at % SLOTS_A_LINE, self.mask + 1 - (at & self.mask));
        let len = most.min(line).min(lap);
        // SAFETY: slots of the lane; a line of slots begins at each multiple of its length, unless the lap
        // ends.
        unsafe { std::slice::from_raw_parts(self.address(at).as_ptr(), len) }
    }

    /// The phase of messages in the lap of this position.
    #[inline(always)]
    pub(crate) fn phase(&self, at: usize) -> u32 {
        u32::from(at & (self.mask + 1) == 0)
    }

    /// The message at a position, if this lap wrote it already.
    #[inline(always)]
    pub(crate) fn message(&self, at: usize) -> Option<Message> {
        let slot = self.at(at);
        let word = slot.word.load(Ordering::Acquire); // pairs with write()
        (word & 1 == self.phase(at)).then(|| self.read(slot, word))
    }
}

/// A lane's slots. All lanes of a pool share a table, so slots that no thread used cost nothing. Freed with
/// the last of these lanes.
#[derive(Debug)]
pub(crate) struct LaneLines {
    pub(crate) slots: LaneSlots,
    _table: Arc<Table<SlotLine>>,
}

impl LaneLines {
    /// Empty slots for `lanes` lanes of `size` slots each, a power of two.
    pub(crate) fn for_lanes(
        lanes: usize,
        size: usize,
        has_lives: bool,
    ) -> Result<impl ExactSizeIterator<Item = Self>, Error> {
        debug_assert!(size.is_power_of_two(), "the builder checks lane_size");
        let each = size.div_ceil(SLOTS_A_LINE);
        // Zeroes hold no message of the first lap.
        let to_life = if has_lives { lanes * each * size_of::<SlotLine>() } else { 0 };
        let table = Arc::new(Table::<SlotLine>::new(lanes * each * if has_lives { 2 } else { 1 })?);
        let first = NonNull::from(&table[..]).cast::<SlotLine>();
        Ok((0..lanes).map(move |lane| {
            // SAFETY: the table has `each` lines for every lane.
            let first = unsafe { first.add(lane * each) };
            let slots = LaneSlots { first: first.cast(), mask: size - 1, to_life };
            Self { slots, _table: table.clone() }
        }))
    }
}

/// How many leading slots of one line have lives.
#[inline(always)]
pub(crate) fn run_of_lives(run: &[LaneSlot], phase: u32) -> usize {
    let is_life = |word: u32| word & (LIFE << 1 | 1) == LIFE << 1 | phase;
    run.iter().take_while(|slot| is_life(slot.word.load(Ordering::Acquire))).count() // pairs with write()
}

/// Copies the page numbers of leading whole pages in slots of one line; returns how many.
#[inline(always)]
pub(crate) fn take_run(run: &[LaneSlot], phase: u32, stop: u32, space: &mut [u32]) -> usize {
    // Slots are filled in order: if the last is written, all are. Acquire pairs with write().
    let is_full = run.last().is_some_and(|slot| slot.word.load(Ordering::Acquire) & 1 == phase);
    if is_full && copy_run(run, stop, space) {
        return run.len();
    }
    let mut taken = 0;
    for (slot, number) in run.iter().zip(space) {
        let word = slot.word.load(Ordering::Acquire); // pairs with write()
        if word & 1 != phase || word >> 1 & stop != 0 {
            break;
        }
        #[cfg(loom)]
        slot.watch.touch();
        *number = Message::from_bits(word >> 1).page().0;
        taken += 1;
    }
    taken
}

/// Copies the page numbers of slots that are all written; returns whether all are of whole pages.
#[inline(always)]
pub(crate) fn copy_run(run: &[LaneSlot], stop: u32, space: &mut [u32]) -> bool {
    match <&[LaneSlot; SLOTS_A_LINE]>::try_from(run) {
        Ok(line) => copy_slots(line, stop, space), // in vector registers
        Err(_) => copy_slots(run, stop, space),
    }
}

#[inline(always)]
fn copy_slots(run: &[LaneSlot], stop: u32, space: &mut [u32]) -> bool {
    let mut others = 0;
    for (slot, number) in run.iter().zip(space) {
        let bits = slot.read() >> 1;
        others |= bits;
        *number = Message::from_bits(bits).page().0;
    }
    others & stop == 0
}

/// Writes messages of whole pages into as many slots, in order.
#[inline(always)]
pub(crate) fn write_pages(slots: &[LaneSlot], pages: &[u32], phase: u32) {
    let first = slots.as_ptr().align_offset(align_of::<SlotLine>()).min(slots.len());
    let ((first, slots), (first_page, pages)) = (slots.split_at(first), pages.split_at(first));
    let ((lines, last), (page_lines, last_page)) = (slots.as_chunks(), pages.as_chunks());
    write_each(first, first_page, phase);
    lines.iter().zip(page_lines).for_each(|(line, pages)| write_line(line, pages, phase));
    write_each(last, last_page, phase);
}

#[inline(always)]
fn write_each(slots: &[LaneSlot], pages: &[u32], phase: u32) {
    slots.iter().zip(pages).for_each(|(slot, page)| slot.write(Message::of_page(PageIdx(*page)), phase));
}

/// Writes a line. On x86-64 with AVX one store writes four slots: there, aligned stores of 16 bytes are
/// atomic (Intel's SDM, "Guaranteed Atomic Operations"; AMD's APM, "Access Atomicity").
#[inline(always)]
fn write_line(line: &[LaneSlot; SLOTS_A_LINE], pages: &[u32; SLOTS_A_LINE], phase: u32) {
    #[cfg(all(target_arch = "x86_64", not(any(loom, miri, pagepool_tsan))))]
    if is_x86_feature_detected!("avx") {
        let (fours, page_fours) = (line.as_chunks().0, pages.as_chunks().0);
        return fours.iter().zip(page_fours).for_each(|(four, pages)| write_four(four, pages, phase));
    }
    write_each(line, pages, phase);
}

/// Writes four slots, the first at a multiple of 16 bytes, on a CPU with AVX.
#[cfg(all(target_arch = "x86_64", not(any(loom, miri, pagepool_tsan))))]
#[inline(always)]
fn write_four(slots: &[LaneSlot; 4], pages: &[u32; 4], phase: u32) {
    let words = pages.map(|page| page << 2 | phase);
    debug_assert_eq!(words[0], Message::of_page(PageIdx(pages[0])).bits() << 1 | phase);
    // SAFETY: any 16 bytes are a vector.
    let words: std::arch::x86_64::__m128i = unsafe { std::mem::transmute(words) };
    // SAFETY: four slots are 16 bytes of atomics, aligned to 16. On a CPU with AVX such a store becomes
    // visible as a whole, after all earlier stores. So every thread sees what four Release stores could have
    // produced.
    unsafe {
        std::arch::asm!("vmovdqa [{}], {}", in(reg) slots.as_ptr(), in(xmm_reg) words,
            options(nostack, preserves_flags));
    }
}

/// Fetches a line for writing, while other returns continue.
#[inline(always)]
pub(crate) fn prefetch_to_write(slot: &LaneSlot) {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    // SAFETY: a prefetch reads and changes nothing, whatever the address.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) slot.word.as_ptr(), options(nostack, preserves_flags));
    }
    #[cfg(not(all(target_arch = "x86_64", not(loom))))]
    let _ = slot;
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn pages_are_written_alike_singly_and_in_lines() {
        let lines = LaneLines::for_lanes(1, 64, false).expect("it is small").next().expect("one lane");
        // SAFETY: the lane has 64 slots, and this test is their only user.
        let all = unsafe { std::slice::from_raw_parts(lines.slots.first.as_ptr(), 64) };
        let read = |slots: &[LaneSlot]| -> Vec<u32> {
            slots.iter().map(|slot| slot.word.load(Ordering::Relaxed)).collect()
        };
        for (from, len) in (0..20).flat_map(|from| (0..=64 - from).map(move |len| (from, len))) {
            all.iter().for_each(|slot| slot.word.store(u32::MAX, Ordering::Relaxed));
            let (phase, pages) = (from as u32 & 1, (0..len as u32).map(|at| 1 << 29 | at));
            let pages: Vec<u32> = pages.collect();
            let (before, (slots, after)) = (&all[..from], all[from..].split_at(len));
            write_pages(slots, &pages, phase);
            let words = pages.iter().map(|page| Message::of_page(PageIdx(*page)).bits() << 1 | phase);
            assert_eq!(read(slots), words.collect::<Vec<_>>(), "{len} from {from}");
            assert!(read(before).into_iter().chain(read(after)).all(|word| word == u32::MAX));
        }
    }
}
