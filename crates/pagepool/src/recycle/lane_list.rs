//! The lanes of a pool, and which of them the owner checks.
//!
//! What   a bit per lane. A *listed* lane is claimed, or may have messages. The owner checks only listed
//!        lanes, so an empty lane whose thread ended costs nothing.
//! Who    a thread lists a lane when it claims it, before its first message. Only the owner unlists (I2). A
//!        pool's end and observers check all lanes.
//! Race   the owner finds a lane free and empty, and unlists it, while a thread claims it. All changes of
//!        the list are read-modify-writes of one word, so they are ordered. A claim that lists after the
//!        owner's change stands. A claim that listed before it is seen by the owner's second check: a
//!        claimed lane is listed again; if it is free again, the messages of the thread that left are seen
//!        too, and a lane with any is listed again.
//! Pairs  claim (list, SeqCst) -> unlist (list, AcqRel) and listed (list, Acquire). unclaim (claim word,
//!        Release) -> the second check (claim word, Acquire). claim (list; fence; `starved`) against
//!        arm_wakeup (`starved`; fence; list): one of them sees the other.
//! Cost   reading the list is one load for any number of lanes. A return does not touch it.

// UNSAFETY: a thread's hold of a lane leads to it by address.
#![expect(unsafe_code)]

use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32 as PlainU32, AtomicU64 as PlainU64};

use crate::recycle::lane::Lane;
use crate::sys::placed::{Placed, Shared};
use crate::sys::published_layout::BlockAt;
use crate::sys::sync::{AtomicU64, Ordering};

/// The largest number of lanes of a pool: one per bit of the list.
pub(crate) const MAX_LANES: usize = 64;

#[derive(Debug)]
pub(crate) struct LaneList {
    lanes: Shared<[Lane]>,
    /// Bit `at`: lane `at` is listed.
    listed: AtomicU64,
}

impl LaneList {
    pub(crate) fn new(lanes: impl ExactSizeIterator<Item = Lane>) -> Self {
        debug_assert!(lanes.len() <= MAX_LANES, "the builder checks max_lanes");
        Self { lanes: Arc::new(Placed::all(lanes)).into(), listed: AtomicU64::new(0) }
    }

    #[inline(always)]
    pub(crate) fn all(&self) -> &[Lane] {
        &self.lanes
    }

    /// Claims a free lane for the calling thread and lists it.
    pub(crate) fn claim(&self) -> Option<LaneHold> {
        let at = self.lanes.iter().position(|lane| lane.claim())?;
        self.listed.fetch_or(1 << at, Ordering::SeqCst); // pairs with unlist(), and with arm_wakeup()
        Some(LaneHold { lane: NonNull::from(&self.lanes[at]), all: Shared::keep(&self.lanes).clone() })
    }

    /// The lanes' place in the published file, if in there.
    pub(crate) fn block(&self) -> Option<BlockAt> {
        Shared::block(&self.lanes, self.lanes.len())
    }

    /// The indices of the listed lanes.
    #[inline(always)]
    pub(crate) fn listed(&self) -> LaneSet {
        LaneSet(self.listed.load(Ordering::Acquire)) // pairs with claim()
    }

    pub(crate) fn listed_lanes(&self) -> impl Iterator<Item = &Lane> {
        self.listed().map(|at| &self.lanes[at])
    }

    /// Whether no lane has a message; for the owner. Takes free, empty lanes off the list, up to the first
    /// with a message.
    pub(crate) fn are_empty(&self) -> bool {
        self.listed().all(|at| {
            self.unlist_if_over(at);
            self.lanes[at].is_empty()
        })
    }

    /// Takes a listed lane off the list if its thread ended and it is empty; for the owner.
    #[inline(always)]
    pub(crate) fn unlist_if_over(&self, at: usize) {
        let lane = &self.lanes[at];
        if !lane.is_claimed() && lane.is_empty() {
            self.unlist(at);
        }
    }

    /// Takes a lane off the list, unless it is claimed or has messages at the second check.
    #[cold]
    fn unlist(&self, at: usize) {
        self.listed.fetch_and(!(1 << at), Ordering::AcqRel); // pairs with claim()
        let lane = &self.lanes[at];
        if lane.is_claimed() || !lane.is_empty() {
            self.listed.fetch_or(1 << at, Ordering::Relaxed);
        }
    }
}

/// A counted reference to a lane. It keeps all lanes of its pool, which are one allocation.
pub(crate) struct LaneHold {
    lane: NonNull<Lane>,
    all: Arc<Placed<[Lane]>>,
}

impl LaneHold {
    /// The lane; valid while this lives.
    pub(crate) fn lane(&self) -> NonNull<Lane> {
        self.lane
    }

    /// A lane of `size` slots without a pool.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn alone(size: usize) -> Self {
        let all = Arc::new(Placed::all([Lane::alone(size)].into_iter()));
        Self { lane: NonNull::from(&all[0]), all }
    }
}

impl Deref for LaneHold {
    type Target = Lane;

    fn deref(&self) -> &Lane {
        // SAFETY: it is one of the lanes that `all` keeps.
        unsafe { self.lane.as_ref() }
    }
}

impl fmt::Debug for LaneHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a lane of {}", self.all.len())
    }
}

/// Indices of lanes, lowest first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneSet(u64);

impl LaneSet {
    pub(crate) const NONE: Self = Self(0);

    #[inline(always)]
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    #[inline(always)]
    pub(crate) fn insert(&mut self, at: usize) {
        self.0 |= 1 << at;
    }

    /// Those below `at`, and the others. `at` is at most [`MAX_LANES`].
    #[inline(always)]
    pub(crate) fn split_at(self, at: usize) -> (Self, Self) {
        let from = u64::MAX.checked_shl(at as u32).unwrap_or(0);
        (Self(self.0 & !from), Self(self.0 & from))
    }
}

impl Iterator for LaneSet {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        let at = (self.0 != 0).then(|| self.0.trailing_zeros() as usize)?;
        self.0 &= self.0 - 1;
        Some(at)
    }
}

/// Which lanes the owner checks for fragments when it cuts a page (I2). Lanes without fragments rotate,
/// one per cut, so idle lanes together cost one check.
#[derive(Debug, Default)]
pub(crate) struct LaneRotation {
    /// Lanes that gave a fragment at the last cut.
    busy: PlainU64,
    /// The lane from which on the next idle lane is looked for.
    next: PlainU32,
}

impl LaneRotation {
    /// The busy listed lanes, and one of the others.
    #[inline(always)]
    pub(crate) fn take(&self, listed: LaneSet) -> LaneSet {
        if listed.0 & listed.0.wrapping_sub(1) == 0 {
            return listed; // at most one lane: busy, or the next idle one
        }
        let busy = listed.0 & self.busy.load(Ordering::Relaxed);
        let idle = listed.0 & !busy;
        if idle == 0 {
            return LaneSet(busy);
        }
        let next = self.next.load(Ordering::Relaxed);
        let at = (next + idle.rotate_right(next).trailing_zeros()) % u64::BITS;
        self.next.store(at + 1, Ordering::Relaxed);
        LaneSet(busy | 1 << at)
    }

    /// Records which lanes gave a fragment.
    #[inline(always)]
    pub(crate) fn set_busy(&self, lanes: LaneSet) {
        self.busy.store(lanes.0, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::mem::page::PageIdx;
    use crate::recycle::message::{Message, MessageQueue};

    fn lanes(n: usize) -> LaneList {
        LaneList::new((0..n).map(|_| Lane::alone(2)))
    }

    fn listed(lanes: &LaneList) -> Vec<usize> {
        lanes.listed().collect()
    }

    #[test]
    fn a_lane_is_listed_while_a_thread_has_it_or_it_has_messages() {
        let lanes = lanes(MAX_LANES);
        assert_eq!(listed(&lanes), []);
        let [first, second] = [0; 2].map(|_| lanes.claim().expect("64 lanes are free"));
        assert!(second.push_frags(Message::of_frag(PageIdx(7))));
        assert!(!lanes.are_empty());
        first.unclaim();
        second.unclaim();
        assert!(!lanes.are_empty());
        assert_eq!(listed(&lanes), [1]);
        assert!(second.pop().is_some());
        assert!(lanes.are_empty());
        assert_eq!(listed(&lanes), []);
        assert!((0..MAX_LANES).all(|_| lanes.claim().is_some()));
        assert!(lanes.claim().is_none() && lanes.are_empty());
        assert_eq!(listed(&lanes).len(), MAX_LANES);
        assert_eq!(lanes.listed_lanes().count(), lanes.all().len());
    }

    #[test]
    fn a_lane_that_was_claimed_after_all_stays_on_the_list() {
        let lanes = lanes(1);
        let lane = lanes.claim().expect("one lane is free");
        lanes.unlist(0);
        assert_eq!(listed(&lanes), [0]);
        assert!(lane.push(Message::of_page(PageIdx(7))));
        lane.unclaim();
        lanes.unlist(0);
        assert_eq!(listed(&lanes), [0]);
    }

    #[test]
    fn of_idle_lanes_a_cut_looks_at_one_and_at_each_in_turn() {
        let (rotation, listed) = (LaneRotation::default(), LaneSet(1 | 1 << 5 | 1 << 63));
        let looks: Vec<Vec<usize>> = (0..6).map(|_| rotation.take(listed).collect()).collect();
        assert_eq!(looks, [[0], [5], [63], [0], [5], [63]]);
        assert!(rotation.take(LaneSet::NONE).is_empty());
    }

    #[test]
    fn busy_lanes_are_looked_at_in_every_cut() {
        let (rotation, listed) = (LaneRotation::default(), LaneSet(0b1111));
        rotation.set_busy(LaneSet(0b10010)); // lane 4 left the list
        let looks: Vec<Vec<usize>> = (0..4).map(|_| rotation.take(listed).collect()).collect();
        assert_eq!(looks, [[0, 1], [1, 2], [1, 3], [0, 1]]);
        rotation.set_busy(listed);
        assert_eq!(rotation.take(listed).collect::<Vec<_>>(), [0, 1, 2, 3]);
    }

    #[test]
    fn a_set_is_split_where_a_refill_begins() {
        let parts = |at| LaneSet(0b1011 | 1 << 63).split_at(at);
        let parts = |at| (parts(at).0.collect::<Vec<_>>(), parts(at).1.collect::<Vec<_>>());
        assert_eq!(parts(0), (vec![], vec![0, 1, 3, 63]));
        assert_eq!(parts(2), (vec![0, 1], vec![3, 63]));
        assert_eq!(parts(MAX_LANES), (vec![0, 1, 3, 63], vec![]));
    }
}
