//! Checks the frames that arrive at a peer for content, repeats and order, in bounded memory.
//!
//! Each life of a sender has its own numbers. Frames missing between lives, or before the first frame seen,
//! belong to no gap; the comparison of sent and arrived shows them.

use pagepool_net::{Arrival, Tally};

use crate::counts::PeerCounts;

/// Numbers have the frame of a life in the low bits, the life in the high bits.
pub const LIFE_SHIFT: u32 = 40;
/// How far behind the newest number a frame may arrive.
const WINDOW: u64 = 1 << 16;

#[derive(Debug)]
pub struct Arrivals {
    /// Expects no number, and thus reads the number of every whole frame.
    reader: Tally,
    /// A bit for each of the last [`WINDOW`] numbers before `next`.
    seen: Box<[u64]>,
    /// The number after the newest; `None` before the first frame.
    next: Option<u64>,
}

impl Arrivals {
    pub fn new() -> Self {
        Self { reader: Tally::new(0), seen: vec![0; (WINDOW / 64) as usize].into(), next: None }
    }

    /// Checks and counts a frame.
    pub fn take(&mut self, frame: &[u8], counts: &mut PeerCounts) {
        match self.reader.take(frame) {
            Arrival::Good(number) | Arrival::Again(number) | Arrival::Beyond(number) => {
                self.whole(number, counts);
            }
            Arrival::Corrupt => counts.damaged += 1,
            Arrival::Unnumbered => counts.unnumbered += 1,
        }
    }

    fn whole(&mut self, number: u64, counts: &mut PeerCounts) {
        let next = match self.next {
            Some(next) if number >> LIFE_SHIFT <= (next - 1) >> LIFE_SHIFT => next,
            _ => {
                self.seen.fill(0);
                number
            }
        };
        if number >= next {
            let skipped = number - next;
            counts.gaps += u64::from(skipped > 0);
            counts.in_gaps += skipped;
            (number - skipped.min(WINDOW - 1)..=number).for_each(|old| self.mark(old, false));
            self.next = Some(number + 1);
        } else if next - number > WINDOW || self.is_seen(number) {
            counts.again += 1;
            return;
        } else {
            counts.overtaken += 1;
            counts.in_gaps = counts.in_gaps.saturating_sub(1);
        }
        self.mark(number, true);
        counts.arrived += 1;
    }

    fn is_seen(&self, number: u64) -> bool {
        self.seen[(number % WINDOW / 64) as usize] & 1 << (number % 64) != 0
    }

    fn mark(&mut self, number: u64, seen: bool) {
        let word = &mut self.seen[(number % WINDOW / 64) as usize];
        let bit = 1 << (number % 64);
        *word = if seen { *word | bit } else { *word & !bit };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagepool_link::Mac;
    use pagepool_net::NumberedFrames;

    fn counts(numbers: impl IntoIterator<Item = u64>) -> PeerCounts {
        let frames = NumberedFrames::new(Mac([2; 6]), Mac([4; 6]), 64).expect("64 bytes are a frame");
        let (mut arrivals, mut counts, mut frame) = (Arrivals::new(), PeerCounts::default(), [0; 64]);
        for number in numbers {
            frames.write(number, &mut frame);
            arrivals.take(&frame, &mut counts);
        }
        counts
    }

    #[test]
    fn what_is_missing_is_a_gap_until_it_comes() {
        let PeerCounts { arrived, gaps, in_gaps, overtaken, again, .. } = counts([5, 6, 9, 10, 7, 20]);
        assert_eq!((arrived, gaps, in_gaps, overtaken, again), (6, 2, 1 + 9, 1, 0));
    }

    #[test]
    fn nothing_arrives_twice() {
        assert_eq!(counts([1, 2, 2, 1]).again, 2);
        let far = 3 * WINDOW;
        let PeerCounts { arrived, again, .. } = counts([1, far, far - WINDOW, far - WINDOW + 1, 1]);
        assert_eq!((arrived, again), (3, 2), "what is too old to know is not believed");
        assert_eq!(counts((0..2 * WINDOW).chain([WINDOW + 5])).again, 1);
    }

    #[test]
    fn a_new_life_has_numbers_of_its_own() {
        let second = 1 << LIFE_SHIFT;
        let PeerCounts { arrived, gaps, again, .. } = counts([5, 6, second + 6, second + 7, 7]);
        assert_eq!((arrived, gaps, again), (4, 0, 1), "the first life is over");
    }

    #[test]
    fn what_was_changed_is_damaged() {
        let frames = NumberedFrames::new(Mac([2; 6]), Mac([4; 6]), 64).expect("64 bytes are a frame");
        let (mut arrivals, mut counts, mut frame) = (Arrivals::new(), PeerCounts::default(), [0; 64]);
        frames.write(1, &mut frame);
        frame[40] ^= 1;
        arrivals.take(&frame, &mut counts);
        arrivals.take(&[0; 64], &mut counts);
        assert_eq!((counts.damaged, counts.unnumbered, counts.arrived), (1, 1, 0));
    }
}
