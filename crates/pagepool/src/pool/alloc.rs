//! Allocation from the cache and from the open fragment page: the fast side.
//!
//! Who    the bound thread.
//! Order  cache -> lanes and ring -> provider, as in net/core/page_pool.c:page_pool_alloc_netmems (v7.3).
//!        What comes after the cache is in refill.rs.
//! Cost   from the cache: a load, a compare, two stores, one count. No atomic read-modify-write.

// UNSAFETY: fragment state is reached through its owner cell; handles are written behind a vector's end.
#![expect(unsafe_code)]

use crate::buf::batch::Batch;
use crate::buf::frag_run::FragRun;
use crate::buf::handle_bits::HandleBits;
use crate::buf::handle_copy;
use crate::buf::packed_buf::PackedBuf;
use crate::buf::page_buf::PageBuf;
use crate::mem::page::PageIdx;
use crate::pool::bound::Bound;

impl Bound {
    /// A whole page, or `None` if there is none: `alloc_failed` counts it. Linux:
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
            // Only its bits: with one pool for both, the optimiser sees that the fast side never is `None`.
            None => self.alloc_slow()?.into_bits(),
        };
        Some(PageBuf { pool, bits })
    }

    /// Puts up to `n` whole pages into the vector's spare capacity, which does not grow; returns how many.
    /// Fewer than `n` means a full vector or no more pages.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, Pool, PoolParams};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 16 << 12, ..Default::default() })?;
    /// let pool = Pool::new(PoolParams::default(), arena)?.bind(); // over 16 pages
    /// let mut buffers = Vec::with_capacity(64);
    /// assert_eq!(pool.alloc_bulk(&mut buffers, 10), 10);
    /// assert_eq!(pool.alloc_bulk(&mut buffers, 10), 6, "that is all there is");
    /// assert_eq!(pool.stats().alloc_failed, 1);
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    #[inline]
    #[track_caller]
    pub fn alloc_bulk(&self, buffers: &mut Vec<PageBuf>, n: usize) -> usize {
        let n = n.min(buffers.capacity() - buffers.len());
        let taken = self.bulk_cached(buffers, n);
        if taken < n { taken + self.bulk_slow(buffers, n - taken) } else { n }
    }

    /// Up to `n` pages of the cache, for which the vector has spare capacity.
    #[inline(always)]
    fn bulk_cached(&self, buffers: &mut Vec<PageBuf>, n: usize) -> usize {
        let pool = self.ptr();
        let len = buffers.len();
        let taken = pool.own.cache.take(self.owner(), n, |pages| {
            handle_copy::write_whole(pool, pages, buffers.spare_capacity_mut());
        });
        // SAFETY: the first `taken` entries behind `len` were written just now, into spare capacity.
        unsafe { buffers.set_len(len + taken) };
        pool.own.counts.alloc_fast.add(taken as u64);
        taken
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn bulk_slow(&self, buffers: &mut Vec<PageBuf>, n: usize) -> usize {
        let mut done = 0;
        while done < n {
            let Some(buffer) = self.alloc_slow() else { break };
            buffers.push(buffer);
            done += 1;
            done += self.bulk_cached(buffers, n - done);
        }
        done
    }

    /// Puts up to `n` whole pages, packed, into the vector's spare capacity, which does not grow; returns how
    /// many. Fewer than `n` means a full vector, no more pages, or, with 0, more than 65,535 pools.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, Pool, PoolParams};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// let pool = Pool::new(PoolParams::default(), arena)?.bind();
    /// let mut burst = Vec::with_capacity(32);
    /// assert_eq!(pool.alloc_packed(&mut burst, 32), 32);
    /// std::thread::scope(|threads| threads.spawn(|| pagepool::put_packed(&mut burst)).join()).unwrap();
    /// assert_eq!((burst.len(), pool.stats().recycle_ring), (0, 32));
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    #[inline]
    #[track_caller]
    pub fn alloc_packed(&self, burst: &mut Vec<PackedBuf>, n: usize) -> usize {
        let n = n.min(burst.capacity() - burst.len());
        let pool = self.ptr();
        let Some(packed) = PackedBuf::packing(pool) else { return 0 };
        let mut done = 0;
        loop {
            let taken = pool.own.cache.take(self.owner(), n - done, |pages| {
                burst.extend(pages.iter().map(|&page| packed(page)));
            });
            pool.own.counts.alloc_fast.add(taken as u64);
            done += taken;
            if done == n {
                return n;
            }
            let Some(Ok(slow)) = self.alloc_slow().map(PageBuf::pack) else { return done };
            burst.push(slow);
            done += 1;
        }
    }

    /// Up to `n` whole pages, at most [`Batch::MAX`], as numbers.
    #[inline]
    #[track_caller]
    pub fn alloc_batch(&self, n: usize) -> Batch {
        let mut batch = Batch::empty(self.ptr());
        self.alloc_batch_into(&mut batch, n);
        batch
    }

    /// Adds up to `n` whole pages to a batch of this pool, as far as it has room; says how many. A batch that
    /// is filled and [put](Batch::put) over and over is the cheapest way to move bursts. A batch of another
    /// pool stays as it is.
    #[inline]
    #[track_caller]
    pub fn alloc_batch_into(&self, batch: &mut Batch, n: usize) -> usize {
        let pool = self.ptr();
        let n = n.min(batch.room_for(pool));
        let taken = pool.own.cache.take(self.owner(), n, |pages| batch.extend(pages));
        pool.own.counts.alloc_fast.add(taken as u64);
        if taken < n { taken + self.batch_slow(batch, n - taken) } else { n }
    }

    #[cold]
    #[track_caller]
    fn batch_slow(&self, batch: &mut Batch, n: usize) -> usize {
        let pool = self.ptr();
        let mut done = 0;
        let mut unfit = 0;
        while done < n {
            let Some(buffer) = self.alloc_slow() else { break };
            if let Err(emergency) = batch.push(buffer) {
                // An emergency page does not fit a batch, and leaves the pool. The provider may give it again
                // at once, so this gives up after a batch of them, as any allocation that fails.
                drop(emergency);
                unfit += 1;
                if unfit < Batch::MAX {
                    continue;
                }
                let Some(page) = self.last_look_recorded().or_else(|| self.failed()) else { break };
                batch.extend(&[page.0]);
            }
            let taken = pool.own.cache.take(self.owner(), n - done - 1, |pages| batch.extend(pages));
            pool.own.counts.alloc_fast.add(taken as u64);
            done += taken + 1;
        }
        done
    }

    /// A fragment of `size` bytes of a page that is shared with other fragments; `None` for a size of 0 or
    /// beyond the page, or when there is no page. Begins at a multiple of `frag_align`. Linux:
    /// `page_pool_dev_alloc_frag`.
    #[doc(alias = "page_pool_dev_alloc_frag")]
    #[inline]
    #[track_caller]
    pub fn alloc_frag(&self, size: usize) -> Option<PageBuf> {
        let pool = self.ptr();
        let (page, offset) = self.cut(size)?;
        Some(PageBuf::frag(pool, page, offset, size))
    }

    /// Puts up to `n` fragments of `size` bytes into the vector's spare capacity, which does not grow;
    /// returns how many. As [`alloc_frag`](Self::alloc_frag) so often, but what a page has room for is cut in
    /// one step. Fragments of one page that return together share a message, up to as many as the page has
    /// base pages: a pool of order 5 or more suits bursts.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, Pool, PoolParams};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// let pool = Pool::new(PoolParams { order: 5, ..Default::default() }, arena)?.bind();
    /// let mut burst = Vec::with_capacity(100);
    /// assert_eq!(pool.alloc_frag_bulk(&mut burst, 2048, 100), 100);
    /// assert_eq!((burst[63].offset(), burst[64].offset()), (63 * 2048, 0), "64 in a page of 128 KiB");
    /// pagepool::put_bulk(&mut burst);
    /// assert_eq!(pool.inflight().out, 0);
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    #[inline]
    #[track_caller]
    pub fn alloc_frag_bulk(&self, buffers: &mut Vec<PageBuf>, size: usize, n: usize) -> usize {
        let pool = self.ptr();
        let n = n.min(buffers.capacity() - buffers.len());
        self.cut_many(size, n, |page, offset, step, cut| {
            let room = &mut buffers.spare_capacity_mut()[..cut];
            let mut start = page.offset() + offset as u64;
            for place in room {
                place.write(PageBuf { pool, bits: HandleBits::frag_from(start, size) });
                start += step as u64;
            }
            // SAFETY: as many entries behind the length were written just now, within the capacity.
            unsafe { buffers.set_len(buffers.len() + cut) };
        })
    }

    /// Up to `n` fragments of `size` bytes that lie one behind the other in a page: as many as the open page
    /// has room for, at most [`FragRun::MAX`]. `None` for an `n` of 0, and where
    /// [`alloc_frag`](Self::alloc_frag) gives none.
    #[inline]
    #[track_caller]
    pub fn alloc_frag_run(&self, size: usize, n: usize) -> Option<FragRun> {
        let mut run = None;
        let most = n.min(FragRun::MAX);
        self.cut_once(size, most, |page, offset, step, cut| {
            run = Some(FragRun::new(PageBuf::frag(self.ptr(), page, offset, size), cut, step));
        });
        run
    }

    /// Puts up to `n` fragments, packed, into the vector's spare capacity, which does not grow; returns how
    /// many. Each has `size` bytes, rounded up to cache lines. Fewer than `n` means a full vector, no more
    /// pages, or, with 0, a size of 0 or that cannot be packed (beyond 4095 lines, or with a `frag_align`
    /// below 64), or more than 65,535 pools.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, Pool, PoolParams};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// let pool = Pool::new(PoolParams { order: 5, ..Default::default() }, arena)?.bind();
    /// let mut burst = Vec::with_capacity(32);
    /// assert_eq!(pool.alloc_frag_packed(&mut burst, 2000, 32), 32);
    /// std::thread::scope(|threads| threads.spawn(|| pagepool::put_packed(&mut burst)).join()).unwrap();
    /// assert_eq!((burst.len(), pool.frag_waste()), (0, 0));
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    #[inline]
    #[track_caller]
    pub fn alloc_frag_packed(&self, burst: &mut Vec<PackedBuf>, size: usize, n: usize) -> usize {
        let Some((size, packed)) = PackedBuf::packing_frags(self.ptr(), size) else { return 0 };
        let n = n.min(burst.capacity() - burst.len());
        self.cut_many(size, n, |page, offset, step, cut| {
            burst.extend((0..cut).map(|at| packed(page, offset + at * step)));
        })
    }

    /// Cuts up to `n` fragments of `size`, and tells `each` of the page, the offset of the first, the bytes
    /// from one to the next, and how many follow each other. It must not run a callback. Says how many.
    #[inline(always)]
    #[track_caller]
    fn cut_many(&self, size: usize, n: usize, mut each: impl FnMut(PageIdx, usize, usize, usize)) -> usize {
        let mut done = 0;
        while done < n {
            match self.cut_once(size, n - done, &mut each) {
                0 => break,
                cut => done += cut,
            }
        }
        done
    }

    /// The same for what one page has.
    #[inline(always)]
    #[track_caller]
    fn cut_once(&self, size: usize, n: usize, each: impl FnOnce(PageIdx, usize, usize, usize)) -> usize {
        let pool = self.ptr();
        // SAFETY: I2; no callback runs while the borrow lives.
        let fits = unsafe { &*pool.own.frag.get() }.fits(size);
        if n == 0 || !fits && !self.open_next(size) && !self.open_recorded(size) {
            return 0;
        }
        let step = pool.geometry.frag_step(size);
        // SAFETY: I2; no callback runs while the borrow lives.
        let frag = unsafe { &mut *pool.own.frag.get() };
        let (page, offset, cut) = frag.cut_many(size, step, pool.geometry.page_size, n);
        each(page, offset, step as usize, cut);
        cut
    }

    /// A whole page if two of `size` do not fit one, else a fragment; `len()` is the true size. Where no
    /// other fragment of that size would fit behind it, the rest of the page belongs to it. Linux:
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

    /// Returns a buffer of this pool into the cache; another pool's comes back. Dropping it on this
    /// thread does the same. Linux: `page_pool_recycle_direct`.
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
