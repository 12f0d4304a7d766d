//! The life of one buffer: which of its lives it is in, and whether a token is of that one.
//!
//! Word   the token of the buffer's life, which it has from the end of the life before: a page in its pool
//!        has the token that it will be given out with. So a plain page's life begins without a store here,
//!        and one addition ends it. While a page is out whose second word has an upper half
//!        (`PageBuf::into_token`), that one stands in place of the token's lower half; so it does in each
//!        fragment. All of the word is 0 before the first life.
//! Who    the thread that has the buffer itself begins a life. Who ends it: `claim`.
//! Life   a place has 2^31 generations before one comes again, so a stale token stays stale. The first is
//!        random, and each next one differs from the last in at least 11 bits ([`NEXT`]): a stale token of
//!        which ten bits flipped is not that of the life to come, and a made-up number is with a probability
//!        of 1 in 2^31. That would be the one way to a buffer that nobody was given.

use std::sync::atomic::{AtomicU64, Ordering::*};

use crate::handles::token::{Token, first_generation};

/// The life of one place.
#[repr(transparent)]
pub(crate) struct LifeWord(AtomicU64);

impl LifeWord {
    /// The token of a plain page that was out before, whose life begins.
    #[inline(always)]
    pub(crate) fn begin_again(&self) -> Option<Token> {
        let token = self.0.load(Relaxed);
        (token != 0).then_some(Token(token))
    }

    /// Begins a life; `place` is the lower half of its tokens, `part` the upper half of the buffer's second
    /// word.
    pub(crate) fn begin(&self, place: u32, part: u32) -> Token {
        let generation = match self.0.load(Relaxed) {
            0 => first_generation(),
            word => (word >> 32) as u32,
        };
        let token = Token(u64::from(generation) << 32 | u64::from(place));
        self.0.store(out(token, part), Relaxed);
        token
    }

    /// Becomes the token of the life behind this one: for the word that says how the next life begins.
    #[inline(always)]
    pub(crate) fn follow(&self, token: Token) {
        self.0.store(next(token), Relaxed);
    }

    /// All of it.
    #[inline(always)]
    pub(crate) fn now(&self) -> u64 {
        self.0.load(Acquire)
    }

    /// Ends a life with plain operations: for a thread that no other can be racing with.
    #[inline(always)]
    pub(crate) fn end_alone(&self, token: Token) -> Option<u64> {
        let now = self.0.load(Relaxed);
        is_in(now, token).then(|| {
            self.0.store(next(token), Relaxed);
            now
        })
    }

    /// As [`end_alone`](Self::end_alone), for a page with nothing to look up; says whether it was one, in
    /// that life.
    #[inline(always)]
    pub(crate) fn end_plain(&self, token: Token) -> bool {
        let same = self.0.load(Relaxed) == token.0;
        if same {
            self.0.store(next(token), Relaxed);
        }
        same
    }

    /// As [`end_plain`](Self::end_plain); of several who try, one does. The look before the exchange is not
    /// for the answer: the CPU fetches what plain loads need ahead of the exchanges before them.
    #[inline(always)]
    pub(crate) fn end_plain_together(&self, token: Token) -> bool {
        self.0.load(Relaxed) == token.0
            && self.0.compare_exchange(token.0, next(token), AcqRel, Relaxed).is_ok()
    }

    /// Ends a life, and says how it was; of several who try, one does.
    pub(crate) fn end(&self, token: Token) -> Option<u64> {
        let now = self.0.load(Acquire);
        let ended = || self.0.compare_exchange(now, next(token), AcqRel, Relaxed).is_ok();
        (is_in(now, token) && ended()).then_some(now)
    }

    /// Takes the end of a life back: for the one who ended it and still has the buffer.
    pub(crate) fn resume(&self, token: Token, part: u32) {
        self.0.store(out(token, part), Release);
    }
}

/// Whether a word is of the life of a token. That has begun if the token was ever given to anybody.
#[inline(always)]
pub(crate) fn is_in(word: u64, token: Token) -> bool {
    word >> 32 == token.0 >> 32
}

/// The upper half of the second word of a page that is out. That of a fragment is the word's lower half,
/// always: it is never 0, and may be equal to the lower half of a token.
#[inline(always)]
pub(crate) fn part_of_page(word: u64, token: Token) -> u32 {
    if word == token.0 { 0 } else { word as u32 }
}

/// The word of a buffer that is out. A page's part is even, and its token is odd.
fn out(token: Token, part: u32) -> u64 {
    if part == 0 { token.0 } else { token.0 >> 32 << 32 | u64::from(part) }
}

/// The token of the life behind that of `token`.
#[inline(always)]
fn next(token: Token) -> u64 {
    token.0.wrapping_add(NEXT << 32)
}

/// From one generation to the next. Twice an odd number: a generation stays odd, and comes again after all
/// others. Part of the inline interface, as the views are.
pub(crate) const NEXT: u64 = 0x9e37_79b2;

const _: () = assert!(size_of::<LifeWord>() == 8, "pagepool.h knows it");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handles::token::HandleKind;

    #[test]
    fn the_header_has_the_same_next_life() {
        assert!(include_str!("../inline.h").contains(&format!("(uint64_t){NEXT:#x} << 32")));
        assert!(NEXT % 4 == 2 && NEXT.count_ones() > 8 && NEXT < 1 << 32);
    }

    #[test]
    fn a_part_of_a_page_is_found_beside_every_generation() {
        let token = Token::new(HandleKind::Page, 7, 0x1235);
        for part in [0, 0xffff_fffe] {
            assert_eq!(part_of_page(out(token, part), token), part);
        }
    }
}
