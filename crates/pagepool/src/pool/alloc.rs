//! Allocation from the cache and from the open fragment page: the fast path.
//!
//! Who    the bound thread.
//! Order  cache -> lanes and ring -> provider, as in net/core/page_pool.c:page_pool_alloc_netmems (v7.3). All
//!        that follows the cache is in refill.rs.
//! Cost   from the cache: a load, a compare, two stores, one count. No atomic read-modify-write.

// UNSAFETY: fragment state is reached through its owner cell.
#![expect(unsafe_code)]

use crate::buf::batch::Batch;
use crate::buf::handle_bits::HandleBits;
use crate::buf::page_buf::PageBuf;
use crate::buf::sink::Sink;
use crate::mem::page::PageIdx;
use crate::pool::bound::Bound;

impl Bound {
    /// Allocates a whole page; `None` if there is none (counted in `alloc_failed`). Linux:
    /// `page_pool_dev_alloc_pages`.
    #[doc(alias = "page_pool_dev_alloc_pages")]
    #[inline]
    #[track_caller]
    pub fn alloc_page(&self) -> Option<PageBuf> {
        let pool = self.ptr();
        let bits = match pool.own.cache.pop(self.owner()) {
            Some(page) => {
                pool.own.counts.alloc_fast.add(1);
                HandleBits::whole(page)
            }
            // Only its bits: with one pool for both arms the optimiser sees that the fast path never is
            // `None`.
            None => self.alloc_slow()?.into_bits(),
        };
        Some(PageBuf { pool, bits })
    }

    /// Adds at most `n` whole pages to a vector, which does not grow, or to a [`Batch`]; returns how many. Fewer
    /// than `n` means that the vector or batch is full, that the batch has pages of another pool, or that there
    /// are no more pages. Filling and [putting](Batch::put) one batch repeatedly is the cheapest way to move
    /// bursts.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, Batch, Pool, PoolParams};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 16 << 12, ..Default::default() })?;
    /// let pool = Pool::new(PoolParams::default(), arena)?.bind(); // over 16 pages
    /// let (mut buffers, mut batch) = (Vec::with_capacity(64), Batch::new());
    /// assert_eq!(pool.alloc_bulk(&mut buffers, 10), 10);
    /// assert_eq!(pool.alloc_bulk(&mut batch, 10), 6, "that is all there is");
    /// assert_eq!(pool.stats().alloc_failed, 1);
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    #[inline]
    #[track_caller]
    pub fn alloc_bulk(&self, into: &mut impl Sink, n: usize) -> usize {
        let n = n.min(into.room_for(self.ptr()));
        let taken = self.bulk_cached(into, n);
        if taken < n { taken + self.bulk_slow(into, n - taken) } else { n }
    }

    /// Up to `n` pages from the cache. The sink has room for them.
    #[inline(always)]
    fn bulk_cached(&self, into: &mut impl Sink, n: usize) -> usize {
        let pool = self.ptr();
        let taken = pool.own.cache.take(self.owner(), n, |pages| into.receive(pool, pages));
        pool.own.counts.alloc_fast.add(taken as u64);
        taken
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn bulk_slow(&self, into: &mut impl Sink, n: usize) -> usize {
        let mut done = 0;
        while done < n {
            let Some(buffer) = self.alloc_slow() else { break };
            into.receive(self.ptr(), &[buffer.into_bits().whole_page().0]);
            done += 1;
            done += self.bulk_cached(into, n - done);
        }
        done
    }

    /// Allocates up to `n` whole pages, at most [`Batch::MAX`], as numbers.
    #[inline]
    #[track_caller]
    pub fn alloc_batch(&self, n: usize) -> Batch {
        let mut batch = Batch::empty(self.ptr());
        self.alloc_bulk(&mut batch, n);
        batch
    }

    /// Allocates a fragment of `size` bytes of a page that other fragments share. `None` if there is no page,
    /// or if the size is 0 or exceeds the page. It begins at a multiple of `frag_align`. Linux:
    /// `page_pool_dev_alloc_frag`.
    #[doc(alias = "page_pool_dev_alloc_frag")]
    #[inline]
    #[track_caller]
    pub fn alloc_frag(&self, size: usize) -> Option<PageBuf> {
        let pool = self.ptr();
        let (page, offset) = self.cut(size)?;
        Some(PageBuf::frag(pool, page, offset, size))
    }

    /// Allocates a fragment, or a whole page if two of `size` do not fit one; `len()` is the true size. If no
    /// other fragment of that size fits behind it, it gets the rest of the page. Linux:
    /// `page_pool_dev_alloc`.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, Pool, PoolParams};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// let pool = Pool::new(PoolParams { order: 3, ..Default::default() }, arena)?.bind();
    /// assert_eq!(pool.alloc(20_000).unwrap().len(), 32768);
    /// assert_eq!(pool.alloc(8590).unwrap().len(), 8590);
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    #[doc(alias = "page_pool_dev_alloc")]
    #[inline]
    #[track_caller]
    pub fn alloc(&self, size: usize) -> Option<PageBuf> {
        let pool = self.ptr();
        let page_size = pool.geometry.page_size();
        if size > page_size / 2 {
            return if size <= page_size { self.alloc_page() } else { self.failed() };
        }
        let (page, offset) = self.cut(size)?;
        // SAFETY: I2; no callback runs while the borrow lives.
        let frag = unsafe { &mut *pool.own.frag.get() };
        if frag.fits(size) {
            return Some(PageBuf::frag(pool, page, offset, size));
        }
        let rest = page_size - offset;
        frag.exhaust(rest - size);
        Some(PageBuf::frag(pool, page, offset, rest))
    }

    /// Returns a buffer of this pool into the cache, like a drop on this thread. `Err(buffer)` if it is of
    /// another pool. Linux: `page_pool_recycle_direct`.
    #[doc(alias = "page_pool_recycle_direct")]
    #[inline]
    pub fn recycle_direct(&self, buffer: PageBuf) -> Result<(), PageBuf> {
        if buffer.pool != self.ptr() {
            return Err(buffer);
        }
        drop(buffer);
        Ok(())
    }

    #[inline(always)]
    #[track_caller]
    fn cut(&self, size: usize) -> Option<(PageIdx, usize)> {
        let pool = self.ptr();
        // SAFETY: I2; no callback runs while the borrow lives.
        let fits = unsafe { &*pool.own.frag.get() }.fits(size);
        if !fits && !self.open_next(size) && !self.open_recorded(size) {
            return None;
        }
        // SAFETY: I2; no callback runs while the borrow lives.
        let frag = unsafe { &mut *pool.own.frag.get() };
        Some(frag.cut(size, pool.geometry.frag_step(size), pool.geometry.page_size))
    }
}
