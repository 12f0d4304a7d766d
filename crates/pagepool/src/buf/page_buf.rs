//! The buffer: an owned page or fragment, which returns to its pool when dropped.
//!
//! Who    any thread may have and drop it. On the owner's thread it goes into the pool's cache, on others
//!        into the thread's lane.
//! I1     a handle is the only owner of its bytes: it is not `Clone`, and all that gives it up consumes it.
//! Cost   dropped on the owner's thread: two compares, two stores, one count. Remote: see `lane.rs`.

// UNSAFETY: the bytes of a buffer are reached by address.
#![expect(unsafe_code)]

use std::hint::assert_unchecked;
use std::mem::ManuallyDrop;
use std::ptr::{NonNull, with_exposed_provenance_mut};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::buf::handle_bits::{FragBits, HandleBits};
use crate::core::pool_core::PoolPtr;
use crate::holders::tag::Tag;
use crate::mem::area::Area;
use crate::mem::dma::{DeviceAddr, DmaDomain, DomainId, Mapping};
use crate::mem::page::PageIdx;
use crate::recycle::cache::OwnerProof;
use crate::recycle::message::Message;

/// An owned page of a pool, or a fragment of one, in 16 bytes. Its drop returns it. Linux: the `struct page`
/// that `page_pool_dev_alloc_pages` returns.
///
/// Drop it on any thread. Linux: `page_pool_put_full_page`. A forgotten buffer (`mem::forget`) leaks its
/// page: the pool never ends, and its [`Shutdown`](crate::Shutdown) reports the page.
///
/// Mistakes that do not compile: returning it twice, using it after its return, keeping its bytes longer,
/// dropping it after it became an address, and moving the bound pool to another thread:
///
/// ```compile_fail,E0382
/// fn twice(buffer: pagepool::PageBuf) {
///     drop(buffer);
///     drop(buffer);
/// }
/// ```
/// ```compile_fail,E0382
/// fn late(mut buffer: pagepool::PageBuf) {
///     buffer.put_ring();
///     buffer.bytes_mut();
/// }
/// ```
/// ```compile_fail,E0505
/// fn kept(buffer: pagepool::PageBuf) -> usize {
///     let bytes = buffer.bytes().unwrap();
///     drop(buffer);
///     bytes.len()
/// }
/// ```
/// ```compile_fail,E0382
/// fn raw_and_owned(buffer: pagepool::PageBuf) {
///     let raw = buffer.into_raw();
///     drop(buffer);
/// }
/// ```
/// ```compile_fail,E0277
/// fn the_owner_stays(pool: pagepool::Bound) {
///     std::thread::spawn(move || pool.alloc_page());
/// }
/// ```
#[must_use = "a buffer that is dropped at once was allocated for nothing"]
#[derive(Debug)]
#[repr(C)]
pub struct PageBuf {
    pub(crate) pool: PoolPtr,
    pub(crate) bits: HandleBits,
}

const _: () = assert!(size_of::<PageBuf>() == 16, "four handles in a cache line");
const _: () = assert!(size_of::<Option<PageBuf>>() == 16, "an absent handle costs nothing");

impl PageBuf {
    /// The page's number in its area; for a fragment, its page's number.
    #[inline]
    pub fn page(&self) -> PageIdx {
        self.bits.head(self.pool.geometry.head_mask)
    }

    /// Offset of a fragment in its page, in bytes; 0 for a whole page.
    #[inline]
    pub fn offset(&self) -> usize {
        (self.start() - self.pool.geometry.start_of(self.page())) as usize
    }

    /// Size in bytes of the page or fragment, including the rest of the page if that was added to the
    /// fragment. Linux: truesize.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "a buffer is never empty")]
    pub fn len(&self) -> usize {
        match self.is_frag() {
            true => self.bits.len(self.pool.geometry.odd_bit()),
            false => self.pool.geometry.page_size(),
        }
    }

    /// Whether this is a fragment of a page.
    #[inline]
    pub fn is_frag(&self) -> bool {
        self.bits.frag_bits().is_frag()
    }

    /// The id of the pool to which it returns.
    #[inline]
    pub fn pool_id(&self) -> u32 {
        self.pool.id
    }

    /// The area of the buffer: the memory that a device must map to access it.
    #[inline]
    pub fn area(&self) -> &Arc<Area> {
        &self.pool.area
    }

    /// Offset of the first byte in the area.
    #[inline(always)]
    pub(crate) fn start(&self) -> u64 {
        match self.bits.is_whole() {
            true => self.pool.geometry.start_of(self.bits.whole_page()),
            false => self.start_of_rare(),
        }
    }

    /// A function of its own, to keep `start` short enough to inline everywhere.
    fn start_of_rare(&self) -> u64 {
        let offset = if self.is_frag() { self.bits.offset(self.pool.geometry.odd_bit()) } else { 0 };
        self.pool.geometry.start_of(self.bits.page()) + offset as u64
    }

    /// Address of the first byte; `None` for memory that the CPU cannot read.
    #[inline]
    pub fn as_ptr(&self) -> Option<*mut u8> {
        (self.pool.base != 0).then(|| (self.pool.base + self.start() as usize) as *mut u8)
    }

    /// All bytes of the buffer; `None` for memory that the CPU cannot read.
    ///
    /// Recycled memory is not cleared: it holds the data of earlier packets.
    #[inline]
    pub fn bytes(&self) -> Option<&[u8]> {
        let start = self.as_ptr()?;
        // SAFETY: I1, I3. The handle owns these bytes, the area keeps them mapped, and the kernel initialised
        // them.
        Some(unsafe { std::slice::from_raw_parts(start, self.len()) })
    }

    /// All bytes of the buffer, mutable; `None` for memory that the CPU cannot read.
    #[inline]
    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        let start = self.as_ptr()?;
        // SAFETY: I1, I3. As in `bytes`, and the handle is borrowed exclusively.
        Some(unsafe { std::slice::from_raw_parts_mut(start, self.len()) })
    }

    /// Offset of the packet in a whole page: the pool's headroom plus the page's colour, up to 15 cache
    /// lines. 0 for a fragment, whose layout is the user's.
    #[inline]
    pub fn packet_offset(&self) -> usize {
        if self.bits.frag_bits().is_frag() {
            0
        } else {
            self.pool.geometry.packet_offset(self.bits.whole_page())
        }
    }

    /// Most bytes of a packet: `max_len` for a whole page, all of a fragment.
    #[inline]
    pub fn packet_capacity(&self) -> usize {
        if self.bits.frag_bits().is_frag() {
            self.bits.len(self.pool.geometry.odd_bit())
        } else {
            self.pool.geometry.max_len as usize
        }
    }

    /// The bytes for the packet, after headroom and colour; `None` for memory that the CPU cannot read.
    #[inline]
    pub fn packet(&self) -> Option<&[u8]> {
        let (start, len) = self.packet_place()?;
        // SAFETY: I1, I3. Offset and capacity were checked to lie in the page.
        Some(unsafe { std::slice::from_raw_parts(start.as_ptr(), len) })
    }

    /// The bytes for the packet, mutable; `None` for memory that the CPU cannot read.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, Pool, PoolParams};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// let params = PoolParams { headroom: 256, max_len: 1514, tailroom: 320, ..Default::default() };
    /// let pool = Pool::new(params, arena)?.bind();
    /// let mut buffer = pool.alloc_page().unwrap();
    /// assert_eq!(buffer.packet_mut().unwrap().len(), 1514);
    /// assert!(buffer.packet_offset() >= 256);
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    #[inline]
    pub fn packet_mut(&mut self) -> Option<&mut [u8]> {
        let (start, len) = self.packet_place()?;
        // SAFETY: I1, I3. As in `packet`, and the handle is borrowed exclusively.
        Some(unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), len) })
    }

    /// Address and length of the bytes for the packet.
    #[inline(always)]
    pub(crate) fn packet_place(&self) -> Option<(NonNull<u8>, usize)> {
        let (pool, word) = (&*self.pool, self.bits.bits());
        let after_headroom = || pool.packet_base + pool.geometry.base_page.times(word) as usize;
        let (start, len) = if word < pool.colourless_below {
            (after_headroom(), pool.packet_len as usize)
        } else if word < pool.readable_below {
            (after_headroom() + pool.geometry.colour_of(word) as usize, pool.packet_len as usize)
        } else {
            self.rare_packet_place()?
        };
        // SAFETY: it is an address in readable memory: `word` is below a limit, or `as_ptr` gave it.
        unsafe { assert_unchecked(start != 0) };
        Some((NonNull::new(with_exposed_provenance_mut(start))?, len))
    }

    /// [`packet_place`](Self::packet_place) of any buffer. A function of its own, to keep `packet` short.
    #[cold]
    #[inline(never)]
    fn rare_packet_place(&self) -> Option<(usize, usize)> {
        Some((self.as_ptr()?.addr() + self.packet_offset(), self.packet_capacity()))
    }

    /// The device address of the first byte in the pool's first domain. `None` without domains, and after the
    /// device was removed. Two loads. Linux: `page_pool_get_dma_addr` plus the offset.
    #[doc(alias = "page_pool_get_dma_addr")]
    #[inline]
    pub fn dma_addr(&self) -> Option<DeviceAddr> {
        self.pool.mappings.first()?.addr_of(self.start())
    }

    /// The device address of the first byte in this domain; `None` if it does not map the buffer. A compare
    /// per domain of the pool, then a lookup under the area's lock.
    pub fn dma_addr_in(&self, domain: DomainId) -> Option<DeviceAddr> {
        let own = self.pool.mappings.iter().find(|m| m.id() == domain);
        match own {
            Some(mapping) => mapping.addr_of(self.start()),
            None => self.pool.area.mapping(domain)?.addr_of(self.start()),
        }
    }

    /// The device address of the first byte by a mapping that the caller keeps, of any domain. `None` if the
    /// mapping is of another area, or no longer maps the buffer. A compare and a load. For devices that are
    /// in no domain of the pool.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, DmaDomain, IdentityDomain, Pool, PoolParams};
    /// # use std::sync::Arc;
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// let pool = Pool::new(PoolParams::default(), arena.clone())?.bind();
    /// let buffer = pool.alloc_page().unwrap();
    /// let nic: Arc<dyn DmaDomain> = Arc::new(IdentityDomain::new("nic0"));
    /// assert!(buffer.mapping_in(nic.id()).is_none());
    ///
    /// use pagepool::Provider;
    /// arena.area().attach(&nic)?;
    /// let mapping = buffer.mapping_in(nic.id()).unwrap();
    /// assert_eq!(buffer.dma_addr_by(&mapping).unwrap().0, buffer.as_ptr().unwrap() as u64);
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    #[inline]
    pub fn dma_addr_by(&self, mapping: &Mapping) -> Option<DeviceAddr> {
        if mapping.area() == self.pool.area_id { mapping.addr_of(self.start()) } else { None }
    }

    /// The mapping of this buffer's area in `domain`. Takes the area's lock: call it once and keep the
    /// result, until [`dma_addr_by`](Self::dma_addr_by) returns `None`.
    pub fn mapping_in(&self, domain: DomainId) -> Option<Arc<Mapping>> {
        self.pool.area.mapping(domain)
    }

    /// Syncs `len` bytes from `offset` in the buffer for the CPU, in every non-coherent domain. Call it
    /// before reading what a device wrote. Linux: `page_pool_dma_sync_for_cpu`.
    #[doc(alias = "page_pool_dma_sync_for_cpu")]
    pub fn sync_for_cpu(&mut self, offset: usize, len: usize) {
        self.sync(offset, len, |domain, at, len| domain.sync_for_cpu(at, len));
    }

    /// Syncs `len` bytes from `offset` in the buffer for the device, in every non-coherent domain. Call it
    /// before transmission.
    pub fn sync_for_device(&self, offset: usize, len: usize) {
        self.sync(offset, len, |domain, at, len| domain.sync_for_device(at, len));
    }

    #[inline]
    fn sync(&self, offset: usize, len: usize, each: impl Fn(&dyn DmaDomain, DeviceAddr, usize)) {
        let len = len.min(self.len().saturating_sub(offset));
        for mapping in self.pool.mappings.iter().filter(|m| !m.coherent()) {
            if let Some(at) = mapping.addr_of(self.start() + offset as u64).filter(|_| len > 0) {
                each(&**mapping.domain(), at, len);
            }
        }
    }

    /// Returns the buffer and syncs only its first `len` packet bytes for the device: no more may have been
    /// written. Linux: `page_pool_put_page` with a `dma_sync_size`. A fragment is synced with its whole page.
    #[doc(alias = "page_pool_put_page")]
    pub fn recycle_sync(self, len: usize) {
        if self.bits.frag_bits().is_frag() {
            return drop(self);
        }
        let (pool, page, frag_bits) = self.into_parts();
        match pool.owner_here() {
            Some(owner) => pool.put_page_here(owner, page, frag_bits == FragBits::MAY_HAVE_REFS, len),
            None => pool.put_page_remote(page, frag_bits == FragBits::MAY_HAVE_REFS, len),
        }
    }

    /// Returns the buffer through the locked ring, on any thread. For measurements, and for code that must
    /// not touch the cache. Linux: `page_pool_put_full_page` outside softirq.
    #[doc(alias = "page_pool_put_full_page")]
    #[inline]
    pub fn put_ring(self) {
        if !self.bits.is_whole() || self.pool.needs_work_on_return {
            return put_ring_slow(self);
        }
        let (pool, page, _) = self.into_parts();
        pool.recycle_in_ring(page);
    }

    /// Tags the buffer with its current user, for reports about the pool.
    ///
    /// In a pool with [`holders`](crate::PoolParams::holders) the calling thread becomes the holder; with
    /// sites, calls on other threads than the owner's take a lock that they share. For a page in fragments
    /// the last call counts. The tag stays when the buffer becomes an address or `Bytes`. Without holders and
    /// `tagging` it does nothing: a load and a compare.
    #[inline]
    pub fn set_tag(&mut self, tag: Tag) {
        self.note_tag(tag);
    }

    /// Tags the buffer, for handles that share it: see [`set_tag`](Self::set_tag).
    #[inline]
    pub(crate) fn note_tag(&self, tag: Tag) {
        if self.pool.tagging {
            self.pool.tag_page(self.page(), tag);
        }
    }

    /// The handle of a whole page. The caller owned the page, and gives it up.
    #[inline(always)]
    pub(crate) fn whole(pool: PoolPtr, page: PageIdx) -> Self {
        Self { pool, bits: HandleBits::whole(page) }
    }

    /// The handle of a whole page, with or without a possible reference.
    #[inline(always)]
    pub(crate) fn new(pool: PoolPtr, page: PageIdx, frag_bits: FragBits) -> Self {
        Self { pool, bits: HandleBits::new(page, frag_bits) }
    }

    /// The handle of a fragment of a page.
    #[inline(always)]
    pub(crate) fn frag(pool: PoolPtr, page: PageIdx, offset: usize, len: usize) -> Self {
        debug_assert!(offset + len <= pool.geometry.page_size() && len > 0, "I1: fragment {offset}+{len}");
        Self { pool, bits: HandleBits::frag(pool.geometry.base_page, page, offset, len) }
    }

    /// Gives up the handle without returning the buffer.
    #[inline(always)]
    pub(crate) fn into_bits(self) -> HandleBits {
        ManuallyDrop::new(self).bits
    }

    /// The handle of a fragment that may begin at any byte.
    pub(crate) fn part(pool: PoolPtr, page: PageIdx, offset: usize, len: usize) -> Self {
        debug_assert!(offset + len <= pool.geometry.page_size() && len > 0, "I1: part {offset}+{len}");
        let geometry = &pool.geometry;
        Self { pool, bits: HandleBits::part(geometry.base_page, page, offset, len, geometry.odd_bit()) }
    }

    /// Takes the handle apart without returning it. Loses the offset of a fragment.
    #[inline(always)]
    pub(crate) fn into_parts(self) -> (PoolPtr, PageIdx, FragBits) {
        let this = ManuallyDrop::new(self);
        (this.pool, this.bits.page(), this.bits.frag_bits())
    }
}

impl Drop for PageBuf {
    #[inline]
    fn drop(&mut self) {
        let (pool, bits) = (self.pool, self.bits);
        if let Some(owner) = pool.owner_here() {
            if bits.is_whole() && pool.own.cache.push_fast(owner, bits.whole_page()) {
                return pool.own.counts.recycle_cached.add(1);
            }
            return drop_here(pool, owner, bits);
        }
        drop_remote(pool, bits);
    }
}

#[cold]
#[inline(never)]
fn put_ring_slow(buffer: PageBuf) {
    if buffer.is_frag() {
        return put_frag_ring(buffer.pool, buffer.into_bits());
    }
    let (pool, page, frag_bits) = buffer.into_parts();
    if frag_bits == FragBits::MAY_HAVE_REFS && pool.page_meta(page).refs.load(Ordering::Acquire) != 0 {
        return drop(PageBuf::new(pool, page, frag_bits)); // the drop releases it from the pool
    }
    pool.prepare_for_reuse(page, usize::MAX);
    pool.recycle_in_ring(page);
}

fn put_frag_ring(pool: PoolPtr, bits: HandleBits) {
    let page = bits.head(pool.geometry.head_mask);
    match pool.owner_here() {
        Some(owner) => pool.frag_here(owner, page, true),
        None => pool.frags_by_ring(&[page.0]),
    }
}

#[cold]
#[inline(never)]
fn drop_here(pool: PoolPtr, owner: OwnerProof, bits: HandleBits) {
    if bits.frag_bits().is_frag() {
        pool.frag_here(owner, bits.head(pool.geometry.head_mask), false);
    } else {
        pool.put_page_here(owner, bits.whole_page(), bits.frag_bits() == FragBits::MAY_HAVE_REFS, usize::MAX);
    }
}

// Not `#[cold]`: the compiler would move the call away, and two more jumps take 9 to 28 % of a return.
#[inline(never)]
fn drop_remote(pool: PoolPtr, bits: HandleBits) {
    if let Some(lane) = pool.message_only_lane() {
        let pushed = if bits.is_whole() {
            lane.push_in_run(Message::of_page(bits.whole_page()))
        } else {
            bits.frag_bits().is_frag()
                && lane.push_frags_in_run(Message::of_frag(bits.head(pool.geometry.head_mask)))
        };
        if pushed {
            return pool.after_push(lane, lane.after_free_push());
        }
    }
    drop_rare_remote(pool, bits);
}

/// A function of its own: the return of a page then needs no stack frame.
#[inline(never)]
fn drop_rare_remote(pool: PoolPtr, bits: HandleBits) {
    if bits.frag_bits().is_frag() {
        pool.frag_remote(bits.head(pool.geometry.head_mask));
    } else {
        pool.put_page_remote(bits.whole_page(), bits.frag_bits() == FragBits::MAY_HAVE_REFS, usize::MAX);
    }
}
