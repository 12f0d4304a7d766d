//! A text in a table that only grows: written once, before the count of used rows includes it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A text of at most `WORDS` times eight bytes, padded with zeroes.
#[derive(Debug)]
#[repr(transparent)]
pub struct TextRow<const WORDS: usize>([AtomicU64; WORDS]);

impl<const WORDS: usize> TextRow<WORDS> {
    pub const BYTES: usize = WORDS * 8;

    pub(crate) fn empty() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }

    /// Writes the start of a text, as much as fits.
    pub(crate) fn write(&self, text: &str) {
        let fits =
            (0..=text.len().min(Self::BYTES)).rev().find(|&len| text.is_char_boundary(len)).unwrap_or(0);
        self.write_bytes(&text.as_bytes()[..fits]);
    }

    /// Writes the end of a text, as much as fits.
    pub(crate) fn write_end(&self, text: &str) {
        let from = text.len().saturating_sub(Self::BYTES);
        let from = (from..=text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or(text.len());
        self.write_bytes(&text.as_bytes()[from..]);
    }

    fn write_bytes(&self, bytes: &[u8]) {
        let words = bytes.chunks(8).chain(std::iter::repeat(&[][..]));
        for (word, part) in self.0.iter().zip(words) {
            let eight = std::array::from_fn(|at| part.get(at).copied().unwrap_or(0));
            word.store(u64::from_ne_bytes(eight), Relaxed);
        }
    }

    /// Reads the text. The caller knows that it was written.
    pub(crate) fn read(&self) -> String {
        let bytes: Vec<u8> = self.0.iter().flat_map(|word| word.load(Relaxed).to_ne_bytes()).collect();
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    }
}

/// A thread in such a table.
#[derive(Debug)]
#[repr(C)]
pub struct HolderThread {
    tid: AtomicU64,
    name: TextRow<2>,
}

impl HolderThread {
    pub(crate) fn empty() -> Self {
        Self { tid: AtomicU64::new(0), name: TextRow::empty() }
    }

    pub(crate) fn write(&self, tid: u64, name: [u8; 16]) {
        self.tid.store(tid, Relaxed);
        self.name.write_bytes(&name);
    }

    /// The system's thread id, and the name.
    pub(crate) fn read(&self) -> (u32, String) {
        (self.tid.load(Relaxed) as u32, self.name.read())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_at_characters() {
        let row = TextRow::<1>::empty();
        row.write("abcdefgü");
        assert_eq!(row.read(), "abcdefg");
        row.write_end("übcdefgh");
        assert_eq!(row.read(), "bcdefgh");
        row.write_end("x");
        assert_eq!(row.read(), "x");
    }
}
