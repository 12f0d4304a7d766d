//! The blocks of packets, and how they outlive their cache.
//!
//! What   blocks of one size in a [`Slab`]. Handles share one [`CacheHandles`]. A packet refers to the cache
//!        by address and counts nothing, as a buffer that is out refers to its pool.
//! Who    any thread takes and puts blocks.
//! End    the last handle closes the slab and adds the number of blocks that are out to `late`. Each block
//!        put into the closed slab subtracts one. The change that brings `late` to 0 frees the cache: that of
//!        the last handle if nothing is out, otherwise of the last packet, on any thread. `late` is below 0
//!        while packets are faster than the last handle. It reaches 0 once, because no block is taken from a
//!        closed slab.
//! Pairs  settle (AcqRel) -> settle: the cache is freed after all that the others did in it.
//! Cost   take and put: one compare-and-swap each.

// UNSAFETY: packets refer to the cache by address.
#![expect(unsafe_code)]

use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use pagepool::Error;
#[cfg(loom)]
use pagepool::internal::LastCell;
use pagepool::internal::{AtomicI64, Ordering, Slab};

use crate::block::Block;

/// Most blocks of a cache.
const MAX_BLOCKS: usize = 1 << 24;

/// The memory of packet heads. Its size limits how many packets exist at once, not counting clones. Linux:
/// `skbuff_cache` and `skb_small_head`.
///
/// A handle, cheap to clone, for any thread. Packets may outlive the last handle, and the last packet frees
/// the memory. Without a handle the cache is [exhausted](crate::SkbError::Exhausted) for packets that need
/// another block, to be split or to get data of their own.
///
/// ```
/// use pagepool_skb::{SkBuff, SkbCache, SkbError};
///
/// let cache = SkbCache::new(1)?;
/// let packet = SkBuff::from_bytes(&cache, 64, b"hello").unwrap();
/// assert_eq!(SkBuff::from_bytes(&cache, 64, b"hello").err(), Some(SkbError::Exhausted));
/// drop(cache);
/// assert_eq!(packet.data(), b"hello");
/// # Ok::<(), pagepool::Error>(())
/// ```
#[doc(alias = "skbuff_cache")]
#[doc(alias = "skb_small_head")]
#[derive(Clone, Debug)]
pub struct SkbCache(Arc<CacheHandles>);

impl SkbCache {
    /// Creates a cache of `blocks` blocks, 1 to 2^24. A block has 1,104 bytes, 512 of them for a packet's
    /// head, and takes memory from its first use on. Nothing is allocated later.
    ///
    /// # Errors
    /// [`Error::Parameter`] for another number, or no address space.
    pub fn new(blocks: usize) -> Result<Self, Error> {
        if !(1..=MAX_BLOCKS).contains(&blocks) {
            let (field, must_be) = ("blocks", "1 to 16777216".into());
            return Err(Error::Parameter { field, value: blocks.to_string(), must_be });
        }
        let blocks = Box::new(CacheBlocks {
            slab: Slab::new(blocks)?,
            late: AtomicI64::new(0),
            #[cfg(loom)]
            alive: LastCell::new(()),
        });
        Ok(Self(Arc::new(CacheHandles(CacheRef(NonNull::from(Box::leak(blocks)))))))
    }

    /// The reference that packets have.
    pub(crate) fn blocks(&self) -> CacheRef {
        self.0.0
    }
}

/// Shared by all handles; the last one closes the cache.
#[derive(Debug)]
struct CacheHandles(CacheRef);

impl Drop for CacheHandles {
    fn drop(&mut self) {
        let out = self.0.slab.close();
        self.0.settle(out as i64);
    }
}

/// The blocks, and the number of those still out of a closed cache.
pub(crate) struct CacheBlocks {
    slab: Slab<Block>,
    late: AtomicI64,
    #[cfg(loom)]
    alive: LastCell<()>,
}

/// A packet's reference to the cache, by address. Dereferencing requires a handle or a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CacheRef(NonNull<CacheBlocks>);

// SAFETY: it refers to shared memory: the slab is `Sync`, and the count atomic.
unsafe impl Send for CacheRef {}
// SAFETY: a shared reference gives no more than a copy.
unsafe impl Sync for CacheRef {}

impl Deref for CacheRef {
    type Target = CacheBlocks;
    #[inline(always)]
    fn deref(&self) -> &CacheBlocks {
        // SAFETY: I3. The cache exists while a handle or a block does, and the caller has one.
        let blocks = unsafe { self.0.as_ref() };
        // SAFETY: I3. `alive` is taken when neither a handle nor a block is left.
        #[cfg(loom)]
        unsafe {
            blocks.alive.read()
        };
        blocks
    }
}

impl CacheRef {
    /// Takes a block; `None` when all are taken, or no handle is left.
    #[inline]
    pub(crate) fn take(self) -> Option<u32> {
        self.slab.take()
    }

    /// Puts a block back. The cache may be freed then.
    #[inline]
    pub(crate) fn put(self, slot: u32) {
        if !self.slab.put(slot) {
            self.settle(-1);
        }
    }

    /// Address of a block, for its only holder.
    #[inline(always)]
    pub(crate) fn block(self, slot: u32) -> *mut Block {
        self.slab.block(slot)
    }

    /// Address of a block, for the holder of a reference.
    #[inline(always)]
    pub(crate) fn shared_block(self, slot: u32) -> *const Block {
        self.slab.shared_block(slot)
    }

    /// Counts blocks that are out of a closed cache, and frees it with the last one.
    #[cold]
    fn settle(self, change: i64) {
        if self.late.fetch_add(change, Ordering::AcqRel) + change != 0 {
            return;
        }
        // SAFETY: I9. No handle and no block is left, and only this call finds that.
        #[cfg(loom)]
        let _ = unsafe { self.0.as_ref().alive.take() };
        // SAFETY: I9. `SkbCache::new` leaked this box, and `late` reaches 0 once, so it is freed once.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}
