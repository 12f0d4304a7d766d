//! Fragments of a page: how they are named, and the page that the owner cuts them from.
//!
//! Who    [`FragState`] belongs to the holder of the owner half (I2). It counts fragments out without an atomic, because
//!        fragments that end elsewhere come home as messages; the owner alone decides that the last one is home (I5).
//! How    a page that is opened gets [`BIAS`] fragments in its record; each fragment that comes home takes one away; closing
//!        takes away what was not handed out. So a fragment costs its page's record nothing when it goes out.
//! Why    mirrors net/core/page_pool.c:page_pool_alloc_frag_netmem (v7.3), with the bias private and the page's shared
//!        counter gone; the rule for sizes is that of include/net/page_pool/helpers.h:page_pool_alloc_netmem.

use crate::mem::page::{PAGE_SHIFT, PageIdx};

/// Fragments in the record of a page that is being cut: more than any page has.
pub(crate) const BIAS: u32 = 1 << 24;

/// More bytes than a page has.
const ONE_FRAG: u64 = 1 << 32;

/// The page that fragments are cut from, and how far.
#[derive(Debug)]
pub(crate) struct FragState {
    page: PageIdx,
    /// Offset of the next fragment; at least the page size while there is no page.
    offset: u32,
    /// In one sum: fragments handed out, times [`ONE_FRAG`], and the bytes that they report as theirs.
    handed: u64,
    open: bool,
}

impl FragState {
    pub(crate) const NONE: Self = Self { page: PageIdx(0), offset: u32::MAX, handed: 0, open: false };

    /// Cuts `len` bytes off for a fragment of `size`, if the open page has them, and gives the page and the offset.
    #[inline(always)]
    pub(crate) fn cut(&mut self, size: usize, len: usize, page_size: usize) -> Option<(PageIdx, usize)> {
        let offset = self.offset as usize;
        if offset + len > page_size {
            return None;
        }
        self.offset = (offset + len) as u32;
        self.handed += ONE_FRAG + size as u64;
        Some((self.page, offset))
    }

    /// Whether another `len` bytes would fit.
    #[inline(always)]
    pub(crate) fn fits(&self, len: usize, page_size: usize) -> bool {
        self.offset as usize + len <= page_size
    }

    /// The rest of the page belongs to the fragment that was cut last, which has `more` bytes with it.
    #[inline(always)]
    pub(crate) fn exhaust(&mut self, more: usize, page_size: usize) {
        self.handed += more as u64;
        self.offset = page_size as u32;
    }

    /// Bytes of the open page that no fragment reports: rounding, and the tail that is left.
    pub(crate) fn waste(&self, page_size: usize) -> u64 {
        if self.open { page_size as u64 - self.handed % ONE_FRAG } else { 0 }
    }

    /// Starts cutting a page whose record holds [`BIAS`].
    pub(crate) fn open(&mut self, page: PageIdx) {
        *self = Self { page, offset: 0, handed: 0, open: true };
    }

    /// Stops cutting; gives the page, and how many fragments of its bias were never handed out.
    pub(crate) fn close(&mut self) -> Option<(PageIdx, u32)> {
        let was = std::mem::replace(self, Self::NONE);
        was.open.then_some((was.page, BIAS - (was.handed / ONE_FRAG) as u32))
    }
}

/// What a handle says of its part of the page, in 32 bits: 0 is a whole page, [`FragBits::SPECIAL`] a whole page with
/// something to look up when it comes home, anything else a fragment: its offset within its base page in steps of 8 bytes
/// (9 bits), and its length in bytes (23 bits). The base page that the fragment begins in stands beside it.
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
    pub(crate) fn new(page: PageIdx, part: FragBits) -> Self {
        Self(u64::from(part.0) << 32 | u64::from(page.0))
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
    pub(crate) fn part(self) -> FragBits {
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
            let (base, part) = FragBits::frag(PageIdx(1 << 10), offset, len);
            assert!(part.is_frag());
            assert_eq!(part.len(), len);
            assert_eq!(((base.0 - (1 << 10)) as usize) * 4096 + part.offset(), offset);
        }
        assert!(!FragBits::WHOLE.is_frag() && !FragBits::SPECIAL.is_frag());
    }

    #[test]
    fn no_page_open_gives_nothing() {
        let mut frag = FragState::NONE;
        assert_eq!(frag.cut(1, 64, 4 << 20), None);
        assert_eq!(frag.close(), None);
    }
}
