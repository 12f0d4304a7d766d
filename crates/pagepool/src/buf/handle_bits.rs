//! The 64 bits of a handle: page and fragment.
//!
//! What   from bit 0: 30 bits number of the base page in which the buffer begins. For a fragment then: 2 bits
//!        of its offset in that page (bits 1 and 2); 22 bits length less one; 9 bits of the offset (bits 3 to
//!        11, of which pages of 2 KiB need 8); 1 bit "not simply whole".
//! Odd    bit 0 of the offset has no fixed place. Only fragments of pages of 4 MiB need the highest bit of
//!        the length. In all other pools this bit is bit 0 of the offset: the geometry's `odd_bit`. In pools
//!        of such pages `odd_bit` is 0, and parts begin at even bytes.

use std::num::NonZeroU32;

use crate::mem::page::{BasePage, MAX_ORDER, MAX_PAGES, PAGE_SIZE, PageIdx};

/// The part of the page that a handle owns, in 32 bits. 0 is a whole page. [`FragBits::MAY_HAVE_REFS`] is a
/// whole page that may have a [`PageRef`](crate::PageRef): its return must read its record. All else is a
/// fragment: its offset in its base page in steps of 8 bytes (9 bits), and its length less one (22 bits).
///
/// The highest bit, "not simply whole", is the sign of the handle's word: one test finds plain pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct FragBits(pub(crate) u32);

const LEN_BITS: u32 = 22;
const LEN_MASK: u32 = (1 << LEN_BITS) - 1;
const OFFSET_MASK: u32 = (PAGE_SIZE as u32 >> 3) - 1;
const NOT_WHOLE: u32 = 1 << 31;

const _: () = assert!(NOT_WHOLE == (OFFSET_MASK + 1) << LEN_BITS, "flag, offset, and length fill 32 bits");

impl FragBits {
    pub(crate) const WHOLE: Self = Self(0);
    /// No fragment has these bits: none so long begins in the middle of its page.
    pub(crate) const MAY_HAVE_REFS: Self = Self(u32::MAX - 1);

    #[inline(always)]
    pub(crate) fn is_frag(self) -> bool {
        (NOT_WHOLE..Self::MAY_HAVE_REFS.0).contains(&self.0)
    }
}

/// Bits of a page's number.
const PAGE_BITS: u32 = MAX_PAGES.trailing_zeros();

const _: () = assert!(PAGE_BITS + 2 == 32, "two bits of an offset lie above the page's number");
const _: () = assert!(PAGE_SIZE << MAX_ORDER == 1 << LEN_BITS, "the largest page is the longest fragment");

/// A base page and the part of it, in one word: a handle is two words, and fits two registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct HandleBits(u64);

impl HandleBits {
    /// The words of plain whole pages are below this.
    pub(crate) const WHOLE_BELOW: u64 = (NOT_WHOLE as u64) << 32;

    #[inline(always)]
    pub(crate) fn new(page: PageIdx, frag_bits: FragBits) -> Self {
        Self(u64::from(frag_bits.0) << 32 | u64::from(page.0))
    }

    /// A plain whole page: the bare number.
    #[inline(always)]
    pub(crate) fn whole(page: PageIdx) -> Self {
        Self(u64::from(page.0))
    }

    /// The fragment of `len` bytes (at least 1) at `offset`, a multiple of 8, in `page`.
    #[inline(always)]
    pub(crate) fn frag(of: BasePage, page: PageIdx, offset: usize, len: usize) -> Self {
        let in_base_page = offset as u32 & (of.bytes() as u32 - 1);
        let bits = NOT_WHOLE | (in_base_page >> 3) << LEN_BITS | (len as u32).wrapping_sub(1) & LEN_MASK;
        Self::new(PageIdx(page.0 + (offset >> of.shift()) as u32), FragBits(bits))
    }

    /// The fragment of `len` bytes (at least 1) at any `offset` that the pool's `odd_bit` can encode.
    pub(crate) fn part(of: BasePage, page: PageIdx, offset: usize, len: usize, odd_bit: u32) -> Self {
        let odd = odd_bit & (offset as u32 & 1).wrapping_neg();
        debug_assert!(offset & 1 == 0 || odd != 0, "I1: a part of a largest page at odd byte {offset}");
        let Self(bits) = Self::frag(of, page, offset, len);
        Self(bits | u64::from(odd) << 32 | (offset as u64 >> 1 & 3) << PAGE_BITS)
    }

    #[inline(always)]
    pub(crate) fn is_whole(self) -> bool {
        self.0 as i64 >= 0
    }

    /// From the result of [`bits`](Self::bits).
    #[inline(always)]
    pub(crate) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The whole word; for a plain whole page its number.
    #[inline(always)]
    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    /// The base page in which the buffer begins.
    #[inline(always)]
    pub(crate) fn page(self) -> PageIdx {
        PageIdx(self.0 as u32 & (MAX_PAGES - 1))
    }

    /// The page of a whole page, without a mask; meaningless for a fragment.
    #[inline(always)]
    pub(crate) fn whole_page(self) -> PageIdx {
        PageIdx(self.0 as u32)
    }

    /// The page that contains the buffer, by the `head_mask` of its pool.
    #[inline(always)]
    pub(crate) fn head(self, head_mask: NonZeroU32) -> PageIdx {
        PageIdx(self.0 as u32 & head_mask.get())
    }

    /// Length of a fragment in bytes; meaningless for a whole page.
    #[inline(always)]
    pub(crate) fn len(self, odd_bit: u32) -> usize {
        (self.frag_bits().0 & LEN_MASK & !odd_bit) as usize + 1
    }

    /// Offset of a fragment within its base page, in bytes; meaningless for a whole page.
    #[inline(always)]
    pub(crate) fn offset(self, odd_bit: u32) -> usize {
        let FragBits(upper) = self.frag_bits();
        let eights = (upper >> LEN_BITS & OFFSET_MASK) << 3;
        (eights | self.0 as u32 >> PAGE_BITS << 1 | u32::from(upper & odd_bit != 0)) as usize
    }

    /// Start in the area of a plain page, or of a fragment at a multiple of 8; for other fragments without
    /// the lowest three bits. Meaningless for a page that may have references.
    #[cfg(any(test, all(target_arch = "x86_64", not(miri))))] // only a prefetch asks
    #[inline(always)]
    pub(crate) fn start_in_eights(self, of: BasePage) -> u64 {
        let in_base_page = self.0 >> (32 + LEN_BITS - 3) & u64::from(OFFSET_MASK << 3);
        of.start_of(self.page()) + in_base_page
    }

    #[inline(always)]
    pub(crate) fn frag_bits(self) -> FragBits {
        FragBits((self.0 >> 32) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For all pages except those of 4 MiB.
    const ODD: u32 = 1 << 21;
    const HALF: BasePage = BasePage::new(2048).unwrap();

    #[test]
    fn a_frag_is_named_exactly_up_to_the_largest_page() {
        for (offset, len) in
            [(0, 1), (8, 2090), (4088, 4096), (32 << 10, 8590), ((4 << 20) - 8, 8), (0, 4 << 20), (4088, 1)]
        {
            for of in [BasePage::DEFAULT, HALF] {
                let bits = HandleBits::frag(of, PageIdx(1 << 10), offset, len);
                is_at(of, bits, offset, len, 0);
                let start = (of.bytes() << 10) + offset as u64;
                assert_eq!(bits.start_in_eights(of), start);
                assert_eq!(bits, HandleBits::part(of, PageIdx(1 << 10), offset, len, 0));
                if len <= 2 << 20 {
                    is_at(of, bits, offset, len, ODD);
                }
            }
        }
        assert!(!FragBits::WHOLE.is_frag() && !FragBits::MAY_HAVE_REFS.is_frag());
        assert!(!HandleBits::new(PageIdx(7), FragBits::MAY_HAVE_REFS).is_whole());
        assert!(HandleBits::whole(PageIdx(u32::MAX)).is_whole());
        assert_eq!(HandleBits::whole(PageIdx(7)).start_in_eights(BasePage::DEFAULT), 7 << 12);
    }

    #[test]
    fn a_part_begins_and_ends_at_any_byte() {
        let lens = [1, 2, 54, 4042, (1 << 20) + 1, (2 << 20) - 4097];
        for (offset, len) in (0..64).chain([4095, 4096, 4097]).flat_map(|at| lens.map(|len| (at, len))) {
            for of in [BasePage::DEFAULT, HALF] {
                is_at(of, HandleBits::part(of, PageIdx(1 << 10), offset, len, ODD), offset, len, ODD);
                if offset % 2 == 0 {
                    let bits = HandleBits::part(of, PageIdx(1 << 10), offset, 2 * len, 0);
                    is_at(of, bits, offset, 2 * len, 0);
                }
            }
        }
    }

    fn is_at(of: BasePage, bits: HandleBits, offset: usize, len: usize, odd_bit: u32) {
        assert!(bits.frag_bits().is_frag() && !bits.is_whole());
        assert_eq!(bits.len(odd_bit), len);
        assert_eq!(
            ((bits.page().0 - (1 << 10)) as usize) * of.bytes() as usize + bits.offset(odd_bit),
            offset
        );
    }
}
