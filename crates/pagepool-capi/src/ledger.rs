//! The lives of buffers: which of its lives each place is in, so that a token of an earlier one is refused.
//!
//! What   an [`Entry`] per page that a pool ever handed out, found by the page's number, and one per piece that is out.
//!        Entries lie in chunks of 4096; a directory finds a chunk by the token's place, and says whose it is. A chunk is
//!        made when a pool first hands out a page of its stretch of 16 MiB, and is used again when the pool is freed.
//! Who    a generation is even while the buffer is home and odd while it is out. Home to out: whoever has the page itself,
//!        so a plain store. Out to home: claim.rs. `place` is written while the generation is even.
//! Life   chunks and the directory are never freed and generations only grow, so any token can be looked up at any time
//!        and a stale one stays stale. They begin at random, so that a token that was made up does not fit.
//! Cost   16 bytes per 4 KiB page in use, and per piece.

// UNSAFETY: entries are reached by address and never freed.
#![expect(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Mutex, PoisonError};

use crate::refusal::{Outcome, Refusal};
use crate::token::{Kind, Token};
use crate::view::View;

/// log2 of the entries in a chunk.
pub(crate) const CHUNK_SHIFT: u32 = 12;
/// The part of a place that names the entry in its chunk.
pub(crate) const IN_CHUNK: u32 = (1 << CHUNK_SHIFT) - 1;
const CHUNK: usize = 1 << CHUNK_SHIFT;
/// Chunks that a token can name.
const CHUNKS: usize = 1 << 16;

/// One buffer's lives.
#[repr(C)]
pub(crate) struct Entry {
    generation: AtomicU32,
    _pad: AtomicU32,
    /// The second word of the buffer that is out; of a piece's entry that is free, the next one's place, plus one.
    pub(crate) place: AtomicU64,
}

/// What the directory knows of a chunk. Unused while `kind` is 0.
#[repr(C, align(32))]
struct Directory {
    entries: AtomicPtr<Entry>,
    view: AtomicPtr<View>,
    kind: AtomicU64,
}

const _: () = assert!(size_of::<Entry>() == 16 && size_of::<Directory>() == 32, "pagepool.h knows both");

static DIRECTORY: [Directory; CHUNKS] = [const {
    Directory {
        entries: AtomicPtr::new(ptr::null_mut()),
        view: AtomicPtr::new(ptr::null_mut()),
        kind: AtomicU64::new(0),
    }
}; CHUNKS];

/// Stands in for chunks that are not there yet: its generations are 0, which no entry has that was begun.
static NONE: [Entry; CHUNK] =
    [const { Entry { generation: AtomicU32::new(0), _pad: AtomicU32::new(0), place: AtomicU64::new(0) } };
        CHUNK];

/// A pool's chunk for one stretch of pages. Written by the owner; the default stands for none.
#[repr(C)]
pub(crate) struct ChunkRef {
    entries: AtomicPtr<Entry>,
    /// The lower half of the token of the chunk's first entry.
    base: AtomicU64,
}

impl Default for ChunkRef {
    fn default() -> Self {
        Self { entries: AtomicPtr::new((&raw const NONE).cast_mut().cast()), base: AtomicU64::new(0) }
    }
}

impl Entry {
    /// Begins a life, if the entry is one that was ever begun; gives its generation.
    #[inline(always)]
    pub(crate) fn begin(&self) -> Option<u32> {
        let generation = self.generation.load(Relaxed);
        if generation == 0 {
            return None;
        }
        self.generation.store(generation.wrapping_add(1), Relaxed);
        Some(generation.wrapping_add(1))
    }

    /// Whether it is in this life.
    #[inline(always)]
    pub(crate) fn is_in(&self, generation: u32) -> bool {
        self.generation.load(Acquire) == generation
    }

    /// Ends a life with plain operations: for a thread that no other can be racing with.
    #[inline(always)]
    pub(crate) fn end_alone(&self, generation: u32) -> bool {
        let same = self.generation.load(Relaxed) == generation;
        if same {
            self.generation.store(after(generation), Relaxed);
        }
        same
    }

    /// Ends a life; of several who try, one does.
    pub(crate) fn end(&self, generation: u32) -> bool {
        self.generation.compare_exchange(generation, after(generation), AcqRel, Relaxed).is_ok()
    }

    /// Takes the end of a life back: for the one who ended it and still has the buffer.
    pub(crate) fn resume(&self, generation: u32) {
        self.generation.store(generation, Release);
    }
}

/// The generation of the home that follows a life; never 0.
#[inline(always)]
fn after(generation: u32) -> u32 {
    match generation.wrapping_add(1) {
        0 => 2,
        even => even,
    }
}

impl ChunkRef {
    /// Begins the life of a whole page of this chunk, if the chunk is there.
    #[inline(always)]
    pub(crate) fn begin_life(&self, at: u32) -> Option<Token> {
        // SAFETY: chunks are never freed and have an entry for every `at`, as has the stand-in.
        let entry = unsafe { &*self.entries.load(Relaxed).add((at & IN_CHUNK) as usize) };
        let generation = entry.begin()?;
        Some(Token(u64::from(generation) << 32 | (self.base.load(Relaxed) + (u64::from(at) << 4))))
    }

    /// The entry of a page, if the chunk is there.
    pub(crate) fn entry(&self, at: u32) -> Option<&'static Entry> {
        let base = self.base.load(Acquire);
        // SAFETY: chunks are never freed and have an entry for every `at`.
        (base != 0).then(|| unsafe { &*self.entries.load(Relaxed).add((at & IN_CHUNK) as usize) })
    }

    /// Whether the chunk is there.
    pub(crate) fn is_there(&self) -> bool {
        self.base.load(Relaxed) != 0
    }

    /// Gives this stretch a chunk.
    pub(crate) fn set(&self, chunk: Chunk) {
        self.entries.store(chunk.entries(), Relaxed);
        self.base.store(u64::from(chunk.0) << 16 | Kind::Page as u64, Release);
    }
}

/// The number of a chunk that a pool has.
#[derive(Clone, Copy)]
pub(crate) struct Chunk(u32);

struct Chunks {
    made: u32,
    free: Vec<u32>,
}

static CHUNK_LIST: Mutex<Chunks> = Mutex::new(Chunks { made: 0, free: Vec::new() });

impl Chunk {
    /// A chunk for a pool; `place` gives the second word of each of its buffers while it is home.
    pub(crate) fn take(kind: Kind, view: &'static View, place: impl Fn(u64) -> u64) -> Outcome<Self> {
        let mut list = CHUNK_LIST.lock().unwrap_or_else(PoisonError::into_inner);
        if list.free.is_empty() {
            let made = list.made as usize;
            list.free.try_reserve(made + 1).map_err(|_| Refusal::no_memory())?;
            make(made)?;
            list.made += 1;
            list.free.push(made as u32);
        }
        let chunk = Self(list.free.pop().ok_or(Refusal::no_memory())?);
        (0..CHUNK as u64).for_each(|at| chunk.at(at as u32).place.store(place(at), Relaxed));
        let row = chunk.row();
        row.view.store(ptr::from_ref(view).cast_mut(), Relaxed);
        row.kind.store(kind as u64, Release);
        Ok(chunk)
    }

    /// Gives a chunk back, none of whose buffers is out.
    pub(crate) fn give_back(self) {
        let mut list = CHUNK_LIST.lock().unwrap_or_else(PoisonError::into_inner);
        list.free.push(self.0); // room for every chunk was reserved
    }

    /// The place, in tokens, of its first entry.
    pub(crate) fn first_place(self) -> u32 {
        self.0 << CHUNK_SHIFT
    }

    fn row(self) -> &'static Directory {
        &DIRECTORY[self.0 as usize % CHUNKS]
    }

    fn entries(self) -> *mut Entry {
        self.row().entries.load(Relaxed)
    }

    fn at(self, at: u32) -> &'static Entry {
        // SAFETY: the chunk was made, so it has an entry for every `at`, and is never freed.
        unsafe { &*self.entries().add((at & IN_CHUNK) as usize) }
    }
}

/// Makes a chunk: its entries are at home, in a life of their own each.
fn make(number: usize) -> Outcome<()> {
    let layout = Layout::new::<[Entry; CHUNK]>();
    let row = DIRECTORY.get(number).ok_or(Refusal::fixed(
        libc::ENOSPC,
        c"buffers of 65536 stretches of 16 MiB are known: use fewer pools",
    ))?;
    // SAFETY: the layout has a size above zero.
    let entries = unsafe { alloc_zeroed(layout) }.cast::<Entry>();
    if entries.is_null() {
        return Err(Refusal::no_memory());
    }
    let random = RandomState::new();
    for at in 0..CHUNK {
        let mut hasher = random.build_hasher();
        hasher.write_usize(at);
        // SAFETY: zeroes are atomic integers, and `at` is in the chunk.
        let entry = unsafe { &*entries.add(at) };
        entry.generation.store((hasher.finish() as u32 & !1).max(2), Relaxed);
    }
    row.entries.store(entries, Release);
    Ok(())
}

/// Where the directory lies, for the inline functions.
pub(crate) const fn directory() -> *const std::ffi::c_void {
    (&raw const DIRECTORY).cast()
}

/// What a buffer's token names.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    pub(crate) entry: &'static Entry,
    pub(crate) view: &'static View,
}

/// Looks a buffer's token up. What is found may be in another life by now.
#[inline(always)]
pub(crate) fn find(token: Token) -> Outcome<Found> {
    let row = &DIRECTORY[(token.0 as u32 >> 16) as usize];
    let fits = row.kind.load(Acquire) == token.0 & 15 && token.generation() & 1 == 1;
    if !fits {
        return Err(Refusal::no_handle());
    }
    let (entries, view) = (row.entries.load(Relaxed), row.view.load(Relaxed));
    // SAFETY: a row with a kind has entries, which are never freed, one for every place.
    let entry = unsafe { &*entries.add((token.place() & IN_CHUNK) as usize) };
    // SAFETY: a row with a kind has a view, which is static.
    Ok(Found { entry, view: unsafe { &*view } })
}

/// The entry of a place that a piece of this pool has.
pub(crate) fn piece_entry(place: u32) -> &'static Entry {
    Chunk(place >> CHUNK_SHIFT).at(place)
}
