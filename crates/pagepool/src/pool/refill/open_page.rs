//! The page that is being cut into fragments: which page is next, when it closes, and when it is complete.
//!
//! Who    only the bound thread (I2, I5).
//! Callbacks (of provider, domains) run between borrows of the open page, and may open another.

// UNSAFETY: the open page is reached through its owner cell.
#![expect(unsafe_code)]

use crate::core::pool_core::ReleaseOnPanic;
use crate::mem::page::PageIdx;
use crate::pool::bound::Bound;
use crate::recycle::frag::BIAS;
use crate::recycle::lane_list::LaneSet;
use crate::sys::sync::Ordering;

impl Bound {
    /// Called if the open page has no room for a fragment of `size`. Closes it, and opens it again if it has
    /// returned, else another. Returns whether the caller can now cut one.
    #[cold]
    #[inline(never)]
    pub(crate) fn open_next(&self, size: usize) -> bool {
        let pool = self.ptr();
        if size.wrapping_sub(1) >= pool.cut_limit {
            if size.wrapping_sub(1) >= pool.geometry.page_size() {
                pool.own.counts.alloc_failed.add(1);
            }
            return false; // a size that fits: open_recorded() is next
        }
        self.open(|bound| Some(bound.alloc_page()?.into_parts().1))
    }

    /// Opens a page to cut: `page_to_cut` provides it if the last one has fragments out.
    #[inline(always)]
    pub(crate) fn open(&self, page_to_cut: impl FnOnce(&Self) -> Option<PageIdx>) -> bool {
        let pool = self.ptr();
        self.drain_frags();
        let page = if let Some(page) = self.close_frag() {
            pool.own.counts.recycle_cached.add(1);
            pool.own.counts.alloc_fast.add(1);
            page
        } else if let Some(page) = page_to_cut(self) {
            pool.sync_split_page(page); // all of it: fragments may begin before packets do
            page
        } else {
            return false;
        };
        while pool.own.frag_is_open() {
            // A callback opened a page, and closing that one runs callbacks, too.
            let in_hand = ReleaseOnPanic { pool, page };
            self.close_other();
            in_hand.keep();
        }
        pool.page_meta(page).frags.store(BIAS, Ordering::Relaxed);
        pool.own.frag_open.store(true, Ordering::Relaxed);
        // SAFETY: I2; no callback runs while the borrow lives.
        unsafe { &mut *pool.own.frag.get() }.open(page, pool.geometry.page_size);
        true
    }

    #[cold]
    fn close_other(&self) {
        let pool = self.ptr();
        if let Some(page) = self.close_frag() {
            pool.recycle_in_cache(page);
        }
    }

    /// Stops cutting the open page. Returns it if all its fragments have returned and nothing refers to it.
    #[inline(always)]
    pub(crate) fn close_frag(&self) -> Option<PageIdx> {
        let (pool, owner) = (self.ptr(), self.owner());
        // SAFETY: I2; no callback runs while the borrow lives.
        let frag = unsafe { &mut *pool.own.frag.get() };
        let waste = frag.waste(pool.geometry.page_size());
        let (page, unused) = frag.close()?;
        pool.own.frag_waste.add(waste);
        // Only for observers, which may not read the cell: no ordering.
        pool.own.frag_open.store(false, Ordering::Relaxed);
        if !pool.frag_counted(owner, page, unused) {
            pool.own.in_frags.add(1);
            return None;
        }
        pool.split_page_stays(owner, page).then_some(page)
    }

    /// Takes the page being cut if no fragment of it is out: an owner that waits for a return would wait for
    /// ever. Counts it as a cut that finds its page complete: into the cache and out.
    pub(super) fn whole_open_page(&self) -> Option<PageIdx> {
        if !self.open_page_is_whole() {
            return None;
        }
        // If something refers to it, it leaves; the drop of the last reference wakes the owner.
        let page = self.close_frag()?;
        let counts = &self.core().own.counts;
        counts.recycle_cached.add(1);
        counts.alloc_fast.add(1);
        Some(page)
    }

    /// Whether a page is being cut and no fragment of it is out.
    pub(crate) fn open_page_is_whole(&self) -> bool {
        let pool = self.ptr();
        // SAFETY: I2; no callback runs while the borrow lives.
        let frag = unsafe { &*pool.own.frag.get() };
        frag.is_whole(|page| {
            let meta = pool.page_meta(page);
            meta.frags.load(Ordering::Relaxed).wrapping_add(meta.parts.load(Ordering::Relaxed))
        })
    }

    /// Collects the fragments at the heads of busy lanes, and of one other lane, to find pages whose
    /// fragments have all returned: soon, or at the next refill, which visits every listed lane.
    #[inline(always)]
    fn drain_frags(&self) {
        let listed = self.ptr().lanes.listed();
        if !listed.is_empty() {
            self.drain_frags_of(listed);
        }
    }

    /// A function of its own: a cut in a pool without lanes then needs few registers.
    #[inline(never)]
    fn drain_frags_of(&self, listed: LaneSet) {
        let pool = self.ptr();
        let mut busy = LaneSet::NONE;
        for at in pool.own.lane_rotation.take(listed) {
            let lane = &pool.lanes.all()[at];
            // Whole pages wait for the next refill: the cache may have no room for them.
            while let Some((page, frags)) = lane.take_frags(pool.geometry.head_mask) {
                busy.insert(at);
                pool.note_collected(page, frags);
                pool.frags_here(self.owner(), page, frags, true);
            }
            pool.lanes.unlist_if_over(at);
        }
        pool.own.lane_rotation.set_busy(busy);
    }
}
