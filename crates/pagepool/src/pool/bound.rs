//! The owner half: allocation, by one thread at a time.
//!
//! What   [`Pool`] may be sent and cannot allocate. [`Pool::bind`] makes it [`Bound`] to the calling thread, where it
//!        allocates; [`Bound::unbind`] gives it back, to move elsewhere.
//! Who    a `Bound` is neither `Send` nor `Sync`, so its thread alone holds the owner half (I2). A forgotten `Bound` is
//!        a leak, never a race: its token is never used again. Signal handlers must not touch buffers.
//! Order  cache -> lanes and ring -> provider, as in net/core/page_pool.c:page_pool_alloc_netmems (v7.3).
//! Cost   from the cache: a load, a compare, two stores, one count. No atomic read-modify-write.

// UNSAFETY: `Owner::assume` for the bound thread; fragment state is reached through its owner cell.
#![expect(unsafe_code)]

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU32 as PlainU32;

use crate::buf::batch::Batch;
use crate::buf::page_buf::{PageBuf, Tag};
use crate::error::Error;
use crate::home::cache::{Cache, Owner};
use crate::home::chain_blocks::{ChainBlock, ChainStash};
use crate::home::frag::FragState;
use crate::home::lane::Lane;
use crate::home::registry::{Registration, Registry};
use crate::home::ring::Ring;
use crate::home::stats::{Counter, Counters, DeferredStats, Inflight, Stats};
use crate::home::thread;
use crate::home::wake::Wakeup;
use crate::mem::area::Area;
use crate::mem::dma::{DomainId, Mapping};
use crate::mem::page::{NodeId, PageIdx};
use crate::mem::provider::Provider;
use crate::pool::deferred::{DeferredQueue, DeferredUser, InUse};
use crate::pool::params::{PoolParams, Sizes};
use crate::pool::pool_ref::{self, PoolRef};
use crate::pool::shutdown::{self, Shutdown};
use crate::returns::end_watch::EndWatch;
use crate::returns::geometry::Geometry;
use crate::returns::pool_core::{OwnerHalf, PoolCore, PoolPtr, ReturnState};
use crate::sys::slab::Slab;
use crate::sys::sync::{AtomicU64, LastCell, Lock, Ordering, OwnerCell, Padded, prepare_fences};

/// A pool that is bound to no thread: it may be sent, observed and destroyed. Linux: `struct page_pool` with direct
/// recycling disabled.
///
/// Dropping it destroys it: see [`destroy`](Self::destroy).
#[derive(Debug)]
pub struct Pool {
    home: PoolPtr,
    /// What only the owner reads, when it refills.
    policy: Policy,
    /// Buffers whose users only say whether they are in use still, in a pool made with `defer_capacity`.
    waits: Option<Box<DeferredQueue>>,
}

// SAFETY: the pool is bound to no thread, so moving it moves the owner half; the rest is `Sync`.
unsafe impl Send for Pool {}

/// How the owner refills.
#[derive(Debug)]
pub(crate) struct Policy {
    pub(crate) refill: usize,
    pub(crate) nid: Option<NodeId>,
    pub(crate) node_blind: bool,
    pub(crate) low_water: usize,
    pub(crate) low_water_mark: usize,
    /// The lane, or behind the last lane the ring, that the next refill begins with.
    pub(crate) next_queue: usize,
}

impl Pool {
    /// Makes a pool over a provider's memory, and maps that in the pool's domains. Linux: `page_pool_create`.
    ///
    /// Errors name the parameter, its value and its range, or the domain that did not map; nothing is left behind.
    ///
    /// ```
    /// use pagepool::{Arena, ArenaParams, Pool, PoolParams};
    /// let arena = Arena::new(ArenaParams { max_bytes: 16 << 20, ..Default::default() })?;
    /// let pool = Pool::new(PoolParams { name: "rx0".into(), ..Default::default() }, arena)?.bind();
    /// let buffer = pool.alloc_page().expect("16 MiB are free");
    /// drop(buffer); // home, in the cache of this thread
    /// assert_eq!(pool.stats().recycle_cached, 1);
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    #[doc(alias = "page_pool_create")]
    pub fn new(params: PoolParams, provider: Arc<dyn Provider>) -> Result<Self, Error> {
        let (sizes, geometry) = params.check(&*provider)?;
        prepare_fences();
        let event =
            params.wakeup.then(crate::sys::call::eventfd).transpose().map_err(|source| Error::System {
                call: "eventfd",
                remedy: "raise RLIMIT_NOFILE, or leave wakeup off".into(),
                source,
            })?;
        let chains = Slab::new(sizes.chains)?;
        let registration = params.registry.clone().unwrap_or_else(Registry::process).register()?;
        let id = next_id()?;
        let attached = attach_all(&params, &*provider)?;
        let policy = Policy {
            refill: sizes.refill,
            nid: params.nid,
            node_blind: params.node_blind,
            low_water: params.low_water,
            low_water_mark: provider.available(geometry.order),
            next_queue: 0,
        };
        let mappings = attached.mappings.clone().into();
        let on_busy = params.on_busy;
        let wakeup = Arc::new(Wakeup::new(event));
        let parts = Parts { id, registration, geometry, sizes, chains, mappings, wakeup };
        let shared = Arc::new(shared(params, provider, parts));
        pool_ref::show(&shared);
        attached.keep();
        let waits = DeferredQueue::new(sizes.waits, on_busy, shared.waits.clone());
        // The pool's own count; shutdown::free drops it.
        let raw = NonNull::new(Arc::into_raw(shared).cast_mut()).expect("an Arc is never null");
        Ok(Self { home: PoolPtr(raw), policy, waits })
    }

    /// Makes the calling thread the owner. Linux: `page_pool_enable_direct_recycling`.
    #[doc(alias = "page_pool_enable_direct_recycling")]
    pub fn bind(self) -> Bound {
        self.home.owner.store(thread::token_or_new(), Ordering::Relaxed);
        Bound { pool: ManuallyDrop::new(std::cell::UnsafeCell::new(self)), here: PhantomData }
    }

    /// The return half, and the observer.
    pub fn handle(&self) -> PoolRef {
        PoolRef::new(self.home)
    }

    /// Ends the pool. Never fails, never waits: what is in the pool's places goes back to the provider now, buffers that
    /// are out when they come home, and the last one frees the pool on whichever thread it is dropped. Domains that no
    /// other pool of the area uses are unmapped now. Linux: `page_pool_destroy`.
    #[doc(alias = "page_pool_destroy")]
    pub fn destroy(self) -> Shutdown {
        let mut this = ManuallyDrop::new(self);
        shutdown::end(this.home, this.waits.take())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        drop(shutdown::end(self.home, self.waits.take()));
    }
}

fn next_id() -> Result<u32, Error> {
    static NEXT: PlainU32 = PlainU32::new(1);
    NEXT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |id| id.checked_add(1))
        .map_err(|_| Error::Busy { what: "all 4294967294 pool ids were used: restart the process".into() })
}

/// The domains of a pool that is not made yet: detached again, unless it is made.
struct Attached {
    area: Arc<Area>,
    mappings: Vec<Arc<Mapping>>,
}

impl Attached {
    /// The pool is there, and detaches them when it ends.
    fn keep(mut self) {
        self.mappings.clear();
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.mappings.iter().for_each(|mapping| self.area.detach(mapping));
    }
}

fn attach_all(params: &PoolParams, provider: &dyn Provider) -> Result<Attached, Error> {
    let mut attached = Attached { area: provider.area().clone(), mappings: Vec::new() };
    for domain in &params.domains {
        attached.mappings.push(attached.area.attach(domain)?);
    }
    Ok(attached)
}

/// What a pool is made of, beside its parameters and its provider.
struct Parts {
    id: u32,
    registration: Registration,
    geometry: Geometry,
    sizes: Sizes,
    chains: Slab<ChainBlock>,
    mappings: Box<[Arc<Mapping>]>,
    wakeup: Arc<Wakeup>,
}

fn shared(params: PoolParams, provider: Arc<dyn Provider>, parts: Parts) -> PoolCore {
    let Parts { id, registration, geometry, sizes, chains, mappings, wakeup } = parts;
    let area = provider.area().clone();
    let syncing: Box<[_]> =
        mappings.iter().filter(|m| params.sync_for_device && !m.coherent()).cloned().collect();
    PoolCore {
        owner: AtomicU64::new(thread::NOBODY),
        base: area.base_or_zero(),
        meta: area.records(),
        id,
        geometry,
        area_id: area.id(),
        lanes_used: Default::default(),
        overflowed: Default::default(),
        lanes: (0..sizes.lanes).map(|_| Arc::new(Lane::new(id, sizes.lane, wakeup.clone()))).collect(),
        own: Padded(OwnerHalf {
            cache: Cache::new(sizes.cache, syncing.is_empty()),
            counts: Counters::default(),
            frag: OwnerCell::new(FragState::NONE),
            frag_open: std::sync::atomic::AtomicBool::new(false),
            frag_waste: Counter::default(),
            split_pages: OwnerCell::new(0),
            emergency: OwnerCell::new(Vec::new()),
            chains: ChainStash::new(sizes.chains),
        }),
        returns: Padded(Lock::new(ReturnState::default())),
        returned: Counters::default(),
        late: std::sync::atomic::AtomicU64::new(0),
        late_ring: Counter::default(),
        ring: Ring::new(sizes.ring),
        chains,
        name: params.name,
        area,
        provider: LastCell::new(provider),
        mem_id: registration.id(),
        registration: LastCell::new(registration),
        #[cfg(loom)]
        alive: LastCell::new(()),
        mappings,
        syncing,
        wakeup,
        watch: Arc::new(EndWatch::new()),
        waits: (sizes.waits > 0).then(Arc::default),
        tags: params.tagging.then(|| Lock::new(Vec::new())),
    }
}

/// A pool bound to this thread: the one that allocates. Linux: a `page_pool` inside its NAPI poll.
#[derive(Debug)]
pub struct Bound {
    pool: ManuallyDrop<std::cell::UnsafeCell<Pool>>,
    /// Neither `Send` nor `Sync`: the owner half stays on its thread.
    here: PhantomData<*mut ()>,
}

impl Bound {
    #[inline(always)]
    pub(crate) fn home(&self) -> PoolPtr {
        // SAFETY: `home` never changes, and no exclusive borrow of the pool is live outside `policy`.
        unsafe { (*self.pool.get()).home }
    }

    #[inline(always)]
    pub(crate) fn owner(&self) -> Owner {
        // SAFETY: I2. A `Bound` exists on the thread whose token it put into the owner word, and nowhere else.
        unsafe { Owner::assume() }
    }

    /// Reads or changes the policy; `f` runs no foreign code.
    pub(crate) fn policy<R>(&self, f: impl FnOnce(&mut Policy) -> R) -> R {
        // SAFETY: I2. This thread alone has the pool, and `f` cannot come back here.
        f(unsafe { &mut (*self.pool.get()).policy })
    }

    /// Gives the pool back, to be bound by another thread. Buffers that are dropped on this thread afterwards go the way
    /// of other threads. Linux: `page_pool_disable_direct_recycling`.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, Pool, PoolParams};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// let pool = Pool::new(PoolParams::default(), arena)?.bind();
    /// let pool = pool.unbind();
    /// std::thread::spawn(move || assert!(pool.bind().alloc_page().is_some())).join().unwrap();
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    #[doc(alias = "page_pool_disable_direct_recycling")]
    pub fn unbind(self) -> Pool {
        let mut this = ManuallyDrop::new(self);
        this.home().owner.store(thread::NOBODY, Ordering::Relaxed);
        // SAFETY: taken once: `this` is never dropped.
        unsafe { ManuallyDrop::take(&mut this.pool) }.into_inner()
    }

    /// As [`Pool::destroy`].
    pub fn destroy(self) -> Shutdown {
        self.unbind().destroy()
    }

    /// The return half, and the observer.
    pub fn handle(&self) -> PoolRef {
        PoolRef::new(self.home())
    }

    // ---- Allocation --------------------------------------------------------------------------------------------

    /// A whole page, or `None` when there is none to be had: `alloc_failed` counts it. Linux:
    /// `page_pool_dev_alloc_pages`.
    #[doc(alias = "page_pool_dev_alloc_pages")]
    #[inline]
    pub fn alloc_page(&self) -> Option<PageBuf> {
        let home = self.home();
        match home.own.cache.pop(self.owner()) {
            Some(page) => {
                home.own.counts.alloc_fast.add(1);
                Some(PageBuf::whole(home, page))
            }
            None => self.alloc_slow(),
        }
    }

    /// Up to `n` whole pages into the vector's spare capacity, which never grows; says how many. Fewer than `n` is a
    /// full vector or exhaustion.
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
    pub fn alloc_bulk(&self, buffers: &mut Vec<PageBuf>, n: usize) -> usize {
        let n = n.min(buffers.capacity() - buffers.len());
        let home = self.home();
        let mut done = 0;
        loop {
            let taken = home.own.cache.take(self.owner(), n - done, |pages| {
                buffers.extend(pages.iter().map(|&page| PageBuf::whole(home, PageIdx(page))));
            });
            home.own.counts.alloc_fast.add(taken as u64);
            done += taken;
            if done == n {
                return n;
            }
            let Some(buffer) = self.alloc_slow() else { return done };
            buffers.push(buffer);
            done += 1;
        }
    }

    /// Up to `n` whole pages, at most [`Batch::MAX`], as numbers.
    #[inline]
    pub fn alloc_batch(&self, n: usize) -> Batch {
        let mut batch = Batch::empty(self.home());
        self.alloc_batch_into(&mut batch, n);
        batch
    }

    /// Adds up to `n` whole pages to a batch of this pool, as far as it has room; says how many. A batch that is filled
    /// and [put](Batch::put) over and over is the cheapest way to move bursts. A batch of another pool stays as it is.
    #[inline]
    pub fn alloc_batch_into(&self, batch: &mut Batch, n: usize) -> usize {
        let home = self.home();
        let n = n.min(batch.room_for(home));
        let taken = home.own.cache.take(self.owner(), n, |pages| batch.extend(pages));
        home.own.counts.alloc_fast.add(taken as u64);
        if taken < n { taken + self.batch_slow(batch, n - taken) } else { n }
    }

    #[cold]
    fn batch_slow(&self, batch: &mut Batch, n: usize) -> usize {
        let home = self.home();
        let mut done = 0;
        let mut unfit = 0;
        while done < n {
            let Some(buffer) = self.alloc_slow() else { break };
            if let Err(emergency) = batch.push(buffer) {
                // It does not fit a batch and goes home, out of the pool; a provider may give it again, but not for ever.
                drop(emergency);
                unfit += 1;
                if unfit == Batch::MAX {
                    self.failed::<()>();
                    break;
                }
                continue;
            }
            let taken = home.own.cache.take(self.owner(), n - done - 1, |pages| batch.extend(pages));
            home.own.counts.alloc_fast.add(taken as u64);
            done += taken + 1;
        }
        done
    }

    /// A fragment of `size` bytes of a page that is shared with other fragments; `None` for a size of 0 or beyond the page, or
    /// when there is no page. Begins at a multiple of `frag_align`. Linux: `page_pool_dev_alloc_frag`.
    #[doc(alias = "page_pool_dev_alloc_frag")]
    #[inline]
    pub fn alloc_frag(&self, size: usize) -> Option<PageBuf> {
        let (page, offset) = self.cut(size)?;
        Some(PageBuf::frag(self.home(), page, offset, size))
    }

    /// A whole page if two of `size` do not fit one, else a fragment; `len()` is the true size. Where no other fragment of
    /// that size would fit behind it, the rest of the page belongs to it. Linux: `page_pool_dev_alloc`.
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
    pub fn alloc(&self, size: usize) -> Option<PageBuf> {
        let home = self.home();
        let page_size = home.geometry.page_size();
        if size > page_size / 2 {
            return if size <= page_size { self.alloc_page() } else { self.failed() };
        }
        let (page, offset) = self.cut(size)?;
        // SAFETY: I2; no foreign code runs while the borrow lives.
        let frag = unsafe { &mut *home.own.frag.get() };
        if frag.fits(size, page_size) {
            return Some(PageBuf::frag(home, page, offset, size));
        }
        let rest = page_size - offset;
        frag.exhaust(rest - size, page_size);
        Some(PageBuf::frag(home, page, offset, rest))
    }

    /// ReturnState a buffer of this pool into the cache; another pool's comes back. Dropping it on this thread does the
    /// same. Linux: `page_pool_recycle_direct`.
    #[doc(alias = "page_pool_recycle_direct")]
    #[inline]
    pub fn recycle_direct(&self, buffer: PageBuf) -> Result<(), PageBuf> {
        if buffer.pool != self.home() {
            return Err(buffer);
        }
        drop(buffer);
        Ok(())
    }

    // ---- Fragments ---------------------------------------------------------------------------------------------

    #[inline(always)]
    fn cut(&self, size: usize) -> Option<(PageIdx, usize)> {
        let home = self.home();
        let page_size = home.geometry.page_size();
        if size.wrapping_sub(1) >= page_size {
            return self.failed();
        }
        let len = home.geometry.frag_step(size);
        // SAFETY: I2; no foreign code runs while the borrow lives.
        let cut = unsafe { &mut *home.own.frag.get() }.cut(size, len, page_size);
        match cut {
            Some(cut) => Some(cut),
            None => self.cut_next(size, len),
        }
    }

    // ---- Waiting -----------------------------------------------------------------------------------------------

    /// The waiting queue, where there is one.
    pub(crate) fn waits(&self) -> Option<&DeferredQueue> {
        // SAFETY: I2. This thread alone has the pool, and nothing refers to this field exclusively while it is bound.
        unsafe { &(*self.pool.get()).waits }.as_deref()
    }

    /// Registers somebody who will use buffers and only says whether they are in use still. Cold: allocates, so that
    /// queueing does not. An error in a pool made without `defer_capacity`.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, Pool, PoolParams, UseCounts};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// let pool = Pool::new(PoolParams::default(), arena)?.bind();
    /// let error = pool.deferred_user(UseCounts::new(1)).unwrap_err();
    /// assert_eq!(error.to_string(), "pool pool has no waiting queue: make it with defer_capacity above 0");
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    pub fn deferred_user(&self, user: Arc<dyn InUse>) -> Result<DeferredUser, Error> {
        let home = self.home();
        let waits = self.waits().ok_or_else(|| Error::Unsupported {
            what: format!("pool {} has no waiting queue: make it with defer_capacity above 0", home.name),
        })?;
        Ok(waits.register(home.id, user))
    }

    /// Parts with a buffer that somebody else uses still: it goes home once `user` says that the buffer of this cookie is
    /// not in use, which is asked on refills and by [`poll_deferred`](Self::poll_deferred). No atomic, no allocation.
    ///
    /// The buffer comes back when the queue is full, and when buffer or user are of another pool.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, Pool, PoolParams, UseCounts};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 4 << 12, ..Default::default() })?;
    /// let pool = Pool::new(PoolParams { defer_capacity: 4, ..Default::default() }, arena)?.bind(); // over 4 pages
    /// let counts = UseCounts::new(4);
    /// let user = pool.deferred_user(counts.clone())?;
    /// for cookie in 0..4 {
    ///     counts.take(cookie);
    ///     pool.defer(&user, pool.alloc_page().unwrap(), cookie).expect("there is room for 4");
    /// }
    /// assert!(pool.alloc_page().is_none(), "all are in use");
    /// counts.put(0);
    /// assert!(pool.alloc_page().is_some(), "the refill asked");
    /// # (1..4).for_each(|cookie| counts.put(cookie));
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    #[inline]
    pub fn defer(&self, user: &DeferredUser, buffer: PageBuf, cookie: u64) -> Result<(), PageBuf> {
        let home = self.home();
        match self.waits() {
            Some(waits) if buffer.pool == home && user.pool == home.id => waits.push(user, buffer, cookie),
            _ => Err(buffer),
        }
    }

    /// Asks after the buffers that wait, as many as there are, by the rule of [`OnBusy`](crate::OnBusy); says how many went
    /// home. Refills do this by themselves; it is for an owner that has time, or that must know. Inside a
    /// [`InUse`] it does nothing. The users are foreign code, and one that panics does so through this call; nothing
    /// is lost by that.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, Pool, PoolParams, UseCounts};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// let pool = Pool::new(PoolParams { defer_capacity: 4, ..Default::default() }, arena)?.bind();
    /// let user = pool.deferred_user(UseCounts::new(4))?;
    /// pool.defer(&user, pool.alloc_page().unwrap(), 0).unwrap();
    /// assert_eq!((pool.poll_deferred(), pool.poll_deferred()), (1, 0));
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    pub fn poll_deferred(&self) -> usize {
        self.waits().map_or(0, |waits| waits.poll(usize::MAX))
    }

    /// As [`PoolRef::deferred_stats`].
    pub fn deferred_stats(&self) -> DeferredStats {
        pool_ref::deferred_stats(&self.home())
    }

    // ---- Nodes -------------------------------------------------------------------------------------------------

    /// Prefers another node from now on; `None` is the node of this thread, each time. What is in the cache goes back to
    /// the provider. A node that the provider does not know is refused, and nothing changes. Linux:
    /// `page_pool_update_nid`.
    #[doc(alias = "page_pool_update_nid")]
    pub fn update_nid(&self, nid: Option<NodeId>) -> Result<(), Error> {
        let home = self.home();
        crate::pool::params::check_node(&**home.provider(), nid)?;
        self.policy(|p| p.nid = nid);
        let mut pages = Vec::with_capacity(home.own.cache.count());
        while let Some(page) = home.own.cache.pop(self.owner()) {
            pages.push(page);
        }
        home.own.counts.release.add(pages.len() as u64);
        let provider = home.provider().clone();
        pages.retain(|&page| home.area.clear_record(page));
        // SAFETY: I1. The pages came from this provider with the pool's order, and nobody has them any more.
        unsafe { provider.release(home.geometry.order, &pages) };
        Ok(())
    }

    /// [`update_nid`](Self::update_nid) if the node is another one. Linux: `page_pool_nid_changed`.
    #[doc(alias = "page_pool_nid_changed")]
    pub fn nid_changed(&self, nid: NodeId) -> Result<(), Error> {
        if self.policy(|p| p.nid) == Some(nid) { Ok(()) } else { self.update_nid(Some(nid)) }
    }

    // ---- Looking at it -----------------------------------------------------------------------------------------

    /// What the pool has done so far.
    pub fn stats(&self) -> Stats {
        pool_ref::stats(&self.home())
    }

    /// Where its pages are.
    pub fn inflight(&self) -> Inflight {
        pool_ref::inflight(&self.home())
    }

    /// As [`PoolRef::frag_waste`].
    pub fn frag_waste(&self) -> u64 {
        self.home().own.frag_waste.read()
    }

    /// Whether its pages are handed to that device whenever they come home, so that they need no sync before they are
    /// given to it: the domain is one of the pool's, not coherent, and the pool was made with `sync_for_device`.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, DmaDomain, IdentityDomain, Pool, PoolParams};
    /// # use std::sync::Arc;
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// let coherent: Arc<dyn DmaDomain> = Arc::new(IdentityDomain::new("nic0"));
    /// let domains = vec![coherent.clone()];
    /// let pool = Pool::new(PoolParams { domains, sync_for_device: true, ..Default::default() }, arena)?.bind();
    /// assert!(!pool.syncs_for(coherent.id()), "there is nothing to sync");
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    pub fn syncs_for(&self, domain: DomainId) -> bool {
        self.home_ref().syncing.iter().any(|mapping| mapping.id() == domain)
    }

    /// The descriptor to sleep on together with the device's, in a pool made with `wakeup`: readable once a buffer has
    /// come home after the pool starved. Only what other threads return makes it so: whoever returned buffers on this thread
    /// since the last allocation allocates once more before the sleep.
    pub fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        // The pool, and with it the descriptor, lives at least as long as this `Bound`.
        self.home_ref().wakeup.fd()
    }

    /// Takes the signal back, so that the descriptor can be slept on again: after waking, and before allocating. Taken
    /// back between an allocation that failed and the sleep, it may be the signal that should end that sleep.
    pub fn acknowledge_wake(&self) {
        self.home().wakeup.acknowledge();
    }

    /// The fewest pages that were left to have, cache and provider together, whenever the provider was asked.
    pub fn low_water_mark(&self) -> usize {
        self.policy(|p| p.low_water_mark)
    }

    /// Makes a tag for buffers; the same name gives the same tag. In a pool made without `tagging` it says nothing.
    pub fn tag(&self, name: &str) -> Tag {
        let home = self.home();
        let Some(tags) = &home.tags else { return Tag(0) };
        let mut tags = tags.lock();
        let at = tags.iter().position(|known| known == name).unwrap_or_else(|| {
            tags.push(name.into());
            tags.len() - 1
        });
        Tag(at as u32)
    }

    pub(crate) fn home_ref(&self) -> &PoolCore {
        let home = self.home();
        // SAFETY: I9. The owner half is this `Bound`'s, so the pool has not ended.
        unsafe { home.0.as_ref() }
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        self.home().owner.store(thread::NOBODY, Ordering::Relaxed);
        // SAFETY: dropped once, here; dropping the pool ends it.
        unsafe { ManuallyDrop::drop(&mut self.pool) };
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::testing::PlainMemory;

    #[test]
    fn the_balance_holds_while_the_counters_wrap() {
        for (returned, late) in [(0, 9), (5, 4), (9, 0)] {
            let memory = PlainMemory::new(64, 0).expect("small");
            let pool =
                Pool::new(PoolParams { refill: 1, ..Default::default() }, memory.clone()).expect("plain");
            // As if almost all of what 64 bits can count had come and gone.
            pool.home.own.counts.hold.start_at(u64::MAX - 4);
            pool.home.returned.release.start_at(u64::MAX - 4);
            let (handle, pool) = (pool.handle(), pool.bind());
            let mut buffers: Vec<_> = (0..9).filter_map(|_| pool.alloc_page()).collect();
            assert_eq!((handle.stats().hold, handle.inflight().total, handle.inflight().out), (4, 9, 9));
            buffers.drain(..returned).for_each(drop);
            let shutdown = pool.destroy();
            assert_eq!((handle.inflight().total, shutdown.is_complete()), (late, late == 0));
            drop(buffers);
            assert!(shutdown.is_complete());
            assert_eq!((handle.stats().hold, handle.stats().release, memory.free()), (4, 4, 64));
        }
    }
}
