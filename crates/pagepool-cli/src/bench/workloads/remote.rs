//! Buffers that a second core drops: the owner allocates on the first core and passes them through a bare
//! ring.

use std::hint::{black_box, spin_loop};

use pagepool::{Bound, PageBuf, put_bulk};

use super::yardsticks::{BURST, spsc_floor, spsc_floor_touch};
use crate::bench::measure::counted::{Moves, Rule};
use crate::bench::measure::touch;
use crate::bench::measure::workload::{Ready, Workload};
use crate::bench::rivals::spsc::{self, BurstReceiver, CAPACITY};
use crate::bench::workloads::pools;

/// All come home by message, and none is taken from the arena.
const BY_MESSAGE: &[Rule] = &[
    Rule(&["alloc_fast", "alloc_refill"], Moves::Each),
    Rule(&["alloc_refill"], Moves::AtMost(1, 2)),
    Rule(&["recycle_ring"], Moves::Each),
];

/// One by one and in bulk, without and with touch.
pub const TABLE: &[Workload] = &[
    Workload {
        name: "page_remote",
        about: "bursts of 32 to the second core, which drops them one by one",
        rules: BY_MESSAGE,
        ready: ready::<false, false>,
        ..Workload::USUAL
    },
    Workload {
        name: "page_remote_touch",
        about: "the same; the owner writes 8 bytes of the first line, the second core reads them",
        rules: BY_MESSAGE,
        ready: ready::<true, false>,
        ..Workload::USUAL
    },
    Workload {
        name: "page_remote_bulk32",
        batch: BURST,
        about: "bursts of 32 to the second core, allocated and returned in bulk; in turns with spsc_floor",
        rules: BY_MESSAGE,
        beside: Some(spsc_floor),
        ready: ready::<false, true>,
        ..Workload::USUAL
    },
    Workload {
        name: "page_remote_bulk32_touch",
        batch: BURST,
        about: "the same with touch; in turns with spsc_floor_touch",
        rules: BY_MESSAGE,
        beside: Some(spsc_floor_touch),
        ready: ready::<true, true>,
        ..Workload::USUAL
    },
];

/// Pages that the pool holds: what the ring and the two bursts can hold, and one refill, so that the slow
/// path is never taken. As many as fit the pool's cache and its ring.
const POPULATION: usize = CAPACITY + 2 * BURST + 64;

fn ready<const TOUCH: bool, const BULK: bool>() -> Result<Ready, String> {
    let pool = pools::bound(pools::packets())?;
    let counters = pools::counters_of(&pool);
    pools::fill(&pool, POPULATION);
    let (mut tx, rx) = spsc::ring::<PageBuf>();
    let mut burst = Vec::with_capacity(BURST);
    let produce = move |n| {
        for _ in 0..n / BURST {
            allocate::<BULK>(&pool, &mut burst);
            if TOUCH {
                burst.iter_mut().zip(0..).for_each(|(buf, at)| touch::write(buf, at));
            }
            while !tx.push(&mut burst) {
                spin_loop();
            }
        }
    };
    Ok(Ready::two_cores(produce, consumer::<TOUCH, BULK>(rx)).counting(counters))
}

#[inline(always)]
fn allocate<const BULK: bool>(pool: &Bound, burst: &mut Vec<PageBuf>) {
    if BULK {
        let got = pool.alloc_bulk(burst, BURST);
        assert_eq!(got, BURST, "the arena has more pages than the workload holds");
    } else {
        burst.extend((0..BURST).map(|_| pools::page(pool)));
    }
}

/// The second core's side.
pub fn consumer<const TOUCH: bool, const BULK: bool>(
    mut rx: BurstReceiver<PageBuf>,
) -> impl FnMut(usize) + Send {
    let mut got = Vec::with_capacity(BURST);
    move |n| {
        for _ in 0..n / BURST {
            while !rx.pop(&mut got, BURST) {
                spin_loop();
            }
            if TOUCH {
                black_box(got.iter().map(touch::read).fold(0, u64::wrapping_add));
            }
            if BULK { put_bulk(&mut got) } else { got.clear() }
        }
    }
}
