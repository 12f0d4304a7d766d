//! A message to the owner, in 31 bits: a page's number, and whether all of it returned or some of its
//! fragments. The slot that carries it uses the 32nd bit.
//!
//! Life   a queue of a pool with lives has a second word beside each slot. There a message of a page may
//!        carry the life that returned, and says so in its highest bit. Such a pool has fewer than 2^29 pages.
//!
//! How    the number of a page of order k ends in k zero bits. A message of fragments stores their count
//!        minus one there. So up to 2^k fragments of a page that return together are one message; in a page
//!        of order 0 each is one.

use std::num::NonZeroU32;

use crate::mem::page::PageIdx;

/// What returned. A page number has 30 bits (`MAX_PAGES`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    bits: u32,
    /// The life of a page, or 0 if the sender had the page alone.
    life: u32,
}

/// In a slot's bits: fragments returned.
pub(crate) const FRAG: u32 = 1;
/// In a slot's bits, in a queue with lives: the word beside the slot is the page's life.
pub(crate) const LIFE: u32 = 1 << 30;

impl Message {
    #[inline(always)]
    pub(crate) fn of_page(page: PageIdx) -> Self {
        Self { bits: page.0 << 1, life: 0 }
    }

    #[inline(always)]
    pub(crate) fn of_life(page: PageIdx, life: u32) -> Self {
        Self { bits: page.0 << 1, life }
    }

    #[inline(always)]
    pub(crate) fn of_frag(page: PageIdx) -> Self {
        Self { bits: page.0 << 1 | FRAG, life: 0 }
    }

    /// A message of the first fragments in a list, as many as are of one page and fit, and their number;
    /// `None` if the list is empty. Each fragment is given by its page.
    #[inline(always)]
    pub(crate) fn of_leading_frags(frags: &[u32], head_mask: NonZeroU32) -> Option<(Self, usize)> {
        let page = *frags.first()?;
        let most = 1 << head_mask.trailing_zeros();
        let n = 1 + frags[1..].iter().take(most - 1).take_while(|&&other| other == page).count();
        Some((Self { bits: (page + n as u32 - 1) << 1 | FRAG, life: 0 }, n))
    }

    /// What a slot carries, below 2^31.
    #[inline(always)]
    pub(crate) fn bits(self) -> u32 {
        self.bits | if self.life == 0 { 0 } else { LIFE }
    }

    /// From the bits of a slot in a queue without lives.
    #[inline(always)]
    pub(crate) fn from_bits(bits: u32) -> Self {
        Self { bits, life: 0 }
    }

    /// From the bits of a slot in a queue with lives, and the word beside it.
    #[inline(always)]
    pub(crate) fn with_life(bits: u32, word: impl FnOnce() -> u32) -> Self {
        if bits & LIFE == 0 { Self::from_bits(bits) } else { Self { bits: bits & !LIFE, life: word() } }
    }

    /// The life that returned; 0 if the sender had the page alone.
    #[inline(always)]
    pub(crate) fn life(self) -> u32 {
        self.life
    }

    #[inline(always)]
    pub(crate) fn is_frag(self) -> bool {
        self.bits & FRAG != 0
    }

    /// The whole page that returned; meaningless in a message of fragments.
    #[inline(always)]
    pub(crate) fn page(self) -> PageIdx {
        PageIdx(self.bits >> 1)
    }

    /// The page whose fragments returned, and how many; meaningless in a message of a whole page.
    #[inline(always)]
    pub(crate) fn frags(self, head_mask: NonZeroU32) -> (PageIdx, u32) {
        let number = self.bits >> 1;
        (PageIdx(number & head_mask.get()), (number & !head_mask.get()) + 1)
    }
}

/// What the owner empties: a lane or the ring.
pub(crate) trait MessageQueue {
    /// The oldest message, which stays.
    fn peek(&self) -> Option<Message>;

    fn pop(&self) -> Option<Message>;

    /// The number of messages that it can hold.
    fn capacity(&self) -> usize;

    /// Takes messages of whole pages as page numbers, until `space` is full; stops before a fragment or a
    /// life. Returns how many. The rest of `space` may be overwritten.
    fn take_pages(&self, space: &mut [u32]) -> usize;

    /// Takes messages of lives, until `space` is full; stops before any other. Keeps the page numbers of
    /// those that `ends` ends. Returns how many it took and how many it kept.
    fn take_lives(&self, space: &mut [u32], ends: impl Fn(PageIdx, u32) -> bool + Copy) -> (usize, usize);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::geometry::head_mask;

    #[test]
    fn one_message_carries_as_many_fragments_as_its_bits_allow() {
        for order in 0..=10u8 {
            let (page, next) = (5 << order, 6 << order);
            let mut frags = vec![page; 70];
            frags.push(next);
            let (mut left, mut messages, mask) = (&frags[..], 0, head_mask(order));
            while let Some((message, n)) = Message::of_leading_frags(left, mask) {
                assert!(message.is_frag() && n >= 1);
                assert_eq!(message.frags(mask), (PageIdx(left[0]), n as u32), "order {order}");
                (left, messages) = (&left[n..], messages + 1);
            }
            assert_eq!(messages, 70usize.div_ceil(1 << order) + 1, "order {order}");
            assert_eq!(Message::of_frag(PageIdx(page)).frags(mask), (PageIdx(page), 1));
        }
    }

    #[test]
    fn the_last_page_of_the_largest_area_has_a_message() {
        for order in [0, 10] {
            let page = ((1u32 << 30) - 1) & head_mask(order).get();
            let (message, n) = Message::of_leading_frags(&[page; 1024], head_mask(order)).unwrap();
            assert_eq!((message.frags(head_mask(order)), n), ((PageIdx(page), 1 << order), 1 << order));
            assert!(Message::from_bits(message.bits()) == message && message.bits() < 1 << 31);
        }
    }
}
