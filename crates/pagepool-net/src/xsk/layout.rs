//! Where things are in a UMEM and its chunks.

use pagepool::PageIdx;

#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Bytes of a chunk.
    pub(super) chunk: u32,
    /// Bytes before the packet in a chunk.
    pub(super) before: u32,
    pub(super) unaligned: bool,
    /// log2 of the bytes of a page of the UMEM's memory. A chunk is a page, or lies in one.
    pub(super) page_shift: u32,
    /// Bytes of the UMEM.
    pub(super) len: u64,
}

impl Layout {
    /// Bytes of a page.
    #[inline(always)]
    pub(super) fn page_size(&self) -> u64 {
        1 << self.page_shift
    }

    /// Pages of the UMEM.
    pub(super) fn pages(&self) -> usize {
        (self.len >> self.page_shift) as usize
    }

    /// The number of the page that contains an address; `None` for addresses far beyond the UMEM.
    #[inline(always)]
    pub(super) fn page_at(&self, addr: u64) -> Option<PageIdx> {
        u32::try_from(addr >> self.page_shift).ok().map(PageIdx)
    }

    /// Where a page begins in the UMEM.
    #[inline(always)]
    pub(super) fn start_of(&self, page: PageIdx) -> u64 {
        u64::from(page.0) * self.page_size() // not a shift by a register, which takes two instructions
    }
}
