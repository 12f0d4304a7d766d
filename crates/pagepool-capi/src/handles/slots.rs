//! The pools, from their creation to the return of their last buffer.
//!
//! What   one slot per pool, beside its row in [`VIEWS`]. What binding, unbinding and destroying change is
//!        under the slot's lock, under which no callback runs. A destroyed pool keeps its slot until its last
//!        buffer is returned; creating a pool checks for that.
//! Who    any thread.

// UNSAFETY: the owner's part is freed when the pool has no owner any more.
#![expect(unsafe_code)]

pub(crate) mod turn;

use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering::*, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::pagepool::{LifeTable, Pool, PoolRef, Shutdown, Tag};

use crate::error::{CallError, CallResult};
use crate::handles::directory::{PlaceRange, next_free};
use crate::handles::owner_half::OwnerHalf;
use crate::handles::token::{Generations, HandleKind, KIND_BITS, Token};
use crate::handles::view::{MAX_POOLS, NO_LANE, PoolView, VIEWS};

/// Where the owner's half is.
pub(crate) enum Half {
    /// In this slot: the pool has no owner.
    Idle(Pool),
    /// In [`OwnerHalf`], of the thread in the row's `owner`.
    Bound,
    /// Nowhere: the pool was destroyed, and the buffers that are out are returned one by one.
    Ended,
}

pub(crate) struct PoolLife {
    pub(crate) half: Half,
    pub(crate) handle: PoolRef,
    pub(crate) tags: Vec<Tag>,
    /// The shared list of free entries for fragments: the first place, plus one. See `owner`.
    pub(crate) frags: u64,
    /// The pool's places: those of its pages, then rows for fragments.
    pub(crate) taken: Vec<PlaceRange>,
}

struct PoolSlot {
    life: Mutex<Option<Box<PoolLife>>>,
    /// [`Generations`] of the tokens of the pools that had this slot.
    generations: AtomicU64,
}

static SLOTS: [PoolSlot; MAX_POOLS] =
    [const { PoolSlot { life: Mutex::new(None), generations: AtomicU64::new(0) } }; MAX_POOLS];

/// The slots: how many were ever used, the free ones, and those that wait for their last buffers.
struct SlotList {
    used: u32,
    free: Vec<u32>,
    ended: Vec<EndedSlot>,
}

struct EndedSlot {
    slot: u32,
    /// The process that destroyed the pool: its callbacks belong to that one, not to a child of fork.
    process: u32,
    shutdown: Arc<Shutdown>,
}

static SLOT_LIST: Mutex<SlotList> = Mutex::new(SlotList { used: 0, free: Vec::new(), ended: Vec::new() });

fn list() -> MutexGuard<'static, SlotList> {
    SLOT_LIST.lock().unwrap_or_else(PoisonError::into_inner)
}

fn life_of(at: u32) -> MutexGuard<'static, Option<Box<PoolLife>>> {
    SLOTS[at as usize % MAX_POOLS].life.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PoolLife {
    /// The shared list of free entries for fragments, with at least one in it. If it is empty, it takes the
    /// list `returned_frags`, and if that is empty 4096 fresh entries, which the pool keeps until it is freed.
    pub(crate) fn shared_frags(&mut self, view: &'static PoolView) -> CallResult<u64> {
        if self.frags == 0 {
            self.frags = view.away.returned_frags.swap(0, Acquire); // pairs with frag_over()
        }
        if self.frags == 0 {
            self.taken.try_reserve(1)?;
            let row = PlaceRange::for_frags(view)?;
            self.taken.push(row);
            self.frags = u64::from(row.first_place()) + 1;
        }
        Ok(self.frags)
    }

    pub(crate) fn take_frag(&mut self, view: &'static PoolView) -> CallResult<u32> {
        let place = self.shared_frags(view)? as u32 - 1;
        self.frags = next_free(place);
        Ok(place)
    }
}

/// The row of a pool that exists.
#[inline]
pub(crate) fn view(pool: Token) -> CallResult<&'static PoolView> {
    let at = pool.place() as usize;
    if !pool.is(HandleKind::Pool) || at >= MAX_POOLS {
        return Err(CallError::NO_HANDLE);
    }
    let view = &VIEWS[at];
    if view.token.load(Acquire) == pool.0 {
        return Ok(view);
    }
    let generations = Generations(SLOTS[at].generations.load(Relaxed));
    Err(if generations.had(pool.generation()) { CallError::STALE } else { CallError::NO_HANDLE })
}

/// The row that a token names, unchecked: for fast paths, which compare the token in it.
#[inline(always)]
pub(crate) fn view_of(pool: Token) -> &'static PoolView {
    &VIEWS[pool.place() as usize % MAX_POOLS]
}

/// Reads or changes a slot's data of a pool that exists, under the slot's lock: `call` runs no callback.
pub(crate) fn with_life<R>(pool: Token, call: impl FnOnce(&mut PoolLife) -> CallResult<R>) -> CallResult<R> {
    view(pool)?;
    let mut life = life_of(pool.place());
    view(pool)?; // no other thread destroyed it before the lock
    call(life.as_mut().ok_or(CallError::STALE)?)
}

pub(crate) fn handle(pool: Token) -> CallResult<PoolRef> {
    with_life(pool, |life| Ok(life.handle.clone()))
}

/// Reads or changes the slot's data of a pool of which the caller has a buffer, also after that pool was
/// destroyed. Under the slot's lock: `call` runs no callback.
pub(crate) fn with_life_behind<R>(
    view: &'static PoolView,
    call: impl FnOnce(&mut PoolLife) -> CallResult<R>,
) -> CallResult<R> {
    let at = (ptr::from_ref(view).addr() - VIEWS.as_ptr().addr()) / size_of::<PoolView>();
    call(life_of(at as u32).as_mut().ok_or(CallError::STALE)?)
}

/// Makes a pool, and gives it a slot and a token. Its provider has `pages` base pages.
pub(crate) fn insert(
    pages: u32,
    order: u8,
    make: impl FnOnce(&'static LifeTable) -> CallResult<Pool>,
) -> CallResult<Token> {
    reap();
    let mut taken = Vec::new();
    taken.try_reserve(1)?;
    let free = FreeSlot(free_slot()?);
    let (slot, view) = (&SLOTS[free.0 as usize % MAX_POOLS], &VIEWS[free.0 as usize % MAX_POOLS]);
    fence(Release); // after another thread stored 0 in the view's token; pairs with There::of()
    let words = FreeWords(PlaceRange::for_pages(pages, view)?);
    view.guard.begin(words.0.lives(), words.0.outs(), pages);
    let pool = make(&view.guard)?;
    let (at, words) = (free.keep(), words.keep());
    taken.push(words);
    let generations = Generations(slot.generations.load(Relaxed)).next();
    let token = Token::new(HandleKind::Pool, at, generations.latest());
    describe(view, &pool.handle(), words, order);
    let handle = pool.handle();
    let life = PoolLife { half: Half::Idle(pool), handle, tags: Vec::new(), frags: 0, taken };
    *life_of(at) = Some(Box::new(life));
    slot.generations.store(generations.0, Relaxed);
    view.token.store(token.0, Release); // pairs with view()
    Ok(token)
}

/// Writes the row of a new pool.
fn describe(view: &PoolView, pool: &PoolRef, words: PlaceRange, order: u8) {
    let (pages, memory) = (view.guard.pages.load(Relaxed), pool.area().base().map_or(0, |base| base as u64));
    view.no_owner.store(0, Relaxed);
    view.core.store(pool.token().as_ptr(), Relaxed);
    view.set_lane(if pool.takes_lives() { pool.lane_key() } else { (NO_LANE, 0) });
    view.base.store(words.first_place() << KIND_BITS | HandleKind::Page as u32, Relaxed);
    view.pages.store(pages, Relaxed);
    view.memory.store(memory, Relaxed);
    view.own.store(Box::into_raw(Box::new(OwnerHalf::new(pool.clone()))), Relaxed);
    let base_page = pool.area().page_size() as u64;
    view.base_page.store(base_page, Relaxed);
    view.page_size.store(base_page << order, Relaxed);
    words.set_memory(memory, base_page);
    view.away.returned_frags.store(0, Relaxed);
}

/// A slot without a pool; free again when dropped.
struct FreeSlot(u32);

impl FreeSlot {
    fn keep(self) -> u32 {
        let at = self.0;
        std::mem::forget(self);
        at
    }
}

impl Drop for FreeSlot {
    fn drop(&mut self) {
        list().free.push(self.0); // room for every slot was reserved
    }
}

/// The places of a pool that is not made yet; free again when dropped.
struct FreeWords(PlaceRange);

impl FreeWords {
    fn keep(self) -> PlaceRange {
        let words = self.0;
        std::mem::forget(self);
        words
    }
}

impl Drop for FreeWords {
    fn drop(&mut self) {
        self.0.release();
    }
}

fn free_slot() -> CallResult<u32> {
    let mut list = list();
    if let Some(at) = list.free.pop() {
        return Ok(at);
    }
    let used = list.used;
    if used as usize == MAX_POOLS {
        return Err(CallError::fixed(libc::EBUSY, c"there are 4096 pools, the limit: destroy one first"));
    }
    list.free.try_reserve(used as usize + 1)?;
    list.ended.try_reserve(used as usize + 1)?;
    list.used += 1;
    Ok(used)
}

/// Notes that a pool was destroyed: its slot is free once its last buffer is returned.
pub(crate) fn ended(pool: Token, process: u32, shutdown: Arc<Shutdown>) {
    // Room for every slot was reserved.
    list().ended.push(EndedSlot { slot: pool.place(), process, shutdown });
}

/// Frees the slots of pools whose last buffer is returned. Polls the deferred buffers of destroyed pools, but
/// in a child of fork not of those that its parent destroyed.
pub(crate) fn reap() {
    let process = std::process::id();
    let mine = |ended: &&EndedSlot| ended.process == process;
    let ends: Vec<_> = list().ended.iter().filter(mine).map(|ended| ended.shutdown.clone()).collect();
    let complete = ends.iter().filter(|end| end.is_complete()); // with no lock held: it may call users
    for life in complete.filter_map(take_complete) {
        life.taken.iter().for_each(|rows| rows.release());
        drop(life); // with no lock held: this may free a domain, whose drop is a callback
    }
}

/// Takes the data of a pool whose last buffer is returned, and frees its slot; none if another thread did so.
fn take_complete(end: &Arc<Shutdown>) -> Option<Box<PoolLife>> {
    let mut list = list();
    let which = list.ended.iter().position(|ended| Arc::ptr_eq(&ended.shutdown, end))?;
    let at = list.ended.swap_remove(which).slot;
    let life = life_of(at).take();
    let view = &VIEWS[at as usize % MAX_POOLS];
    let own = view.own.swap(ptr::null_mut(), Relaxed);
    if !own.is_null() {
        // SAFETY: made by `Box::into_raw` in `insert`; the pool is freed, so no thread is its owner or has a
        // buffer of it. Its handle is not the pool's last one: `life` has another, so no domain is freed
        // here, under the lock.
        drop(unsafe { Box::from_raw(own) });
    }
    list.free.push(at); // room for every slot was reserved
    life
}

/// Visits every slot that was ever used, for the dump.
pub(crate) fn for_each(mut call: impl FnMut(&PoolLife, &'static PoolView)) {
    let used = list().used;
    for at in 0..used {
        if let Some(life) = life_of(at).as_deref() {
            call(life, &VIEWS[at as usize % MAX_POOLS]);
        }
    }
}
