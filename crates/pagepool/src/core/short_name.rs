//! Short names of pools: 16 bits instead of a 64-bit address.
//!
//! What   a process-wide table with a slot for each live pool; [`PackedBuf`](crate::PackedBuf) finds its pool
//!        there.
//! Who    a slot is taken when a pool is created and released when it is freed, under a lock. Any thread with
//!        a buffer of the pool reads it, by a plain load.
//! Life   a buffer that is out keeps its pool alive (I3), and the pool keeps its slot. The slot is written
//!        before the pool's first buffer exists, and again after the last has returned. Passing the buffer to
//!        a thread orders the first write, so the thread's load needs no ordering.
//! Limit  65,535 pools at a time; later ones have no slot, and their buffers cannot be packed.

use std::num::NonZeroU16;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::sys::sync::UnseenLock;

/// In `.bss`: 512 KiB of addresses, backed by memory only where pools took slots.
static POOLS: [AtomicPtr<()>; 1 << 16] = [const { AtomicPtr::new(null_mut()) }; 1 << 16];
static FREE: UnseenLock<FreeSlots> = UnseenLock::new(FreeSlots { used: 0, given_back: Vec::new() });

/// Unused slots.
struct FreeSlots {
    /// Slots 1 to `used` were taken at least once.
    used: u16,
    given_back: Vec<NonZeroU16>,
}

impl FreeSlots {
    fn take(&mut self) -> Option<NonZeroU16> {
        if let Some(again) = self.given_back.pop() {
            return Some(again);
        }
        self.used = self.used.checked_add(1)?;
        NonZeroU16::new(self.used)
    }
}

/// A pool's slot in the table, or none. Its drop releases the slot.
#[derive(Debug)]
pub(crate) struct ShortName(Option<NonZeroU16>);

impl ShortName {
    /// Takes an unused slot, if there is one.
    pub(crate) fn take() -> Self {
        Self(FREE.lock().take())
    }

    /// Points the slot to its pool, whose type this table does not know.
    pub(crate) fn lead_to(&self, pool: NonNull<()>) {
        if let Some(slot) = self.0 {
            POOLS[usize::from(slot.get())].store(pool.as_ptr(), Ordering::Relaxed);
        }
    }

    /// The slot, if there is one.
    pub(crate) fn name(&self) -> Option<NonZeroU16> {
        self.0
    }

    /// The slot's number; 0 is none.
    #[inline(always)]
    pub(crate) fn number(&self) -> u16 {
        self.0.map_or(0, NonZeroU16::get)
    }
}

impl Drop for ShortName {
    fn drop(&mut self) {
        if let Some(slot) = self.0 {
            POOLS[usize::from(slot.get())].store(null_mut(), Ordering::Relaxed);
            FREE.lock().given_back.push(slot);
        }
    }
}

/// The pool in a slot; null without one.
#[inline(always)]
pub(crate) fn pool_at(slot: u16) -> *mut () {
    POOLS[usize::from(slot)].load(Ordering::Relaxed)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_place_that_was_given_back_leads_nowhere_and_is_used_again() {
        let mut last = 0;
        for _ in 0..70_000 {
            let name = ShortName::take();
            last = name.number();
            assert_ne!(last, 0, "all places are taken, though each was given back");
            name.lead_to(NonNull::from(&last).cast());
            assert!(!pool_at(last).is_null());
        }
        assert!(usize::from(last) < POOLS.len());
    }

    #[test]
    fn each_place_is_one_pools_at_a_time() {
        let mut free = FreeSlots { used: 0, given_back: Vec::new() };
        let taken: HashSet<_> = std::iter::from_fn(|| free.take()).collect();
        assert_eq!(taken.len(), 65535);
        assert_eq!(free.take(), None, "a pool beyond them has no place");
        free.given_back.push(NonZeroU16::MIN);
        assert_eq!((free.take(), free.take()), (Some(NonZeroU16::MIN), None));
    }
}
