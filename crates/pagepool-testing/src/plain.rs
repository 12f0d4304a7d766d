//! The smallest provider: a stack of page numbers over zeroed memory, all of it present from the start.

// UNSAFETY: the memory is allocated and freed by hand, for its alignment.
#![expect(unsafe_code)]

use std::alloc::Layout;
use std::sync::Arc;

use pagepool::internal::Lock;
use pagepool::{Area, Error, NodeId, PAGE_SIZE, PageIdx, Provider, REGION_SHIFT};

/// Pages of one order, lowest first. For models and tests that must not depend on an arena.
#[derive(Debug)]
pub struct PlainMemory {
    area: Arc<Area>,
    order: u8,
    free: Lock<Vec<PageIdx>>,
    layout: Layout,
}

impl PlainMemory {
    /// Creates a provider of `pages` pages of `order`, all on node 0.
    ///
    /// # Panics
    /// If `pages` is 0, or memory is missing.
    pub fn new(pages: usize, order: u8) -> Result<Arc<Self>, Error> {
        assert!(pages > 0, "a provider has at least one page");
        let size = PAGE_SIZE << order;
        let layout = Layout::from_size_align(size * pages, size).expect("a test's memory is small");
        // SAFETY: the layout has a size above zero.
        let base = unsafe { std::alloc::alloc_zeroed(layout) };
        assert!(!base.is_null(), "a test's memory is there");
        let (at, len, node) = (base as usize, layout.size() as u64, Some(NodeId(0)));
        // SAFETY: only this provider uses the memory, which is zeroed, and freed after the area was closed.
        let area = unsafe { Area::readable(at, len, REGION_SHIFT, node) }?;
        // SAFETY: this is the provider, and all of its memory exists.
        (0..area.regions()).try_for_each(|r| unsafe { area.add_region(r) })?;
        let free = (0..pages as u32).rev().map(|p| PageIdx(p << order)).collect();
        Ok(Arc::new(Self { area, order, free: Lock::new(free), layout }))
    }

    /// Number of pages outside of pools.
    pub fn free(&self) -> usize {
        self.free.lock().len()
    }
}

// SAFETY: one area, all of it present and zeroed at first; the stack has each page once, and the memory is
// freed last.
unsafe impl Provider for PlainMemory {
    fn area(&self) -> &Arc<Area> {
        &self.area
    }

    fn reserve(&self, order: u8, _node: Option<NodeId>, out: &mut [PageIdx]) -> usize {
        assert_eq!(order, self.order, "one order only");
        let mut free = self.free.lock();
        let n = out.len().min(free.len());
        out[..n].fill_with(|| free.pop().expect("counted"));
        n
    }

    unsafe fn release(&self, order: u8, pages: &[PageIdx]) {
        assert_eq!(order, self.order, "one order only");
        let mut free = self.free.lock();
        for page in pages {
            assert!(!free.contains(page), "{page:?} was released twice");
            free.push(*page);
        }
    }

    fn available(&self, _order: u8) -> usize {
        self.free()
    }

    fn describe(&self) -> String {
        format!("{} bytes of plain memory for tests", self.layout.size())
    }
}

impl Drop for PlainMemory {
    fn drop(&mut self) {
        // SAFETY: I6. This is the provider, in its drop: every page that is out keeps it alive, so none is,
        // and no domain maps its memory.
        unsafe { self.area.close() };
        let base = self.area.base().expect("plain memory is readable");
        // SAFETY: allocated in `new` with this layout, freed once; no pool is left, because each keeps its
        // provider.
        unsafe { std::alloc::dealloc(base as *mut u8, self.layout) };
    }
}
