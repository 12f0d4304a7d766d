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
    fn a_size_that_wraps_fits_no_page() {
        let mut frag = FragState::NONE;
        frag.open(PageIdx(1), 4 << 20);
        assert!(frag.fits(4 << 20));
        for size in [0, (4 << 20) + 1, 1 << 32, (1 << 32) + 64, usize::MAX] {
            assert!(!frag.fits(size), "{size}");
        }
    }
}
