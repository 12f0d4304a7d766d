//! The message of a return to the owner, in 31 bits: a page's number, and whether all of it returned or one
//! of its fragments. The 32nd bit is for the slot that carries it.

use crate::mem::page::PageIdx;

/// What returned. A page's number has 30 bits (`MAX_PAGES`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message(u32);

impl Message {
    const FRAG: u32 = 1;

    /// A whole page.
    #[inline(always)]
    pub(crate) fn of_page(page: PageIdx) -> Self {
        Self(page.0 << 1)
    }

    /// One fragment of a page.
    #[inline(always)]
    pub(crate) fn of_frag(page: PageIdx) -> Self {
        Self(page.0 << 1 | Self::FRAG)
    }

    /// Below 2^31.
    #[inline(always)]
    pub(crate) fn bits(self) -> u32 {
        self.0
    }

    #[inline(always)]
    pub(crate) fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// Whether it is a fragment of the page.
    #[inline(always)]
    pub(crate) fn is_frag(self) -> bool {
        self.0 & Self::FRAG != 0
    }

    #[inline(always)]
    pub(crate) fn page(self) -> PageIdx {
        PageIdx(self.0 >> 1)
    }
}

/// What the owner drains: a lane or the ring.
pub(crate) trait MessageQueue {
    /// The oldest message, left where it is.
    fn peek(&self) -> Option<Message>;

    /// Takes the oldest message.
    fn pop(&self) -> Option<Message>;

    /// Messages that it has room for.
    fn capacity(&self) -> usize;

    /// Takes messages of whole pages, as page numbers, while they last and `space` does; stops before a
    /// fragment. Says how many. What it writes to `space` behind those means nothing.
    fn take_pages(&self, space: &mut [u32]) -> usize;
}
