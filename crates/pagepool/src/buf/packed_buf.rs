//! A buffer in 8 bytes, half of a [`PageBuf`], for rings between threads.
//!
//! What   16 bits: the pool's slot in a process-wide table. 18 bits: the part of the page. 30 bits: the page.
//! Who    any thread, like a [`PageBuf`]. Its drop returns the buffer.
//! I1     it is the only owner of its bytes: packing consumes the handle, unpacking the packed buffer.
//! Cost   to pack a whole page: a load and two compares. To unpack or drop: a load more than a handle.

// UNSAFETY: the pool is reached by address; packed buffers are given up in place, without a drop.
#![expect(unsafe_code)]

use std::fmt;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::num::{NonZeroU64, NonZeroUsize};
use std::ptr::NonNull;

use crate::buf::batch::{Batch, put_here, put_remote};
use crate::buf::bulk::{ReturnPath, put_frags, put_parted, put_plain_remote};
use crate::buf::handle_bits::{FragBits, HandleBits};
use crate::buf::page_buf::PageBuf;
use crate::buf::raw_buf::LINE_SHIFT;
use crate::core::pool_core::PoolPtr;
use crate::core::short_name::pool_at;
use crate::holders::tag::Tag;
use crate::mem::page::{MAX_PAGES, PAGE_SHIFT, PageIdx};
use crate::recycle::cache::OwnerProof;

/// Where the part begins, above the page's number.
const PART_SHIFT: u32 = 30;
/// Where the pool's slot begins.
const POOL_SHIFT: u32 = 48;
/// In the part, in cache lines: the length of a fragment, 12 bits; 0 for a whole page.
const LINES_BITS: u32 = 12;
const LINES_MASK: u32 = (1 << LINES_BITS) - 1;
/// The part of a page whose record its return must read.
const MAY_HAVE_REFS: u32 = 1 << LINES_BITS;

const _: () = assert!(MAX_PAGES == 1 << PART_SHIFT, "every page has a number of 30 bits");
const _: () = assert!(PAGE_SHIFT - LINE_SHIFT + LINES_BITS == POOL_SHIFT - PART_SHIFT, "the part's 18 bits");

/// A [`PageBuf`] in 8 bytes, for rings and queues between threads. Its drop returns the buffer, on any
/// thread. [`PageBuf::pack`] creates one; [`unpack`](Self::unpack) reverts it. Linux: a `netmem_ref`.
///
/// [`Bound::alloc_packed`](crate::Bound::alloc_packed) fills bursts, [`put_packed`] returns them.
///
/// ```
/// # use pagepool::{Arena, ArenaParams, Pool, PoolParams};
/// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
/// let pool = Pool::new(PoolParams::default(), arena)?.bind();
/// let (to, from) = std::sync::mpsc::channel();
/// to.send(pool.alloc_page().unwrap().pack().expect("a whole page"))?;
/// let mut packed: pagepool::PackedBuf = from.recv()?;
/// packed.packet_mut().unwrap()[0] = 7;
/// assert_eq!(packed.unpack().packet().unwrap()[0], 7);
/// assert_eq!(pool.stats().recycle_cached, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a buffer that is dropped at once was allocated for nothing"]
#[repr(transparent)]
pub struct PackedBuf(NonZeroU64);

const _: () = assert!(size_of::<Option<PackedBuf>>() == 8, "eight in a cache line");

impl fmt::Debug for PackedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PackedBuf").field(&*self.borrowed()).finish()
    }
}

impl PageBuf {
    /// Packs the buffer into 8 bytes. Any thread; a load and two compares for a whole page.
    ///
    /// A fragment is packed in whole cache lines: its length is rounded up, as by
    /// [`into_raw`](Self::into_raw). `Err(buffer)` if the fragment may share a line or has more than 4095
    /// lines, or if the pool has no slot (65,535 pools were live at its creation).
    #[inline]
    pub fn pack(self) -> Result<PackedBuf, PageBuf> {
        let (pool, bits) = (u64::from(self.pool.slot.number()) << POOL_SHIFT, self.bits.bits());
        match NonZeroU64::new(pool | bits) {
            Some(packed) if bits >> PART_SHIFT == 0 && pool != 0 => {
                std::mem::forget(self);
                Ok(PackedBuf(packed))
            }
            _ => self.pack_part(pool),
        }
    }

    /// Packs what is not a plain page, or refuses if the pool has no short name.
    #[cold]
    fn pack_part(self, pool: u64) -> Result<PackedBuf, PageBuf> {
        let (page, frag_bits) = (self.bits.page(), self.bits.frag_bits());
        let part = match frag_bits.is_frag() {
            true => self.frag_part(),
            false => Some(MAY_HAVE_REFS),
        };
        match (NonZeroU64::new(pool), part) {
            (Some(pool), Some(part)) => {
                std::mem::forget(self);
                Ok(PackedBuf(pool | u64::from(part) << PART_SHIFT | u64::from(page.0)))
            }
            _ => Err(self),
        }
    }

    /// Start and length of a fragment, in lines; `None` if it may share a line or is too long.
    fn frag_part(&self) -> Option<u32> {
        let lines = self.len().div_ceil(1 << LINE_SHIFT) as u32;
        let fits = lines <= LINES_MASK && !self.shares_a_line();
        let offset = self.start() % (1 << PAGE_SHIFT);
        fits.then_some((offset as u32 >> LINE_SHIFT) << LINES_BITS | lines)
    }
}

impl PackedBuf {
    /// Packs whole pages of this pool without a [`PageRef`](crate::PageRef), which the caller gives up by
    /// number. `None` if the pool has no short name.
    #[inline(always)]
    pub(crate) fn packing(pool: PoolPtr) -> Option<impl Fn(u32) -> Self> {
        let place = NonZeroU64::new(u64::from(pool.slot.number()) << POOL_SHIFT)?;
        Some(move |page| Self(place | u64::from(page)))
    }

    /// Packs fragments of this pool that share no lines, which the caller gives up by page and offset; also
    /// returns their size, rounded up to lines. `None` if they cannot be packed.
    #[inline(always)]
    pub(crate) fn packing_frags(
        pool: PoolPtr,
        size: usize,
    ) -> Option<(usize, impl Fn(PageIdx, usize) -> Self)> {
        let place = NonZeroU64::new(u64::from(pool.slot.number()) << POOL_SHIFT)?;
        let lines = size.div_ceil(1 << LINE_SHIFT);
        let fits = (1..=LINES_MASK as usize).contains(&lines);
        (fits && pool.geometry.frags_aligned_to(1 << LINE_SHIFT)).then_some((
            lines << LINE_SHIFT,
            move |page: PageIdx, offset: usize| {
                let in_page = (offset % (1 << PAGE_SHIFT)) >> LINE_SHIFT;
                let part = (in_page << LINES_BITS | lines) as u64;
                let base_page = u64::from(page.0) + (offset as u64 >> PAGE_SHIFT);
                Self(place | part << PART_SHIFT | base_page)
            },
        ))
    }

    /// Makes the buffer a handle again. Any thread.
    #[inline]
    pub fn unpack(self) -> PageBuf {
        ManuallyDrop::into_inner(ManuallyDrop::new(self).borrowed())
    }

    #[inline(always)]
    fn pool(&self) -> PoolPtr {
        let pool = pool_at((self.0.get() >> POOL_SHIFT) as u16).cast();
        // SAFETY: I3. The buffer is out, so its pool is alive, in the slot that it keeps for life.
        PoolPtr::new(unsafe { NonNull::new_unchecked(pool) })
    }

    #[inline(always)]
    fn page(&self) -> PageIdx {
        PageIdx(self.0.get() as u32 & (MAX_PAGES - 1))
    }

    /// The part; 0 for a whole page.
    #[inline(always)]
    fn part(&self) -> u32 {
        (self.0.get() >> PART_SHIFT) as u32 & ((1 << (POOL_SHIFT - PART_SHIFT)) - 1)
    }

    /// Its handle, which must not outlive it.
    #[inline(always)]
    fn borrowed(&self) -> ManuallyDrop<PageBuf> {
        let (pool, page, part) = (self.pool(), self.page(), self.part());
        ManuallyDrop::new(match part {
            0 => PageBuf::whole(pool, page),
            MAY_HAVE_REFS => PageBuf::new(pool, page, FragBits::MAY_HAVE_REFS),
            _ => {
                let offset = (part >> LINES_BITS) << LINE_SHIFT;
                let len = (part & LINES_MASK) << LINE_SHIFT;
                PageBuf { pool, bits: HandleBits::frag(page, offset as usize, len as usize) }
            }
        })
    }

    /// See [`PageBuf::set_tag`].
    #[inline]
    pub fn set_tag(&mut self, tag: Tag) {
        self.borrowed().set_tag(tag);
    }

    /// The bytes for the packet; see [`PageBuf::packet`].
    #[inline]
    pub fn packet(&self) -> Option<&[u8]> {
        let (start, len) = self.packet_at()?;
        // SAFETY: I1, I3. This buffer owns the bytes, and is borrowed as long as they are.
        Some(unsafe { std::slice::from_raw_parts(start.as_ptr(), len) })
    }

    /// The bytes for the packet, mutable; see [`PageBuf::packet_mut`].
    #[inline]
    pub fn packet_mut(&mut self) -> Option<&mut [u8]> {
        let (start, len) = self.packet_at()?;
        // SAFETY: I1, I3. This buffer owns the bytes, and is borrowed exclusively as long as they are.
        Some(unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), len) })
    }

    /// Address and length of the packet's bytes, without building a handle.
    #[inline(always)]
    fn packet_at(&self) -> Option<(NonNull<u8>, usize)> {
        let (pool, page, part) = (self.pool(), self.page(), self.part());
        let base = NonZeroUsize::new(pool.base)?;
        let (offset, len) = match (part & LINES_MASK) as usize {
            0 => (pool.geometry.packet_offset(page), pool.geometry.max_len as usize),
            lines => (((part >> LINES_BITS) as usize) << LINE_SHIFT, lines << LINE_SHIFT),
        };
        let at = base.get() + page.offset() as usize + offset;
        // SAFETY: a nonzero base plus an offset within its area does not wrap to 0.
        Some((unsafe { NonNull::new_unchecked(std::ptr::with_exposed_provenance_mut(at)) }, len))
    }
}

impl From<PackedBuf> for PageBuf {
    #[inline]
    fn from(packed: PackedBuf) -> Self {
        packed.unpack()
    }
}

impl Drop for PackedBuf {
    #[inline]
    fn drop(&mut self) {
        drop(ManuallyDrop::into_inner(self.borrowed()));
    }
}

/// Returns packed buffers of any pools, mixed, and leaves the vector empty with its capacity, like
/// [`put_bulk`](crate::put_bulk). Any thread. A burst of whole pages of one pool reads the pool once.
///
/// ```
/// # use pagepool::{Arena, ArenaParams, Pool, PoolParams};
/// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
/// let pool = Pool::new(PoolParams::default(), arena)?.bind();
/// let (frag, page) = (pool.alloc_frag(1024).unwrap(), pool.alloc_page().unwrap());
/// let mut burst = vec![frag.pack().unwrap(), page.pack().unwrap()];
/// pagepool::put_packed(&mut burst);
/// assert_eq!((burst.len(), pool.inflight().out), (0, 0));
/// # Ok::<(), pagepool::Error>(())
/// ```
#[inline]
pub fn put_packed(burst: &mut Vec<PackedBuf>) {
    while !burst.is_empty() {
        let kept = burst.len().saturating_sub(Batch::MAX);
        let last = burst[kept..].len();
        // SAFETY: fewer than there are, all initialised. If a callback panics, the earlier chunks stay in the
        // vector.
        unsafe { burst.set_len(kept) };
        // SAFETY: these were the vector's elements until now, and it is borrowed exclusively.
        let chunk = unsafe { std::slice::from_raw_parts(burst.as_ptr().wrapping_add(kept), last) };
        // SAFETY: I1. They were removed from the vector, and are not read again.
        unsafe { put_chunk(chunk) };
    }
}

/// Returns up to [`Batch::MAX`] packed buffers, at least one.
///
/// # Safety
/// The caller gives them up: it neither reads nor drops any of them again.
#[inline(always)]
unsafe fn put_chunk(chunk: &[PackedBuf]) {
    let (first, part) = (chunk[0].0.get() >> PART_SHIFT, chunk[0].part());
    let others = || chunk.iter().fold(0, |others, packed| others | (packed.0.get() >> PART_SHIFT ^ first));
    if part != 0 || others() != 0 {
        // SAFETY: I1. The caller's promise.
        return unsafe { put_other(chunk) };
    }
    let pool = chunk[0].pool();
    let owner = pool.owner_here();
    if owner.is_none()
        && let Some(lane) = pool.message_only_lane()
    {
        return put_plain_remote(pool, lane, chunk, PackedBuf::page);
    }
    put_numbers(pool, owner, chunk);
}

/// Returns whole pages of one pool, by their numbers.
#[inline(always)]
fn put_numbers(pool: PoolPtr, owner: Option<OwnerProof>, chunk: &[PackedBuf]) {
    let mut numbers = [0; Batch::MAX];
    numbers.iter_mut().zip(chunk).for_each(|(number, packed)| *number = packed.page().0);
    match owner {
        Some(owner) => put_here(pool, owner, &numbers[..chunk.len()]),
        None => put_remote(pool, &numbers[..chunk.len()]),
    }
}

/// Returns a chunk that is not whole pages of one pool: fragments of one pool by their pages, all else by
/// [`put_mixed`].
///
/// # Safety
/// As for [`put_chunk`].
#[inline(never)]
unsafe fn put_other(chunk: &[PackedBuf]) {
    let pool = chunk[0].pool();
    let head_mask = pool.geometry.head_mask.get();
    let (mut others, mut whole, mut numbers) = (0, false, [0; Batch::MAX]);
    for (packed, number) in chunk.iter().zip(&mut numbers) {
        others |= (packed.0.get() ^ chunk[0].0.get()) >> POOL_SHIFT;
        whole |= packed.part() & LINES_MASK == 0;
        *number = packed.page().0 & head_mask;
    }
    if others == 0 && !whole {
        return put_frags(ReturnPath::Dropped, pool, &numbers[..chunk.len()]);
    }
    // SAFETY: I1. The caller's promise.
    unsafe { put_mixed(chunk) }
}

/// Returns buffers of several pools, or pages that may have a [`PageRef`](crate::PageRef).
///
/// # Safety
/// As for [`put_chunk`].
#[inline(never)]
unsafe fn put_mixed(chunk: &[PackedBuf]) {
    let mut handles = [const { MaybeUninit::<PageBuf>::uninit() }; Batch::MAX];
    for (packed, handle) in chunk.iter().zip(&mut handles) {
        handle.write(ManuallyDrop::into_inner(packed.borrowed()));
    }
    // SAFETY: one handle per buffer of the chunk was written just now.
    let handles =
        unsafe { std::slice::from_raw_parts_mut(handles.as_mut_ptr().cast::<PageBuf>(), chunk.len()) };
    // SAFETY: I1. Each owns what its packed buffer owned. The caller gave these up, and they are not read
    // again.
    unsafe { put_parted(handles) };
}
