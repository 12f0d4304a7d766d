//! The shape of a token: what kind of thing, where in its table, and in which of that place's lives.
//!
//! ```text
//! 63                32 31               4 3    0
//! |    generation     |     place        | kind |
//! ```
//!
//! A buffer's generation is odd while it is out. Other kinds begin with 1. No token is 0, and none of them is
//! aligned like an address of anything that is aligned to 4 bytes, so that a pointer given by mistake is
//! refused.

/// What a token stands for. No multiples of 4, so that no aligned address looks like a token; what is given
/// on every path has odd numbers.
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
    Shutdown = 15,
}

/// A token taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Token(pub(crate) u64);

/// Bits of the kind.
pub(crate) const KIND_BITS: u32 = 4;

/// Places that a token can name.
pub(crate) const PLACES: u32 = 1 << (32 - KIND_BITS);

impl Token {
    #[inline(always)]
    pub(crate) fn new(kind: HandleKind, place: u32, generation: u32) -> Self {
        Self(u64::from(generation) << 32 | u64::from(place) << KIND_BITS | kind as u64)
    }

    /// What C gave.
    #[inline(always)]
    pub(crate) fn of<T>(handle: *const T) -> Self {
        Self(handle.addr() as u64)
    }

    /// What C gets: a number in a pointer's clothes.
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
}
