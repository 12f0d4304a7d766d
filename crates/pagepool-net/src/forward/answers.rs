//! Looking for what other threads answer, before a sleep.
//!
//! Why    a worker that answers within microseconds would pay for a wake-up of the polling thread, and its
//!        packet would wait for that: 74 µs in place of 51 from a packet to its answer.
//! How    a thread that handed packets over looks for answers for [`LONGEST`], about as long as two wake-ups
//!        take. If [`PATIENCE`] looks in a row found none, only each [`RETRY`]th is made: so workers that
//!        never answer, or take long, cost little.

use std::time::{Duration, Instant};

/// The longest look.
const LONGEST: Duration = Duration::from_micros(50);
/// Looks in vain until most are left out.
const PATIENCE: u32 = 4;
/// Of those left out, each of this number is made nevertheless.
const RETRY: u32 = 32;

/// What came of the looks until now.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// Looks in a row that found nothing, or were left out.
    in_vain: u32,
}

impl Answers {
    /// Polls until that moves a packet, if a look pays; says whether one moved.
    pub(super) fn look(&mut self, mut poll: impl FnMut() -> usize) -> bool {
        let found = self.pays() && {
            let end = Instant::now() + LONGEST;
            loop {
                if poll() > 0 {
                    break true;
                }
                if Instant::now() >= end {
                    break false;
                }
            }
        };
        self.in_vain = if found { 0 } else { self.in_vain.wrapping_add(1) };
        found
    }

    fn pays(&self) -> bool {
        self.in_vain < PATIENCE || self.in_vain.is_multiple_of(RETRY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_that_find_nothing_become_rare_and_one_that_finds_something_brings_them_back() {
        let mut answers = Answers::default();
        let made = |answers: &mut Answers, moved: usize| {
            let mut polls = 0;
            let found = answers.look(|| {
                polls += 1;
                moved
            });
            assert_eq!(found, moved > 0 && polls > 0);
            polls > 0
        };
        assert_eq!((0..4 * RETRY).filter(|_| made(&mut answers, 0)).count(), (PATIENCE + 3) as usize);
        assert!((0..RETRY).any(|_| made(&mut answers, 1)), "each {RETRY}th is made");
        assert!((0..RETRY).all(|_| made(&mut answers, 1)), "answers are found again");
    }

    #[test]
    fn a_look_takes_what_came_late_for_the_clock() {
        // The poll that moved something counts also if the time is over by then.
        let mut answers = Answers::default();
        assert!(answers.look(|| {
            std::thread::sleep(2 * LONGEST);
            1
        }));
    }
}
