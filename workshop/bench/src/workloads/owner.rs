//! Buffers that never leave the owner's core.

use std::hint::black_box;

use pagepool::{Bound, PoolParams, put_bulk};

use crate::measure::counted::{Moves, Rule};
use crate::measure::workload::{Ready, Workload};
use crate::workloads::pools;

/// Every buffer comes from the cache and returns to it.
pub const CACHE_ONLY: &[Rule] = &[Rule(&["alloc_fast"], Moves::Each), Rule(&["recycle_cached"], Moves::Each)];

pub const TABLE: &[Workload] = &[
    Workload::new("page_direct", page_direct)
        .linux("no-softirq-page_pool01")
        .about("allocate a page, drop it")
        .rules(CACHE_ONLY),
    Workload::new("page_burst64", page_burst64)
        .about("allocate 64, drop 64, one call each")
        .rules(CACHE_ONLY),
    Workload::new("page_bulk32", page_bulk::<32>)
        .about("fill a Batch with 32, put them")
        .batch(32)
        .rules(CACHE_ONLY),
    Workload::new("page_bulk32_handles", page_bulk_handles::<32>)
        .about("allocate 32 owned handles in one call, return them in one call")
        .batch(32)
        .rules(CACHE_ONLY),
    Workload::new("page_bulk64", page_bulk::<64>)
        .about("fill a Batch with 64, put them")
        .batch(64)
        .rules(CACHE_ONLY),
    Workload::new("page_bulk64_handles", page_bulk_handles::<64>)
        .about("allocate 64 owned handles in one call, return them in one call")
        .batch(64)
        .rules(CACHE_ONLY),
];

fn page_direct() -> Result<Ready, String> {
    pools::one_core(PoolParams::default(), |pool, n| pools::one_by_one(n, || pools::page(pool)))
}

fn page_burst64() -> Result<Ready, String> {
    let mut burst = Vec::with_capacity(64);
    let run = move |pool: &Bound, n| pools::in_bursts(n, 64, &mut burst, || pools::page(pool), Vec::clear);
    pools::one_core(PoolParams::default(), run)
}

fn page_bulk<const N: usize>() -> Result<Ready, String> {
    let pool = pools::bound(PoolParams::default())?;
    let mut batch = pool.alloc_batch(0);
    let run = move |pool: &Bound, n| {
        for _ in 0..n / N {
            pool.alloc_bulk(&mut batch, N);
            black_box(&batch);
            batch.put();
        }
    };
    Ok(pools::one_core_over(pool, run))
}

fn page_bulk_handles<const N: usize>() -> Result<Ready, String> {
    let mut burst = Vec::with_capacity(N);
    pools::one_core(PoolParams::default(), move |pool, n| {
        for _ in 0..n / N {
            pool.alloc_bulk(&mut burst, N);
            black_box(&burst);
            put_bulk(&mut burst);
        }
    })
}
