//! A buffer with many readers.
//!
//! What   clones of one buffer; the drop of the last returns the buffer, once.
//! How    the page's record has one count for all shared buffers of the page: their clones beyond the first
//!        of each. A drop subtracts one; a drop that finds 0 returns a buffer. Thus as many buffers return as
//!        were shared, and the page is reused only after the last.
//! Alone  for a whole page, a count of 0 means one holder. Fragments of one page share the count: the drop of
//!        one may subtract a clone of another. Therefore the area also counts the page's shared fragments. A
//!        fragment has one holder if no clone is counted and it is the only shared one. A drop lowers this
//!        second count last, so `try_unique` reads it second.
//! Cost   clone and drop: one atomic read-modify-write each, in the page's record. For a fragment
//!        `into_shared` and the last drop cost one more each, beside the record.
//! Pairs  drop (Release on either count) -> the drop that finds 0, and `try_unique` (Acquire): all other
//!        clones have finished reading.

// UNSAFETY: the bytes of a buffer are reached through its handle; the handle is taken once.
#![expect(unsafe_code)]

use std::mem::ManuallyDrop;
use std::sync::atomic::Ordering;

use crate::buf::handle_bits::{FragBits, HandleBits};
use crate::buf::page_buf::PageBuf;
use crate::holders::tag::Tag;
use crate::mem::dma::{DeviceAddr, DomainId};
use crate::mem::page::PageIdx;

/// A read-only buffer that can be cloned, and gives `&[u8]` to many readers. Linux: `page_pool_ref_page`, and
/// a cloned skb's data.
///
/// ```
/// # use pagepool::{Arena, ArenaParams, Pool, PoolParams};
/// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
/// let pool = Pool::new(PoolParams::default(), arena)?.bind();
/// let mut buffer = pool.alloc_page().unwrap();
/// buffer.bytes_mut().unwrap()[0] = 7;
/// let shared = buffer.into_shared();
/// let clone = shared.clone();
/// let reader = std::thread::spawn(move || clone.bytes().unwrap()[0]);
/// assert_eq!(reader.join().unwrap(), 7);
/// drop(shared);
/// assert_eq!(pool.inflight().out, 0);
/// # Ok::<(), pagepool::Error>(())
/// ```
#[derive(Debug)]
pub struct SharedBuf(ManuallyDrop<PageBuf>);

impl PageBuf {
    /// Makes the buffer shared: clones on any thread can read it. The drop of the last clone returns the
    /// buffer; [`SharedBuf::try_unique`] makes it exclusive again. Allocates nothing, because the count is in
    /// the page's record. One atomic operation for a fragment.
    pub fn into_shared(self) -> SharedBuf {
        SharedBuf::count(&self);
        SharedBuf::counted(self)
    }
}

impl SharedBuf {
    /// Counts a buffer as shared, in its page.
    #[inline]
    pub(crate) fn count(buffer: &PageBuf) {
        if buffer.is_frag() {
            buffer.pool.area.shared_frags(buffer.page()).fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Reverts one [`count`](Self::count): this reader is done.
    #[inline]
    pub(crate) fn uncount(buffer: &PageBuf) {
        if buffer.is_frag() {
            // Release pairs with try_unique().
            buffer.pool.area.shared_frags(buffer.page()).fetch_sub(1, Ordering::Release);
        }
    }

    /// A reader of a buffer that was [counted](Self::count).
    #[inline]
    pub(crate) fn counted(mut buffer: PageBuf) -> Self {
        if !buffer.is_frag() {
            // The return then finds page references that were made through a clone.
            buffer.bits = HandleBits::new(buffer.bits.page(), FragBits::MAY_HAVE_REFS);
        }
        Self(ManuallyDrop::new(buffer))
    }

    /// A clone of a buffer that is not a `SharedBuf` yet. One atomic operation.
    ///
    /// # Safety
    /// The buffer was [counted](Self::count), and its holder makes it a `SharedBuf` with
    /// [`counted`](Self::counted) before it is dropped or written.
    #[inline]
    pub(crate) unsafe fn beside(buffer: &PageBuf) -> Self {
        // SAFETY: I1. The copy is never dropped, and the caller's promise makes it a clone among others.
        let same = ManuallyDrop::new(Self::counted(unsafe { std::ptr::read(buffer) }));
        Self::clone(&same)
    }

    /// Makes the buffer exclusive again, to write, split or turn it into an address, if this is its last
    /// clone. Otherwise `Err(self)`; the other readers are not affected. Like `Arc::try_unwrap`. Any thread;
    /// one or two loads, and for a fragment one atomic operation.
    ///
    /// A fragment is also refused while another fragment of its page is shared: they share a count of clones.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, Pool, PoolParams};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// let pool = Pool::new(PoolParams::default(), arena)?.bind();
    /// let shared = pool.alloc_page().unwrap().into_shared();
    /// let reader = shared.clone();
    /// let shared = shared.try_unique().expect_err("there is a reader");
    /// drop(reader);
    /// let mut buffer = shared.try_unique().expect("the last one");
    /// buffer.bytes_mut().unwrap()[0] = 7;
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    pub fn try_unique(self) -> Result<PageBuf, SharedBuf> {
        let (pool, page) = (self.0.pool, self.page());
        // Both Acquire: dropped clones have finished reading.
        if pool.page_meta(page).clones.load(Ordering::Acquire) != 0 {
            return Err(self);
        }
        if self.0.is_frag() {
            let shared = pool.area.shared_frags(page);
            if shared.load(Ordering::Acquire) != 1 {
                return Err(self);
            }
            shared.fetch_sub(1, Ordering::Relaxed); // no other reader is left
        }
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is not dropped, so the buffer is taken once. I1: there is no other clone, and only
        // this one could make one.
        Ok(unsafe { ManuallyDrop::take(&mut this.0) })
    }

    /// The buffer, for reading.
    #[inline]
    pub(crate) fn buffer(&self) -> &PageBuf {
        &self.0
    }

    /// See [`PageBuf::page`].
    pub fn page(&self) -> PageIdx {
        self.0.page()
    }

    /// See [`PageBuf::offset`].
    pub fn offset(&self) -> usize {
        self.0.offset()
    }

    /// See [`PageBuf::len`].
    #[expect(clippy::len_without_is_empty, reason = "a buffer is never empty")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// See [`PageBuf::bytes`].
    pub fn bytes(&self) -> Option<&[u8]> {
        self.0.bytes()
    }

    /// See [`PageBuf::packet`].
    pub fn packet(&self) -> Option<&[u8]> {
        self.0.packet()
    }

    /// See [`PageBuf::dma_addr`].
    pub fn dma_addr(&self) -> Option<DeviceAddr> {
        self.0.dma_addr()
    }

    /// See [`PageBuf::dma_addr_in`].
    pub fn dma_addr_in(&self, domain: DomainId) -> Option<DeviceAddr> {
        self.0.dma_addr_in(domain)
    }

    /// See [`PageBuf::set_tag`]. With several clones the last call counts.
    pub fn set_tag(&mut self, tag: Tag) {
        self.0.note_tag(tag);
    }

    /// See [`PageBuf::page_ref`].
    pub fn page_ref(&self) -> crate::PageRef {
        crate::PageRef::new(self.0.pool, self.page())
    }
}

impl Clone for SharedBuf {
    #[inline]
    fn clone(&self) -> Self {
        let PageBuf { pool, bits } = *self.0;
        let before = pool.page_meta(self.page()).clones.fetch_add(1, Ordering::Relaxed);
        if before > i32::MAX as u32 {
            std::process::abort(); // 2^31 forgotten clones: abort rather than wrap, like `Arc`
        }
        Self(ManuallyDrop::new(PageBuf { pool, bits }))
    }
}

impl Drop for SharedBuf {
    #[inline]
    fn drop(&mut self) {
        let clones = &self.0.pool.page_meta(self.0.page()).clones;
        let mut seen = clones.load(Ordering::Acquire); // pairs with the exchange of another drop
        while seen > 0 {
            match clones.compare_exchange_weak(seen, seen - 1, Ordering::Release, Ordering::Acquire) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
        Self::uncount(&self.0);
        // SAFETY: taken once: this value is being dropped. I1: no clone is counted, so this handle is the
        // buffer's own.
        unsafe { ManuallyDrop::drop(&mut self.0) };
    }
}
