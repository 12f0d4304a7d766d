//! Buffers that never leave the owner's core.

use std::hint::black_box;
use std::sync::atomic::{Ordering, compiler_fence};

use pagepool::{PoolParams, put_bulk};

use crate::bench::measure::counted::{Moves, Rule};
use crate::bench::measure::workload::{Ready, Workload};
use crate::bench::workloads::pools;

/// Everything comes from the cache and goes back to it.
pub const CACHE_ONLY: &[Rule] = &[Rule(&["alloc_fast"], Moves::Each), Rule(&["recycle_cached"], Moves::Each)];

/// One at a time and in bulk, on the owner.
pub const TABLE: &[Workload] = &[
    Workload {
        name: "page_direct",
        linux: "no-softirq-page_pool01",
        about: "allocate a page, drop it",
        rules: CACHE_ONLY,
        ready: page_direct,
        ..Workload::USUAL
    },
    Workload {
        name: "page_burst64",
        about: "allocate 64, drop 64, one call each",
        rules: CACHE_ONLY,
        ready: page_burst64,
        ..Workload::USUAL
    },
    Workload {
        name: "page_bulk32",
        batch: 32,
        about: "fill a Batch with 32, put them",
        rules: CACHE_ONLY,
        ready: page_bulk::<32>,
        ..Workload::USUAL
    },
    Workload {
        name: "page_bulk32_handles",
        batch: 32,
        about: "allocate 32 owned handles in one call, return them in one call",
        rules: CACHE_ONLY,
        ready: page_bulk_handles::<32>,
        ..Workload::USUAL
    },
    Workload {
        name: "page_bulk64",
        batch: 64,
        about: "fill a Batch with 64, put them",
        rules: CACHE_ONLY,
        ready: page_bulk::<64>,
        ..Workload::USUAL
    },
    Workload {
        name: "page_bulk64_handles",
        batch: 64,
        about: "allocate 64 owned handles in one call, return them in one call",
        rules: CACHE_ONLY,
        ready: page_bulk_handles::<64>,
        ..Workload::USUAL
    },
];

fn page_direct() -> Result<Ready, String> {
    let pool = pools::bound(PoolParams::default())?;
    let counters = pools::counters_of(&pool);
    let run = move |n| {
        for _ in 0..n {
            let buf = pools::page(&pool);
            // As in the peers' harness: memory may be looked at here, the handle stays in registers.
            compiler_fence(Ordering::SeqCst);
            drop(buf);
        }
    };
    Ok(Ready::one_core(run).counting(counters))
}

fn page_burst64() -> Result<Ready, String> {
    let pool = pools::bound(PoolParams::default())?;
    let counters = pools::counters_of(&pool);
    let mut burst = Vec::with_capacity(64);
    let run = move |n| {
        for _ in 0..n / 64 {
            burst.extend((0..64).map(|_| pools::page(&pool)));
            black_box(&burst);
            burst.clear();
        }
    };
    Ok(Ready::one_core(run).counting(counters))
}

fn page_bulk<const N: usize>() -> Result<Ready, String> {
    let pool = pools::bound(PoolParams::default())?;
    let counters = pools::counters_of(&pool);
    let mut batch = pool.alloc_batch(0);
    let run = move |n| {
        for _ in 0..n / N {
            pool.alloc_batch_into(&mut batch, N);
            black_box(&batch);
            batch.put();
        }
    };
    Ok(Ready::one_core(run).counting(counters))
}

fn page_bulk_handles<const N: usize>() -> Result<Ready, String> {
    let pool = pools::bound(PoolParams::default())?;
    let counters = pools::counters_of(&pool);
    let mut burst = Vec::with_capacity(N);
    let run = move |n| {
        for _ in 0..n / N {
            pool.alloc_bulk(&mut burst, N);
            black_box(&burst);
            put_bulk(&mut burst);
        }
    };
    Ok(Ready::one_core(run).counting(counters))
}
