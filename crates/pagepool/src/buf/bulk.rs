//! Returns buffers of any pools together.
//!
//! Who    any thread. The owner is looked up when the buffers return.
//! How    each pool is visited once for up to 64 buffers: its whole pages together, then its fragments. A
//!        page that may have a [`PageRef`](crate::PageRef) returns singly.
//! Cost   plain pages of one pool on its owner's thread: one copy into the cache, without a branch per
//!        buffer.

// UNSAFETY: handles are given up in place, without a drop.
#![expect(unsafe_code)]

use crate::buf::batch::{Batch, prepare_all, put_here, put_in_lane, put_remote};
use crate::buf::handle_bits::FragBits;
use crate::buf::handle_copy;
use crate::buf::page_buf::PageBuf;
use crate::core::pool_core::PoolPtr;
use crate::mem::page::PageIdx;
use crate::recycle::cache::OwnerProof;

/// Returns buffers of any pools, mixed, and leaves the vector empty with its capacity. Any thread. Visits
/// each pool once per 64 buffers. Linux: `page_pool_put_netmem_bulk`, without its limit of 16.
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
    let Some(&PageBuf { pool, bits }) = buffers.first() else { return };
    // Only the owner's path is here; the others are a tail call and cost this one no stack frame.
    if !bits.is_whole() || !pool.owner_here().is_some_and(|owner| put_plain_here(pool, owner, buffers)) {
        // SAFETY: I1. They were removed from the vector, are not read again, and none was copied.
        unsafe { put_otherwise(buffers) };
    }
}

/// # Safety
/// As for [`put_parted`], with any number of buffers above 0.
#[inline(never)]
unsafe fn put_otherwise(buffers: &mut [PageBuf]) {
    let PageBuf { pool, bits } = buffers[0];
    // A burst from another thread usually returns as a whole.
    if bits.is_whole() && pool.owner_here().is_none() && put_handles_remote(pool, buffers) {
        return;
    }
    match buffers.len() {
        // SAFETY: the caller gives them up, and none was copied.
        ..=Batch::MAX => unsafe { put_groups(ReturnPath::Dropped, buffers) },
        // SAFETY: as above.
        _ => unsafe { put_chunks(buffers) },
    }
}

/// # Safety
/// As for [`put_parted`].
#[inline(never)]
unsafe fn put_chunks(buffers: &mut [PageBuf]) {
    // SAFETY: I1. The caller gives them up.
    let mut rest = unsafe { GivenUp::new(buffers) };
    while let Some(chunk) = rest.next_chunk() {
        // SAFETY: I1. They were given up, each in one chunk.
        unsafe { put_parted(chunk) };
    }
}

/// Returns buffers of any pools through each pool's locked ring, and leaves the vector empty. Any thread.
pub fn put_ring_bulk(buffers: &mut Vec<PageBuf>) {
    // SAFETY: I1. They were removed from the vector, and are not read again.
    let mut rest = unsafe { GivenUp::new(taken(buffers)) };
    while let Some(chunk) = rest.next_chunk() {
        // SAFETY: I1. They were given up, each in one chunk.
        unsafe { put_groups(ReturnPath::Ring, chunk) };
    }
}

/// Returns up to [`Batch::MAX`] buffers, at least one.
///
/// # Safety
/// The caller gives them up: it neither reads nor drops any of them again.
#[inline(always)]
pub(crate) unsafe fn put_parted(buffers: &mut [PageBuf]) {
    if !put_plain(buffers) {
        // SAFETY: the caller gives them up, and none was copied.
        unsafe { put_groups(ReturnPath::Dropped, buffers) };
    }
}

/// Returns buffers (at least one) through the cache or a lane, if each is a whole page of one pool without a
/// [`PageRef`](crate::PageRef). Returns false, and leaves them to the caller, if they cannot return together.
#[inline(always)]
fn put_plain(buffers: &[PageBuf]) -> bool {
    let PageBuf { pool, bits } = buffers[0];
    match pool.owner_here() {
        _ if !bits.is_whole() => false, // usually all are fragments
        Some(owner) => put_plain_here(pool, owner, buffers),
        None => put_handles_remote(pool, buffers),
    }
}

/// Puts whole pages into the cache of this thread's pool, if all fit.
#[inline(always)]
fn put_plain_here(pool: PoolPtr, owner: OwnerProof, buffers: &[PageBuf]) -> bool {
    let copy = |space: &mut [u32]| handle_copy::read_whole(pool, buffers, space);
    if !pool.own.cache.push_fast_bulk(owner, buffers.len(), copy) {
        return false;
    }
    pool.own.counts.recycle_cached.add(buffers.len() as u64);
    true
}

/// Returns buffers through this thread's lane, unless there are too many.
#[inline(always)]
fn put_handles_remote(pool: PoolPtr, buffers: &[PageBuf]) -> bool {
    let Some(lane) = pool.message_only_lane() else { return false };
    let mut numbers = [0; Batch::MAX];
    let Some(numbers) = numbers.get_mut(..buffers.len()) else { return false };
    let together = handle_copy::read_whole(pool, buffers, numbers);
    if together {
        put_in_lane(pool, lane, numbers);
    }
    together
}

/// How buffers return.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReturnPath {
    /// Like dropped buffers.
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

/// Returns up to [`Batch::MAX`] buffers by pool: each pool's whole pages together, then its fragments.
///
/// # Safety
/// As for [`put_parted`].
#[inline(never)]
unsafe fn put_groups(path: ReturnPath, buffers: &mut [PageBuf]) {
    let mut numbers = [0u32; Batch::MAX];
    // SAFETY: I1. The caller gives them up.
    let mut rest = unsafe { GivenUp::new(buffers) };
    while let Some(first) = rest.0.first() {
        let (pool, kind) = (first.pool, BufKind::of(first));
        if kind == BufKind::Special {
            match (path, rest.next_one()) {
                (ReturnPath::Ring, Some(single)) => single.put_ring(),
                (_, single) => drop(single),
            }
            continue;
        }
        let left = gather(pool, kind, rest.0, &mut numbers);
        let group = &numbers[..rest.0.len() - left];
        rest.keep_first(left);
        match kind {
            BufKind::Frag => put_frags(path, pool, group),
            _ => put_pages(path, pool, group),
        }
    }
}

/// Copies the page numbers of one pool's buffers of one kind, and moves the others to the front. Returns the
/// number of others.
#[inline(always)]
fn gather(pool: PoolPtr, kind: BufKind, buffers: &mut [PageBuf], numbers: &mut [u32; Batch::MAX]) -> usize {
    let run = match kind {
        // Almost always all are plain pages of this pool.
        BufKind::Plain if handle_copy::read_whole(pool, buffers, &mut numbers[..buffers.len()]) => return 0,
        BufKind::Plain => run_of_plain(pool, buffers, numbers),
        _ => 0,
    };
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
        (ReturnPath::Dropped, None) => put_remote(pool, pages),
        (ReturnPath::Ring, _) => {
            prepare_all(pool, pages);
            pool.ring_bulk(pages);
        }
    }
}

/// Returns fragments of one pool, given by their pages. Looks up the owner for each page, because the sync of
/// a complete page is a callback.
fn put_frags(path: ReturnPath, pool: PoolPtr, frags: &[u32]) {
    let mut rest = FragsToPut { path, pool, frags };
    while let Some(&page) = rest.frags.first() {
        let Some(owner) = pool.owner_here() else {
            let all = std::mem::take(&mut rest.frags);
            return match path {
                ReturnPath::Dropped => pool.frags_remote(all),
                ReturnPath::Ring => pool.frags_by_ring(all),
            };
        };
        // Counts those of one page together.
        let n = rest.frags.iter().take_while(|&&other| other == page).count();
        rest.frags = &rest.frags[n..]; // before a callback, which may panic
        pool.frags_here(owner, PageIdx(page), n as u32, path == ReturnPath::Ring);
    }
}

/// Fragments of one pool on their way back. If a callback panics, the drop returns the rest.
struct FragsToPut<'a> {
    path: ReturnPath,
    pool: PoolPtr,
    frags: &'a [u32],
}

impl Drop for FragsToPut<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.frags.is_empty() {
            put_frags(self.path, self.pool, self.frags);
        }
    }
}

/// Buffers that return together. If a callback panics, the drop returns the rest singly.
pub(crate) struct GivenUp<'a, T>(&'a mut [T]);

impl<'a, T> GivenUp<'a, T> {
    /// # Safety
    /// The caller neither reads nor drops any of them again.
    #[inline(always)]
    pub(crate) unsafe fn new(all: &'a mut [T]) -> Self {
        Self(all)
    }

    /// Up to [`Batch::MAX`] of them, for the caller to give up.
    #[inline(always)]
    pub(crate) fn next_chunk(&mut self) -> Option<&'a mut [T]> {
        let all = std::mem::take(&mut self.0);
        let (chunk, rest) = all.split_at_mut(all.len().min(Batch::MAX));
        self.0 = rest;
        (!chunk.is_empty()).then_some(chunk)
    }

    #[inline(always)]
    pub(crate) fn next_one(&mut self) -> Option<T> {
        let (first, rest) = std::mem::take(&mut self.0).split_first_mut()?;
        self.0 = rest;
        // SAFETY: I1. It was given up and is no longer in the rest, so it is read once.
        Some(unsafe { std::ptr::read(first) })
    }

    /// The caller itself gave up all behind the first `n`.
    #[inline(always)]
    fn keep_first(&mut self, n: usize) {
        self.0 = &mut std::mem::take(&mut self.0)[..n];
    }
}

impl<T> Drop for GivenUp<'_, T> {
    #[inline]
    fn drop(&mut self) {
        while let Some(one) = self.next_one() {
            drop(one);
        }
    }
}

/// Empties the vector without dropping its buffers, and returns them.
#[inline(always)]
pub(crate) fn taken<T>(buffers: &mut Vec<T>) -> &mut [T] {
    let len = buffers.len();
    // SAFETY: 0 is within the capacity, and no element needs to be initialised for it.
    unsafe { buffers.set_len(0) };
    // SAFETY: the elements are still there, initialised, and this borrow blocks the vector.
    unsafe { std::slice::from_raw_parts_mut(buffers.as_mut_ptr(), len) }
}

/// Removes at most `most` elements from the front of a vector, until `give_up` refuses one; returns how many.
/// They are forgotten, because `give_up` records their new owner. If `give_up` panics, all elements of the
/// vector leak.
#[inline(always)]
pub(crate) fn take_front<T>(
    from: &mut Vec<T>,
    most: usize,
    mut give_up: impl FnMut(&mut T) -> bool,
) -> usize {
    let all = taken(from);
    let mut gone = 0;
    for element in all.iter_mut().take(most) {
        if !give_up(element) {
            break;
        }
        gone += 1;
    }
    let left = all.len() - gone;
    all.rotate_left(gone);
    // SAFETY: I1. The first are those that stay, initialised as before; the others behind them are forgotten.
    unsafe { from.set_len(left) };
    gone
}

/// Copies the page numbers of the leading plain whole pages of one pool; returns how many.
#[inline(always)]
fn run_of_plain(pool: PoolPtr, buffers: &[PageBuf], numbers: &mut [u32; Batch::MAX]) -> usize {
    let plain = |(buffer, number): (&PageBuf, &mut u32)| {
        *number = buffer.bits.whole_page().0;
        buffer.pool == pool && buffer.bits.is_whole()
    };
    buffers.iter().zip(numbers.iter_mut()).map(plain).take_while(|plain| *plain).count()
}
