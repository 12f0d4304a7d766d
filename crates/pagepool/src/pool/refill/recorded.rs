//! Allocation in a pool that records who holds what.
//!
//! What   idle pages are in the stock of the pool's holders. The cache is empty except during the owner's
//!        slow path. Every allocation comes here, as a cache miss, with the place of its call.
//! Counts a page of the stock counts as one of the cache.

// UNSAFETY: the fragment state is reached through its owner cell.
#![expect(unsafe_code)]

use std::panic::Location;

use crate::buf::page_buf::PageBuf;
use crate::holders::table::HolderTable;
use crate::mem::page::PageIdx;
use crate::pool::bound::Bound;
use crate::recycle::cache::{Cache, OwnerProof};
use crate::recycle::frag::BIAS;

impl Bound {
    /// Allocates a page from the stock or by the slow path, and records it.
    #[cold]
    pub(crate) fn alloc_recorded(
        &self,
        holders: &HolderTable,
        at: &'static Location<'static>,
    ) -> Option<PageBuf> {
        let buffer = self.alloc_unrecorded()?;
        holders.out(buffer.page(), at);
        Some(buffer)
    }

    /// Allocates a page from the stock or by the slow path; the caller records it.
    fn alloc_unrecorded(&self) -> Option<PageBuf> {
        let pool = self.ptr();
        if let Some(page) = pool.idle_cache().pop(self.owner()) {
            pool.own.counts.alloc_fast.add(1);
            return Some(PageBuf::whole(pool, page));
        }
        let _stock = self.stock_in_cache();
        self.shrink_as_asked();
        self.alloc_missed(pool)
    }

    /// Allocates a page to cut (see [`page_to_cut`](Self::page_to_cut)); the caller records it.
    fn page_to_cut_unrecorded(&self) -> Option<PageIdx> {
        let (pool, page, _) = self.alloc_unrecorded()?.into_parts();
        pool.sync_split_page(page);
        Some(page)
    }

    /// Runs [`last_look`](Self::last_look), and in a pool with holders records the page.
    #[track_caller]
    pub(crate) fn last_look_recorded(&self) -> Option<PageIdx> {
        let at = Location::caller();
        let _stock = self.stock_in_cache();
        let page = self.last_look()?;
        if let Some(holders) = &self.core().holders {
            holders.out(page, at);
        }
        Some(page)
    }

    /// Opens a page for fragments of `size` in a pool with holders, where [`open_next`](Self::open_next) does
    /// not. Returns whether it did.
    #[cold]
    #[inline(never)]
    #[track_caller]
    pub(crate) fn open_recorded(&self, size: usize) -> bool {
        let pool = self.ptr();
        let fits = size.wrapping_sub(1) < pool.geometry.page_size();
        let Some(holders) = self.core().holders.as_ref().filter(|_| fits) else { return false };
        if !self.open(Self::page_to_cut_unrecorded) {
            return false;
        }
        // SAFETY: I2; no callback runs while the borrow lives.
        let page = unsafe { &*pool.own.frag.get() }.page();
        pool.note_more_out(page, BIAS);
        holders.out(page, Location::caller());
        true
    }

    /// Moves the stock of a pool with holders into the cache, until the result is dropped.
    pub(crate) fn stock_in_cache(&self) -> StockInCache<'_> {
        let Some(holders) = self.core().holders.as_deref().filter(|holders| !holders.stock_is_out()) else {
            return StockInCache(None); // nothing to move, or called from a callback
        };
        move_pages(self.owner(), holders.stock(), &self.core().own.cache);
        holders.set_stock_out(true);
        StockInCache(Some((self, holders)))
    }
}

/// Its drop moves the pages from the cache of a pool with holders back into the stock, also if a callback
/// panics.
pub(crate) struct StockInCache<'a>(Option<(&'a Bound, &'a HolderTable)>);

impl Drop for StockInCache<'_> {
    fn drop(&mut self) {
        if let Some((bound, holders)) = self.0 {
            move_pages(bound.owner(), &bound.core().own.cache, holders.stock());
            holders.set_stock_out(false);
        }
    }
}

/// Moves all pages from one cache to another, which is empty and as large.
fn move_pages(owner: OwnerProof, from: &Cache, to: &Cache) {
    from.take(owner, from.count(), |pages| {
        let moved = to.fill(owner, pages.len(), |space| {
            space.copy_from_slice(pages);
            space.len()
        });
        debug_assert_eq!(moved, pages.len(), "I2: one of the two caches is empty");
    });
}
