//! Frames with a number and a checksum, whose content accounts for them.
//!
//! The checksum covers the number, the length, and every byte after it, but not the addresses, which devices
//! may exchange.

use pagepool::Error;
use pagepool_link::{LinkInfo, Mac};

use crate::error::parameter;

/// The EtherType for experiments (IEEE 802).
const TYPE: [u8; 2] = [0x88, 0xb5];
const TYPE_AT: usize = 12;
const NUMBER_AT: usize = 14;
const SUM_AT: usize = 22;
const BODY_AT: usize = 30;

/// A source of numbered frames of one length. [`Tally`] accounts for those that arrive.
///
/// A frame has the EtherType for experiments (0x88b5), its number, a checksum, and content that follows from
/// the number.
///
/// # Examples
///
/// ```
/// use pagepool_link::Mac;
/// use pagepool_net::{Arrival, NumberedFrames, Tally};
///
/// let frames = NumberedFrames::new(Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]), 60)?;
/// let (mut frame, mut tally) = ([0; 60], Tally::new(3));
/// frames.write(0, &mut frame);
/// assert_eq!(tally.take(&frame), Arrival::Good(0));
/// frames.write(1, &mut frame);
/// frame[40] ^= 1; // on the way
/// assert_eq!(tally.take(&frame), Arrival::Corrupt);
/// assert_eq!(tally.missing(3), 2); // number 1 was changed, number 2 did not arrive
/// # Ok::<(), pagepool::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct NumberedFrames {
    header: [u8; NUMBER_AT],
    size: usize,
}

impl NumberedFrames {
    /// Frames from one address to another, of 60 to 65535 bytes.
    pub fn new(from: Mac, to: Mac, size: usize) -> Result<Self, Error> {
        if !(60..=65535).contains(&size) {
            return Err(parameter("the size of a frame", size, "60 to 65535 bytes"));
        }
        let mut header = [0; NUMBER_AT];
        header[..6].copy_from_slice(&to.0);
        header[6..TYPE_AT].copy_from_slice(&from.0);
        header[TYPE_AT..].copy_from_slice(&TYPE);
        Ok(Self { header, size })
    }

    /// Frames from one link's address to another's, of 60 to 65535 bytes.
    pub fn between(from: &LinkInfo, to: &LinkInfo, size: usize) -> Result<Self, Error> {
        let mac = |link: &LinkInfo| {
            let value = format!("{:?}", link.name);
            link.mac.ok_or_else(|| parameter("the interface of a frame", value, "one that has a MAC address"))
        };
        Self::new(mac(from)?, mac(to)?, size)
    }

    /// Bytes per frame.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Writes a frame into the first bytes of `into`, which must have room.
    pub fn write(&self, number: u64, into: &mut [u8]) {
        let frame = &mut into[..self.size];
        frame[..NUMBER_AT].copy_from_slice(&self.header);
        frame[NUMBER_AT..SUM_AT].copy_from_slice(&number.to_be_bytes());
        let body = &mut frame[BODY_AT..];
        let (words, rest) = body.as_chunks_mut::<8>();
        let mut word = step(number, 0);
        for chunk in words {
            *chunk = word.to_le_bytes();
            word = word.wrapping_add(ODD);
        }
        rest.copy_from_slice(&word.to_le_bytes()[..rest.len()]);
        let sum = sum(number, body);
        frame[SUM_AT..BODY_AT].copy_from_slice(&sum.to_be_bytes());
    }
}

/// The difference of consecutive words: no two words of a body are equal.
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

/// One-to-one in each argument: a change of a single word is never lost.
fn step(state: u64, word: u64) -> u64 {
    (state ^ word).wrapping_add(ODD).wrapping_mul(0xd134_2543_de82_ef95).rotate_left(29)
}

/// Four lanes, which a processor computes in parallel.
fn sum(number: u64, body: &[u8]) -> u64 {
    let (blocks, rest) = body.as_chunks::<32>();
    let mut lanes = [0, 1, 2, 3].map(|lane| step(number, body.len() as u64 ^ lane << 32));
    let mut take = |block: &[u8; 32]| {
        for (lane, word) in lanes.iter_mut().zip(block.as_chunks::<8>().0) {
            *lane = step(*lane, u64::from_le_bytes(*word));
        }
    };
    blocks.iter().for_each(&mut take);
    let mut last = [0; 32];
    last[..rest.len()].copy_from_slice(rest);
    take(&last);
    lanes.into_iter().fold(0, step)
}

/// How [`Tally`] classifies a received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// A whole, expected frame, the first with its number.
    Good(u64),
    /// A whole frame whose number arrived before.
    Again(u64),
    /// A whole frame with an unexpected number.
    Beyond(u64),
    /// A numbered frame that was changed.
    Corrupt,
    /// Not a numbered frame, such as ARP.
    Unnumbered,
}

/// Accounts for the frames that arrive, with numbers from 0 on.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    seen: Vec<u64>,
    expected: u64,
    next: u64,
    /// Distinct expected numbers that arrived.
    pub good: u64,
    /// Frames whose number had arrived before.
    pub again: u64,
    /// Frames with unexpected numbers.
    pub beyond: u64,
    /// Frames that were changed on the way.
    pub corrupt: u64,
    /// Frames without a number.
    pub unnumbered: u64,
    /// Good frames that a frame with a higher number overtook.
    pub overtaken: u64,
}

impl Tally {
    /// Expects the numbers from 0 to `expected` − 1. Uses one bit of memory for each.
    pub fn new(expected: u64) -> Self {
        let words = usize::try_from(expected.div_ceil(64)).expect("as many frames as fit memory as bits");
        Self { seen: vec![0; words], expected, ..Self::default() }
    }

    /// Counts a frame.
    pub fn take(&mut self, frame: &[u8]) -> Arrival {
        let arrival = self.judge(frame);
        match arrival {
            Arrival::Good(number) => {
                self.good += 1;
                self.overtaken += u64::from(number < self.next);
                self.next = self.next.max(number + 1);
            }
            Arrival::Again(_) => self.again += 1,
            Arrival::Beyond(_) => self.beyond += 1,
            Arrival::Corrupt => self.corrupt += 1,
            Arrival::Unnumbered => self.unnumbered += 1,
        }
        arrival
    }

    fn judge(&mut self, frame: &[u8]) -> Arrival {
        if frame.get(TYPE_AT..NUMBER_AT) != Some(&TYPE[..]) {
            return Arrival::Unnumbered;
        }
        let Some((head, body)) = frame.split_first_chunk::<BODY_AT>() else { return Arrival::Corrupt };
        let word = |at: usize| head[at..].first_chunk().copied().map_or(0, u64::from_be_bytes);
        let number = word(NUMBER_AT);
        if word(SUM_AT) != sum(number, body) {
            return Arrival::Corrupt;
        }
        if number >= self.expected {
            return Arrival::Beyond(number);
        }
        let (at, bit) = ((number / 64) as usize, 1 << (number % 64));
        let old = self.seen[at];
        self.seen[at] |= bit;
        if old & bit == 0 { Arrival::Good(number) } else { Arrival::Again(number) }
    }

    /// The number after the highest that arrived whole: at least this many were sent.
    pub fn reached(&self) -> u64 {
        self.next
    }

    /// Adds another tally of these numbers, whose frames arrived by another path.
    pub fn absorb(&mut self, other: &Self) {
        let words = other.next.div_ceil(64) as usize;
        for (mine, theirs) in self.seen.iter_mut().zip(&other.seen).take(words) {
            self.again += u64::from((*mine & theirs).count_ones());
            self.good += u64::from((theirs & !*mine).count_ones());
            if *theirs != 0 {
                *mine |= theirs; // uses memory only where something arrived
            }
        }
        self.next = self.next.max(other.next);
        self.again += other.again;
        self.beyond += other.beyond;
        self.corrupt += other.corrupt;
        self.unnumbered += other.unnumbered;
        self.overtaken += other.overtaken;
    }

    /// How many of the first `sent` numbers did not arrive, if no others arrived.
    pub fn missing(&self, sent: u64) -> u64 {
        sent.saturating_sub(self.good)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(size: usize) -> NumberedFrames {
        NumberedFrames::new(Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]), size).unwrap()
    }

    #[test]
    fn each_frame_counts_once() {
        let (frames, mut tally) = (frames(64), Tally::new(100));
        let mut frame = [0; 64];
        for (number, arrival) in [
            (0, Arrival::Good(0)),
            (99, Arrival::Good(99)),
            (5, Arrival::Good(5)),
            (5, Arrival::Again(5)),
            (100, Arrival::Beyond(100)),
        ] {
            frames.write(number, &mut frame);
            assert_eq!(tally.take(&frame), arrival);
        }
        assert_eq!(tally.take(&[0; 64]), Arrival::Unnumbered);
        assert_eq!(tally.take(&[]), Arrival::Unnumbered);
        let Tally { good, again, beyond, unnumbered, overtaken, .. } = tally;
        assert_eq!((good, again, beyond, unnumbered, overtaken), (3, 1, 1, 1 + 1, 1));
        assert_eq!(tally.missing(100), 97);
    }

    #[test]
    fn two_ways_are_accounted_for_together() {
        let (frames, mut frame) = (frames(60), [0; 60]);
        let mut ways = [Tally::new(200), Tally::new(200)];
        for (way, number) in [(0, 0), (0, 130), (1, 1), (1, 130), (1, 131), (1, 131)] {
            frames.write(number, &mut frame);
            ways[way].take(&frame);
        }
        ways[1].take(&[0; 60]);
        let [mut all, other] = ways;
        all.absorb(&other);
        assert_eq!((all.good, all.again, all.unnumbered, all.reached()), (4, 2, 1, 132));
        assert_eq!(all.missing(all.reached()), 128);
    }

    #[test]
    fn every_changed_byte_shows() {
        for size in [60, 61, 67, 128] {
            let frames = frames(size);
            let mut frame = vec![0; size];
            for at in NUMBER_AT..size {
                frames.write(7, &mut frame);
                frame[at] ^= 0x10;
                assert_eq!(Tally::new(100).take(&frame), Arrival::Corrupt, "byte {at} of {size}");
            }
            frames.write(7, &mut frame);
            frame[..12].fill(9);
            assert_eq!(Tally::new(100).take(&frame), Arrival::Good(7), "addresses may be exchanged");
            for cut in NUMBER_AT..size {
                assert_eq!(Tally::new(100).take(&frame[..cut]), Arrival::Corrupt, "{cut} of {size}");
            }
            frame.push(0);
            assert_eq!(Tally::new(100).take(&frame), Arrival::Corrupt, "a byte more");
        }
        let error = NumberedFrames::new(Mac([0; 6]), Mac([0; 6]), 59).unwrap_err();
        assert_eq!(error.to_string(), "the size of a frame is 59, but must be 60 to 65535 bytes");
    }
}
