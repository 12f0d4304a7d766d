//! The locked ring: where pages return when no lane takes them.
//!
//! What   a bounded FIFO of messages; a slot holds one more than the message's bits, or 0 if it is empty. A
//!        producer looks only at its next slot, the consumer only at its own, and neither reads the other's
//!        index.
//! Who    producers under the pool's return lock, which holds their position; the consumer is the owner,
//!        without a lock (I2), or the thread that ends the pool, under the return lock.
//! Why    mirrors include/linux/ptr_ring.h (v7.3) with two differences: a slot is four bytes, and it is
//!        emptied when it is taken, not sixteen at a time, so the capacity is exact (note 0001).
//! Pairs  push (slot, Release) -> pop (slot, Acquire).

use std::mem::offset_of;
use std::num::NonZeroU32;
use std::sync::atomic::AtomicUsize;

use crate::home::message::{Message, MessageQueue};
use crate::home::stats::Counter;
use crate::mem::page::PageIdx;
#[cfg(loom)]
use crate::sys::sync::OneAtATime;
use crate::sys::sync::{AtomicU32, Ordering, Padded, publish};

/// The most slots a ring may have, as in Linux: more is clamped to this.
pub(crate) const MAX_RING: usize = 16384;

/// The ring that every thread may return through, under the pool's return lock.
#[derive(Debug)]
pub(crate) struct ReturnRing {
    slots: Box<[AtomicU32]>,
    /// The consumer's position and how many pages it has taken: the owner's line.
    consumer: Padded<RingConsumer>,
}

#[derive(Debug, Default)]
struct RingConsumer {
    at: AtomicUsize,
    pages: Counter,
    /// Messages of fragments that were taken.
    frags: Counter,
    #[cfg(loom)]
    watch: OneAtATime,
}

/// The producers' position; lives under the return lock. As the consumer's, it may be one past the last slot,
/// which is the first: so the check of the index is also the one of the wrap. No mask: Linux allows any size,
/// so a ring need not be a power of two.
#[derive(Debug, Default)]
pub(crate) struct RingTail(usize);

impl ReturnRing {
    /// Where the count of [`pages_taken`](Self::pages_taken) is.
    pub(crate) const PAGES_TAKEN_AT: usize = offset_of!(Self, consumer.0.pages);

    /// Where the count of [`frags_taken`](Self::frags_taken) is.
    pub(crate) const FRAGS_TAKEN_AT: usize = offset_of!(Self, consumer.0.frags);

    /// An empty ring of `size` slots; 0 makes one that refuses everything.
    pub(crate) fn new(size: usize) -> Self {
        let slots = (0..size).map(|_| AtomicU32::new(0)).collect();
        Self { slots, consumer: Padded::default() }
    }

    /// Appends a message, unless the ring is full. The caller holds the return lock, which `tail` proves.
    #[inline]
    pub(crate) fn push(&self, tail: &mut RingTail, message: Message) -> bool {
        if tail.0 >= self.slots.len() {
            tail.0 = 0;
        }
        let Some(slot) = self.slots.get(tail.0) else { return false };
        if !publish(slot, message.bits() + 1) {
            return false; // pairs with pop()
        }
        tail.0 += 1;
        true
    }

    /// The most messages that it may have.
    pub(crate) fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Whether the oldest slot is empty.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.peek().is_none()
    }

    /// Where the consumer looks next: 0 in a ring without slots.
    #[inline(always)]
    fn next(&self) -> usize {
        let at = self.consumer.at.load(Ordering::Relaxed);
        if at < self.slots.len() { at } else { 0 }
    }

    /// Pages ever taken out; readable by anyone. Those pushed are what the returns count as `recycle_ring`.
    pub(crate) fn pages_taken(&self) -> u64 {
        self.consumer.pages.read()
    }

    /// Messages of fragments ever taken out; readable by anyone.
    pub(crate) fn frags_taken(&self) -> u64 {
        self.consumer.frags.read()
    }

    /// Calls with each message of fragments in the ring: their page, and how many. For anyone.
    pub(crate) fn each_frag(&self, head_mask: NonZeroU32, returned: &mut impl FnMut(PageIdx, u32)) {
        let bits = self.slots.iter().filter_map(|slot| slot.load(Ordering::Acquire).checked_sub(1));
        for message in bits.map(Message::from_bits).filter(|message| message.is_frag()) {
            let (page, n) = message.frags(head_mask);
            returned(page, n);
        }
    }
}

impl MessageQueue for ReturnRing {
    #[inline]
    fn peek(&self) -> Option<Message> {
        let bits = self.slots.get(self.next())?.load(Ordering::Acquire).checked_sub(1)?; // pairs with push()
        Some(Message::from_bits(bits))
    }

    fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// For the owner, or for who ends the pool.
    #[inline]
    fn pop(&self) -> Option<Message> {
        #[cfg(loom)]
        self.consumer.watch.touch();
        let at = self.next();
        let slot = self.slots.get(at)?;
        let bits = slot.load(Ordering::Acquire).checked_sub(1)?; // pairs with push()
        let message = Message::from_bits(bits);
        slot.store(0, Ordering::Release);
        self.consumer.at.store(at + 1, Ordering::Relaxed);
        let count = if message.is_frag() { &self.consumer.frags } else { &self.consumer.pages };
        count.add(1);
        Some(message)
    }

    #[inline]
    fn take_pages(&self, space: &mut [u32]) -> usize {
        #[cfg(loom)]
        self.consumer.watch.touch();
        let (mut at, mut taken) = (self.next(), 0);
        // Those up to the end of the array, and those from its start.
        loop {
            let run = take_run(&self.slots[at..], &mut space[taken..]);
            at += run;
            taken += run;
            if at < self.slots.len() || run == 0 {
                break;
            }
            at = 0;
        }
        // Once for all: no producer reads this position, so nobody waits for it.
        self.consumer.at.store(at, Ordering::Relaxed);
        self.consumer.pages.add(taken as u64);
        taken
    }
}

/// Takes messages of whole pages out of slots that follow each other, as page numbers, up to the first slot
/// without one; says how many.
#[inline(always)]
fn take_run(slots: &[AtomicU32], space: &mut [u32]) -> usize {
    let mut taken = 0;
    for (slot, number) in slots.iter().zip(space) {
        let Some(bits) = slot.load(Ordering::Acquire).checked_sub(1) else { break }; // pairs with push()
        let message = Message::from_bits(bits);
        if message.is_frag() {
            break;
        }
        slot.store(0, Ordering::Release);
        *number = message.page().0;
        taken += 1;
    }
    taken
}
