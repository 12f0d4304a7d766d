//! Buffers that a second core drops: the owner allocates on the first core and passes them through a bare
//! ring.
//!
//! The work is that of `rivals/dpdk.c`, for `pagepool-bench across`: a ring of 1024 elements, bursts of
//! 32, one access per side with touch, and a return path with room for every page. With touch, number and
//! size of the buffers decide which lines move: 4096 of 2 KiB; DPDK has 4095.

use std::hint::{black_box, spin_loop};

use pagepool::{ArenaParams, Batch, Bound, PageBuf, PoolParams, put_bulk};

use super::yardsticks::{spsc_floor, spsc_floor_touch};
use crate::measure::counted::{Moves, Rule};
use crate::measure::touch;
use crate::measure::workload::{Ready, Workload};
use crate::rivals::spsc::{self, BURST, CAPACITY};
use crate::workloads::pools;

/// All buffers return by message, none from the arena.
pub const BY_MESSAGE: &[Rule] = &[
    Rule(&["alloc_fast", "alloc_refill"], Moves::Each),
    Rule(&["alloc_refill"], Moves::AtMost(1, 2)),
    Rule(&["recycle_ring"], Moves::Each),
];

pub const TABLE: &[Workload] = &[
    Workload::new("page_remote", singly::<false>)
        .about("bursts of 32 to the second core, which drops them one by one")
        .rules(BY_MESSAGE),
    Workload::new("page_remote_touch", singly::<true>)
        .about("bursts of 32: write 8 bytes of each; the second core reads and drops each")
        .rules(BY_MESSAGE),
    Workload::new("page_remote_bulk32", in_bulk::<false>)
        .about("bursts of 32 to the second core, allocated and returned in bulk; alternately with spsc_floor")
        .batch(BURST)
        .rules(BY_MESSAGE)
        .beside(spsc_floor),
    Workload::new("page_remote_bulk32_touch", in_bulk::<true>)
        .about("bursts of 32 in bulk, 8 bytes of each written, then read; alternately with spsc_floor_touch")
        .batch(BURST)
        .rules(BY_MESSAGE)
        .beside(spsc_floor_touch),
    Workload::new("batch_remote", batches::<false>)
        .about("32 pages in a Batch that stays where it is: two rings pass the address there and back")
        .batch(BURST)
        .rules(BY_MESSAGE),
    Workload::new("batch_remote_touch", batches::<true>)
        .about("32 pages in a Batch that stays where it is, 8 bytes of each written, then read")
        .batch(BURST)
        .rules(BY_MESSAGE),
];

/// What the ring and the two bursts hold, and more than as many again. With only 64 more than can be out,
/// both ends of the lane worked on the same cache lines.
const POPULATION: usize = 4 * CAPACITY;

/// A lane and a ring as large as the ring of DPDK's mempool, and its cache. The mempool refills all of it; a
/// pool at most 256 pages at once.
fn roomy() -> PoolParams {
    PoolParams {
        cache_size: 512,
        refill: 256,
        ring_size: 8192,
        lane_size: 8192,
        tailroom: 0,
        ..pools::packets()
    }
}

fn ready<const TOUCH: bool>(
    allocate: impl Fn(&Bound, &mut Vec<PageBuf>) + 'static,
    free: impl Fn(&mut Vec<PageBuf>) + Send + 'static,
) -> Result<Ready, String> {
    Ok(relay::<TOUCH>(filled()?, allocate, free))
}

pub fn filled() -> Result<Bound, String> {
    let memory = ArenaParams { page_size: 2048, ..ArenaParams::default() };
    let pool = pools::over(roomy(), pools::arena_with(pools::PAGES, memory)?)?;
    pools::fill(&pool, POPULATION);
    Ok(pool)
}

pub fn is_a_burst(got: usize) {
    assert_eq!(got, BURST, "the arena has more pages than the workload holds");
}

pub fn singly<const TOUCH: bool>() -> Result<Ready, String> {
    ready::<TOUCH>(|pool, burst| burst.extend((0..BURST).map(|_| pools::page(pool))), Vec::clear)
}

pub fn in_bulk<const TOUCH: bool>() -> Result<Ready, String> {
    ready::<TOUCH>(|pool, burst| is_a_burst(pool.alloc_bulk(burst, BURST)), put_bulk)
}

/// Batches of 32 that stay in place: one ring passes full ones to the second core, another passes empty ones
/// back. They have as many pages as the ring of the other rows.
pub fn batches<const TOUCH: bool>() -> Result<Ready, String> {
    let pool = filled()?;
    let counters = pools::counters_of(&pool);
    let (mut full_tx, mut full_rx) = spsc::ring::<Box<Batch>, 1>();
    let (mut empty_tx, mut empty_rx) = spsc::ring::<Box<Batch>, 1>();
    let mut held = Vec::with_capacity(1);
    for _ in 0..CAPACITY / BURST {
        held.push(Box::new(pool.alloc_batch(0)));
        empty_tx.push(&mut held);
    }
    let produce = move |n| {
        for _ in 0..n / BURST {
            while !empty_rx.pop(&mut held) {
                spin_loop();
            }
            assert_eq!(pool.alloc_bulk(&mut *held[0], BURST), BURST, "the arena has more pages");
            if TOUCH {
                let packets = held[0].packets_mut().expect("the CPU reads the arena").zip(0..);
                packets.for_each(|(packet, at)| touch::write(Some(packet), at));
            }
            full_tx.push(&mut held);
        }
    };
    let mut done: Vec<Box<Batch>> = Vec::with_capacity(1);
    let consume = move |n| {
        for _ in 0..n / BURST {
            while !full_rx.pop(&mut done) {
                spin_loop();
            }
            if TOUCH {
                let packets = done[0].packets_mut().expect("the CPU reads the arena");
                black_box(packets.map(|packet| touch::read(Some(packet))).fold(0, u64::wrapping_add));
            }
            done[0].put();
            empty_tx.push(&mut done);
        }
    };
    Ok(Ready::two_cores(produce, consume).counting(counters))
}

/// The owner allocates bursts, the second core returns them. With `TOUCH`, each side accesses each buffer.
pub fn relay<const TOUCH: bool>(
    pool: Bound,
    allocate: impl Fn(&Bound, &mut Vec<PageBuf>) + 'static,
    free: impl Fn(&mut Vec<PageBuf>) + Send + 'static,
) -> Ready {
    let counters = pools::counters_of(&pool);
    let fill = move |burst: &mut Vec<PageBuf>| {
        allocate(&pool, burst);
        if TOUCH {
            burst.iter_mut().zip(0..).for_each(|(buf, at)| touch::write(buf.packet_mut(), at));
        }
    };
    let empty = move |burst: &mut Vec<PageBuf>| {
        if TOUCH {
            black_box(burst.iter().map(|buf| touch::read(buf.packet())).fold(0, u64::wrapping_add));
        }
        free(burst);
    };
    spsc::relay(fill, empty).counting(counters)
}
