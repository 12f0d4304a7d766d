//! A counted reference to what the clones of a packet share.
//!
//! What   [`BlockRef`] gives `&Block`, and `&mut Block` while it is the only one. The last to be dropped
//!        returns all memory and puts the block back.
//! Pairs  drop (Release on `refs`) -> the last drop, and `get_mut` (Acquire): they come after all reads of
//!        the others and see their note.
//! Cost   clone, and drop of one of several: one atomic operation. Only reference: taken and put back, see
//!        `cache.rs`.

// UNSAFETY: blocks are raw memory, accessed by address under the count of references.
#![expect(unsafe_code)]

use std::fmt;
use std::ops::{Deref, DerefMut};

use pagepool::internal::{AtomicBool, AtomicU32, Ordering, fence};

use crate::block::{Block, BlockInfo};
use crate::cache::{CacheRef, SkbCache};
use crate::frag::SkbFrag;
use crate::frags::Frags;
use crate::head_memory::Head;

/// A counted reference to a block.
pub(crate) struct BlockRef {
    cache: CacheRef,
    slot: u32,
}

// SAFETY: a block's contents are `Send` and `Sync`, and change only while there is one reference, through it.
unsafe impl Send for BlockRef {}
// SAFETY: a block is only read through a shared reference.
unsafe impl Sync for BlockRef {}

impl fmt::Debug for BlockRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Block({}, {} refs)", self.slot, self.info.refs.load(Ordering::Relaxed))
    }
}

impl BlockRef {
    /// Takes an empty block with an empty head inside; `None` if the cache is exhausted.
    #[inline]
    pub(crate) fn take(cache: &SkbCache) -> Option<NewBlock> {
        Self::take_from(cache.blocks())
    }

    /// Takes an empty block of the same cache.
    pub(crate) fn another(&self) -> Option<NewBlock> {
        Self::take_from(self.cache)
    }

    #[inline]
    fn take_from(cache: CacheRef) -> Option<NewBlock> {
        let slot = cache.take()?;
        let info = BlockInfo {
            refs: AtomicU32::new(1),
            shared: AtomicBool::new(false),
            head: Head::Inside,
            frags: Frags::new(),
        };
        // SAFETY: I1. The block was just taken.
        let room = unsafe { &raw mut (*cache.block(slot)).info };
        // SAFETY: I1. Only this thread uses the block, and what its last user had in it was returned.
        unsafe { room.write(info) };
        Some(NewBlock(Self { cache, slot }))
    }

    /// The block, if this is the only reference. No atomic read-modify-write.
    #[inline]
    pub(crate) fn get_mut(&mut self) -> Option<&mut Block> {
        if self.is_shared() {
            return None;
        }
        // SAFETY: I1, I3. This is the only reference, it is borrowed exclusively, and others can be made only
        // from it.
        let block = unsafe { &mut *self.cache.block(self.slot) };
        block.settle();
        Some(block)
    }

    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        self.info.refs.load(Ordering::Acquire) != 1 // pairs with drop()
    }

    /// References to all fragments, for another packet: one atomic operation per fragment of pool memory.
    pub(crate) fn references(&self) -> impl Iterator<Item = SkbFrag> {
        self.note_readers();
        // SAFETY: because of the note, this block's fragments become shared before they are dropped or given
        // away.
        self.info.frags.as_slice().iter().map(|frag| unsafe { frag.reference() })
    }

    /// Notes that fragments have other readers. Each is counted as shared before the note is set, so that no
    /// reader takes itself for the only one.
    fn note_readers(&self) {
        if self.info.shared.load(Ordering::Acquire) {
            return;
        }
        let frags = self.info.frags.as_slice();
        frags.iter().for_each(|frag| frag.memory().count_shared());
        if self.info.shared.swap(true, Ordering::AcqRel) {
            // SAFETY: I1. It was counted above, in vain: another clone was faster, and has counted it, too.
            frags.iter().for_each(|frag| unsafe { frag.memory().uncount_shared() });
        }
    }
}

/// A block that has had no second reference yet.
#[derive(Debug)]
pub(crate) struct NewBlock(BlockRef);

impl Deref for NewBlock {
    type Target = Block;
    #[inline]
    fn deref(&self) -> &Block {
        &self.0
    }
}

impl DerefMut for NewBlock {
    #[inline]
    fn deref_mut(&mut self) -> &mut Block {
        // SAFETY: I1. This type makes no second reference, and it is borrowed exclusively.
        unsafe { &mut *self.0.cache.block(self.0.slot) }
    }
}

impl From<NewBlock> for BlockRef {
    #[inline]
    fn from(block: NewBlock) -> Self {
        block.0
    }
}

impl Deref for BlockRef {
    type Target = Block;
    #[inline]
    fn deref(&self) -> &Block {
        // SAFETY: I3. A reference keeps the block, which changes only while there is one reference, through
        // it.
        unsafe { &*self.cache.shared_block(self.slot) }
    }
}

impl Clone for BlockRef {
    #[inline]
    fn clone(&self) -> Self {
        if self.info.refs.fetch_add(1, Ordering::Relaxed) > i32::MAX as u32 {
            std::process::abort(); // 2^31 forgotten clones: abort before the count wraps, as `Arc` does
        }
        Self { cache: self.cache, slot: self.slot }
    }
}

impl Drop for BlockRef {
    #[inline]
    fn drop(&mut self) {
        // In models the check and the subtraction are one access. Otherwise a thread's own check makes loom
        // forget earlier checks of other threads, and it does not try the subtraction between such a check
        // and what follows it.
        if cfg!(loom) || self.is_shared() {
            if self.info.refs.fetch_sub(1, Ordering::Release) != 1 {
                return;
            }
            fence(Ordering::Acquire); // pairs with the subtraction of the others
        }
        let rest = BlockRest { cache: self.cache, slot: self.slot };
        rest.return_buffers();
        std::mem::forget(rest);
        self.cache.put(self.slot);
    }
}

/// The block of a dropped last reference. It is dropped only if a callback panics while the block is emptied;
/// then it returns the other memory and puts the block back.
struct BlockRest {
    cache: CacheRef,
    slot: u32,
}

impl BlockRest {
    #[inline(always)]
    fn return_buffers(&self) {
        // SAFETY: I1. The last reference to the block is gone, and this replaces it.
        unsafe { &mut *self.cache.block(self.slot) }.end();
    }
}

impl Drop for BlockRest {
    #[cold]
    fn drop(&mut self) {
        self.return_buffers();
        self.cache.put(self.slot);
    }
}
