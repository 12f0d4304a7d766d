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

use crate::batch::Batch;
use crate::buf::{PageBuf, Tag};
use crate::cache::{Cache, Owner};
use crate::dma::{DeviceAddr, Mapping};
use crate::error::Error;
use crate::frag::{BIAS, FragState, Part};
use crate::lane::{Lane, PIECE, STARVED, raise_all};
use crate::page::{EMERGENCY, NodeId, PageIdx};
use crate::params::{MAX_REFILL, PoolParams, Sizes};
use crate::provider::Provider;
use crate::raw::RawError;
use crate::ring::{Queue, Ring};
use crate::shared::{Home, OwnerHalf, Returns, Shared, clear_record};
use crate::shutdown::{self, Shutdown, Watch};
use crate::stats::{Counters, Inflight, Stats};
use crate::sync::{AtomicU64, LastCell, Lock, Ordering, OwnerCell, Padded, prepare_fences};
use crate::thread;
use crate::wake::Wakeup;

/// A pool that is bound to no thread: it may be sent, observed and destroyed. Linux: `struct page_pool` with direct
/// recycling disabled.
///
/// Dropping it destroys it: see [`destroy`](Self::destroy).
#[derive(Debug)]
pub struct Pool {
    home: Home,
    /// What only the owner reads, when it refills.
    policy: Policy,
}

// SAFETY: the pool is bound to no thread, so moving it moves the owner half; the rest is `Sync`.
unsafe impl Send for Pool {}

/// How the owner refills.
#[derive(Debug)]
struct Policy {
    refill: usize,
    nid: Option<NodeId>,
    node_blind: bool,
    low_water: usize,
    low_water_mark: usize,
    /// The lane that the next refill begins with.
    next_lane: usize,
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
    pub fn new(params: PoolParams, provider: Arc<dyn Provider>) -> Result<Self, Error> {
        let (sizes, geometry) = params.check(&*provider)?;
        prepare_fences();
        let event = params.wakeup.then(crate::sys::eventfd).transpose().map_err(|source| Error::System {
            call: "eventfd",
            remedy: "raise RLIMIT_NOFILE, or leave wakeup off".into(),
            source,
        })?;
        let id = next_id()?;
        let mappings = attach_all(&params, &*provider)?;
        let policy = Policy {
            refill: sizes.refill,
            nid: params.nid,
            node_blind: params.node_blind,
            low_water: params.low_water,
            low_water_mark: provider.available(geometry.order),
            next_lane: 0,
        };
        let shared =
            Arc::new(shared(params, provider, id, geometry, sizes, mappings, Arc::new(Wakeup::new(event))));
        // The pool's own count; shutdown::free drops it.
        let raw = NonNull::new(Arc::into_raw(shared).cast_mut()).expect("an Arc is never null");
        Ok(Self { home: Home(raw), policy })
    }

    /// Makes the calling thread the owner. Linux: `page_pool_enable_direct_recycling`.
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
    pub fn destroy(self) -> Shutdown {
        shutdown::end(ManuallyDrop::new(self).home)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        shutdown::end(self.home);
    }
}

fn next_id() -> Result<u32, Error> {
    static NEXT: PlainU32 = PlainU32::new(1);
    NEXT.try_update(Ordering::Relaxed, Ordering::Relaxed, |id| id.checked_add(1))
        .map_err(|_| Error::Busy { what: "all 4294967294 pool ids were used: restart the process".into() })
}

fn attach_all(params: &PoolParams, provider: &dyn Provider) -> Result<Box<[Arc<Mapping>]>, Error> {
    let mut done: Vec<Arc<Mapping>> = Vec::new();
    for domain in &params.domains {
        match provider.area().attach(domain) {
            Ok(mapping) => done.push(mapping),
            Err(error) => {
                done.iter().for_each(|mapping| provider.area().detach(mapping));
                return Err(error);
            }
        }
    }
    Ok(done.into())
}

fn shared(
    params: PoolParams,
    provider: Arc<dyn Provider>,
    id: u32,
    geometry: crate::params::Geometry,
    sizes: Sizes,
    mappings: Box<[Arc<Mapping>]>,
    wakeup: Arc<Wakeup>,
) -> Shared {
    let area = provider.area().clone();
    let syncing: Box<[_]> =
        mappings.iter().filter(|m| params.sync_for_device && !m.coherent()).cloned().collect();
    Shared {
        owner: AtomicU64::new(thread::NOBODY),
        base: area.base_or_zero(),
        meta: area.meta(PageIdx(0)),
        id,
        geometry,
        lanes_used: Default::default(),
        overflowed: Default::default(),
        lanes: (0..sizes.lanes).map(|_| Arc::new(Lane::new(id, sizes.lane, wakeup.clone()))).collect(),
        own: Padded(OwnerHalf {
            cache: Cache::new(sizes.cache, syncing.is_empty()),
            counts: Counters::default(),
            frag: OwnerCell::new(FragState::NONE),
            frag_open: std::sync::atomic::AtomicBool::new(false),
            split_pages: OwnerCell::new(0),
            emergency: OwnerCell::new(Vec::new()),
        }),
        returns: Padded(Lock::new(Returns::default())),
        returned: Counters::default(),
        late: std::sync::atomic::AtomicU64::new(0),
        ring: Ring::new(sizes.ring),
        name: params.name,
        area,
        provider: LastCell::new(provider),
        #[cfg(loom)]
        alive: LastCell::new(()),
        mappings,
        syncing,
        wakeup,
        watch: Arc::new(Watch::new()),
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
    pub(crate) fn home(&self) -> Home {
        // SAFETY: `home` never changes, and no exclusive borrow of the pool is live outside `policy`.
        unsafe { (*self.pool.get()).home }
    }

    #[inline(always)]
    fn owner(&self) -> Owner {
        // SAFETY: I2. A `Bound` exists on the thread whose token it put into the owner word, and nowhere else.
        unsafe { Owner::assume() }
    }

    /// Reads or changes the policy; `f` runs no foreign code.
    fn policy<R>(&self, f: impl FnOnce(&mut Policy) -> R) -> R {
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
        while done < n {
            // Emergency memory does not fit a batch; it comes back, and goes home.
            let Some(Ok(())) = self.alloc_slow().map(|buffer| batch.push(buffer)) else { break };
            let taken = home.own.cache.take(self.owner(), n - done - 1, |pages| batch.extend(pages));
            home.own.counts.alloc_fast.add(taken as u64);
            done += taken + 1;
        }
        done
    }

    /// A piece of `size` bytes of a page that is shared with other pieces; `None` for a size of 0 or beyond the page, or
    /// when there is no page. Begins at a multiple of `frag_align`. Linux: `page_pool_dev_alloc_frag`.
    #[inline]
    pub fn alloc_frag(&self, size: usize) -> Option<PageBuf> {
        let (page, offset) = self.cut(size)?;
        Some(PageBuf::piece(self.home(), page, offset, size))
    }

    /// A whole page if two of `size` do not fit one, else a piece; `len()` is the true size. Where no other piece of
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
            return Some(PageBuf::piece(home, page, offset, size));
        }
        frag.exhaust(page_size);
        Some(PageBuf::piece(home, page, offset, page_size - offset))
    }

    /// Returns a buffer of this pool into the cache; another pool's comes back. Dropping it on this thread does the
    /// same. Linux: `page_pool_recycle_direct`.
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
        let len = home.geometry.piece_step(size);
        // SAFETY: I2; no foreign code runs while the borrow lives.
        let cut = unsafe { &mut *home.own.frag.get() }.cut(len, page_size);
        match cut {
            Some(cut) => Some(cut),
            None => self.cut_next(len),
        }
    }

    /// The open page has no room: closes it, and cuts from the same one again if it is home, else from another.
    #[cold]
    fn cut_next(&self, len: usize) -> Option<(PageIdx, usize)> {
        let home = self.home();
        self.drain_pieces();
        // SAFETY: I2; no foreign code runs while the borrow lives.
        let closed = unsafe { &mut *home.own.frag.get() }.close();
        home.own.frag_open.store(false, Ordering::Relaxed);
        let again = closed.filter(|&(page, unused)| home.piece_counted(self.owner(), page, unused));
        let page = match again {
            Some((page, _)) if home.page_meta(page).holds.load(Ordering::Acquire) == 0 => {
                home.sync_split_page(page);
                home.own.counts.recycle_cached.add(1);
                home.own.counts.alloc_fast.add(1);
                page
            }
            gone => {
                if let Some((page, _)) = gone {
                    home.one_split_less(self.owner());
                    home.own.counts.recycle_released_refcnt.add(1);
                    home.leave_here(self.owner(), page);
                }
                let (_, page, _) = self.alloc_page()?.into_parts();
                // SAFETY: I2; no foreign code runs while the borrow lives.
                unsafe { *home.own.split_pages.get() += 1 };
                page
            }
        };
        home.page_meta(page).pieces.store(BIAS, Ordering::Relaxed);
        // SAFETY: I2; no foreign code runs while the borrow lives.
        let frag = unsafe { &mut *home.own.frag.get() };
        frag.open(page);
        home.own.frag_open.store(true, Ordering::Relaxed);
        frag.cut(len, home.geometry.page_size())
    }

    /// Takes in the pieces that wait at the head of the lanes, so that a page whose pieces are all home is seen to be.
    fn drain_pieces(&self) {
        let home = self.home();
        for lane in home.used_lanes().iter().filter(|lane| lane.is_claimed()) {
            while lane.peek() & PIECE != 0 {
                if let Some(message) = lane.pop() {
                    home.piece_here(self.owner(), PageIdx((message & !PIECE) - 1), true);
                }
            }
        }
    }

    // ---- Refilling ---------------------------------------------------------------------------------------------

    /// The cache is empty: one page from lanes and ring, or from the provider, and the cache filled on the way.
    #[cold]
    #[inline(never)]
    fn alloc_slow(&self) -> Option<PageBuf> {
        let home = self.home();
        if let Some(buffer) = self.alloc_emergency() {
            return Some(buffer);
        }
        let found = self.refill().or_else(|| self.reserve());
        if let Some(page) = found {
            return Some(PageBuf::whole(home, page));
        }
        if let Some(buffer) = self.alloc_emergency() {
            return Some(buffer);
        }
        // Nothing: whoever returns next shall wake us. What came meanwhile is seen now.
        if self.starve()
            && let Some(page) = self.refill()
        {
            home.wakeup.sated();
            return Some(PageBuf::whole(home, page));
        }
        self.failed()
    }

    #[cold]
    fn failed<T>(&self) -> Option<T> {
        self.home().own.counts.alloc_failed.add(1);
        None
    }

    /// A page of the emergency reserve that the provider gave along: it counts as one of the cache.
    fn alloc_emergency(&self) -> Option<PageBuf> {
        let home = self.home();
        // SAFETY: I2; no foreign code runs while the borrow lives.
        let page = unsafe { &mut *home.own.emergency.get() }.pop()?;
        home.own.counts.alloc_fast.add(1);
        Some(PageBuf::new(home, page, Part::SPECIAL))
    }

    /// Moves pages from lanes and ring into the cache, up to the refill size, and gives one. Stops at the first page of
    /// another node, which leaves the pool.
    fn refill(&self) -> Option<PageIdx> {
        let home = self.home();
        let quiet = home.ring.is_empty() && home.used_lanes().iter().all(|lane| lane.is_empty());
        let foreign = if quiet {
            self.take_in_overflow();
            None
        } else {
            self.drain()
        };
        let page = home.own.cache.pop(self.owner());
        let counts = &home.own.counts;
        match (page, foreign) {
            (Some(_), _) => counts.alloc_refill.add(1),
            (None, None) => counts.alloc_empty.add(1),
            (None, Some(_)) => {}
        }
        if let Some(foreign) = foreign {
            counts.alloc_waive.add(1);
            home.leave_here(self.owner(), foreign);
        }
        page
    }

    /// Empties lanes, overflow and ring into the cache until it holds a refill; gives the page of another node that
    /// ended it.
    fn drain(&self) -> Option<PageIdx> {
        let home = self.home();
        let node = self.node_to_check();
        let (first, refill) = self.policy(|p| (p.next_lane, p.refill));
        let lanes = home.used_lanes();
        for at in (first..lanes.len()).chain(0..first.min(lanes.len())) {
            let lane = &lanes[at];
            if !lane.is_claimed() {
                continue;
            }
            let (taken, foreign) = self.drain_from(&**lane, node, refill);
            lane.count_taken(taken as u64);
            if foreign.is_some() || home.own.cache.count() >= refill {
                self.policy(|p| p.next_lane = at);
                return foreign;
            }
            if taken == 0 {
                lane.retire_if_done();
            }
        }
        self.take_in_overflow();
        self.drain_from(&home.ring, node, refill).1
    }

    /// Takes messages until the cache holds `refill` pages, there is none, or one is a page of another node. Says how
    /// many messages were pages, and that page.
    fn drain_from(
        &self,
        queue: &impl Queue,
        node: Option<NodeId>,
        refill: usize,
    ) -> (usize, Option<PageIdx>) {
        let home = self.home();
        let mut pages = 0;
        let room = || refill.checked_sub(home.own.cache.count()).filter(|&room| room > 0);
        while let Some(room) = room() {
            if node.is_none() {
                pages += home.own.cache.fill(self.owner(), room, |space| queue.take_pages(space));
                if home.own.cache.count() >= refill {
                    break;
                }
            }
            let Some(message) = queue.pop() else { break };
            let page = PageIdx((message & !PIECE) - 1);
            if message & PIECE != 0 {
                self.piece_home(page, 1);
                continue;
            }
            pages += 1;
            if node.is_some_and(|node| home.area.node_of(page) != node) {
                return (pages, Some(page));
            }
            let pushed = home.own.cache.push(self.owner(), page);
            debug_assert!(pushed, "refill is at most the cache");
        }
        (pages, None)
    }

    /// Pieces that came home as messages; the page that is home with them is one that came through the ring.
    fn piece_home(&self, page: PageIdx, n: u32) {
        let (home, owner) = (self.home(), self.owner());
        if !home.piece_counted(owner, page, n) {
            return;
        }
        home.one_split_less(owner);
        if home.page_meta(page).holds.load(Ordering::Acquire) != 0 {
            home.own.counts.recycle_released_refcnt.add(1);
            return home.leave_here(owner, page);
        }
        home.sync_split_page(page);
        if home.own.cache.push(owner, page) {
            home.own.counts.recycle_ring.add(1);
        } else {
            home.ring_or_out(page);
        }
    }

    /// Pieces that found no room for a message. The lock is taken only when there are any.
    fn take_in_overflow(&self) {
        let home = self.home();
        while home.overflowed.load(Ordering::Relaxed) {
            let taken = {
                let mut returns = home.returns.lock();
                home.take_overflow(&mut returns)
            };
            let Some((page, pieces)) = taken else { return };
            self.piece_home(page, pieces);
        }
    }

    /// Asks the provider for a refill of pages, or for one of a higher order, and gives one.
    fn reserve(&self) -> Option<PageIdx> {
        let home = self.home();
        let order = home.geometry.order;
        let mut pages = [PageIdx(0); MAX_REFILL];
        let want = if order == 0 { self.policy(|p| p.refill) } else { 1 };
        let node = self.policy(|p| (!p.node_blind, p.nid));
        let provider = home.provider();
        let node = node.0.then(|| node.1.unwrap_or_else(|| provider.current_node()));
        let got = provider.reserve(order, node, &mut pages[..want]);
        let available = provider.available(order);
        let page = self.join(&pages[..got]);
        let left = available + home.own.cache.count();
        let low = self.policy(|p| {
            p.low_water_mark = p.low_water_mark.min(left);
            left < p.low_water
        });
        if low {
            self.starve();
        }
        page
    }

    /// Takes fresh pages into the pool and the cache, and gives one.
    fn join(&self, pages: &[PageIdx]) -> Option<PageIdx> {
        let (home, owner) = (self.home(), self.owner());
        let counts = &home.own.counts;
        for &page in pages {
            let meta = home.page_meta(page);
            meta.pool.store(home.id, Ordering::Release); // pairs with from_raw()
            home.sync_for_device(page, usize::MAX);
            counts.hold.add(1);
            let emergency = home.area.has_emergency() && meta.holds.load(Ordering::Relaxed) & EMERGENCY != 0;
            if emergency {
                // SAFETY: I2; no foreign code runs while the borrow lives.
                unsafe { &mut *home.own.emergency.get() }.push(page);
            } else if !home.own.cache.push(owner, page) {
                // Foreign code dropped buffers into the cache meanwhile.
                home.leave_here(owner, page);
            }
        }
        let page = home.own.cache.pop(owner);
        if page.is_some() && !pages.is_empty() {
            let counter =
                if home.geometry.order == 0 { &counts.alloc_slow } else { &counts.alloc_slow_high_order };
            counter.add(1);
        }
        page
    }

    /// Raises `starved` in every lane, so that the next return signals; says whether it was not raised before.
    fn starve(&self) -> bool {
        let home = self.home();
        if home.wakeup.fd().is_none() || home.wakeup.is_starved() {
            return false;
        }
        home.wakeup.starve();
        raise_all(&home.lanes, STARVED);
        true
    }

    // ---- Nodes -------------------------------------------------------------------------------------------------

    /// The node that pages from lanes and ring must be on, where they may differ from it.
    fn node_to_check(&self) -> Option<NodeId> {
        let home = self.home();
        let node = self.policy(|p| p.nid).unwrap_or_else(|| home.provider().current_node());
        (home.area.only_node() != Some(node)).then_some(node)
    }

    /// Prefers another node from now on; `None` is the node of this thread, each time. What is in the cache goes back to
    /// the provider. A node that the provider does not know is refused, and nothing changes. Linux:
    /// `page_pool_update_nid`.
    pub fn update_nid(&self, nid: Option<NodeId>) -> Result<(), Error> {
        let home = self.home();
        crate::params::check_node(&**home.provider(), nid)?;
        self.policy(|p| p.nid = nid);
        let mut pages = Vec::with_capacity(home.own.cache.count());
        while let Some(page) = home.own.cache.pop(self.owner()) {
            pages.push(page);
        }
        home.own.counts.release.add(pages.len() as u64);
        let provider = home.provider().clone();
        pages.retain(|&page| clear_record(&home.area, page));
        provider.release(home.geometry.order, &pages);
        Ok(())
    }

    /// [`update_nid`](Self::update_nid) if the node is another one. Linux: `page_pool_nid_changed`.
    pub fn nid_changed(&self, nid: NodeId) -> Result<(), Error> {
        if self.policy(|p| p.nid) == Some(nid) { Ok(()) } else { self.update_nid(Some(nid)) }
    }

    // ---- Looking at it -----------------------------------------------------------------------------------------

    /// What the pool has done so far.
    pub fn stats(&self) -> Stats {
        stats(&self.home())
    }

    /// Where its pages are.
    pub fn inflight(&self) -> Inflight {
        inflight(&self.home())
    }

    /// The descriptor to sleep on together with the device's, in a pool made with `wakeup`: readable once a buffer has
    /// come home after the pool starved.
    pub fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        // The pool, and with it the descriptor, lives at least as long as this `Bound`.
        self.home_ref().wakeup.fd()
    }

    /// After waking: takes the signal back, so that the descriptor can be slept on again.
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

    fn home_ref(&self) -> &Shared {
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

fn stats(shared: &Shared) -> Stats {
    let mut stats = Stats::default();
    // Releases first, holds last: a reader beside the owner never sees more pages gone than came.
    let late = shared.late.load(std::sync::atomic::Ordering::Acquire);
    shared.returned.add_to(&mut stats);
    stats.recycle_ring += shared.lanes.iter().map(|lane| lane.pages_pushed()).sum::<u64>();
    shared.own.counts.add_to(&mut stats);
    stats.release = stats.release.wrapping_add(late);
    stats
}

fn inflight(shared: &Shared) -> Inflight {
    let total = stats(shared).inflight().max(0);
    let cache = shared.own.cache.count() as u64;
    let lanes = shared.lanes.iter().map(|lane| lane.pages_in()).sum();
    let ring = shared.ring.pages_in();
    let frag = u64::from(shared.own.frag_is_open());
    let out = (total as u64).saturating_sub(cache + lanes + ring + frag);
    Inflight { total, cache, lanes, ring, frag, out }
}

/// The return half of a pool, and its observer: for any thread, as many as wanted. It does not keep the pool from ending.
#[derive(Clone, Debug)]
pub struct PoolRef(Arc<Shared>);

impl PoolRef {
    fn new(home: Home) -> Self {
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

    /// What the pool has done so far, at no cost to its owner.
    pub fn stats(&self) -> Stats {
        stats(&self.0)
    }

    /// Where its pages are.
    pub fn inflight(&self) -> Inflight {
        inflight(&self.0)
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
        crate::raw::from_raw(self.home(), addr)
    }
}
