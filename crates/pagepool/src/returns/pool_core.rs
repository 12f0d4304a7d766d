//! [`PoolCore`]: what a pool and all its handles share.
//!
//! What   [`PoolCore`] is the pool. Its first line is read per buffer and written at bind and unbind only;
//!        the owner's lines follow, then the return lock's, so no returning thread writes a line that the
//!        owner reads per buffer.
//! Who    any thread that has a buffer. The cache, the fragment state and the owner's counters belong to the
//!        holder of the owner half (I2), which the owner word names.
//! Life   a buffer that is out keeps the pool (I3), without a count: the pool ends when the last one has
//!        returned (I9, late.rs).

// UNSAFETY: handles refer to the pool by address; `OwnerProof::assume` follows the owner word.
#![expect(unsafe_code)]

use std::fmt;
use std::num::NonZeroUsize;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool as PlainBool, AtomicU64 as PlainU64};
use std::sync::{Arc, Weak};

use crate::holders::table::HolderTable;
use crate::holders::tag::Tag;
use crate::home::cache::{Cache, OwnerProof};
use crate::home::chain_blocks::{ChainBlock, ChainStash};
use crate::home::frag::FragState;
use crate::home::lane::{Lane, STARVED};
use crate::home::lane_list::{CutTurns, LaneHold, LaneList};
use crate::home::lane_table::LanePlace;
use crate::home::registry::{MemId, RegisteredId};
use crate::home::ring::{ReturnRing, RingTail};
use crate::home::stats::{Counter, Counters, DeferredCounts};
use crate::home::{lane_table, thread};
use crate::mem::area::Area;
use crate::mem::dma::Mapping;
use crate::mem::page::{PageIdx, PageMeta};
use crate::mem::provider::Provider;
use crate::returns::end_watch::EndWatch;
use crate::returns::geometry::{Geometry, PoolSizes};
use crate::returns::raw_line::RawLine;
use crate::returns::short_name::ShortName;
use crate::sys::placed::{Placed, Shared};
use crate::sys::published_memory::{PublishedRow, UnseenPool};
use crate::sys::slab::Slab;
use crate::sys::sync::{
    AtomicBool, AtomicU32, AtomicU64, LastCell, Lock, Ordering, OwnerCell, Padded, UnseenLock, fence,
};
use crate::sys::wakeup::Wakeup;

/// In [`PoolCore::asked_to_shrink`]: nobody asked.
pub(crate) const NOT_ASKED: u32 = u32::MAX;
/// The same in a pool with holders: one compare tells the owner's slow calls that they have more to do.
pub(crate) const NOT_ASKED_BUT_TRACKS: u32 = NOT_ASKED - 1;

/// What a pool and all its handles share.
#[repr(C)]
pub(crate) struct PoolCore {
    /// The token of the thread that the pool is bound to, or [`thread::NOBODY`]. Only that thread ever writes
    /// its token here, so comparing with one's own needs no ordering.
    pub(crate) owner: AtomicU64,
    /// Address of page 0; 0 for memory that the CPU cannot read.
    pub(crate) base: usize,
    pub(crate) meta: *const PageMeta,
    pub(crate) id: u32,
    /// `id` if the remote return of a plain page needs no more than its message: no sync, and fences are
    /// free. Else what no pool has for its id.
    pub(crate) plain_id: u32,
    /// Where threads have their lanes to the pool at hand.
    pub(crate) lane_place: LanePlace,
    pub(crate) geometry: Geometry,
    /// The id of `area`; devices read it per buffer.
    pub(crate) area_id: u64,
    /// Its short name, which packed buffers carry.
    pub(crate) slot: ShortName,
    pub(crate) lanes: LaneList,
    /// Whether pages with overflowed fragments are listed; written under the return lock.
    pub(crate) overflowed: AtomicBool,
    /// Whole pages that threads other than the owner's split.
    pub(crate) split_elsewhere: PlainU64,
    /// Whether a buffer was ever split inside a cache line. Set by any thread, never unset; whoever has such
    /// a part sees it.
    pub(crate) split_lines: PlainBool,
    /// Idle pages that the owner is asked to keep, or [`NOT_ASKED`] (shrink.rs).
    pub(crate) asked_to_shrink: AtomicU32,

    pub(crate) own: Padded<OwnerState>,
    pub(crate) returns: Padded<Lock<ReturnState>>,
    /// Written under the return lock.
    pub(crate) returned: Counters,
    pub(crate) ring: ReturnRing,
    /// Messages of fragments ever put into the ring, and pages with overflowed fragments that are listed.
    /// Written under the return lock.
    pub(crate) ring_frags: Counter,
    /// Pages that returned after the end. Any thread.
    pub(crate) late: PlainU64,
    /// Those of them that Linux would still put into the ring. Written under the return lock.
    pub(crate) late_ring: Counter,

    /// Blocks for the further buffers of its packets.
    pub(crate) chains: Slab<ChainBlock>,
    pub(crate) name: String,
    pub(crate) area: Arc<Area>,
    pub(crate) provider: LastCell<Arc<dyn Provider>>,
    /// The memory id that frames of the pool carry, through their first buffer.
    pub(crate) mem_id: MemId,
    /// Given back when the pool is freed, so not while a buffer is out (I8).
    pub(crate) registration: LastCell<RegisteredId>,
    /// Read by everything that follows a [`PoolPtr`], taken when the pool is freed: a model finds any use
    /// after the end.
    #[cfg(loom)]
    pub(crate) alive: LastCell<()>,
    /// The pool's domains, the first of which [`dma_addr`](crate::PageBuf::dma_addr) answers for.
    pub(crate) mappings: Box<[Arc<Mapping>]>,
    /// Those of them that need syncs, if the pool syncs.
    pub(crate) syncing: Box<[Arc<Mapping>]>,
    pub(crate) wakeup: Arc<Wakeup>,
    pub(crate) watch: Arc<EndWatch>,
    /// Counters of the deferred queue, if there is one; written by the holder of the queue.
    pub(crate) deferred: Option<Shared<DeferredCounts>>,
    /// Whether buffers have tags.
    pub(crate) tagging: bool,
    /// Whether pages that return need more than their way home: a sync, or their record cleared.
    pub(crate) careful: bool,
    /// Sizes of fragments from here on are not cut at once: all in a pool with holders, else those that do
    /// not fit a page.
    pub(crate) cut_limit: usize,
    /// Who holds what, if the pool records it.
    pub(crate) holders: Option<Arc<HolderTable>>,
    /// Its row in the published file, if it is there. Taken before anything that the row leads to goes.
    pub(crate) row: UnseenLock<Result<PublishedRow, UnseenPool>>,
    /// What keeps the pool.
    pub(crate) count: Weak<Placed<Self>>,
}

/// What the owner alone writes; the counts in it may be read by anyone.
#[repr(C)]
pub(crate) struct OwnerState {
    /// First: other languages know the fields up to the first two counters (`CacheHead` in pool/ffi.rs).
    pub(crate) cache: Cache,
    /// Whether the owner is taking whole pages back by their addresses: see raw_page.rs. In the line of the
    /// count and the counters that such a return changes.
    pub(crate) taking_raw: AtomicBool,
    pub(crate) counts: Counters,
    pub(crate) frag: OwnerCell<FragState>,
    /// Whether `frag` has a page, for threads that may not look into it.
    pub(crate) frag_open: PlainBool,
    /// Bytes of pages that were cut up and belong to no fragment.
    pub(crate) frag_waste: Counter,
    /// Pages that are not cut any more, and of which fragments are out as far as the owner knows; less those
    /// that other threads split.
    pub(crate) in_frags: Counter,
    /// Pages of the emergency reserve that were reserved and not handed out yet.
    pub(crate) emergency: OwnerCell<Vec<PageIdx>>,
    /// Blocks for chains that the owner keeps at hand.
    pub(crate) chains: ChainStash,
    /// The lanes that the next cut looks at.
    pub(crate) cut_turns: CutTurns,
    /// What addresses need, for any thread.
    pub(crate) raw: RawLine,
}

/// What the return lock guards.
#[derive(Debug, Default)]
pub(crate) struct ReturnState {
    pub(crate) tail: RingTail,
    /// The pool has ended: nothing is pushed any more (I9).
    pub(crate) detached: bool,
    /// First page with fragments that found no room, linked through [`PageMeta::next`]; 0 is none.
    pub(crate) overflow: u32,
}

impl OwnerState {
    pub(crate) fn new(sizes: &PoolSizes, plain_push: bool, raw: RawLine) -> Self {
        Self {
            taking_raw: AtomicBool::new(false),
            cache: Cache::new(sizes.cache, plain_push),
            counts: Counters::default(),
            frag: OwnerCell::new(FragState::NONE),
            frag_open: PlainBool::new(false),
            frag_waste: Counter::default(),
            in_frags: Counter::default(),
            emergency: OwnerCell::new(Vec::new()),
            chains: ChainStash::new(sizes.chains),
            raw,
            cut_turns: CutTurns::default(),
        }
    }

    /// Whether a page is being cut into fragments; readable by anyone.
    pub(crate) fn frag_is_open(&self) -> bool {
        self.frag_open.load(std::sync::atomic::Ordering::Relaxed)
    }
}

impl fmt::Debug for PoolCore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("id", &self.id).field("name", &self.name).finish_non_exhaustive()
    }
}

// SAFETY: I2 for the owner's half; everything else is atomic, locked, or constant. `meta` points into `area`.
unsafe impl Send for PoolCore {}
// SAFETY: I2. Through a shared pool the owner's half is reached with an `OwnerProof` alone.
unsafe impl Sync for PoolCore {}

/// A pool, as a buffer that is out refers to it: an address, not a count.
///
/// Code that follows it holds something of the pool that is not accounted for yet (a buffer, a message of its
/// own, the owner half), so the pool is there (I3, I9). The methods on the way back take it by value. None
/// keeps a reference once the buffer belongs to another thread.
///
/// A number, not a pointer type: handles are made and compared many at once, as words in vector registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct PoolPtr(NonZeroUsize);

impl PoolPtr {
    /// No pool's address; nobody follows it.
    pub(crate) const NOWHERE: Self = Self(NonZeroUsize::MIN);

    /// The address of a pool, whose provenance is exposed.
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
        // SAFETY: I3 and I9, as the type says; a pool is shared memory from its creation to its end.
        let shared = unsafe { &*std::ptr::with_exposed_provenance::<PoolCore>(self.addr()) };
        // SAFETY: I9. `alive` is taken when the last buffer has returned, and the caller has one.
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
        // SAFETY: I3. Page numbers of a pool come from its provider and are below the area's count of
        // records.
        let at = unsafe { self.meta.add(page.0 as usize) };
        // SAFETY: I3. The area outlives the pool.
        unsafe { &*at }
    }

    /// Messages of fragments in the ring, and pages with overflowed ones; readable by anyone.
    pub(crate) fn frags_in_ring(&self) -> u64 {
        self.ring_frags.read().saturating_sub(self.ring.frags_taken())
    }

    /// Pages that joined and have not left, by the counters: right at every moment (I7).
    pub(crate) fn pages(&self) -> i64 {
        let released = self.own.counts.release.read().wrapping_add(self.returned.release.read());
        self.own.counts.hold.read().wrapping_sub(released) as i64
    }

    /// Where idle pages of the owner are now: in the cache, or in the stock of a pool with holders.
    pub(crate) fn idle_cache(&self) -> &Cache {
        let holders = self.holders.as_deref().filter(|holders| !holders.stock_is_out());
        holders.map_or(&self.own.cache, HolderTable::stock)
    }

    /// The owner's right, if the calling thread has it.
    #[inline(always)]
    pub(crate) fn owner_here(&self) -> Option<OwnerProof> {
        if self.owner.load(Ordering::Relaxed) != thread::token() {
            return None;
        }
        // SAFETY: I2. The owner word holds this thread's token, which only this thread writes, and only while
        // it is bound; a thread that was never bound, or hides its token, shows 0, which no owner word holds.
        Some(unsafe { OwnerProof::assume() })
    }

    pub(crate) fn provider(&self) -> &Arc<dyn Provider> {
        // SAFETY: I9. The caller returns a buffer that is not accounted for yet, or holds the owner half; the
        // pool's parts are taken only when neither exists.
        unsafe { self.provider.read() }
    }
}

impl PoolPtr {
    /// The calling thread's lane to this pool.
    #[inline(always)]
    pub(crate) fn lane<'a>(self) -> Option<&'a Lane> {
        lane_table::lane(self.id, self.lane_place, || self.claim_lane())
    }

    /// As [`lane`](Self::lane), if the thread finds it at once, and a plain page or a fragment needs no more
    /// than its message: then [`after_free_push`](Lane::after_free_push) is fence enough.
    #[inline(always)]
    pub(crate) fn plain_lane<'a>(self) -> Option<&'a Lane> {
        lane_table::lane_at_hand(self.plain_id, self.lane_place)
    }

    #[cold]
    fn claim_lane(self) -> Option<LaneHold> {
        let lane = self.lanes.claim()?;
        // Pairs with add() in starve(), which raises the flags of the lanes that it sees.
        fence(Ordering::SeqCst);
        if self.wakeup.is_starved() {
            lane.raise(STARVED);
        }
        Some(lane)
    }

    /// A whole page is home, but for its way: its record is cleared, and at most `dirty` bytes from where
    /// packets begin are the device's again.
    #[inline]
    pub(crate) fn comes_home(self, page: PageIdx, dirty: usize) {
        if self.careful {
            self.comes_home_carefully(page, dirty);
        }
    }

    #[cold]
    pub(crate) fn comes_home_carefully(self, page: PageIdx, dirty: usize) {
        self.has_no_holder(page);
        self.sync_for_device(page, dirty);
    }

    /// The same for a page whose last fragment returned: all of it is the device's again.
    #[cold]
    pub(crate) fn split_comes_home_carefully(self, page: PageIdx) {
        self.has_no_holder(page);
        self.sync_split_page(page);
    }

    /// Clears the record of a page that is out no more, and that nobody else has.
    #[inline]
    pub(crate) fn has_no_holder(self, page: PageIdx) {
        if let Some(holders) = &self.holders {
            holders.back(page);
        }
    }

    /// The calling thread has a page, or a fragment of it, and says as what. The pool has tags. A tag without
    /// a name says nothing: it may be of a pool that has none.
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

    /// Hands a page to the device: at most `dirty` bytes from where packets begin.
    #[inline]
    pub(crate) fn sync_for_device(self, page: PageIdx, dirty: usize) {
        if !self.syncing.is_empty() {
            let start = page.offset() + self.geometry.packet_offset(page) as u64;
            self.sync_each(page, start, dirty.min(self.geometry.max_len as usize));
        }
    }

    /// Hands a page that is, or was, in fragments to the device: all of it, for any fragment may be written.
    pub(crate) fn sync_split_page(self, page: PageIdx) {
        if !self.syncing.is_empty() {
            self.sync_each(page, page.offset(), self.geometry.page_size());
        }
    }

    /// A page whose sync panics leaves the pool, so the caller must not have counted it among those that
    /// returned.
    #[cold]
    fn sync_each(self, page: PageIdx, start: u64, len: usize) {
        let in_hand = InHand { pool: self, page };
        for mapping in &self.syncing {
            // A device that went away has no address for it, and needs no sync.
            if let Some(at) = mapping.addr_of(start) {
                mapping.domain().sync_for_device(at, len);
            }
        }
        in_hand.keep();
    }
}

/// A page of the pool that is nowhere but here, while a callback runs: if that panics, the page leaves the
/// pool. Unsynced, for a sync may panic once more; a refill syncs all that comes from the provider.
pub(crate) struct InHand {
    pub(crate) pool: PoolPtr,
    pub(crate) page: PageIdx,
}

impl InHand {
    /// Nothing panicked: the page is the caller's again.
    #[inline(always)]
    pub(crate) fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for InHand {
    fn drop(&mut self) {
        self.pool.has_no_holder(self.page);
        self.pool.leave(self.page); // page_return.rs
    }
}
