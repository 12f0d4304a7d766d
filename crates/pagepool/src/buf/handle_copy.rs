//! Converts page numbers into handles, and handles into page numbers, many at once.
//!
//! Who    the owner, between its cache and a vector of buffers; any thread that returns buffers in bulk.
//! How    eight at a time, without a branch per buffer; in vector registers if the CPU has AVX2.

// UNSAFETY: calls of functions compiled for AVX2; tests read the written handles as such.
#![cfg_attr(any(target_arch = "x86_64", test), expect(unsafe_code))]

#[cfg(target_arch = "x86_64")]
mod avx2;
mod each;

use std::mem::MaybeUninit;

use crate::buf::handle_copy::each::{read_each, write_each};
use crate::buf::page_buf::PageBuf;
use crate::core::pool_core::PoolPtr;

/// Writes the handles of whole pages, which the caller gives up, to the front of `room`, where they must fit.
#[inline(always)]
pub(crate) fn write_whole(pool: PoolPtr, pages: &[u32], room: &mut [MaybeUninit<PageBuf>]) {
    #[cfg(target_arch = "x86_64")]
    if avx2::is_worth_it(pages.len()) {
        // SAFETY: the CPU has AVX2.
        return unsafe { avx2::write_whole(pool, pages, room) };
    }
    write_each(pool, pages, room);
}

/// Copies the buffers' page numbers to the front of `numbers`, where they must fit. Returns whether each is a
/// whole page of this pool without a [`PageRef`](crate::PageRef); if not, the numbers are meaningless.
#[inline(always)]
pub(crate) fn read_whole(pool: PoolPtr, buffers: &[PageBuf], numbers: &mut [u32]) -> bool {
    #[cfg(target_arch = "x86_64")]
    if avx2::is_worth_it(buffers.len()) {
        // SAFETY: the CPU has AVX2.
        return unsafe { avx2::read_whole(pool, buffers, numbers) };
    }
    read_each(pool, buffers, numbers)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::buf::handle_bits::{FragBits, HandleBits};
    use crate::mem::page::{BasePage, PageIdx};
    use std::mem::ManuallyDrop;
    use std::ptr::{NonNull, without_provenance_mut};

    type Write = fn(PoolPtr, &[u32], &mut [MaybeUninit<PageBuf>]);
    type Read = fn(PoolPtr, &[PageBuf], &mut [u32]) -> bool;

    /// Both implementations: for every CPU, and what this CPU uses.
    const WAYS: [(Write, Read); 2] = [
        (|pool, pages, room| write_each(pool, pages, room), |pool, from, to| read_each(pool, from, to)),
        (|pool, pages, room| write_whole(pool, pages, room), |pool, from, to| read_whole(pool, from, to)),
    ];

    /// A pool that is never followed: copies use only its address.
    fn pool(at: usize) -> PoolPtr {
        PoolPtr::new(NonNull::new(without_provenance_mut(at)).expect("no pool is at 0"))
    }

    #[test]
    fn any_count_of_numbers_becomes_handles_and_numbers_again() {
        let pool = pool(0x7f00_1234_5680);
        for (write, read) in WAYS {
            for len in 0..70 {
                let pages: Vec<u32> = (0..len).map(|at| (at * 7) | ((at & 1) << 29)).collect();
                let mut room = [const { MaybeUninit::uninit() }; 80];
                write(pool, &pages, &mut room);
                // SAFETY: as many were written; none is dropped.
                let handles =
                    unsafe { std::slice::from_raw_parts(room.as_ptr().cast::<PageBuf>(), pages.len()) };
                assert!(handles.iter().all(|handle| handle.pool == pool && handle.bits.is_whole()));
                assert!(handles.iter().map(|handle| handle.bits.page().0).eq(pages.iter().copied()));
                let mut numbers = vec![u32::MAX; pages.len()];
                assert!(read(pool, handles, &mut numbers));
                assert_eq!(numbers, pages);
            }
        }
    }

    #[test]
    fn one_buffer_of_another_kind_or_pool_is_seen_wherever_it_is() {
        let (pool, other) = (pool(0x7f00_1234_5680), pool(0x7f00_1234_5600));
        let stranger = [
            (other, HandleBits::whole(PageIdx(7))),
            (pool, HandleBits::new(PageIdx(7), FragBits::MAY_HAVE_REFS)),
            (pool, HandleBits::frag(BasePage::DEFAULT, PageIdx(7), 64, 64)),
        ];
        for (_, read) in WAYS {
            for (len, at) in (1..40).flat_map(|len| (0..len).map(move |at| (len, at))) {
                for (whose, bits) in stranger {
                    let handle = |n: u32| match n == at {
                        true => PageBuf { pool: whose, bits },
                        false => PageBuf::whole(pool, PageIdx(n)),
                    };
                    let handles: Vec<_> = (0..len).map(handle).map(ManuallyDrop::new).collect();
                    // SAFETY: a `ManuallyDrop` has the layout of its content; nothing is dropped.
                    let handles =
                        unsafe { std::slice::from_raw_parts(handles.as_ptr().cast(), handles.len()) };
                    assert!(!read(pool, handles, &mut vec![0; len as usize]), "{len} {at} {bits:?}");
                }
            }
        }
    }
}
