//! Allocation of whole pages as device addresses, for a fill ring.
//!
//! Who    the bound thread.
//! Cost   from the cache: two loads and two stores a page, without a handle between.

// UNSAFETY: a caller's addresses are written where nothing has to be initialised.
#![expect(unsafe_code)]

use std::mem::MaybeUninit;

use crate::buf::raw_buf::RawError;
use crate::buf::raw_bulk::put_cached_addr;
use crate::mem::dma::{DeviceAddr, Mapping};
use crate::mem::page::PageIdx;
use crate::pool::bound::Bound;
use crate::returns::pool_core::PoolPtr;

impl Bound {
    /// Allocates whole pages as addresses in the pool's first domain, as [`alloc_page`](Self::alloc_page)
    /// and [`into_raw`](crate::PageBuf::into_raw) of each would; says how many. Fewer than there is room for
    /// means no more pages. [`PoolRef::put_addr_bulk`](crate::PoolRef::put_addr_bulk) returns them.
    ///
    /// A pool without domains is an error, and so is one whose device was removed.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, DeviceAddr, OffsetDomain, Pool, PoolParams};
    /// # use std::sync::Arc;
    /// # let arena = Arena::new(ArenaParams { max_bytes: 16 << 12, ..Default::default() })?;
    /// let params = PoolParams { domains: vec![Arc::new(OffsetDomain::new("umem"))], ..Default::default() };
    /// let pool = Pool::new(params, arena)?.bind(); // over 16 pages
    /// let mut fill = [DeviceAddr(0); 32];
    /// assert_eq!(pool.alloc_addr_bulk(&mut fill), Ok(16), "that is all there is");
    /// assert!(fill[..16].iter().all(|addr| addr.0 < 16 << 12));
    /// # pool.handle().put_addr_bulk(&fill[..16]).unwrap();
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    #[doc(alias = "page_pool_dev_alloc_pages")]
    #[inline]
    pub fn alloc_addr_bulk(&self, addrs: &mut [DeviceAddr]) -> Result<usize, RawError> {
        let (start, len) = (addrs.as_mut_ptr().cast(), addrs.len());
        // SAFETY: `MaybeUninit<DeviceAddr>` has the layout of `DeviceAddr`, and only addresses are written.
        self.alloc_addr_bulk_uninit(unsafe { std::slice::from_raw_parts_mut(start, len) })
    }

    /// The same into memory that need not be initialised: of that, as many as it says are addresses after it.
    pub fn alloc_addr_bulk_uninit(&self, addrs: &mut [MaybeUninit<DeviceAddr>]) -> Result<usize, RawError> {
        if self.core().mappings.is_empty() {
            return Err(RawError::NoDomain);
        }
        let mut done = 0;
        while let Some(room) = addrs.get_mut(done..).filter(|room| !room.is_empty()) {
            done += match self.alloc_cached_addrs(room) {
                0 => match self.addr_slow(room) {
                    Err(error) if done == 0 => return Err(error),
                    Err(_) | Ok(0) => break,
                    Ok(one) => one,
                },
                given => given,
            };
        }
        Ok(done)
    }

    /// The same for pages that the cache has. Makes no callback.
    #[inline]
    pub fn alloc_cached_addrs(&self, addrs: &mut [MaybeUninit<DeviceAddr>]) -> usize {
        let pool = self.ptr();
        let Some(mapping) = self.core().mappings.first() else { return 0 };
        let mut given = 0;
        pool.own.cache.take_while(self.owner(), addrs.len(), |pages| {
            given = give_addrs(pool, mapping, pages, addrs);
            given
        });
        pool.own.counts.alloc_fast.add(given as u64);
        given
    }

    /// Returns a whole page by its address if that takes no more than a store into the cache; says whether it
    /// did. If not, nothing happened: [`PoolRef::put_addr_bulk`](crate::PoolRef::put_addr_bulk) returns it,
    /// or says what is wrong. Makes no callback.
    #[inline]
    pub fn put_cached_addr(&self, addr: DeviceAddr) -> bool {
        put_cached_addr(self.ptr(), self.owner(), addr)
    }

    /// One that is not in the cache, or none.
    #[cold]
    #[inline(never)]
    fn addr_slow(&self, room: &mut [MaybeUninit<DeviceAddr>]) -> Result<usize, RawError> {
        let (Some(place), Some(buffer)) = (room.first_mut(), self.alloc_page()) else { return Ok(0) };
        let raw = buffer.into_raw().map_err(|_| RawError::DeviceGone)?;
        place.write(raw.addr);
        Ok(1)
    }
}

/// Gives pages out as addresses, from the last on, up to one that has none; says how many.
#[inline(always)]
fn give_addrs(
    pool: PoolPtr,
    mapping: &Mapping,
    pages: &[u32],
    addrs: &mut [MaybeUninit<DeviceAddr>],
) -> usize {
    let addr_of = mapping.addrs();
    let mut places = addrs.iter_mut();
    let mut left = pages;
    while let [rest @ .., page] = left {
        let Some(addr) = addr_of(PageIdx(*page).offset()) else { break };
        let Some(place) = places.next() else { break };
        place.write(addr);
        left = rest;
    }
    // Apart, so that each loop has its values in registers.
    let raw = pool.raw_pages();
    let given = pages.get(left.len()..).unwrap_or_default();
    given.iter().for_each(|&page| raw.out(PageIdx(page)));
    given.len()
}
