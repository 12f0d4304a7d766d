//! The owner's cache: an unlocked array, last in, first out, so the page most likely in the CPU's caches is
//! used next.
//!
//! Who    only the holder of the owner half (I2), proved by an [`OwnerProof`]. Any thread may read the
//!        count.
//! Why    mirrors `struct pp_alloc_cache` (include/net/page_pool/types.h, v7.3): 128 entries, half filled by
//!        a refill.
//! Cost   push and pop: no atomic read-modify-write. Four bytes an entry: 64 pages are four cache lines.

// UNSAFETY: entries are raw memory that only the owner touches; indices are below the count, the count below
// the size.
#![expect(unsafe_code)]

use std::marker::PhantomData;
use std::mem::offset_of;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::mem::page::PageIdx;
use crate::sys::sync::OwnerCell;

/// Proof of holding a pool's owner half: required to touch the cache and the fragment state (I2).
///
/// Only [`OwnerProof::assume`] makes one; its callers state why they hold it. It cannot be sent or shared.
#[derive(Clone, Copy)]
pub(crate) struct OwnerProof(PhantomData<*mut ()>);

impl OwnerProof {
    /// # Safety
    /// The caller holds the owner half of the pool for which it uses this: its token is in the pool's owner
    /// word, or it owns the pool while that is unbound.
    #[inline(always)]
    pub(crate) unsafe fn assume() -> Self {
        Self(PhantomData)
    }
}

/// The largest cache. The entries are in the cache itself, so finding one is arithmetic.
pub(crate) const MAX_CACHE: usize = 1024;

/// The array. `limit` is where a fast push stops: the capacity, or 0 if a push needs more than a store.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Cache {
    pub(crate) entries: OwnerCell<[u32; MAX_CACHE]>,
    pub(crate) count: AtomicUsize,
    pub(crate) limit: usize,
    pub(crate) capacity: usize,
}

impl Cache {
    pub(crate) const COUNT_AT: usize = offset_of!(Self, count);

    /// An empty cache of at most [`MAX_CACHE`]. Without `fast_push`, [`push_fast`](Self::push_fast)
    /// always refuses.
    pub(crate) fn new(capacity: usize, fast_push: bool) -> Self {
        debug_assert!(capacity <= MAX_CACHE, "the builder checks cache_size");
        let limit = if fast_push { capacity } else { 0 };
        Self { entries: OwnerCell::new([0; MAX_CACHE]), count: AtomicUsize::new(0), limit, capacity }
    }

    #[inline(always)]
    pub(crate) fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    #[inline(always)]
    fn entry(&self, at: usize) -> *mut u32 {
        debug_assert!(at <= self.capacity, "I2: cache index {at} beyond {}", self.capacity);
        // SAFETY: `at` is at most the capacity, so the result is within the entries or one past them.
        unsafe { self.entries.get().cast::<u32>().add(at) }
    }

    /// Takes the page that was pushed last.
    #[inline(always)]
    pub(crate) fn pop(&self, _owner: OwnerProof) -> Option<PageIdx> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        self.count.store(self.count() - 1, Relaxed); // read again: one instruction decrements memory
        // SAFETY: I2; entries below the count are initialised.
        Some(PageIdx(unsafe { self.entry(count - 1).read() }))
    }

    /// Pushes a page if a store suffices and there is room; else `false`.
    #[inline(always)]
    pub(crate) fn push_fast(&self, _owner: OwnerProof, page: PageIdx) -> bool {
        self.push_below(self.limit, page, || true)
    }

    /// Pushes a page if a store suffices, there is room, and `may` agrees, which must not run a callback;
    /// else `false`.
    #[inline(always)]
    pub(crate) fn push_fast_if(&self, _owner: OwnerProof, page: PageIdx, may: impl FnOnce() -> bool) -> bool {
        self.push_below(self.limit, page, may)
    }

    /// Pushes a page if there is room; else `false`.
    #[inline]
    pub(crate) fn push(&self, _owner: OwnerProof, page: PageIdx) -> bool {
        self.push_below(self.capacity, page, || true)
    }

    /// Requires an [`OwnerProof`] and a `limit` of at most the capacity.
    #[inline(always)]
    fn push_below(&self, limit: usize, page: PageIdx, may: impl FnOnce() -> bool) -> bool {
        let at = self.count();
        if at >= limit || !may() {
            return false;
        }
        // SAFETY: I2; `at` is below the limit, which is at most the capacity.
        unsafe { self.entry(at).write(page.0) };
        self.count.store(self.count() + 1, Relaxed); // read again, see `pop`
        true
    }

    /// Takes up to `n` pages that were pushed last and passes them to `sink`, which must not run a callback:
    /// the cache is borrowed. Returns how many.
    #[inline(always)]
    pub(crate) fn take(&self, _owner: OwnerProof, n: usize, sink: impl FnOnce(&[u32])) -> usize {
        let count = self.count();
        let n = n.min(count);
        // SAFETY: I2; entries below the count are initialised, and nothing writes them while `sink` reads.
        sink(unsafe { std::slice::from_raw_parts(self.entry(count - n), n) });
        self.count.store(count - n, Relaxed);
        n
    }

    /// Shows `sink` up to `n` pages that were pushed last, and takes as many of them, from the last on, as
    /// it returns. It must not run a callback.
    #[inline(always)]
    pub(crate) fn take_while(&self, _owner: OwnerProof, n: usize, sink: impl FnOnce(&[u32]) -> usize) {
        let count = self.count();
        let n = n.min(count);
        // SAFETY: I2; entries below the count are initialised, and nothing writes them while `sink` reads.
        let taken = sink(unsafe { std::slice::from_raw_parts(self.entry(count - n), n) });
        debug_assert!(taken <= n, "I2: {taken} pages taken of {n}");
        self.count.store(count - taken, Relaxed);
    }

    /// Takes up to `n` pages that were pushed first and passes them to `sink`, which must not run a
    /// callback. Returns how many.
    pub(crate) fn take_oldest(&self, _owner: OwnerProof, n: usize, sink: impl FnOnce(&[u32])) -> usize {
        let count = self.count();
        let n = n.min(count);
        // SAFETY: I2; entries below the count are initialised, and nothing writes them while `sink` reads.
        sink(unsafe { std::slice::from_raw_parts(self.entry(0), n) });
        // SAFETY: I2; both ranges end within the entries.
        unsafe { std::ptr::copy(self.entry(n), self.entry(0), count - n) };
        self.count.store(count - n, Relaxed);
        n
    }

    /// Lets `source` fill the space behind the last page, up to `room` entries and the capacity. It returns
    /// how many it wrote, and must not run a callback. Returns that.
    #[inline(always)]
    pub(crate) fn fill(
        &self,
        _owner: OwnerProof,
        room: usize,
        source: impl FnOnce(&mut [u32]) -> usize,
    ) -> usize {
        let at = self.count();
        let room = room.min(self.capacity - at);
        // SAFETY: I2; the entries up to the capacity are initialised numbers, and nothing else touches them
        // while `source` runs.
        let filled = source(unsafe { std::slice::from_raw_parts_mut(self.entry(at), room) });
        debug_assert!(filled <= room, "I2: {filled} pages in room for {room}");
        self.count.store(at + filled, Relaxed);
        filled
    }

    /// [`fill`](Self::fill), limited to the room that needs no more than a copy.
    #[inline(always)]
    pub(crate) fn fill_fast(
        &self,
        owner: OwnerProof,
        room: usize,
        source: impl FnOnce(&mut [u32]) -> usize,
    ) -> usize {
        self.fill(owner, room.min(self.limit.saturating_sub(self.count())), source)
    }

    /// Lets `source` fill `n` entries behind the last page, if they fit with no more than a copy. They count
    /// only if it returns that it filled all. It must not run a callback. Returns whether they count.
    #[inline(always)]
    pub(crate) fn push_fast_bulk(
        &self,
        _owner: OwnerProof,
        n: usize,
        source: impl FnOnce(&mut [u32]) -> bool,
    ) -> bool {
        let at = self.count();
        if at + n > self.limit {
            return false;
        }
        // SAFETY: I2; the entries up to the capacity are initialised numbers, and nothing else touches them
        // while `source` runs.
        let filled = source(unsafe { std::slice::from_raw_parts_mut(self.entry(at), n) });
        if filled {
            self.count.store(at + n, Relaxed);
        }
        filled
    }

    /// Whether `n` more pages fit with no more than a copy.
    #[inline(always)]
    pub(crate) fn has_fast_room(&self, n: usize) -> bool {
        self.count() + n <= self.limit
    }
}
