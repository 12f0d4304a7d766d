//! The counts of a peer, in a file shared with the fault injector. They survive the peer's death.
//!
//! The file is in memory, without a name. Its first word is the fault injector's order; the peer writes the
//! others with one call after each burst. Words have the machine's byte order.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::sys;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Order {
    Send = 0,
    Receive = 1,
    End = 2,
}

const WORD: usize = 8;
const WORDS: usize = 10;

/// Counts of frames, unless stated otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerCounts {
    /// Begun to be sent; written before a burst.
    pub begun: u64,
    /// Taken by the driver; written after the burst.
    pub sent: u64,
    /// Bursts not sent because the interface was down.
    pub down: u64,
    /// Received whole, for the first time.
    pub arrived: u64,
    /// Received again, or long after later frames.
    pub again: u64,
    /// Received whole, after a later frame.
    pub overtaken: u64,
    /// Received changed.
    pub damaged: u64,
    /// Received, but not numbered by a peer.
    pub unnumbered: u64,
    /// Gaps in the received numbers.
    pub gaps: u64,
    /// Numbers missing in the gaps.
    pub in_gaps: u64,
}

impl PeerCounts {
    fn words(&self) -> [u64; WORDS] {
        let Self { begun, sent, down, arrived, again, overtaken, damaged, unnumbered, gaps, in_gaps } = *self;
        [begun, sent, down, arrived, again, overtaken, damaged, unnumbered, gaps, in_gaps]
    }

    fn of_words(words: [u64; WORDS]) -> Self {
        let [begun, sent, down, arrived, again, overtaken, damaged, unnumbered, gaps, in_gaps] = words;
        Self { begun, sent, down, arrived, again, overtaken, damaged, unnumbered, gaps, in_gaps }
    }

    pub fn plus(&self, other: &Self) -> Self {
        let (mut words, others) = (self.words(), other.words());
        words.iter_mut().zip(others).for_each(|(word, other)| *word += other);
        Self::of_words(words)
    }
}

#[derive(Debug)]
pub struct CountsFile {
    file: File,
}

impl CountsFile {
    pub fn new() -> io::Result<Self> {
        let file = sys::memory_file(c"soak")?;
        file.set_len(((1 + WORDS) * WORD) as u64)?;
        Ok(Self { file })
    }

    /// Uses the file that the other process created.
    pub fn over(file: File) -> Self {
        Self { file }
    }

    /// A descriptor for the peer.
    pub fn file(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    pub fn tell(&self, order: Order) -> io::Result<()> {
        self.file.write_all_at(&(order as u64).to_ne_bytes(), 0)
    }

    pub fn order(&self) -> io::Result<Order> {
        let mut word = [0; WORD];
        self.file.read_exact_at(&mut word, 0)?;
        Ok(match u64::from_ne_bytes(word) {
            0 => Order::Send,
            1 => Order::Receive,
            _ => Order::End,
        })
    }

    pub fn write(&self, counts: &PeerCounts) -> io::Result<()> {
        let bytes = counts.words().map(u64::to_ne_bytes);
        self.file.write_all_at(bytes.as_flattened(), WORD as u64)
    }

    /// Reads the counts. While the peer runs, they may mix two bursts.
    pub fn read(&self) -> io::Result<PeerCounts> {
        let mut bytes = [[0; WORD]; WORDS];
        self.file.read_exact_at(bytes.as_flattened_mut(), WORD as u64)?;
        Ok(PeerCounts::of_words(bytes.map(u64::from_ne_bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_see_the_same() {
        let ours = CountsFile::new().expect("a file in memory");
        let theirs = CountsFile::over(ours.file().expect("a descriptor"));
        assert_eq!(
            (ours.read().expect("it was written"), theirs.order().expect("too")),
            (PeerCounts::default(), Order::Send)
        );
        let words = std::array::from_fn(|at| at as u64 + 1);
        let counts = PeerCounts::of_words(words);
        theirs.write(&counts).expect("there is room");
        for order in [Order::Receive, Order::End, Order::Send] {
            ours.tell(order).expect("there is room");
            assert_eq!(theirs.order().expect("it was written"), order);
        }
        assert_eq!(ours.read().expect("it was written"), counts, "an order changes no count");
        assert_eq!(counts.plus(&counts).words(), words.map(|word| 2 * word));
    }
}
