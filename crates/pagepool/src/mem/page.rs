//! Pages as numbers, and the record of each.
//!
//! What   a page is a [`PageIdx`] in its area; its address, device address and record are base + index *
//!        size. No shared data holds a pointer, and 16 indices fill a cache line.
//! Who    each field of a [`PageMeta`] says who may write it; all are atomics, so any thread may read.
//! Where  the record lies beside the memory, never in it: a device, or a peer process on the same UMEM, can
//!        write every byte of a page but no record. I3 keeps it alive as long as any handle.
//! Cost   recycling a whole page never touches its record. 32 bytes per page.

use std::fmt;
use std::ops::Range;

pub use crate::sys::memory::{PAGE_SIZE, system_page_size};
use crate::sys::sync::AtomicU32;

/// The largest order, like Linux's `MAX_PAGE_ORDER` on x86: 4 MiB, or 2 MiB if base pages have 2 KiB.
pub const MAX_ORDER: u8 = 10;

/// A page's number in its area, in base pages: those of order 0, which have the area's
/// [`page_size`](crate::Area::page_size). A page of order `k` has the number of its first base page, a
/// multiple of `1 << k`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[repr(transparent)]
pub struct PageIdx(pub u32);

/// Page numbers are below this, so a message and a handle have spare bits.
pub const MAX_PAGES: u32 = 1 << 30;

impl fmt::Debug for PageIdx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// The size of an area's base pages: 2 KiB or 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BasePage {
    /// Bytes. 64 bits, so that an offset takes one multiplication by a value in memory.
    bytes: u64,
    shift: u32,
}

impl BasePage {
    pub(crate) const DEFAULT: Self = Self { bytes: PAGE_SIZE as u64, shift: PAGE_SIZE.trailing_zeros() };

    /// `None` unless an area may have pages of this size.
    pub(crate) const fn new(bytes: usize) -> Option<Self> {
        match bytes {
            2048 | PAGE_SIZE => Some(Self { bytes: bytes as u64, shift: bytes.trailing_zeros() }),
            _ => None,
        }
    }

    /// Whether it has half of the default size.
    #[inline(always)]
    pub(crate) fn is_half(self) -> bool {
        self.bytes < PAGE_SIZE as u64
    }

    #[inline(always)]
    pub(crate) fn bytes(self) -> u64 {
        self.bytes
    }

    /// log2 of the bytes.
    #[inline(always)]
    pub(crate) fn shift(self) -> u32 {
        self.shift
    }

    /// The offset of a page's first byte in its area, in bytes.
    #[inline(always)]
    pub(crate) fn start_of(self, page: PageIdx) -> u64 {
        self.times(page.0.into())
    }

    /// The bytes of `pages` base pages.
    #[inline(always)]
    pub(crate) fn times(self, pages: u64) -> u64 {
        pages * self.bytes
    }

    /// The number of the page that contains an offset; for an offset beyond the largest area a number
    /// beyond its pages.
    #[inline(always)]
    pub(crate) fn number_at(self, offset: u64) -> u64 {
        offset >> self.shift
    }

    /// The base pages in a range of bytes that begins and ends with pages.
    pub(crate) fn pages_in(self, bytes: Range<u64>) -> Range<u32> {
        (bytes.start >> self.shift) as u32..(bytes.end >> self.shift) as u32
    }
}

/// A NUMA node. Linux: `nid`; "any" is `None` here, -1 there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u8);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.0)
    }
}

/// The record of one base page. A page of a higher order uses that of its first base page.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct PageMeta {
    /// The id of the pool that holds the page, 0 while the provider does. Written by the owner when the page
    /// joins, and by the thread that releases it.
    pub(crate) pool: AtomicU32,
    /// Fragments out, less those in `parts`. In the pool's current fragment page, also the part of the bias
    /// that was not handed out (frag.rs). Written only by the owner (I5); after the pool's end, under the
    /// return lock. Wraps below 0.
    pub(crate) frags: AtomicU32,
    /// Fragments that returned when there was no room for a message. Under the return lock. While a buddy
    /// allocator has the page, a link of its lists, as `next` is.
    pub(crate) overflow: AtomicU32,
    /// Link in the list of pages with such fragments, under the return lock: 0 if not in the list, else the
    /// next page + 2, or 1 for the last.
    pub(crate) next: AtomicU32,
    /// Live [`PageRef`](crate::PageRef)s, plus [`LEFT`].
    pub(crate) refs: AtomicU32,
    /// Clones of this page's shared buffers beyond the first of each fragment. Written by any thread.
    pub(crate) clones: AtomicU32,
    /// The number of the page's tag, if tagging is on; 0 is none.
    pub(crate) tag: AtomicU32,
    /// Parts into which other threads than the owner's split the page's buffers since it was last complete
    /// (split.rs). Any thread with a part adds to it.
    pub(crate) parts: AtomicU32,
}

/// In [`PageMeta::refs`]: the page has left its pool; the last reference releases it to the provider.
pub(crate) const LEFT: u32 = 1 << 31;
/// In [`PageMeta::refs`]: the bits that count.
pub(crate) const REF_COUNT: u32 = LEFT - 1;

#[cfg(not(loom))]
const _: () = assert!(size_of::<PageMeta>() == 32, "note 0002: two records in a cache line");
