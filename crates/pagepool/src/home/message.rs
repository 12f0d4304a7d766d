//! The message of a return to the owner, in one word.
//!
//! A message is a page's number plus one, with [`FRAG`] set if one of the page's fragments returned and not
//! the page. 0 is no message, which is what an empty slot of a lane or of the ring holds.

use crate::mem::page::PageIdx;

/// In a message: a fragment of the page returned.
pub(crate) const FRAG: u32 = 1 << 31;

/// The message of a whole page.
#[inline(always)]
pub(crate) fn page_message(page: PageIdx) -> u32 {
    page.0 + 1
}

/// The message of one fragment of a page.
#[inline(always)]
pub(crate) fn frag_message(page: PageIdx) -> u32 {
    (page.0 + 1) | FRAG
}

/// Whether a message is of a fragment; 0 is not.
#[inline(always)]
pub(crate) fn is_frag(message: u32) -> bool {
    message & FRAG != 0
}

/// The page of a message that is not 0.
#[inline(always)]
pub(crate) fn page_of(message: u32) -> PageIdx {
    PageIdx((message & !FRAG) - 1)
}

/// What the owner drains: a lane or the ring.
pub(crate) trait MessageQueue {
    /// Takes the oldest message.
    fn pop(&self) -> Option<u32>;

    /// Takes messages of whole pages, as page numbers, while they last and `space` does; stops before a
    /// fragment. Says how many.
    fn take_pages(&self, space: &mut [u32]) -> usize;
}
