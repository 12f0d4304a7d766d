//! Blocks of one size that any thread takes and puts back: the memory of chains and of packet heads.
//!
//! What   a fixed array, and a stack of its free slots. Nothing is allocated after it was made, and memory is
//!        touched only when a block is used for the first time.
//! Who    any thread. A thread that took a block has it alone until it puts it back.
//! How    the head of the stack is one word: the slot on top, and how often the word was changed. The second
//!        part keeps a compare-and-swap from mistaking a stack that was changed and changed back for the one
//!        that was looked at, unless a thread sleeps between its two accesses through a multiple of 2^32
//!        changes.
//! Pairs  put (Release on the head) -> take (Acquire): the last user's writes come before the next one's.
//!        Between the two only read-modify-writes touch the head, so none breaks the chain.
//! End    close takes the whole stack at once and leaves a mark in its slot: nothing is taken any more, and a
//!        put that finds the mark says so. Each block is either counted as free by close, or put after it and
//!        told so.
//! Cost   take and put: one compare-and-swap each.

// UNSAFETY: a block is raw memory, which its taker follows by address.
#![expect(unsafe_code)]

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;

use crate::error::Error;
use crate::sys::sync::{AtomicU32, AtomicU64, Ordering, Padded};
use crate::sys::table::Table;

/// Bits of the head that name a slot; above them is the count of changes.
const SLOT: u64 = u32::MAX as u64;

/// One change of the head.
const CHANGE: u64 = 1 << 32;

/// The slot of a head whose slab was closed: beyond every block.
const CLOSED: u64 = SLOT;

/// The blocks.
pub(crate) struct Slab<T> {
    /// The free slot on top plus one, 0 for none; in the upper half how often this was changed.
    head: Padded<AtomicU64>,
    /// Places from here on were never taken.
    fresh: AtomicU32,
    slots: Table<SlabSlot<T>>,
}

/// A slot: where the stack goes on while it is free, and the block.
pub(crate) struct SlabSlot<T> {
    next: AtomicU32,
    block: UnsafeCell<MaybeUninit<T>>,
    /// Finds two who have the block alone, and one who has it before another's last access.
    #[cfg(loom)]
    watch: crate::sys::sync::OneAtATime,
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

// SAFETY: a block is touched by the one that took it; the rest is atomic.
unsafe impl<T: Send> Sync for Slab<T> {}
// SAFETY: the blocks are `Send`, and nothing in a slab is tied to a thread.
unsafe impl<T: Send> Send for Slab<T> {}

impl<T> Slab<T> {
    /// `blocks` blocks, none of them taken; fewer than 2^32.
    pub(crate) fn new(blocks: usize) -> Result<Self, Error> {
        debug_assert!(blocks < SLOT as usize, "a slot and one more are a u32");
        let slots = Table::new(blocks).map_err(|_| {
            let size = size_of::<SlabSlot<T>>();
            Error::no_memory(
                "mmap",
                format!("no memory for {blocks} blocks of {size} bytes: use fewer, or raise RLIMIT_AS"),
            )
        })?;
        Ok(Self { head: Padded(AtomicU64::new(0)), fresh: AtomicU32::new(0), slots })
    }

    /// Takes a block, with what its last user left in it; `None` when all are taken.
    #[inline]
    pub(crate) fn take(&self) -> Option<u32> {
        let mut head = self.head.load(Ordering::Acquire); // pairs with put()
        while let Some(slot) = ((head & SLOT) as u32).checked_sub(1) {
            // None is there once it is closed.
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

    /// Puts back a block that the caller took, and has no more. Says `false` if the slab was closed
    /// meanwhile: then it is for the caller to account for the block.
    #[inline]
    pub(crate) fn put(&self, slot: u32) -> bool {
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

    /// Ends it, once: nothing is taken from now on. Says how many blocks are out; each of them is still to be
    /// put.
    pub(crate) fn close(&self) -> usize {
        let head = self.head.swap(CLOSED, Ordering::Acquire); // pairs with put()
        // A thread that takes a fresh block before this is counted, also after the swap above.
        let taken = self.fresh.swap(self.slots.len() as u32, Ordering::Relaxed) as usize;
        let next_of = |slot: &u32| Some(self.slots[*slot as usize].next.load(Ordering::Relaxed));
        let slot_in = |next: u32| next.checked_sub(1);
        let free =
            std::iter::successors(slot_in((head & SLOT) as u32), |slot| next_of(slot).and_then(slot_in));
        taken - free.count()
    }

    /// The address of a block, all zeroes before its first use. Following it is for the one that took it, and
    /// has it alone.
    #[inline(always)]
    pub(crate) fn block(&self, slot: u32) -> *mut T {
        #[cfg(loom)]
        self.slots[slot as usize].watch.touch();
        self.slots[slot as usize].block.get().cast()
    }

    /// The same for a block whose taker shares it with others; all of them only read.
    #[inline(always)]
    pub(crate) fn shared_block(&self, slot: u32) -> *const T {
        #[cfg(loom)]
        self.slots[slot as usize].watch.look();
        self.slots[slot as usize].block.get().cast()
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
