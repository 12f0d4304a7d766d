//! The return half as a value: observing a pool, and bringing raw addresses back, from any thread.

// UNSAFETY: a count of the pool is taken through its address.
#![expect(unsafe_code)]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use crate::area::Area;
use crate::buf::PageBuf;
use crate::dma::DeviceAddr;
use crate::raw::RawError;
use crate::shared::{Home, Shared};
use crate::stats::{Inflight, Stats};

/// The return half of a pool, and its observer: for any thread, as many as wanted. It does not keep the pool from ending.
#[derive(Clone, Debug)]
pub struct PoolRef(Arc<Shared>);

impl PoolRef {
    pub(crate) fn new(home: Home) -> Self {
        // SAFETY: the pool was made by `Arc::into_raw` and has not ended: the caller has the owner half.
        unsafe { Arc::increment_strong_count(home.0.as_ptr()) };
        // SAFETY: the count that was just added is this one's.
        Self(unsafe { Arc::from_raw(home.0.as_ptr()) })
    }

    pub(crate) fn home(&self) -> Home {
        Home(NonNull::from(&*self.0))
    }

    /// The pool's id, never used again by another pool of this process.
    pub fn id(&self) -> u32 {
        self.0.id
    }

    /// The pool's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The area that its pages lie in.
    pub fn area(&self) -> &Arc<Area> {
        &self.0.area
    }

    /// What the pool has done so far, at no cost to its owner.
    #[doc(alias = "page_pool_get_stats")]
    pub fn stats(&self) -> Stats {
        stats(&self.0)
    }

    /// Where its pages are.
    pub fn inflight(&self) -> Inflight {
        inflight(&self.0)
    }

    /// Bytes of fragment pages that no piece reports as its own, over all pages that were cut up so far: rounding
    /// between pieces, and the tail that was too short for the next one. A page counts when the next is opened.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, Pool, PoolParams};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// let pool = Pool::new(PoolParams { order: 3, ..Default::default() }, arena)?.bind();
    /// let pieces: Vec<_> = (0..16).map(|_| pool.alloc_frag(2090).unwrap()).collect();
    /// assert_eq!(pool.handle().frag_waste(), 32768 - 15 * 2090);
    /// # drop(pieces);
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    pub fn frag_waste(&self) -> u64 {
        self.0.own.frag_waste.read()
    }

    /// Whether the pool has been destroyed. Its last buffers may still be out.
    pub fn is_destroyed(&self) -> bool {
        self.0.returns.lock().detached
    }

    /// Makes an address that came back from a descriptor ring a buffer again. The address may lie anywhere in the
    /// buffer, as devices give it with headroom added. A piece comes back with its size rounded up to whole cache lines,
    /// which are its own.
    ///
    /// Refused, in release builds too, and nothing changed: an address that is not the pool's or is not out in raw form.
    /// An address that is brought twice with a new hand-out of the same buffer in between cannot be detected. Any thread;
    /// one atomic operation. Dropping the buffer is the return.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, IdentityDomain, Pool, PoolParams};
    /// # use std::sync::Arc;
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// let params = PoolParams { domains: vec![Arc::new(IdentityDomain::new("nic0"))], ..Default::default() };
    /// let pool = Pool::new(params, arena)?.bind();
    /// let raw = pool.alloc_page().unwrap().into_raw().unwrap();
    /// let returns = pool.handle();
    /// let buffer = returns.from_raw(raw.addr).unwrap();
    /// assert!(returns.from_raw(raw.addr).is_err(), "it is not out any more");
    /// # drop(buffer);
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    pub fn from_raw(&self, addr: DeviceAddr) -> Result<PageBuf, RawError> {
        let pool = NonNull::new(Arc::as_ptr(&self.0).cast_mut()).expect("an Arc is never null");
        crate::raw::from_raw(Home(pool), addr)
    }
}

pub(crate) fn stats(shared: &Shared) -> Stats {
    let mut stats = Stats::default();
    // Releases first, holds last: a reader beside the owner never sees more pages gone than came.
    let late = shared.late.load(Ordering::Acquire);
    shared.returned.add_to(&mut stats);
    stats.recycle_ring += shared.late_ring.read();
    stats.recycle_ring += shared.lanes.iter().map(|lane| lane.pages_pushed()).sum::<u64>();
    shared.own.counts.add_to(&mut stats);
    stats.release = stats.release.wrapping_add(late);
    fence(Ordering::Acquire); // what was released had been held before
    stats.hold = shared.own.counts.hold.read();
    stats
}

pub(crate) fn inflight(shared: &Shared) -> Inflight {
    let total = stats(shared).inflight().max(0);
    let cache = shared.own.cache.count() as u64;
    let lanes = shared.lanes.iter().map(|lane| lane.pages_in()).sum();
    let taken = shared.ring.pages_taken();
    let ring = shared.returned.recycle_ring.read().saturating_sub(taken);
    let frag = u64::from(shared.own.frag_is_open());
    let out = (total as u64).saturating_sub(cache + lanes + ring + frag);
    Inflight { total, cache, lanes, ring, frag, out }
}
