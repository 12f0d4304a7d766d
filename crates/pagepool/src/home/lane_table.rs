//! The lanes of a thread, by pool.
//!
//! What   a hash table with open addressing, which the thread alone reads and writes. An entry keeps its lane
//!        alive until the pool has ended and the table is made anew, or the thread ends; then the next thread
//!        may have the lane, behind whatever messages this one left.
//! Cost   a multiplication, a shift and a compare where the entry is in its own place; at most half of the
//!        places are taken, so a walk ends soon. The number of pools, and what their ids have in common, do
//!        not matter. A table that grows allocates; a thread's first lane also registers its exit hook.

// UNSAFETY: lanes are kept alive by `Arc` counts that stand in raw pointers; places are reached by address.
#![expect(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use crate::home::lane::Lane;

/// Returns that a thread makes through the ring before it asks a pool again for a lane that it could not
/// have.
const RETRY: u32 = 256;

/// In [`Entry::wait`]: the thread returned to the pool since the table was made.
const USED: u32 = 1 << 31;

/// Places of the smallest table, a power of two.
const FEWEST: usize = 32;

struct Entry {
    /// 0: nothing.
    pool: Cell<u32>,
    /// Returns through the ring until the pool is asked again, and [`USED`]; counts only without a lane.
    wait: Cell<u32>,
    /// Null where the pool had no lane to give. Else a count of its `Arc`.
    lane: Cell<*const Lane>,
}

impl Entry {
    const fn empty() -> Self {
        Self { pool: Cell::new(0), wait: Cell::new(0), lane: Cell::new(ptr::null()) }
    }

    /// Whether a new table keeps it: its lane may be pushed to, or still has messages; or there is none, and
    /// the thread asked for it lately.
    fn is_needed(&self) -> bool {
        NonNull::new(self.lane.get().cast_mut()).map_or(self.wait.get() & USED != 0, |lane| {
            // SAFETY: the entry holds a count of the lane.
            let lane = unsafe { lane.as_ref() };
            !lane.is_detached() || !lane.is_empty()
        })
    }

    /// Whether it is more than the number of a pool.
    fn holds_anything(&self) -> bool {
        !self.lane.get().is_null() || self.wait.get() & USED != 0
    }

    /// Holds nothing any more; gives the lane, if it had one.
    fn let_go(&self) -> Option<Arc<Lane>> {
        self.wait.set(0);
        let lane = self.lane.replace(ptr::null());
        // SAFETY: the entry held this count, and does not any more.
        (!lane.is_null()).then(|| unsafe { Arc::from_raw(lane) })
    }
}

/// The entries of a thread that has no lanes.
struct NoEntries([Entry; 2]);

// SAFETY: nothing writes these entries: `LaneTable` makes its own before the first.
unsafe impl Sync for NoEntries {}

static NO_ENTRIES: NoEntries = NoEntries([const { Entry::empty() }; 2]);

/// Where a thread's entries are, in plain thread-local memory that needs no destructor.
#[derive(Clone, Copy)]
struct Places {
    first: *const Entry,
    /// 32 less the binary logarithm of their number.
    shift: u32,
}

impl Places {
    const NONE: Self = Self { first: &raw const NO_ENTRIES.0[0], shift: 31 };

    /// Those of a table that is not empty.
    fn of(entries: &[Entry]) -> Self {
        Self { first: entries.as_ptr(), shift: u32::BITS - entries.len().ilog2() }
    }

    /// The number of the place that an entry for this pool has, or comes after.
    #[inline(always)]
    fn own(self, pool: u32) -> usize {
        // Fibonacci hashing: ids that are equal modulo any power of two go to places far apart.
        (pool.wrapping_mul(0x9e37_79b9) >> self.shift) as usize
    }

    /// The lane to a pool, if its entry is in its own place.
    #[inline(always)]
    fn lane(self, pool: u32) -> Option<NonNull<Lane>> {
        // SAFETY: `own` is below the number of entries.
        let entry = unsafe { self.first.add(self.own(pool)) };
        // SAFETY: the entries live until `PLACES` says where others are.
        let entry = unsafe { &*entry };
        if entry.pool.get() == pool { NonNull::new(entry.lane.get().cast_mut()) } else { None }
    }
}

#[cfg(not(loom))]
thread_local! {
    static PLACES: Cell<Places> = const { Cell::new(Places::NONE) };
    static LANES: LaneTable = const { LaneTable::new() };
}
#[cfg(loom)]
loom::thread_local! {
    static PLACES: Cell<Places> = Cell::new(Places::NONE);
    static LANES: LaneTable = LaneTable::new();
}

/// The lane through which this thread returns to a pool. `claim` finds a free lane when it has none yet.
/// `None` means the ring: the pool has no lane left, or the thread is past its exit hook.
///
/// The lane lives at least until the thread claims another one, so also for the rest of the caller's return.
#[inline(always)]
pub(crate) fn lane<'a>(pool: u32, claim: impl FnOnce() -> Option<Arc<Lane>>) -> Option<&'a Lane> {
    known_lane(pool).or_else(|| {
        let lane = find(pool, claim)?;
        // SAFETY: as in `known_lane`.
        Some(unsafe { lane.as_ref() })
    })
}

/// As [`lane`], if the thread has one, and its entry is in its own place.
#[inline(always)]
pub(crate) fn known_lane<'a>(pool: u32) -> Option<&'a Lane> {
    #[cfg(not(loom))]
    let lane = PLACES.get().lane(pool)?;
    #[cfg(loom)]
    let lane = PLACES.try_with(|places| places.get().lane(pool)).ok().flatten()?;
    // SAFETY: the thread's entry holds a count of the lane, and lets go of it only if the pool has ended.
    Some(unsafe { lane.as_ref() })
}

/// As [`lane`], wherever the entry is, if there is one.
#[cold]
fn find(pool: u32, claim: impl FnOnce() -> Option<Arc<Lane>>) -> Option<NonNull<Lane>> {
    // Past the exit hook LANES is gone, and the thread returns through the ring.
    LANES.try_with(|lanes| lanes.find(pool, claim)).ok().flatten()
}

/// Registers the exit hook of this thread.
pub(crate) fn prepare() {
    let _ = LANES.try_with(|_| ());
}

/// What [`PLACES`] points to, with the thread's exit hook.
struct LaneTable {
    /// None, or a power of two of them.
    entries: RefCell<Vec<Entry>>,
    taken: Cell<usize>,
}

impl LaneTable {
    const fn new() -> Self {
        Self { entries: RefCell::new(Vec::new()), taken: Cell::new(0) }
    }

    fn find(&self, pool: u32, claim: impl FnOnce() -> Option<Arc<Lane>>) -> Option<NonNull<Lane>> {
        if self.taken.get() > 0 {
            let entries = self.entries.borrow();
            let entry = place(&entries, pool);
            if entry.pool.get() == pool {
                if let Some(lane) = NonNull::new(entry.lane.get().cast_mut()) {
                    return Some(lane);
                }
                let wait = entry.wait.get() & !USED;
                if wait > 0 {
                    entry.wait.set((wait - 1) | USED);
                    return None;
                }
            }
        }
        self.ask(pool, claim)
    }

    /// Claims a lane and enters it, or enters that there is none.
    fn ask(&self, pool: u32, claim: impl FnOnce() -> Option<Arc<Lane>>) -> Option<NonNull<Lane>> {
        self.make_room()?;
        let entries = self.entries.borrow();
        let entry = place(&entries, pool);
        if entry.pool.get() != pool {
            entry.pool.set(pool);
            self.taken.set(self.taken.get() + 1);
        }
        let lane = claim().map_or(ptr::null(), Arc::into_raw);
        entry.lane.set(lane);
        entry.wait.set(RETRY | USED);
        NonNull::new(lane.cast_mut())
    }

    /// Sees to it that at most half of the places are taken with one entry more: lets go of lanes whose pools
    /// have ended, and makes the table as large as the rest needs. `None` where there is no memory for it.
    fn make_room(&self) -> Option<()> {
        let mut entries = self.entries.borrow_mut();
        if (self.taken.get() + 1) * 2 <= entries.len() {
            return Some(());
        }
        // Each entry is asked once: while another thread ends its pool, the answer changes.
        entries.iter().filter(|entry| !entry.is_needed()).for_each(|entry| drop(entry.let_go()));
        let alive = entries.iter().filter(|entry| entry.holds_anything()).count();
        let len = ((alive + 1) * 4).next_power_of_two().max(FEWEST);
        let mut larger = Vec::new();
        larger.try_reserve_exact(len).ok()?;
        larger.resize_with(len, Entry::empty);
        let old = std::mem::replace(&mut *entries, larger);
        self.taken.set(alive);
        let _ = PLACES.try_with(|places| places.set(Places::of(&entries)));
        for entry in old.iter().filter(|entry| entry.holds_anything()) {
            let new = place(&entries, entry.pool.get());
            new.pool.set(entry.pool.get());
            new.wait.set(entry.wait.get() & !USED);
            new.lane.set(entry.lane.get());
        }
        Some(())
    }
}

/// The entry of a pool, or the empty one that it would get. There is always an empty one.
fn place(entries: &[Entry], pool: u32) -> &Entry {
    let (before, from) = entries.split_at(Places::of(entries).own(pool));
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
        let _ = PLACES.try_with(|places| places.set(Places::NONE));
        // Nothing finds a lane through its entry any more.
        self.entries.get_mut().iter().filter_map(Entry::let_go).for_each(|lane| lane.unclaim());
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sys::wakeup::Wakeup;

    fn new_lane() -> Arc<Lane> {
        Arc::new(Lane::new(4, Arc::new(Wakeup::new(None))))
    }

    #[test]
    fn every_pool_has_its_own_lane_whatever_their_ids_have_in_common() {
        for step in [1, 16, 1024, 1 << 20] {
            let table = LaneTable::new();
            let ids: Vec<u32> = (1..=1024).map(|i: u32| i.wrapping_mul(step) | 1 << 31).collect();
            let lanes: Vec<_> = ids.iter().map(|&id| table.find(id, || Some(new_lane())).unwrap()).collect();
            for (&id, &lane) in ids.iter().zip(&lanes) {
                assert_eq!(table.find(id, || unreachable!("it has one")), Some(lane), "id {id:#x}");
            }
            let entries = table.entries.borrow();
            assert!(entries.len() <= 4096, "{} places", entries.len());
            let in_their_places = ids.iter().filter(|&&id| Places::of(&entries).lane(id).is_some()).count();
            assert!(in_their_places > 600, "{in_their_places} of 1024 in their own places, step {step}");
        }
    }

    #[test]
    fn a_pool_without_a_lane_is_asked_once_in_a_while() {
        let table = LaneTable::new();
        let asked = Cell::new(0);
        for others in 0..2 * RETRY {
            let none = table.find(1, || {
                asked.set(asked.get() + 1);
                None
            });
            assert!(none.is_none());
            // The table is made anew several times meanwhile.
            assert!(table.find(2 + others, || Some(new_lane())).is_some());
        }
        assert_eq!(asked.get(), 2);
    }
}
