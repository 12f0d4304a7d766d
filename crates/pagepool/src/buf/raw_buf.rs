//! Buffers as addresses, for descriptor rings.
//!
//! What   [`RawBuf`] is a device address and a length. While it is out, a plain whole page has a word of its
//!        own (raw_line.rs). For any other buffer one bit per 64 bytes of page marks its start, and for a
//!        fragment a second one its end. A whole page that may have a [`PageRef`](crate::PageRef) has no end
//!        mark. Returned addresses are checked there, in release builds too.
//! Who    any thread. Clearing a start mark is one atomic operation: if two threads return the same address,
//!        one is refused.
//! Limit  a second return is not detected if the buffer was allocated again in between.
//! I4     while a raw address is out there is no reference to its bytes: creating it consumed the handle.

use std::fmt;
use std::ops::RangeInclusive;

use crate::buf::handle_bits::FragBits;
use crate::buf::page_buf::PageBuf;
use crate::core::pool_core::{PoolCore, PoolPtr};
use crate::mem::area::MARKED_SHIFT;
use crate::mem::dma::DeviceAddr;
use crate::mem::page::PageIdx;
use crate::sys::sync::{AtomicU64, Ordering};

/// log2 of the bytes per bit. A word of marks has 64 bits.
pub(crate) const LINE_SHIFT: u32 = MARKED_SHIFT - 6;

/// Bytes per bit. Buffers that share such a line have no raw form.
pub(crate) const LINE: usize = 1 << LINE_SHIFT;

/// A buffer as a device sees it: plain numbers. They can be forged, so
/// [`PoolRef::from_raw`](crate::PoolRef::from_raw) checks them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RawBuf {
    /// Address of the first byte in the pool's first domain.
    pub addr: DeviceAddr,
    /// Bytes of the buffer from there on.
    pub len: u32,
}

/// Why an address is not a buffer of this pool. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RawError {
    /// The pool has no domain, so it has no device addresses.
    NoDomain,
    /// The pool's first domain does not map the address.
    Unmapped(DeviceAddr),
    /// The address lies in a page that is not this pool's.
    NotOurs(DeviceAddr),
    /// The address lies in a page of the pool, but in no buffer that is out in raw form.
    NotOut(DeviceAddr),
    /// The device of the pool's first domain was removed, so the domain no longer maps its pages.
    DeviceGone,
}

impl fmt::Display for RawError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDomain => {
                f.write_str("the pool has no domain and no device addresses: add a domain to its parameters")
            }
            Self::Unmapped(at) => write!(f, "device address {at} is not mapped in the pool's first domain"),
            Self::NotOurs(at) => {
                write!(f, "device address {at} is in a page that does not belong to this pool")
            }
            Self::DeviceGone => f.write_str(
                "the device was removed, and the pool's first domain no longer maps its pages: no addresses \
                 can be allocated",
            ),
            Self::NotOut(at) => {
                write!(
                    f,
                    "device address {at} is not out in raw form: it was already returned, or never handed out"
                )
            }
        }
    }
}

impl std::error::Error for RawError {}

impl PageBuf {
    /// Turns the buffer into its address in the pool's first domain, for a descriptor ring.
    /// [`PoolRef::from_raw`](crate::PoolRef::from_raw) makes it a buffer again.
    ///
    /// Any thread; a store for a whole page, two atomic operations for a fragment.
    /// [`Bound::alloc_addr_bulk`](crate::Bound::alloc_addr_bulk) allocates many pages as addresses.
    ///
    /// Returns `Err(buffer)` if the pool has no domain, or if the fragment may share a cache line with
    /// another: with `frag_align` below 64, or if it was [split off](Self::split_off) within a line. After
    /// the first split within a line, all of the pool's fragments that end within a line are refused: split
    /// and allocate multiples of 64 bytes.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, Pool, PoolParams};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// let no_domain = Pool::new(PoolParams::default(), arena)?.bind();
    /// let buffer = no_domain.alloc_page().unwrap();
    /// let buffer = buffer.into_raw().expect_err("a pool without domains has no device addresses");
    /// # drop(buffer);
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    #[inline]
    pub fn into_raw(self) -> Result<RawBuf, PageBuf> {
        if !self.bits.is_whole() {
            return self.into_marked();
        }
        let Some(addr) = self.dma_addr() else { return Err(self) };
        let (pool, page) = (self.pool, self.into_bits().whole_page());
        pool.own.raw.pages().out(page);
        Ok(RawBuf { addr, len: pool.geometry.page_size })
    }

    /// Turns a buffer that is not a plain whole page into its address.
    fn into_marked(self) -> Result<RawBuf, PageBuf> {
        let start = self.start();
        let len = self.len();
        let Some(addr) = self.dma_addr().filter(|_| !self.shares_a_line()) else { return Err(self) };
        let (pool, _, frag_bits) = self.into_parts();
        mark(&pool, start, frag_bits.is_frag().then(|| start + len as u64));
        Ok(RawBuf { addr, len: len as u32 })
    }

    /// Whether another fragment may lie in its first or last line. Known only for the pool: whether any
    /// buffer was split within a line, not which.
    pub(crate) fn shares_a_line(&self) -> bool {
        let (start, pool) = (self.start() as usize, self.pool);
        let ends_within =
            || !(start + self.len()).is_multiple_of(LINE) && pool.split_lines.load(Ordering::Relaxed);
        self.is_frag()
            && (!pool.geometry.frags_aligned_to(LINE as u32) || !start.is_multiple_of(LINE) || ends_within())
    }
}

/// Marks a buffer from `start` in the area as out; a fragment up to `end`.
fn mark(pool: &PoolCore, start: u64, end: Option<u64>) {
    let marks = &pool.area.raw_out;
    if let Some(end) = end {
        let (word, bit) = mark_at(end - 1);
        marks.last[word].fetch_or(bit, Ordering::Relaxed);
    }
    let (word, bit) = mark_at(start);
    marks.start[word].fetch_or(bit, Ordering::Release); // pairs with from_marks()
}

/// The word and the bit for the line of a byte of the area.
fn mark_at(offset: u64) -> (usize, u64) {
    let line = offset >> LINE_SHIFT;
    ((line >> 6) as usize, 1 << (line & 63))
}

/// See [`PoolRef::from_raw`](crate::PoolRef::from_raw).
#[inline]
pub(crate) fn from_raw(pool: PoolPtr, addr: DeviceAddr) -> Result<PageBuf, RawError> {
    match page_at(pool, addr) {
        Some(page) if take_plain(pool, page) => Ok(PageBuf::whole(pool, PageIdx(page as u32))),
        _ => from_marks(pool, addr),
    }
}

/// The number of the page at an address. Meaningful only for addresses that are out.
#[inline(always)]
pub(crate) fn page_at(pool: PoolPtr, addr: DeviceAddr) -> Option<u64> {
    let raw = &pool.own.raw;
    let mapping = raw.mapping()?;
    let offset = match mapping.linear() {
        Some(linear) => addr.0.wrapping_sub(linear),
        None => mapping.offset_of(addr)?,
    };
    Some(raw.head_of(offset))
}

/// Takes a plain whole page back. Any thread.
#[inline(always)]
fn take_plain(pool: PoolPtr, page: u64) -> bool {
    match pool.owner_here() {
        Some(owner) => pool.own.raw.owner_takes(owner, |raw| raw.take(page)),
        None => pool.own.raw.another_takes(page),
    }
}

/// The buffer that is out according to the marks, or the address's error.
#[cold]
#[inline(never)]
fn from_marks(pool: PoolPtr, addr: DeviceAddr) -> Result<PageBuf, RawError> {
    let mapping = pool.mappings.first().ok_or(RawError::NoDomain)?;
    let offset = mapping.offset_of(addr).ok_or(RawError::Unmapped(addr))?;
    let page = pool.geometry.head(PageIdx(pool.geometry.base_page.number_at(offset) as u32));
    let ours = || page.0 < pool.area.pages() && pool.area.meta(page).pool.load(Ordering::Acquire) == pool.id;
    if !ours() {
        return Err(RawError::NotOurs(addr));
    }
    let start = find_start(&pool, page, offset).ok_or(RawError::NotOut(addr))?;
    let inside = |end: Option<u64>| end.is_none_or(|end| offset < end);
    if !inside(find_end(&pool, page, start)) {
        return Err(RawError::NotOut(addr));
    }
    let (word, bit) = mark_at(start);
    let marks = &pool.area.raw_out.start[word];
    if marks.fetch_and(!bit, Ordering::AcqRel) & bit == 0 {
        return Err(RawError::NotOut(addr)); // another thread returned it first
    }
    // The mark is taken, so no other thread can change the page's state. Recheck what was read before.
    let end = find_end(&pool, page, start);
    if ours() && inside(end) {
        return Ok(rebuild(pool, page, start, end));
    }
    marks.fetch_or(bit, Ordering::Release);
    Err(RawError::NotOut(addr))
}

/// Rebuilds the buffer whose start mark was just taken.
fn rebuild(pool: PoolPtr, page: PageIdx, start: u64, end: Option<u64>) -> PageBuf {
    match end {
        None => {
            let held = pool.page_meta(page).refs.load(Ordering::Acquire) != 0;
            PageBuf::new(pool, page, if held { FragBits::MAY_HAVE_REFS } else { FragBits::WHOLE })
        }
        Some(end) => {
            let (word, bit) = mark_at(end - 1);
            pool.area.raw_out.last[word].fetch_and(!bit, Ordering::Relaxed);
            PageBuf::frag(pool, page, (start - pool.geometry.start_of(page)) as usize, (end - start) as usize)
        }
    }
}

/// The offset of the nearest start mark at or before `offset` in its page.
fn find_start(pool: &PoolCore, page: PageIdx, offset: u64) -> Option<u64> {
    let lines = pool.geometry.start_of(page) >> LINE_SHIFT..=offset >> LINE_SHIFT;
    let (word, bits) = marks_in(&pool.area.raw_out.start, lines).rev().find(|(_, bits)| *bits != 0)?;
    Some((word << 6 | u64::from(63 - bits.leading_zeros())) << LINE_SHIFT)
}

/// The offset behind the nearest end mark at or after `start` in its page; `None` for a whole page.
fn find_end(pool: &PoolCore, page: PageIdx, start: u64) -> Option<u64> {
    let end = pool.geometry.start_of(page) + pool.geometry.page_size() as u64;
    let lines = start >> LINE_SHIFT..=(end - 1) >> LINE_SHIFT;
    let (word, bits) = marks_in(&pool.area.raw_out.last, lines).find(|(_, bits)| *bits != 0)?;
    Some(((word << 6 | u64::from(bits.trailing_zeros())) + 1) << LINE_SHIFT)
}

/// The numbers of the words with the marks of these lines, each with the marks of these lines alone.
fn marks_in(
    marks: &[AtomicU64],
    lines: RangeInclusive<u64>,
) -> impl DoubleEndedIterator<Item = (u64, u64)> + '_ {
    let (first, last) = lines.into_inner();
    (first >> 6..=last >> 6).map(move |word| {
        let from = if word == first >> 6 { u64::MAX << (first & 63) } else { u64::MAX };
        let upto = if word == last >> 6 { u64::MAX >> (63 - (last & 63)) } else { u64::MAX };
        (word, marks[word as usize].load(Ordering::Acquire) & from & upto)
    })
}
