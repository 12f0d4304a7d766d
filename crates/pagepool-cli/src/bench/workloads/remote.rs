//! Buffers that a second core drops: the owner allocates on the first core and passes them through a bare
//! ring.
//!
//! The work is that of `rivals/mempool.c`, so that `bench across` can hold the two against each other: a ring
//! of 1024 elements, bursts of 32, the touch one access on each side, a way home with room for every page.
//! With touch, what a pool holds decides over the lines that move: 3072 pages here, 8191 objects there.

use std::hint::black_box;

use pagepool::{Bound, PageBuf, PoolParams, put_bulk};

use super::yardsticks::{spsc_floor, spsc_floor_touch};
use crate::bench::measure::counted::{Moves, Rule};
use crate::bench::measure::touch;
use crate::bench::measure::workload::{Ready, Workload};
use crate::bench::rivals::spsc::{self, BURST, CAPACITY};
use crate::bench::workloads::pools;

/// All come home by message, and none is taken from the arena.
pub const BY_MESSAGE: &[Rule] = &[
    Rule(&["alloc_fast", "alloc_refill"], Moves::Each),
    Rule(&["alloc_refill"], Moves::AtMost(1, 2)),
    Rule(&["recycle_ring"], Moves::Each),
];

/// One by one and in bulk, without and with touch.
pub const TABLE: &[Workload] = &[
    Workload::new("page_remote", singly::<false>)
        .about("bursts of 32 to the second core, which drops them one by one")
        .rules(BY_MESSAGE),
    Workload::new("page_remote_touch", singly::<true>)
        .about("the same; the owner writes 8 bytes of the first line, the second core reads them")
        .rules(BY_MESSAGE),
    Workload::new("page_remote_bulk32", in_bulk::<false>)
        .about("bursts of 32 to the second core, allocated and returned in bulk; in turns with spsc_floor")
        .batch(BURST)
        .rules(BY_MESSAGE)
        .beside(spsc_floor),
    Workload::new("page_remote_bulk32_touch", in_bulk::<true>)
        .about("the same with touch; in turns with spsc_floor_touch")
        .batch(BURST)
        .rules(BY_MESSAGE)
        .beside(spsc_floor_touch),
];

/// Pages that the pool holds: what the ring and the two bursts can hold, and as many again and more. With 64
/// beyond what is out both ends of the lane worked on the same lines.
const POPULATION: usize = 3 * CAPACITY;

/// The packet layout, with a lane, a ring and a cache as large as those of the mempool that is the rival.
fn roomy() -> PoolParams {
    PoolParams { cache_size: 512, ring_size: 8192, lane_size: 8192, ..pools::packets() }
}

fn ready<const TOUCH: bool>(
    allocate: impl Fn(&Bound, &mut Vec<PageBuf>) + 'static,
    free: impl Fn(&mut Vec<PageBuf>) + Send + 'static,
) -> Result<Ready, String> {
    let pool = pools::bound(roomy())?;
    pools::fill(&pool, POPULATION);
    Ok(relay::<TOUCH>(pool, allocate, free))
}

/// Handles, one by one.
pub fn singly<const TOUCH: bool>() -> Result<Ready, String> {
    ready::<TOUCH>(|pool, burst| burst.extend((0..BURST).map(|_| pools::page(pool))), Vec::clear)
}

/// Handles, in bulk.
pub fn in_bulk<const TOUCH: bool>() -> Result<Ready, String> {
    let allocate = |pool: &Bound, burst: &mut Vec<_>| {
        let got = pool.alloc_bulk(burst, BURST);
        assert_eq!(got, BURST, "the arena has more pages than the workload holds");
    };
    ready::<TOUCH>(allocate, put_bulk)
}

/// Bursts that the owner allocates and the second core returns; with `TOUCH` each side looks at each buffer.
pub fn relay<const TOUCH: bool>(
    pool: Bound,
    allocate: impl Fn(&Bound, &mut Vec<PageBuf>) + 'static,
    free: impl Fn(&mut Vec<PageBuf>) + Send + 'static,
) -> Ready {
    let counters = pools::counters_of(&pool);
    let fill = move |burst: &mut Vec<PageBuf>| {
        allocate(&pool, burst);
        if TOUCH {
            burst.iter_mut().zip(0..).for_each(|(buf, at)| touch::write(buf, at));
        }
    };
    let empty = move |burst: &mut Vec<PageBuf>| {
        if TOUCH {
            black_box(burst.iter().map(touch::read).fold(0, u64::wrapping_add));
        }
        free(burst);
    };
    spsc::relay(fill, empty).counting(counters)
}
