//! Sizes of a pool's parts, and where data lies in its pages.

use std::num::NonZeroU32;

use crate::mem::page::{BasePage, MAX_PAGES, PageIdx};

/// The bit of a handle that only the length of a fragment in a page of 4 MiB needs.
const ODD_BIT: u32 = 1 << 21;

/// log2 of the bytes from one colour to the next: a cache line.
pub(crate) const COLOUR_SHIFT: u32 = 6;

/// Sizes of a pool's parts, checked.
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
    /// Masks a base page's number to its page of the pool. Encodes the order: the number of zeros below the
    /// mask.
    pub(crate) head_mask: NonZeroU32,
    pub(crate) base_page: BasePage,
    pub(crate) page_size: u32,
    pub(crate) headroom: u32,
    pub(crate) max_len: u32,
    pub(crate) tailroom: u32,
    /// The most bytes that colours add: (number of colours, a power of two, - 1) * cache line.
    pub(crate) colour_mask: u32,
    /// A page's number times this has the page's colour in the bits from 32 on, under `colour_mask`. One
    /// multiplication in place of a shift by the order.
    pub(crate) colour_scale: u64,
    /// The bits of an offset at which fragments may begin.
    pub(crate) frag_mask: u32,
}

/// The `colour_scale` of pages of an order.
pub(crate) const fn colour_scale(order: u8) -> u64 {
    1 << (32 + COLOUR_SHIFT - order as u32)
}

/// The `head_mask` of pages of an order. A handle uses the bits above a page's number (handle_bits.rs).
pub(crate) const fn head_mask(order: u8) -> NonZeroU32 {
    let mask = (MAX_PAGES - 1) & u32::MAX << order;
    NonZeroU32::new(mask).expect("the largest page is smaller than the largest area")
}

impl Geometry {
    /// log2 of the base pages in a page of the pool.
    #[inline(always)]
    pub(crate) fn order(&self) -> u8 {
        self.head_mask.trailing_zeros() as u8
    }

    /// The page of the pool that contains this base page.
    #[inline(always)]
    pub(crate) fn head(&self, page: PageIdx) -> PageIdx {
        PageIdx(page.0 & self.head_mask.get())
    }

    /// The offset of a page's first byte in its area, in bytes.
    #[inline(always)]
    pub(crate) fn start_of(&self, page: PageIdx) -> u64 {
        self.base_page.start_of(page)
    }

    /// Number of colours: places where a packet may begin in a page.
    pub(crate) fn colours(&self) -> usize {
        (self.colour_mask >> COLOUR_SHIFT) as usize + 1
    }

    /// Bytes in a page of the pool.
    #[inline(always)]
    pub(crate) fn page_size(&self) -> usize {
        self.page_size as usize
    }

    /// Bytes that a fragment of `size`, which fits a page, takes: `size` rounded up.
    #[inline(always)]
    pub(crate) fn frag_step(&self, size: usize) -> u32 {
        // Negated, rounding takes one instruction; a caller that subtracts the result adds instead.
        ((size as u32).wrapping_neg() & self.frag_mask).wrapping_neg()
    }

    /// The handle's bit for a part that begins at an odd byte: see `handle_bits.rs`.
    #[inline(always)]
    pub(crate) fn odd_bit(&self) -> u32 {
        // In the largest pages the lengths of fragments need all bits.
        self.page_size.wrapping_neg() & ODD_BIT
    }

    /// Whether fragments begin at multiples of `align` bytes, a power of two.
    pub(crate) fn frags_aligned_to(&self, align: u32) -> bool {
        self.frag_mask & (align - 1) == 0
    }

    /// Where the packet begins in a page: headroom and the page's colour.
    #[inline(always)]
    pub(crate) fn packet_offset(&self, page: PageIdx) -> usize {
        (self.headroom + self.colour_of(page.0.into())) as usize
    }

    /// The bytes by which a page's colour moves its packet.
    #[inline(always)]
    pub(crate) fn colour_of(&self, page: u64) -> u32 {
        (page.wrapping_mul(self.colour_scale) >> 32) as u32 & self.colour_mask
    }
}
