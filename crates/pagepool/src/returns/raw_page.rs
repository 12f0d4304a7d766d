//! Plain whole pages that are out as device addresses.
//!
//! What   a word per page of the area: the id of the pool whose page is out as an address, else 0. One word
//!        says both whose the page is and that it is out, so an address costs a line of 16 pages and no
//!        record. Pages with something to look up, and fragments, have bits instead (raw_buf.rs).
//! Out    whoever has the handle, and gives it up: a plain Release store. Nobody else writes the word then.
//! Back   whoever changes the word from the pool's id to 0 has the page. As long as the owner alone takes
//!        pages back, it does so by a load and a store. The first other thread that finds a page of its own
//!        ends that, for good: from then on all exchange the word.
//! Pairs  the owner: `taking_raw`, light fence, `takers`. Who ends it: `takers`, heavy fence,
//!        `taking_raw`. Either the owner sees that it is not alone, and exchanges; or it is seen to be
//!        taking, and waited for, and its stores come before the first exchange.
//! Owners one owner's turns come before the next one's: the pool moves between them. Of a pool without an
//!        owner, bound to no thread or ended, all exchange.
//! Cost   the owner alone: two stores a call, and one for each page. Others: one exchange for each page, and
//!        once in a pool's life about 1,600 cycles.

use crate::home::cache::OwnerProof;
use crate::returns::pool_core::PoolCore;
use crate::returns::raw_line::{ANYONE, ENDING, OWNER_ALONE, RawPages, Taking};
use crate::sys::sync::{AtomicBool, Backoff, Ordering, heavy_fence, light_fence};

/// The owner's turn: others wait for its end.
struct TakingTurn<'a>(&'a AtomicBool);

impl Drop for TakingTurn<'_> {
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

    /// Runs `take` in a turn of the owner, which tells it how. It must be short, and make no callback.
    #[inline(always)]
    pub(crate) fn owner_takes<R>(&self, _owner: OwnerProof, take: impl FnOnce(Taking) -> R) -> R {
        self.own.taking_raw.store(true, Ordering::Relaxed);
        let _turn = TakingTurn(&self.own.taking_raw);
        light_fence(); // pairs with the heavy fence in let_anyone()
        match self.own.raw.takers.load(Ordering::Relaxed) {
            OWNER_ALONE => take(Taking::Alone),
            _ => take(Taking::AmongOthers),
        }
    }

    /// Takes a page back on a thread that is not the owner's. An address of no page that is out ends nothing.
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

    /// Ends that the owner alone takes pages back. Waits for a turn of the owner that is under way, which
    /// takes no lock.
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
