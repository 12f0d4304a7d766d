//! The lives of pages. C programs have a number for a page, not a [`PageBuf`](crate::PageBuf), and may return
//! it twice. A life makes sure that only one return of a page counts.
//!
//! What   two words per page of a pool, in tables that are never freed. Its *life* is the handle that it has,
//!        or will be given out with; before the first it is 0. Of a page's handles only the upper half
//!        changes; the lower half is odd. Its *out* word is the same number until a thread returns
//!        the buffer; that thread stores the next life there. The life decides, the out word informs: of two
//!        returns one after the other, it refuses the second at once.
//! Alone  a life ends under the pool's [`Guard`]: by the owner in a section, or by a thread that claims it.
//! Away   another thread only compares the out word, stores the next life there and sends the life in a
//!        message ([`message`](crate::recycle::message)). The owner ends it when it takes the message. A
//!        message of a life that has ended is a second return: it is discarded and counted. A late store may
//!        leave an old life in an out word. Then [`is_out`] asks the life, and the next return repairs it.
//! Claim  a thread that takes a buffer out of its handle for other uses must have it alone at once, and
//!        claims it.
//! Who    a page's words may also be changed by the thread that has the page without a handle.
//!
//! [`is_out`]: PageLife::is_out

// UNSAFETY: words are reached by address and never freed.
#![expect(unsafe_code)]

use std::sync::atomic::AtomicPtr;

use crate::recycle::guard::Guard;
use crate::sys::sync::{AtomicU32, AtomicU64, Ordering::*};

/// The step from one life's upper half to the next. It is twice an odd number: the halves are odd, and repeat
/// after 2^31.
pub const NEXT_LIFE: u32 = 0x9e37_79b2;

/// The life that follows.
#[inline(always)]
pub fn next_life(life: u64) -> u64 {
    life.wrapping_add(u64::from(NEXT_LIFE) << 32)
}

/// The out word of a page that may have references. It differs from the life by bit 16, which belongs to the
/// place of the page: so a handle with this value is one of another page, with another out word.
#[inline(always)]
pub const fn with_refs(life: u64) -> u64 {
    life ^ 1 << 16
}

/// The out word of a page that is out in this life.
#[inline(always)]
fn out_word(life: u64, MayHaveRefs(refs): MayHaveRefs) -> u64 {
    if refs { with_refs(life) } else { life }
}

/// The lives of a pool's pages. Zeroes are a table without pages.
pub type LifeTable = Guard<LifeWords>;

/// Where the words of a [`LifeTable`] are.
#[derive(Debug, Default)]
#[repr(C)]
pub struct LifeWords {
    /// The life of each page, by number; 0 before the first.
    pub lives: AtomicPtr<AtomicU64>,
    /// The out word of each page: a life, or [`with_refs`] of one.
    pub outs: AtomicPtr<AtomicU64>,
    /// The number of pages.
    pub pages: AtomicU32,
}

#[inline(always)]
fn end_half(word: &AtomicU64, half: u32) -> bool {
    let life = word.load(Relaxed);
    let is_in = (life >> 32) as u32 == half;
    if is_in {
        word.store(next_life(life), Relaxed);
    }
    is_in
}

/// Whether a page may have references, in the life that has just ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MayHaveRefs(pub bool);

/// The two words of a page, which are never freed.
#[derive(Clone, Copy, Debug)]
pub struct PageLife {
    /// Its life.
    pub life: &'static AtomicU64,
    /// Its out word.
    pub out: &'static AtomicU64,
}

impl PageLife {
    /// Whether the buffer of this life is out and has not been returned.
    #[inline]
    pub fn is_out(self, life: u64) -> bool {
        self.life.load(Acquire) == life && self.out.load(Acquire) != next_life(life)
    }

    /// Ends the life of a buffer that is out. For the owner in a section, or with the lock.
    #[inline(always)]
    pub fn end(self, life: u64) -> Option<MayHaveRefs> {
        let refs = MayHaveRefs(self.out.load(Relaxed) == with_refs(life));
        let is_out = self.is_out(life);
        if is_out {
            self.life.store(next_life(life), Relaxed);
            self.out.store(next_life(life), Relaxed);
        }
        is_out.then_some(refs)
    }

    /// Ends the life of a plain page that is out. For the owner in a section, or with the lock.
    #[inline(always)]
    pub fn end_plain(self, life: u64) -> bool {
        let is_out = self.out.load(Relaxed) == life && self.life.load(Relaxed) == life;
        if is_out {
            self.life.store(next_life(life), Relaxed);
            self.out.store(next_life(life), Relaxed);
        }
        is_out
    }

    /// Marks the buffer of this life as returned, in its out word. Returns `false`, and stores nothing,
    /// unless it is a plain page that is out. After `true` the caller must send the life.
    #[inline(always)]
    pub fn leave(out: &AtomicU64, life: u64) -> bool {
        let is_out = out.load(Relaxed) == life;
        if is_out {
            out.store(next_life(life), Relaxed);
        }
        is_out
    }

    /// Begins the life of a buffer, for the thread that has it; `first` gives a page's first life. A plain
    /// page that was out before needs only its life.
    pub fn begin(self, refs: MayHaveRefs, first: impl FnOnce() -> u64) -> u64 {
        let life = match self.life.load(Relaxed) {
            0 => first(),
            life => life,
        };
        self.life.store(life, Relaxed);
        self.out.store(out_word(life, refs), Relaxed);
        life
    }

    /// Makes the ended life that has this buffer current again, for the thread that ended it and has the
    /// buffer.
    pub fn resume(self, life: u64, refs: MayHaveRefs) {
        self.life.store(life, Release);
        self.out.store(out_word(life, refs), Release);
    }
}

impl LifeTable {
    /// A table of these words, which must be valid for every page, forever. No thread uses it yet.
    pub fn begin(&self, lives: *mut AtomicU64, outs: *mut AtomicU64, pages: u32) {
        self.lives.store(lives, Relaxed);
        self.outs.store(outs, Relaxed);
        self.pages.store(pages, Relaxed);
        self.limit.store(0, Relaxed);
    }

    /// A table without pages.
    #[cfg(loom)]
    pub fn none() -> Self {
        Self::new(LifeWords::default(), 0)
    }

    /// The words of a page of the table.
    #[inline(always)]
    pub fn page(&self, page: u32) -> PageLife {
        debug_assert!(page < self.pages.load(Relaxed), "page {page} is not in the table");
        let word = |words: &AtomicPtr<AtomicU64>| {
            // SAFETY: I3. There is a word for every page, and callers pass such a page.
            let word = unsafe { words.load(Relaxed).add(page as usize) };
            // SAFETY: I3. Words are never freed.
            unsafe { &*word }
        };
        PageLife { life: word(&self.lives), out: word(&self.outs) }
    }

    /// Ends lives whose upper halves came in messages; `false` for one that has ended. For the owner in a
    /// section, or with the lock.
    #[inline(always)]
    pub fn end_sent(&self) -> impl Fn(u32, u32) -> bool + Copy + use<> {
        let (lives, pages) = (self.lives.load(Relaxed), self.pages.load(Relaxed));
        move |page, half| {
            page < pages && {
                // SAFETY: I3. There is a word for every page of the table.
                let word = unsafe { lives.add(page as usize) };
                // SAFETY: I3. Words are never freed.
                end_half(unsafe { &*word }, half)
            }
        }
    }

    /// Ends the life of a buffer of this table on any thread, which then has the buffer.
    pub fn claim(&self, page: PageLife, life: u64) -> Option<MayHaveRefs> {
        // First, so that a stale handle does not slow the owner.
        if page.is_out(life) { self.alone(|| page.end(life)) } else { None }
    }

    /// Ends a life that cannot be sent, as [`end_sent`](Self::end_sent) does, on any thread.
    pub(crate) fn claim_sent(&self, page: u32, half: u32) -> bool {
        self.alone(|| self.end_sent()(page, half))
    }
}
