//! The directory: from the place in a token to its pool, its memory, and the words that know the buffer's life.
//!
//! What   two words per page of a pool, found by the page's number: see `LifeTable`. One [`FragEntry`] per
//!        fragment that is out. A directory finds the pool and the entries by the token's place, 4096 places
//!        a row.
//! Life   words, entries and the directory are never freed, only reused: any token can be looked up at any
//!        time. The words decide whether the token is current.
//! Cost   16 bytes per page in use, and per fragment.

// UNSAFETY: words are reached by address and never freed.
#![expect(unsafe_code)]

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering::*};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ::pagepool::{PageLife, lasting_zeroes, with_refs};

use crate::error::{CallError, CallResult};
use crate::handles::life_word::LifeWord;
use crate::handles::token::{HandleKind, Token};
use crate::handles::view::PoolView;

/// log2 of the places in a row of the directory.
pub(crate) const ROW_SHIFT: u32 = 12;
const IN_ROW: u32 = (1 << ROW_SHIFT) - 1;
const ROWS: usize = 1 << 16;
/// Words between the two tables of pages: a CPU takes addresses with the same lower 12 bits for the same at
/// first, and a return uses both words of a page.
const SKEW: usize = 264;

/// A fragment's life and its page; while the entry is free, `page` is the next free place plus one.
#[repr(C)]
pub(crate) struct FragEntry {
    pub(crate) word: LifeWord,
    pub(crate) page: AtomicU64,
}

/// The directory's row for 4096 places. Unused while `kind` is 0. Addresses are those that place 0 would
/// have: so places need no mask, and all rows of a range are equal.
#[repr(C, align(64))]
pub(crate) struct DirectoryRow {
    pub(crate) view: AtomicPtr<PoolView>,
    pub(crate) kind: AtomicU64,
    /// Out words of pages, or entries of fragments.
    pub(crate) words: AtomicPtr<u8>,
    /// Lives of pages.
    lives: AtomicPtr<AtomicU64>,
    /// The pages' CPU address.
    pub(crate) memory: AtomicU64,
    /// Bytes of a base page; 0 unless the row is for pages that the CPU can read.
    pub(crate) base_page: AtomicU64,
}

pub(crate) static DIRECTORY: [DirectoryRow; ROWS] = [const {
    DirectoryRow {
        view: AtomicPtr::new(ptr::null_mut()),
        kind: AtomicU64::new(0),
        words: AtomicPtr::new(ptr::null_mut()),
        lives: AtomicPtr::new(ptr::null_mut()),
        memory: AtomicU64::new(0),
        base_page: AtomicU64::new(0),
    }
}; ROWS];

/// Consecutive places, with their words or entries. They are a pool's until it is freed, then another's.
#[derive(Clone, Copy)]
pub(crate) struct PlaceRange {
    kind: HandleKind,
    first: u32,
    count: u32,
    words: *mut u8,
}

// SAFETY: the address is that of atomics that are never freed.
unsafe impl Send for PlaceRange {}

struct PlaceAllocator {
    made: u32,
    free: Vec<PlaceRange>,
}

static PLACES: Mutex<PlaceAllocator> = Mutex::new(PlaceAllocator { made: 0, free: Vec::new() });

fn places() -> MutexGuard<'static, PlaceAllocator> {
    PLACES.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PlaceRange {
    pub(crate) fn for_pages(pages: u32, view: &'static PoolView) -> CallResult<Self> {
        Self::take(HandleKind::Page, pages.div_ceil(1 << ROW_SHIFT), view)
    }

    /// A row for 4096 fragments of a pool, all free and in a list from [`first_place`](Self::first_place) on.
    pub(crate) fn for_frags(view: &'static PoolView) -> CallResult<Self> {
        let row = Self::take(HandleKind::Frag, 1, view)?;
        let first = row.first_place();
        for at in first..first + IN_ROW {
            entry(at).page.store(u64::from(at) + 2, Relaxed);
        }
        entry(first + IN_ROW).page.store(0, Relaxed);
        Ok(row)
    }

    fn take(kind: HandleKind, count: u32, view: &'static PoolView) -> CallResult<Self> {
        let mut places = places();
        // At most twice as large, so that ranges are never split.
        let sizes = count..=count.saturating_mul(2);
        let fits = |rows: &PlaceRange| rows.kind == kind && sizes.contains(&rows.count);
        let rows = match places.free.iter().position(fits) {
            Some(at) => places.free.swap_remove(at),
            None => places.make(kind, count)?,
        };
        for row in rows.rows() {
            row.view.store(ptr::from_ref(view).cast_mut(), Relaxed);
            row.kind.store(kind as u64, Release); // pairs with find()
        }
        Ok(rows)
    }

    /// Returns the range; none of its buffers is out.
    pub(crate) fn release(self) {
        places().free.push(self); // room for all rows was reserved
    }

    fn rows(&self) -> &'static [DirectoryRow] {
        let first = self.first as usize;
        DIRECTORY.get(first..first + self.count as usize).unwrap_or(&[])
    }

    /// The out words of pages, by page number.
    pub(crate) fn outs(&self) -> *mut AtomicU64 {
        self.words.cast()
    }

    /// The lives of pages, by page number.
    pub(crate) fn lives(&self) -> *mut AtomicU64 {
        self.outs().wrapping_add(((self.count as usize) << ROW_SHIFT) + SKEW)
    }

    /// Stores where the pages are; `memory` is 0 if the CPU cannot read them.
    pub(crate) fn set_memory(&self, memory: u64, base_page: u64) {
        let of_place_0 = memory.wrapping_sub(u64::from(self.first_place()) * base_page);
        for row in self.rows() {
            row.memory.store(of_place_0, Relaxed);
            let readable = if memory == 0 { 0 } else { base_page };
            row.base_page.store(readable, Release); // pairs with pagepool_buf_data_() in inline.h
        }
    }

    /// The first place, as tokens have it.
    pub(crate) fn first_place(&self) -> u32 {
        self.first << ROW_SHIFT
    }
}

impl PlaceAllocator {
    fn make(&mut self, kind: HandleKind, count: u32) -> CallResult<PlaceRange> {
        const FULL: CallError = CallError::fixed(
            libc::ENOSPC,
            c"all pools have 268435456 pages and fragments, the limit: return fragments or end pools",
        );
        let first = self.made;
        if u64::from(first) + u64::from(count) > ROWS as u64 {
            return Err(FULL);
        }
        let made = (first + count) as usize;
        self.free.try_reserve(made)?;
        // A page has two words, in two tables; a fragment has one entry.
        let (each, tables) = match kind {
            HandleKind::Page => (size_of::<AtomicU64>(), 2),
            _ => (size_of::<FragEntry>(), 1),
        };
        let bytes = ((count as usize * each * tables) << ROW_SHIFT) + SKEW * each;
        let words = lasting_zeroes(bytes.max(each)).map_err(|_| CallError::NO_MEMORY)?.as_ptr();
        let rows = PlaceRange { kind, first, count, words };
        let places = (first as usize) << ROW_SHIFT;
        for row in rows.rows() {
            row.words.store(words.wrapping_sub(places * each), Relaxed);
            row.lives.store(rows.lives().wrapping_sub(places), Relaxed);
        }
        if first == 0 && kind == HandleKind::Page {
            // Not 0: NULL would match it before the first page's first life.
            // SAFETY: at least one word was just allocated.
            unsafe { &*words.cast::<AtomicU64>() }.store(with_refs(0), Relaxed);
        }
        self.made = made as u32;
        Ok(rows)
    }
}

/// The entry of a place that is or was a fragment's.
pub(crate) fn entry(place: u32) -> &'static FragEntry {
    let words = DIRECTORY[(place >> ROW_SHIFT) as usize % ROWS].words.load(Relaxed).cast::<FragEntry>();
    // SAFETY: rows of fragments have an entry for every place, and callers pass such a place. Entries are
    // atomics and never freed.
    unsafe { &*words.wrapping_add(place as usize) }
}

/// The link of a free entry: the next free place plus one, or 0.
pub(crate) fn next_free(place: u32) -> u64 {
    entry(place).page.load(Relaxed)
}

impl DirectoryRow {
    #[inline(always)]
    fn of(token: Token) -> &'static Self {
        &DIRECTORY[(token.0 as u32 >> 16) as usize]
    }

    /// The pool that has the row's places. The row has a kind.
    #[inline(always)]
    pub(crate) fn view(&self) -> &'static PoolView {
        // SAFETY: a row with a kind has a view, which is static.
        unsafe { &*self.view.load(Acquire) }
    }

    /// The words of a page. The row is of pages, and the token's own.
    #[inline(always)]
    pub(crate) fn page(&self, token: Token) -> PageLife {
        debug_assert!(ptr::eq(self, Self::of(token)), "the words of another row");
        // SAFETY: a row of pages has a life for every place in it.
        let life = unsafe { word_of(self.lives.load(Relaxed), token) };
        PageLife { life, out: self.outs()(token) }
    }

    /// Returns a function that finds the out word of a token of this row, which must be one of pages.
    #[inline(always)]
    pub(crate) fn outs(&self) -> impl Fn(Token) -> &'static AtomicU64 {
        let outs = self.words.load(Relaxed).cast::<AtomicU64>();
        move |token| {
            debug_assert!(outs == Self::of(token).words.load(Relaxed).cast(), "the words of another row");
            // SAFETY: a row of pages has an out word for every place in it.
            unsafe { word_of(outs, token) }
        }
    }
}

/// # Safety
/// These are the words of the token's row, one for every place.
#[inline(always)]
unsafe fn word_of(words: *mut AtomicU64, token: Token) -> &'static AtomicU64 {
    // SAFETY: the caller's promise. Words are atomics and never freed.
    unsafe { &*words.wrapping_add(token.place() as usize) }
}

/// The row of a buffer's token. The token may be of an earlier life.
#[inline(always)]
pub(crate) fn find(token: Token) -> CallResult<&'static DirectoryRow> {
    let row = DirectoryRow::of(token);
    let kind = row.kind.load(Acquire); // pairs with take()
    let may_be = kind != 0 && kind == token.0 & 15 && token.generation() & 1 != 0;
    may_be.then_some(row).ok_or(CallError::NO_HANDLE)
}

/// The row of a page's token, if it is one of pages: for paths that compare the token with its words.
#[inline(always)]
pub(crate) fn find_page(token: Token) -> Option<&'static DirectoryRow> {
    let row = DirectoryRow::of(token);
    let pages = row.kind.load(Acquire) == HandleKind::Page as u64; // pairs with take()
    (pages && token.is(HandleKind::Page)).then_some(row)
}

/// Whether two tokens have the same kind and row, and so the same pool, if they have one.
#[inline(always)]
pub(crate) fn in_one_row(one: Token, other: Token) -> bool {
    (one.0 ^ other.0) as u32 & (!0 << 16 | 15) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handles::view::VIEWS;

    /// Of the mappings that overlap these addresses: the process also has the memory of other tests.
    fn resident_bytes(of: std::ops::Range<usize>) -> usize {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let (mut is_ours, mut mappings, mut kib) = (false, 0, 0);
        for line in maps.lines() {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            let at = |text| usize::from_str_radix(text, 16).unwrap();
            if let Some((begin, end)) = range {
                is_ours = at(begin) < of.end && of.start < at(end);
                mappings += usize::from(is_ours);
            } else if let Some(rss) = line.strip_prefix("Rss:").filter(|_| is_ours) {
                kib += rss.trim().trim_end_matches(" kB").parse::<usize>().unwrap();
            }
        }
        assert!(mappings > 0, "{of:x?} is mapped");
        kib << 10
    }

    /// The tables of a pool over 64 GiB have 256 MiB of addresses.
    #[test]
    fn the_places_of_a_large_pool_cost_what_is_used() {
        const PAGES: u32 = 1 << 24;
        let places = PlaceRange::for_pages(PAGES, &VIEWS[0]).unwrap();
        let begin = places.words as usize;
        let cost = resident_bytes(begin..begin + 2 * size_of::<AtomicU64>() * PAGES as usize);
        places.release();
        assert!(cost < 16 << 20, "{cost} bytes are resident for {PAGES} places that nobody used");
    }
}
