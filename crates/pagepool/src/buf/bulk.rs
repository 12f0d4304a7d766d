//! Returns buffers of any pools together.
//!
//! Who    any thread. The owner is looked up when the buffers return.
//! How    each pool is visited once for up to 64 buffers: its whole pages together, then its fragments. A
//!        page that may have a [`PageRef`](crate::PageRef) returns singly.
//! Cost   all plain pages of one pool on its owner's thread: one copy into the cache, without a branch per
//!        buffer.

// UNSAFETY: handles are given up in place, without being dropped.
#![expect(unsafe_code)]

use crate::buf::batch::{Batch, put_elsewhere, put_here, sync_all};
use crate::buf::handle_bits::FragBits;
use crate::buf::handle_copy;
use crate::buf::page_buf::PageBuf;
use crate::mem::page::PageIdx;
use crate::returns::pool_core::PoolPtr;

/// Returns buffers of any pools, mixed, and leaves the vector empty with its capacity. Any thread. Each pool
/// is visited once per 64 buffers. Linux: `page_pool_put_netmem_bulk`, without its limit of 16.
///
/// ```
/// # use pagepool::{Arena, ArenaParams, Pool, PoolParams};
/// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
/// let pool = Pool::new(PoolParams::default(), arena)?.bind();
/// let mut buffers = Vec::with_capacity(32);
/// assert_eq!(pool.alloc_bulk(&mut buffers, 32), 32);
/// pagepool::put_bulk(&mut buffers);
/// assert_eq!(pool.stats().recycle_cached, 32);
/// # Ok::<(), pagepool::Error>(())
/// ```
#[doc(alias = "page_pool_put_netmem_bulk")]
#[inline]
pub fn put_bulk(buffers: &mut Vec<PageBuf>) {
    let buffers = taken(buffers);
    if !buffers.is_empty() && !put_plain_here(buffers) {
        // SAFETY: I1. They were taken out of the vector, nobody reads them again, and none was copied.
        unsafe { put_chunks(buffers) };
    }
}

/// # Safety
/// As for [`put_parted`].
#[inline(never)]
unsafe fn put_chunks(buffers: &mut [PageBuf]) {
    for chunk in buffers.chunks_mut(Batch::MAX) {
        // SAFETY: I1. The caller gives them up, each in one chunk.
        unsafe { put_parted(chunk) };
    }
}

/// As [`put_bulk`], through the locked ring of each pool, whatever the thread.
pub fn put_ring_bulk(buffers: &mut Vec<PageBuf>) {
    for chunk in taken(buffers).chunks_mut(Batch::MAX) {
        // SAFETY: I1. They were taken out of the vector, and nobody reads them again.
        unsafe { put_groups(ReturnPath::Ring, chunk) };
    }
}

/// Returns up to [`Batch::MAX`] buffers, at least one.
///
/// # Safety
/// The caller gives them up: it neither reads nor drops any of them again.
#[inline(always)]
pub(crate) unsafe fn put_parted(buffers: &mut [PageBuf]) {
    if !put_plain_here(buffers) {
        // SAFETY: the caller gives them up, and none was copied.
        unsafe { put_groups(ReturnPath::Dropped, buffers) };
    }
}

/// Puts buffers, at least one, into the cache, all of them: if each is a whole page without a
/// [`PageRef`](crate::PageRef) of one pool, which is this thread's and has room. Says whether it did; they
/// are the caller's if not.
#[inline(always)]
fn put_plain_here(buffers: &[PageBuf]) -> bool {
    let pool = buffers[0].pool;
    let Some(owner) = pool.owner_here() else { return false };
    let copy = |space: &mut [u32]| handle_copy::read_whole(pool, buffers, space);
    if !pool.own.cache.push_plain_bulk(owner, buffers.len(), copy) {
        return false;
    }
    pool.own.counts.recycle_cached.add(buffers.len() as u64);
    true
}

/// How buffers return.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReturnPath {
    /// As dropped buffers go.
    Dropped,
    /// Through the locked ring.
    Ring,
}

/// The kinds of buffers that return together.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BufKind {
    Plain,
    Frag,
    /// A whole page that may have a [`PageRef`](crate::PageRef): returns singly.
    Special,
}

impl BufKind {
    #[inline(always)]
    fn of(buffer: &PageBuf) -> Self {
        match buffer.bits.frag_bits() {
            FragBits::WHOLE => Self::Plain,
            frag_bits if frag_bits.is_frag() => Self::Frag,
            _ => Self::Special,
        }
    }
}

/// Returns up to [`Batch::MAX`] buffers, pool by pool: the whole pages of each together, then the
/// fragments of each.
///
/// # Safety
/// As for [`put_parted`].
#[inline(never)]
unsafe fn put_groups(path: ReturnPath, mut rest: &mut [PageBuf]) {
    let mut numbers = [0u32; Batch::MAX];
    while let Some(first) = rest.first() {
        let (pool, kind) = (first.pool, BufKind::of(first));
        if kind == BufKind::Special {
            // SAFETY: I1. The caller gives them up, and each is read out once.
            let single = unsafe { std::ptr::read(first) };
            rest = &mut rest[1..];
            match path {
                ReturnPath::Dropped => drop(single),
                ReturnPath::Ring => single.put_ring(),
            }
            continue;
        }
        let left = gather(pool, kind, rest, &mut numbers);
        let group = &numbers[..rest.len() - left];
        rest = &mut rest[..left];
        match kind {
            BufKind::Frag => put_frags(path, pool, group),
            _ => put_pages(path, pool, group),
        }
    }
}

/// Copies the page numbers of one pool's buffers of one kind, and moves the others to the front; says how
/// many others there are.
#[inline(always)]
fn gather(pool: PoolPtr, kind: BufKind, buffers: &mut [PageBuf], numbers: &mut [u32; Batch::MAX]) -> usize {
    if kind == BufKind::Plain && handle_copy::read_whole(pool, buffers, &mut numbers[..buffers.len()]) {
        return 0; // almost always they are all of one pool and plain
    }
    let run = if kind == BufKind::Plain { run_of_plain(pool, buffers, numbers) } else { 0 };
    let mut left = 0;
    for at in run..buffers.len() {
        let buffer = &buffers[at];
        if buffer.pool == pool && BufKind::of(buffer) == kind {
            numbers[at - left] = buffer.bits.head(pool.geometry.head_mask).0;
        } else {
            buffers.swap(left, at);
            left += 1;
        }
    }
    left
}

fn put_pages(path: ReturnPath, pool: PoolPtr, pages: &[u32]) {
    match (path, pool.owner_here()) {
        (ReturnPath::Dropped, Some(owner)) => put_here(pool, owner, pages),
        (ReturnPath::Dropped, None) => put_elsewhere(pool, pages),
        (ReturnPath::Ring, _) => {
            sync_all(pool, pages);
            pool.ring_bulk(pages);
        }
    }
}

/// The owner is looked up for each: the sync of a page that is complete with its last fragment is foreign
/// code.
fn put_frags(path: ReturnPath, pool: PoolPtr, mut frags: &[u32]) {
    while let [frag, rest @ ..] = frags {
        match (path, pool.owner_here()) {
            (_, Some(owner)) => pool.frag_here(owner, PageIdx(*frag), path == ReturnPath::Ring),
            (ReturnPath::Dropped, None) => return pool.frags_elsewhere(frags),
            (ReturnPath::Ring, None) => return pool.frags_without_lane(frags),
        }
        frags = rest;
    }
}

/// Empties the vector without dropping its buffers, and gives the buffers to the caller. If foreign code
/// panics meanwhile the rest is leaked, never returned twice.
#[inline(always)]
pub(crate) fn taken<T>(buffers: &mut Vec<T>) -> &mut [T] {
    let len = buffers.len();
    // SAFETY: 0 is within the capacity, and no element needs to be initialised for it.
    unsafe { buffers.set_len(0) };
    // SAFETY: the elements are still there, initialised, and the vector cannot be used while this borrow of
    // it lives.
    unsafe { std::slice::from_raw_parts_mut(buffers.as_mut_ptr(), len) }
}

/// Copies the page numbers of the leading whole, plain pages of one pool; says how many there were.
#[inline(always)]
fn run_of_plain(pool: PoolPtr, buffers: &[PageBuf], numbers: &mut [u32; Batch::MAX]) -> usize {
    let plain = |(buffer, number): (&PageBuf, &mut u32)| {
        *number = buffer.bits.whole_page().0;
        buffer.pool == pool && buffer.bits.is_whole()
    };
    buffers.iter().zip(numbers.iter_mut()).map(plain).take_while(|plain| *plain).count()
}
