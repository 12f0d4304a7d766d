//! Targets of a bulk allocation.

// UNSAFETY: handles are written past a vector's end.
#![expect(unsafe_code)]

use crate::buf::handle_copy;
use crate::buf::page_buf::PageBuf;
use crate::core::pool_core::PoolPtr;

/// A target of [`Bound::alloc_bulk`](crate::Bound::alloc_bulk): a `Vec` of [`PageBuf`], filled up to its
/// capacity, or a [`Batch`](crate::Batch), filled up to [`Batch::MAX`](crate::Batch::MAX) pages. No other type
/// can implement it.
#[expect(private_bounds, reason = "no other type may receive pages that belong to nobody")]
pub trait Sink: Receive {}

impl Sink for Vec<PageBuf> {}

pub(crate) trait Receive {
    /// How many whole pages of this pool fit.
    fn room_for(&mut self, pool: PoolPtr) -> usize;

    /// Adds whole pages of this pool, which the caller gives up. They must fit.
    fn receive(&mut self, pool: PoolPtr, pages: &[u32]);
}

impl Receive for Vec<PageBuf> {
    #[inline(always)]
    fn room_for(&mut self, _: PoolPtr) -> usize {
        self.capacity() - self.len()
    }

    #[inline(always)]
    fn receive(&mut self, pool: PoolPtr, pages: &[u32]) {
        handle_copy::write_whole(pool, pages, self.spare_capacity_mut());
        // SAFETY: `write_whole` just wrote an entry for each page, within the capacity.
        unsafe { self.set_len(self.len() + pages.len()) };
    }
}
