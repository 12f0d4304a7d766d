//! The 64 bits of a handle: page and fragment.

use crate::mem::page::{PAGE_SHIFT, PageIdx};

/// The part of the page that a handle owns, in 32 bits. 0 is a whole page. [`FragBits::SPECIAL`] is a whole
/// page whose record must be looked up when it returns, because a [`PageRef`](crate::PageRef) may exist.
/// Anything else is a fragment: its offset in its base page in steps of 8 bytes (9 bits), and its length in
/// bytes (23 bits). The number of that base page is stored beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct FragBits(pub(crate) u32);

const LEN_BITS: u32 = 23;
const LEN_MASK: u32 = (1 << LEN_BITS) - 1;

impl FragBits {
    pub(crate) const WHOLE: Self = Self(0);
    pub(crate) const SPECIAL: Self = Self(1 << LEN_BITS);

    /// The base page and the part for `len` bytes (at least 1) at `offset`, a multiple of 8, in `page`.
    #[inline(always)]
    pub(crate) fn frag(page: PageIdx, offset: usize, len: usize) -> (PageIdx, Self) {
        let in_base_page = offset as u32 & ((1 << PAGE_SHIFT) - 1);
        (PageIdx(page.0 + (offset >> PAGE_SHIFT) as u32), Self((in_base_page >> 3) << LEN_BITS | len as u32))
    }

    #[inline(always)]
    pub(crate) fn is_frag(self) -> bool {
        self.0 & LEN_MASK != 0
    }

    /// Length in bytes; 0 for a whole page.
    #[inline(always)]
    pub(crate) fn len(self) -> usize {
        (self.0 & LEN_MASK) as usize
    }

    /// Offset within the base page, in bytes; meaningless for a special page, 0 for a whole one.
    #[inline(always)]
    pub(crate) fn offset(self) -> usize {
        ((self.0 >> LEN_BITS) << 3) as usize
    }
}

/// A base page and the part of it, in one register: a handle is then two words, and travels in two registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct HandleBits(u64);

impl HandleBits {
    #[inline(always)]
    pub(crate) fn new(page: PageIdx, frag_bits: FragBits) -> Self {
        Self(u64::from(frag_bits.0) << 32 | u64::from(page.0))
    }

    /// A whole page with nothing to look up: the bare number.
    #[inline(always)]
    pub(crate) fn whole(page: PageIdx) -> Self {
        Self(u64::from(page.0))
    }

    #[inline(always)]
    pub(crate) fn is_whole(self) -> bool {
        self.0 >> 32 == 0
    }

    /// What [`bits`](Self::bits) gave.
    #[inline(always)]
    pub(crate) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// All of it; 0 above bit 31 for a whole page.
    #[inline(always)]
    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    #[inline(always)]
    pub(crate) fn page(self) -> PageIdx {
        PageIdx(self.0 as u32)
    }

    #[inline(always)]
    pub(crate) fn frag_bits(self) -> FragBits {
        FragBits((self.0 >> 32) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frag_is_named_exactly_up_to_the_largest_page() {
        for (offset, len) in
            [(0, 1), (8, 2090), (4088, 4096), (32 << 10, 8590), ((4 << 20) - 8, 8), (0, 4 << 20)]
        {
            let (base, frag_bits) = FragBits::frag(PageIdx(1 << 10), offset, len);
            assert!(frag_bits.is_frag());
            assert_eq!(frag_bits.len(), len);
            assert_eq!(((base.0 - (1 << 10)) as usize) * 4096 + frag_bits.offset(), offset);
        }
        assert!(!FragBits::WHOLE.is_frag() && !FragBits::SPECIAL.is_frag());
    }
}
