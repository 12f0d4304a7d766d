//! Fragments of order-3 pages: the argument of the thread "page_pool: introduce page_pool_alloc() API"
//! (netdev, 2023).

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{Ordering, compiler_fence};

use pagepool::{Bound, PageBuf, PoolParams};

use super::remote::consumer;
use super::yardsticks::BURST;
use crate::bench::measure::counted::{Moves, Rule};
use crate::bench::measure::touch;
use crate::bench::measure::workload::{Ready, Workload};
use crate::bench::rivals::spsc;
use crate::bench::workloads::pools;

/// MTU 1500 with headers, headroom and tailroom: 15 of them in 32 KiB.
pub const MTU_1500: usize = 1514 + 256 + 320;
/// MTU 8000 likewise: 3 of them.
pub const MTU_8000: usize = 8014 + 256 + 320;

/// A page is reused in place for every 15 fragments, and nothing else moves.
const IN_PLACE_15: &[Rule] =
    &[Rule(&["alloc_fast"], Moves::Share(1, 15)), Rule(&["recycle_cached"], Moves::Share(1, 15))];

/// Fragments and the hybrid, on the owner's core and across cores.
pub const TABLE: &[Workload] = &[
    Workload {
        name: "frag_2090_direct",
        about: "allocate a fragment of 2090 bytes, drop it",
        rules: IN_PLACE_15,
        ready: frag_direct,
        ..Workload::USUAL
    },
    Workload {
        name: "frag_2090_burst64",
        about: "allocate 64 fragments of 2090 bytes, drop 64, one call each",
        rules: IN_PLACE_15,
        ready: frag_burst64,
        ..Workload::USUAL
    },
    Workload {
        name: "frag_2090_remote",
        about: "bursts of 32 fragments to the second core, which drops them one by one",
        rules: BY_MESSAGE,
        ready: frag_remote::<false>,
        ..Workload::USUAL
    },
    Workload {
        name: "frag_2090_remote_touch",
        about: "the same; the owner writes 8 bytes of the first line, the second core reads them",
        rules: BY_MESSAGE,
        ready: frag_remote::<true>,
        ..Workload::USUAL
    },
    Workload {
        name: "alloc_8590_direct",
        about: "allocate 8590 bytes by alloc, a fragment as two fit a page; drop it",
        rules: &[Rule(&["alloc_fast"], Moves::Share(1, 3)), Rule(&["recycle_cached"], Moves::Share(1, 3))],
        ready: alloc_direct,
        ..Workload::USUAL
    },
];

/// A page for every 15 fragments, and none is taken from the arena.
const BY_MESSAGE: &[Rule] = &[
    Rule(&["alloc_fast", "alloc_refill"], Moves::Share(1, 15)),
    Rule(&["recycle_ring", "recycle_cached"], Moves::AtMost(1, 1)),
    Rule(&["recycle_cache_full"], Moves::AtMost(1, 15)),
];

/// A pool of order-3 pages.
pub fn order3() -> PoolParams {
    PoolParams { order: 3, ..PoolParams::default() }
}

/// A fragment. The arenas here are larger than what any workload holds, so that none can fail.
#[inline(always)]
fn frag(pool: &Bound) -> PageBuf {
    pool.alloc_frag(MTU_1500).expect("the arena has more pages than the workload holds")
}

fn frag_direct() -> Result<Ready, String> {
    let pool = pools::bound(order3())?;
    let counters = pools::counters_of(&pool);
    let run = move |n| {
        for _ in 0..n {
            let buf = frag(&pool);
            compiler_fence(Ordering::SeqCst); // as in page_direct
            drop(buf);
        }
    };
    Ok(Ready::one_core(run).counting(counters))
}

fn frag_burst64() -> Result<Ready, String> {
    let pool = pools::bound(order3())?;
    let counters = pools::counters_of(&pool);
    let mut burst = Vec::with_capacity(64);
    let run = move |n| {
        for _ in 0..n / 64 {
            burst.extend((0..64).map(|_| frag(&pool)));
            black_box(&burst);
            burst.clear();
        }
    };
    Ok(Ready::one_core(run).counting(counters))
}

fn alloc_direct() -> Result<Ready, String> {
    let pool = pools::bound(order3())?;
    let counters = pools::counters_of(&pool);
    let run = move |n| {
        for _ in 0..n {
            let buf = pool.alloc(MTU_8000).expect("the arena has more pages than the workload holds");
            compiler_fence(Ordering::SeqCst); // as in page_direct
            drop(buf);
        }
    };
    Ok(Ready::one_core(run).counting(counters))
}

/// Order-3 pages that the pool holds: its ring of fragments needs 73, its lane and ring of messages twice as
/// many more.
const POPULATION: usize = 160;

fn frag_remote<const TOUCH: bool>() -> Result<Ready, String> {
    let pool = pools::bound(order3())?;
    let counters = pools::counters_of(&pool);
    pools::fill(&pool, POPULATION);
    let (mut tx, rx) = spsc::ring::<PageBuf>();
    let mut burst = Vec::with_capacity(BURST);
    let produce = move |n| {
        for _ in 0..n / BURST {
            burst.extend((0..BURST).map(|_| frag(&pool)));
            if TOUCH {
                burst.iter_mut().zip(0..).for_each(|(buf, at)| touch::write(buf, at));
            }
            while !tx.push(&mut burst) {
                spin_loop();
            }
        }
    };
    Ok(Ready::two_cores(produce, consumer::<TOUCH, false>(rx)).counting(counters))
}
