//! Fragments of order-3 pages: the question of the thread "page_pool: introduce page_pool_alloc() API"
//! (netdev, 2023).

use pagepool::{Bound, PAGE_SIZE, PageBuf, PoolParams};

use super::remote::relay;
use crate::measure::counted::{Moves, Rule};
use crate::measure::workload::{Ready, Workload};
use crate::rivals::spsc::BURST;
use crate::workloads::pools;

/// With headers, headroom and tailroom: 15 fit into 32 KiB.
pub const MTU_1500: usize = 1514 + 256 + 320;
/// With headers, headroom and tailroom: 3 fit into 32 KiB.
pub const MTU_8000: usize = 8014 + 256 + 320;

/// A page is reused in place for every 15 fragments; nothing else moves.
const IN_PLACE_15: &[Rule] =
    &[Rule(&["alloc_fast"], Moves::Share(1, 15)), Rule(&["recycle_cached"], Moves::Share(1, 15))];

/// A page is reused in place for every two fragments; nothing else moves.
const IN_PLACE_2: &[Rule] =
    &[Rule(&["alloc_fast"], Moves::Share(1, 2)), Rule(&["recycle_cached"], Moves::Share(1, 2))];

pub const TABLE: &[Workload] = &[
    Workload::new("frag_2090_direct", frag_direct)
        .about("allocate a fragment of 2090 bytes, drop it")
        .rules(IN_PLACE_15),
    Workload::new("frag_2090_burst64", frag_burst64)
        .about("allocate 64 fragments of 2090 bytes, drop 64, one call each")
        .rules(IN_PLACE_15),
    Workload::new("frag_2048_direct", || beside_lanes(0, false))
        .about("allocate a fragment of 2048 bytes, half of a page; drop it")
        .rules(IN_PLACE_2),
    Workload::new("frag_2048_lanes_left", || beside_lanes(LANES, false))
        .about("allocate a fragment of 2048 bytes, drop it; the pool has 64 lanes whose threads have ended")
        .rules(IN_PLACE_2),
    Workload::new("frag_2048_lanes_idle", || beside_lanes(LANES, true))
        .about("allocate a fragment of 2048 bytes, drop it; the pool has 64 lanes of idle threads")
        .rules(IN_PLACE_2),
    Workload::new("frag_2090_remote", frag_remote::<false>)
        .about("bursts of 32 fragments to the second core, which drops them one by one")
        .rules(BY_MESSAGE),
    Workload::new("frag_2090_remote_touch", frag_remote::<true>)
        .about("bursts of 32 fragments: write 8 bytes of each; the second core reads and drops each")
        .rules(BY_MESSAGE),
    Workload::new("alloc_8590_direct", alloc_direct)
        .about("allocate 8590 bytes by alloc, a fragment as two fit a page; drop it")
        .rules(&[Rule(&["alloc_fast"], Moves::Share(1, 3)), Rule(&["recycle_cached"], Moves::Share(1, 3))]),
];

/// A page for every 15 fragments, none from the arena.
pub const BY_MESSAGE: &[Rule] = &[
    Rule(&["alloc_fast", "alloc_refill"], Moves::Share(1, 15)),
    Rule(&["recycle_ring", "recycle_cached"], Moves::AtMost(1, 1)),
    Rule(&["recycle_cache_full"], Moves::AtMost(1, 15)),
];

pub fn order3() -> PoolParams {
    PoolParams { order: 3, ..PoolParams::default() }
}

/// Cannot fail: the arenas here are larger than any workload needs.
#[inline(always)]
fn frag(pool: &Bound) -> PageBuf {
    pool.alloc_frag(MTU_1500).expect("the arena has more pages than the workload holds")
}

fn frag_direct() -> Result<Ready, String> {
    pools::one_core(order3(), |pool, n| pools::one_by_one(n, || frag(pool)))
}

/// The most that a pool may have.
const LANES: usize = 64;

/// Fragments on the owner's core, in a pool with this many empty lanes, of idle or ended threads.
fn beside_lanes(lanes: usize, idle: bool) -> Result<Ready, String> {
    let pool = pools::bound(PoolParams { max_lanes: LANES, ..PoolParams::default() })?;
    let returners = pools::Returners::of((0..lanes).map(|_| vec![half(&pool)]).collect::<Vec<_>>())?;
    let idle = idle.then_some(returners);
    pools::one_by_one(4 * LANES, || half(&pool)); // empties the lanes
    Ok(pools::one_core_over(pool, move |pool, n| {
        let _idle = &idle;
        pools::one_by_one(n, || half(pool));
    }))
}

#[inline(always)]
fn half(pool: &Bound) -> PageBuf {
    pool.alloc_frag(PAGE_SIZE / 2).expect("the arena has more pages than the workload holds")
}

fn frag_burst64() -> Result<Ready, String> {
    let mut burst = Vec::with_capacity(64);
    let run = move |pool: &Bound, n| pools::in_bursts(n, 64, &mut burst, || frag(pool), Vec::clear);
    pools::one_core(order3(), run)
}

fn alloc_direct() -> Result<Ready, String> {
    let alloc =
        |pool: &Bound| pool.alloc(MTU_8000).expect("the arena has more pages than the workload holds");
    pools::one_core(order3(), move |pool, n| pools::one_by_one(n, || alloc(pool)))
}

/// Pages of the pool: the fragments in the ring between the cores need 73; the others are for returns in the
/// lane and the pool's ring.
const POPULATION: usize = 160;

fn frag_remote<const TOUCH: bool>() -> Result<Ready, String> {
    let pool = pools::bound(order3())?;
    pools::fill(&pool, POPULATION);
    let allocate = |pool: &Bound, burst: &mut Vec<_>| burst.extend((0..BURST).map(|_| frag(pool)));
    Ok(relay::<TOUCH>(pool, allocate, Vec::clear))
}
