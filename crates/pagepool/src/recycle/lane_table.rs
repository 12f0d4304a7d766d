//! The lanes of a thread, by pool.
//!
//! What   a hash table with open addressing, used only by its thread. An entry keeps its lane alive until
//!        the pool has ended and the table is rebuilt, or the thread ends. Then another thread may claim the
//!        lane, behind the messages left in it.
//! Hand   lanes that were found once are *at hand*: in an array indexed by their pools' short names, which
//!        are small numbers. Up to 4,095 pools alive at once share no place, whatever their ids.
//! Cost   at hand: a mask, an addition, a compare and four loads, for any number of pools. The arrays grow
//!        with use; growing allocates. A thread's first lane also registers its exit hook.
//! Exit   the destructor of `LANES`. A thread whose first return comes after the destructors of its
//!        thread-local variables ends by `END_HOOK` instead. After either it returns through the ring.

// UNSAFETY: lanes and places are reached by address; the thread's entries hold references to the lanes.
#![expect(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::num::NonZeroU16;
use std::ptr::{self, NonNull};

use crate::recycle::lane::Lane;
use crate::recycle::lane_list::LaneHold;
#[cfg(not(loom))]
use crate::sys::thread_end::EndHook;

/// Returns through the ring before the thread again requests a lane from a pool that had none.
const RETRY: u32 = 256;

/// In [`Entry::wait`]: the thread returned to the pool since the table was built.
const USED: u32 = 1 << 31;

/// The smallest table, a power of two.
const FEWEST: usize = 32;

struct Entry {
    /// 0 if empty.
    pool: Cell<u32>,
    /// Returns through the ring until the next request, and [`USED`]. Counts only without a lane.
    wait: Cell<u32>,
    /// Null if the pool had no free lane.
    lane: Cell<*const Lane>,
    /// Keeps the lane alive.
    hold: Cell<Option<LaneHold>>,
}

impl Entry {
    const fn empty() -> Self {
        Self { pool: Cell::new(0), wait: Cell::new(0), lane: Cell::new(ptr::null()), hold: Cell::new(None) }
    }

    /// Whether a rebuilt table keeps it: its lane may be pushed to, or has messages; or it has no lane, and
    /// the thread used it recently.
    fn is_needed(&self) -> bool {
        NonNull::new(self.lane.get().cast_mut()).map_or(self.wait.get() & USED != 0, |lane| {
            // SAFETY: the entry holds a reference to the lane.
            let lane = unsafe { lane.as_ref() };
            !lane.is_detached() || !lane.is_empty()
        })
    }

    /// Whether it has more than a pool's id.
    fn holds_anything(&self) -> bool {
        !self.lane.get().is_null() || self.wait.get() & USED != 0
    }

    /// Clears the entry; returns its lane, if any.
    fn let_go(&self) -> Option<LaneHold> {
        self.wait.set(0);
        self.lane.set(ptr::null());
        self.hold.take()
    }
}

#[repr(C)]
struct AtHand {
    /// [`EMPTY`](Self::EMPTY), or with a lane.
    pool: Cell<u32>,
    lane: Cell<*const Lane>,
}

impl AtHand {
    /// Matches no pool's id and no key: neither that of a pool whose returns are more than a message, nor that
    /// of a row that was never used, 0.
    const EMPTY: u32 = u32::MAX - 1;

    const fn empty() -> Self {
        Self { pool: Cell::new(Self::EMPTY), lane: Cell::new(ptr::null()) }
    }
}

/// A power of two.
const AT_HAND: u32 = size_of::<AtHand>() as u32;

/// The most per thread; further pools share places.
const MOST_AT_HAND: usize = 4096;

/// Where a pool's lane is at hand, in every thread: see [`place_of`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LanePlace(pub(crate) u32);

/// The place of a pool. Without a short name its lane is never at hand.
pub(crate) fn place_of(short_name: Option<NonZeroU16>) -> LanePlace {
    LanePlace(short_name.map_or(0, |name| u32::from(name.get()) * AT_HAND))
}

/// For a thread without lanes at hand.
struct NoneAtHand([AtHand; 1]);

// SAFETY: no thread writes it.
unsafe impl Sync for NoneAtHand {}

static NONE_AT_HAND: NoneAtHand = NoneAtHand([const { AtHand::empty() }; 1]);

/// A thread's lanes at hand, in plain thread-local memory without a destructor.
#[derive(Clone, Copy)]
#[repr(C)] // pagepool.h reads it
pub(crate) struct Hand {
    first: *const AtHand,
    /// Masks a place, so that it lies in the array. 0 only in [`NONE`](Self::NONE).
    pub(crate) mask: u32,
}

impl Hand {
    const NONE: Self = Self { first: &raw const NONE_AT_HAND.0[0], mask: 0 };

    fn of(at_hand: &[AtHand]) -> Self {
        Self { first: at_hand.as_ptr(), mask: (at_hand.len() as u32 - 1) * AT_HAND }
    }

    #[inline(always)]
    fn lane(self, pool: u32, place: LanePlace) -> Option<NonNull<Lane>> {
        // SAFETY: masked, a place is within the array of lanes at hand.
        let entry = unsafe { self.first.byte_add((place.0 & self.mask) as usize) };
        // SAFETY: the array lives until `HAND` leads to another one.
        let entry = unsafe { &*entry };
        // SAFETY: an entry of a pool has a lane, and callers pass no `EMPTY`.
        (entry.pool.get() == pool).then(|| unsafe { NonNull::new_unchecked(entry.lane.get().cast_mut()) })
    }
}

#[cfg(not(loom))]
thread_local! {
    static HAND: Cell<Hand> = const { Cell::new(Hand::NONE) };
    static LANES: LaneTable = const { LaneTable::new() };
}
#[cfg(loom)]
loom::thread_local! {
    static HAND: Cell<Hand> = Cell::new(Hand::NONE);
    static LANES: LaneTable = LaneTable::new();
}

/// For a thread whose first return is too late for the destructor of `LANES`.
#[cfg(not(loom))]
static END_HOOK: EndHook = EndHook::new(|| {
    let _ = LANES.try_with(LaneTable::end);
});

/// The lane through which this thread returns to a pool. `claim` claims one if it has none yet. `None` means
/// the ring: the pool has no free lane, or the thread is past its exit hook.
///
/// The lane lives at least until the thread claims another one, so for the rest of the caller's return.
#[inline(always)]
pub(crate) fn lane<'a>(
    pool: u32,
    place: LanePlace,
    claim: impl FnOnce() -> Option<LaneHold>,
) -> Option<&'a Lane> {
    lane_at_hand(pool, place).or_else(|| {
        let lane = find(pool, place, claim)?;
        // SAFETY: the thread's entry holds a reference to the lane, and drops it only if the pool has ended.
        Some(unsafe { lane.as_ref() })
    })
}

/// This thread's lane to a pool, if at hand.
#[inline(always)]
pub(crate) fn lane_at_hand<'a>(pool: u32, place: LanePlace) -> Option<&'a Lane> {
    // SAFETY: the closure returns no buffer.
    unsafe { lane_at_hand_of(|| Some(((), pool, place))) }.map(|(_, lane)| lane)
}

/// As [`lane_at_hand`], for the pool in the result of `find`. Reads `HAND` before it calls `find`: in a shared
/// library that read is a call, and a caller keeps only its arguments across it.
///
/// # Safety
/// `find` returns no buffer: that could replace the lanes at hand.
#[inline(always)]
pub(crate) unsafe fn lane_at_hand_of<'a, T>(
    find: impl FnOnce() -> Option<(T, u32, LanePlace)>,
) -> Option<(T, &'a Lane)> {
    #[cfg(not(loom))]
    let hand = HAND.get();
    #[cfg(loom)]
    let hand = HAND.try_with(Cell::get).ok()?;
    let (found, pool, place) = find()?;
    let lane = hand.lane(pool, place)?;
    // SAFETY: the thread's entry holds a reference to the lane, and drops it only if the pool has ended.
    Some((found, unsafe { lane.as_ref() }))
}

/// Where the calling thread's [`Hand`] is, until the thread ends.
#[cfg(not(loom))]
pub(crate) fn hand() -> *const Hand {
    HAND.with(|hand| hand.as_ptr().cast_const())
}

/// This thread's lane to a pool, from its entry or newly claimed; see [`lane`].
#[cold]
fn find(pool: u32, place: LanePlace, claim: impl FnOnce() -> Option<LaneHold>) -> Option<NonNull<Lane>> {
    // Past the exit hook LANES is gone: the thread returns through the ring.
    LANES.try_with(|lanes| lanes.find(pool, place, claim)).ok().flatten()
}

pub(crate) fn prepare() {
    let _ = LANES.try_with(|_| ());
}

/// All lanes of a thread, with its exit hook.
struct LaneTable {
    /// Their number is 0 or a power of two.
    entries: RefCell<Vec<Entry>>,
    taken: Cell<usize>,
    /// What [`HAND`] leads to; their number is 0 or a power of two. Every lane here has an entry.
    at_hand: RefCell<Vec<AtHand>>,
    /// The thread is past its exit hook, and gets no more lanes.
    ended: Cell<bool>,
}

impl LaneTable {
    const fn new() -> Self {
        Self {
            entries: RefCell::new(Vec::new()),
            taken: Cell::new(0),
            at_hand: RefCell::new(Vec::new()),
            ended: Cell::new(false),
        }
    }

    /// Finds the lane to a pool and puts it at hand.
    fn find(
        &self,
        pool: u32,
        place: LanePlace,
        claim: impl FnOnce() -> Option<LaneHold>,
    ) -> Option<NonNull<Lane>> {
        let lane = self.find_entered(pool).unwrap_or_else(|| self.claim_and_enter(pool, claim))?;
        self.take_at_hand(pool, place, lane);
        Some(lane)
    }

    /// A pool's entry; outer `None` if a lane must be claimed.
    fn find_entered(&self, pool: u32) -> Option<Option<NonNull<Lane>>> {
        if self.taken.get() == 0 {
            return None;
        }
        let entries = self.entries.borrow();
        let entry = entry_of(&entries, pool);
        if entry.pool.get() != pool {
            return None;
        }
        if let Some(lane) = NonNull::new(entry.lane.get().cast_mut()) {
            return Some(Some(lane));
        }
        let wait = entry.wait.get() & !USED;
        entry.wait.set(wait.saturating_sub(1) | USED);
        (wait > 0).then_some(None)
    }

    fn take_at_hand(&self, pool: u32, place: LanePlace, lane: NonNull<Lane>) {
        if place == LanePlace(0) {
            return;
        }
        let mut at_hand = self.at_hand.borrow_mut();
        let at = (place.0 / AT_HAND) as usize;
        if at >= at_hand.len() && at_hand.len() < MOST_AT_HAND {
            let len = (at + 1).next_power_of_two().clamp(FEWEST, MOST_AT_HAND);
            let more = len - at_hand.len();
            if at_hand.try_reserve_exact(more).is_err() {
                return;
            }
            at_hand.resize_with(len, AtHand::empty);
            let _ = HAND.try_with(|hand| hand.set(Hand::of(&at_hand)));
        }
        let entry = &at_hand[at % at_hand.len()];
        entry.pool.set(pool);
        entry.lane.set(lane.as_ptr());
    }

    /// Claims and enters a lane, or enters that there is none.
    fn claim_and_enter(&self, pool: u32, claim: impl FnOnce() -> Option<LaneHold>) -> Option<NonNull<Lane>> {
        if self.ended.get() {
            return None;
        }
        self.make_room()?;
        #[cfg(not(loom))]
        END_HOOK.set();
        let entries = self.entries.borrow();
        let entry = entry_of(&entries, pool);
        if entry.pool.get() != pool {
            entry.pool.set(pool);
            self.taken.set(self.taken.get() + 1);
        }
        let hold = claim();
        let lane = hold.as_ref().map(LaneHold::lane);
        entry.lane.set(lane.map_or(ptr::null(), |lane| lane.as_ptr()));
        entry.hold.set(hold);
        entry.wait.set(RETRY | USED);
        lane
    }

    /// Frees all lanes, for good.
    fn end(&self) {
        self.ended.set(true);
        self.taken.set(0);
        let _ = HAND.try_with(|hand| hand.set(Hand::NONE));
        drop(self.at_hand.take());
        // No return finds a lane through its entry any more.
        self.entries.take().iter().filter_map(Entry::let_go).for_each(|lane| lane.unclaim());
    }

    /// Makes room for one more entry in at most half of the table: drops lanes of ended pools, and rebuilds
    /// the table for the rest. `None` if there is no memory.
    fn make_room(&self) -> Option<()> {
        let mut entries = self.entries.borrow_mut();
        if (self.taken.get() + 1) * 2 <= entries.len() {
            return Some(());
        }
        self.at_hand.borrow().iter().for_each(|entry| entry.pool.set(AtHand::EMPTY));
        // Each entry is checked once: the answer changes if another thread ends its pool.
        entries.iter().filter(|entry| !entry.is_needed()).for_each(|entry| drop(entry.let_go()));
        let alive = entries.iter().filter(|entry| entry.holds_anything()).count();
        let len = ((alive + 1) * 4).next_power_of_two().max(FEWEST);
        let mut larger = Vec::new();
        larger.try_reserve_exact(len).ok()?;
        larger.resize_with(len, Entry::empty);
        let old = std::mem::replace(&mut *entries, larger);
        self.taken.set(alive);
        for entry in old.iter().filter(|entry| entry.holds_anything()) {
            let new = entry_of(&entries, entry.pool.get());
            new.pool.set(entry.pool.get());
            new.wait.set(entry.wait.get() & !USED);
            new.lane.set(entry.lane.get());
            new.hold.set(entry.hold.take());
        }
        Some(())
    }
}

/// The entry of a pool, or the empty one that it would get. There is always an empty one.
fn entry_of(entries: &[Entry], pool: u32) -> &Entry {
    // Fibonacci hashing: ids that are equal modulo any power of two go to distant places.
    let own = pool.wrapping_mul(0x9e37_79b9) >> (u32::BITS - entries.len().ilog2());
    let (before, from) = entries.split_at(own as usize);
    from.iter()
        .chain(before)
        .find(|entry| [pool, 0].contains(&entry.pool.get()))
        .expect("half of the places are empty")
}

impl Drop for LaneTable {
    fn drop(&mut self) {
        #[cfg(loom)]
        if std::thread::panicking() {
            return; // the model has failed, and its atomics are gone
        }
        self.end();
        #[cfg(not(loom))]
        END_HOOK.clear();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn new_lane() -> LaneHold {
        LaneHold::alone(4)
    }

    fn place(short_name: u16) -> LanePlace {
        place_of(NonZeroU16::new(short_name))
    }

    #[test]
    fn each_pool_has_its_own_lane_for_all_patterns_of_ids() {
        for step in [1, 16, 1024, 1 << 20] {
            let table = LaneTable::new();
            let pools: Vec<(u32, LanePlace)> =
                (1..=1024).map(|i: u16| (u32::from(i).wrapping_mul(step) | 1 << 31, place(i))).collect();
            let claim = |&(id, at)| table.find(id, at, || Some(new_lane())).unwrap();
            let lanes: Vec<_> = pools.iter().map(claim).collect();
            for (&(id, at), &lane) in pools.iter().zip(&lanes) {
                assert_eq!(table.find(id, at, || unreachable!("it has one")), Some(lane), "id {id:#x}");
            }
            assert!(table.entries.borrow().len() <= 4096);
            let hand = Hand::of(&table.at_hand.borrow());
            assert!(pools.iter().zip(lanes).all(|(&(id, at), lane)| hand.lane(id, at) == Some(lane)));
        }
    }

    #[test]
    fn pools_with_a_shared_place_or_none_find_their_own_lanes() {
        let table = LaneTable::new();
        let pools = [(7, place(1)), (8, place(1 + MOST_AT_HAND as u16)), (9, place_of(None))];
        let lanes = pools.map(|(id, at)| table.find(id, at, || Some(new_lane())).unwrap());
        for _ in 0..2 {
            for (&(id, at), lane) in pools.iter().zip(lanes) {
                assert_eq!(table.find(id, at, || unreachable!("it has one")), Some(lane));
                let at_hand = Hand::of(&table.at_hand.borrow()).lane(id, at);
                assert_eq!(at_hand, (id != 9).then_some(lane));
            }
        }
    }

    #[test]
    fn a_lane_that_was_let_go_is_not_at_hand() {
        let table = LaneTable::new();
        let ended = table.find(7, place(1), || Some(new_lane())).unwrap();
        // SAFETY: the table holds it.
        unsafe { ended.as_ref() }.raise(crate::recycle::lane::DETACHED);
        for others in 0..FEWEST as u32 {
            assert!(table.find(100 + others, place(2), || Some(new_lane())).is_some());
        }
        assert_eq!(Hand::of(&table.at_hand.borrow()).lane(7, place(1)), None);
        assert_ne!(table.find(7, place(1), || Some(new_lane())), None);
    }

    #[test]
    fn a_pool_without_a_lane_is_retried_once_in_a_while() {
        let table = LaneTable::new();
        let claims = Cell::new(0);
        for others in 0..2 * RETRY {
            let none = table.find(1, place(1), || {
                claims.set(claims.get() + 1);
                None
            });
            assert!(none.is_none());
            // The table is rebuilt several times in between.
            assert!(table.find(2 + others, place(2), || Some(new_lane())).is_some());
        }
        assert_eq!(claims.get(), 2);
    }
}
