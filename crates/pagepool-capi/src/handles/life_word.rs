//! The life of one buffer: which of its lives it is in, and whether it is out.
//!
//! Word   the upper half is the generation: odd while the buffer is out, even while it is in its pool. The
//!        lower half of a buffer that is out is the upper half of its second word (`PageBuf::into_token`). If
//!        that is 0, as for a plain page, it is the lower half of its token: word and token are equal. The
//!        lower half of a buffer in its pool is that of its token minus 1, which no token of its kind has.
//!        All of it is 0 before the first life. So one addition begins the life of a plain page, and one
//!        ends it.
//! Who    from pool to out: the thread that has the page itself, by a plain store. From out to pool: `claim`.
//! Life   generations only grow, so a stale token stays stale. They begin at random, so that one that is made
//!        up does not fit.

use std::sync::atomic::{AtomicU64, Ordering::*};

use crate::handles::token::{Token, first_generation};

/// The life of one place.
#[repr(transparent)]
pub(crate) struct LifeWord(AtomicU64);

impl LifeWord {
    /// Begins the life of a plain page that was out before.
    #[inline(always)]
    pub(crate) fn begin_again(&self) -> Option<Token> {
        let home = self.0.load(Relaxed);
        (home != 0).then(|| {
            self.0.store(home.wrapping_add(BEGIN), Relaxed);
            Token(home.wrapping_add(BEGIN))
        })
    }

    /// Begins a life; `place` is the lower half of its tokens, `part` the upper half of the buffer's second
    /// word.
    pub(crate) fn begin(&self, place: u32, part: u32) -> Token {
        let before = match self.0.load(Relaxed) {
            0 => first_generation(),
            home => (home >> 32) as u32,
        };
        let token = Token(u64::from(before + 1) << 32 | u64::from(place));
        self.0.store(out(token, part), Relaxed);
        token
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
            self.0.store(home(token), Relaxed);
            now
        })
    }

    /// As [`end_alone`](Self::end_alone), for a page with nothing to look up; says whether it was one, in
    /// that life.
    #[inline(always)]
    pub(crate) fn end_plain(&self, token: Token) -> bool {
        let same = self.0.load(Relaxed) == token.0;
        if same {
            self.0.store(home(token), Relaxed);
        }
        same
    }

    /// As [`end_plain`](Self::end_plain); of several who try, one does. The look before the exchange is not
    /// for the answer: the CPU fetches what plain loads need ahead of the exchanges before them.
    #[inline(always)]
    pub(crate) fn end_plain_together(&self, token: Token) -> bool {
        self.0.load(Relaxed) == token.0
            && self.0.compare_exchange(token.0, home(token), AcqRel, Relaxed).is_ok()
    }

    /// Ends a life, and says how it was; of several who try, one does.
    pub(crate) fn end(&self, token: Token) -> Option<u64> {
        let now = self.0.load(Acquire);
        let ended = || self.0.compare_exchange(now, home(token), AcqRel, Relaxed).is_ok();
        (is_in(now, token) && ended()).then_some(now)
    }

    /// Takes the end of a life back: for the one who ended it and still has the buffer.
    pub(crate) fn resume(&self, token: Token, part: u32) {
        self.0.store(out(token, part), Release);
    }
}

/// Whether a word says that the buffer is out in the life of a token; generations of tokens are odd.
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

/// The word of a buffer that returned to its pool.
#[inline(always)]
fn home(token: Token) -> u64 {
    token.0.wrapping_add(END)
}

/// From the word of a page in its pool to that of its next life: the next generation, and the lower half one
/// more.
const BEGIN: u64 = (1 << 32) + 1;
/// From a token to the word of its page back in the pool: the next generation, and the lower half one less.
const END: u64 = (1 << 32) - 1;

const _: () = assert!(size_of::<LifeWord>() == 8, "pagepool.h knows it");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handles::token::HandleKind;

    #[test]
    fn a_part_of_a_page_is_found_beside_every_generation() {
        let token = Token::new(HandleKind::Page, 7, 0x1235);
        for part in [0, 0xffff_fffe] {
            assert_eq!(part_of_page(out(token, part), token), part);
        }
    }
}
