//! The copies of `handle_copy` for every CPU: eight at a time, without a branch per buffer.

use std::mem::MaybeUninit;

use crate::buf::handle_bits::HandleBits;
use crate::buf::page_buf::PageBuf;
use crate::core::pool_core::PoolPtr;
use crate::mem::page::PageIdx;

/// See `write_whole`. Not inlined, like the AVX2 functions: a caller then keeps only their arguments.
#[inline(never)]
pub(super) fn write_each(pool: PoolPtr, pages: &[u32], room: &mut [MaybeUninit<PageBuf>]) {
    let write = |(page, handle): (&u32, &mut MaybeUninit<PageBuf>)| {
        handle.write(PageBuf::whole(pool, PageIdx(*page)));
    };
    let (eights, rest) = pages.as_chunks::<8>();
    let (room_eights, room_rest) = room[..pages.len()].as_chunks_mut::<8>();
    for (pages, handles) in eights.iter().zip(room_eights) {
        pages.iter().zip(handles).for_each(write);
    }
    rest.iter().zip(room_rest).for_each(write);
}

/// See `read_whole`.
#[inline(never)]
pub(super) fn read_each(pool: PoolPtr, buffers: &[PageBuf], numbers: &mut [u32]) -> bool {
    let (mut pools, mut bits) = (0, 0);
    let mut copy = |(buffer, number): (&PageBuf, &mut u32)| {
        pools |= buffer.pool.addr() ^ pool.addr();
        bits |= buffer.bits.bits();
        *number = buffer.bits.whole_page().0;
    };
    let (eights, rest) = buffers.as_chunks::<8>();
    let (number_eights, number_rest) = numbers[..buffers.len()].as_chunks_mut::<8>();
    for (buffers, numbers) in eights.iter().zip(number_eights) {
        buffers.iter().zip(numbers).for_each(&mut copy);
    }
    rest.iter().zip(number_rest).for_each(&mut copy);
    pools == 0 && HandleBits::from_bits(bits).is_whole()
}
