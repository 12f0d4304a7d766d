//! Many whole pages of one pool as an array of numbers: the cheapest way to move a burst.
//!
//! Who    any thread, one at a time. The drop returns the pages like dropped buffers, with the checks made
//!        once.
//! Cost   allocating and dropping 64 on the owner's thread copies four cache lines each way.

// UNSAFETY: entries are copied to and from the cache as memory.
#![expect(unsafe_code)]

use std::mem::MaybeUninit;

use crate::buf::page_buf::PageBuf;
use crate::buf::sink::{Receive, Sink};
use crate::core::pool_core::PoolPtr;
use crate::holders::tag::Tag;
use crate::mem::page::PageIdx;
use crate::recycle::cache::{Cache, OwnerProof};
use crate::recycle::lane::Lane;
use crate::recycle::message::Message;
use crate::returns::page_return::UnsentPages;

/// Up to [`Batch::MAX`] whole pages of one pool, owned by the batch. For frames use
/// [`XdpFrameBulk`](crate::XdpFrameBulk).
///
/// ```
/// # use pagepool::{Arena, ArenaParams, Pool, PoolParams};
/// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
/// let pool = Pool::new(PoolParams::default(), arena)?.bind();
/// let mut batch = pool.alloc_batch(32);
/// assert_eq!(batch.len(), 32);
/// for at in 0..batch.len() {
///     batch.packet_mut(at).unwrap()[0] = at as u8;
/// }
/// let one = batch.pop().unwrap();
/// drop(batch); // 31 pages return at once
/// assert_eq!(pool.inflight().out, 1);
/// # drop(one);
/// # Ok::<(), pagepool::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "a batch that is dropped at once was allocated for nothing"]
pub struct Batch {
    pool: PoolPtr,
    len: usize,
    pages: [MaybeUninit<u32>; Self::MAX],
}

impl Batch {
    /// Most pages in a batch: the poll budget of the kernel's NAPI, and the default refill.
    pub const MAX: usize = 64;

    /// An empty batch. It does not keep the pool alive: without pages it does not follow the pool's address.
    #[inline(always)]
    pub(crate) fn empty(pool: PoolPtr) -> Self {
        Self { pool, len: 0, pages: [const { MaybeUninit::uninit() }; Self::MAX] }
    }

    /// An empty batch without a pool, to fill by [`alloc_bulk`](crate::Bound::alloc_bulk) or
    /// [`push`](Self::push).
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, Batch, Pool, PoolParams};
    /// let mut batch = Batch::new();
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// let pool = Pool::new(PoolParams::default(), arena)?.bind();
    /// assert_eq!((batch.len(), pool.alloc_bulk(&mut batch, 32)), (0, 32));
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    pub const fn new() -> Self {
        Self { pool: PoolPtr::NOWHERE, len: 0, pages: [const { MaybeUninit::uninit() }; Self::MAX] }
    }

    /// Number of pages in the batch.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the batch has no pages.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The pool of the pages, if there are any.
    #[inline(always)]
    pub(crate) fn pool(&self) -> Option<PoolPtr> {
        (self.len > 0).then_some(self.pool)
    }

    #[inline(always)]
    pub(crate) fn pages(&self) -> &[u32] {
        // SAFETY: the first `len` entries are initialised.
        unsafe { std::slice::from_raw_parts(self.pages.as_ptr().cast(), self.len) }
    }

    /// The page at index `at`.
    #[inline]
    pub fn page(&self, at: usize) -> Option<PageIdx> {
        self.pages().get(at).map(|&page| PageIdx(page))
    }

    /// Tags all pages with their user: see [`PageBuf::set_tag`].
    #[inline]
    pub fn set_tag(&mut self, tag: Tag) {
        if let Some(pool) = self.pool().filter(|pool| pool.tagging) {
            self.pages().iter().for_each(|&page| pool.tag_page(PageIdx(page), tag));
        }
    }

    /// Returns all pages to the pool and keeps the batch, for the next burst of this or another pool.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, Pool, PoolParams};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// let pool = Pool::new(PoolParams::default(), arena)?.bind();
    /// let mut batch = pool.alloc_batch(0);
    /// for _ in 0..3 {
    ///     assert_eq!(pool.alloc_bulk(&mut batch, 64), 64);
    ///     batch.put();
    /// }
    /// assert_eq!(pool.stats().recycle_cached, 192);
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    #[inline]
    pub fn put(&mut self) {
        let len = std::mem::replace(&mut self.len, 0);
        if len == 0 {
            return; // the pool may be freed
        }
        // SAFETY: the first `len` entries are initialised. The length is 0 now, so this call alone gives them
        // up.
        let pages = unsafe { std::slice::from_raw_parts(self.pages.as_ptr().cast(), len) };
        match self.pool.owner_here() {
            Some(owner) => put_here(self.pool, owner, pages),
            None => put_remote(self.pool, pages),
        }
    }

    /// Removes the last page.
    #[inline]
    pub fn pop(&mut self) -> Option<PageBuf> {
        let page = *self.pages().last()?;
        self.len -= 1;
        Some(PageBuf::whole(self.pool, PageIdx(page)))
    }

    /// Adds a buffer. `Err(buffer)` if the batch is full or has pages of another pool, or if the buffer is a
    /// fragment, may have a [`PageRef`](crate::PageRef), or was shared.
    #[inline]
    pub fn push(&mut self, buffer: PageBuf) -> Result<(), PageBuf> {
        if self.len == 0 {
            self.pool = buffer.pool; // as in `room_for`
        }
        if !buffer.bits.is_whole() || buffer.pool != self.pool {
            return Err(buffer);
        }
        let Some(place) = self.pages.get_mut(self.len) else { return Err(buffer) };
        place.write(buffer.into_bits().whole_page().0);
        self.len += 1;
        Ok(())
    }

    /// Borrows the page at index `at` as a buffer.
    #[inline(always)]
    fn borrowed(&self, at: usize) -> Option<std::mem::ManuallyDrop<PageBuf>> {
        Some(std::mem::ManuallyDrop::new(PageBuf::whole(self.pool, self.page(at)?)))
    }

    /// All bytes of the page at index `at`. `None` beyond the end, and for memory that the CPU cannot read.
    #[inline]
    pub fn bytes_mut(&mut self, at: usize) -> Option<&mut [u8]> {
        let start = self.borrowed(at)?.as_ptr()?;
        let len = self.pool.geometry.page_size();
        // SAFETY: I1, I3. The batch owns the page and is borrowed exclusively.
        Some(unsafe { std::slice::from_raw_parts_mut(start, len) })
    }

    /// The packet bytes of the page at index `at`, after headroom and colour. `None` as for
    /// [`bytes_mut`](Self::bytes_mut).
    #[inline]
    pub fn packet_mut(&mut self, at: usize) -> Option<&mut [u8]> {
        let (start, len) = self.borrowed(at)?.packet_place()?;
        // SAFETY: I1, I3. The batch owns the page and is borrowed exclusively; packets lie in their page.
        Some(unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), len) })
    }

    /// The packet bytes of all pages, in order; reads the pool once, not once per page. `None` for an empty
    /// batch, and for memory that the CPU cannot read.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, Pool, PoolParams};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// let pool = Pool::new(PoolParams::default(), arena)?.bind();
    /// let mut batch = pool.alloc_batch(32);
    /// batch.packets_mut().unwrap().zip(0..).for_each(|(packet, at)| packet[0] = at);
    /// assert_eq!(batch.packet_mut(31).unwrap()[0], 31);
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    #[inline(always)]
    pub fn packets_mut(&mut self) -> Option<impl ExactSizeIterator<Item = &mut [u8]>> {
        let pool = self.pool()?;
        let (base, geometry, has_colours) = (pool.packet_base, pool.geometry, pool.colourless_below == 0);
        let packet = move |&page: &u32| {
            let colour = if has_colours { geometry.colour_of(page.into()) } else { 0 };
            let start = base + geometry.start_of(PageIdx(page)) as usize + colour as usize;
            let start = std::ptr::with_exposed_provenance_mut::<u8>(start);
            // SAFETY: I1, I3. The batch owns each page, once, and is borrowed exclusively; packets lie in
            // their page.
            unsafe { std::slice::from_raw_parts_mut(start, geometry.max_len as usize) }
        };
        (pool.readable_below != 0).then(|| self.pages().iter().map(packet))
    }

    /// See [`PageBuf::dma_addr`].
    #[inline]
    pub fn dma_addr(&self, at: usize) -> Option<crate::DeviceAddr> {
        self.borrowed(at)?.dma_addr()
    }
}

impl Sink for Batch {}

impl Receive for Batch {
    /// 0 if the batch has pages of another pool. An empty batch becomes this pool's: its old pool may be freed,
    /// and another may have its address.
    #[inline(always)]
    fn room_for(&mut self, pool: PoolPtr) -> usize {
        if self.len == 0 {
            self.pool = pool;
        }
        if pool == self.pool { Self::MAX - self.len } else { 0 }
    }

    #[inline(always)]
    fn receive(&mut self, _: PoolPtr, pages: &[u32]) {
        let room = &mut self.pages[self.len..self.len + pages.len()];
        // SAFETY: `MaybeUninit<u32>` has the layout of `u32`, and every `u32` is a valid one.
        room.copy_from_slice(unsafe { std::slice::from_raw_parts(pages.as_ptr().cast(), pages.len()) });
        self.len += pages.len();
    }
}

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Batch {
    #[inline]
    fn drop(&mut self) {
        self.put();
    }
}

/// Returns whole pages without a reference on the owner's thread: one copy into the cache if they fit.
#[inline(always)]
pub(crate) fn put_here(pool: PoolPtr, owner: OwnerProof, pages: &[u32]) {
    let copy = |space: &mut [u32]| {
        space.copy_from_slice(pages);
        true
    };
    if !pool.own.cache.push_fast_bulk(owner, pages.len(), copy) {
        return put_here_slow(pool, pages);
    }
    pool.own.counts.recycle_cached.add(pages.len() as u64);
}

/// Looks up the owner again after the syncs: they are callbacks, and may unbind or end the pool.
#[cold]
fn put_here_slow(pool: PoolPtr, pages: &[u32]) {
    prepare_all(pool, pages);
    let Some(owner) = pool.owner_here() else { return put_remote_synced(pool, pages) };
    let cache = if pool.needs_work_on_return { pool.idle_cache() } else { &pool.own.cache };
    fill_cache(pool, owner, cache, pages);
}

/// Puts prepared pages into the cache while it has room, then the ring. Owner's thread.
fn fill_cache(pool: PoolPtr, owner: OwnerProof, cache: &Cache, pages: &[u32]) {
    let mut left = pages;
    while let [page, rest @ ..] = left {
        if !cache.push(owner, PageIdx(*page)) {
            break;
        }
        pool.own.counts.recycle_cached.add(1);
        left = rest;
    }
    pool.own.counts.recycle_cache_full.add(left.len() as u64);
    if !left.is_empty() {
        pool.ring_bulk(left);
    }
}

/// Returns whole pages without a reference on any other thread: through the lane while it has room, then the
/// ring.
#[inline(never)]
pub(crate) fn put_remote(pool: PoolPtr, pages: &[u32]) {
    prepare_all(pool, pages);
    put_remote_synced(pool, pages);
}

/// Prepares each page for reuse: see [`prepare_for_reuse`](PoolPtr::prepare_for_reuse).
pub(crate) fn prepare_all(pool: PoolPtr, pages: &[u32]) {
    if pool.needs_work_on_return {
        prepare_all_slow(pool, pages);
    }
}

/// If a sync panics, all pages leave the pool.
#[cold]
fn prepare_all_slow(pool: PoolPtr, pages: &[u32]) {
    pages.iter().for_each(|&page| pool.has_no_holder(PageIdx(page)));
    let mut in_hand = ReleaseAllOnPanic { pool, pages, at: 0 };
    for &page in pages {
        pool.sync_for_device(PageIdx(page), usize::MAX);
        in_hand.at += 1;
    }
    std::mem::forget(in_hand);
}

/// Pages in sync. If the sync of the page at `at` panics, that page leaves the pool, and this drop releases
/// the others.
struct ReleaseAllOnPanic<'a> {
    pool: PoolPtr,
    pages: &'a [u32],
    at: usize,
}

impl Drop for ReleaseAllOnPanic<'_> {
    fn drop(&mut self) {
        let others = self.pages.iter().enumerate().filter(|&(at, _)| at != self.at);
        others.for_each(|(_, &page)| self.pool.return_to_provider(self.pool.returns.lock(), PageIdx(page)));
    }
}

fn put_remote_synced(pool: PoolPtr, pages: &[u32]) {
    match pool.lane() {
        Some(lane) => put_in_lane(pool, lane, pages),
        None => pool.ring_bulk(pages),
    }
}

/// Pushes prepared pages into this thread's lane, and the rest into the ring.
#[inline(always)]
pub(crate) fn put_in_lane(pool: PoolPtr, lane: &Lane, pages: &[u32]) {
    let pushed = lane.push_pages(pages, |page| Message::of_page(PageIdx(*page)));
    if pushed == pages.len() {
        return pool.after_push(lane, lane.after_push());
    }
    let mut left = UnsentPages { pool, pages: &pages[pushed..] };
    if pushed > 0 {
        pool.after_push(lane, lane.after_push());
    }
    left.send();
}
