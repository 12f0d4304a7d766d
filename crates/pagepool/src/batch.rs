//! Many whole pages of one pool as an array of numbers: the cheapest way to move a burst.
//!
//! Who    any thread, one at a time; dropped, its pages go home as dropped buffers do, with the checks made once.
//! Cost   allocating and dropping 64 on the owner's thread copies four cache lines each way.

// UNSAFETY: entries are copied to and from the cache as memory.
#![expect(unsafe_code)]

use std::mem::MaybeUninit;

use crate::buf::PageBuf;
use crate::cache::Owner;
use crate::frag::Part;
use crate::page::PageIdx;
use crate::shared::Home;

/// Up to [`Batch::MAX`] whole pages of one pool, each owned by the batch. For frames there is
/// [`FrameBulk`](crate::FrameBulk).
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
/// drop(batch); // 31 pages go home at once
/// assert_eq!(pool.inflight().out, 1);
/// # drop(one);
/// # Ok::<(), pagepool::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "a batch that is dropped at once was allocated for nothing"]
pub struct Batch {
    pool: Home,
    len: usize,
    pages: [MaybeUninit<u32>; Self::MAX],
}

// SAFETY: I1. The batch owns its pages alone; what it shares of the pool is `Sync`.
unsafe impl Send for Batch {}
// SAFETY: through a shared batch nothing can be changed.
unsafe impl Sync for Batch {}

impl Batch {
    /// Most pages in a batch: the poll budget of the kernel's NAPI, and the default refill.
    pub const MAX: usize = 64;

    /// An empty one. It does not keep the pool: without pages nothing looks at it.
    #[inline(always)]
    pub(crate) fn empty(pool: Home) -> Self {
        Self { pool, len: 0, pages: [const { MaybeUninit::uninit() }; Self::MAX] }
    }

    /// Pages in the batch.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline(always)]
    fn pages(&self) -> &[u32] {
        // SAFETY: the first `len` entries are initialised.
        unsafe { std::slice::from_raw_parts(self.pages.as_ptr().cast(), self.len) }
    }

    /// The page at this place, from 0.
    #[inline]
    pub fn page(&self, at: usize) -> Option<PageIdx> {
        self.pages().get(at).map(|&page| PageIdx(page))
    }

    /// Appends pages that the caller parts with; there is room for them.
    #[inline(always)]
    pub(crate) fn extend(&mut self, pages: &[u32]) {
        let room = &mut self.pages[self.len..self.len + pages.len()];
        // SAFETY: `MaybeUninit<u32>` has the layout of `u32`, and every `u32` is a valid one.
        room.copy_from_slice(unsafe { std::slice::from_raw_parts(pages.as_ptr().cast(), pages.len()) });
        self.len += pages.len();
    }

    /// Pages of this pool that still fit: none beside those of another one. An empty batch becomes this pool's: the one
    /// it was filled from may be gone, and another at its address.
    #[inline(always)]
    pub(crate) fn room_for(&mut self, pool: Home) -> usize {
        if self.len == 0 {
            self.pool = pool;
        }
        if pool == self.pool { Self::MAX - self.len } else { 0 }
    }

    /// Sends all its pages home and keeps the batch, for the next burst of this pool or another.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, Pool, PoolParams};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// let pool = Pool::new(PoolParams::default(), arena)?.bind();
    /// let mut batch = pool.alloc_batch(0);
    /// for _ in 0..3 {
    ///     assert_eq!(pool.alloc_batch_into(&mut batch, 64), 64);
    ///     batch.put();
    /// }
    /// assert_eq!(pool.stats().recycle_cached, 192);
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    #[inline]
    pub fn put(&mut self) {
        let len = std::mem::replace(&mut self.len, 0);
        if len == 0 {
            return; // the pool may be gone
        }
        // SAFETY: the first `len` entries are initialised; with the length 0 they are this call's to part with.
        let pages = unsafe { std::slice::from_raw_parts(self.pages.as_ptr().cast(), len) };
        match self.pool.owner_here() {
            Some(owner) => put_here(self.pool, owner, pages),
            None => put_elsewhere(self.pool, pages),
        }
    }

    /// Takes the last page out.
    #[inline]
    pub fn pop(&mut self) -> Option<PageBuf> {
        let page = *self.pages().last()?;
        self.len -= 1;
        Some(PageBuf::whole(self.pool, PageIdx(page)))
    }

    /// Adds a buffer, or gives it back: if the batch is full or has another pool's pages, or the buffer is a piece, or
    /// held.
    #[inline]
    pub fn push(&mut self, buffer: PageBuf) -> Result<(), PageBuf> {
        if !buffer.place.is_whole() || self.room_for(buffer.pool) == 0 {
            return Err(buffer);
        }
        let (_, page, _) = buffer.into_parts();
        self.pages[self.len].write(page.0);
        self.len += 1;
        Ok(())
    }

    /// Borrows the page at this place as a buffer.
    #[inline(always)]
    fn borrowed(&self, at: usize) -> Option<std::mem::ManuallyDrop<PageBuf>> {
        Some(std::mem::ManuallyDrop::new(PageBuf::whole(self.pool, self.page(at)?)))
    }

    /// All bytes of the page at this place; `None` beyond the end, and for memory that the CPU cannot read.
    #[inline]
    pub fn bytes_mut(&mut self, at: usize) -> Option<&mut [u8]> {
        let start = self.borrowed(at)?.as_ptr()?;
        let len = self.pool.geometry.page_size();
        // SAFETY: I1, I3. The batch owns the page and is borrowed exclusively.
        Some(unsafe { std::slice::from_raw_parts_mut(start, len) })
    }

    /// The bytes for the packet of the page at this place, after headroom and colour.
    #[inline]
    pub fn packet_mut(&mut self, at: usize) -> Option<&mut [u8]> {
        let buffer = self.borrowed(at)?;
        let start = buffer.as_ptr()?.wrapping_add(buffer.packet_offset());
        let len = buffer.packet_capacity();
        // SAFETY: I1, I3. The batch owns the page and is borrowed exclusively; packets lie in their page.
        Some(unsafe { std::slice::from_raw_parts_mut(start, len) })
    }

    /// See [`PageBuf::dma_addr`].
    #[inline]
    pub fn dma_addr(&self, at: usize) -> Option<crate::DeviceAddr> {
        self.borrowed(at)?.dma_addr()
    }
}

impl Drop for Batch {
    #[inline]
    fn drop(&mut self) {
        self.put();
    }
}

/// Whole pages that nobody holds, on the owner's thread: one copy into the cache if they fit.
#[inline(always)]
pub(crate) fn put_here(pool: Home, owner: Owner, pages: &[u32]) {
    if !pool.own.cache.has_plain_room(pages.len()) {
        return put_here_slow(pool, pages);
    }
    pool.own.cache.fill(owner, pages.len(), |space| {
        space.copy_from_slice(pages);
        pages.len()
    });
    pool.own.counts.recycle_cached.add(pages.len() as u64);
}

/// The syncs are foreign code, and may unbind or end the pool: who the owner is is asked again behind them.
#[cold]
fn put_here_slow(pool: Home, pages: &[u32]) {
    sync_all(pool, pages);
    let Some(owner) = pool.owner_here() else { return put_elsewhere_synced(pool, pages) };
    let mut left = pages;
    while let [page, rest @ ..] = left {
        if !pool.own.cache.push(owner, PageIdx(*page)) {
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

/// Whole pages that nobody holds, on any other thread: into the lane as far as it has room, then the ring.
#[inline(never)]
pub(crate) fn put_elsewhere(pool: Home, pages: &[u32]) {
    sync_all(pool, pages);
    put_elsewhere_synced(pool, pages);
}

fn sync_all(pool: Home, pages: &[u32]) {
    pages.iter().for_each(|&page| pool.sync_for_device(PageIdx(page), usize::MAX));
}

fn put_elsewhere_synced(pool: Home, pages: &[u32]) {
    let Some(lane) = pool.lane() else { return pool.ring_bulk(pages) };
    let pushed = pages.iter().take_while(|&&page| lane.push_page(PageIdx(page))).count();
    if pushed > 0 {
        pool.after_push(lane, lane.after_push());
    }
    if pushed < pages.len() {
        pool.ring_bulk(&pages[pushed..]);
    }
}

/// Returns buffers of any pools, mixed, and leaves the vector empty with its capacity. Any thread. Of every 64, each pool
/// is gone to once. Linux: `page_pool_put_netmem_bulk`, without its limit of 16.
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
    let mut rest = taken(buffers);
    while !rest.is_empty() {
        let (chunk, behind) = rest.split_at_mut(rest.len().min(Batch::MAX));
        put_parted(chunk);
        rest = behind;
    }
}

/// As [`put_bulk`], through the locked ring of each pool, whatever the thread.
pub fn put_ring_bulk(buffers: &mut Vec<PageBuf>) {
    taken(buffers).chunks_mut(Batch::MAX).for_each(|chunk| put_groups(Way::Ring, chunk));
}

/// Sends up to [`Batch::MAX`] buffers home, at least one, that the caller parts with: none of them is read again, dropped,
/// or there when this returns.
#[inline(always)]
pub(crate) fn put_parted(buffers: &mut [PageBuf]) {
    let pool = buffers[0].pool;
    let home = pool.owner_here().is_some_and(|owner| {
        pool.own.cache.has_plain_room(buffers.len()) && {
            let cached = pool.own.cache.fill(owner, buffers.len(), |space| copy_plain(pool, buffers, space));
            pool.own.counts.recycle_cached.add(cached as u64);
            cached > 0
        }
    });
    if !home {
        put_groups(Way::Home, buffers);
    }
}

/// Copies the page numbers of buffers, and says how many: all of them if they are whole pages of this pool with nothing
/// to look up, else none. Without a branch per buffer.
#[inline(always)]
fn copy_plain(pool: Home, buffers: &[PageBuf], space: &mut [u32]) -> usize {
    let (mut pools, mut places) = (0, 0);
    let mut copy = |buffer: &PageBuf, number: &mut u32| {
        pools |= buffer.pool.0.addr().get() ^ pool.0.addr().get();
        places |= buffer.place.bits();
        *number = buffer.place.page().0;
    };
    let (eights, rest) = buffers.as_chunks::<8>();
    let (space_eights, space_rest) = space.as_chunks_mut::<8>();
    for (buffers, numbers) in eights.iter().zip(space_eights) {
        buffers.iter().zip(numbers).for_each(|(buffer, number)| copy(buffer, number));
    }
    rest.iter().zip(space_rest).for_each(|(buffer, number)| copy(buffer, number));
    if pools == 0 && places >> 32 == 0 { buffers.len() } else { 0 }
}

/// Which way home.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// As dropped buffers go.
    Home,
    /// Through the locked ring.
    Ring,
}

/// What goes home together.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    Piece,
    /// A whole page with something to look up: these go singly.
    Special,
}

impl Kind {
    #[inline(always)]
    fn of(buffer: &PageBuf) -> Self {
        match buffer.place.part() {
            Part::WHOLE => Self::Plain,
            part if part.is_piece() => Self::Piece,
            _ => Self::Special,
        }
    }
}

/// Returns up to [`Batch::MAX`] buffers that the caller parts with, pool by pool: the whole pages of each together, then
/// the pieces of each.
#[inline(never)]
fn put_groups(way: Way, mut rest: &mut [PageBuf]) {
    let mut numbers = [0u32; Batch::MAX];
    while let Some(first) = rest.first() {
        let (pool, kind) = (first.pool, Kind::of(first));
        if kind == Kind::Special {
            // SAFETY: I1. The caller parts with them, and each is read out once.
            let single = unsafe { std::ptr::read(first) };
            rest = &mut rest[1..];
            match way {
                Way::Home => drop(single),
                Way::Ring => single.put_ring(),
            }
            continue;
        }
        let left = gather(pool, kind, rest, &mut numbers);
        let group = &numbers[..rest.len() - left];
        rest = &mut rest[..left];
        match kind {
            Kind::Piece => put_pieces(way, pool, group),
            _ => put_pages(way, pool, group),
        }
    }
}

/// Copies the page numbers of one pool's buffers of one kind, and moves the others to the front; says how many others
/// there are.
#[inline(always)]
fn gather(pool: Home, kind: Kind, buffers: &mut [PageBuf], numbers: &mut [u32; Batch::MAX]) -> usize {
    // Almost always they are all of one pool and plain.
    let run = if kind == Kind::Plain { run_of_plain(pool, buffers, numbers) } else { 0 };
    let mut left = 0;
    for at in run..buffers.len() {
        let buffer = &buffers[at];
        if buffer.pool == pool && Kind::of(buffer) == kind {
            numbers[at - left] = buffer.place.page().0;
        } else {
            buffers.swap(left, at);
            left += 1;
        }
    }
    left
}

fn put_pages(way: Way, pool: Home, pages: &[u32]) {
    match (way, pool.owner_here()) {
        (Way::Home, Some(owner)) => put_here(pool, owner, pages),
        (Way::Home, None) => put_elsewhere(pool, pages),
        (Way::Ring, _) => {
            sync_all(pool, pages);
            pool.ring_bulk(pages);
        }
    }
}

/// Who the owner is is asked for each: the sync of a page that is home with its last piece is foreign code.
fn put_pieces(way: Way, pool: Home, mut pieces: &[u32]) {
    while let [piece, rest @ ..] = pieces {
        match (way, pool.owner_here()) {
            (_, Some(owner)) => pool.piece_here(owner, PageIdx(*piece), way == Way::Ring),
            (Way::Home, None) => return pool.pieces_elsewhere(pieces),
            (Way::Ring, None) => return pool.pieces_without_lane(pieces),
        }
        pieces = rest;
    }
}

/// Empties the vector without dropping its buffers, and gives them to be parted with. If foreign code panics meanwhile
/// the rest is leaked, never returned twice.
#[inline(always)]
fn taken(buffers: &mut Vec<PageBuf>) -> &mut [PageBuf] {
    let len = buffers.len();
    // SAFETY: 0 is within the capacity, and no element needs to be initialised for it.
    unsafe { buffers.set_len(0) };
    // SAFETY: the elements are still there, initialised, and the vector cannot be used while this borrow of it lives.
    unsafe { std::slice::from_raw_parts_mut(buffers.as_mut_ptr(), len) }
}

/// Copies the page numbers of the leading whole, plain pages of one pool; says how many there were.
#[inline(always)]
fn run_of_plain(pool: Home, buffers: &[PageBuf], numbers: &mut [u32; Batch::MAX]) -> usize {
    let plain = |(buffer, number): (&PageBuf, &mut u32)| {
        *number = buffer.place.page().0;
        buffer.pool == pool && buffer.place.is_whole()
    };
    buffers.iter().zip(numbers.iter_mut()).map(plain).take_while(|plain| *plain).count()
}
