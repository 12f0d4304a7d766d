//! For interfaces to other languages: buffers as two words, the address of the owner's cache, returns with
//! lives.
//!
//! What   [`PageBuf::into_token`] and [`PageBuf::from_token`] take a handle apart and rebuild it.
//!        [`Bound::cache_head`] gives the cache's address, so that the owner allocates and returns without a
//!        call. A [`LifeTable`] guards the handles, and a [`LifeLane`] returns pages with their lives.
//! Who    the C interface, which keeps a generation beside each pair of words. Rust code needs none of it.
//!        The caller must keep I1 and I2: the code that makes a buffer from two words is its only owner, and
//!        only the thread to which the pool is bound touches the cache.

// UNSAFETY: handles are made from words for which the caller is responsible.
#![expect(unsafe_code)]

use std::ffi::c_void;
use std::marker::PhantomData;
use std::mem::offset_of;
use std::num::NonZeroU32;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::buf::handle_bits::{FragBits, HandleBits};
use crate::buf::page_buf::PageBuf;
use crate::core::pool_core::{OwnerState, PoolPtr};
use crate::error::Error;
use crate::mem::page::PageIdx;
use crate::mem::provider::Provider;
use crate::pool::bound::Bound;
use crate::pool::params::PoolParams;
use crate::pool::pool_ref::PoolRef;
use crate::pool::shutdown;
use crate::pool::unbound::Pool;
use crate::recycle::cache::{Cache, MAX_CACHE};
#[cfg(not(loom))]
use crate::recycle::lane::LaneProducer;
use crate::recycle::lane::{DETACHED, Lane};
#[cfg(not(loom))]
use crate::recycle::lane_table::{Hand, hand};
use crate::recycle::lane_table::{LanePlace, lane_at_hand_of};
use crate::recycle::lives::LifeTable;
use crate::recycle::message::Message;
use crate::recycle::thread;
use crate::returns::page_return;
use crate::stats::Counters;
use crate::sys::memory::Mapped;
use crate::sys::sync::Ordering::{Acquire, Relaxed};
use crate::sys::sync::fence;

/// What only a pool's owner writes per buffer, for other languages: its cache, and two counters. Code that
/// takes pages from the cache, or puts them there, must count them. More of the pool follows.
#[derive(Debug)]
#[repr(C)]
pub struct CacheHead {
    /// Page numbers, all initialised; [`count`](Self::count) of them are in the cache.
    pub entries: [AtomicU32; MAX_CACHE],
    /// Number of pages in the cache. The last one put is the first one taken.
    pub count: AtomicUsize,
    /// Number of pages up to which a put is only a store; 0 in a pool that syncs for a device or has holders.
    pub limit: usize,
    /// Most pages in the cache.
    pub capacity: usize,
    /// Pages that the owner took: the pool's counter `alloc_fast`.
    pub alloc_fast: AtomicU64,
    /// Pages that the owner put: the pool's counter `recycle_cached`.
    pub recycle_cached: AtomicU64,
}

/// Each field is where the pool has it. (Loom's cells are larger.)
const _: () = if !cfg!(loom) {
    let counts = offset_of!(OwnerState, counts);
    assert!(offset_of!(OwnerState, cache) == 0);
    assert!(offset_of!(CacheHead, entries) == offset_of!(Cache, entries));
    assert!(offset_of!(CacheHead, count) == offset_of!(Cache, count));
    assert!(offset_of!(CacheHead, limit) == offset_of!(Cache, limit));
    assert!(offset_of!(CacheHead, capacity) == offset_of!(Cache, capacity));
    assert!(offset_of!(CacheHead, alloc_fast) == counts + offset_of!(Counters, alloc_fast));
    assert!(offset_of!(CacheHead, recycle_cached) == counts + offset_of!(Counters, recycle_cached));
};

impl CacheHead {
    /// The head of a cache that is empty and stays empty.
    pub const fn empty() -> Self {
        Self {
            entries: [const { AtomicU32::new(0) }; MAX_CACHE],
            count: AtomicUsize::new(0),
            limit: 0,
            capacity: 0,
            alloc_fast: AtomicU64::new(0),
            recycle_cached: AtomicU64::new(0),
        }
    }

    /// Counts pages that the owner took from the cache. Owner only.
    #[inline(always)]
    pub fn count_taken(&self, pages: u64) {
        self.alloc_fast.store(self.alloc_fast.load(Relaxed).wrapping_add(pages), Relaxed);
    }

    /// Counts pages that the owner put into the cache. Owner only.
    #[inline(always)]
    pub fn count_put(&self, pages: u64) {
        self.recycle_cached.store(self.recycle_cached.load(Relaxed).wrapping_add(pages), Relaxed);
    }
}

impl PageBuf {
    /// In the second word of [`into_token`](Self::into_token): a whole page that may have references.
    pub const WITH_REFS: u64 = (FragBits::MAY_HAVE_REFS.0 as u64) << 32;

    /// Turns the buffer into two words: the pool's address, and the page with the fragment. The buffer stays
    /// out, and keeps the pool alive, until [`from_token`](Self::from_token) rebuilds it. For a plain whole
    /// page the second word is its page number.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, PageBuf, Pool, PoolParams};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// let pool = Pool::new(PoolParams::default(), arena)?.bind();
    /// let (pool_word, page_word) = pool.alloc_page().unwrap().into_token();
    /// assert_eq!(pool_word, pool.handle().token());
    /// // SAFETY: the two words were just given, and are used once.
    /// drop(unsafe { PageBuf::from_token(pool_word, page_word) });
    /// assert_eq!(pool.inflight().out, 0);
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    #[inline]
    pub fn into_token(self) -> (NonNull<c_void>, u64) {
        let (pool, bits) = (self.pool, self.bits);
        std::mem::forget(self);
        (pool.get().cast(), bits.bits())
    }

    /// Rebuilds the buffer from the two words of [`into_token`](Self::into_token), or from a page number that
    /// was taken from the pool's [cache](Bound::cache_head).
    ///
    /// # Safety
    /// * The words are such a pair.
    /// * No other buffer is made from them while this one lives, and none after it was returned.
    #[inline]
    pub unsafe fn from_token(pool: NonNull<c_void>, place: u64) -> Self {
        Self { pool: PoolPtr::new(pool.cast()), bits: HandleBits::from_bits(place) }
    }
}

/// The calling thread's lane to a pool, to send lives of plain pages: see [`LifeTable`]. Using it touches
/// nothing of the pool, which may be freed. Valid until the thread returns to another pool, or longer: see
/// [`address`](Self::address).
#[derive(Clone, Copy, Debug)]
pub struct LifeLane<'a> {
    lane: &'a Lane,
    /// The first half of the pool's [`PoolRef::lane_key`].
    pool: u32,
    not_send: PhantomData<*const ()>,
}

/// What became of lives that were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// As many are on their way.
    Some(usize),
    /// As many were sent, but the pool has ended: [`PoolRef::take_late`] or [`LifeLane::discard`] follows.
    Late(usize),
}

/// Offsets of the fields that [`LifeLane::send_quickly`] uses, in bytes, for code that sends without a call.
#[derive(Clone, Copy, Debug)]
#[cfg(not(loom))]
pub struct LanePlaces {
    /// In the memory at [`LifeLane::hand`]: 4 bytes, 0 while the thread has no lanes. That is so before its
    /// first return, and after its exit hook.
    pub hand: usize,
    /// In a lane: the address of the next slot, of 4 bytes.
    pub next: usize,
    /// In a lane: the end of the free slots. If `next` equals it, the library must send.
    pub until: usize,
    /// In a lane: bit 0 of the slots that are written now.
    pub phase: usize,
    /// In a lane: not 0 if [`LifeLane::after_sending`] must follow a message.
    pub flags: usize,
    /// In a lane: bytes from a slot to the word for its life.
    pub to_life: usize,
}

#[cfg(not(loom))]
impl LifeLane<'_> {
    /// Offsets from [`address`](Self::address) and [`hand`](Self::hand).
    pub const PLACES: LanePlaces = {
        let end = offset_of!(Lane, producer); // `Padded` begins with it
        LanePlaces {
            hand: offset_of!(Hand, mask),
            next: end + offset_of!(LaneProducer, next),
            until: end + offset_of!(LaneProducer, until),
            phase: end + offset_of!(LaneProducer, phase),
            flags: end + offset_of!(LaneProducer, flags),
            to_life: end + offset_of!(LaneProducer, slots.to_life),
        }
    };

    /// The address of the calling thread's record of its lanes. Valid until the thread ends; only the thread
    /// may read it.
    pub fn hand() -> *const c_void {
        hand().cast()
    }

    /// The lane's address. Valid while the pool exists and the thread has lanes.
    pub fn address(self) -> *const c_void {
        std::ptr::from_ref(self.lane).cast()
    }

    /// The lane at an [`address`](Self::address), with the first half of the pool's [`PoolRef::lane_key`].
    ///
    /// # Safety
    /// The address is valid, and the caller promises what it promises to [`at_hand`](Self::at_hand).
    pub unsafe fn at(address: NonNull<c_void>, pool: u32) -> Self {
        // SAFETY: the caller's promise.
        Self { lane: unsafe { address.cast().as_ref() }, pool, not_send: PhantomData }
    }
}

impl LifeLane<'_> {
    /// The lane to the pool of the [`PoolRef::lane_key`] that `find` returns with `T`, if the thread has it at
    /// hand. Costs less than to find the key first.
    ///
    /// # Safety
    /// The caller does not use it after the thread returned a buffer to another pool. `find` returns no buffer:
    /// that could replace the lanes at hand.
    #[inline(always)]
    pub unsafe fn at_hand<T>(find: impl FnOnce() -> Option<(T, (u32, u32))>) -> Option<(T, Self)> {
        let find = || find().map(|(found, (pool, place))| ((found, pool), pool, LanePlace(place)));
        // SAFETY: the caller's promise.
        let at_hand = unsafe { lane_at_hand_of(find) };
        at_hand.map(|((found, pool), lane)| (found, Self { lane, pool, not_send: PhantomData }))
    }

    /// Sends the upper half of the life of a page that the caller found [out](crate::PageLife::leave), if that
    /// is only a store, and nobody waits for it.
    #[inline(always)]
    pub fn send_quickly(self, page: u32, half: u32) -> Option<bool> {
        // SAFETY: lives are odd.
        let half = unsafe { NonZeroU32::new_unchecked(half | 1) };
        let sent = self.lane.push_in_run(Message::of_life(PageIdx(page), half.get()));
        sent.then(|| self.lane.after_free_push() == 0)
    }

    /// The first half of the [`PoolRef::lane_key`] of the pool that it leads to.
    pub fn pool(self) -> u32 {
        self.pool
    }

    /// What follows a message that was sent.
    #[inline]
    pub fn after_sending(self) -> Sent {
        self.after(1)
    }

    /// Sends the first of many while the lane has room.
    #[inline(always)]
    pub fn send_each<T>(self, items: &[T], page_and_half: impl Fn(&T) -> (u32, u32)) -> Sent {
        let message = |item: &T| {
            let (page, half) = page_and_half(item);
            // SAFETY: lives are odd.
            let half = unsafe { NonZeroU32::new_unchecked(half | 1) };
            Message::of_life(PageIdx(page), half.get())
        };
        self.after(self.lane.push_pages(items, message))
    }

    #[inline(always)]
    fn after(self, sent: usize) -> Sent {
        match self.lane.after_free_push() {
            0 => Sent::Some(sent),
            flags => self.flagged(flags, sent),
        }
    }

    #[cold]
    fn flagged(self, flags: u32, sent: usize) -> Sent {
        if flags & DETACHED != 0 {
            return Sent::Late(sent);
        }
        page_return::wake_owner(self.lane);
        Sent::Some(sent)
    }

    /// Discards what the thread sent to a pool that is freed: buffers that had returned before.
    pub fn discard(self) {
        fence(Acquire); // pairs with raise_all()
        self.lane.take_all();
    }
}

/// A message with a life has room for smaller page numbers.
const MAX_LIVES: u32 = 1 << 29;

impl Pool {
    /// Creates a pool as [`new`](Self::new) does, whose pages have lives in this table.
    pub fn with_lives(
        params: PoolParams,
        provider: Arc<dyn Provider>,
        lives: &'static LifeTable,
    ) -> Result<Self, Error> {
        let pages = provider.area().pages();
        let fits = pages < MAX_LIVES && lives.pages.load(Ordering::Relaxed) == pages;
        Error::require(fits, "lives", pages, format_args!("of all pages, fewer than {MAX_LIVES}"))?;
        Self::create(params, provider, Some(lives))
    }
}

impl Bound {
    /// Runs `alloc`, an allocation, for a call from other code than Rust's with the return address `behind`.
    /// A pool that records [holders](crate::Holders) then has that call as the place of the allocation, from
    /// the program's debug information and symbols. With 0 the place is the Rust call.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, Holders, Pool, PoolParams};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// let params = PoolParams { holders: Holders::Sites { stacks: None }, ..Default::default() };
    /// let pool = Pool::new(params, arena)?.bind();
    /// let page = pool.called_from(0x1001, |pool| pool.alloc_page()); // no function has this address
    /// let holders = pool.handle().holders().unwrap();
    /// assert_eq!(holders.groups[0].site.as_deref(), Some("0x1000"));
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    #[inline]
    pub fn called_from<R>(&self, behind: usize, alloc: impl FnOnce(&Self) -> R) -> R {
        let _call = self.core().holders.as_ref().map(|holders| holders.call_from(behind));
        alloc(self)
    }

    /// The address of this pool's cache, for allocation and return without a call. Valid until the pool is
    /// freed. Only the thread to which the pool is bound may read or write there, and it must also count: see
    /// [`CacheHead`].
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, Pool, PoolParams};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// let pool = Pool::new(PoolParams { cache_size: 32, ..Default::default() }, arena)?.bind();
    /// // SAFETY: the pool is bound to this thread, and there.
    /// let head = unsafe { &*pool.cache_head() };
    /// assert_eq!(head.limit, 32);
    /// head.count_taken(0);
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    pub fn cache_head(&self) -> *const CacheHead {
        let own: *const OwnerState = &raw const *self.ptr().own;
        own.cast()
    }
}

/// For a pool that threads use one after the other, each as its owner, under the caller's lock.
impl Bound {
    /// Makes the calling thread the owner.
    ///
    /// # Safety
    /// The last exclusive section ended with [`end_exclusive`](Self::end_exclusive), which happens before
    /// this call. Until this section ends only this thread uses the `Bound`.
    #[inline]
    pub unsafe fn begin_exclusive(&self) {
        let token = match thread::token() {
            0 => thread::token_or_new(),
            token => token,
        };
        self.ptr().owner.store(token, Relaxed);
    }

    /// Ends the exclusive section: no thread is the owner. Also ends the one that
    /// [`Pool::bind`](crate::Pool::bind) began.
    #[inline]
    pub fn end_exclusive(&self) {
        self.ptr().owner.store(thread::NOBODY, Relaxed);
    }
}

impl PoolRef {
    /// What a thread needs to find its [`LifeLane`] to this pool. None is found in a pool in which a return
    /// is more than a message.
    pub fn lane_key(&self) -> (u32, u32) {
        (self.core().message_only_id, self.core().lane_place.0)
    }

    /// Whether a plain page may return with its life, as a message.
    pub fn takes_lives(&self) -> bool {
        self.core().message_only_id == self.core().id
    }

    /// Sends the upper half of a plain page's life where a [`LifeLane`] cannot. The caller found the page
    /// [out](crate::PageLife::leave).
    pub fn put_life(&self, page: u32, half: u32) {
        self.core().put_life(PageIdx(page), half);
    }

    /// Accounts for lives that the calling thread sent after the pool's end, through its lane to the pool.
    pub fn take_late(&self, lane: LifeLane<'_>) {
        debug_assert!(lane.pool == self.lane_key().0, "I1: a lane to another pool");
        self.core().take_late(lane.lane);
    }

    /// The first word of each token of this pool's buffers.
    pub fn token(&self) -> NonNull<c_void> {
        self.ptr().get().cast()
    }

    /// The most bytes that the end of this pool allocates, to check for them first. An estimate while the
    /// pool is in use, because more pages may join.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, Pool, PoolParams};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// let pool = Pool::new(PoolParams::default(), arena)?.bind();
    /// let before = pool.handle().end_bytes();
    /// let _page = pool.alloc_page();
    /// assert!(before < pool.handle().end_bytes());
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    pub fn end_bytes(&self) -> usize {
        shutdown::most_bytes(self.ptr())
    }
}

/// `bytes` zeroed bytes (more than 0) that are never freed: for words that outlive every pool. Begins at a
/// page of the system, which backs it with memory on first access.
///
/// ```
/// let words = pagepool::lasting_zeroes(1 << 30)?; // of addresses
/// assert!(words.cast::<u64>().is_aligned());
/// # Ok::<(), pagepool::Error>(())
/// ```
pub fn lasting_zeroes(bytes: usize) -> Result<NonNull<u8>, Error> {
    let refused =
        Error::of_call("mmap", || format!("no memory for {bytes} bytes: use fewer, or raise RLIMIT_AS"));
    Mapped::zeroes(bytes).map(Mapped::leak).map_err(refused)
}
