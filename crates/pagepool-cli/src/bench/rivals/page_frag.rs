//! The rival in the thread "page_pool: introduce page_pool_alloc() API" (netdev, 2023): a look-alike of
//! Linux's `page_frag_cache` (mm/page_frag_cache.c, v7.3).
//!
//! What   fragments of order-3 pages, cut upwards. The page's reference count is the fragment counter: a bias
//!        is put on it once, hand-outs are counted against the bias in private, the rest is taken off when
//!        the page is used up.
//! Who    one owner cuts; a fragment may be dropped on any thread.
//! Absent on purpose, as in Linux: no return queue (a page whose last fragment is dropped goes back to the
//! arena), no
//!        counters of pages in flight, no node check, no colours.
//! Cost   cutting: none but every 15th; dropping: one atomic subtraction.

// UNSAFETY: pages that it reserved are given back.
#![expect(unsafe_code)]

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use pagepool::{PAGE_SIZE, PageIdx, Provider};

use crate::bench::measure::counted::Counted;

/// Pages of 32 KiB.
const ORDER: u8 = 3;
/// Bytes in a page.
pub const PAGE_BYTES: usize = PAGE_SIZE << ORDER;
/// References that a fresh page gets beside its own.
const BIAS: i32 = 32768;
/// Fragments begin at multiples of a cache line.
const ALIGN: usize = 64;

/// The owner's half.
pub struct PageFrag {
    pages: Arc<Pages>,
    current: Cell<Option<PageIdx>>,
    offset: Cell<usize>,
    /// References of the current page that were not handed out.
    bias: Cell<i32>,
    refills: Cell<u64>,
    reuses: Cell<u64>,
}

/// What fragments refer to: the arena, and a reference count per page of it.
struct Pages {
    arena: Arc<dyn Provider>,
    references: Box<[AtomicI32]>,
}

/// A fragment of a page; it goes home when it is dropped.
pub struct CarvedFrag<'a> {
    pages: &'a Pages,
    page: PageIdx,
    offset: u32,
}

const _: () = assert!(size_of::<CarvedFrag>() == 16, "of the size of the pool's handle");

impl PageFrag {
    /// Over this arena, without a page yet.
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

    /// A fragment of this size, `None` if the arena is used up or the size exceeds a page.
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

    /// The same page again if all its fragments are home, else a fresh one.
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

    /// Pages taken from the arena, and pages used again in place.
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

    /// Drops so many references and says whether those were the last.
    #[inline(always)]
    fn let_go(&self, page: PageIdx, references: i32) -> bool {
        self.references_of(page).fetch_sub(references, Ordering::AcqRel) == references
    }
}

impl CarvedFrag<'_> {
    /// Where the fragment begins in the arena.
    pub fn start(&self) -> u64 {
        self.page.offset() + u64::from(self.offset)
    }
}

impl Drop for CarvedFrag<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.pages.let_go(self.page, 1) {
            // SAFETY: as above; this was the last fragment.
            unsafe { self.pages.arena.release(ORDER, &[self.page]) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::workloads::pools;

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
    fn reuses_a_page_in_place_when_all_its_frags_are_home() {
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
