//! A reference to a page, without its bytes, that outlives the buffer.
//!
//! Who    any thread. The count is in the page's record; a page that returns while it is not 0 leaves its
//!        pool.
//! Pairs  PageRef::drop (AcqRel) against clear_record (AcqRel) on the same word: the one that makes it "left,
//!        no reference" gives the memory back, once.

// UNSAFETY: the last reference gives the page back to its provider.
#![expect(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::buf::handle_bits::{FragBits, HandleBits};
use crate::buf::page_buf::PageBuf;
use crate::core::pool_core::PoolPtr;
use crate::mem::page::{LEFT, PageIdx, REF_COUNT};
use crate::mem::provider::{Provider, give_back};

/// Prevents reuse of a page's memory, even after its buffer returned, until this is dropped. For DMA that
/// cannot be stopped, or a reader outside this process. Gives no access to the bytes. Linux: an extra page
/// reference.
#[derive(Debug)]
#[must_use = "a reference that is dropped at once keeps nothing"]
pub struct PageRef {
    provider: Arc<dyn Provider>,
    page: PageIdx,
    order: u8,
}

impl PageBuf {
    /// Prevents reuse of the page's memory beyond the life of the buffer. If the page returns while the
    /// reference lives, it leaves the pool (`recycle_released_refcnt`), and the last reference gives its
    /// memory back to the provider. Linux: an extra page reference. Any thread; one atomic operation.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, Pool, PoolParams};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// let pool = Pool::new(PoolParams::default(), arena.clone())?.bind();
    /// let mut buffer = pool.alloc_page().unwrap();
    /// let page_ref = buffer.page_ref();
    /// drop(buffer);
    /// assert_eq!((pool.stats().recycle_released_refcnt, pool.inflight().total), (1, 63));
    /// assert_eq!(arena.pages_out(), 64, "its memory is not the arena's yet");
    /// drop(page_ref);
    /// assert_eq!(arena.pages_out(), 63);
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    pub fn page_ref(&mut self) -> PageRef {
        if !self.bits.frag_bits().is_frag() {
            self.bits = HandleBits::new(self.bits.page(), FragBits::MAY_HAVE_REFS);
        }
        PageRef::new(self.pool, self.page())
    }
}

impl PageRef {
    /// One more reference. The caller has a buffer of the page.
    pub(crate) fn new(pool: PoolPtr, page: PageIdx) -> Self {
        let before = pool.page_meta(page).refs.fetch_add(1, Ordering::Relaxed);
        if before & REF_COUNT > REF_COUNT / 2 {
            std::process::abort(); // 2^30 forgotten references: abort rather than wrap, like `Arc`
        }
        Self { provider: pool.provider().clone(), page, order: pool.geometry.order() }
    }

    /// The referenced page.
    pub fn page(&self) -> PageIdx {
        self.page
    }

    /// Address of the page's first byte; `None` for memory that the CPU cannot read. The process and its
    /// device must agree on who accesses the bytes.
    pub fn as_ptr(&self) -> Option<*mut u8> {
        let area = self.provider.area();
        area.base().map(|base| (base + area.offset_of(self.page) as usize) as *mut u8)
    }
}

impl Drop for PageRef {
    fn drop(&mut self) {
        let meta = self.provider.area().meta(self.page);
        let before = meta.refs.fetch_sub(1, Ordering::AcqRel); // pairs with clear_record()
        if before & REF_COUNT == 1 && before & LEFT != 0 {
            meta.refs.store(0, Ordering::Relaxed); // no other thread changes the word
            // SAFETY: I1. The page left its pool with this order, and this was its last reference: it has no
            // other user.
            unsafe { give_back(&*self.provider, self.order, &[self.page]) };
        }
    }
}
