//! The life of one fragment: which life it is in, and whether a token is of that life.
//!
//! Word   the upper half is the generation of the token. The lower half is the upper half of the buffer's
//!        second word (`PageBuf::into_token`), which is never 0. The word is 0 before the first life.
//! Who    the thread that has the buffer begins a life. The thread that changes the generation by a
//!        compare-and-swap ends it, and has the buffer: of several threads one succeeds.
//! Life   a place has 2^31 generations before one repeats, so a stale token stays stale. The first is random,
//!        and each next one differs from the last in at least 11 bits ([`NEXT_LIFE`]). So a stale token with
//!        ten flipped bits is not that of the next life, and an invented number is with a probability of 1 in
//!        2^31. Such a number would be the only way to a buffer that was not given out. The lives of pages
//!        (`LifeTable`) are numbered the same way.

use std::sync::atomic::{AtomicU64, Ordering::*};

use ::pagepool::next_life;

use crate::handles::token::{Token, first_generation};

#[repr(transparent)]
pub(crate) struct LifeWord(AtomicU64);

impl LifeWord {
    /// Begins a life; `place` is the lower half of its token.
    pub(crate) fn begin(&self, place: u32, part: u32) -> Token {
        let generation = match self.0.load(Relaxed) {
            0 => first_generation(),
            word => (word >> 32) as u32,
        };
        let token = Token(u64::from(generation) << 32 | u64::from(place));
        self.0.store(word_of(token, part), Relaxed);
        token
    }

    /// The part of a token's buffer, if the token is of the current life.
    #[inline(always)]
    pub(crate) fn part(&self, token: Token) -> Option<u32> {
        let word = self.0.load(Acquire);
        (word >> 32 == token.0 >> 32).then_some(word as u32)
    }

    /// Ends the life of a token and returns the part of its buffer.
    pub(crate) fn end(&self, token: Token) -> Option<u32> {
        let part = self.part(token)?;
        let next = next_life(token.0 >> 32 << 32);
        let ended = self.0.compare_exchange(word_of(token, part), next, AcqRel, Relaxed).is_ok();
        ended.then_some(part)
    }

    /// Undoes the end of a life; the caller ended it and still has the buffer.
    pub(crate) fn resume(&self, token: Token, part: u32) {
        self.0.store(word_of(token, part), Release);
    }
}

fn word_of(token: Token, part: u32) -> u64 {
    token.0 >> 32 << 32 | u64::from(part)
}

#[cfg(test)]
mod tests {
    use ::pagepool::NEXT_LIFE;

    #[test]
    fn the_header_has_the_same_next_life() {
        assert!(include_str!("../inline.h").contains(&format!("(uint64_t){NEXT_LIFE:#x} << 32")));
        assert!(NEXT_LIFE % 4 == 2 && NEXT_LIFE.count_ones() > 8);
    }
}
