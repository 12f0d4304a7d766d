//! The free bytes of a file, for places of any size.
//!
//! What   free stretches, merged if adjacent. A place is cut from the smallest that fits, so places of ever
//!        different sizes do not fill the file.
//! Cost   the logarithm of the number of stretches, when a pool is made or ends.

use std::collections::{BTreeMap, BTreeSet};

/// Free stretches below `fresh`, and all from `fresh` on.
#[derive(Debug)]
pub(crate) struct FreeRoom {
    /// From here on all is free.
    pub(crate) fresh: usize,
    /// The stretches: sizes by start. `by_bytes` has (size, start).
    stretches: BTreeMap<usize, usize>,
    by_bytes: BTreeSet<(usize, usize)>,
}

impl FreeRoom {
    pub(crate) fn from(fresh: usize) -> Self {
        Self { fresh, stretches: BTreeMap::new(), by_bytes: BTreeSet::new() }
    }

    pub(crate) fn take_again(&mut self, bytes: usize) -> Option<usize> {
        let &(all, at) = self.by_bytes.range((bytes, 0)..).next()?;
        self.forget(at, all);
        if all > bytes {
            self.note(at + bytes, all - bytes);
        }
        Some(at)
    }

    pub(crate) fn give_back(&mut self, at: usize, bytes: usize) {
        let (mut from, mut end) = (at, at + bytes);
        if let Some((&before, &its)) = self.stretches.range(..at).next_back() {
            debug_assert!(before + its <= at, "I1: {at} was free");
            if before + its == at {
                self.forget(before, its);
                from = before;
            }
        }
        if let Some(&its) = self.stretches.get(&end) {
            self.forget(end, its);
            end += its;
        }
        match end == self.fresh {
            true => self.fresh = from,
            false => self.note(from, end - from),
        }
    }

    fn note(&mut self, at: usize, bytes: usize) {
        self.stretches.insert(at, bytes);
        self.by_bytes.insert((bytes, at));
    }

    fn forget(&mut self, at: usize, bytes: usize) {
        self.stretches.remove(&at);
        self.by_bytes.remove(&(bytes, at));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Takes a place, from the unused end if no stretch is large enough.
    fn take(room: &mut FreeRoom, bytes: usize) -> usize {
        room.take_again(bytes).unwrap_or_else(|| {
            room.fresh += bytes;
            room.fresh - bytes
        })
    }

    #[test]
    fn free_stretches_merge_and_the_smallest_that_fits_is_used() {
        let mut room = FreeRoom::from(1000);
        let places: Vec<_> = [10, 20, 30, 40].map(|bytes| take(&mut room, bytes)).into();
        assert_eq!((&places[..], room.fresh), (&[1000, 1010, 1030, 1060][..], 1100));
        room.give_back(1000, 10);
        room.give_back(1030, 30);
        assert_eq!((room.take_again(31), room.take_again(25)), (None, Some(1030)));
        assert_eq!(room.take_again(5), Some(1055), "the rest of that");
        room.give_back(1010, 20); // with the 10 before it
        assert_eq!(room.take_again(30), Some(1000));
        room.give_back(1060, 40);
        assert_eq!(room.fresh, 1060, "the last one");
        [(1055, 5), (1000, 30), (1030, 25)].into_iter().for_each(|(at, bytes)| room.give_back(at, bytes));
        assert_eq!((room.fresh, room.stretches.len(), room.by_bytes.len()), (1000, 0, 0));
    }

    #[test]
    fn no_two_have_a_byte_and_all_of_it_comes_back() {
        let (mut room, mut held, mut random) = (FreeRoom::from(128), BTreeMap::new(), 1u64);
        let (mut sum, mut most) = (0, 0);
        for _ in 0..20_000 {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let (choice, bytes) = ((random >> 33) as usize, 128 * (1 + (random >> 50) as usize % 64));
            if held.len() < 20 || (held.len() < 40 && choice % 2 == 0) {
                let at = take(&mut room, bytes);
                let before = held.range(..at).next_back().map_or(0, |(&at, &bytes)| at + bytes);
                let behind = held.range(at..).next().map_or(usize::MAX, |(&at, _)| at);
                assert!(before <= at && at + bytes <= behind, "{at} and {bytes}: {held:?}");
                held.insert(at, bytes);
                sum += bytes;
            } else {
                let at = *held.keys().nth(choice % held.len()).unwrap();
                let bytes = held.remove(&at).unwrap();
                room.give_back(at, bytes);
                sum -= bytes;
            }
            most = most.max(sum);
            assert!(room.fresh <= 128 + 2 * most, "{} of {most}", room.fresh);
        }
        held.into_iter().for_each(|(at, bytes)| room.give_back(at, bytes));
        assert_eq!((room.fresh, room.stretches.len()), (128, 0));
    }
}
