//! Pages that take a longer path on the owner's core: through the locked ring, or out of the pool.

use pagepool::PoolParams;

use crate::measure::counted::{Moves, Rule};
use crate::measure::workload::{Ready, Workload};
use crate::workloads::pools;

/// Linux's benches 02 and 03.
pub const TABLE: &[Workload] = &[
    Workload::new("page_ring", page_ring)
        .linux("no-softirq-page_pool02")
        .about("allocate a page, return it through the locked ring; every 64th allocation refills")
        .rules(&[
            Rule(&["alloc_fast"], Moves::Share(63, 64)),
            Rule(&["alloc_refill"], Moves::Share(1, 64)),
            Rule(&["alloc_fast", "alloc_refill"], Moves::Each),
            Rule(&["recycle_ring"], Moves::Each),
        ]),
    Workload::new("page_slow", page_slow)
        .linux("no-softirq-page_pool03")
        .about("allocate a page, take a PageRef, drop both: it leaves the pool")
        .rules(&[
            Rule(&["alloc_fast"], Moves::Share(63, 64)),
            Rule(&["alloc_slow"], Moves::Share(1, 64)),
            Rule(&["alloc_fast", "alloc_slow"], Moves::Each),
            Rule(&["alloc_empty"], Moves::Share(1, 64)),
            Rule(&["recycle_released_refcnt"], Moves::Each),
            Rule(&["hold"], Moves::Share(1, 1)),
            Rule(&["release"], Moves::Each),
        ]),
];

fn page_ring() -> Result<Ready, String> {
    let pool = pools::bound(PoolParams::default())?;
    // As in Linux's bench: 64 pages, all in the ring.
    let first: Vec<_> = (0..64).map(|_| pools::page(&pool)).collect();
    first.into_iter().for_each(|buf| buf.put_ring());
    Ok(pools::one_core_over(pool, |pool, n| (0..n).for_each(|_| pools::page(pool).put_ring())))
}

fn page_slow() -> Result<Ready, String> {
    pools::one_core(PoolParams::default(), |pool, n| {
        for _ in 0..n {
            let mut buf = pools::page(pool);
            let hold = buf.page_ref();
            drop(buf);
            drop(hold);
        }
    })
}
