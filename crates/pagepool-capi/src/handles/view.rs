//! The data of a pool that the fast paths read: a row of a table that is never freed.
//!
//! What   one [`PoolView`] per pool slot, for the functions here and for those that `pagepool.h` compiles
//!        into its users. A token names its row, and the row has the whole token, so any value from C can be
//!        looked up.
//! Who    `owner`: only the owner writes its own thread there, so comparing needs no order. `cache` and `own`
//!        lead to memory of the owner. `guard` says who writes what in it. `away` is written by any thread,
//!        `cache` by a thread that binds. The rest is written while the token is 0.
//! Life   addresses in a row are valid as long as its token is. That ends on the owner's thread, or while
//!        there is no owner.
//! Lines  the first has what every thread reads; it is written when the pool is bound. `guard` begins with a
//!        line that is written when a thread claims a buffer. The owner writes the line after that with each
//!        buffer.
//! Layout part of the inline interface, as are `LifeTable`, `DirectoryRow`, `CacheHead`, `There`, the fields
//!        of lanes, the bits of a token and the step between lives: inline.rs makes a number of it, and
//!        programs that know another number call the library.

// UNSAFETY: follows the addresses in the row.
#![expect(unsafe_code)]

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::with_exposed_provenance_mut;
use std::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed},
};

use ::pagepool::{CacheHead, LifeTable};

use crate::handles::owner_half::OwnerHalf;
use crate::handles::thread::me;
use crate::handles::token::{KIND_BITS, Token};

/// The most buffers that a thread allocates or returns together. A thread that claims a buffer may have to
/// wait for so many.
pub(crate) const RUN: usize = 64;

pub(crate) const MAX_POOLS: usize = 4096;

#[repr(C, align(128))]
pub(crate) struct PoolView {
    /// The pool's token while it exists, otherwise 0.
    pub(crate) token: AtomicU64,
    /// The thread that the pool is bound to, as [`me`] names it, or 0.
    pub(crate) owner: AtomicU64,
    /// The lower half of the token of page 0.
    pub(crate) base: AtomicU32,
    /// Pages of the pool's area.
    pub(crate) pages: AtomicU32,
    /// The owner's cache: its head, followed by page numbers.
    pub(crate) cache: AtomicPtr<CacheHead>,
    /// The address of page 0 for the CPU; 0 if it cannot read the pages.
    pub(crate) memory: AtomicU64,
    /// Bytes of a base page.
    pub(crate) base_page: AtomicU64,
    /// With what a thread finds its lane to the pool, or [`NO_LANE`].
    lane: [AtomicU32; 2],
    /// The pool's core, the first word of every buffer of this pool.
    pub(crate) core: AtomicPtr<c_void>,
    pub(crate) own: AtomicPtr<OwnerHalf>,
    pub(crate) page_size: AtomicU64,
    /// 1 for a pool without an owner.
    pub(crate) no_owner: AtomicU32,
    /// The lives of the pages.
    pub(crate) guard: LifeTable,
    pub(crate) away: AwayView,
}

/// Separate cache lines, because other threads write them.
#[repr(align(128))]
pub(crate) struct AwayView {
    /// 1 while a thread has the turn in a pool without an owner: see `slots::turn`. Never reset.
    pub(crate) turn: AtomicU32,
    /// The list of entries for fragments that became free on other threads, mostly. See `owner`.
    pub(crate) returned_frags: AtomicU64,
}

/// In [`PoolView::lane`]: a return to this pool is more than a message.
pub(crate) const NO_LANE: u32 = u32::MAX;

pub(crate) static VIEWS: [PoolView; MAX_POOLS] = [const { PoolView::empty() }; MAX_POOLS];

impl PoolView {
    const fn empty() -> Self {
        // SAFETY: numbers and addresses, of which zeroes are values.
        unsafe { MaybeUninit::zeroed().assume_init() }
    }

    /// Whether the calling thread owns the pool.
    #[inline(always)]
    pub(crate) fn is_mine(&self) -> bool {
        self.owner.load(Relaxed) == me()
    }

    /// Takes a page from the cache, with its token; `None` if that needs more than this.
    #[inline(always)]
    pub(crate) fn alloc(&self, pool: Token) -> Option<Token> {
        if !self.is_mine() || self.token.load(Relaxed) != pool.0 {
            return None;
        }
        let cache = self.cache.load(Relaxed);
        // SAFETY: this thread owns the pool, so it exists, and so do its parts.
        let head = unsafe { &*cache };
        let at = head.count.load(Relaxed).checked_sub(1)?;
        // SAFETY: this thread owns the pool, so the cache exists; the count is at most the capacity.
        let page = unsafe { entry_of(cache, at) };
        // SAFETY: entries below the count are initialised, and the owner's alone.
        let page = unsafe { page.read() };
        let token = self.token_of(page)?;
        head.count.store(at, Relaxed);
        head.count_taken(1);
        Some(token)
    }

    /// Takes up to [`RUN`] pages from the cache, with one check of the owner; returns how many.
    #[inline(always)]
    pub(crate) fn alloc_run(&self, pool: Token, places: &mut [MaybeUninit<Token>]) -> usize {
        if !self.is_mine() || self.token.load(Relaxed) != pool.0 {
            return 0;
        }
        let cache = self.cache.load(Relaxed);
        // SAFETY: this thread owns the pool, so it exists, and so do its parts.
        let head = unsafe { &*cache };
        let had = head.count.load(Relaxed);
        let n = places.len().min(RUN).min(had);
        // SAFETY: this thread owns the pool, so the cache exists; the count is at most the capacity.
        let first = unsafe { entry_of(cache, had - n) };
        // SAFETY: entries below the count are initialised, and the owner's alone.
        let pages = unsafe { std::slice::from_raw_parts_mut(first, n) };
        // SAFETY: the lives are those of the pool's pages, and there is a place for each.
        let done = unsafe { tokens_of(self.guard.lives.load(Relaxed), pages, places) };
        if done < n {
            pages.copy_within(done.., 0);
        }
        head.count.store(had - done, Relaxed);
        head.count_taken(done as u64);
        done
    }

    /// The token with which a page is given out that was out before.
    #[inline(always)]
    fn token_of(&self, page: u32) -> Option<Token> {
        let life = self.guard.page(page).life.load(Relaxed);
        (life != 0).then_some(Token(life))
    }

    /// The lower half of the tokens of a page.
    #[inline(always)]
    pub(crate) fn place_of(&self, page: u32) -> u32 {
        self.base.load(Relaxed) + (page << KIND_BITS)
    }

    /// Writes the CPU address of the page of each token. The tokens are of whole pages, just given out, and
    /// there is a place for each.
    pub(crate) fn data_of(&self, tokens: &[Token], places: &mut [MaybeUninit<*mut c_void>]) {
        let (base, memory) = (self.base.load(Relaxed), self.memory.load(Relaxed));
        let base_page = self.base_page.load(Relaxed);
        for (token, place) in tokens.iter().zip(places) {
            let offset = u64::from((token.0 as u32).wrapping_sub(base) >> KIND_BITS) * base_page;
            place.write(with_exposed_provenance_mut((memory + offset) as usize));
        }
    }

    /// The page of a token, by its place; above all [`pages`](Self::pages) for a token of another pool or
    /// kind.
    #[inline(always)]
    pub(crate) fn page_of(&self, token: Token) -> u32 {
        page_behind(self.base.load(Relaxed), token)
    }

    #[inline(always)]
    pub(crate) fn has(&self, page: u32) -> bool {
        page < self.pages.load(Relaxed)
    }

    /// With what a thread finds its lane to the pool.
    #[inline(always)]
    pub(crate) fn lane(&self) -> (u32, u32) {
        (self.lane[0].load(Acquire), self.lane[1].load(Acquire))
    }

    pub(crate) fn set_lane(&self, (id, place): (u32, u32)) {
        self.lane[0].store(id, Relaxed);
        self.lane[1].store(place, Relaxed);
    }

    /// Puts the page of a token into the cache, if it is a plain page in that life and the cache takes it
    /// with a store; returns whether it did. For the owner's thread, in a section of `guard`.
    #[inline(always)]
    pub(crate) fn put(&self, page: u32, token: Token) -> bool {
        let cache = self.cache.load(Relaxed);
        // SAFETY: this thread owns the pool, so it exists, and so do its parts.
        let head = unsafe { &*cache };
        let at = head.count.load(Relaxed);
        if at >= head.limit || !self.guard.page(page).end_plain(token.0) {
            return false;
        }
        // SAFETY: this thread owns the pool, so the cache exists, with room for `limit` entries.
        let space = unsafe { entry_of(cache, at) };
        // SAFETY: `at` is below `limit`, and the entries are the owner's alone.
        unsafe { space.write(page) };
        head.count.store(at + 1, Relaxed);
        head.count_put(1);
        true
    }

    /// Puts the pages of the first tokens into the cache, at most [`RUN`], as [`put`](Self::put) does, up to
    /// the first that it would refuse; returns how many.
    #[inline(always)]
    pub(crate) fn put_run(&self, tokens: &[Token]) -> usize {
        let cache = self.cache.load(Relaxed);
        // SAFETY: this thread owns the pool, so it exists, and so do its parts.
        let head = unsafe { &*cache };
        let at = head.count.load(Relaxed);
        let room = head.limit.saturating_sub(at).min(RUN).min(tokens.len());
        // SAFETY: this thread owns the pool, so the cache exists, with room for `limit` entries.
        let space = unsafe { entry_of(cache, at) };
        // SAFETY: entries up to the capacity are initialised, and the owner's alone.
        let space = unsafe { std::slice::from_raw_parts_mut(space, room) };
        let done = end_lives(self, tokens, space);
        head.count.store(at + done, Relaxed);
        head.count_put(done as u64);
        done
    }

    /// Most likely the pool that this thread bound last; otherwise any pool, or an empty row.
    #[inline(always)]
    pub(crate) fn hint(me: u64) -> &'static Self {
        // SAFETY: hints are addresses of rows, or of `NO_POOL`.
        unsafe { &*HINTS[(me >> 12) as usize % HINT_ROWS].0.load(Relaxed) }
    }

    pub(crate) fn set_hint(&'static self) {
        HINTS[(me() >> 12) as usize % HINT_ROWS].0.store(std::ptr::from_ref(self).cast_mut(), Relaxed);
    }
}

/// The page of a token, as in [`PoolView::page_of`].
#[inline(always)]
fn page_behind(base: u32, token: Token) -> u32 {
    // For the right kind the lowest four bits are 0. Rotated to the top, any other value makes the number too
    // large.
    (token.0 as u32).wrapping_sub(base).rotate_right(KIND_BITS)
}

/// Writes the tokens of these pages, which were out before, up to the first that was not; returns how many.
/// Not inlined, so that all it needs is in registers.
///
/// # Safety
/// The lives are those of a pool, and the pages are of its area. There is a place for each page.
#[inline(never)]
unsafe fn tokens_of(lives: *mut AtomicU64, pages: &[u32], places: &mut [MaybeUninit<Token>]) -> usize {
    each_of_eight(pages, &mut places[..pages.len()], |page, place| {
        // SAFETY: the caller passes pages of the pool.
        let life = unsafe { lives.add(page as usize) };
        // SAFETY: lives are atomics and never freed.
        let life = unsafe { &*life }.load(Relaxed);
        place.write(Token(life));
        life != 0
    })
}

/// Ends the lives of these plain pages, up to the first token that is not one in its life, and returns how
/// many there were. Their pages go into `space`, up to its length. For the owner, in a section of `guard`.
#[inline(never)]
fn end_lives(view: &PoolView, tokens: &[Token], space: &mut [u32]) -> usize {
    let (base, pages) = (view.base.load(Relaxed), view.pages.load(Relaxed));
    each_of_eight(&tokens[..space.len()], space, |token, place| {
        let page = page_behind(base, token);
        let ended = page < pages && view.guard.page(page).end_plain(token.0);
        if ended {
            *place = page;
        }
        ended
    })
}

/// Calls `with` for each item and the one beside it, up to the first `false`; returns how many. Eight per
/// round: the compiler does not unroll a loop that may end early.
#[inline(always)]
pub(crate) fn each_of_eight<T: Copy, B>(
    each: &[T],
    beside: &mut [B],
    with: impl Fn(T, &mut B) -> bool,
) -> usize {
    let ((eights, rest), (beside_eights, beside_rest)) = (each.as_chunks::<8>(), beside.as_chunks_mut::<8>());
    macro_rules! each {
        ($turn:ident, $eight:ident, $beside:ident, $($at:literal)*) => {
            $(if !with($eight[$at], &mut $beside[$at]) {
                return ended_at::<$at>($turn);
            })*
        };
    }
    for (turn, (eight, beside)) in eights.iter().zip(beside_eights).enumerate() {
        each!(turn, eight, beside, 0 1 2 3 4 5 6 7);
    }
    let rest = rest.iter().zip(beside_rest).map(|(&one, beside)| with(one, beside));
    eights.len() * 8 + rest.take_while(|&done| done).count()
}

/// A call for each of the eight exits, so that the loop itself has no instruction for them.
#[cold]
#[inline(never)]
fn ended_at<const AT: usize>(turn: usize) -> usize {
    turn * 8 + AT
}

/// # Safety
/// The cache exists, and `at` is at most its capacity.
#[inline(always)]
unsafe fn entry_of(cache: *mut CacheHead, at: usize) -> *mut u32 {
    let entries = cache.cast::<u32>(); // the first field
    // SAFETY: `at` is at most the capacity, as the caller guarantees.
    unsafe { entries.add(at) }
}

const HINT_ROWS: usize = 256;

#[repr(C, align(64))]
struct Hint(AtomicPtr<PoolView>);

/// A row for no pool, also for the inline functions: no token, not even NULL, finds a page, because its cache
/// is empty.
pub(crate) static NO_POOL: PoolView =
    PoolView { cache: AtomicPtr::new((&raw const NO_PAGES).cast_mut()), ..PoolView::empty() };
static NO_PAGES: CacheHead = CacheHead::empty();

static HINTS: [Hint; HINT_ROWS] =
    [const { Hint(AtomicPtr::new((&raw const NO_POOL).cast_mut())) }; HINT_ROWS];
