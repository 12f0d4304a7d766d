//! The arena alone: the cost of the pool's slow path.

// UNSAFETY: pages that a workload reserved are released.
#![expect(unsafe_code)]

use std::hint::black_box;

use pagepool::PageIdx;

use crate::measure::workload::{Ready, Workload};
use crate::workloads::pools;

/// Linux's page_bench01 at two orders, and its bulk form.
pub const TABLE: &[Workload] = &[
    Workload::new("arena_order0", || reserve_release::<1>(0))
        .linux("page_bench01 order 0")
        .about("reserve a page of 4 KiB, release it"),
    Workload::new("arena_order3", || reserve_release::<1>(3))
        .linux("page_bench01 order 3")
        .about("reserve a page of 32 KiB, release it"),
    Workload::new("arena_bulk64", || reserve_release::<64>(0))
        .linux("page_bench04_bulk 64")
        .about("reserve 64 pages of 4 KiB in one call, release them in one call")
        .batch(64),
    Workload::new("arena_bulk64_refused", bulk_beside_a_refusal)
        .about("reserve 64 pages, no two of them neighbours, release them, then fail to reserve 32 KiB")
        .batch(64),
];

fn reserve_release<const N: usize>(order: u8) -> Result<Ready, String> {
    let arena = pools::arena(pools::PAGES)?;
    Ok(Ready::one_core(move |n| {
        let mut pages = [PageIdx(0); N];
        for _ in 0..n / N {
            let got = arena.reserve(order, None, &mut pages);
            assert_eq!(got, N, "the arena has more pages than the workload holds");
            black_box(&pages);
            // SAFETY: they were just reserved with this order, and nothing uses them.
            unsafe { arena.release(order, &pages) };
        }
    }))
}

/// Like [`reserve_release`] of 64 pages. The arena has no other free pages, and no 32 KiB together.
fn bulk_beside_a_refusal() -> Result<Ready, String> {
    const FREE: usize = 64;
    let arena = pools::arena(2 * FREE)?;
    let mut all = [PageIdx(0); 2 * FREE];
    assert_eq!(arena.reserve(0, None, &mut all), all.len(), "nobody else has pages of this arena");
    let mut pages: [PageIdx; FREE] = std::array::from_fn(|i| PageIdx(2 * i as u32));
    // SAFETY: every second page of the arena, all of which were just reserved.
    unsafe { arena.release(0, &pages) };
    Ok(Ready::one_core(move |n| {
        for _ in 0..n / FREE {
            assert_eq!(arena.reserve(0, None, &mut pages), FREE, "as many as are free");
            black_box(&pages);
            // SAFETY: they were just reserved with this order, and nothing uses them.
            unsafe { arena.release(0, &pages) };
            assert_eq!(arena.reserve(3, None, &mut [PageIdx(0)]), 0, "no two pages are neighbours");
        }
    }))
}
