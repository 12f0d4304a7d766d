//! What the fast paths read of a pool: a row of a table that is never freed.
//!
//! What   one [`PoolView`] per pool slot, for the functions here and for those that `pagepool.h` compiles
//!        into its users. A token names its row, and the row holds the whole token, so whatever C gives can
//!        be looked up.
//! Who    `owner`, and what the addresses lead to, are the owner's thread's: it writes its own mark there and
//!        nobody else does, so comparing needs no order. `begun` and `recycled` are written by the biased
//!        thread alone, `allocated` by the owner. The rest is written while the token is 0.
//! Life   addresses in a row hold as long as its token does, and that ends on the owner's thread, or unowned.
//! Layout part of the inline interface: whoever changes it, or `FragEntry`, or `Directory`, raises `LAYOUT`
//! in inline.rs.

// UNSAFETY: follows the addresses in the row.
#![expect(unsafe_code)]

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::Relaxed};

use ::pagepool::{CacheHead, Stats};

use crate::handles::life_word::LifeWord;
use crate::handles::owner_half::OwnerHalf;
use crate::handles::thread::me;
use crate::handles::token::{KIND_BITS, Token};

/// Pools that may be there at once.
pub(crate) const MAX_POOLS: usize = 4096;

/// In [`PoolView::bias`]: the next owner is biased.
pub(crate) const BIAS_FREE: u64 = 0;
/// In [`PoolView::bias`]: it ends just now.
pub(crate) const BIAS_ENDING: u64 = 1;
/// In [`PoolView::bias`]: nobody is biased any more.
pub(crate) const BIAS_SHARED: u64 = 2;

/// A pool, for the fast paths.
#[repr(C, align(128))]
pub(crate) struct PoolView {
    /// The pool's token while it is there, else 0.
    pub(crate) token: AtomicU64,
    /// The thread that the pool is bound to, as [`me`] names it, or 0.
    pub(crate) owner: AtomicU64,
    /// The thread that may return buffers without an atomic operation, or a state: see `claim`.
    pub(crate) bias: AtomicU64,
    /// The lower half of the token of page 0.
    pub(crate) base: AtomicU64,
    /// Pages of the pool's area.
    pub(crate) pages: AtomicU64,
    /// The lives of pages, by number.
    pub(crate) words: AtomicPtr<LifeWord>,
    /// The owner's cache: its head, and page numbers behind it.
    pub(crate) cache: AtomicPtr<CacheHead>,
    /// Bytes in a page.
    pub(crate) page_size: AtomicU64,
    /// Pages that the fast paths took from the cache, which the pool does not count itself.
    pub(crate) allocated: AtomicU64,
    /// Pages that they put there, likewise.
    pub(crate) recycled: AtomicU64,
    /// What `recycled` will be: one more while the biased thread returns a buffer.
    pub(crate) begun: AtomicU64,
    /// The first word of every buffer of this pool.
    pub(crate) home: AtomicPtr<c_void>,
    pub(crate) own: AtomicPtr<OwnerHalf>,
    /// Where page 0 begins, for the CPU.
    pub(crate) memory: AtomicU64,
    /// Pages whose bytes the CPU can read: all, or none.
    pub(crate) readable: AtomicU64,
    /// 1 for a pool without an owner.
    pub(crate) no_owner: AtomicU32,
    /// 1 while a thread has the turn in such a pool: see `slots::turn`. Never reset.
    pub(crate) turn: AtomicU32,
    /// Free entries for fragments that ended on other threads, mostly: a list. See `owner`.
    pub(crate) frags_home: OwnLine<AtomicU64>,
}

/// A line of its own: other threads write it.
#[repr(align(128))]
pub(crate) struct OwnLine<T>(pub(crate) T);

const _: () = assert!(size_of::<PoolView>() == 256, "pagepool.h counts views in 256 bytes");
const _: () = assert!(std::mem::offset_of!(PoolView, begun) == 80, "pagepool.h lists the fields");
const _: () = assert!(std::mem::offset_of!(PoolView, readable) == 112, "pagepool.h lists the fields");
const _: () =
    assert!(std::mem::offset_of!(PoolView, allocated) == 64, "what is stored per buffer shares a line");

/// The rows.
pub(crate) static VIEWS: [PoolView; MAX_POOLS] = [const { PoolView::empty() }; MAX_POOLS];

impl PoolView {
    const fn empty() -> Self {
        Self {
            token: AtomicU64::new(0),
            owner: AtomicU64::new(0),
            bias: AtomicU64::new(0),
            base: AtomicU64::new(0),
            pages: AtomicU64::new(0),
            words: AtomicPtr::new(std::ptr::null_mut()),
            cache: AtomicPtr::new(std::ptr::null_mut()),
            page_size: AtomicU64::new(0),
            allocated: AtomicU64::new(0),
            recycled: AtomicU64::new(0),
            begun: AtomicU64::new(0),
            home: AtomicPtr::new(std::ptr::null_mut()),
            own: AtomicPtr::new(std::ptr::null_mut()),
            memory: AtomicU64::new(0),
            readable: AtomicU64::new(0),
            no_owner: AtomicU32::new(0),
            turn: AtomicU32::new(0),
            frags_home: OwnLine(AtomicU64::new(0)),
        }
    }

    /// Whether the calling thread owns the pool.
    #[inline(always)]
    pub(crate) fn is_mine(&self) -> bool {
        self.owner.load(Relaxed) == me()
    }

    /// A page from the cache, with its token; `None` where that takes more.
    #[inline(always)]
    pub(crate) fn alloc(&self, pool: Token) -> Option<Token> {
        if !self.is_mine() || self.token.load(Relaxed) != pool.0 {
            return None;
        }
        let cache = self.cache.load(Relaxed);
        // SAFETY: this thread owns the pool, so it is there, and so are its parts.
        let count = unsafe { &(*cache).count };
        let at = count.load(Relaxed).checked_sub(1)?;
        // SAFETY: this thread owns the pool, so the cache is there; the count is at most the capacity.
        let page = unsafe { entry_of(cache, at) };
        // SAFETY: entries below the count are initialised, and the owner's alone.
        let page = unsafe { page.read() };
        let token = self.word(page).begin_again()?;
        count.store(at, Relaxed);
        self.allocated.store(self.allocated.load(Relaxed).wrapping_add(1), Relaxed);
        Some(token)
    }

    /// The life of a page of the pool's area, while the pool is there.
    #[inline(always)]
    pub(crate) fn word(&self, page: u32) -> &'static LifeWord {
        // SAFETY: there is a word for every page of the area, and callers have a page of it.
        let word = unsafe { self.words.load(Relaxed).add(page as usize) };
        // SAFETY: words are atomics and never freed.
        unsafe { &*word }
    }

    /// The lower half of the tokens of a page.
    #[inline(always)]
    pub(crate) fn place_of(&self, page: u32) -> u32 {
        self.base.load(Relaxed) as u32 + (page << KIND_BITS)
    }

    /// The page of a token, by its place; beyond all [`pages`](Self::pages) for a token of another pool or
    /// kind.
    #[inline(always)]
    pub(crate) fn page_of(&self, token: Token) -> u32 {
        // The lowest four bits are 0 for the right kind. Turned to the top they make any other a number that
        // is too large.
        (token.0 as u32).wrapping_sub(self.base.load(Relaxed) as u32).rotate_right(KIND_BITS)
    }

    /// Whether there is such a page.
    #[inline(always)]
    pub(crate) fn has(&self, page: u32) -> bool {
        u64::from(page) < self.pages.load(Relaxed)
    }

    /// Puts the page of a token into the cache, if it is in that life and has nothing to look up, and that is
    /// a store; says whether it did. For the biased owner's thread, which then counts it.
    #[inline(always)]
    pub(crate) fn put(&self, page: u32, token: Token) -> bool {
        let cache = self.cache.load(Relaxed);
        // SAFETY: this thread owns the pool, so it is there, and so are its parts.
        let CacheHead { count, limit, .. } = unsafe { &*cache };
        let at = count.load(Relaxed);
        if at >= *limit || !self.word(page).end_plain(token) {
            return false;
        }
        // SAFETY: this thread owns the pool, so the cache is there, with room for `limit` entries.
        let space = unsafe { entry_of(cache, at) };
        // SAFETY: `at` is below `limit`, and the entries are the owner's alone.
        unsafe { space.write(page) };
        count.store(at + 1, Relaxed);
        true
    }

    /// The pool's own counters, and what the fast paths counted.
    pub(crate) fn and_fast_paths(&self, mut counters: Stats) -> Stats {
        counters.alloc_fast += self.allocated.load(Relaxed);
        counters.recycle_cached += self.recycled.load(Relaxed);
        counters
    }

    /// The pool that this thread bound last, most likely; any pool, or one that never was, if not.
    #[inline(always)]
    pub(crate) fn hint(me: u64) -> &'static Self {
        // SAFETY: hints are addresses of rows, or of the one that stands for none.
        unsafe { &*HINTS[(me >> 12) as usize % HINT_ROWS].0.load(Relaxed) }
    }

    /// Makes this the pool that [`hint`](Self::hint) gives to the calling thread.
    pub(crate) fn set_hint(&'static self) {
        HINTS[(me() >> 12) as usize % HINT_ROWS].0.store(std::ptr::from_ref(self).cast_mut(), Relaxed);
    }
}

/// Where an entry of the owner's cache lies.
///
/// # Safety
/// The cache is there, and `at` is at most its capacity.
#[inline(always)]
unsafe fn entry_of(cache: *mut CacheHead, at: usize) -> *mut u32 {
    // SAFETY: the entries follow the head.
    let entries = unsafe { cache.add(1) }.cast::<u32>();
    // SAFETY: `at` is at most the capacity, as the caller says.
    unsafe { entries.add(at) }
}

const HINT_ROWS: usize = 256;

#[repr(C, align(64))]
struct Hint(AtomicPtr<PoolView>);

static NO_POOL: PoolView = PoolView::empty();
static HINTS: [Hint; HINT_ROWS] =
    [const { Hint(AtomicPtr::new((&raw const NO_POOL).cast_mut())) }; HINT_ROWS];
