//! The page that the owner cuts fragments from.
//!
//! Who    [`FragState`] belongs to the holder of the owner half (I2). It counts fragments out without an
//!        atomic, because fragments of other threads return as messages. Only the owner decides that the
//!        last one has returned (I5).
//! How    an opened page gets [`BIAS`] fragments in its record. Each returned fragment subtracts one;
//!        closing subtracts those that were not handed out. So handing out a fragment does not touch the
//!        record.
//! Why    mirrors net/core/page_pool.c:page_pool_alloc_frag_netmem (v7.3), with a private bias and no shared
//!        counter in the page. The rule for sizes is that of
//!        include/net/page_pool/helpers.h:page_pool_alloc_netmem.

use crate::mem::page::PageIdx;

/// Fragments in the record of an open page: more than a page can have.
pub(crate) const BIAS: u32 = 1 << 24;

/// The weight of one fragment in [`FragState::handed`]: more than the bytes of a page.
const ONE_FRAG: u64 = 1 << 32;

/// The page that fragments are cut from, and its remaining room.
#[derive(Debug)]
pub(crate) struct FragState {
    page: PageIdx,
    /// Bytes behind the last fragment, a multiple of the fragments' alignment; 0 while no page is open.
    room: u32,
    /// A sum: fragments handed out times [`ONE_FRAG`], plus the bytes they report. 0 while no page is open:
    /// an opened page is cut at once.
    handed: u64,
}

impl FragState {
    pub(crate) const NONE: Self = Self { page: PageIdx(0), room: 0, handed: 0 };

    /// Whether the open page has room for a fragment of `size`; never for 0 bytes.
    #[inline(always)]
    pub(crate) fn fits(&self, size: usize) -> bool {
        // The room is aligned, so a size that fits also fits when rounded up.
        size.wrapping_sub(1) < self.room as usize
    }

    /// Cuts `step` bytes for a fragment of `size`, which fits; returns the page and the offset.
    #[inline(always)]
    pub(crate) fn cut(&mut self, size: usize, step: u32, page_size: u32) -> (PageIdx, usize) {
        debug_assert!(self.fits(size) && step <= self.room, "I1: {step} bytes of {}", self.room);
        let offset = page_size - self.room;
        self.room -= step;
        // Count and bytes in one addition: no second counter on the fast path.
        self.handed += ONE_FRAG + size as u64;
        (self.page, offset as usize)
    }

    /// Cuts up to `n` fragments of `size`, each of `step` bytes, as the room allows. Returns the page, the
    /// offset of the first, and how many. At least one fits, and `n` is at least 1.
    #[inline(always)]
    pub(crate) fn cut_many(
        &mut self,
        size: usize,
        step: u32,
        page_size: u32,
        n: usize,
    ) -> (PageIdx, usize, usize) {
        debug_assert!(self.fits(size) && step <= self.room, "I1: {step} bytes of {}", self.room);
        let offset = page_size - self.room;
        let n = n.min((self.room / step) as usize);
        self.room -= n as u32 * step;
        self.handed += n as u64 * (ONE_FRAG + size as u64);
        (self.page, offset as usize, n)
    }

    /// Gives the rest of the page to the last fragment, which reports `more` bytes for it.
    #[inline(always)]
    pub(crate) fn exhaust(&mut self, more: usize) {
        // The sum counts bytes that fragments report, so these count as used, not as waste.
        self.handed += more as u64;
        self.room = 0;
    }

    /// The page that is or was open last.
    pub(crate) fn page(&self) -> PageIdx {
        self.page
    }

    fn is_open(&self) -> bool {
        self.handed != 0
    }

    /// Bytes of the open page that no fragment reports: rounding, and the tail.
    pub(crate) fn waste(&self, page_size: usize) -> u64 {
        if self.is_open() { page_size as u64 - self.handed % ONE_FRAG } else { 0 }
    }

    /// Whether a page is open and none of it is out; `in_record` reads the count in the page's record.
    pub(crate) fn is_whole(&self, in_record: impl FnOnce(PageIdx) -> u32) -> bool {
        self.is_open() && in_record(self.page) == BIAS - (self.handed / ONE_FRAG) as u32
    }

    /// Opens a page whose record holds [`BIAS`], while none is open; the caller cuts it at once.
    pub(crate) fn open(&mut self, page: PageIdx, page_size: u32) {
        debug_assert!(!self.is_open(), "I5: a page is open");
        (self.page, self.room) = (page, page_size);
    }

    /// Closes the page; returns it, and how many fragments of its bias were not handed out.
    pub(crate) fn close(&mut self) -> Option<(PageIdx, u32)> {
        let handed = std::mem::take(&mut self.handed);
        self.room = 0;
        // The caller subtracts these from the record at once, as if they had returned.
        (handed != 0).then_some((self.page, BIAS - (handed / ONE_FRAG) as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_page_open_gives_nothing() {
        let mut frag = FragState::NONE;
        assert!(!frag.fits(0) && !frag.fits(1));
        assert_eq!(frag.close(), None);
    }

    #[test]
    fn many_are_what_as_many_calls_for_one_are() {
        let (mut one, mut many) = (FragState::NONE, FragState::NONE);
        one.open(PageIdx(8), 32 << 10);
        many.open(PageIdx(8), 32 << 10);
        for (n, got) in [(4, 4), (100, 11)] {
            let (page, offset, cut) = many.cut_many(2090, 2112, 32 << 10, n);
            assert_eq!(cut, got);
            let singly: Vec<_> = (0..cut).map(|_| one.cut(2090, 2112, 32 << 10)).collect();
            assert_eq!((page, offset), singly[0]);
            assert_eq!(offset + (cut - 1) * 2112, singly[cut - 1].1);
            assert_eq!((one.room, one.handed), (many.room, many.handed));
        }
        assert!(!many.fits(2090));
    }

    #[test]
    fn a_size_that_wraps_fits_no_page() {
        let mut frag = FragState::NONE;
        frag.open(PageIdx(1), 4 << 20);
        assert!(frag.fits(4 << 20));
        for size in [0, (4 << 20) + 1, 1 << 32, (1 << 32) + 64, usize::MAX] {
            assert!(!frag.fits(size), "{size}");
        }
    }
}
