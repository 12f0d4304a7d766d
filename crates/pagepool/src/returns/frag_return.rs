//! How a fragment returns.
//!
//! What   on the owner's thread a fragment is counted in its page's record. On other threads it is a message,
//!        perhaps shared with others of its page (message.rs). If lane and ring are full it is a count in the
//!        record, which the owner adds at a refill.
//! Who    any thread. Only the owner decides that a page's last fragment has returned (I5). After the pool's
//!        end the holder of the return lock decides, in the same record: it takes over from the owner when it
//!        finds `detached` under that lock.

use crate::core::pool_core::{PoolPtr, ReturnState};
use crate::mem::page::{PageIdx, PageMeta};
use crate::recycle::cache::OwnerProof;
use crate::recycle::message::Message;
use crate::returns::late;
use crate::sys::sync::Ordering;

/// What [`PoolPtr::note_more_out`] moves from `frags` to `parts`: more than a page has of either.
const SLOW_PATH_BIAS: u32 = 1 << 26;

impl PoolPtr {
    /// Returns a fragment on the owner's thread. A complete page goes into the cache, or `to_ring`.
    #[inline]
    pub(crate) fn frag_here(self, owner: OwnerProof, page: PageIdx, to_ring: bool) {
        self.frags_here(owner, page, 1, to_ring);
    }

    /// Returns `n` fragments of a page on the owner's thread. A complete page goes into the cache, or
    /// `to_ring`.
    #[inline(always)]
    pub(crate) fn frags_here(self, owner: OwnerProof, page: PageIdx, n: u32, to_ring: bool) {
        if self.frag_counted(owner, page, n) {
            self.put_split_page(owner, page, to_ring);
        }
    }

    /// Counts `n` returned fragments. Returns whether the page is complete; only the owner decides that (I5).
    #[inline(always)]
    pub(crate) fn frag_counted(self, _owner: OwnerProof, page: PageIdx, n: u32) -> bool {
        self.subtract_frags(page, n)
    }

    /// Counts `n` fragments returned after the end, and returns whether the page is complete. The holder of
    /// the return lock now has the owner's count.
    pub(crate) fn late_frags_counted(self, returns: &ReturnState, page: PageIdx, n: u32) -> bool {
        debug_assert!(returns.detached, "I5: the owner counts while the pool lives");
        self.note_collected(page, n);
        let complete = self.subtract_frags(page, n);
        if complete {
            self.has_no_holder(page);
        }
        complete
    }

    /// For the only thread that has the page's count.
    #[inline(always)]
    fn subtract_frags(self, page: PageIdx, n: u32) -> bool {
        let meta = self.page_meta(page);
        let left = meta.frags.load(Ordering::Relaxed).wrapping_sub(n);
        meta.frags.store(left, Ordering::Relaxed);
        // Above 0 the page is incomplete whatever `parts` is: `parts` is loaded only at 0 or below.
        left as i32 <= 0 && self.all_parts_returned(page, meta, left, n)
    }

    /// Whether a page is complete after the last `n` were counted: `frags` (0 or less) and the parts that
    /// other threads split off add up to 0 (buf/split.rs).
    #[inline(always)]
    fn all_parts_returned(self, page: PageIdx, meta: &PageMeta, frags: u32, n: u32) -> bool {
        let parts = meta.parts.load(Ordering::Relaxed);
        // Almost always no other thread split the page.
        parts | frags == 0 || self.split_parts_returned(page, frags.wrapping_add(parts), n)
    }

    #[cold]
    #[inline(never)]
    fn split_parts_returned(self, page: PageIdx, left: u32, n: u32) -> bool {
        self.holder_record(page).inspect(|record| record.frags_returned(n));
        if left == 0 {
            let meta = self.page_meta(page);
            meta.frags.store(0, Ordering::Relaxed);
            meta.parts.store(0, Ordering::Relaxed); // no thread has a part, so none adds to it
        }
        left == 0
    }

    /// The last fragment of a page returned on the owner's thread: the page returns like a whole one.
    #[cold]
    fn put_split_page(self, owner: OwnerProof, page: PageIdx, to_ring: bool) {
        self.own.in_frags.take(1);
        match self.split_page_stays(owner, page) {
            false => {}
            true if to_ring => self.recycle_in_ring(page),
            true => self.recycle_in_cache(page),
        }
    }

    /// The last fragment of a page returned: syncs the page, and returns whether it stays in the pool. A page
    /// with a live `PageRef` must not be reused, and leaves.
    #[inline(always)]
    pub(crate) fn split_page_stays(self, owner: OwnerProof, page: PageIdx) -> bool {
        if self.page_meta(page).refs.load(Ordering::Acquire) != 0 {
            self.own.counts.recycle_released_refcnt.add(1);
            self.has_no_holder(page);
            self.return_to_provider_here(owner, page);
            return false;
        }
        if self.needs_work_on_return {
            self.prepare_split_page(page);
        }
        true
    }

    /// Returns a fragment on any thread but the owner's: by a message, or without room by a count in its
    /// page.
    #[inline]
    pub(crate) fn frag_remote(self, page: PageIdx) {
        self.note_returned(&[page.0]);
        if let Some(lane) = self.lane()
            && lane.push_frags(Message::of_frag(page))
        {
            return self.after_push(lane, lane.after_push());
        }
        self.frags_without_lane(&[page.0]);
    }

    /// Returns many fragments, given by their pages, on any thread but the owner's: through the lane while it
    /// has room, the rest under one lock.
    pub(crate) fn frags_remote(self, frags: &[u32]) {
        self.note_returned(frags);
        let Some(lane) = self.lane() else { return self.frags_without_lane(frags) };
        let head_mask = self.geometry.head_mask;
        let mut left = UnsentFrags { pool: self, frags };
        // After the last message this thread does not read the pool any more.
        while let Some((message, n)) = Message::of_leading_frags(left.frags, head_mask)
            && lane.push_frags(message)
        {
            left.frags = &left.frags[n..];
        }
        if left.frags.len() < frags.len() {
            self.after_push(lane, lane.after_push());
        }
    }

    /// Returns many fragments, given by their pages, through the ring.
    pub(crate) fn frags_by_ring(self, frags: &[u32]) {
        self.note_returned(frags);
        self.frags_without_lane(frags);
    }

    /// Shows observers that fragments, given by their pages, are no longer out.
    #[inline(always)]
    fn note_returned(self, frags: &[u32]) {
        if self.needs_work_on_return {
            self.note_returned_slow(frags);
        }
    }

    #[cold]
    fn note_returned_slow(self, frags: &[u32]) {
        let records = frags.iter().filter_map(|&page| self.holder_record(PageIdx(page)));
        records.for_each(|record| record.frags_wait(1));
    }

    /// Records that the owner (after the end: the holder of the return lock) collects `n` fragments, and
    /// counts them next.
    #[inline(always)]
    pub(crate) fn note_collected(self, page: PageIdx, n: u32) {
        self.holder_record(page).inspect(|record| record.frags_wait(-(n as i32)));
    }

    /// Shows observers that `n` more fragments are out, of a page that the owner opens or splits. From now on
    /// `frags` is below 0, and `parts` above: each return on the owner's thread takes the slow path, which
    /// records it.
    pub(crate) fn note_more_out(self, page: PageIdx, n: u32) {
        let Some(record) = self.holder_record(page) else { return };
        let meta = self.page_meta(page);
        let frags = meta.frags.load(Ordering::Relaxed);
        if frags as i32 >= 0 {
            meta.frags.store(frags.wrapping_sub(SLOW_PATH_BIAS), Ordering::Relaxed);
            meta.parts.fetch_add(SLOW_PATH_BIAS, Ordering::Relaxed);
        }
        record.frags_out(n);
    }

    /// Returns fragments (at least one, given by their pages) through the ring. Any thread.
    #[cold]
    fn frags_without_lane(self, frags: &[u32]) {
        let (mut left, head_mask) = (frags, self.geometry.head_mask);
        {
            let mut returns = self.returns.lock();
            if !returns.detached {
                while let Some((message, n)) = Message::of_leading_frags(left, head_mask) {
                    if self.ring.push(&mut returns.tail, message) {
                        self.ring_frags.add(1);
                    } else {
                        self.overflow(&mut returns, message);
                    }
                    left = &left[n..];
                }
                return self.unlock_and_wake(returns);
            }
        }
        late::return_late_frags(self, frags);
    }

    /// Counts fragments in their page, and links the page once. Under the return lock.
    fn overflow(self, returns: &mut ReturnState, message: Message) {
        let (page, n) = message.frags(self.geometry.head_mask);
        let meta = self.page_meta(page);
        meta.overflow.store(meta.overflow.load(Ordering::Relaxed) + n, Ordering::Relaxed);
        if meta.next.load(Ordering::Relaxed) == 0 {
            meta.next.store(if returns.overflow == 0 { 1 } else { returns.overflow + 1 }, Ordering::Relaxed);
            returns.overflow = page.0 + 1;
            self.ring_frags.add(1);
            self.overflowed.store(true, Ordering::Relaxed);
        }
    }

    /// Takes one page off the list of overflowed pages. Returns the page and the number of fragments. Owner
    /// only.
    pub(crate) fn take_overflow(self, returns: &mut ReturnState) -> Option<(PageIdx, u32)> {
        let Some(page) = returns.overflow.checked_sub(1).map(PageIdx) else {
            self.overflowed.store(false, Ordering::Relaxed);
            return None;
        };
        let meta = self.page_meta(page);
        returns.overflow = meta.next.load(Ordering::Relaxed) - 1;
        meta.next.store(0, Ordering::Relaxed);
        self.ring_frags.take(1);
        let frags = meta.overflow.load(Ordering::Relaxed);
        meta.overflow.store(0, Ordering::Relaxed);
        Some((page, frags))
    }
}

/// Fragments that found no room in a lane. Its drop returns them, also if a waker or a provider panics.
struct UnsentFrags<'a> {
    pool: PoolPtr,
    frags: &'a [u32],
}

impl Drop for UnsentFrags<'_> {
    fn drop(&mut self) {
        // Without fragments left this thread has nothing of the pool, and must not read it.
        if !self.frags.is_empty() {
            self.pool.frags_without_lane(self.frags);
        }
    }
}
