//! The locked ring: where pages return if no lane takes them.
//!
//! What   a bounded FIFO of messages. A slot holds the message's bits plus one, or 0 if it is empty. The
//!        producer checks only its next slot, the consumer only its own; neither reads the other's index.
//! Who    producers under the pool's return lock, which guards their position. The consumer is the owner,
//!        without a lock (I2), or the thread that ends the pool, under the return lock.
//! Why    mirrors include/linux/ptr_ring.h (v7.3), except: a slot has four bytes, and is emptied when taken,
//!        not sixteen at a time, so the capacity is exact (note 0001).
//! Lives  in a pool with lives, a second array has the life of the message in each slot.
//! Pairs  push (slot, Release) -> pop (slot, Acquire).

use std::mem::offset_of;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32 as PlainU32, AtomicUsize};

use crate::mem::page::PageIdx;
use crate::recycle::message::{FRAG, LIFE, Message, MessageQueue};
use crate::stats::Counter;
use crate::sys::sync::{AtomicU32, OneAtATime, Ordering, Padded, publish};

/// The largest number of slots, as in Linux; more is clamped.
pub(crate) const MAX_RING: usize = 16384;

/// The ring through which any thread may return, under the pool's return lock.
#[derive(Debug)]
pub(crate) struct ReturnRing {
    slots: Box<[AtomicU32]>,
    /// Empty in a pool without lives.
    lives: Box<[PlainU32]>,
    /// The consumer's position and the pages it has taken, on the owner's cache line.
    consumer: Padded<RingConsumer>,
}

#[derive(Debug, Default)]
struct RingConsumer {
    at: AtomicUsize,
    pages: Counter,
    /// Messages of fragments that were taken.
    frags: Counter,
    watch: OneAtATime,
}

/// The producers' position, under the return lock. Like the consumer's it may be one past the last slot,
/// which means the first. So one check covers index and wrap. There is no mask: Linux allows any size, so
/// the ring does too.
#[derive(Debug, Default)]
pub(crate) struct RingTail(usize);

impl ReturnRing {
    /// The offset of the count of [`pages_taken`](Self::pages_taken).
    pub(crate) const PAGES_TAKEN_AT: usize = offset_of!(Self, consumer.0.pages);

    /// The offset of the count of [`frags_taken`](Self::frags_taken).
    pub(crate) const FRAGS_TAKEN_AT: usize = offset_of!(Self, consumer.0.frags);

    /// Makes an empty ring of `size` slots; with 0 it refuses everything.
    pub(crate) fn new(size: usize, has_lives: bool) -> Self {
        let slots = (0..size).map(|_| AtomicU32::new(0)).collect();
        let lives = (0..if has_lives { size } else { 0 }).map(|_| PlainU32::new(0)).collect();
        Self { slots, lives, consumer: Padded::default() }
    }

    /// The message of a slot's bits.
    #[inline(always)]
    fn message(&self, at: usize, bits: u32) -> Message {
        match self.lives.get(at) {
            Some(life) => Message::with_life(bits, || life.load(Ordering::Relaxed)),
            None => Message::from_bits(bits),
        }
    }

    /// Appends a message, unless the ring is full. `tail` proves that the caller holds the return lock.
    #[inline]
    pub(crate) fn push(&self, tail: &mut RingTail, message: Message) -> bool {
        if tail.0 >= self.slots.len() {
            tail.0 = 0;
        }
        let Some(slot) = self.slots.get(tail.0) else { return false };
        if message.life() != 0 {
            if slot.load(Ordering::Acquire) != 0 {
                return false; // the consumer has not read the life; pairs with pop()
            }
            self.lives[tail.0].store(message.life(), Ordering::Relaxed);
        }
        if !publish(slot, message.bits() + 1) {
            return false; // pairs with pop()
        }
        tail.0 += 1;
        true
    }

    pub(crate) fn capacity(&self) -> usize {
        self.slots.len()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.peek().is_none()
    }

    /// The consumer's next slot; 0 in a ring without slots.
    #[inline(always)]
    fn next(&self) -> usize {
        let at = self.consumer.at.load(Ordering::Relaxed);
        if at < self.slots.len() { at } else { 0 }
    }

    /// Pages ever taken. Any thread. `recycle_ring` counts those pushed.
    pub(crate) fn pages_taken(&self) -> u64 {
        self.consumer.pages.read()
    }

    /// Messages of fragments ever taken. Any thread.
    pub(crate) fn frags_taken(&self) -> u64 {
        self.consumer.frags.read()
    }

    /// Calls `returned` with the page and number of each message of fragments in the ring. Any thread.
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
        let at = self.next();
        let bits = self.slots.get(at)?.load(Ordering::Acquire).checked_sub(1)?; // pairs with push()
        Some(self.message(at, bits))
    }

    fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// For the owner, or the thread that ends the pool.
    #[inline]
    fn pop(&self) -> Option<Message> {
        self.consumer.watch.touch();
        let at = self.next();
        let slot = self.slots.get(at)?;
        let bits = slot.load(Ordering::Acquire).checked_sub(1)?; // pairs with push()
        let message = self.message(at, bits);
        slot.store(0, Ordering::Release);
        self.consumer.at.store(at + 1, Ordering::Relaxed);
        let count = if message.is_frag() { &self.consumer.frags } else { &self.consumer.pages };
        count.add(1);
        Some(message)
    }

    #[inline]
    fn take_pages(&self, space: &mut [u32]) -> usize {
        self.consumer.watch.touch();
        let stop = if self.lives.is_empty() { FRAG } else { FRAG | LIFE };
        let (mut at, mut taken) = (self.next(), 0);
        // First up to the end of the array, then from its start.
        loop {
            let run = take_run(&self.slots[at..], stop, &mut space[taken..]);
            at += run;
            taken += run;
            if at < self.slots.len() || run == 0 {
                break;
            }
            at = 0;
        }
        // One store for all: no producer reads the position.
        self.consumer.at.store(at, Ordering::Relaxed);
        self.consumer.pages.add(taken as u64);
        taken
    }

    fn take_lives(&self, space: &mut [u32], ends: impl Fn(PageIdx, u32) -> bool + Copy) -> (usize, usize) {
        let (mut taken, mut kept) = (0, 0);
        while kept < space.len()
            && self.peek().is_some_and(|message| message.life() != 0)
            && let Some(message) = self.pop()
        {
            taken += 1;
            if ends(message.page(), message.life()) {
                space[kept] = message.page().0;
                kept += 1;
            }
        }
        (taken, kept)
    }
}

/// Takes messages of whole pages out of adjacent slots, as page numbers, up to the first slot without one;
/// returns how many.
#[inline(always)]
fn take_run(slots: &[AtomicU32], stop: u32, space: &mut [u32]) -> usize {
    let mut taken = 0;
    for (slot, number) in slots.iter().zip(space) {
        let Some(bits) = slot.load(Ordering::Acquire).checked_sub(1) else { break }; // pairs with push()
        if bits & stop != 0 {
            break;
        }
        slot.store(0, Ordering::Release);
        *number = Message::from_bits(bits).page().0;
        taken += 1;
    }
    taken
}
