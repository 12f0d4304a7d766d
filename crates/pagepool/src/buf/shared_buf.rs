//! A buffer with many readers.
//!
//! What   clones of one buffer; dropping the last one returns the buffer, once.
//! How    the page's record has one count for all shared buffers of the page: the clones beyond the first of
//!        each. A drop subtracts one; a drop that finds 0 returns a buffer. So as many buffers return as were
//!        shared, the last one with the last drop; and a page is used again only when all its fragments have
//!        returned.
//! Cost   clone and drop: one atomic read-modify-write each, in the page's record. No other buffer type has
//!        any.
//! Pairs  drop (Release on the count) -> the drop that finds 0 (Acquire): the reads of all other clones are
//!        over.

// UNSAFETY: the bytes of a buffer are reached through its handle; the handle is taken once.
#![expect(unsafe_code)]

use std::mem::ManuallyDrop;
use std::sync::atomic::Ordering;

use crate::buf::handle_bits::{FragBits, HandleBits};
use crate::buf::page_buf::PageBuf;
use crate::mem::dma::{DeviceAddr, DomainId};
use crate::mem::page::PageIdx;

/// A read-only buffer with many readers: it can be cloned, and gives `&[u8]`. Linux: `page_pool_ref_page`,
/// and a cloned skb's data.
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
    /// Makes the buffer shared: readable through clones on any thread. Dropping the last clone returns the
    /// buffer. Allocates nothing: the count is in the page's record.
    pub fn into_shared(self) -> SharedBuf {
        SharedBuf::new(self)
    }
}

impl SharedBuf {
    pub(crate) fn new(mut buffer: PageBuf) -> Self {
        if !buffer.is_frag() {
            // Page references made through a clone are found when it returns.
            buffer.bits = HandleBits::new(buffer.bits.page(), FragBits::SPECIAL);
        }
        Self(ManuallyDrop::new(buffer))
    }

    /// A clone of a buffer that is not a `SharedBuf` yet. One atomic operation.
    ///
    /// # Safety
    /// The holder of the buffer turns it into a `SharedBuf` before dropping it.
    pub(crate) unsafe fn beside(buffer: &PageBuf) -> Self {
        // SAFETY: I1. The copy is never dropped, and the caller's promise makes it a clone among others.
        let same = ManuallyDrop::new(Self::new(unsafe { std::ptr::read(buffer) }));
        Self::clone(&same)
    }

    /// The buffer, for reading.
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

    /// See [`PageBuf::page_ref`].
    pub fn page_ref(&self) -> crate::PageRef {
        crate::PageRef::new(self.0.pool, self.page())
    }
}

impl Clone for SharedBuf {
    fn clone(&self) -> Self {
        let PageBuf { pool, bits } = *self.0;
        let before = pool.page_meta(self.page()).clones.fetch_add(1, Ordering::Relaxed);
        if before > i32::MAX as u32 {
            std::process::abort(); // 2^31 forgotten clones: as `Arc`, abort rather than wrap
        }
        Self(ManuallyDrop::new(PageBuf { pool, bits }))
    }
}

impl Drop for SharedBuf {
    fn drop(&mut self) {
        let clones = &self.0.pool.page_meta(self.0.page()).clones;
        let mut seen = clones.load(Ordering::Acquire); // pairs with the exchange of another drop
        while seen > 0 {
            match clones.compare_exchange_weak(seen, seen - 1, Ordering::Release, Ordering::Acquire) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
        // SAFETY: taken once: this value is being dropped. I1: with no clone counted, this handle is the
        // buffer's own.
        unsafe { ManuallyDrop::drop(&mut self.0) };
    }
}
