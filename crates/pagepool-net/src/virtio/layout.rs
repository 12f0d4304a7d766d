//! Where packets are: in an area, which a device reaches as a whole, at one address.

use std::sync::Arc;

use pagepool::{Arena, PageBuf, PageIdx, Provider};

use crate::device::mapping_cache::MappingCache;

/// The layout of the packets' memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// The device's address of the area.
    pub(crate) base: u64,
    pub(crate) page_shift: u32,
    pub(crate) pages: usize,
}

impl Layout {
    pub(crate) fn new(arena: &Arc<Arena>, base: u64) -> Self {
        let area = arena.area();
        Self { base, page_shift: area.page_size().ilog2(), pages: area.pages() as usize }
    }

    /// Where a page begins in the area.
    #[inline(always)]
    pub(super) fn start_of(&self, page: PageIdx) -> u64 {
        u64::from(page.0) << self.page_shift
    }

    /// Whether a buffer is a page of this area, at its address.
    #[inline(always)]
    pub(super) fn has(&self, buffer: &PageBuf, mappings: &mut MappingCache) -> bool {
        let at = mappings.addr_of(buffer);
        buffer.len() == 1 << self.page_shift
            && at.is_some_and(|at| at.0.wrapping_sub(self.base) == self.start_of(buffer.page()))
    }
}
