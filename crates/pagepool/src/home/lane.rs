//! A lane: one returning thread's way back to one pool.
//!
//! What   a single-producer array of messages, 0 = empty slot. The slot is the message: one Release store
//!        publishes it, there is no index to share and no unpublished tail, so nothing is stranded in a
//!        thread that falls asleep.
//! Who    `push` by the thread that claimed the lane; `pop` by the owner (I2), or in `take_all` once the pool
//!        has ended.
//! Life   the pool makes its lanes; a thread claims one at its first return and keeps it by `Arc` until it
//!        ends, so neither end dangles: after its store a returner looks only at the lane, never at the pool,
//!        which may be freed by then (Linux had that fault until 271683bb2cf3).
//! Cost   push: three stores (slot, place, count of pages), no atomic read-modify-write. The slots travel
//!        between the cores sixteen messages a line.
//! Pairs  push (slot, Release) -> pop (slot, Acquire). pop (at, Release, after emptying) -> find_free (at,
//!        Acquire). push (slot; light fence; flags) against raise_all (flags; heavy fence; slots): one of
//!        them sees the other. raise_all (flags, Release) -> flagged (Acquire). unclaim (claim, Release) ->
//!        claim, is_claimed (Acquire).

// UNSAFETY: one prefetch instruction.
#![cfg_attr(all(target_arch = "x86_64", not(loom)), expect(unsafe_code))]

use std::sync::Arc;
use std::sync::atomic::AtomicUsize as PlainUsize;

use crate::home::message::{MessageQueue, frag_message, is_frag, page_message};
use crate::home::stats::Counter;
use crate::mem::page::PageIdx;
#[cfg(loom)]
use crate::sys::sync::OneAtATime;
use crate::sys::sync::{AtomicU32, AtomicUsize, Lock, Ordering, Padded, heavy_fence, light_fence};
use crate::sys::wakeup::Wakeup;

/// In the flags of a [`Lane`]: the pool has ended; the returner takes its messages out again and accounts for
/// them.
pub(crate) const DETACHED: u32 = 1;
/// In the flags of a [`Lane`]: the owner found nothing and may be asleep; the returner wakes it.
pub(crate) const STARVED: u32 = 2;

/// One returning thread's messages to the owner of one pool.
#[derive(Debug)]
pub(crate) struct Lane {
    /// Both ends read these; they hardly ever change. A power of two of slots.
    slots: Box<[AtomicU32]>,
    /// 0 free, 1 claimed.
    claim: AtomicU32,
    pub(crate) wakeup: Arc<Wakeup>,
    /// Taken to empty the lane once the pool has ended: by the returner, or the thread that ends the pool.
    cold: Lock<()>,
    producer: Padded<LaneProducer>,
    consumer: Padded<LaneConsumer>,
}

/// The returning thread's line; the owner writes `flags` when the pool starves or ends.
#[derive(Debug, Default)]
struct LaneProducer {
    at: PlainUsize,
    /// Slots before this place are known to be empty: the producer looks at the consumer's line once a lap,
    /// and never loads a slot.
    free_until: PlainUsize,
    /// Pages pushed; messages of fragments are not counted. A count of its own, so that an observer sees it
    /// only grow.
    pages: Counter,
    flags: AtomicU32,
    #[cfg(loom)]
    watch: OneAtATime,
}

/// The owner's line.
#[derive(Debug, Default)]
struct LaneConsumer {
    at: AtomicUsize,
    pages: Counter,
    #[cfg(loom)]
    watch: OneAtATime,
}

impl Lane {
    /// A free lane of `size` slots, a power of two.
    pub(crate) fn new(size: usize, wakeup: Arc<Wakeup>) -> Self {
        debug_assert!(size.is_power_of_two(), "the builder checks lane_size");
        let producer = LaneProducer { free_until: PlainUsize::new(size), ..Default::default() };
        Self {
            slots: (0..size).map(|_| AtomicU32::new(0)).collect(),
            claim: AtomicU32::new(0),
            wakeup,
            cold: Lock::new(()),
            producer: Padded(producer),
            consumer: Padded::default(),
        }
    }

    /// Takes a free lane for the calling thread; says whether it got it.
    pub(crate) fn claim(&self) -> bool {
        // Acquire pairs with unclaim(): the new thread sees where the old one stopped.
        self.claim.load(Ordering::Relaxed) == 0
            && self.claim.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Whether a thread has it.
    #[inline(always)]
    pub(crate) fn is_claimed(&self) -> bool {
        self.claim.load(Ordering::Acquire) != 0 // pairs with unclaim()
    }

    #[inline(always)]
    fn slot(&self, at: usize) -> &AtomicU32 {
        &self.slots[at & (self.slots.len() - 1)]
    }

    /// Puts a message unless the lane is full. Follow it with [`after_push`](Self::after_push).
    #[inline(always)]
    fn push(&self, message: u32) -> bool {
        #[cfg(loom)]
        self.producer.watch.touch();
        let at = self.producer.at.load(Ordering::Relaxed);
        if at == self.producer.free_until.load(Ordering::Relaxed) && !self.find_free(at) {
            return false;
        }
        // The next lines are still in the owner's cache: fetch one early, so that its transfer overlaps with
        // returns.
        if at.is_multiple_of(SLOTS_A_LINE) {
            prefetch_to_write(self.slot(at.wrapping_add(AHEAD)));
        }
        self.slot(at).store(message, Ordering::Release); // pairs with pop() and take_pages()
        self.producer.at.store(at.wrapping_add(1), Ordering::Relaxed);
        true
    }

    /// Looks how far the consumer has emptied the lane; says whether there is a free slot.
    #[cold]
    fn find_free(&self, at: usize) -> bool {
        // One look covers the whole lap: loading the slot instead would pull the owner's line for every
        // message.
        let taken = self.consumer.at.load(Ordering::Acquire); // pairs with pop() and take_pages()
        let free_until = taken.wrapping_add(self.slots.len());
        self.producer.free_until.store(free_until, Ordering::Relaxed);
        at != free_until
    }

    /// As [`push`](Self::push), for a whole page.
    #[inline(always)]
    pub(crate) fn push_page(&self, page: PageIdx) -> bool {
        let pushed = self.push(page_message(page));
        self.producer.pages.add(u64::from(pushed));
        pushed
    }

    /// As [`push`](Self::push), for a fragment of a page.
    #[inline(always)]
    pub(crate) fn push_frag(&self, page: PageIdx) -> bool {
        self.push(frag_message(page))
    }

    /// The returner's look at the flags, after one or many pushes: 0 almost always.
    #[inline(always)]
    pub(crate) fn after_push(&self) -> u32 {
        light_fence(); // pairs with the heavy fence in raise_all()
        self.producer.flags.load(Ordering::Relaxed)
    }

    /// Whether the oldest slot is empty.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.peek() == 0
    }

    /// The oldest message, left where it is; 0 when there is none.
    #[inline(always)]
    pub(crate) fn peek(&self) -> u32 {
        let at = self.consumer.at.load(Ordering::Relaxed);
        self.slot(at).load(Ordering::Acquire) // pairs with push()
    }

    /// Counts pages that the owner took out.
    #[inline(always)]
    pub(crate) fn count_taken(&self, n: u64) {
        self.consumer.pages.add(n);
    }

    /// Everything in the lane of a pool that has ended, taken out as its one consumer.
    pub(crate) fn take_all(&self) -> Vec<u32> {
        // The owner and a late returner may both be here: each message is popped, and accounted for, once.
        let _held = self.cold.lock();
        let messages: Vec<u32> = std::iter::from_fn(|| self.pop()).collect();
        self.count_taken(messages.iter().filter(|&&m| !is_frag(m)).count() as u64);
        messages
    }

    /// Raises a flag for the calling thread's own next push.
    pub(crate) fn raise(&self, flag: u32) {
        self.producer.flags.fetch_or(flag, Ordering::Relaxed);
    }

    /// Takes a flag away again; for the returner that has acted on it.
    pub(crate) fn lower(&self, flag: u32) {
        // Acquire pairs with raise_all(): a wake that follows finds what the owner raised before the flag.
        self.producer.flags.fetch_and(!flag, Ordering::Acquire);
    }

    /// The thread ends: the next thread continues where it stopped, and the owner takes the messages that it
    /// left.
    pub(crate) fn unclaim(&self) {
        self.claim.store(0, Ordering::Release); // pairs with claim() and is_claimed()
    }

    /// Whether the pool has ended.
    pub(crate) fn is_detached(&self) -> bool {
        self.producer.flags.load(Ordering::Relaxed) & DETACHED != 0
    }

    /// Pages ever pushed; readable by anyone.
    pub(crate) fn pages_pushed(&self) -> u64 {
        self.producer.pages.read()
    }

    /// Pages in the lane; readable by anyone.
    pub(crate) fn pages_in(&self) -> u64 {
        let taken = self.consumer.pages.read();
        self.pages_pushed().saturating_sub(taken)
    }
}

impl MessageQueue for Lane {
    /// For the owner, or in [`Lane::take_all`] once the pool has ended.
    #[inline(always)]
    fn pop(&self) -> Option<u32> {
        #[cfg(loom)]
        self.consumer.watch.touch();
        let at = self.consumer.at.load(Ordering::Relaxed);
        let slot = self.slot(at);
        let message = slot.load(Ordering::Acquire); // pairs with push()
        if message == 0 {
            return None;
        }
        // Relaxed: the producer never loads a slot; it learns from `at`, whose Release covers this store.
        slot.store(0, Ordering::Relaxed);
        self.consumer.at.store(at.wrapping_add(1), Ordering::Release); // pairs with find_free()
        Some(message)
    }

    #[inline]
    fn take_pages(&self, space: &mut [u32]) -> usize {
        #[cfg(loom)]
        self.consumer.watch.touch();
        let start = self.consumer.at.load(Ordering::Relaxed);
        let mut taken = 0;
        for number in space {
            let slot = self.slot(start.wrapping_add(taken));
            let message = slot.load(Ordering::Acquire); // pairs with push()
            if message == 0 || is_frag(message) {
                break;
            }
            slot.store(0, Ordering::Relaxed);
            *number = message - 1;
            taken += 1;
        }
        // Once for all slots: the producer reads this line once a lap, and each store takes it away again.
        self.consumer.at.store(start.wrapping_add(taken), Ordering::Release); // pairs with find_free()
        taken
    }
}

/// Slots in a cache line.
const SLOTS_A_LINE: usize = 16;

/// Slots that a producer fetches ahead: a line takes about as long from the other core as this many returns.
const AHEAD: usize = 4 * SLOTS_A_LINE;

/// Fetches a line to be written, while other returns go on.
#[inline(always)]
fn prefetch_to_write(slot: &AtomicU32) {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    // SAFETY: a prefetch reads and changes nothing, whatever the address.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) slot.as_ptr(), options(nostack, preserves_flags));
    }
    #[cfg(not(all(target_arch = "x86_64", not(loom))))]
    let _ = slot;
}

/// Raises a flag in each of these lanes, claimed or not, so that each returner either sees it after its push,
/// or has pushed before and is seen by what follows this call.
pub(crate) fn raise_all<'a>(lanes: impl IntoIterator<Item = &'a Arc<Lane>>, flag: u32) {
    for lane in lanes {
        // Release pairs with flagged(): a returner that sees DETACHED takes the consumer's end over from the
        // owner.
        lane.producer.flags.fetch_or(flag, Ordering::Release);
    }
    heavy_fence(); // pairs with the light fence in after_push()
}
