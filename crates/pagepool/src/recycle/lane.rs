//! A lane: one thread's path for returns to one pool.
//!
//! What   a single-producer array of messages. The slot is the message: one Release store publishes it.
//!        There is no shared index and no unpublished tail, so a sleeping thread holds nothing back. A
//!        slot's lowest bit is the phase of the lap that wrote it: 1 in the first lap, 0 in the second, and
//!        so on. A slot with the phase of the owner's lap holds a message; with the other it is old, and no
//!        thread empties it.
//! Who    `push` by the thread that claimed the lane. `pop` by the owner (I2), or in `take_all` after the
//!        pool's end.
//! Life   the pool makes its lanes. A thread claims one at its first return, and holds it by `Arc` until it
//!        ends, so neither end dangles. After its store a returning thread reads only the lane, never the
//!        pool, which may be freed by then (Linux had that bug until 271683bb2cf3).
//! Lives  the lanes of a pool with lives have a second word for each slot, at a fixed distance from it: the
//!        life that a message carries. It is written before the slot and read after it.
//! Runs   the producer knows the next slot's address, and up to which slot all are free: a run of up to four
//!        lines. What changes between runs and laps is checked once per run, which fetches the next one.
//! Cost   push: two stores (slot, next), three for a fragment; no atomic read-modify-write. Pages in bulk:
//!        `next` once per run, and on x86-64 with AVX a store for four slots of a whole line, and one
//!        for their lives. Slots travel between cores sixteen a line, once in each direction. The owner takes
//!        a line, of pages or of lives, by one Acquire load of its last slot and a copy.
//! Pairs  push (slot, Release) -> pop (slot, Acquire). Slots are written in order, so a thread that loaded
//!        one of this lap may read all before it without a race: the producer rewrites none before `at` says
//!        that it was taken. pop (at, Release, after reading) -> find_free (at, Acquire). push (slot; light
//!        fence; flags) against raise_all (flags; heavy fence; slots): one of them sees the other. raise_all
//!        (flags, Release) -> flagged (Acquire). unclaim (claim, Release) -> claim, is_claimed (Acquire).
//!        For observers: next_run (next; lap_start, Release) and push (frags; next, Release) -> pages_pushed
//!        (lap_start, Acquire; next, Acquire; frags).

// UNSAFETY: slots are reached by address, and read without atomics when known to be written, as are two words
// that only the reading thread writes; one prefetch instruction.
#![expect(unsafe_code)]

use std::mem::offset_of;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU32 as PlainU32, AtomicU64 as PlainU64, AtomicUsize as PlainUsize};

use crate::mem::page::PageIdx;
use crate::recycle::lane_slots::{LaneLines, LaneSlot, LaneSlots, SLOTS_A_LINE, prefetch_to_write, take_run};
use crate::recycle::message::{Message, MessageQueue};
use crate::stats::Counter;
#[cfg(loom)]
use crate::sys::sync::OneAtATime;
use crate::sys::sync::{
    AtomicU32, AtomicUsize, Lock, Ordering, Padded, free_fence, heavy_fence, light_fence,
};
use crate::sys::wakeup::Wakeup;

/// In a [`Lane`]'s flags: the pool has ended. The returning thread takes its messages out and accounts for
/// them.
pub(crate) const DETACHED: u32 = 1;
/// In a [`Lane`]'s flags: the owner found no page and may sleep. The returning thread wakes it.
pub(crate) const STARVED: u32 = 2;

/// Slots of a producer's run. A line takes about as long from the other core as this many returns. Few under
/// loom, whose models have small lanes.
const RUN_SLOTS: usize = if cfg!(loom) { SLOTS_A_LINE } else { 4 * SLOTS_A_LINE };

/// One returning thread's messages to the owner of one pool.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Lane {
    pub(crate) producer: Padded<LaneProducer>,
    consumer: Padded<LaneConsumer>,
    /// Holds both ends' slots.
    _lines: LaneLines,
    /// 0 free, 1 claimed.
    claim: AtomicU32,
    /// The most pages pushed that an observer has read.
    pages_observed: PlainU64,
    pub(crate) wakeup: Arc<Wakeup>,
    /// Held to empty the lane after the pool's end, by the returning thread or the thread that ends the
    /// pool.
    cold: Lock<()>,
}

// SAFETY: the slots are atomics that the lane owns; the other fields of each end are atomics, too.
unsafe impl Send for Lane {}
// SAFETY: slots and fields are atomics; the protocol says who may write them.
unsafe impl Sync for Lane {}

/// The returning thread's cache lines: what each push uses is in the first. The owner writes `flags` when the
/// pool finds no page or ends. `pagepool.h` pushes, too: see `LifeLane::PLACES`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct LaneProducer {
    /// The next message's slot; written only by the claiming thread.
    pub(crate) next: AtomicPtr<LaneSlot>,
    /// Slots before this one, in the lap of `next`, are free.
    pub(crate) until: AtomicPtr<LaneSlot>,
    pub(crate) phase: PlainU32,
    pub(crate) flags: AtomicU32,
    pub(crate) slots: LaneSlots,
    /// Messages before this lap.
    lap_start: PlainUsize,
    /// Messages below this number have free slots. The producer reads the consumer's line once a lap, and
    /// never loads per slot.
    free_until: PlainUsize,
    /// Messages of fragments.
    frags: Counter,
    #[cfg(loom)]
    watch: OneAtATime,
}

/// The owner's cache line.
#[derive(Debug)]
struct LaneConsumer {
    slots: LaneSlots,
    at: AtomicUsize,
    pages: Counter,
    #[cfg(loom)]
    watch: OneAtATime,
}

impl Lane {
    /// Names, offsets and sizes of the fields of [`pages_pushed`](Self::pages_pushed),
    /// [`pages_in`](Self::pages_in) and [`frags_in`](Self::frags_in).
    pub(crate) const PLACES: [(&str, usize, usize); 8] = [
        ("lane.lap_start", offset_of!(Self, producer.0.lap_start), size_of::<usize>()),
        ("lane.next", offset_of!(Self, producer.0.next), size_of::<usize>()),
        ("lane.first", offset_of!(Self, producer.0.slots.first), size_of::<usize>()),
        ("lane.mask", offset_of!(Self, producer.0.slots.mask), size_of::<usize>()),
        ("lane.phase", offset_of!(Self, producer.0.phase), size_of::<u32>()),
        ("lane.frags", offset_of!(Self, producer.0.frags), size_of::<u64>()),
        ("lane.taken", offset_of!(Self, consumer.0.pages), size_of::<u64>()),
        ("lane.at", offset_of!(Self, consumer.0.at), size_of::<usize>()),
    ];

    pub(crate) fn new(lines: LaneLines, wakeup: Arc<Wakeup>) -> Self {
        let slots = lines.slots;
        let producer = LaneProducer {
            next: AtomicPtr::new(slots.first.as_ptr()),
            until: AtomicPtr::new(slots.first.as_ptr()), // so the first push calls `next_run`
            phase: PlainU32::new(slots.phase(0)),
            flags: AtomicU32::new(0),
            lap_start: PlainUsize::new(0),
            free_until: PlainUsize::new(slots.mask + 1),
            frags: Counter::default(),
            slots,
            #[cfg(loom)]
            watch: OneAtATime::default(),
        };
        let consumer = LaneConsumer {
            slots,
            at: AtomicUsize::new(0),
            pages: Counter::default(),
            #[cfg(loom)]
            watch: OneAtATime::default(),
        };
        Self {
            producer: Padded(producer),
            consumer: Padded(consumer),
            _lines: lines,
            claim: AtomicU32::new(0),
            pages_observed: PlainU64::new(0),
            wakeup,
            cold: Lock::new(()),
        }
    }

    /// A free lane of `size` slots without a pool.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn alone(size: usize) -> Self {
        let lines = LaneLines::for_lanes(1, size, false).expect("it is small").next().expect("one lane");
        Self::new(lines, Arc::new(Wakeup::new(0, None)))
    }

    pub(crate) fn capacity(&self) -> usize {
        self.consumer.slots.mask + 1
    }

    /// Claims a free lane for the calling thread; `false` if it is not free.
    pub(crate) fn claim(&self) -> bool {
        // Acquire pairs with unclaim(): the new thread sees where the last one stopped.
        self.claim.load(Ordering::Relaxed) == 0
            && self.claim.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[inline(always)]
    pub(crate) fn is_claimed(&self) -> bool {
        self.claim.load(Ordering::Acquire) != 0 // pairs with unclaim()
    }

    /// Adds a message; `false` if the lane is full. Call [`after_push`](Self::after_push) next.
    #[inline(always)]
    pub(crate) fn push(&self, message: Message) -> bool {
        self.push_in_run(message) || self.next_run() && self.push_in_run(message)
    }

    /// Adds a message; `false` at the end of the run.
    #[inline(always)]
    pub(crate) fn push_in_run(&self, message: Message) -> bool {
        let end = &self.producer;
        let next = end.next.load(Ordering::Relaxed);
        if next == end.until() {
            return false;
        }
        #[cfg(loom)]
        end.watch.touch();
        // SAFETY: before `until` it is a slot of the lane.
        let slot = unsafe { &*next };
        end.slots.write(slot, message, end.phase());
        end.next.store(next.wrapping_add(1), Ordering::Release); // pairs with pages_pushed()
        true
    }

    /// Finds the next run of free slots; `false` if there is none.
    #[cold]
    fn next_run(&self) -> bool {
        #[cfg(loom)]
        self.producer.watch.touch();
        let (end, slots) = (&self.producer, self.producer.slots);
        let at = end.place();
        let mut room = end.free_until.load(Ordering::Relaxed).wrapping_sub(at);
        if room == 0 {
            room = self.find_free(at);
        }
        if room == 0 {
            return false;
        }
        let next = slots.address(at).as_ptr();
        if at & slots.mask == 0 {
            end.phase.store(slots.phase(at), Ordering::Relaxed);
            end.next.store(next, Ordering::Relaxed);
            // After `next`, so an observer never counts this lap twice; see pages_pushed().
            end.lap_start.store(at, Ordering::Release);
        }
        let left = RUN_SLOTS - at % RUN_SLOTS;
        if left == RUN_SLOTS {
            self.fetch_run(at.wrapping_add(left));
        }
        let lap = slots.mask + 1 - (at & slots.mask);
        end.until.store(next.wrapping_add(room.min(left).min(lap)), Ordering::Relaxed);
        true
    }

    /// Fetches a run's lines, which are still in the owner's cache. Early, so that transfers overlap with
    /// returns.
    #[inline(always)]
    fn fetch_run(&self, at: usize) {
        let slots = self.producer.slots;
        for line in (0..RUN_SLOTS).step_by(SLOTS_A_LINE) {
            let slot = slots.at(at.wrapping_add(line));
            prefetch_to_write(slot);
            if slots.to_life != 0 {
                prefetch_to_write(slots.life_beside(slot));
            }
        }
    }

    /// Reads how far the consumer is; returns the number of free slots.
    fn find_free(&self, at: usize) -> usize {
        // One load per lap: loading the slots instead would pull the owner's line for every message.
        let taken = self.consumer.at.load(Ordering::Acquire); // pairs with pop() and take_pages()
        let free_until = taken.wrapping_add(self.producer.slots.mask + 1);
        self.producer.free_until.store(free_until, Ordering::Relaxed);
        free_until.wrapping_sub(at)
    }

    /// Adds the items' messages, all of whole pages, while there is room; returns how many. Call
    /// [`after_push`](Self::after_push) next.
    #[inline(always)]
    pub(crate) fn push_pages<T>(&self, items: &[T], message: impl Fn(&T) -> Message) -> usize {
        let end = &self.producer;
        let mut left = items;
        while !left.is_empty() {
            let next = end.next.load(Ordering::Relaxed);
            let room = self.run_left(next);
            if room.is_empty() {
                if self.next_run() {
                    continue;
                }
                break;
            }
            #[cfg(loom)]
            end.watch.touch();
            let (now, later) = left.split_at(left.len().min(room.len()));
            end.slots.write_run(&room[..now.len()], now, end.phase(), &message);
            end.next.store(next.wrapping_add(now.len()), Ordering::Release); // pairs with pages_pushed()
            left = later;
        }
        items.len() - left.len()
    }

    /// The free slots of the run, from `next` on.
    #[inline(always)]
    fn run_left(&self, next: *mut LaneSlot) -> &[LaneSlot] {
        let until = self.producer.until();
        let len = (until.addr() - next.addr()) / size_of::<LaneSlot>();
        // SAFETY: both are in, or at the end of, one lap of the lane's slots, and `next` is not after `until`.
        unsafe { std::slice::from_raw_parts(next, len) }
    }

    /// Adds a message of fragments; `false` if the lane is full. Call [`after_push`](Self::after_push) next.
    #[inline(always)]
    pub(crate) fn push_frags(&self, message: Message) -> bool {
        self.push_frags_in_run(message) || self.next_run() && self.push_frags_in_run(message)
    }

    /// Adds a message of fragments; `false` at the end of the run.
    #[inline(always)]
    pub(crate) fn push_frags_in_run(&self, message: Message) -> bool {
        let end = &self.producer;
        if end.next.load(Ordering::Relaxed) == end.until() {
            return false;
        }
        end.frags.add(1); // before the message; see pages_pushed()
        self.push_in_run(message)
    }

    /// Reads the flags after one or many pushes: almost always 0.
    #[inline(always)]
    pub(crate) fn after_push(&self) -> u32 {
        light_fence(); // pairs with the heavy fence in raise_all()
        self.producer.flags.load(Ordering::Relaxed)
    }

    /// [`after_push`](Self::after_push) for code that runs only if fences are free.
    #[inline(always)]
    pub(crate) fn after_free_push(&self) -> u32 {
        free_fence(); // pairs with the heavy fence in raise_all()
        self.producer.flags.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.peek().is_none()
    }

    /// For the owner: takes the oldest messages of fragments, as many as are of one page. Returns the page
    /// and the number of fragments.
    #[inline(always)]
    pub(crate) fn take_frags(&self, head_mask: NonZeroU32) -> Option<(PageIdx, u32)> {
        #[cfg(loom)]
        self.consumer.watch.touch();
        let (end, slots) = (&self.consumer, self.consumer.slots);
        let start = end.at.load(Ordering::Relaxed);
        let frags = |at: usize| {
            let message = slots.message(start.wrapping_add(at)).filter(|message| message.is_frag())?;
            Some(message.frags(head_mask))
        };
        let (page, mut frags_of_page) = frags(0)?;
        let mut n = 1;
        while n <= slots.mask
            && let Some((next, more)) = frags(n)
            && next == page
        {
            (n, frags_of_page) = (n + 1, frags_of_page + more);
        }
        #[cfg(loom)]
        (0..n).for_each(|at| slots.at(start.wrapping_add(at)).watch.touch());
        end.at.store(start.wrapping_add(n), Ordering::Release); // pairs with find_free()
        Some((page, frags_of_page))
    }

    #[inline(always)]
    pub(crate) fn count_taken(&self, n: u64) {
        self.consumer.pages.add(n);
    }

    /// Takes all messages as the one consumer, after the pool's end.
    pub(crate) fn take_all(&self) -> Vec<Message> {
        // The owner and a late returning thread may both be here: each message is taken, and accounted for,
        // once.
        let _held = self.cold.lock();
        let messages: Vec<Message> = std::iter::from_fn(|| self.pop()).collect();
        self.count_taken(messages.iter().filter(|m| !m.is_frag()).count() as u64);
        messages
    }

    /// Sets a flag for the calling thread's own next push.
    pub(crate) fn raise(&self, flag: u32) {
        self.producer.flags.fetch_or(flag, Ordering::Relaxed);
    }

    /// Clears a flag; for the returning thread that has acted on it.
    pub(crate) fn lower(&self, flag: u32) {
        // Acquire pairs with raise_all(): a wake that follows finds what the owner raised before the flag.
        self.producer.flags.fetch_and(!flag, Ordering::Acquire);
    }

    /// At the thread's end: the next thread continues where it stopped, and the owner takes the messages
    /// left.
    pub(crate) fn unclaim(&self) {
        self.claim.store(0, Ordering::Release); // pairs with claim() and is_claimed()
    }

    pub(crate) fn is_detached(&self) -> bool {
        self.producer.flags.load(Ordering::Acquire) & DETACHED != 0 // pairs with raise_all()
    }

    /// Pages ever pushed. Any thread. Never less than returned before, never more than were pushed. It may
    /// lag: between two stores of the pushing thread, the loads see a fragment only in `frags`, a new lap's
    /// first slot with the start of the last lap, or none of the pages that a bulk push has written into a run.
    pub(crate) fn pages_pushed(&self) -> u64 {
        let lap_start = self.producer.lap_start.load(Ordering::Acquire);
        let next = self.producer.next.load(Ordering::Acquire).addr();
        let in_lap = (next - self.producer.slots.first.addr().get()) / size_of::<LaneSlot>();
        let frags = self.producer.frags.read();
        let pages = (lap_start as u64 + in_lap as u64).saturating_sub(frags);
        self.pages_observed.fetch_max(pages, Ordering::Relaxed).max(pages)
    }

    /// Messages of fragments in the lane. Any thread.
    pub(crate) fn frags_in(&self) -> u64 {
        let pages = self.consumer.pages.read();
        let taken = (self.consumer.at.load(Ordering::Relaxed) as u64).wrapping_sub(pages);
        self.producer.frags.read().saturating_sub(taken)
    }

    /// Calls `returned` with the page and number of each message of fragments in the lane. Any thread.
    pub(crate) fn each_frag(&self, head_mask: NonZeroU32, returned: &mut impl FnMut(PageIdx, u32)) {
        let slots = self.consumer.slots;
        let start = self.consumer.at.load(Ordering::Acquire);
        let messages = (0..=slots.mask).map_while(|at| slots.message(start.wrapping_add(at)));
        for (page, n) in messages.filter(|message| message.is_frag()).map(|message| message.frags(head_mask))
        {
            returned(page, n);
        }
    }

    /// Pages in the lane. Any thread.
    pub(crate) fn pages_in(&self) -> u64 {
        let taken = self.consumer.pages.read();
        self.pages_pushed().saturating_sub(taken)
    }
}

impl LaneProducer {
    /// A plain load, which the compiler can fold into a compare. For the thread that claimed the lane.
    #[inline(always)]
    fn until(&self) -> *mut LaneSlot {
        // SAFETY: only the calling thread writes it.
        unsafe { self.until.as_ptr().read() }
    }

    /// As [`until`](Self::until).
    #[inline(always)]
    fn phase(&self) -> u32 {
        // SAFETY: only the calling thread writes it.
        unsafe { self.phase.as_ptr().read() }
    }

    /// For the thread that claimed the lane.
    fn place(&self) -> usize {
        let in_lap = self.next.load(Ordering::Relaxed).addr() - self.slots.first.addr().get();
        self.lap_start.load(Ordering::Relaxed).wrapping_add(in_lap / size_of::<LaneSlot>())
    }
}

impl MessageQueue for Lane {
    #[inline(always)]
    fn peek(&self) -> Option<Message> {
        self.consumer.slots.message(self.consumer.at.load(Ordering::Relaxed))
    }

    fn capacity(&self) -> usize {
        self.consumer.slots.mask + 1
    }

    /// For the owner, or for [`Lane::take_all`] after the pool's end.
    #[inline(always)]
    fn pop(&self) -> Option<Message> {
        #[cfg(loom)]
        self.consumer.watch.touch();
        let at = self.consumer.at.load(Ordering::Relaxed);
        let message = self.consumer.slots.message(at)?;
        #[cfg(loom)]
        self.consumer.slots.at(at).watch.touch();
        self.consumer.at.store(at.wrapping_add(1), Ordering::Release); // pairs with find_free()
        Some(message)
    }

    #[inline]
    fn take_pages(&self, space: &mut [u32]) -> usize {
        #[cfg(loom)]
        self.consumer.watch.touch();
        let (end, slots) = (&self.consumer, self.consumer.slots);
        let start = end.at.load(Ordering::Relaxed);
        let mut taken = 0;
        while taken < space.len() {
            let at = start.wrapping_add(taken);
            let run = slots.run(at, space.len() - taken);
            let space = &mut space[taken..][..run.len()];
            let pages = take_run(run, slots.phase(at), slots.not_a_page(), space);
            taken += pages;
            if pages < run.len() {
                break;
            }
        }
        // One store for all slots: the producer reads this line once a lap, and each store takes it away
        // again.
        end.at.store(start.wrapping_add(taken), Ordering::Release); // pairs with find_free()
        taken
    }

    #[inline]
    fn take_lives(&self, space: &mut [u32], ends: impl Fn(PageIdx, u32) -> bool + Copy) -> (usize, usize) {
        #[cfg(loom)]
        self.consumer.watch.touch();
        let (end, slots) = (&self.consumer, self.consumer.slots);
        let start = end.at.load(Ordering::Relaxed);
        let (mut taken, mut kept) = (0, 0);
        while kept < space.len() {
            let at = start.wrapping_add(taken);
            let run = slots.run(at, space.len() - kept);
            let space = &mut space[kept..][..run.len()];
            let (lives, pages) = slots.take_lives(run, slots.phase(at), space, ends);
            (taken, kept) = (taken + lives, kept + pages);
            if lives < run.len() {
                break;
            }
        }
        end.at.store(start.wrapping_add(taken), Ordering::Release); // pairs with find_free()
        (taken, kept)
    }
}

/// Sets a flag in these lanes, claimed or not. Each returning thread either sees it after its push, or its
/// push is seen by what follows this call.
pub(crate) fn raise_all<'a>(lanes: impl IntoIterator<Item = &'a Lane>, flag: u32) {
    for lane in lanes {
        // Release pairs with flagged(): a returning thread that sees DETACHED takes over the consumer's end.
        lane.producer.flags.fetch_or(flag, Ordering::Release);
    }
    heavy_fence(); // pairs with the light fence in after_push()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn observed_page_counts_only_grow_and_never_exceed_pushes() {
        const MESSAGES: u64 = 200_000;
        let lane = Lane::alone(64);
        let begun = PlainU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for at in 0..MESSAGES {
                    let is_page = at % 3 == 0;
                    begun.fetch_add(u64::from(is_page), Ordering::Relaxed);
                    while !if is_page {
                        lane.push(Message::of_page(PageIdx(1)))
                    } else {
                        lane.push_frags(Message::of_frag(PageIdx(1)))
                    } {
                        std::thread::yield_now();
                    }
                }
            });
            let (mut taken, mut seen) = (0, 0);
            while taken < MESSAGES {
                let pushed = lane.pages_pushed();
                let most = begun.load(Ordering::Acquire);
                assert!((seen..=most).contains(&pushed), "{pushed}, before {seen}, begun {most}");
                seen = pushed;
                match lane.pop() {
                    Some(_) => taken += 1,
                    None => std::thread::yield_now(),
                }
            }
        });
        assert_eq!(lane.pages_pushed(), MESSAGES.div_ceil(3));
    }

    #[test]
    fn a_run_has_four_lines_or_a_lap() {
        for (size, run) in [(2, 2), (16, 16), (64, 64), (256, 64)] {
            let lane = Lane::alone(size);
            for _ in 0..3 * size {
                assert!(lane.push(Message::of_page(PageIdx(1))) && lane.pop().is_some());
                let at = lane.producer.place();
                let left = lane.run_left(lane.producer.next.load(Ordering::Relaxed)).len();
                assert_eq!(left, (run - at % run) % run, "{at} in a lane of {size}");
            }
        }
    }

    #[test]
    fn runs_end_with_four_lines_their_lap_and_what_is_free() {
        for size in [2, 16, 64, 256] {
            let lane = Lane::alone(size);
            for round in 0..10 * size as u32 {
                let pages: Vec<u32> = (0..7 + round % 93).collect();
                let pushed = lane.push_pages(&pages, |page| Message::of_page(PageIdx(*page)));
                assert_eq!(pushed, pages.len().min(size), "lane of {size}, round {round}");
                assert_eq!(lane.push(Message::of_page(PageIdx(99))), pushed < size);
                let all: Vec<u32> = lane.take_all().into_iter().map(|message| message.page().0).collect();
                assert_eq!(all[..pushed], pages[..pushed]);
                assert_eq!(all.len(), size.min(pages.len() + 1));
                assert_eq!(lane.pages_in(), 0);
            }
        }
    }
}
