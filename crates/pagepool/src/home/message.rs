//! The message of a return to the owner, in 31 bits: a page's number, and whether all of it returned or some
//! of its fragments. The 32nd bit is for the slot that carries it.
//!
//! How    the number of a page of order k ends in k zeros: in a message of fragments one less than their
//!        number stands there. So fragments of one page that return together are one message for up to 2^k,
//!        and in a page of order 0 each is one.

use std::num::NonZeroU32;

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

    /// The fragments at the front of a list, given by their pages, that go into one message, and how many
    /// they are; `None` without fragments.
    #[inline(always)]
    pub(crate) fn of_leading_frags(frags: &[u32], head_mask: NonZeroU32) -> Option<(Self, usize)> {
        let page = *frags.first()?;
        let most = 1 << head_mask.trailing_zeros();
        let n = 1 + frags[1..].iter().take(most - 1).take_while(|&&other| other == page).count();
        Some((Self((page + n as u32 - 1) << 1 | Self::FRAG), n))
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

    /// Whether it is of fragments of the page.
    #[inline(always)]
    pub(crate) fn is_frag(self) -> bool {
        self.0 & Self::FRAG != 0
    }

    /// The whole page that returned; of fragments it means nothing.
    #[inline(always)]
    pub(crate) fn page(self) -> PageIdx {
        PageIdx(self.0 >> 1)
    }

    /// The page whose fragments returned, and how many; of a whole page the number means nothing.
    #[inline(always)]
    pub(crate) fn frags(self, head_mask: NonZeroU32) -> (PageIdx, u32) {
        let number = self.0 >> 1;
        (PageIdx(number & head_mask.get()), (number & !head_mask.get()) + 1)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::returns::geometry::head_mask;

    #[test]
    fn fragments_of_one_page_share_messages_as_far_as_its_number_has_room() {
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
