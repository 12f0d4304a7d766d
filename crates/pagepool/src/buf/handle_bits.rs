//! The 64 bits of a handle: page and fragment.

use crate::mem::page::{PAGE_SHIFT, PageIdx};

/// The part of the page that a handle owns, in 32 bits. 0 is a whole page. [`FragBits::SPECIAL`] is a whole
/// page whose record must be looked up when it returns, because a [`PageRef`](crate::PageRef) may exist.
/// Anything else is a fragment: its offset in its base page in steps of 8 bytes (9 bits), and its length in
/// bytes less one (22 bits). The number of that base page is stored beside it.
///
/// The highest bit says "not simply whole": it is the sign of the handle's word, so that one test of a
/// register finds the page that needs no more than its return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct FragBits(pub(crate) u32);

const LEN_BITS: u32 = 22;
const LEN_MASK: u32 = (1 << LEN_BITS) - 1;
const OFFSET_MASK: u32 = (1 << (PAGE_SHIFT - 3)) - 1;
const NOT_WHOLE: u32 = 1 << 31;

const _: () = assert!(NOT_WHOLE == (OFFSET_MASK + 1) << LEN_BITS, "flag, offset, and length fill 32 bits");

impl FragBits {
    pub(crate) const WHOLE: Self = Self(0);
    /// No fragment has these bits: none so long begins in the middle of its page. Even, because the C
    /// interface keeps them beside tokens of pages, which are odd.
    pub(crate) const SPECIAL: Self = Self(u32::MAX - 1);

    /// The base page and the part for `len` bytes (at least 1) at `offset`, a multiple of 8, in `page`.
    #[inline(always)]
    pub(crate) fn frag(page: PageIdx, offset: usize, len: usize) -> (PageIdx, Self) {
        let in_base_page = offset as u32 & ((1 << PAGE_SHIFT) - 1);
        let bits = NOT_WHOLE | (in_base_page >> 3) << LEN_BITS | (len as u32).wrapping_sub(1) & LEN_MASK;
        (PageIdx(page.0 + (offset >> PAGE_SHIFT) as u32), Self(bits))
    }

    #[inline(always)]
    pub(crate) fn is_frag(self) -> bool {
        (NOT_WHOLE..Self::SPECIAL.0).contains(&self.0)
    }

    /// Length in bytes; meaningless for a whole page.
    #[inline(always)]
    pub(crate) fn len(self) -> usize {
        (self.0 & LEN_MASK) as usize + 1
    }

    /// Offset within the base page, in bytes; meaningless for a special page, 0 for a whole one.
    #[inline(always)]
    pub(crate) fn offset(self) -> usize {
        ((self.0 >> LEN_BITS & OFFSET_MASK) << 3) as usize
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
        self.0 as i64 >= 0
    }

    /// What [`bits`](Self::bits) gave.
    #[inline(always)]
    pub(crate) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// All of it; for a whole page its number.
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
            [(0, 1), (8, 2090), (4088, 4096), (32 << 10, 8590), ((4 << 20) - 8, 8), (0, 4 << 20), (4088, 1)]
        {
            let (base, frag_bits) = FragBits::frag(PageIdx(1 << 10), offset, len);
            assert!(frag_bits.is_frag());
            assert_eq!(frag_bits.len(), len);
            assert!(!HandleBits::new(base, frag_bits).is_whole());
            assert_eq!(((base.0 - (1 << 10)) as usize) * 4096 + frag_bits.offset(), offset);
        }
        assert!(!FragBits::WHOLE.is_frag() && !FragBits::SPECIAL.is_frag());
        assert!(!HandleBits::new(PageIdx(7), FragBits::SPECIAL).is_whole());
        assert!(HandleBits::whole(PageIdx(u32::MAX)).is_whole());
    }
}
