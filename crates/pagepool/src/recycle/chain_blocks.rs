//! Memory for the further buffers of packets: blocks of one size in a slab of the pool, and the owner's
//! stash of them.
//!
//! Who    any thread takes a block and puts it back. The stash belongs to the holder of the owner half (I2).
//!        Only `packet/chain.rs` knows a block's contents.
//! Cost   an array entry on the owner's thread, else one compare-and-swap.

// UNSAFETY: the stash is in an owner cell.
#![expect(unsafe_code)]

use std::mem::MaybeUninit;

use crate::recycle::cache::OwnerProof;
use crate::sys::sync::OwnerCell;

/// Memory for the fragments of one packet.
pub(crate) struct ChainBlock {
    _words: [MaybeUninit<u64>; 52],
}

/// The owner's stash of blocks: packets that end in the poll need no atomic operation for theirs.
pub(crate) struct ChainStash {
    limit: usize,
    free: OwnerCell<FreeBlocks>,
}

struct FreeBlocks {
    count: usize,
    slots: [u32; ChainStash::MAX],
}

impl ChainStash {
    const MAX: usize = 64;

    /// Keeps at most a quarter of the pool's blocks, because other threads cannot take from here.
    pub(crate) fn new(blocks: usize) -> Self {
        let free = OwnerCell::new(FreeBlocks { count: 0, slots: [0; Self::MAX] });
        Self { limit: Self::MAX.min(blocks / 4), free }
    }

    #[inline]
    pub(crate) fn take(&self, _owner: OwnerProof) -> Option<u32> {
        // SAFETY: I2. Only the holder of the owner half comes here, and no callback runs while the borrow
        // lives.
        let free = unsafe { &mut *self.free.get() };
        free.count = free.count.checked_sub(1)?;
        Some(free.slots[free.count])
    }

    #[inline]
    pub(crate) fn put(&self, _owner: OwnerProof, slot: u32) -> bool {
        // SAFETY: I2. Only the holder of the owner half comes here, and no callback runs while the borrow
        // lives.
        let free = unsafe { &mut *self.free.get() };
        let room = free.count < self.limit;
        if room {
            free.slots[free.count] = slot;
            free.count += 1;
        }
        room
    }
}
