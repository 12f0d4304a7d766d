//! Allocation in a pool that records who holds what.
//!
//! What   idle pages are in the holder table (`HolderTable::idle_cache`). The pool's own cache is empty
//!        except during the owner's slow path. Every allocation comes here, as a cache miss, with the place
//!        of its call.
//! Counts a page of the idle cache counts as one of the cache.

// UNSAFETY: the fragment state is reached through its owner cell.
#![expect(unsafe_code)]

use std::panic::Location;

use crate::holders::table::HolderTable;
use crate::mem::page::PageIdx;
use crate::pool::bound::Bound;
use crate::recycle::cache::{Cache, OwnerProof};
use crate::recycle::frag::BIAS;

impl Bound {
    /// Allocates a page from the idle cache or by the slow path, and records it.
    #[cold]
    pub(crate) fn alloc_recorded(
        &self,
        holders: &HolderTable,
        at: &'static Location<'static>,
    ) -> Option<PageIdx> {
        let page = self.alloc_unrecorded()?;
        holders.out(page, at);
        Some(page)
    }

    /// Allocates a page from the idle cache or by the slow path; the caller records it.
    fn alloc_unrecorded(&self) -> Option<PageIdx> {
        let pool = self.ptr();
        if let Some(page) = pool.idle_cache().pop(self.owner()) {
            pool.own.counts.alloc_fast.add(1);
            return Some(page);
        }
        let _lent = self.lend_idle_cache();
        self.shrink_as_requested();
        self.alloc_missed()
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
        if !self.open(Self::alloc_unrecorded) {
            return false;
        }
        // SAFETY: I2; no callback runs while the borrow lives.
        let page = unsafe { &*pool.own.frag.get() }.page();
        pool.note_more_out(page, BIAS);
        holders.out(page, Location::caller());
        true
    }

    /// Moves the idle pages of a pool with holders into its own cache, until the result is dropped.
    pub(crate) fn lend_idle_cache(&self) -> LentIdleCache<'_> {
        let Some(holders) = self.core().holders.as_deref().filter(|holders| !holders.idle_cache_is_lent())
        else {
            return LentIdleCache(None); // nothing to move, or called from a callback
        };
        move_pages(self.owner(), holders.idle_cache(), &self.core().own.cache);
        holders.set_idle_cache_lent(true);
        LentIdleCache(Some((self, holders)))
    }
}

/// Its drop moves the pages of a pool with holders from its own cache back into the idle cache, also if a
/// callback panics.
pub(crate) struct LentIdleCache<'a>(Option<(&'a Bound, &'a HolderTable)>);

impl Drop for LentIdleCache<'_> {
    fn drop(&mut self) {
        if let Some((bound, holders)) = self.0 {
            move_pages(bound.owner(), &bound.core().own.cache, holders.idle_cache());
            holders.set_idle_cache_lent(false);
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
