//! The return half: what every thread that holds a buffer may touch, and the way each buffer takes home.
//!
//! What   [`Shared`] is the pool. Its first line is read per buffer and written at bind and unbind only; the owner's
//!        lines follow, then the return lock's, so no returning thread writes a line that the owner reads per buffer.
//! Who    returns from any thread. The cache, the fragment state and the owner's counters belong to the holder of the
//!        owner half (I2), which the owner word names.
//! Life   a buffer that is out keeps the pool (I3), without a count: the pool ends when the last one is home (I9,
//!        shutdown.rs). After its message is visible a returner touches the lane, and never the pool.
//! Foreign code (providers, domains) runs with no lock held and no borrow of the cache live, so it may drop buffers.
//! Cost   home on the owner's thread: no atomic read-modify-write. Elsewhere: one Release store into a lane.
//!
//! Order of the ways home, as in net/core/page_pool.c:__page_pool_put_page (v7.3): not recyclable -> sync for the device
//! -> cache (owner only) -> lane (others) -> ring -> out of the pool.

// UNSAFETY: handles refer to the pool by address; `Owner::assume` follows the owner word.
#![expect(unsafe_code)]

use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool as PlainBool, AtomicU64 as PlainU64};

use crate::home::cache::{Cache, Owner};
use crate::home::frag::FragState;
use crate::home::lane::{DETACHED, FRAG, Lane, STARVED};
use crate::home::params::Geometry;
use crate::home::registry::{MemId, Registration};
use crate::home::ring::{Ring, RingTail};
use crate::home::stats::{Counter, Counters, DeferredCounts};
use crate::home::thread;
use crate::home::wake::Wakeup;
use crate::mem::area::Area;
use crate::mem::dma::Mapping;
use crate::mem::page::{EMERGENCY, HOLD_COUNT, LEFT, PageIdx, PageMeta};
use crate::mem::provider::Provider;
use crate::packet::chain::{Block, Stash};
use crate::pool::shutdown::Watch;
use crate::sys::slab::Slab;
use crate::sys::sync::{
    AtomicBool, AtomicU64, AtomicUsize, LastCell, Lock, Ordering, OwnerCell, Padded, fence, light_fence,
};

/// A pool, as all its handles see it.
#[repr(C)]
pub(crate) struct Shared {
    /// The token of the thread that the pool is bound to, or [`thread::NOBODY`]. Only that thread ever writes its token
    /// here, so comparing with one's own needs no ordering.
    pub(crate) owner: AtomicU64,
    /// Address of page 0; 0 for memory that the CPU cannot read.
    pub(crate) base: usize,
    pub(crate) meta: *const PageMeta,
    pub(crate) id: u32,
    pub(crate) geometry: Geometry,
    /// The id of `area`, which devices ask for per buffer.
    pub(crate) area_id: u64,
    pub(crate) lanes: Box<[Arc<Lane>]>,
    /// Lanes from here on were never claimed.
    pub(crate) lanes_used: AtomicUsize,
    /// Whether pages with overflowed fragments wait; written under the return lock.
    pub(crate) overflowed: AtomicBool,

    pub(crate) own: Padded<OwnerHalf>,
    pub(crate) returns: Padded<Lock<Returns>>,
    /// Written under the return lock.
    pub(crate) returned: Counters,
    pub(crate) ring: Ring,
    /// Pages that came home after the end. Any thread.
    pub(crate) late: PlainU64,
    /// Those of them that would have gone into the ring, where Linux puts them still. Written under the return lock.
    pub(crate) late_ring: Counter,

    /// What its packets keep their further buffers in.
    pub(crate) chains: Slab<Block>,
    pub(crate) name: String,
    pub(crate) area: Arc<Area>,
    pub(crate) provider: LastCell<Arc<dyn Provider>>,
    /// What frames of the pool carry, through their first buffer.
    pub(crate) mem_id: MemId,
    /// Given back when the pool is freed, so not while a buffer is out (I8).
    pub(crate) registration: LastCell<Registration>,
    /// Read by everything that follows a [`PoolPtr`], taken when the pool is freed: a model finds any use after the end.
    #[cfg(loom)]
    pub(crate) alive: LastCell<()>,
    /// The pool's domains, the first of which [`dma_addr`](crate::PageBuf::dma_addr) answers for.
    pub(crate) mappings: Box<[Arc<Mapping>]>,
    /// Those of them that need syncs, if the pool syncs.
    pub(crate) syncing: Box<[Arc<Mapping>]>,
    pub(crate) wakeup: Arc<Wakeup>,
    pub(crate) watch: Arc<Watch>,
    /// What the waiting queue did, where there is one; written by whoever has the queue.
    pub(crate) waits: Option<Arc<DeferredCounts>>,
    pub(crate) tags: Option<Lock<Vec<String>>>,
}

/// What the owner alone writes; the counts in it may be read by anyone.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct OwnerHalf {
    pub(crate) counts: Counters,
    pub(crate) frag: OwnerCell<FragState>,
    /// Whether `frag` has a page, for those who may not look.
    pub(crate) frag_open: PlainBool,
    /// Bytes of pages that were cut up and belong to no fragment.
    pub(crate) frag_waste: Counter,
    /// Pages with fragments out, the current fragment page included.
    pub(crate) split_pages: OwnerCell<usize>,
    /// Pages of the emergency reserve that were reserved and not handed out yet.
    pub(crate) emergency: OwnerCell<Vec<PageIdx>>,
    /// Blocks for chains that the owner keeps at hand.
    pub(crate) chains: Stash,
    /// Last, for its entries are long.
    pub(crate) cache: Cache,
}

/// What the return lock guards.
#[derive(Debug, Default)]
pub(crate) struct Returns {
    pub(crate) tail: RingTail,
    /// The pool has ended: nothing is pushed any more (I9).
    pub(crate) detached: bool,
    /// First page with fragments that found no room, linked through [`PageMeta::next`]; 0 is none.
    pub(crate) overflow: u32,
}

impl OwnerHalf {
    /// Whether a page is being cut into fragments; readable by anyone.
    pub(crate) fn frag_is_open(&self) -> bool {
        self.frag_open.load(std::sync::atomic::Ordering::Relaxed)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("id", &self.id).field("name", &self.name).finish_non_exhaustive()
    }
}

// SAFETY: I2 for the owner's half; everything else is atomic, locked, or constant. `meta` points into `area`.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// A pool, as a buffer that is out refers to it: an address, not a count.
///
/// Whoever follows it holds something of the pool that is not accounted for yet (a buffer, a message of its own, the
/// owner half), so the pool is there (I3, I9). The methods on the way home take it by value and make no reference that
/// lives beyond the moment when the buffer is somebody else's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct PoolPtr(pub(crate) NonNull<Shared>);

impl Deref for PoolPtr {
    type Target = Shared;
    #[inline(always)]
    fn deref(&self) -> &Shared {
        // SAFETY: I3 and I9, as the type says; a pool is shared memory from its creation to its end.
        let shared = unsafe { self.0.as_ref() };
        // SAFETY: as above.
        #[cfg(loom)]
        unsafe {
            shared.alive.read()
        };
        shared
    }
}

/// A pool that a page has left. The page is not counted as its own any more, so the pool may end at any time, and only
/// what stands here may be touched; the provider keeps the area.
struct Gone {
    provider: Arc<dyn Provider>,
    order: u8,
}

impl Gone {
    /// Gives a page that was counted as released to the provider, now or with its last hold.
    fn give_back(self, page: PageIdx) {
        if clear_record(self.provider.area(), page) {
            // SAFETY: I1. The page came from this provider with the pool's order, and nobody has it any more.
            unsafe { self.provider.release(self.order, &[page]) };
        }
    }
}

impl Shared {
    /// The record of a page of this pool.
    #[inline(always)]
    pub(crate) fn page_meta(&self, page: PageIdx) -> &PageMeta {
        debug_assert!(page.0 < self.area.pages(), "I1: page {page:?} is not of this area");
        // SAFETY: I3. Page numbers of a pool come from its provider and are below the area's count of records.
        let at = unsafe { self.meta.add(page.0 as usize) };
        // SAFETY: I3. The area outlives the pool.
        unsafe { &*at }
    }

    /// The owner's right, if the calling thread has it.
    #[inline(always)]
    pub(crate) fn owner_here(&self) -> Option<Owner> {
        if self.owner.load(Ordering::Relaxed) != thread::token() {
            return None;
        }
        // SAFETY: I2. The owner word holds this thread's token, which only this thread writes, and only while it is
        // bound; a thread that was never bound, or hides its token, shows 0, which no owner word holds.
        Some(unsafe { Owner::assume() })
    }

    /// The lanes that were ever claimed.
    #[inline(always)]
    pub(crate) fn used_lanes(&self) -> &[Arc<Lane>] {
        &self.lanes[..self.lanes_used.load(Ordering::Acquire)]
    }

    pub(crate) fn provider(&self) -> &Arc<dyn Provider> {
        // SAFETY: I9. The caller returns a buffer that is not accounted for yet, or holds the owner half; the pool's parts
        // are taken only when neither exists.
        unsafe { self.provider.read() }
    }
}

impl PoolPtr {
    // ---- One whole page comes home -----------------------------------------------------------------------------

    /// A whole page on the owner's thread that the fast path did not take. `dirty` bytes were written at most.
    #[inline(never)]
    pub(crate) fn recycle_here(self, owner: Owner, page: PageIdx, special: bool, dirty: usize) {
        if special && self.page_meta(page).holds.load(Ordering::Acquire) != 0 {
            self.own.counts.recycle_released_refcnt.add(1);
            return self.leave_here(owner, page);
        }
        self.sync_for_device(page, dirty);
        self.cache_or_ring(page);
    }

    /// Into the cache, or the ring if that is full, or out of the pool. Asks again who the owner is: a sync is foreign
    /// code, and may have unbound or ended the pool.
    #[inline]
    pub(crate) fn cache_or_ring(self, page: PageIdx) {
        let Some(owner) = self.owner_here() else { return self.send_page(page) };
        if self.own.cache.push(owner, page) {
            self.own.counts.recycle_cached.add(1);
        } else {
            self.own.counts.recycle_cache_full.add(1);
            self.ring_or_out(page);
        }
    }

    /// A whole page on any thread but the owner's.
    pub(crate) fn recycle_elsewhere(self, page: PageIdx, special: bool, dirty: usize) {
        if special && self.page_meta(page).holds.load(Ordering::Acquire) != 0 {
            return self.release_held(page);
        }
        self.sync_for_device(page, dirty);
        self.send_page(page);
    }

    /// A whole page that needs nothing but to go home: lane, ring, or out of the pool.
    #[inline]
    pub(crate) fn send_page(self, page: PageIdx) {
        if let Some(lane) = self.lane()
            && lane.push_page(page)
        {
            return self.after_push(lane, lane.after_push());
        }
        self.ring_or_out(page);
    }

    /// Through the ring whatever the thread, and out of the pool if the ring is full. Linux:
    /// `page_pool_recycle_in_ring`.
    #[inline(never)]
    pub(crate) fn ring_or_out(self, page: PageIdx) {
        let mut returns = self.returns.lock();
        if returns.detached || !self.ring.push(&mut returns.tail, page.0 + 1) {
            if returns.detached {
                self.late_ring.add(1);
            } else {
                self.returned.recycle_ring_full.add(1);
                self.returned.release.add(1);
            }
            return self.out(returns, page);
        }
        self.returned.recycle_ring.add(1);
        self.wake_if_starved();
    }

    /// After a push into the ring, under the return lock: wakes an owner that found nothing.
    #[inline(always)]
    fn wake_if_starved(self) {
        light_fence(); // pairs with the heavy fence in raise_all()
        if self.wakeup.is_starved() {
            self.wakeup.wake();
        }
    }

    /// A page that was counted as released under the return lock goes to the provider; in a pool that has ended the
    /// returner accounts for it instead. What that takes is taken along before the lock is let go, for then the pool may end.
    #[cold]
    fn out(self, returns: impl Deref<Target = Returns>, page: PageIdx) {
        if returns.detached {
            drop(returns);
            return crate::pool::shutdown::came_home_late(self, &[page]);
        }
        let gone = self.gone();
        drop(returns);
        gone.give_back(page);
    }

    /// Many whole pages through the ring under one lock; what does not fit is handled one by one.
    pub(crate) fn ring_bulk(self, pages: &[u32]) {
        let pushed = {
            let mut returns = self.returns.lock();
            let fits = |page: &&u32| !returns.detached && self.ring.push(&mut returns.tail, **page + 1);
            let pushed = pages.iter().take_while(fits).count();
            self.returned.recycle_ring.add(pushed as u64);
            self.wake_if_starved();
            pushed
        };
        // With none left this thread holds nothing of the pool any more, and must not look at it.
        pages[pushed..].iter().for_each(|&page| self.ring_or_out(PageIdx(page)));
    }

    /// A page that somebody holds comes home on a thread that is not the owner's.
    #[cold]
    fn release_held(self, page: PageIdx) {
        let returns = self.returns.lock();
        self.returned.recycle_released_refcnt.add(1);
        if !returns.detached {
            self.returned.release.add(1);
        }
        self.out(returns, page);
    }

    // ---- Out of the pool ---------------------------------------------------------------------------------------

    /// The owner lets a page go.
    pub(crate) fn leave_here(self, _owner: Owner, page: PageIdx) {
        self.own.counts.release.add(1);
        self.gone().give_back(page);
    }

    /// What it takes to give pages back, for a returner that is about to let go of the pool.
    fn gone(self) -> Gone {
        Gone { provider: self.provider().clone(), order: self.geometry.order }
    }

    // ---- Lanes -------------------------------------------------------------------------------------------------

    /// The calling thread's lane to this pool.
    #[inline(always)]
    pub(crate) fn lane<'a>(self) -> Option<&'a Lane> {
        thread::lane(self.id, || self.claim_lane())
    }

    #[cold]
    fn claim_lane(self) -> Option<Arc<Lane>> {
        let at = self.lanes.iter().position(|lane| lane.claim())?;
        self.lanes_used.fetch_max(at + 1, Ordering::SeqCst);
        Some(self.lanes[at].clone())
    }

    /// Acts on the flags that a returner saw after its push; 0 almost always. The pool may be gone by now, unless the
    /// lane still holds a message.
    #[inline(always)]
    pub(crate) fn after_push(self, lane: &Lane, flags: u32) {
        if flags & (DETACHED | STARVED) != 0 {
            flagged(self, lane, flags);
        }
    }

    // ---- Fragments ------------------------------------------------------------------------------------------------

    /// A fragment on the owner's thread; the page that is home with it goes into the cache, or `to_ring`.
    #[inline]
    pub(crate) fn frag_here(self, owner: Owner, frag_page: PageIdx, to_ring: bool) {
        let page = frag_page.head(self.geometry.order);
        if self.frag_counted(owner, page, 1) {
            self.split_page_home(owner, page, to_ring);
        }
    }

    /// Counts fragments that came home; says whether the page is home with them. The owner alone decides that (I5).
    #[inline(always)]
    pub(crate) fn frag_counted(self, _owner: Owner, page: PageIdx, n: u32) -> bool {
        let meta = self.page_meta(page);
        let left = meta.frags.load(Ordering::Relaxed) - n;
        meta.frags.store(left, Ordering::Relaxed);
        left == 0
    }

    /// The last fragment of a page came home on the owner's thread: the page goes the way of a whole one.
    #[cold]
    fn split_page_home(self, owner: Owner, page: PageIdx, to_ring: bool) {
        self.one_split_less(owner);
        if self.page_meta(page).holds.load(Ordering::Acquire) != 0 {
            self.own.counts.recycle_released_refcnt.add(1);
            return self.leave_here(owner, page);
        }
        self.sync_split_page(page);
        if to_ring { self.ring_or_out(page) } else { self.cache_or_ring(page) }
    }

    /// One page fewer has fragments out.
    pub(crate) fn one_split_less(self, _owner: Owner) {
        // SAFETY: I2.
        unsafe { *self.own.split_pages.get() -= 1 };
    }

    /// A fragment on any thread but the owner's: a message, or where there is no room a count in its page.
    #[inline]
    pub(crate) fn frag_elsewhere(self, frag_page: PageIdx) {
        let page = frag_page.head(self.geometry.order);
        if let Some(lane) = self.lane()
            && lane.push_frag(page)
        {
            return self.after_push(lane, lane.after_push());
        }
        self.frags_without_lane(&[page.0]);
    }

    /// Many fragments on any thread but the owner's: into the lane as far as it has room, the rest under one lock.
    pub(crate) fn frags_elsewhere(self, frags: &[u32]) {
        let order = self.geometry.order;
        let Some(lane) = self.lane() else { return self.frags_without_lane(frags) };
        let pushed = frags.iter().take_while(|&&page| lane.push_frag(PageIdx(page).head(order))).count();
        if pushed > 0 {
            self.after_push(lane, lane.after_push());
        }
        // With none left this thread holds nothing of the pool any more, and must not look at it.
        if pushed < frags.len() {
            self.frags_without_lane(&frags[pushed..]);
        }
    }

    /// Fragments, at least one, through the ring whatever the thread.
    #[cold]
    pub(crate) fn frags_without_lane(self, frags: &[u32]) {
        let order = self.geometry.order;
        let pages = frags.iter().map(|&page| PageIdx(page).head(order));
        {
            let mut returns = self.returns.lock();
            if !returns.detached {
                for page in pages {
                    if !self.ring.push(&mut returns.tail, (page.0 + 1) | FRAG) {
                        self.overflow(&mut returns, page);
                    }
                }
                return self.wake_if_starved();
            }
        }
        pages.for_each(|page| crate::pool::shutdown::frag_came_home_late(self, page));
    }

    /// Counts a fragment in its page, and links the page once. Under the return lock.
    fn overflow(self, returns: &mut Returns, page: PageIdx) {
        let meta = self.page_meta(page);
        meta.home.store(meta.home.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        if meta.next.load(Ordering::Relaxed) == 0 {
            meta.next.store(if returns.overflow == 0 { 1 } else { returns.overflow + 1 }, Ordering::Relaxed);
            returns.overflow = page.0 + 1;
            self.overflowed.store(true, Ordering::Relaxed);
        }
    }

    /// Takes one page off the list of pages with overflowed fragments, and how many they are. For the owner.
    pub(crate) fn take_overflow(self, returns: &mut Returns) -> Option<(PageIdx, u32)> {
        let Some(page) = returns.overflow.checked_sub(1).map(PageIdx) else {
            self.overflowed.store(false, Ordering::Relaxed);
            return None;
        };
        let meta = self.page_meta(page);
        returns.overflow = meta.next.load(Ordering::Relaxed) - 1;
        meta.next.store(0, Ordering::Relaxed);
        // Late fragments, which come once the pool has ended and take no lock, may be counting in the same word.
        let frags = meta.home.swap(0, Ordering::AcqRel);
        Some((page, frags as u32))
    }

    // ---- Syncs -------------------------------------------------------------------------------------------------

    /// Hands a page that comes home to the device: at most `dirty` bytes from where packets begin.
    #[inline]
    pub(crate) fn sync_for_device(self, page: PageIdx, dirty: usize) {
        if !self.syncing.is_empty() {
            let start = page.offset() + self.geometry.packet_offset(page) as u64;
            self.sync_each(start, dirty.min(self.geometry.max_len as usize));
        }
    }

    /// Hands a page whose last fragment came home to the device: all of it, for any fragment may have been written.
    pub(crate) fn sync_split_page(self, page: PageIdx) {
        if !self.syncing.is_empty() {
            self.sync_each(page.offset(), self.geometry.page_size());
        }
    }

    #[cold]
    fn sync_each(self, start: u64, len: usize) {
        for mapping in &self.syncing {
            // A device that went away has no address for it, and needs no sync.
            if let Some(at) = mapping.addr_of(start) {
                mapping.domain().sync_for_device(at, len);
            }
        }
    }
}

/// Clears what the record says of a page that leaves a pool; says whether its memory is free now. If somebody holds
/// the page the last hold frees it instead.
pub(crate) fn clear_record(area: &Area, page: PageIdx) -> bool {
    let meta = area.meta(page);
    meta.frags.store(0, Ordering::Relaxed);
    meta.home.store(0, Ordering::Relaxed);
    meta.tag.store(0, Ordering::Relaxed);
    meta.pool.store(0, Ordering::Relaxed);
    if meta.holds.load(Ordering::Acquire) & HOLD_COUNT == 0 {
        return true; // with no hold alive and no handle left, none can be made
    }
    // Whoever makes "left, and no hold" true frees the page: this, or the last hold's drop.
    if meta.holds.fetch_or(LEFT, Ordering::AcqRel) & HOLD_COUNT != 0 {
        return false;
    }
    meta.holds.fetch_and(EMERGENCY, Ordering::Relaxed);
    true
}

#[cold]
fn flagged(pool: PoolPtr, lane: &Lane, flags: u32) {
    fence(Ordering::Acquire); // pairs with raise_all()
    if flags & STARVED != 0 {
        lane.lower(STARVED);
        lane.wakeup.wake();
    }
    if flags & DETACHED != 0 {
        crate::pool::shutdown::drain_late(pool, lane);
    }
}
