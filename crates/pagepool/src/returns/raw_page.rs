//! Plain whole pages that are out as device addresses.
//!
//! What   a word per page of the area: the id of the pool whose page is out as an address, else 0. The word
//!        says both that the page is out and of which pool, so an address costs a line per 16 pages and no
//!        record. Pages that need a lookup, and fragments, have bits instead (raw_buf.rs).
//! Out    the holder of the handle gives it up by a plain Release store. No other thread writes the word
//!        then.
//! Back   the thread that changes the word from the pool's id to 0 gets the page. At first only the owner
//!        takes pages back, by a load and a store. The first other thread with a page to take ends this for
//!        good: from then on all threads use compare-exchange.
//! Pairs  the owner: `taking_raw`, light fence, `takers`. The thread that ends it: `takers`, heavy fence,
//!        `taking_raw`. Either the owner sees that it is not alone and exchanges, or the other thread sees it
//!        taking and waits: then the owner's stores precede the first exchange.
//! Owners one owner's sections precede the next one's, because the pool moves between them. In a pool without
//!        an owner (unbound or ended) all threads exchange.
//! Cost   the owner alone: two stores per call, one per page. Others: one exchange per page, and once in a
//!        pool's life about 1,600 cycles.

use crate::core::pool_core::PoolCore;
use crate::core::raw_line::{ANYONE, ENDING, OWNER_ALONE, RawPages, Taking};
use crate::recycle::cache::OwnerProof;
use crate::sys::sync::{AtomicBool, Backoff, Ordering, heavy_fence, light_fence};

/// The owner's exclusive section. Its end releases a thread in `let_anyone`.
struct TakingSection<'a>(&'a AtomicBool);

impl Drop for TakingSection<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release); // pairs with let_anyone()
    }
}

impl PoolCore {
    /// The pool's view of the words.
    #[inline(always)]
    pub(crate) fn raw_pages(&self) -> RawPages<'_> {
        self.own.raw.pages()
    }

    /// Runs `take` in an exclusive section of the owner, with how it may take pages. `take` must be short
    /// and call no callback.
    #[inline(always)]
    pub(crate) fn owner_takes<R>(&self, _owner: OwnerProof, take: impl FnOnce(Taking) -> R) -> R {
        self.own.taking_raw.store(true, Ordering::Relaxed);
        let _section = TakingSection(&self.own.taking_raw);
        light_fence(); // pairs with the heavy fence in let_anyone()
        match self.own.raw.takers.load(Ordering::Relaxed) {
            OWNER_ALONE => take(Taking::Alone),
            _ => take(Taking::AmongOthers),
        }
    }

    /// Takes a page back on a thread that is not the owner's. An address of no page that is out does not end
    /// the owner's exclusive taking.
    #[inline]
    pub(crate) fn another_takes(&self, page: u64) -> bool {
        let pages = self.raw_pages();
        if !pages.is_out(page) {
            return false;
        }
        if self.own.raw.takers.load(Ordering::Acquire) != ANYONE {
            self.let_anyone();
        }
        pages.take(Taking::AmongOthers, page)
    }

    /// Ends the owner's exclusive taking. Waits for the owner's current section, which takes no lock.
    #[cold]
    fn let_anyone(&self) {
        let _one_at_a_time = self.returns.lock();
        if self.own.raw.takers.load(Ordering::Relaxed) == ANYONE {
            return;
        }
        self.own.raw.takers.store(ENDING, Ordering::Relaxed);
        heavy_fence(); // pairs with the light fence in owner_takes()
        let mut backoff = Backoff::default();
        while self.own.taking_raw.load(Ordering::Acquire) {
            backoff.pause();
        }
        self.own.raw.takers.store(ANYONE, Ordering::Release); // pairs with another_takes()
    }
}
