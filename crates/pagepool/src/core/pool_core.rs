//! [`PoolCore`]: what a pool and all its handles share.
//!
//! What   the pool. Its first line is read per buffer and written only at bind and unbind. The owner's lines
//!        follow, then the return lock's: no returning thread writes a line that the owner reads per buffer.
//! Who    any thread that has a buffer. The cache, the fragment state and the owner's counters belong to the
//!        holder of the owner half (I2), named by the owner word.
//! Life   a buffer that is out keeps the pool alive (I3), without a count: the pool is freed when the last
//!        one has returned (I9, late.rs).

// UNSAFETY: handles refer to the pool by address; `OwnerProof::assume` follows the owner word.
#![expect(unsafe_code)]

use std::fmt;
use std::num::NonZeroUsize;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool as PlainBool, AtomicU64 as PlainU64};
use std::sync::{Arc, Weak};

use crate::core::end_watch::EndWatch;
use crate::core::geometry::{Geometry, PoolSizes};
use crate::core::raw_line::RawLine;
use crate::core::registry::{MemId, RegisteredId};
use crate::core::short_name::ShortName;
use crate::holders::record::HolderRecord;
use crate::holders::table::HolderTable;
use crate::holders::tag::Tag;
use crate::mem::area::Area;
use crate::mem::dma::Mapping;
use crate::mem::page::{PageIdx, PageMeta};
use crate::mem::provider::Provider;
use crate::recycle::cache::{Cache, OwnerProof};
use crate::recycle::chain_blocks::{ChainBlock, ChainStash};
use crate::recycle::frag::FragState;
use crate::recycle::guard::Guard;
use crate::recycle::lane::{Lane, STARVED};
use crate::recycle::lane_list::{LaneHold, LaneList, LaneRotation};
use crate::recycle::lane_table::LanePlace;
use crate::recycle::lives::LifeTable;
use crate::recycle::ring::{ReturnRing, RingTail};
use crate::recycle::{lane_table, thread};
use crate::stats::{Counter, Counters, DeferredCounts};
use crate::sys::placed::{Placed, Shared};
use crate::sys::published_memory::{PublishedRow, UnseenPool};
use crate::sys::slab::Slab;
use crate::sys::sync::{
    AtomicBool, AtomicU32, AtomicU64, LastCell, Lock, Ordering, OwnerCell, Padded, UnseenLock, fence,
};
use crate::sys::wakeup::Wakeup;

/// In [`PoolCore::shrink_request`]: no shrink requested.
pub(crate) const NO_REQUEST: u32 = u32::MAX;
/// In [`PoolCore::shrink_request`] of a pool with holders: no shrink requested, but the owner's slow path
/// has more to do. One compare finds both.
pub(crate) const NO_REQUEST_BUT_TRACKS: u32 = NO_REQUEST - 1;

/// What a pool and all its handles share.
#[repr(C)]
pub(crate) struct PoolCore {
    /// The token of the thread that the pool is bound to, or [`thread::NOBODY`]. Only that thread writes its
    /// token here, so comparing with one's own token needs no ordering.
    pub(crate) owner: AtomicU64,
    /// Address of page 0; 0 for memory that the CPU cannot read.
    pub(crate) base: usize,
    /// `base` plus the headroom.
    pub(crate) packet_base: usize,
    /// As [`readable_below`](Self::readable_below), but 0 if pages have colours.
    pub(crate) colourless_below: u64,
    pub(crate) id: u32,
    /// `id` if the remote return of a plain page needs only its message: no sync, and fences are free.
    /// Otherwise a value that no pool has as its id.
    pub(crate) message_only_id: u32,
    /// Where threads cache their lane to this pool.
    pub(crate) lane_place: LanePlace,
    /// `max_len`, in this cache line.
    pub(crate) packet_len: u32,
    pub(crate) geometry: Geometry,
    pub(crate) meta: *const PageMeta,
    /// A handle's word below this means a plain whole page that the CPU can read.
    pub(crate) readable_below: u64,
    /// The id of `area`; devices read it per buffer.
    pub(crate) area_id: u64,
    /// The number that `lane_place` contains.
    pub(crate) short_name: ShortName,
    pub(crate) lanes: LaneList,
    /// Whether pages with overflowed fragments are listed. Written under the return lock.
    pub(crate) overflowed: AtomicBool,
    /// Whole pages that other threads than the owner split.
    pub(crate) split_elsewhere: PlainU64,
    /// Whether a buffer was ever split inside a cache line. Set by any thread, never cleared. A thread that
    /// has such a part sees it.
    pub(crate) split_lines: PlainBool,
    /// Number of idle pages that the owner shall keep, or [`NO_REQUEST`] (shrink.rs).
    pub(crate) shrink_request: AtomicU32,

    pub(crate) own: Padded<OwnerState>,
    pub(crate) returns: Padded<Lock<ReturnState>>,
    /// Written under the return lock.
    pub(crate) returned: Counters,
    pub(crate) ring: ReturnRing,
    /// Messages of fragments ever put into the ring, plus listed pages with overflowed fragments. Written
    /// under the return lock.
    pub(crate) ring_frags: Counter,
    /// Pages that returned after the end. Any thread.
    pub(crate) late: PlainU64,
    /// Those of them that Linux would put into the ring. Written under the return lock.
    pub(crate) late_ring: Counter,

    /// Blocks for further buffers of packets.
    pub(crate) chains: Slab<ChainBlock>,
    pub(crate) name: String,
    pub(crate) area: Arc<Area>,
    pub(crate) provider: LastCell<Arc<dyn Provider>>,
    /// The pool's id in its registry.
    pub(crate) mem_id: MemId,
    /// Released when the pool is freed, and therefore never while a buffer is out (I8).
    pub(crate) registration: LastCell<RegisteredId>,
    /// Read by all that follows a [`PoolPtr`], taken when the pool is freed: a model finds each use after the
    /// end.
    #[cfg(loom)]
    pub(crate) alive: LastCell<()>,
    /// The pool's domains. [`dma_addr`](crate::PageBuf::dma_addr) is in the first.
    pub(crate) mappings: Box<[Arc<Mapping>]>,
    /// The domains that need syncs, if the pool syncs.
    pub(crate) syncing: Box<[Arc<Mapping>]>,
    pub(crate) wakeup: Arc<Wakeup>,
    pub(crate) watch: Arc<EndWatch>,
    /// Counters of the deferred queue, if there is one. Written by the holder of the queue.
    pub(crate) deferred: Option<Shared<DeferredCounts>>,
    /// Whether buffers have tags.
    pub(crate) tagging: bool,
    /// Whether returning pages need a sync, or their record cleared.
    pub(crate) needs_work_on_return: bool,
    /// Fragments larger than this take the slow path: all in a pool with holders, else those that do not fit
    /// a page.
    pub(crate) cut_limit: usize,
    /// The lives of the pages, if their handles are numbers in another language.
    pub(crate) lives: Option<&'static LifeTable>,
    /// Records who holds what, in pools with holders.
    pub(crate) holders: Option<Arc<HolderTable>>,
    /// The pool's row in the published file, if it is there. Taken before anything that the row refers to is
    /// freed.
    pub(crate) row: UnseenLock<Result<PublishedRow, UnseenPool>>,
    /// The count that keeps the pool.
    pub(crate) count: Weak<Placed<Self>>,
}

/// What only the owner writes. Any thread may read the counts in it.
#[repr(C)]
pub(crate) struct OwnerState {
    /// First, because other languages know the fields up to the first two counters (`CacheHead` in
    /// pool/ffi.rs).
    pub(crate) cache: Cache,
    pub(crate) counts: Counters,
    pub(crate) frag: OwnerCell<FragState>,
    /// Whether `frag` has a page, for threads that may not read `frag`.
    pub(crate) frag_open: PlainBool,
    /// Bytes of cut pages that belong to no fragment.
    pub(crate) frag_waste: Counter,
    /// Pages no longer being cut, with fragments out as far as the owner knows, less the pages that other
    /// threads split.
    pub(crate) in_frags: Counter,
    /// The owner's stash of blocks for chains.
    pub(crate) chains: ChainStash,
    /// The lanes that the next cut visits.
    pub(crate) lane_rotation: LaneRotation,
    /// What addresses need, for any thread.
    pub(crate) raw: Guard<RawLine>,
}

/// What the return lock guards.
#[derive(Debug, Default)]
pub(crate) struct ReturnState {
    pub(crate) tail: RingTail,
    /// The pool has ended: no push is allowed any more (I9).
    pub(crate) detached: bool,
    /// First page with fragments that found no room, linked through [`PageMeta::next`]; 0 is none.
    pub(crate) overflow: u32,
}

impl OwnerState {
    pub(crate) fn new(sizes: &PoolSizes, fast_push: bool, raw: Guard<RawLine>) -> Self {
        Self {
            cache: Cache::new(sizes.cache, fast_push),
            counts: Counters::default(),
            frag: OwnerCell::new(FragState::NONE),
            frag_open: PlainBool::new(false),
            frag_waste: Counter::default(),
            in_frags: Counter::default(),
            chains: ChainStash::new(sizes.chains),
            raw,
            lane_rotation: LaneRotation::default(),
        }
    }

    /// Whether a page is being cut into fragments. Any thread.
    pub(crate) fn frag_is_open(&self) -> bool {
        self.frag_open.load(std::sync::atomic::Ordering::Relaxed)
    }
}

impl fmt::Debug for PoolCore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("id", &self.id).field("name", &self.name).finish_non_exhaustive()
    }
}

// SAFETY: I2 for the owner's half; all else is atomic, locked, or constant. `meta` points into `area`.
unsafe impl Send for PoolCore {}
// SAFETY: I2. A shared pool gives access to the owner's half only with an `OwnerProof`.
unsafe impl Sync for PoolCore {}

/// The address, not a count, of a pool, for a buffer that is out.
///
/// Code that follows it has something of the pool that is not accounted for yet (a buffer, a message of its
/// own, the owner half), so the pool is alive (I3, I9). Return methods take it by value, and keep no
/// reference once the buffer belongs to another thread.
///
/// A number, not a pointer type: handles are created and compared many at once, as words in vector registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct PoolPtr(NonZeroUsize);

impl PoolPtr {
    /// No pool's address. Never followed.
    pub(crate) const NOWHERE: Self = Self(NonZeroUsize::MIN);

    /// The address of a pool. Exposes its provenance.
    #[inline]
    pub(crate) fn new(pool: NonNull<PoolCore>) -> Self {
        pool.as_ptr().expose_provenance();
        Self(pool.addr())
    }

    #[inline(always)]
    pub(crate) fn addr(self) -> usize {
        self.0.get()
    }

    /// The address with the provenance that [`new`](Self::new) exposed.
    #[inline(always)]
    pub(crate) fn get(self) -> NonNull<PoolCore> {
        // SAFETY: it is not 0.
        unsafe { NonNull::new_unchecked(std::ptr::with_exposed_provenance_mut(self.addr())) }
    }
}

impl Deref for PoolPtr {
    type Target = PoolCore;
    #[inline(always)]
    fn deref(&self) -> &PoolCore {
        // SAFETY: I3 and I9, as the type's comment says. A pool is shared memory from its creation to its
        // end.
        let shared = unsafe { &*std::ptr::with_exposed_provenance::<PoolCore>(self.addr()) };
        // SAFETY: I9. `alive` is taken after the last buffer returned, and the caller has one.
        #[cfg(loom)]
        unsafe {
            shared.alive.read()
        };
        shared
    }
}

impl PoolCore {
    /// The record of a page of this pool.
    #[inline(always)]
    pub(crate) fn page_meta(&self, page: PageIdx) -> &PageMeta {
        debug_assert!(page.0 < self.area.pages(), "I1: page {page:?} is not of this area");
        // SAFETY: I3. A pool's page numbers come from its provider and are below the area's number of
        // records.
        let at = unsafe { self.meta.add(page.0 as usize) };
        // SAFETY: I3. The area outlives the pool.
        unsafe { &*at }
    }

    /// Messages of fragments in the ring, plus pages with overflowed ones. Any thread.
    pub(crate) fn frags_in_ring(&self) -> u64 {
        self.ring_frags.read().saturating_sub(self.ring.frags_taken())
    }

    /// Pages that joined and have not left, by the counters. Correct at every moment (I7).
    pub(crate) fn pages(&self) -> i64 {
        let released = self.own.counts.release.read().wrapping_add(self.returned.release.read());
        self.own.counts.hold.read().wrapping_sub(released) as i64
    }

    /// Where the owner's idle pages are now: the cache, or the idle cache of a pool with holders.
    pub(crate) fn idle_cache(&self) -> &Cache {
        let holders = self.holders.as_deref().filter(|holders| !holders.idle_cache_is_lent());
        holders.map_or(&self.own.cache, HolderTable::idle_cache)
    }

    /// The record of a page's holder, in a pool with holders.
    #[inline(always)]
    pub(crate) fn holder_record(&self, page: PageIdx) -> Option<&HolderRecord> {
        self.holders.as_ref()?.record(page)
    }

    /// The owner's proof, if the calling thread is the owner.
    #[inline(always)]
    pub(crate) fn owner_here(&self) -> Option<OwnerProof> {
        if self.owner.load(Ordering::Relaxed) != thread::token() {
            return None;
        }
        // SAFETY: I2. The owner word holds this thread's token. Only this thread writes it, and only while
        // bound. A thread that was never bound, or hides its token, has 0, which no owner word holds.
        Some(unsafe { OwnerProof::assume() })
    }

    /// The calling thread's lane to this pool; claims one if needed.
    #[inline(always)]
    pub(crate) fn lane<'a>(&self) -> Option<&'a Lane> {
        lane_table::lane(self.id, self.lane_place, || self.claim_lane())
    }

    #[cold]
    fn claim_lane(&self) -> Option<LaneHold> {
        let lane = self.lanes.claim()?;
        // Pairs with add() in arm_wakeup(), which raises the flags of the lanes that it sees.
        fence(Ordering::SeqCst);
        if self.wakeup.is_starved() {
            lane.raise(STARVED);
        }
        Some(lane)
    }

    pub(crate) fn provider(&self) -> &Arc<dyn Provider> {
        // SAFETY: I9. The caller returns a buffer that is not accounted for yet, or has the owner half; the
        // pool's parts are taken only when neither exists.
        unsafe { self.provider.read() }
    }
}

impl PoolPtr {
    /// The calling thread's lane, if it finds it at once and a plain page or a fragment needs only its
    /// message. [`after_free_push`](Lane::after_free_push) is then sufficient as fence.
    #[inline(always)]
    pub(crate) fn message_only_lane<'a>(self) -> Option<&'a Lane> {
        lane_table::lane_at_hand(self.message_only_id, self.lane_place)
    }

    /// Prepares a whole page for reuse: clears its record and syncs at most `dirty` bytes from where packets
    /// begin.
    #[inline]
    pub(crate) fn prepare_for_reuse(self, page: PageIdx, dirty: usize) {
        if self.needs_work_on_return {
            self.prepare_for_reuse_slow(page, dirty);
        }
    }

    #[cold]
    pub(crate) fn prepare_for_reuse_slow(self, page: PageIdx, dirty: usize) {
        self.has_no_holder(page);
        self.sync_for_device(page, dirty);
    }

    /// Prepares a page whose last fragment returned for reuse: clears its record and syncs the whole page.
    #[cold]
    pub(crate) fn prepare_split_page(self, page: PageIdx) {
        self.has_no_holder(page);
        self.sync_split_page(page);
    }

    /// Clears the record of a page that is no longer out and that no other thread has.
    #[inline]
    pub(crate) fn has_no_holder(self, page: PageIdx) {
        self.holder_record(page).inspect(|record| record.back());
    }

    /// Tags a page on behalf of the calling thread, which has it or a fragment of it. The pool has tags. A
    /// tag without a name is ignored.
    #[inline(never)]
    pub(crate) fn tag_page(self, page: PageIdx, tag: Tag) {
        if tag == Tag::NONE {
            return;
        }
        self.page_meta(page).tag.store(tag.number().into(), Ordering::Relaxed);
        if let Some(holders) = &self.holders {
            holders.hand_over(page, tag, self.owner_here());
        }
    }

    /// Syncs a page for the device: at most `dirty` bytes from where packets begin.
    #[inline]
    pub(crate) fn sync_for_device(self, page: PageIdx, dirty: usize) {
        if !self.syncing.is_empty() {
            let start = self.geometry.start_of(page) + self.geometry.packet_offset(page) as u64;
            self.sync_each(page, start, dirty.min(self.geometry.max_len as usize));
        }
    }

    /// Syncs a page that is, or was, in fragments for the device: all of it, because any fragment may be
    /// written.
    pub(crate) fn sync_split_page(self, page: PageIdx) {
        if !self.syncing.is_empty() {
            self.sync_each(page, self.geometry.start_of(page), self.geometry.page_size());
        }
    }

    /// If a sync panics, the page leaves the pool: the caller must not have counted it as returned.
    #[cold]
    fn sync_each(self, page: PageIdx, start: u64, len: usize) {
        let in_hand = ReleaseOnPanic { pool: self, page };
        for mapping in &self.syncing {
            // A removed device has no address for it, and needs no sync.
            if let Some(at) = mapping.addr_of(start) {
                mapping.domain().sync_for_device(at, len);
            }
        }
        in_hand.keep();
    }
}

/// A page that only the caller has, while a callback runs: if that panics, the page leaves the pool. It is
/// not synced, because a sync may panic again; a refill syncs all pages from the provider.
pub(crate) struct ReleaseOnPanic {
    pub(crate) pool: PoolPtr,
    pub(crate) page: PageIdx,
}

impl ReleaseOnPanic {
    /// No panic: the page is the caller's again.
    #[inline(always)]
    pub(crate) fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for ReleaseOnPanic {
    fn drop(&mut self) {
        self.pool.has_no_holder(self.page);
        self.pool.return_to_provider(self.pool.returns.lock(), self.page); // page_return.rs
    }
}
