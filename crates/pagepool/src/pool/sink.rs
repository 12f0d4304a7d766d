//! What [`Bound::alloc_bulk`](crate::Bound::alloc_bulk) fills.

// UNSAFETY: handles are written behind a vector's end.
#![expect(unsafe_code)]

use crate::buf::batch::Batch;
use crate::buf::handle_copy;
use crate::buf::page_buf::PageBuf;
use crate::core::pool_core::PoolPtr;

/// What [`Bound::alloc_bulk`](crate::Bound::alloc_bulk) fills: a `Vec` of [`PageBuf`], up to its capacity, or a
/// [`Batch`], up to 64 pages.
#[expect(private_bounds, reason = "no other type may receive pages that belong to nobody")]
pub trait Sink: Receive {}

impl Sink for Vec<PageBuf> {}
impl Sink for Batch {}

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
        // SAFETY: as many entries were written just now, within the capacity.
        unsafe { self.set_len(self.len() + pages.len()) };
    }
}

impl Receive for Batch {
    /// 0 if the batch has pages of another pool. An empty batch becomes this pool's: its old pool may be freed,
    /// and another may have its address.
    #[inline(always)]
    fn room_for(&mut self, pool: PoolPtr) -> usize {
        self.room_for(pool)
    }

    #[inline(always)]
    fn receive(&mut self, _: PoolPtr, pages: &[u32]) {
        self.extend(pages);
    }
}
