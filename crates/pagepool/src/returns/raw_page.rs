//! Plain whole pages that are out as device addresses.
//!
//! What   a word per page of the area: the id of the pool whose page is out as an address, else 0. One word
//!        says both whose the page is and that it is out, so an address costs a line of 16 pages and no
//!        record. Pages with something to look up, and fragments, have bits instead (raw_buf.rs).
//! Out    whoever has the handle, and gives it up: a plain Release store. Nobody else writes the word then.
//! Back   whoever changes the word from the pool's id to 0 has the page. As long as the owner alone takes
//!        pages back, it does so by a load and a store. The first other thread that finds a page of its own
//!        ends that, for good: from then on all exchange the word.
//! Pairs  the owner: `taking_raw`, light fence, `raw_takers`. Who ends it: `raw_takers`, heavy fence,
//!        `taking_raw`. Either the owner sees that it is not alone, and exchanges; or it is seen to be
//!        taking, and waited for, and its stores come before the first exchange.
//! Owners one owner's turns come before the next one's: the pool moves between them. Of a pool without an
//!        owner, bound to no thread or ended, all exchange.
//! Cost   the owner alone: two stores a call, and one for each page. Others: one exchange for each page, and
//!        once in a pool's life about 1,600 cycles.

use crate::home::cache::OwnerProof;
use crate::mem::page::PageIdx;
use crate::returns::pool_core::PoolCore;
use crate::sys::sync::{AtomicBool, AtomicU32, Backoff, Ordering, heavy_fence, light_fence};

/// In [`PoolCore::raw_takers`]: the owner alone takes pages back.
pub(crate) const OWNER_ALONE: u32 = 0;
/// In [`PoolCore::raw_takers`]: another thread, with the return lock, waits until the owner is not taking.
const ENDING: u32 = 1;
/// In [`PoolCore::raw_takers`]: anyone, by an exchange.
const ANYONE: u32 = 2;

/// How the holder of it takes pages back.
#[derive(Clone, Copy)]
pub(crate) enum Taking {
    /// Nobody else does.
    Alone,
    /// Others may, at the same time.
    AmongOthers,
}

/// The owner's turn: others wait for its end.
struct TakingTurn<'a>(&'a AtomicBool);

impl Drop for TakingTurn<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release); // pairs with let_anyone()
    }
}

/// The words of a pool's area, and the pool's id, for many pages.
#[derive(Clone, Copy)]
pub(crate) struct RawPages<'a> {
    words: &'a [AtomicU32],
    pool: u32,
}

impl RawPages<'_> {
    /// A plain whole page is out as an address from now on. The caller had its handle, and gave it up.
    #[inline(always)]
    pub(crate) fn out(self, page: PageIdx) {
        if let Some(word) = self.words.get(page.0 as usize) {
            word.store(self.pool, Ordering::Release); // pairs with take()
        }
    }

    /// Takes a plain whole page back, if it is this pool's and out as an address. Of several who try, one
    /// gets it.
    #[inline(always)]
    pub(crate) fn take(self, taking: Taking, page: u64) -> bool {
        let Some(word) = self.words.get(page as usize) else { return false };
        match taking {
            Taking::Alone => {
                let out = word.load(Ordering::Acquire) == self.pool; // pairs with out()
                if out {
                    word.store(0, Ordering::Relaxed);
                }
                out
            }
            Taking::AmongOthers => {
                word.compare_exchange(self.pool, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            }
        }
    }

    /// Whether it is out, to whoever has its address.
    fn is_out(self, page: u64) -> bool {
        self.words.get(page as usize).is_some_and(|word| word.load(Ordering::Relaxed) == self.pool)
    }
}

impl PoolCore {
    /// The pool's view of the words.
    #[inline(always)]
    pub(crate) fn raw_pages(&self) -> RawPages<'_> {
        RawPages { words: self.area.raw_pages(), pool: self.id }
    }

    /// Runs `take` in a turn of the owner, which tells it how. It must be short, and make no callback.
    #[inline(always)]
    pub(crate) fn owner_takes<R>(&self, _owner: OwnerProof, take: impl FnOnce(Taking) -> R) -> R {
        self.own.taking_raw.store(true, Ordering::Relaxed);
        let _turn = TakingTurn(&self.own.taking_raw);
        light_fence(); // pairs with the heavy fence in let_anyone()
        match self.raw_takers.load(Ordering::Relaxed) {
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
        if self.raw_takers.load(Ordering::Acquire) != ANYONE {
            self.let_anyone();
        }
        pages.take(Taking::AmongOthers, page)
    }

    /// Ends that the owner alone takes pages back. Waits for a turn of the owner that is under way, which
    /// takes no lock.
    #[cold]
    fn let_anyone(&self) {
        let _one_at_a_time = self.returns.lock();
        if self.raw_takers.load(Ordering::Relaxed) == ANYONE {
            return;
        }
        self.raw_takers.store(ENDING, Ordering::Relaxed);
        heavy_fence(); // pairs with the light fence in owner_takes()
        let mut backoff = Backoff::default();
        while self.own.taking_raw.load(Ordering::Acquire) {
            backoff.pause();
        }
        self.raw_takers.store(ANYONE, Ordering::Release); // pairs with another_takes()
    }
}
