//! Plain whole pages that are out as device addresses.
//!
//! What   a word per page of the area: the id of the pool whose page is out as an address, else 0. The word
//!        says both that the page is out and of which pool, so an address costs a line per 16 pages and no
//!        record. [`RawLine`] leads there, and is all else that addresses need of a pool, in one line.
//!        Pages that need a lookup, and fragments, have bits instead (raw_buf.rs).
//! Out    the holder of the handle gives it up by a plain Release store. No other thread writes the word
//!        then.
//! Back   the thread that changes the word from the pool's id to 0 gets the page: the owner in a section of
//!        the [`Guard`], or a thread that claims the page.

// UNSAFETY: the words and the mapping are reached by address, so that a return reads one line; words of
// checked page numbers are read without another check.
#![expect(unsafe_code)]

use std::num::NonZeroU32;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::core::geometry::Geometry;
use crate::mem::area::Area;
use crate::mem::dma::Mapping;
use crate::mem::page::{BasePage, MAX_PAGES, PageIdx};
use crate::recycle::cache::OwnerProof;
use crate::recycle::guard::Guard;
use crate::sys::sync::{AtomicU32, Ordering};

/// What addresses need of a pool: constants.
pub(crate) struct RawLine {
    /// The words of the pool's area.
    words: NonNull<[AtomicU32]>,
    /// The pool's first domain, to which the addresses belong.
    mapping: Option<NonNull<Mapping>>,
    pool: u32,
    /// The pool's `Geometry::head_mask`.
    head_mask: NonZeroU32,
    base_page: BasePage,
}

impl RawLine {
    /// For a pool that keeps the area and the mapping as long as itself.
    pub(crate) fn new(area: &Area, mapping: Option<&Arc<Mapping>>, pool: u32, geometry: &Geometry) -> Self {
        let mapping = mapping.map(|mapping| NonNull::from(&**mapping));
        let (head_mask, base_page) = (geometry.head_mask, geometry.base_page);
        Self { words: NonNull::from(&*area.raw_pages), mapping, pool, head_mask, base_page }
    }

    /// The first domain.
    #[inline(always)]
    pub(crate) fn mapping(&self) -> Option<&Mapping> {
        // SAFETY: I3. The pool keeps its mappings as long as itself, and this is part of it.
        self.mapping.map(|mapping| unsafe { mapping.as_ref() })
    }

    /// The pool's view of the words.
    #[inline(always)]
    pub(crate) fn pages(&self) -> RawPages<'_> {
        // SAFETY: I3. The area outlives the pool, and its words are shared atomics.
        RawPages { words: unsafe { self.words.as_ref() }, pool: self.pool }
    }

    /// The number of the page at an offset in the area. An offset beyond the area gives a number beyond it.
    #[inline(always)]
    pub(crate) fn head_of(&self, offset: u64) -> u64 {
        // The bits above the mask stay, to keep such a number different from all pages.
        self.base_page.number_at(offset) & !u64::from(!self.head_mask.get() & (MAX_PAGES - 1))
    }
}

impl Guard<RawLine> {
    /// Runs `take`, which takes pages back, for the owner. It must be short and call no callback.
    #[inline(always)]
    pub(crate) fn owner_takes<R>(&self, _owner: OwnerProof, take: impl FnOnce(RawPages<'_>) -> R) -> R {
        let pages = self.pages();
        self.owned(|| take(pages))
    }

    /// Takes a page back on a thread that is not the owner's.
    pub(crate) fn another_takes(&self, page: u64) -> bool {
        let pages = self.pages();
        // First, so that an address of no page that is out does not slow the owner.
        pages.is_out(page) && self.alone(|| pages.take(page))
    }
}

/// The words of a pool's area, and the pool's id, for operations on many pages.
#[derive(Clone, Copy)]
pub(crate) struct RawPages<'a> {
    words: &'a [AtomicU32],
    pool: u32,
}

impl RawPages<'_> {
    /// Marks a plain whole page as out as an address. The caller had its handle, and gave it up.
    #[inline(always)]
    pub(crate) fn out(self, page: PageIdx) {
        if let Some(word) = self.words.get(page.0 as usize) {
            word.store(self.pool, Ordering::Release); // pairs with take()
        }
    }

    /// Takes a plain whole page back, if it is this pool's and out as an address. For the owner in a section,
    /// or a thread that claims.
    #[inline(always)]
    pub(crate) fn take(self, page: u64) -> bool {
        self.words.get(page as usize).is_some_and(|word| self.take_word(word))
    }

    #[inline(always)]
    fn take_word(self, word: &AtomicU32) -> bool {
        let out = word.load(Ordering::Acquire) == self.pool; // pairs with out()
        if out {
            word.store(0, Ordering::Relaxed);
        }
        out
    }

    /// Marks many plain whole pages as out as addresses.
    ///
    /// # Safety
    /// All are pages of the area.
    #[inline(always)]
    pub(crate) unsafe fn out_all(self, pages: &[u32]) {
        each_of_eight(pages, |page| {
            // SAFETY: the caller's: there is a word for each page of the area.
            let word = unsafe { self.words.get_unchecked(page as usize) };
            word.store(self.pool, Ordering::Release); // pairs with take()
            true
        });
    }

    /// Writes the page number of each offset, as many as `space` holds. Returns whether all are pages of the
    /// area.
    #[inline(always)]
    pub(crate) fn find_all(
        self,
        geometry: &Geometry,
        offsets: impl Iterator<Item = u64>,
        space: &mut [u32],
    ) -> bool {
        // No branch, to let the compiler vectorize. A difference of numbers below MAX_PAGES has its highest
        // bit set only if it is negative.
        let (last, mut bits, mut beyond) = ((self.words.len() as u32).wrapping_sub(1), 0, 0);
        let (base_page, head_mask) = (geometry.base_page, geometry.head_mask.get());
        for (place, offset) in space.iter_mut().zip(offsets) {
            let page = base_page.number_at(offset) as u32 & head_mask;
            bits |= offset;
            beyond |= last.wrapping_sub(page);
            *place = page;
        }
        base_page.number_at(bits) < u64::from(MAX_PAGES) && (beyond as i32) >= 0
    }

    /// How many leading offsets lie in pages of the area. For when [`find_all`](Self::find_all) returned
    /// false.
    #[cold]
    #[inline(never)]
    pub(crate) fn found(self, geometry: &Geometry, offsets: impl Iterator<Item = u64>) -> usize {
        let of_area = |offset: &u64| {
            let page = geometry.base_page.number_at(*offset);
            page < u64::from(MAX_PAGES) && page as u32 & geometry.head_mask.get() < self.words.len() as u32
        };
        offsets.take_while(of_area).count()
    }

    /// Takes pages back in order, up to the first that it cannot [`take`](Self::take). Returns how many.
    ///
    /// # Safety
    /// All are pages of the area.
    #[inline(never)]
    pub(crate) unsafe fn take_all(self, pages: &[u32]) -> usize {
        each_of_eight(pages, |page| {
            // SAFETY: the caller's: there is a word for each page of the area.
            self.take_word(unsafe { self.words.get_unchecked(page as usize) })
        })
    }

    /// Whether the page is out as an address.
    pub(crate) fn is_out(self, page: u64) -> bool {
        self.words.get(page as usize).is_some_and(|word| word.load(Ordering::Relaxed) == self.pool)
    }
}

/// Calls `look` on pages in order until it returns false. Returns for how many it returned true. Unrolled by
/// eight: the compiler does not unroll a loop that may end early.
#[inline(always)]
fn each_of_eight(pages: &[u32], look: impl Fn(u32) -> bool) -> usize {
    let (eights, rest) = pages.as_chunks::<8>();
    for (group, eight) in eights.iter().enumerate() {
        for (at, &page) in eight.iter().enumerate() {
            if !look(page) {
                return ended_at(group * 8 + at);
            }
        }
    }
    eights.len() * 8 + rest.iter().take_while(|&&page| look(page)).count()
}

/// A call keeps the early exit's instructions out of the loop.
#[cold]
#[inline(never)]
fn ended_at(at: usize) -> usize {
    at
}
