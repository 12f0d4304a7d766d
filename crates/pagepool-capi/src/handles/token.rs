//! The shape of a token: the kind of object, its place in its table, and the generation of that place.
//!
//! ```text
//! 63                32 31               4 3    0
//! |    generation     |     place        | kind |
//! ```
//!
//! A place's generations begin at random. Those of buffers are odd and follow each other as in `life_word`;
//! those of other objects only grow. No token is 0, and none is a multiple of 4, as the address of an object
//! aligned to 4 bytes is: a pointer passed by mistake is refused.

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::*};

/// The kind of object that a token names. No multiples of 4, so that no aligned address looks like a token;
/// kinds on the hot paths have odd numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum HandleKind {
    Page = 1,
    Skb = 2,
    Frag = 3,
    Pool = 5,
    SkbCache = 6,
    Arena = 7,
    PageRef = 9,
    DeferredUser = 10,
    Domain = 11,
    Shared = 13,
    Batch = 14,
    Shutdown = 15,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Token(pub(crate) u64);

pub(crate) const KIND_BITS: u32 = 4;

/// Places that a token can name.
pub(crate) const PLACES: u32 = 1 << (32 - KIND_BITS);

impl Token {
    #[inline(always)]
    pub(crate) fn new(kind: HandleKind, place: u32, generation: u32) -> Self {
        Self(u64::from(generation) << 32 | u64::from(place) << KIND_BITS | kind as u64)
    }

    /// The token that C passed.
    #[inline(always)]
    pub(crate) fn of<T>(handle: *const T) -> Self {
        Self(handle.addr() as u64)
    }

    /// The token as C gets it: a number in the type of a pointer.
    #[inline(always)]
    pub(crate) fn handle<T>(self) -> *mut T {
        std::ptr::without_provenance_mut(self.0 as usize)
    }

    #[inline(always)]
    pub(crate) fn is(self, kind: HandleKind) -> bool {
        self.0 & ((1 << KIND_BITS) - 1) == kind as u64
    }

    #[inline(always)]
    pub(crate) fn place(self) -> u32 {
        self.0 as u32 >> KIND_BITS
    }

    #[inline(always)]
    pub(crate) fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// The generations that a place had: the first in the upper half, the latest in the lower half; 0 before the
/// first. They begin at random and only grow: a stale token stays stale, and a token with one flipped bit
/// does not name what another thread has in a neighbouring place.
#[derive(Clone, Copy, Default)]
pub(crate) struct Generations(pub(crate) u64);

impl Generations {
    #[must_use]
    pub(crate) fn next(self) -> Self {
        if self.0 == 0 {
            let first = first_generation();
            return Self::new(first, first);
        }
        Self::new(self.first(), self.latest().wrapping_add(1))
    }

    fn new(first: u32, latest: u32) -> Self {
        Self(u64::from(first) << 32 | u64::from(latest))
    }

    pub(crate) fn latest(self) -> u32 {
        self.0 as u32
    }

    /// Whether this generation is the latest or an earlier one.
    pub(crate) fn had(self, generation: u32) -> bool {
        let first = self.first();
        self.0 != 0 && generation.wrapping_sub(first) <= self.latest().wrapping_sub(first)
    }

    fn first(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// A random odd number.
#[cold]
pub(crate) fn first_generation() -> u32 {
    static RANDOM: OnceLock<RandomState> = OnceLock::new();
    static DRAWN: AtomicU64 = AtomicU64::new(0);
    let random = RANDOM.get_or_init(|| ::pagepool::uncancelled(RandomState::new)); // which calls getrandom(2)
    random.hash_one(DRAWN.fetch_add(1, Relaxed)) as u32 | 1
}

const _: () = assert!(size_of::<usize>() == 8, "a token fills a pointer of 64 bits");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_gives_back_what_it_was_made_of() {
        let token = Token::new(HandleKind::Frag, PLACES - 1, u32::MAX);
        assert!(token.is(HandleKind::Frag) && !token.is(HandleKind::Page));
        assert_eq!((token.place(), token.generation()), (PLACES - 1, u32::MAX));
        assert_eq!(Token::of(token.handle::<u8>()), token);
    }

    #[test]
    fn generations_begin_at_random_and_the_old_ones_are_known() {
        let mut drawn: Vec<u32> = (0..64).map(|_| Generations::default().next().latest()).collect();
        drawn.sort_unstable();
        drawn.dedup();
        assert!(drawn.len() > 60, "{drawn:?}");

        assert!(!Generations::default().had(0));
        let first = Generations::default().next();
        let third = first.next().next();
        assert!(
            third.had(first.latest())
                && third.had(first.latest().wrapping_add(1))
                && third.had(third.latest())
        );
        assert!(!third.had(third.latest().wrapping_add(1)) && !third.had(first.latest().wrapping_sub(1)));
    }

    #[test]
    fn generations_go_on_past_the_last_number() {
        let last = Generations(u64::from(u32::MAX - 1) << 32 | u64::from(u32::MAX));
        let next = last.next();
        assert_eq!(next.latest(), 0);
        assert!(next.had(u32::MAX) && next.had(0) && !next.had(1));
    }
}
