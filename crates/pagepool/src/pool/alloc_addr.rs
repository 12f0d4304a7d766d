//! Allocation of whole pages as device addresses, for a fill ring.
//!
//! Who    the bound thread.
//! Cost   from the cache: two loads and two stores per page, without a handle between.

// UNSAFETY: addresses are written to the caller's memory, which need not be initialised; other languages find
// a pool by its address, and are responsible for its owner.
#![expect(unsafe_code)]

use std::ffi::c_void;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use crate::buf::raw_buf::{RawError, page_at};
use crate::buf::raw_bulk::{put_cached_addrs, put_cached_page};
use crate::core::pool_core::PoolPtr;
use crate::mem::dma::{DeviceAddr, Mapping};
use crate::mem::page::{BasePage, PageIdx};
use crate::pool::bound::Bound;
use crate::recycle::cache::OwnerProof;

impl Bound {
    /// Allocates whole pages as addresses in the pool's first domain, like [`alloc_page`](Self::alloc_page)
    /// and [`into_raw`](crate::PageBuf::into_raw) for each; returns how many. Fewer than fit means no more
    /// pages. [`PoolRef::put_addr_bulk`](crate::PoolRef::put_addr_bulk) returns them.
    ///
    /// # Errors
    /// If the pool has no domain, or its first domain's device was removed.
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
    #[track_caller]
    pub fn alloc_addr_bulk(&self, addrs: &mut [DeviceAddr]) -> Result<usize, RawError> {
        let (start, len) = (addrs.as_mut_ptr().cast(), addrs.len());
        // SAFETY: `MaybeUninit<DeviceAddr>` has the layout of `DeviceAddr`, and only addresses are written.
        self.alloc_addr_bulk_uninit(unsafe { std::slice::from_raw_parts_mut(start, len) })
    }

    /// [`alloc_addr_bulk`](Self::alloc_addr_bulk) into memory that need not be initialised. Returns how many
    /// leading entries it wrote. Only the C interface uses it.
    #[doc(hidden)]
    #[track_caller]
    pub fn alloc_addr_bulk_uninit(&self, addrs: &mut [MaybeUninit<DeviceAddr>]) -> Result<usize, RawError> {
        if self.core().mappings.is_empty() {
            return Err(RawError::NoDomain);
        }
        let mut done = 0;
        while let Some(room) = addrs.get_mut(done..).filter(|room| !room.is_empty()) {
            done += match self.cached_addrs().alloc(room) {
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

    /// The allocations and returns of addresses that run no callback.
    #[doc(hidden)]
    pub fn cached_addrs(&self) -> CachedAddrs<'_> {
        CachedAddrs { pool: self.ptr(), owner: self.owner(), bound: PhantomData }
    }

    /// Allocates one page that is not in the cache; 0 if there is none.
    #[cold]
    #[inline(never)]
    #[track_caller]
    fn addr_slow(&self, room: &mut [MaybeUninit<DeviceAddr>]) -> Result<usize, RawError> {
        let (Some(place), Some(buffer)) = (room.first_mut(), self.alloc_page()) else { return Ok(0) };
        let raw = buffer.into_raw().map_err(|_| RawError::DeviceGone)?;
        place.write(raw.addr);
        Ok(1)
    }
}

/// Whole pages as addresses, moved out of and into the owner's cache by a copy. Runs no callback, and does
/// not check which thread is the owner.
#[derive(Clone, Copy)]
pub struct CachedAddrs<'a> {
    pool: PoolPtr,
    owner: OwnerProof,
    bound: PhantomData<&'a Bound>,
}

impl CachedAddrs<'_> {
    /// For the pool with this [token](crate::PoolRef::token), without its [`Bound`].
    ///
    /// # Safety
    /// The pool is alive, and while this value lives only the calling thread uses its `Bound`.
    #[inline(always)]
    pub unsafe fn of(token: NonNull<c_void>) -> Self {
        // SAFETY: I2. The caller has the owner half.
        let owner = unsafe { OwnerProof::assume() };
        Self { pool: PoolPtr::new(token.cast()), owner, bound: PhantomData }
    }

    /// Allocates pages from the cache; returns how many.
    #[inline(always)]
    pub fn alloc(self, addrs: &mut [MaybeUninit<DeviceAddr>]) -> usize {
        let Self { pool, owner, .. } = self;
        let Some(mapping) = pool.own.raw.mapping() else { return 0 };
        let mut given = 0;
        pool.own.cache.take_while(owner, addrs.len(), |pages| {
            given = give_addrs(pool, mapping, pages, addrs);
            given
        });
        pool.own.counts.alloc_fast.add(given as u64);
        given
    }

    /// Allocates one page from the cache. `None` if the cache is empty, or if no single constant maps all
    /// offsets to addresses: then try [`alloc`](Self::alloc).
    #[inline(always)]
    pub fn alloc_one(self) -> Option<DeviceAddr> {
        let pool = self.pool;
        let add = pool.own.raw.mapping()?.giving()?;
        let page = pool.own.cache.pop(self.owner)?;
        pool.own.raw.pages().out(page);
        pool.own.counts.alloc_fast.add(1);
        Some(DeviceAddr(add.wrapping_add(pool.geometry.start_of(page))))
    }

    /// Returns whole pages by address, from the first on; returns how many. It does not touch the next one:
    /// [`PoolRef::put_addr_bulk`](crate::PoolRef::put_addr_bulk) returns it, or its error.
    #[inline(always)]
    pub fn put(self, addrs: &[DeviceAddr]) -> usize {
        put_cached_addrs(self.pool, self.owner, addrs)
    }

    /// Returns one whole page by address, if a single constant maps all addresses to offsets. Returns whether
    /// it did.
    #[inline(always)]
    pub fn put_one(self, addr: DeviceAddr) -> bool {
        let raw = &self.pool.own.raw;
        let linear = raw.mapping().and_then(|mapping| mapping.linear());
        linear.is_some_and(|linear| {
            put_cached_page(self.pool, self.owner, raw.head_of(addr.0.wrapping_sub(linear)))
        })
    }

    /// Returns one whole page by address, even if regions are not contiguous. Returns whether it did.
    #[inline(always)]
    pub fn put_one_by_region(self, addr: DeviceAddr) -> bool {
        page_at(self.pool, addr).is_some_and(|page| put_cached_page(self.pool, self.owner, page))
    }
}

/// Hands pages out as addresses, from the last on, until one has none; returns how many. All fit.
#[inline(always)]
fn give_addrs(
    pool: PoolPtr,
    mapping: &Mapping,
    pages: &[u32],
    addrs: &mut [MaybeUninit<DeviceAddr>],
) -> usize {
    let base_page = pool.geometry.base_page;
    let given = match mapping.giving() {
        Some(add) => {
            for (place, &page) in addrs.iter_mut().zip(pages.iter().rev()) {
                place.write(DeviceAddr(add.wrapping_add(base_page.start_of(PageIdx(page)))));
            }
            pages
        }
        None => addrs_of_each(mapping, base_page, pages, addrs),
    };
    // A separate loop keeps each loop's values in registers.
    // SAFETY: I3. A pool's page numbers come from its provider and are below the area's number of records.
    unsafe { pool.own.raw.pages().out_all(given) };
    given.len()
}

/// Writes the address of each page, from the last on. Returns the pages that have one.
#[cold]
#[inline(never)]
fn addrs_of_each<'a>(
    mapping: &Mapping,
    base_page: BasePage,
    pages: &'a [u32],
    addrs: &mut [MaybeUninit<DeviceAddr>],
) -> &'a [u32] {
    let mut left = pages;
    for place in addrs {
        let [rest @ .., page] = left else { break };
        let Some(addr) = mapping.addr_of(base_page.start_of(PageIdx(*page))) else { break };
        place.write(addr);
        left = rest;
    }
    &pages[left.len()..]
}
