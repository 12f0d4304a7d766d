//! Pages that take the slow path: past a full cache or ring, to the arena and back.

use super::buffers::{free_pages, rises};
use crate::doctor::evidence::{Evidence, OfProcess, PoolEvidence, ProcessEvidence};
#[cfg(test)]
use crate::doctor::rule::RuleCase;
use crate::doctor::rule::{Cost, DoctorRule, Finding};
use crate::words::grouped;

/// Pages per second from which on a pool is judged.
const BUSY: f64 = 1000.0;
/// The fewest pages or calls that are reported.
const LEAST: u64 = 10;
/// The limit for pages that leave the pool, in percent of those allocated.
const LEAVING: f64 = 0.01;
/// The limit for calls to the arena, in percent of the allocated pages.
const SLOWLY: f64 = 0.1;
/// The limit for returns past a full cache, in percent of the allocated pages.
const PAST_CACHE: f64 = 50.0;
/// The limit for pages that leave because of a reference, in percent of those allocated.
const REFERRED_TO: f64 = 1.0;

pub const RING_FULL: DoctorRule = DoctorRule {
    name: "ring_full",
    cost: Cost::SomePackets,
    when: "in a busy pool (older than 5 s, 1,000 pages/s or more), `recycle_ring_full` rises by at least 10, \
           and by at least 0.01 % of the allocated pages. Not reported together with `waived`, because \
           refills then end early and the ring fills up",
    why: "A page that finds the lane and ring full leaves the pool. It comes back through the arena's lock, \
          and may no longer be in the CPU's cache.",
    fix: "Use a larger `ring_size`, `lane_size` or `max_lanes`, or let the owner allocate more often.",
    verify: "`pagepool show {of} --watch`: recycle_ring_full and alloc_slow stop rising.",
    find: ring_full,
    #[cfg(test)]
    case: RuleCase {
        ill: |of| of.pool().moved.recycle_ring_full = 100,
        says: "left the pool, 0.01 % of those allocated. Sizes: ring_size 1024, max_lanes 16, lane_size 1024",
        well: |of| (of.pool().moved.alloc_fast, of.pool().moved.recycle_ring_full) = (90_000, 9),
    },
};

fn ring_full(evidence: &Evidence) -> Vec<Finding> {
    found(
        evidence,
        LEAVING,
        |_, pool| if is_waived(pool) { 0 } else { pool.moved.recycle_ring_full },
        |_, pool, share| {
            let sizes = ["ring_size", "max_lanes", "lane_size"];
            let sizes = sizes.map(|name| format!("{name} {}", pool.number(name).unwrap_or(0))).join(", ");
            format!(
                "{} pages found the lane and ring full and left the pool, {share} of those allocated. Sizes: \
                 {sizes}.",
                grouped(pool.moved.recycle_ring_full)
            )
        },
    )
}

/// Whether [`WAIVED`] reports the pool.
fn is_waived(pool: &PoolEvidence) -> bool {
    pool.moved.alloc_waive >= LEAST && pool.percent(pool.moved.alloc_waive) >= LEAVING
}

pub const WAIVED: DoctorRule = DoctorRule {
    name: "waived",
    cost: Cost::SomePackets,
    when: "in a busy pool, `alloc_waive` rises by at least 10, and by at least 0.01 % of the allocated pages",
    why: "Pages are not on the pool's NUMA node (its `nid` or, by default, the owner's node). A refill that \
          finds such a page releases it and ends early.",
    fix: "Pin the owner to the memory's node (`taskset`, `--cpus`), or set the pool's `nid` to a node and \
          bind the arena to the same node (`NodePolicy::Bind`).",
    verify: "`pagepool show {of} --watch`: alloc_waive stops rising. `numastat -p PID` shows the memory per \
             node.",
    find: waived,
    #[cfg(test)]
    case: RuleCase {
        ill: |of| of.pool().moved.alloc_waive = 5000,
        says: "5,000 pages of another node left the pool, 0.50 % of those allocated",
        well: |of| (of.pool().moved.alloc_fast, of.pool().moved.alloc_waive) = (0, 200),
    },
};

fn waived(evidence: &Evidence) -> Vec<Finding> {
    found(
        evidence,
        LEAVING,
        |_, pool| pool.moved.alloc_waive,
        |process, pool, share| {
            let owner = process.thread(pool).and_then(|thread| thread.cpu);
            let owner = owner.map_or(String::new(), |cpu| format!(". The owner last ran on CPU {cpu}"));
            let memory = process.arena(pool).and_then(|arena| arena.param("node"));
            let memory = memory.map_or(String::new(), |node| format!(". Node of the arena: {node}"));
            format!(
                "{} pages of another node left the pool, {share} of those allocated{owner}{memory}.",
                grouped(pool.moved.alloc_waive)
            )
        },
    )
}

pub const CACHE_FULL: DoctorRule = DoctorRule {
    name: "cache_full",
    cost: Cost::SomePackets,
    when: "in a busy pool, `recycle_cache_full` rises by at least 50 % of the allocated pages. Not reported \
           if the process sends through its devices, because sent buffers return in bursts",
    why: "Pages that the owner returns to a full cache go to the ring, and cost a refill. If the ring is \
          full as well, they leave the pool.",
    fix: "Raise `cache_size` to the number of buffers that the owner returns between two allocations.",
    verify: "`pagepool show {of} --watch`: recycle_cache_full rises more slowly than recycle_cached.",
    find: cache_full,
    #[cfg(test)]
    case: RuleCase {
        ill: |of| of.pool().moved.recycle_cache_full = 600_000,
        says: "600,000 returned pages found the cache (128 pages) full, 60.00 % of those allocated",
        well: |of| {
            of.pool().moved.recycle_cache_full = 600_000;
            of.socket().count("tx_packets", 900_000);
        },
    },
};

fn cache_full(evidence: &Evidence) -> Vec<Finding> {
    let past = |process: &ProcessEvidence, pool: &PoolEvidence| match process.moved("tx_packets") {
        0 => pool.moved.recycle_cache_full,
        _ => 0,
    };
    found(evidence, PAST_CACHE, past, |_, pool, share| {
        let size = pool.number("cache_size").unwrap_or(0);
        let count = grouped(pool.moved.recycle_cache_full);
        format!("{count} returned pages found the cache ({size} pages) full, {share} of those allocated.")
    })
}

pub const REFERENCED: DoctorRule = DoctorRule {
    name: "referenced",
    cost: Cost::SomePackets,
    when: "in a busy pool, `recycle_released_refcnt` rises by at least 1 % of the allocated pages",
    why: "A page that returns while a `PageRef` to it exists leaves the pool. Its memory comes back only \
          through the arena.",
    fix: "Share the buffer (`into_shared`) instead of the page. The pool then recycles it.",
    verify: "`pagepool show {of} --watch`: recycle_released_refcnt stops rising.",
    find: referenced,
    #[cfg(test)]
    case: RuleCase {
        ill: |of| of.pool().moved.recycle_released_refcnt = 20_000,
        says: "20,000 pages left the pool because of a reference, 2.00 % of those allocated",
        well: |of| (of.pool().moved.alloc_fast, of.pool().moved.recycle_released_refcnt) = (4999, 2000),
    },
};

fn referenced(evidence: &Evidence) -> Vec<Finding> {
    found(
        evidence,
        REFERRED_TO,
        |_, pool| pool.moved.recycle_released_refcnt,
        |_, pool, share| {
            let count = grouped(pool.moved.recycle_released_refcnt);
            format!("{count} pages left the pool because of a reference, {share} of those allocated.")
        },
    )
}

pub const SLOW: DoctorRule = DoctorRule {
    name: "slow",
    cost: Cost::SomePackets,
    when: "a busy pool calls the arena at least 10 times, and at least once per 1,000 allocated pages. Not \
           reported if `ring_full`, `waived`, `referenced` or `out_rising` explains most of these calls",
    why: "Each call takes the arena's lock. Either more pages are out at once than before, or the program \
          shrinks the pool.",
    fix: "If the load has just grown, nothing needs fixing. Otherwise keep fewer buffers out at once, or shrink the pool \
          less often (`ask_to_shrink`, `shrink`).",
    verify: "`pagepool show {of} --watch`: alloc_slow stops rising.",
    find: slow,
    #[cfg(test)]
    case: RuleCase {
        ill: |of| {
            (of.pool().moved.alloc_slow, of.pool().moved.hold) = (2000, 128_000);
        },
        says: "2,000 allocations (0.20 %) called the arena, which supplied 128,000 pages",
        well: |of| {
            (of.pool().moved.alloc_slow, of.pool().moved.hold) = (2000, 128_000);
            of.pool().moved.recycle_ring_full = 127_000;
        },
    },
};

fn slow(evidence: &Evidence) -> Vec<Finding> {
    let unexplained = |_: &ProcessEvidence, pool: &PoolEvidence| {
        let moved = &pool.moved;
        let left = [moved.recycle_ring_full, moved.alloc_waive, moved.recycle_released_refcnt];
        let left = left.into_iter().fold(0, u64::saturating_add);
        let is_told = rises(pool) || left > moved.hold / 2;
        if is_told { 0 } else { moved.alloc_slow.saturating_add(moved.alloc_slow_high_order) }
    };
    found(evidence, SLOWLY, unexplained, |process, pool, share| {
        format!(
            "{} allocations ({share}) called the arena, which supplied {} pages. {} pages left the pool.",
            grouped(unexplained(process, pool)),
            grouped(pool.moved.hold),
            grouped(pool.moved.release)
        )
    })
}

pub const LOW_WATER: DoctorRule = DoctorRule {
    name: "low_water",
    cost: Cost::BuffersLost,
    when: "a pool that allocates has fewer pages left (in cache, lanes, ring and arena) than its `refill` or \
           its `low_water`",
    why: "The next burst may find no buffer, and packets would be lost.",
    fix: "Raise the arena's `max_bytes`, or keep fewer buffers out at once.",
    verify: "`pagepool show {of}`: under load, fewer of the arena's pages are out.",
    find: low_water,
    #[cfg(test)]
    case: RuleCase {
        ill: |of| {
            of.arena().set("max_bytes", "7372800");
            of.pool().pages.cache = 10;
        },
        says: "10 pages are left",
        well: |of| of.pool().pages.cache = 10,
    },
};

fn low_water(evidence: &Evidence) -> Vec<Finding> {
    let of = |(process, pool): OfProcess<'_, PoolEvidence>| {
        let inside = [pool.pages.cache, pool.pages.lanes, pool.pages.ring];
        let left = inside.into_iter().fold(free_pages(process, pool)?, u64::saturating_add);
        let least = pool.number("refill")?.max(pool.number("low_water").unwrap_or(0));
        let is_told = pool.moved.alloc_failed > 0 || pool.allocated() == 0;
        let seen = format!(
            "{} pages are left in cache, lanes, ring and arena, and {} are out. At least {least} should be \
             left.",
            grouped(left),
            grouped(pool.pages.out)
        );
        (left < least && !is_told).then(|| Finding::of_pool((process, pool), seen, 0.0))
    };
    evidence.warm_pools().filter_map(of).collect()
}

/// A finding for each warm and busy pool whose count reaches `percent` of the allocated pages.
fn found(
    evidence: &Evidence,
    percent: f64,
    count: impl Fn(&ProcessEvidence, &PoolEvidence) -> u64,
    say: impl Fn(&ProcessEvidence, &PoolEvidence, &str) -> String,
) -> Vec<Finding> {
    let of = |(process, pool): OfProcess<'_, PoolEvidence>| {
        let count = count(process, pool);
        let share = format!("{:.2} %", pool.percent(count));
        let seen = say(process, pool, &share);
        let finding = Finding::of_pool((process, pool), seen, evidence.per_second(count));
        let is_busy = evidence.per_second(pool.allocated()) >= BUSY;
        (is_busy && count >= LEAST && pool.percent(count) >= percent).then_some(finding)
    };
    evidence.warm_pools().filter_map(of).collect()
}
