//! The life of one buffer: which life it is in, and whether a token is of that life.
//!
//! Word   the token of the buffer's life, stored when the life before ends: a page in its pool already has
//!        the token that it will be given out with. So a plain page's life begins without a store here, and
//!        one addition ends it. While a page is out whose second word has an upper half
//!        (`PageBuf::into_token`), that half replaces the token's lower half; in a fragment it always does.
//!        The whole word is 0 before the first life.
//! Who    the thread that has the buffer begins a life. Who ends it: `claim`.
//! Life   a place has 2^31 generations before one repeats, so a stale token stays stale. The first is random,
//!        and each next one differs from the last in at least 11 bits ([`NEXT`]). So a stale token with ten
//!        flipped bits is not that of the next life, and an invented number is with a probability of 1 in
//!        2^31. Such a number would be the only way to a buffer that was not given out.

use std::sync::atomic::{AtomicU64, Ordering::*};

use crate::handles::token::{Token, first_generation};

#[repr(transparent)]
pub(crate) struct LifeWord(AtomicU64);

impl LifeWord {
    /// Begins the life of a plain page that was out before; returns its token.
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

    /// Stores the token of the life after this one: for the word that says how the next life begins.
    #[inline(always)]
    pub(crate) fn follow(&self, token: Token) {
        self.0.store(next(token), Relaxed);
    }

    #[inline(always)]
    pub(crate) fn now(&self) -> u64 {
        self.0.load(Acquire)
    }

    /// Ends a life with plain operations; no other thread may race.
    #[inline(always)]
    pub(crate) fn end_alone(&self, token: Token) -> Option<u64> {
        let now = self.0.load(Relaxed);
        is_in(now, token).then(|| {
            self.0.store(next(token), Relaxed);
            now
        })
    }

    /// Ends the life of a plain page, which has nothing to look up, with plain operations. Returns whether it
    /// was one, in that life.
    #[inline(always)]
    pub(crate) fn end_plain(&self, token: Token) -> bool {
        let same = self.0.load(Relaxed) == token.0;
        if same {
            self.0.store(next(token), Relaxed);
        }
        same
    }

    /// Ends the life of a plain page with a compare-and-swap: of several threads one succeeds. The load
    /// before it is for speed: the CPU runs plain loads ahead of earlier exchanges.
    #[inline(always)]
    pub(crate) fn end_plain_together(&self, token: Token) -> bool {
        self.0.load(Relaxed) == token.0
            && self.0.compare_exchange(token.0, next(token), AcqRel, Relaxed).is_ok()
    }

    /// Ends a life with a compare-and-swap and returns the word before: of several threads one succeeds.
    pub(crate) fn end(&self, token: Token) -> Option<u64> {
        let now = self.0.load(Acquire);
        let ended = || self.0.compare_exchange(now, next(token), AcqRel, Relaxed).is_ok();
        (is_in(now, token) && ended()).then_some(now)
    }

    /// Undoes the end of a life; the caller ended it and still has the buffer.
    pub(crate) fn resume(&self, token: Token, part: u32) {
        self.0.store(out(token, part), Release);
    }
}

/// Whether a word is of the life of a token. The life has begun if the token was ever given out.
#[inline(always)]
pub(crate) fn is_in(word: u64, token: Token) -> bool {
    word >> 32 == token.0 >> 32
}

/// The upper half of the second word of a page that is out. For a fragment it is always the word's lower
/// half: never 0, and possibly equal to the lower half of a token.
#[inline(always)]
pub(crate) fn part_of_page(word: u64, token: Token) -> u32 {
    if word == token.0 { 0 } else { word as u32 }
}

/// The word of a buffer that is out. A page's part is even, and its token is odd.
fn out(token: Token, part: u32) -> u64 {
    if part == 0 { token.0 } else { token.0 >> 32 << 32 | u64::from(part) }
}

/// The token of the next life.
#[inline(always)]
fn next(token: Token) -> u64 {
    token.0.wrapping_add(NEXT << 32)
}

/// The step from one generation to the next. It is twice an odd number: a generation stays odd, and repeats
/// after all others. Part of the inline interface, as the views are.
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
