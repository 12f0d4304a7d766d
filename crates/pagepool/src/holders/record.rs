//! The record of a page that is out.
//!
//! Words  `since`: when it went out, in milliseconds of the coarse clock, and a number that distinguishes two
//!        allocations in one millisecond; 0 while the page is in the pool. `what`: ids of texts, each in its
//!        own table. `frags`: fragments of the page that are out, and how many of these returned on other
//!        threads but are not collected. From it observers of the file see whether the page is held.
//! Who    the owner of the page (I1): the pool's owner writes `since` and `what` when it allocates the page;
//!        the returning thread clears `since` before it passes the page on. For a page in fragments several
//!        threads may change the tag in `what`, by compare-exchange, and `frags`, by atomic additions. A
//!        thread that opens or splits a page adds before it passes a part on. A returner adds before its
//!        message. The thread that counts returned fragments subtracts.
//! Pairs  out: `what`, then `since`, both Release. A reader: `since`, Acquire; `what`; fence, Acquire;
//!        `since`. If both loads of `since` agree, `what` belongs to it: a thread that sees the `what` of a
//!        later allocation also sees the clear of `since` before it.

use std::mem::offset_of;

use crate::sys::sync::{AtomicU64, Ordering, fence};

/// Ids in a record; 0 is none, or one for which its table had no room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Ord, PartialOrd)]
pub struct What {
    /// Where the page was allocated.
    pub site: u16,
    /// The tag of its holder.
    pub tag: u16,
    /// The thread that allocated it or set the tag.
    pub thread: u16,
    /// The stack of the allocation, if it was sampled.
    pub stack: u16,
}

impl What {
    /// The ids in a record's word.
    pub fn of_word(word: u64) -> Self {
        let part = |at: u32| (word >> (16 * at)) as u16;
        Self { site: part(0), tag: part(1), thread: part(2), stack: part(3) }
    }

    pub(crate) fn word(self) -> u64 {
        let parts = [self.site, self.tag, self.thread, self.stack];
        parts.iter().rev().fold(0, |word, &part| word << 16 | u64::from(part))
    }
}

/// When a page went out: milliseconds, and a number within the millisecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Since(pub u64);

impl Since {
    pub(crate) fn new(ms: u64, number: u64) -> Self {
        Self(ms.max(1) << 16 | number & 0xffff)
    }

    pub(crate) fn ms(self) -> u64 {
        self.0 >> 16
    }
}

/// One fragment that is out, in `frags`. The lower half counts those that wait to be collected.
const OUT: u64 = 1 << 32;

/// What is known of a page that is out.
#[derive(Debug, Default)]
#[repr(C)]
pub struct HolderRecord {
    since: AtomicU64,
    what: AtomicU64,
    frags: AtomicU64,
}

impl HolderRecord {
    /// Offset of the fragment counts, for observers of the file.
    pub const FRAGS_AT: usize = offset_of!(Self, frags);

    /// The page goes out.
    pub(crate) fn out(&self, since: Since, what: What) {
        self.what.store(what.word(), Ordering::Release); // pairs with read()
        self.since.store(since.0, Ordering::Release); // pairs with read()
    }

    /// The page has returned, and no other thread has it yet.
    #[inline]
    pub(crate) fn back(&self) {
        // The message that returns the page orders this store before the next user.
        self.since.store(0, Ordering::Relaxed);
    }

    /// `n` more fragments are out. Relaxed, as in the next two functions: passing the fragment on orders it.
    pub(crate) fn frags_out(&self, n: u32) {
        self.frags.fetch_add(OUT * u64::from(n), Ordering::Relaxed);
    }

    /// `n` more (or fewer, below 0) fragments that other threads returned wait to be collected.
    pub(crate) fn frags_wait(&self, n: i32) {
        self.frags.fetch_add(i64::from(n) as u64, Ordering::Relaxed);
    }

    /// `n` fragments were counted as returned.
    pub(crate) fn frags_returned(&self, n: u32) {
        self.frags.fetch_sub(OUT * u64::from(n), Ordering::Relaxed);
    }

    /// Whether a page that is out is held, from the word at [`FRAGS_AT`](Self::FRAGS_AT).
    pub fn is_held(frags: u64) -> bool {
        let (out, returned) = (frags >> 32, frags & 0xffff_ffff);
        returned == 0 || returned < out
    }

    /// Another holder took the page over.
    pub(crate) fn hand_over(&self, tag: u16, thread: u16) {
        let change = |word| Some(What { tag, thread, ..What::of_word(word) }.word());
        let _ = self.what.fetch_update(Ordering::Release, Ordering::Relaxed, change);
    }

    /// The record, if the page is out. If the record changed during the read, only `since`.
    pub(crate) fn read(&self) -> Option<(Since, What)> {
        let since = self.since.load(Ordering::Acquire);
        let what = What::of_word(self.what.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let again = self.since.load(Ordering::Relaxed);
        (again != 0).then(|| (Since(again), if again == since { what } else { What::default() }))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_record_says_what_was_put_into_it() {
        let record = HolderRecord::default();
        assert_eq!(record.read(), None);
        let what = What { site: 0xffff, tag: 1, thread: 0x8000, stack: 7 };
        record.out(Since::new(1 << 40, 0x1_2345), what);
        let (since, read) = record.read().unwrap();
        assert_eq!((since.ms(), since.0 & 0xffff, read), (1 << 40, 0x2345, what));
        record.hand_over(9, 3);
        assert_eq!(record.read().unwrap().1, What { tag: 9, thread: 3, ..what });
        record.back();
        assert_eq!(record.read(), None);
        assert_ne!(Since::new(0, 0).0, 0, "0 is not out");
    }

    #[test]
    fn a_page_is_held_until_all_its_fragments_wait() {
        let record = HolderRecord::default();
        let is_held = || HolderRecord::is_held(record.frags.load(Ordering::Relaxed));
        assert!(is_held(), "a whole page");
        record.frags_out(3);
        record.frags_wait(1);
        assert!(is_held());
        record.frags_returned(1); // one on the owner's thread
        record.frags_wait(1);
        assert!(!is_held());
        record.frags_wait(-2);
        record.frags_returned(2);
        assert_eq!(record.frags.load(Ordering::Relaxed), 0);
    }
}
