//! Pages as numbers, and the record beside each.
//!
//! What   a page is a [`PageIdx`] in its area; its address, device address and record are base + index *
//!        size. Nothing shared holds a pointer, and 16 indices fill a cache line.
//! Who    a field of a [`PageMeta`] says who may write it; all are atomics, so that reading is always sound.
//! Where  the record lies beside the memory, never in it: a device, or a peer process on the same UMEM, can
//!        write every byte of a page and no record (I3 keeps it alive as long as any handle).
//! Cost   whole pages that are recycled never touch their record. 32 bytes per 4 KiB.

use std::fmt;

pub use crate::sys::memory::{PAGE_SHIFT, PAGE_SIZE, system_page_size};
use crate::sys::sync::AtomicU32;

/// The largest order: 4 MiB, as Linux's `MAX_PAGE_ORDER` on x86.
pub const MAX_ORDER: u8 = 10;

/// The number of a page in its area, counted in base pages of 4 KiB. A page of order `k` is named by its
/// first base page, whose number is a multiple of `1 << k`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[repr(transparent)]
pub struct PageIdx(pub u32);

/// Page numbers stay below this, so that a message and a handle have bits left.
pub(crate) const MAX_PAGES: u32 = 1 << 30;

impl PageIdx {
    /// The offset of the page's first byte in its area.
    #[inline(always)]
    pub fn offset(self) -> u64 {
        (self.0 as u64) << PAGE_SHIFT
    }
}

impl fmt::Debug for PageIdx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// A NUMA node. Linux: `nid`; "any" is `None` here and -1 there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u8);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.0)
    }
}

/// The record of one base page; a page of a higher order uses that of its first.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct PageMeta {
    /// Id of the pool that holds the page, 0 while the provider does. Written by the owner when the page
    /// joins, and by the thread that releases it.
    pub(crate) pool: AtomicU32,
    /// Fragments out, less those that `parts` has; while this is the pool's fragment page, with the part of
    /// the bias that was not handed out yet (frag.rs). Written by the owner alone (I5), after the end of the
    /// pool under the return lock. Wraps below 0.
    pub(crate) frags: AtomicU32,
    /// Fragments that returned when there was no room for a message. Under the return lock.
    pub(crate) overflow: AtomicU32,
    /// Link in the list of pages with such fragments, under the return lock: 0 not in the list, else the next
    /// + 2, or 1.
    pub(crate) next: AtomicU32,
    /// Lowest 30 bits: [`PageRef`](crate::PageRef)s that live. [`EMERGENCY`] and [`LEFT`] above.
    pub(crate) refs: AtomicU32,
    /// Clones of shared buffers of this page beyond the first of each fragment. Written by any thread.
    pub(crate) clones: AtomicU32,
    /// The page's tag, if tagging is on: its number; 0 is none.
    pub(crate) tag: AtomicU32,
    /// Parts that buffers of the page were split into on other threads than the owner's, since the page was
    /// last complete (split.rs). Added to by any thread that has a part.
    pub(crate) parts: AtomicU32,
}

/// In [`PageMeta::refs`]: memory of the emergency reserve, which is not recycled. Linux: `pfmemalloc`.
pub(crate) const EMERGENCY: u32 = 1 << 30;
/// In [`PageMeta::refs`]: the page has left its pool, the last reference gives it back to the provider.
pub(crate) const LEFT: u32 = 1 << 31;
/// In [`PageMeta::refs`]: the bits that count.
pub(crate) const REF_COUNT: u32 = EMERGENCY - 1;

#[cfg(not(loom))]
const _: () = assert!(size_of::<PageMeta>() == 32, "note 0002: two records in a cache line");
