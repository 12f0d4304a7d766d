//! Observes a pool, and returns raw addresses to it, from any thread.

// UNSAFETY: a pool is reached by its address, and its registration while it has not ended.
#![expect(unsafe_code)]

use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Weak};

use crate::buf::page_buf::PageBuf;
use crate::buf::raw_buf::{self, RawError};
use crate::buf::raw_bulk::put_addrs;
use crate::core::pool_core::{PoolCore, PoolPtr};
use crate::core::registry::{AnyPool, MemId, Registry};
use crate::holders::view::HoldersView;
use crate::mem::area::Area;
use crate::mem::dma::DeviceAddr;
use crate::returns::complete_pages::complete_pages;
use crate::stats::{DeferredStats, Inflight, Stats};
use crate::sys::placed::{Placed, Shared};

/// A handle to a pool for any thread: reads counters and page locations, and takes raw addresses back. Cheap
/// to clone. Does not prevent the pool's end.
#[derive(Clone, Debug)]
pub struct PoolRef(Shared<PoolCore>);

impl PoolRef {
    pub(crate) fn new(pool: PoolPtr) -> Self {
        // SAFETY: I9. The pool has not ended: the caller has the owner half.
        let pool = unsafe { pool.get().as_ref() };
        Self(pool.count.upgrade().expect("I9: a pool keeps a count of itself until it ends").into())
    }

    pub(crate) fn ptr(&self) -> PoolPtr {
        PoolPtr::new(NonNull::from(&*self.0))
    }

    pub(crate) fn core(&self) -> &PoolCore {
        &self.0
    }

    /// The pool's id. No other pool of this process ever has it.
    pub fn id(&self) -> u32 {
        self.0.id
    }

    /// The pool's id in its registry. Another pool may get the id after this one is destroyed and its last
    /// buffer returned.
    pub fn mem_id(&self) -> MemId {
        self.0.mem_id
    }

    /// The pool's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The area with the pool's pages.
    pub fn area(&self) -> &Arc<Area> {
        &self.0.area
    }

    /// The counters of the pool. Costs the owner nothing.
    #[doc(alias = "page_pool_get_stats")]
    pub fn stats(&self) -> Stats {
        stats(&self.0)
    }

    /// Where the pool's pages are. Any thread. If returned fragments wait for the owner, it reads their
    /// messages, allocates, and may take the return lock: for observers, not for every packet.
    pub fn inflight(&self) -> Inflight {
        inflight(&self.0)
    }

    /// Counters of the deferred queue; all 0 in a pool without one.
    pub fn deferred_stats(&self) -> DeferredStats {
        deferred_stats(&self.0)
    }

    /// Bytes of fragment pages that belong to no fragment: rounding, and tails too short for the next
    /// fragment. A page counts once the next is opened.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, Pool, PoolParams};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// let pool = Pool::new(PoolParams { order: 3, ..Default::default() }, arena)?.bind();
    /// let fragments: Vec<_> = (0..16).map(|_| pool.alloc_frag(2090).unwrap()).collect();
    /// assert_eq!(pool.handle().frag_waste(), 32768 - 15 * 2090);
    /// # drop(fragments);
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    pub fn frag_waste(&self) -> u64 {
        self.0.own.frag_waste.read()
    }

    /// Who holds the pool's pages, and for how long. `None` in a pool without
    /// [`holders`](crate::PoolParams::holders). Any thread; time in proportion to the area's pages.
    pub fn holders(&self) -> Option<HoldersView> {
        self.0.holders.as_ref().map(|holders| holders.view(&complete_pages(&self.0)))
    }

    /// Whether the pool records who holds its pages: one load.
    pub fn records_holders(&self) -> bool {
        self.0.holders.is_some()
    }

    /// Whether the pool was destroyed. Buffers may still be out.
    pub fn is_destroyed(&self) -> bool {
        self.0.returns.lock().detached
    }

    /// Turns an address from a descriptor ring back into a buffer. Any thread; the buffer's drop returns it.
    ///
    /// The address may lie anywhere in the buffer, because devices add headroom. A fragment's size is rounded
    /// up to whole cache lines. A second return is not detected if the buffer was allocated again in between.
    ///
    /// A whole page costs no atomic operation on the owner's thread, unless another thread took one back
    /// shortly before: then a lock. On another thread it takes that lock and, seldom, waits for the owner for
    /// about a microsecond. A fragment costs one atomic operation.
    ///
    /// # Errors
    /// If the address is not the pool's, or not out in raw form, in release builds too. Nothing has changed.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, IdentityDomain, Pool, PoolParams};
    /// # use std::sync::Arc;
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// let nic0 = Arc::new(IdentityDomain::new("nic0"));
    /// let params = PoolParams { domains: vec![nic0], ..Default::default() };
    /// let pool = Pool::new(params, arena)?.bind();
    /// let raw = pool.alloc_page().unwrap().into_raw().unwrap();
    /// let returns = pool.handle();
    /// let buffer = returns.from_raw(raw.addr).unwrap();
    /// assert!(returns.from_raw(raw.addr).is_err(), "it is not out any more");
    /// # drop(buffer);
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    #[inline]
    pub fn from_raw(&self, addr: DeviceAddr) -> Result<PageBuf, RawError> {
        raw_buf::from_raw(self.ptr(), addr)
    }

    /// Returns many buffers by their addresses, like [`from_raw`](Self::from_raw) and a drop of each. Any
    /// thread. Checks pool and owner once per 64 addresses.
    ///
    /// # Errors
    /// The first refused address's error. All other addresses are returned.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, DeviceAddr, IdentityDomain, Pool, PoolParams};
    /// # use std::sync::Arc;
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// let nic0 = Arc::new(IdentityDomain::new("nic0"));
    /// let params = PoolParams { domains: vec![nic0], ..Default::default() };
    /// let pool = Pool::new(params, arena)?.bind();
    /// let mut fill = [DeviceAddr(0); 32];
    /// assert_eq!(pool.alloc_addr_bulk(&mut fill), Ok(32));
    /// let returns = pool.handle();
    /// returns.put_addr_bulk(&fill).unwrap();
    /// assert!(returns.put_addr_bulk(&fill[..1]).is_err(), "it is not out any more");
    /// assert_eq!(pool.inflight().out, 0);
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    #[inline]
    pub fn put_addr_bulk(&self, addrs: &[DeviceAddr]) -> Result<(), RawError> {
        put_addrs(self.ptr(), addrs)
    }
}

/// One line: memory id, state, name, where the pages are, counters.
impl fmt::Display for PoolRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.is_destroyed() { "ended" } else { "live" };
        let (stats, Inflight { total, cache, lanes, ring, frag, uncollected, out, .. }) =
            (self.stats(), self.inflight());
        write!(f, "{:>5} {state:<5} {}: {out} out of {total} ", self.mem_id(), self.name())?;
        write!(f, "(cache {cache}, lanes {lanes}, ring {ring}, frag {frag}, uncollected {uncollected}), ")?;
        write!(f, "hold {} release {}", stats.hold, stats.release)?;
        match stats.recycle_percent() {
            Some(percent) => write!(f, ", recycled {percent:.1} %"),
            None => Ok(()),
        }
    }
}

/// Enters a new pool, which has no other user yet, into its registry.
pub(crate) fn show(pool: &Arc<Placed<PoolCore>>) {
    let weak: Weak<Placed<PoolCore>> = Arc::downgrade(pool);
    // SAFETY: I9. The caller has the owner half of a pool that has not ended.
    unsafe { pool.registration.read() }.enter(weak);
}

impl Registry {
    /// All pools in the registry, in the order of ids. They may end at any time: see [`PoolRef`].
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, Pool, PoolParams, Registry};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// let registry = Registry::new();
    /// let params = PoolParams { registry: Some(registry.clone()), ..Default::default() };
    /// let pool = Pool::new(params, arena)?;
    /// assert_eq!(registry.pools()[0].id(), pool.handle().id());
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    pub fn pools(&self) -> Vec<PoolRef> {
        self.entries().into_iter().filter_map(pool_of).collect()
    }

    /// The pool with this id.
    pub fn pool(&self, id: MemId) -> Option<PoolRef> {
        self.entry(id).and_then(pool_of)
    }
}

fn pool_of(entry: Arc<AnyPool>) -> Option<PoolRef> {
    entry.downcast::<Placed<PoolCore>>().ok().map(|pool| PoolRef(pool.into()))
}

pub(crate) fn stats(shared: &PoolCore) -> Stats {
    let mut stats = Stats::default();
    // Releases are read before holds: an observer then never sees more pages leave than joined.
    let late = shared.late.load(Ordering::Acquire);
    shared.returned.add_to(&mut stats);
    stats.recycle_ring += shared.late_ring.read();
    stats.recycle_ring += shared.lanes.all().iter().map(|lane| lane.pages_pushed()).sum::<u64>();
    shared.own.counts.add_to(&mut stats);
    stats.recycle_ring = stats.recycle_ring.saturating_sub(stats.returned_twice);
    stats.release = stats.release.wrapping_add(late);
    fence(Ordering::Acquire); // a release comes after its hold
    stats.hold = shared.own.counts.hold.read();
    stats
}

pub(crate) fn deferred_stats(shared: &PoolCore) -> DeferredStats {
    shared.deferred.as_ref().map(|deferred| deferred.stats()).unwrap_or_default()
}

pub(crate) fn inflight(shared: &PoolCore) -> Inflight {
    let total = stats(shared).inflight().max(0);
    // Read separately from the cache: pages that the owner moves between the two may count twice, or not at
    // all.
    let in_holders = shared.holders.as_ref().map_or(0, |holders| holders.idle_cache().count());
    let cache = (shared.own.cache.count() + in_holders) as u64;
    let lanes = shared.lanes.all().iter().map(|lane| lane.pages_in()).sum();
    let uncollected = complete_pages(shared).len() as u64;
    let taken = shared.ring.pages_taken();
    let ring = shared.returned.recycle_ring.read().saturating_sub(taken);
    let frag = u64::from(shared.own.frag_is_open());
    let deferred = shared.deferred.as_ref().map_or(0, |deferred| deferred.pages.read());
    let out = (total as u64).saturating_sub(cache + lanes + ring + frag + deferred + uncollected);
    Inflight { total, cache, lanes, ring, frag, deferred, uncollected, out }
}
