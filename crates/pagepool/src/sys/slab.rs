//! Blocks of one size that any thread takes and puts back: the memory of chains and packet heads.
//!
//! What   a fixed array and a stack of its free slots. Only `new` allocates; memory is touched at a block's
//!        first use.
//! Who    any thread. A block belongs to its holder from `take` to `put`, and may move between threads.
//! How    the stack's head is one word: the top slot, and a count of changes. With the count a
//!        compare-and-swap fails on a stack that was changed and changed back (ABA), unless a thread sleeps
//!        between its two accesses through a multiple of 2^32 changes.
//! Pairs  put (Release on the head) -> take (Acquire): the previous user's writes come before the next
//!        user's. Between them only read-modify-writes touch the head, so the release sequence is unbroken.
//! End    close takes the whole stack and marks the head: later takes give none, later puts return false. So
//!        each block is either counted as free by close, or its put returns false.
//! Cost   take and put: one compare-and-swap each.

// UNSAFETY: a block is raw memory, which its taker follows by address.
#![expect(unsafe_code)]

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;

use crate::error::Error;
use crate::sys::sync::{AtomicU32, AtomicU64, OneAtATime, Ordering, Padded};
use crate::sys::table::Table;

/// Bits of the head that name a slot; the others count changes.
const SLOT: u64 = u32::MAX as u64;

const CHANGE: u64 = 1 << 32;

/// The slot in a closed slab's head: larger than any real one.
const CLOSED: u64 = SLOT;

/// The blocks, and which of them are free.
pub struct Slab<T> {
    /// The top free slot plus one, 0 if none; the upper half counts changes.
    head: Padded<AtomicU64>,
    /// Slots from here on were never taken.
    fresh: AtomicU32,
    slots: Table<SlabSlot<T>>,
}

/// A slot: the next free slot while it is free, and the block.
pub(crate) struct SlabSlot<T> {
    next: AtomicU32,
    block: UnsafeCell<MaybeUninit<T>>,
    /// Fails the model if two threads use the block at once, or unordered.
    watch: OneAtATime,
}

// SAFETY: zero is an atomic integer, and any bytes are an uninitialised block.
#[cfg(not(loom))]
unsafe impl<T> crate::sys::table::Zeroable for SlabSlot<T> {}

#[cfg(loom)]
impl<T> Default for SlabSlot<T> {
    fn default() -> Self {
        let block = UnsafeCell::new(MaybeUninit::zeroed());
        Self { next: AtomicU32::new(0), block, watch: Default::default() }
    }
}

// SAFETY: a block is touched only by its holder, which may move to another thread; the rest is atomic.
unsafe impl<T: Send> Sync for Slab<T> {}
// SAFETY: the blocks are `Send`, and nothing in a slab is tied to a thread.
unsafe impl<T: Send> Send for Slab<T> {}

impl<T> Slab<T> {
    /// Allocates `blocks` free blocks; fewer than 2^32.
    pub fn new(blocks: usize) -> Result<Self, Error> {
        debug_assert!(blocks < SLOT as usize, "a slot and one more are a u32");
        let slots = Table::new(blocks)?;
        Ok(Self { head: Padded(AtomicU64::new(0)), fresh: AtomicU32::new(0), slots })
    }

    /// Takes a block, which holds what its last user left; `None` if all are taken.
    #[inline]
    pub fn take(&self) -> Option<u32> {
        let mut head = self.head.load(Ordering::Acquire); // pairs with put()
        while let Some(slot) = ((head & SLOT) as u32).checked_sub(1) {
            // `None` if closed.
            let next = self.slots.get(slot as usize)?.next.load(Ordering::Relaxed);
            let new = (head & !SLOT).wrapping_add(CHANGE) | next as u64;
            match self.head.compare_exchange_weak(head, new, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return Some(slot),
                Err(now) => head = now,
            }
        }
        self.take_fresh()
    }

    #[cold]
    fn take_fresh(&self) -> Option<u32> {
        let below = |fresh: u32| ((fresh as usize) < self.slots.len()).then(|| fresh + 1);
        self.fresh.fetch_update(Ordering::Relaxed, Ordering::Relaxed, below).ok()
    }

    /// Puts back a block that the caller took and no longer uses. `false` if the slab is closed: then the
    /// caller accounts for the block.
    #[inline]
    pub fn put(&self, slot: u32) -> bool {
        let next = &self.slots[slot as usize].next;
        let mut head = self.head.load(Ordering::Relaxed);
        while head & SLOT != CLOSED {
            next.store((head & SLOT) as u32, Ordering::Relaxed);
            let new = (head & !SLOT).wrapping_add(CHANGE) | (slot as u64 + 1);
            match self.head.compare_exchange_weak(head, new, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return true, // pairs with take() and close(); the slab may be gone
                Err(now) => head = now,
            }
        }
        false
    }

    /// Closes the slab, once; later takes give none. Returns how many blocks are out; each must still be put
    /// back.
    pub fn close(&self) -> usize {
        let head = self.head.swap(CLOSED, Ordering::Acquire); // pairs with put()
        // Counts a thread that took a fresh block before this, even after the swap above.
        let taken = self.fresh.swap(self.slots.len() as u32, Ordering::Relaxed) as usize;
        let next_of = |slot: &u32| Some(self.slots[*slot as usize].next.load(Ordering::Relaxed));
        let slot_in = |next: u32| next.checked_sub(1);
        let free =
            std::iter::successors(slot_in((head & SLOT) as u32), |slot| next_of(slot).and_then(slot_in));
        taken - free.count()
    }

    /// The block's address, for the thread that took it. All zeroes before its first use.
    #[inline(always)]
    pub fn block(&self, slot: u32) -> *mut T {
        let slot = &self.slots[slot as usize];
        slot.watch.touch();
        slot.block.get().cast()
    }

    /// The block's address, while several threads only read it.
    #[inline(always)]
    pub fn shared_block(&self, slot: u32) -> *const T {
        let slot = &self.slots[slot as usize];
        slot.watch.look();
        slot.block.get().cast()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_block_is_taken_once() {
        let slab = Slab::<[u64; 4]>::new(5).expect("it is small");
        let slots: BTreeSet<u32> = std::iter::from_fn(|| slab.take()).collect();
        assert_eq!(slots, (0..5).collect());
        assert_eq!(slab.take(), None);
        slab.put(3);
        slab.put(1);
        assert_eq!((slab.take(), slab.take(), slab.take()), (Some(1), Some(3), None), "last in, first out");
    }

    #[test]
    fn a_closed_slab_says_what_is_out() {
        let slab = Slab::<u64>::new(5).expect("it is small");
        let slots: Vec<u32> = (0..4).filter_map(|_| slab.take()).collect();
        assert!(slab.put(slots[1]) && slab.put(slots[2]));
        assert_eq!(slab.close(), 2);
        assert_eq!(slab.take(), None, "neither a returned block nor a fresh one");
        assert!(!slab.put(slots[0]));
    }

    #[test]
    fn threads_never_share_a_block() {
        let slab = Slab::<u64>::new(3).expect("it is small");
        let work = |me: u64| {
            for round in 0..20_000 {
                let Some(slot) = slab.take() else { continue };
                // SAFETY: this thread took the block.
                unsafe { slab.block(slot).write(me << 32 | round) };
                std::hint::spin_loop();
                // SAFETY: this thread took the block, and has just written it.
                assert_eq!(unsafe { slab.block(slot).read() }, me << 32 | round);
                slab.put(slot);
            }
        };
        std::thread::scope(|threads| {
            for me in 1..=4 {
                let work = &work;
                threads.spawn(move || work(me));
            }
        });
        assert_eq!(std::iter::from_fn(|| slab.take()).count(), 3);
    }
}
