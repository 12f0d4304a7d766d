//! How large the parts of a pool are, and where data lies in its pages.

use crate::mem::page::{MAX_ORDER, PAGE_SHIFT, PageIdx};

/// log2 of the bytes from one colour to the next: a cache line.
pub(crate) const COLOUR_SHIFT: u32 = 6;

/// How large the parts of a pool are, checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolSizes {
    pub(crate) cache: usize,
    pub(crate) refill: usize,
    pub(crate) ring: usize,
    pub(crate) lanes: usize,
    pub(crate) lane: usize,
    pub(crate) chains: usize,
    pub(crate) deferred: usize,
}

/// Where data lies in a page, checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    pub(crate) order: u8,
    pub(crate) page_size: u32,
    pub(crate) headroom: u32,
    pub(crate) max_len: u32,
    pub(crate) tailroom: u32,
    /// Bytes that colours may add: the number of colours, a power of two, less one, times a cache line.
    pub(crate) colour_mask: u32,
    /// Alignment of fragments less one.
    pub(crate) frag_mask: u32,
}

impl Geometry {
    /// Bytes in a page of the pool.
    #[inline(always)]
    pub(crate) fn page_size(&self) -> usize {
        self.page_size as usize
    }

    /// What a fragment takes of its page: its size rounded up.
    #[inline(always)]
    pub(crate) fn frag_step(&self, size: usize) -> usize {
        let mask = self.frag_mask as usize;
        (size + mask) & !mask
    }

    /// The bit of a handle that says that a part begins at an odd byte: see `handle_bits.rs`.
    #[inline(always)]
    pub(crate) fn odd_bit(&self) -> u32 {
        // The lengths of fragments of the largest pages need all bits.
        u32::from(self.order < MAX_ORDER) << (PAGE_SHIFT + MAX_ORDER as u32 - 1)
    }

    /// Whether fragments begin on bounds of `align` bytes, a power of two.
    pub(crate) fn frags_aligned_to(&self, align: u32) -> bool {
        self.frag_mask + 1 >= align
    }

    /// Where the packet begins in a page: headroom, and the page's colour.
    #[inline(always)]
    pub(crate) fn packet_offset(&self, page: PageIdx) -> usize {
        // The bits that the shift loses are outside the mask.
        let colour = (page.0 << COLOUR_SHIFT >> self.order) & self.colour_mask;
        (self.headroom + colour) as usize
    }
}
