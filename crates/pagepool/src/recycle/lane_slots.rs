//! The slots of lanes: what a slot of a lane carries, and how runs of them are read. The protocol is in
//! lane.rs.

// UNSAFETY: slots are reached by address, read without atomics when known to be written, and written four
// at a time; one prefetch instruction.
#![expect(unsafe_code)]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::compiler_fence;

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
        // pairs with message(), is_written(), take_part() and take_each_life()
        self.word.store(message.bits() << 1 | phase, Ordering::Release);
    }

    /// Writes the life in the word beside a slot, before the slot.
    #[inline(always)]
    pub(crate) fn write_life(&self, life: u32) {
        self.word.store(life, Ordering::Relaxed);
    }

    /// Reads the life in the word beside a slot whose message the caller has seen.
    #[inline(always)]
    pub(crate) fn read_life(&self) -> u32 {
        #[cfg(loom)]
        return self.word.load(Ordering::Relaxed);
        // SAFETY: as in read().
        #[cfg(not(loom))]
        unsafe {
            self.word.as_ptr().read()
        }
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
#[repr(C)]
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

    /// The slots from a position to the end of its lap, at most `most`.
    #[inline(always)]
    pub(crate) fn run(&self, at: usize, most: usize) -> &[LaneSlot] {
        let len = most.min(self.mask + 1 - (at & self.mask));
        // SAFETY: slots of the lane, before the end of the lap.
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

impl LaneSlots {
    /// Takes lives from the start of `run`, whose slots are of one lap; stops before any other message. Writes
    /// the pages whose lives `ends` accepts to `space`, which has room for all. Returns how many it took and how
    /// many it wrote.
    #[inline(always)]
    pub(crate) fn take_lives(
        &self,
        run: &[LaneSlot],
        phase: u32,
        space: &mut [u32],
        ends: impl Fn(PageIdx, u32) -> bool + Copy,
    ) -> (usize, usize) {
        debug_assert!(space.len() >= run.len(), "{} slots into {}", run.len(), space.len());
        let (first, lines, last) = by_line(run);
        let (mut taken, mut kept) = self.take_each_life(first, phase, space, ends);
        if taken < first.len() {
            return (taken, kept);
        }
        let mut rest = last;
        for line in lines {
            let room = space[kept..].first_chunk_mut().expect("there is room for all");
            if !(is_written(line, phase) && copy_lives(line, room)) {
                rest = line;
                break;
            }
            kept += end_all(room, self.lives_beside(line), ends);
            taken += SLOTS_A_LINE;
        }
        let (more_taken, more_kept) = self.take_each_life(rest, phase, &mut space[kept..], ends);
        (taken + more_taken, kept + more_kept)
    }

    /// As [`take_lives`](Self::take_lives), slot by slot.
    #[inline(never)]
    fn take_each_life(
        &self,
        run: &[LaneSlot],
        phase: u32,
        space: &mut [u32],
        ends: impl Fn(PageIdx, u32) -> bool,
    ) -> (usize, usize) {
        let (mut taken, mut kept) = (0, 0);
        for slot in run {
            let word = slot.word.load(Ordering::Acquire); // pairs with write()
            if word & (LIFE << 1 | 1) != LIFE << 1 | phase {
                break;
            }
            #[cfg(loom)]
            slot.watch.touch();
            let message = self.read(slot, word);
            space[kept] = message.page().0;
            kept += usize::from(ends(message.page(), message.life()));
            taken += 1;
        }
        (taken, kept)
    }

    /// The words beside the slots of a line, in a pool with lives.
    #[inline(always)]
    fn lives_beside(&self, line: &[LaneSlot; SLOTS_A_LINE]) -> &[LaneSlot; SLOTS_A_LINE] {
        // SAFETY: the lane's `lines` have a life for each slot, in the order of the slots.
        unsafe { NonNull::from(self.life_beside(&line[0])).cast().as_ref() }
    }
}

/// Copies the page numbers of a written line; returns whether all slots have lives.
#[inline(always)]
fn copy_lives(line: &[LaneSlot; SLOTS_A_LINE], space: &mut [u32; SLOTS_A_LINE]) -> bool {
    let mut all = LIFE;
    for (slot, number) in line.iter().zip(space) {
        let bits = slot.read() >> 1;
        all &= bits;
        *number = Message::with_life(bits | LIFE, || 0).page().0;
    }
    all != 0
}

/// Calls `ends` for each life; keeps in `pages` those that it accepts, and returns their number. Not inlined:
/// so the compiler has enough registers for the loop.
#[inline(never)]
fn end_all(
    pages: &mut [u32; SLOTS_A_LINE],
    lives: &[LaneSlot; SLOTS_A_LINE],
    ends: impl Fn(PageIdx, u32) -> bool,
) -> usize {
    let mut refused = 0u32;
    for at in 0..SLOTS_A_LINE {
        if !ends(PageIdx(pages[at]), lives[at].read_life()) {
            refused = with_bit(refused, at);
        }
    }
    if refused == 0 { SLOTS_A_LINE } else { remove(pages, refused) }
}

/// Sets a bit. A call, to keep the rare case out of the loop.
#[cold]
#[inline(never)]
fn with_bit(bits: u32, at: usize) -> u32 {
    bits | 1 << at
}

/// Removes the pages whose bits are set; returns how many are left.
#[cold]
#[inline(never)]
fn remove(pages: &mut [u32; SLOTS_A_LINE], refused: u32) -> usize {
    let mut kept = 0;
    for at in (0..SLOTS_A_LINE).filter(|at| refused & 1 << at == 0) {
        pages[kept] = pages[at];
        kept += 1;
    }
    kept
}

/// Splits slots of one lap into whole lines, and those before and after them.
#[inline(always)]
fn by_line(slots: &[LaneSlot]) -> (&[LaneSlot], &[[LaneSlot; SLOTS_A_LINE]], &[LaneSlot]) {
    let first = slots.as_ptr().align_offset(align_of::<SlotLine>()).min(slots.len());
    let (first, slots) = slots.split_at(first);
    let (lines, last) = slots.as_chunks();
    (first, lines, last)
}

/// Whether all slots are written. They are filled in order, so the last one says so.
#[inline(always)]
fn is_written(run: &[LaneSlot], phase: u32) -> bool {
    // pairs with write()
    let is_written = run.last().is_some_and(|slot| slot.word.load(Ordering::Acquire) & 1 == phase);
    // The compiler would otherwise reuse the loaded slot, and not copy the others in vector registers.
    compiler_fence(Ordering::Acquire);
    is_written
}

/// Copies the page numbers of whole pages from the start of `run`, whose slots are of one lap, into `space`,
/// which has room for all. Returns how many.
#[inline(always)]
pub(crate) fn take_run(run: &[LaneSlot], phase: u32, stop: u32, space: &mut [u32]) -> usize {
    debug_assert!(space.len() >= run.len(), "{} slots into {}", run.len(), space.len());
    let (first, lines, last) = by_line(run);
    let (first_room, space) = space.split_at_mut(first.len());
    let (rooms, last_room) = space.as_chunks_mut::<SLOTS_A_LINE>();
    let mut taken = take_part(first, phase, stop, first_room);
    if taken < first.len() {
        return taken;
    }
    for (line, room) in lines.iter().zip(rooms) {
        if !(is_written(line, phase) && copy_slots(line, stop, room)) {
            return taken + take_part(line, phase, stop, room);
        }
        taken += SLOTS_A_LINE;
    }
    taken + take_part(last, phase, stop, last_room)
}

/// As [`take_run`], for a part of a line, or a line that is not fully written or has other messages.
#[inline(never)]
fn take_part(part: &[LaneSlot], phase: u32, stop: u32, space: &mut [u32]) -> usize {
    if is_written(part, phase) && copy_slots(part, stop, space) {
        return part.len();
    }
    let mut taken = 0;
    for (slot, number) in part.iter().zip(space) {
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
fn copy_slots(run: &[LaneSlot], stop: u32, space: &mut [u32]) -> bool {
    let mut others = 0;
    for (slot, number) in run.iter().zip(space) {
        let bits = slot.read() >> 1;
        others |= bits;
        *number = Message::from_bits(bits).page().0;
    }
    others & stop == 0
}

impl LaneSlots {
    /// Writes the items' messages, of whole pages, into as many slots, in order.
    #[inline(always)]
    pub(crate) fn write_run<T>(
        &self,
        slots: &[LaneSlot],
        items: &[T],
        phase: u32,
        message: impl Fn(&T) -> Message,
    ) {
        let write_each = |slots: &[LaneSlot], items: &[T]| {
            slots.iter().zip(items).for_each(|(slot, item)| self.write(slot, message(item), phase));
        };
        let (first, lines, last) = by_line(slots);
        let (first_item, items) = items.split_at(first.len());
        let (item_lines, last_item) = items.as_chunks::<SLOTS_A_LINE>();
        write_each(first, first_item);
        for (line, items) in lines.iter().zip(item_lines) {
            if !self.write_line(line, items, phase, &message) {
                write_each(line, items);
            }
        }
        write_each(last, last_item);
    }

    /// Writes a line with four stores, after its lives with four more. Returns `false`, and writes nothing,
    /// if the CPU cannot. On x86-64 with AVX, aligned stores of 16 bytes are atomic (Intel's SDM, "Guaranteed
    /// Atomic Operations"; AMD's APM, "Access Atomicity").
    #[inline(always)]
    #[cfg(all(target_arch = "x86_64", not(any(loom, miri, pagepool_tsan))))]
    fn write_line<T>(
        &self,
        line: &[LaneSlot; SLOTS_A_LINE],
        items: &[T; SLOTS_A_LINE],
        phase: u32,
        message: impl Fn(&T) -> Message,
    ) -> bool {
        if !is_x86_feature_detected!("avx") {
            return false;
        }
        for (four, items) in line.as_chunks::<4>().0.iter().zip(items.as_chunks::<4>().0) {
            let messages = items.each_ref().map(&message);
            if messages.iter().any(|message| message.life() != 0) {
                let lives = NonNull::from(self.life_beside(&four[0])).cast();
                // SAFETY: the lane's `lines` have a life for each slot, in the order of the slots.
                write_four(unsafe { lives.as_ref() }, messages.map(Message::life));
            }
            write_four(four, messages.map(|message| message.bits() << 1 | phase));
        }
        true
    }

    #[inline(always)]
    #[cfg(not(all(target_arch = "x86_64", not(any(loom, miri, pagepool_tsan)))))]
    fn write_line<T, U>(&self, _: &[LaneSlot], _: &[T], _: u32, _: U) -> bool {
        false
    }
}

/// Writes four words, the first at a multiple of 16 bytes, on a CPU with AVX.
#[cfg(all(target_arch = "x86_64", not(any(loom, miri, pagepool_tsan))))]
#[inline(always)]
fn write_four(slots: &[LaneSlot; 4], words: [u32; 4]) {
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
        for has_lives in [false, true] {
            let mut lines = LaneLines::for_lanes(1, 64, has_lives).expect("it is small");
            let one = lines.next().expect("one lane");
            let lane = one.slots;
            let words_from = |first: NonNull<LaneSlot>| {
                // SAFETY: the lane has 64 slots, and as many lives; this test is their only user.
                unsafe { std::slice::from_raw_parts(first.as_ptr(), 64) }
            };
            let all = words_from(lane.first);
            let lives = if has_lives { words_from(NonNull::from(lane.life_beside(&all[0]))) } else { &[] };
            let message = |page: &u32| match has_lives {
                false => Message::of_page(PageIdx(*page)),
                true => Message::of_life(PageIdx(*page), page << 1 | 1),
            };
            let read = |slots: &[LaneSlot]| -> Vec<u32> {
                slots.iter().map(|slot| slot.word.load(Ordering::Relaxed)).collect()
            };
            for (from, len) in (0..20).flat_map(|from| (0..=64 - from).map(move |len| (from, len))) {
                all.iter().chain(lives).for_each(|slot| slot.word.store(u32::MAX, Ordering::Relaxed));
                let (phase, pages) = (from as u32 & 1, (0..len as u32).map(|at| 1 << 28 | at));
                let pages: Vec<u32> = pages.collect();
                lane.write_run(&all[from..from + len], &pages, phase, message);
                let others = |at: usize| vec![u32::MAX; at];
                let around = |words: Vec<u32>| [others(from), words, others(64 - from - len)].concat();
                let words = pages.iter().map(|page| message(page).bits() << 1 | phase).collect();
                assert_eq!(read(all), around(words), "{len} from {from}");
                let halves = pages.iter().map(|page| message(page).life()).collect();
                assert!(!has_lives || read(lives) == around(halves), "lives: {len} from {from}");
            }
        }
    }

    /// Slots of a lane of 64, with messages of pages 100, 101 and so on in `len` of them. All have lives, or
    /// none; the one at `other` is the opposite.
    fn written(lane: &LaneSlots, from: usize, len: usize, other: usize, lives: bool) -> &[LaneSlot] {
        let message = |&at: &usize| {
            let page = PageIdx(100 + at as u32);
            if (at != other) == lives {
                Message::of_life(page, life_of(page.0))
            } else {
                Message::of_page(page)
            }
        };
        let numbers: Vec<usize> = (0..len).collect();
        lane.write_run(lane.run(from, len), &numbers, 1, message);
        lane.run(from, len)
    }

    fn life_of(page: u32) -> u32 {
        2 * page + 1
    }

    /// Where the run begins, how long it is, and where in it the other message is; none if at its end.
    fn runs() -> impl Iterator<Item = (usize, usize, usize)> {
        let lens = [0, 1, 15, 16, 17, 40, 64];
        let runs =
            [0, 1, 13, 16].into_iter().flat_map(move |from| lens.map(|len| (from, len.min(64 - from))));
        runs.flat_map(|(from, len)| (0..=len).map(move |other| (from, len, other)))
    }

    #[test]
    fn pages_are_taken_up_to_another_message() {
        let lane = LaneLines::for_lanes(1, 64, true).expect("it is small").next().expect("one lane");
        for (from, len, other) in runs() {
            let run = written(&lane.slots, from, len, other, false);
            let mut space = vec![0; len];
            let taken = take_run(run, 1, lane.slots.not_a_page(), &mut space);
            let expected: Vec<u32> = (100..100 + other as u32).collect();
            assert_eq!(&space[..taken], &expected[..], "{len} from {from}, {other}");
            assert_eq!(take_run(run, 0, lane.slots.not_a_page(), &mut space), 0, "the other lap");
        }
    }

    #[test]
    fn lives_are_taken_up_to_another_message() {
        let lane = LaneLines::for_lanes(1, 64, true).expect("it is small").next().expect("one lane");
        for ((from, len, other), refused) in
            runs().flat_map(|run| [0, 1, 1 << 15, !0, 0x1234_u64].map(|refused| (run, refused)))
        {
            let run = written(&lane.slots, from, len, other, true);
            let ends = |page: u32| refused >> ((page - 100) % 64) & 1 == 0;
            let mut space = vec![0; len];
            let (taken, kept) = lane.slots.take_lives(run, 1, &mut space, |page, life| {
                assert_eq!(life, life_of(page.0));
                ends(page.0)
            });
            let expected: Vec<u32> = (100..100 + other as u32).filter(|&page| ends(page)).collect();
            assert_eq!(
                (taken, &space[..kept]),
                (other, &expected[..]),
                "{len} from {from}, {other}, {refused:x}"
            );
        }
    }
}
