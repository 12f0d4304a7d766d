//! The rival in the thread "page_pool: introduce page_pool_alloc() API" (netdev, 2023), after Linux's
//! `page_frag_cache` (mm/page_frag_cache.c, v7.3).
//!
//! What   Fragments of order-3 pages, cut upwards. The page's reference count counts fragments: a bias is
//!        added once, allocations are counted against it in private, and the rest is subtracted when the page
//!        is used up.
//! Who    One owner cuts; any thread may drop a fragment.
//! Absent on purpose, as in Linux: no return queue (a page whose last fragment is dropped returns to the
//!        arena), no counters of pages in flight, no node check, no colours.
//! Cost   Cutting: one atomic subtraction per page (every 15th fragment of 2090 bytes). Dropping: one.

// UNSAFETY: pages that it reserved are released.
#![expect(unsafe_code)]

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use pagepool::{PAGE_SIZE, PageIdx, Provider};

use crate::measure::counted::Counted;

/// 32 KiB.
const ORDER: u8 = 3;
pub const PAGE_BYTES: usize = PAGE_SIZE << ORDER;
/// References of a fresh page in addition to its own.
const BIAS: i32 = 32768;
/// Fragments begin at cache lines.
const ALIGN: usize = 64;

pub struct PageFrag {
    pages: Arc<Pages>,
    current: Cell<Option<PageIdx>>,
    offset: Cell<usize>,
    /// References to the current page that are not handed out.
    bias: Cell<i32>,
    refills: Cell<u64>,
    reuses: Cell<u64>,
}

/// The arena, and a reference count per page of it.
struct Pages {
    arena: Arc<dyn Provider>,
    references: Box<[AtomicI32]>,
}

/// Dropping it drops its reference.
pub struct CarvedFrag<'a> {
    pages: &'a Pages,
    page: PageIdx,
    offset: u32,
}

const _: () = assert!(size_of::<CarvedFrag>() == 16, "of the size of the pool's handle");

impl PageFrag {
    pub fn new(arena: Arc<dyn Provider>) -> Self {
        let pages = arena.area().pages() as usize >> ORDER;
        let references = (0..pages).map(|_| AtomicI32::new(0)).collect();
        Self {
            pages: Arc::new(Pages { arena, references }),
            current: Cell::new(None),
            offset: Cell::new(0),
            bias: Cell::new(0),
            refills: Cell::new(0),
            reuses: Cell::new(0),
        }
    }

    /// `None` if the arena is empty, or the size exceeds a page.
    #[inline]
    pub fn alloc(&self, size: usize) -> Option<CarvedFrag<'_>> {
        let size = size.next_multiple_of(ALIGN);
        let mut page = self.current.get();
        if page.is_none() || self.offset.get() + size > PAGE_BYTES {
            page = self.next_page(size);
        }
        let offset = self.offset.get();
        self.offset.set(offset + size);
        self.bias.set(self.bias.get() - 1);
        Some(CarvedFrag { pages: &self.pages, page: page?, offset: offset as u32 })
    }

    /// Reuses the current page if all its fragments were dropped, else reserves a fresh one.
    #[cold]
    fn next_page(&self, size: usize) -> Option<PageIdx> {
        if size > PAGE_BYTES {
            return None;
        }
        let page = match self.current.take() {
            Some(page) if self.pages.let_go(page, self.bias.get()) => {
                self.reuses.set(self.reuses.get() + 1);
                page
            }
            _ => {
                let mut page = [PageIdx(0)];
                if self.pages.arena.reserve(ORDER, None, &mut page) == 0 {
                    return None;
                }
                self.refills.set(self.refills.get() + 1);
                page[0]
            }
        };
        self.pages.references_of(page).store(BIAS + 1, Ordering::Relaxed);
        self.bias.set(BIAS + 1);
        self.offset.set(0);
        self.current.set(Some(page));
        Some(page)
    }

    pub fn counted(&self) -> Counted {
        Counted::from_fields([("refilled", self.refills.get()), ("reused_in_place", self.reuses.get())])
    }
}

impl Drop for PageFrag {
    fn drop(&mut self) {
        if let Some(page) = self.current.take()
            && self.pages.let_go(page, self.bias.get())
        {
            // SAFETY: the page was reserved with this order, and the last reference to it is gone.
            unsafe { self.pages.arena.release(ORDER, &[page]) };
        }
    }
}

impl Pages {
    fn references_of(&self, page: PageIdx) -> &AtomicI32 {
        &self.references[page.0 as usize >> ORDER]
    }

    /// Returns whether these references were the last.
    #[inline(always)]
    fn let_go(&self, page: PageIdx, references: i32) -> bool {
        self.references_of(page).fetch_sub(references, Ordering::AcqRel) == references
    }
}

impl CarvedFrag<'_> {
    /// Its offset in the arena.
    pub fn start(&self) -> u64 {
        u64::from(self.page.0) * PAGE_SIZE as u64 + u64::from(self.offset)
    }
}

impl Drop for CarvedFrag<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.pages.let_go(self.page, 1) {
            // SAFETY: the page was reserved with this order, and the last reference, this fragment's, is
            // gone.
            unsafe { self.pages.arena.release(ORDER, &[self.page]) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::pools;

    fn cache() -> PageFrag {
        PageFrag::new(pools::arena(pools::PAGES).expect("64 MiB of addresses"))
    }

    fn counted(cache: &PageFrag) -> (u64, u64) {
        let Counted(counts) = cache.counted();
        (counts["refilled"], counts["reused_in_place"])
    }

    #[test]
    fn cuts_fifteen_frags_of_2090_and_three_of_8590() {
        for (size, most) in [(2090, 15), (8590, 3)] {
            let cache = cache();
            let frags: Vec<_> = (0..most).map(|_| cache.alloc(size).expect("fits")).collect();
            let first = frags[0].start();
            let all_in_one = |p: &CarvedFrag| p.start() / PAGE_BYTES as u64 == first / PAGE_BYTES as u64;
            assert!(frags.iter().all(all_in_one));
            assert!(frags.windows(2).all(|w| w[1].start() - w[0].start() >= size as u64));
            assert_eq!(counted(&cache), (1, 0));
            let next = cache.alloc(size).expect("a second page");
            assert!(next.start().abs_diff(first) >= PAGE_BYTES as u64);
            assert_eq!(counted(&cache), (2, 0));
        }
    }

    #[test]
    fn reuses_a_page_in_place_after_all_its_frags_return() {
        let cache = cache();
        for _ in 0..150 {
            cache.alloc(2090).expect("always the same page");
        }
        assert_eq!(counted(&cache), (1, 9));
    }

    #[test]
    fn gives_every_page_back_in_the_end() {
        let arena = pools::arena(pools::PAGES).expect("64 MiB of addresses");
        let cache = PageFrag::new(arena.clone());
        let before = arena.available(ORDER);
        let frags: Vec<_> = (0..100).map(|_| cache.alloc(2090).expect("fits")).collect();
        drop(frags);
        drop(cache);
        assert_eq!(arena.available(ORDER), before);
    }

    #[test]
    fn refuses_more_than_a_page() {
        assert!(cache().alloc(PAGE_BYTES + 1).is_none());
    }
}
