//! The arena alone: what the pool's slow path costs.

// UNSAFETY: pages that a workload reserved are given back.
#![expect(unsafe_code)]

use std::hint::black_box;

use pagepool::PageIdx;

use crate::bench::measure::workload::{Ready, Workload};
use crate::bench::workloads::pools;

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
];

fn reserve_release<const N: usize>(order: u8) -> Result<Ready, String> {
    let arena = pools::arena(pools::PAGES)?;
    Ok(Ready::one_core(move |n| {
        let mut pages = [PageIdx(0); N];
        for _ in 0..n / N {
            let got = arena.reserve(order, None, &mut pages);
            assert_eq!(got, N, "the arena has more pages than the workload holds");
            black_box(&pages);
            // SAFETY: they were reserved just now with this order, and nobody uses them.
            unsafe { arena.release(order, &pages) };
        }
    }))
}
