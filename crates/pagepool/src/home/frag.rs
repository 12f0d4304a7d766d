//! The page that the owner cuts fragments from.
//!
//! Who    [`FragState`] belongs to the holder of the owner half (I2). It counts fragments out without an
//!        atomic, because fragments that end elsewhere return as messages; the owner alone decides that
//!        the last one has returned (I5).
//! How    a page that is opened gets [`BIAS`] fragments in its record; each fragment that returns takes
//!        one away; closing takes away what was not handed out. So a fragment costs its page's record nothing
//!        when it goes out.
//! Why    mirrors net/core/page_pool.c:page_pool_alloc_frag_netmem (v7.3), with the bias private and the
//!        page's shared counter gone; the rule for sizes is that of
//!        include/net/page_pool/helpers.h:page_pool_alloc_netmem.

use crate::mem::page::PageIdx;

/// Fragments in the record of a page that is being cut: more than a page can have.
pub(crate) const BIAS: u32 = 1 << 24;

/// The weight of one fragment in [`FragState::handed`]: more bytes than a page has.
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

    /// Cuts `len` bytes off for a fragment of `size`, if the open page has them, and gives the page and the
    /// offset.
    #[inline(always)]
    pub(crate) fn cut(&mut self, size: usize, len: usize, page_size: usize) -> Option<(PageIdx, usize)> {
        let offset = self.offset as usize;
        // Also true while no page is open: `NONE` has an offset beyond every page, so the fast path has one
        // check.
        if offset + len > page_size {
            return None;
        }
        self.offset = (offset + len) as u32;
        // Count and bytes in one addition: the fast path of a fragment has no second counter to write.
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
        // The sum is of bytes that fragments report, so the extra bytes count as used and not as waste.
        self.handed += more as u64;
        self.offset = page_size as u32;
    }

    /// Bytes of the open page that no fragment reports: rounding, and the tail that is left.
    pub(crate) fn waste(&self, page_size: usize) -> u64 {
        if self.open { page_size as u64 - self.handed % ONE_FRAG } else { 0 }
    }

    /// Whether a page is open of which nothing is out; `in_record` says what is left in the page's record.
    pub(crate) fn is_whole(&self, in_record: impl FnOnce(PageIdx) -> u32) -> bool {
        self.open && in_record(self.page) == BIAS - (self.handed / ONE_FRAG) as u32
    }

    /// Starts cutting a page whose record holds [`BIAS`].
    pub(crate) fn open(&mut self, page: PageIdx) {
        *self = Self { page, offset: 0, handed: 0, open: true };
    }

    /// Stops cutting; gives the page, and how many fragments of its bias were never handed out.
    pub(crate) fn close(&mut self) -> Option<(PageIdx, u32)> {
        let was = std::mem::replace(self, Self::NONE);
        // The record holds `BIAS` for fragments handed out or not; the caller takes the latter away at once,
        // as if they had returned.
        was.open.then_some((was.page, BIAS - (was.handed / ONE_FRAG) as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_page_open_gives_nothing() {
        let mut frag = FragState::NONE;
        assert_eq!(frag.cut(1, 64, 4 << 20), None);
        assert_eq!(frag.close(), None);
    }
}
