//! The lives of buffers: which of its lives each place is in, so that a token of an earlier one is refused.
//!
//! What   a word per page of a pool, found by the page's number; an [`Entry`] per fragment that is out. A directory finds the
//!        pool and the entries by the token's place, 4096 places a row.
//! Words  the upper half is the generation: even while the buffer is home and odd while it is out. The lower half is, while
//!        it is out, that of the buffer's own second word; for a whole page with nothing to look up, whose own is 0, that
//!        of its token, so that word and token are equal. While it is home it is that of its token less one, which no
//!        token of its kind has. All of it is 0 before the first life. So a plain page's life is begun with one addition
//!        and ended with another, and nothing is put together from parts.
//! Who    home to out: whoever has the page itself, so a plain store. Out to home: claim.rs.
//! Life   words, entries and the directory are never freed, only used again, and generations only grow: any token can be
//!        looked up at any time, and a stale one stays stale. They begin at random, so that one that is made up does not fit.
//! Cost   8 bytes per page in use, 16 per fragment.

// UNSAFETY: words are reached by address and never freed.
#![expect(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed};
use std::hash::{BuildHasher, RandomState};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering::*};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::error::{Outcome, Refusal};
use crate::handles::token::{Kind, Token};
use crate::handles::view::View;

/// log2 of the places in a row of the directory.
const ROW_SHIFT: u32 = 12;
const IN_ROW: u32 = (1 << ROW_SHIFT) - 1;
const ROWS: usize = 1 << 16;

/// The life of one place.
#[repr(transparent)]
pub(crate) struct Word(AtomicU64);

/// A fragment's life, and its page; while it is free, the next free one's place, plus one.
#[repr(C)]
pub(crate) struct Entry {
    pub(crate) word: Word,
    pub(crate) page: AtomicU64,
}

/// What the directory knows of 4096 places. Unused while `kind` is 0.
#[repr(C, align(32))]
struct Row {
    view: AtomicPtr<View>,
    kind: AtomicU64,
    /// Words of pages, or entries of fragments: those of this row.
    lives: AtomicPtr<Word>,
}

const _: () = assert!(size_of::<Word>() == 8 && size_of::<Row>() == 32, "pagepool.h knows both");

static DIRECTORY: [Row; ROWS] = [const {
    Row {
        view: AtomicPtr::new(ptr::null_mut()),
        kind: AtomicU64::new(0),
        lives: AtomicPtr::new(ptr::null_mut()),
    }
}; ROWS];

impl Word {
    /// Begins the life of a plain page that was out before.
    #[inline(always)]
    pub(crate) fn begin_again(&self) -> Option<Token> {
        let home = self.0.load(Relaxed);
        (home != 0).then(|| {
            self.0.store(home.wrapping_add(BEGIN), Relaxed);
            Token(home.wrapping_add(BEGIN))
        })
    }

    /// Begins a life; `place` is the lower half of its tokens, `part` the upper half of the buffer's second word.
    pub(crate) fn begin(&self, place: u32, part: u32) -> Token {
        let before = match self.0.load(Relaxed) {
            0 => first_generation(),
            home => (home >> 32) as u32,
        };
        let token = Token(u64::from(before + 1) << 32 | u64::from(place));
        self.0.store(out(token, part), Relaxed);
        token
    }

    /// All of it.
    #[inline(always)]
    pub(crate) fn now(&self) -> u64 {
        self.0.load(Acquire)
    }

    /// Ends a life with plain operations: for a thread that no other can be racing with.
    #[inline(always)]
    pub(crate) fn end_alone(&self, token: Token) -> Option<u64> {
        let now = self.0.load(Relaxed);
        is_in(now, token).then(|| {
            self.0.store(home(token), Relaxed);
            now
        })
    }

    /// As [`end_alone`](Self::end_alone), for a page with nothing to look up; says whether it was one, in that life.
    #[inline(always)]
    pub(crate) fn end_plain(&self, token: Token) -> bool {
        let same = self.0.load(Relaxed) == token.0;
        if same {
            self.0.store(home(token), Relaxed);
        }
        same
    }

    /// Ends a life, and says how it was; of several who try, one does.
    pub(crate) fn end(&self, token: Token) -> Option<u64> {
        let now = self.0.load(Acquire);
        let ended = || self.0.compare_exchange(now, home(token), AcqRel, Relaxed).is_ok();
        (is_in(now, token) && ended()).then_some(now)
    }

    /// Takes the end of a life back: for the one who ended it and still has the buffer.
    pub(crate) fn resume(&self, token: Token, part: u32) {
        self.0.store(out(token, part), Release);
    }
}

/// Whether a word says that the buffer is out in the life of a token; generations of tokens are odd.
#[inline(always)]
pub(crate) fn is_in(word: u64, token: Token) -> bool {
    word >> 32 == token.0 >> 32
}

/// The upper half of the second word of a buffer that is out.
#[inline(always)]
pub(crate) fn part(word: u64, token: Token) -> u32 {
    if word == token.0 { 0 } else { word as u32 }
}

/// The word of a buffer that is out. A page's part is even, and its token is odd.
fn out(token: Token, part: u32) -> u64 {
    if part == 0 { token.0 } else { token.0 >> 32 << 32 | u64::from(part) }
}

/// The word of a buffer that came home.
#[inline(always)]
fn home(token: Token) -> u64 {
    token.0.wrapping_add(END)
}

/// From the word of a page that is home to that of its next life: the next generation, and the lower half one more.
const BEGIN: u64 = (1 << 32) + 1;
/// From a token to the word of its page back home: the next generation, and the lower half one less.
const END: u64 = (1 << 32) - 1;

/// An even number that nobody knows before.
#[cold]
fn first_generation() -> u32 {
    static RANDOM: OnceLock<RandomState> = OnceLock::new();
    static DRAWN: AtomicU64 = AtomicU64::new(0);
    let random = RANDOM.get_or_init(RandomState::new);
    random.hash_one(DRAWN.fetch_add(1, Relaxed)) as u32 & !1
}

/// Rows in sequence, with their words or entries: a pool's until it is freed, then another's.
#[derive(Clone, Copy)]
pub(crate) struct Rows {
    first: u32,
    count: u32,
    lives: *mut Word,
}

// SAFETY: the address is that of atomics that are never freed.
unsafe impl Send for Rows {}

struct List {
    made: u32,
    /// Given back, of pages and of fragments.
    pages: Vec<Rows>,
    frags: Vec<Rows>,
}

static LIST: Mutex<List> = Mutex::new(List { made: 0, pages: Vec::new(), frags: Vec::new() });

impl Rows {
    /// Rows for `pages` pages of a pool.
    pub(crate) fn for_pages(pages: u32, view: &'static View) -> Outcome<Self> {
        Self::take(Kind::Page, pages.div_ceil(1 << ROW_SHIFT), view)
    }

    /// A row for 4096 fragments of a pool, all of them free and in a list; see [`first_place`](Self::first_place).
    pub(crate) fn for_frags(view: &'static View) -> Outcome<Self> {
        let row = Self::take(Kind::Frag, 1, view)?;
        let first = row.first_place();
        for at in first..first + IN_ROW {
            entry(at).page.store(u64::from(at) + 2, Relaxed);
        }
        entry(first + IN_ROW).page.store(0, Relaxed);
        Ok(row)
    }

    fn take(kind: Kind, count: u32, view: &'static View) -> Outcome<Self> {
        let mut list = LIST.lock().unwrap_or_else(PoisonError::into_inner);
        let free = if kind == Kind::Page { &mut list.pages } else { &mut list.frags };
        // One that is not much too large, so that nothing ever has to be split.
        let fits = |rows: &Rows| (count..=count.saturating_mul(2)).contains(&rows.count);
        let rows = match free.iter().position(fits) {
            Some(at) => free.swap_remove(at),
            None => list.make(kind, count)?,
        };
        for row in rows.rows() {
            row.view.store(ptr::from_ref(view).cast_mut(), Relaxed);
            row.kind.store(kind as u64, Release); // pairs with find()
        }
        Ok(rows)
    }

    /// Gives rows back none of whose buffers is out.
    pub(crate) fn give_back(self) {
        let mut list = LIST.lock().unwrap_or_else(PoisonError::into_inner);
        let frags = self.rows().iter().any(|row| row.kind.load(Relaxed) == Kind::Frag as u64);
        let free = if frags { &mut list.frags } else { &mut list.pages };
        free.push(self); // room for all rows was reserved
    }

    fn rows(&self) -> &'static [Row] {
        let first = self.first as usize;
        DIRECTORY.get(first..first + self.count as usize).unwrap_or(&[])
    }

    /// The place, in tokens, of the first.
    pub(crate) fn first_place(&self) -> u32 {
        self.first << ROW_SHIFT
    }

    /// The words of pages, by number.
    pub(crate) fn words(&self) -> *mut Word {
        self.lives
    }
}

impl List {
    fn make(&mut self, kind: Kind, count: u32) -> Outcome<Rows> {
        const FULL: Refusal = Refusal::fixed(
            libc::ENOSPC,
            c"268435456 pages of all pools together are known: use smaller arenas, or fewer pools over one",
        );
        let first = self.made;
        if u64::from(first) + u64::from(count) > ROWS as u64 {
            return Err(FULL);
        }
        let made = (first + count) as usize;
        self.pages.try_reserve(made).map_err(|_| Refusal::no_memory())?;
        self.frags.try_reserve(made).map_err(|_| Refusal::no_memory())?;
        let each = if kind == Kind::Page { size_of::<Word>() } else { size_of::<Entry>() };
        let bytes = (count as usize * each) << ROW_SHIFT;
        let layout = Layout::from_size_align(bytes.max(each), 64).map_err(|_| Refusal::no_memory())?;
        // SAFETY: the layout has a size above zero.
        let lives = unsafe { alloc_zeroed(layout) };
        if lives.is_null() {
            return Err(Refusal::no_memory());
        }
        let rows = Rows { first, count, lives: lives.cast() };
        for (at, row) in rows.rows().iter().enumerate() {
            row.lives.store(lives.wrapping_add((at * each) << ROW_SHIFT).cast(), Relaxed);
        }
        self.made = made as u32;
        Ok(rows)
    }
}

/// The entry of a place that a fragment has or had.
pub(crate) fn entry(place: u32) -> &'static Entry {
    let lives = DIRECTORY[(place >> ROW_SHIFT) as usize % ROWS].lives.load(Relaxed).cast::<Entry>();
    // SAFETY: rows of fragments have an entry for every place, and callers have such a place.
    let entry = unsafe { lives.add((place & IN_ROW) as usize) };
    // SAFETY: entries are atomics and never freed.
    unsafe { &*entry }
}

/// Where the directory lies, for the inline functions.
pub(crate) const fn directory() -> *const std::ffi::c_void {
    (&raw const DIRECTORY).cast()
}

/// What a buffer's token names.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    pub(crate) word: &'static Word,
    pub(crate) view: &'static View,
}

/// Looks a buffer's token up. What is found may be in another life by now.
#[inline(always)]
pub(crate) fn find(token: Token) -> Outcome<Found> {
    let row = &DIRECTORY[(token.0 as u32 >> 16) as usize];
    let kind = row.kind.load(Acquire);
    if kind == 0 || kind != token.0 & 15 || token.generation() & 1 == 0 {
        return Err(Refusal::no_handle());
    }
    let words_each = if kind == Kind::Page as u64 { 1 } else { 2 };
    let at = (token.place() & IN_ROW) as usize * words_each;
    // SAFETY: a row with a kind has a word or an entry, which begins with its word, for every place.
    let word = unsafe { row.lives.load(Relaxed).add(at) };
    // SAFETY: words are atomics and never freed.
    let word = unsafe { &*word };
    // SAFETY: a row with a kind has a view, which is static.
    Ok(Found { word, view: unsafe { &*row.view.load(Relaxed) } })
}
