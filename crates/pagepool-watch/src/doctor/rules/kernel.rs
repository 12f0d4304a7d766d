//! The kernel's page pools, if their drivers list them (Linux 6.8).

#[cfg(test)]
use std::time::Duration;

use crate::doctor::evidence::{Evidence, KernelPoolEvidence};
#[cfg(test)]
use crate::doctor::rule::RuleCase;
use crate::doctor::rule::{Cost, DoctorRule, Finding};
use crate::words::{grouped, spoken};

/// Seconds that a pool may wait for its last pages; then the kernel itself warns.
const STALLED: u64 = 60;
/// Allocations per second from which on a pool is judged.
const BUSY: f64 = 1000.0;
/// Single pages that one slow allocation requests from the system; all but the first go through the cache
/// (`net/core/page_pool.c:__page_pool_alloc_netmems_slow`, v7.3).
const BULK: u64 = 64;
/// The fewest calls to the system that count: one late reader causes fewer.
const LEAST: u64 = 10;

pub const KERNEL_DETACHED: DoctorRule = DoctorRule {
    name: "kernel_detached",
    cost: Cost::BuffersLost,
    when: "a driver released a page pool of the kernel at least 60 s ago, and some of its pages are still \
           out",
    why: "A leak, or a socket that no program reads, still holds packets in these pages, so their memory is \
          not freed.",
    fix: "Find sockets with full receive queues (`ss -anm`), and end the programs that do not read them.",
    verify: "`pagepool list --kernel`: pool {of} is gone.",
    find: kernel_detached,
    #[cfg(test)]
    case: RuleCase {
        ill: |of| of.kernel_pools[0].detached = Some(Duration::from_secs(3600)),
        says: "2,048 pages for 1 h 0 min",
        well: |of| of.kernel_pools[0].detached = Some(Duration::from_secs(30)),
    },
};

fn kernel_detached(evidence: &Evidence) -> Vec<Finding> {
    let of = |pool: &KernelPoolEvidence| {
        let time = pool.detached.filter(|time| time.as_secs() >= STALLED && pool.inflight > 0)?;
        let pages = grouped(pool.inflight);
        let seen = format!("It has been waiting for {pages} pages for {}.", spoken(time));
        Some(Finding::new(place(pool), &pool.id.to_string(), seen, 0.0))
    };
    evidence.kernel_pools.iter().filter_map(of).collect()
}

pub const KERNEL_SLOW: DoctorRule = DoctorRule {
    name: "kernel_slow",
    cost: Cost::SomePackets,
    when: "a page pool of the kernel with 1,000 allocations/s or more gets at least 5 % of its pages from \
           the system, in at least 10 requests. A request counts as 64 single pages, or as one page of a \
           higher order",
    why: "Some of the driver's pages do not return to its pool. The kernel must allocate and map new ones.",
    fix: "Lengthen the receive ring (`ethtool -G`), which makes the pool larger, or run the readers on the \
          CPU that handles the interrupts.",
    verify: "`pagepool list --kernel --watch`: recyc% of pool {of} rises.",
    find: kernel_slow,
    #[cfg(test)]
    case: RuleCase {
        ill: |of| of.kernel_pools[0].moved.alloc_slow = 100,
        says: "100 requests to the system brought up to 6,400 pages. The pool served 100,100 allocations",
        well: |of| of.kernel_pools[0].moved.alloc_slow = 70,
    },
};

fn kernel_slow(evidence: &Evidence) -> Vec<Finding> {
    let of = |pool: &KernelPoolEvidence| {
        let moved = &pool.moved;
        let calls = moved.alloc_slow + moved.alloc_slow_high_order;
        let brought = moved.alloc_slow.saturating_mul(BULK).saturating_add(moved.alloc_slow_high_order);
        let all = moved.alloc_fast + moved.alloc_refill + calls;
        let rate = evidence.per_second(brought);
        let seen = format!(
            "{} requests to the system brought up to {} pages. The pool served {} allocations.",
            grouped(calls),
            grouped(brought),
            grouped(all)
        );
        let is_much = calls >= LEAST && brought.saturating_mul(20) >= all;
        let many = evidence.per_second(all) >= BUSY && is_much;
        many.then(|| Finding::new(place(pool), &pool.id.to_string(), seen, rate))
    };
    evidence.kernel_pools.iter().filter(|pool| pool.is_old).filter_map(of).collect()
}

pub const KERNEL_RING_FULL: DoctorRule = DoctorRule {
    name: "kernel_ring_full",
    cost: Cost::SomePackets,
    when: "in a page pool of the kernel with 1,000 allocations/s or more, `recycle_ring_full` rises by at \
           least 1 % of the allocations",
    why: "Other CPUs return pages faster than the driver reuses them. Pages that do not fit into the ring go \
          back to the system.",
    fix: "Run the readers on the CPU that handles the interrupts (RPS off, RFS on), or lengthen the receive \
          ring (`ethtool -G`).",
    verify: "`pagepool list --kernel --json`: recycle_ring_full of pool {of} stops rising.",
    find: kernel_ring_full,
    #[cfg(test)]
    case: RuleCase {
        ill: |of| of.kernel_pools[0].moved.recycle_ring_full = 2_000,
        says: "2,000 returned pages found the ring full (2.0 % of the allocations)",
        well: |of| of.kernel_pools[0].moved.recycle_ring_full = 500,
    },
};

fn kernel_ring_full(evidence: &Evidence) -> Vec<Finding> {
    let of = |pool: &KernelPoolEvidence| {
        let moved = &pool.moved;
        let full = moved.recycle_ring_full;
        let all = moved.alloc_fast + moved.alloc_refill + moved.alloc_slow + moved.alloc_slow_high_order;
        let percent = full as f64 * 100.0 / all.max(1) as f64;
        let pages = grouped(full);
        let seen = format!("{pages} returned pages found the ring full ({percent:.1} % of the allocations).");
        let many = evidence.per_second(all) >= BUSY && full * 100 >= all;
        many.then(|| Finding::new(place(pool), &pool.id.to_string(), seen, evidence.per_second(full)))
    };
    evidence.kernel_pools.iter().filter(|pool| pool.is_old).filter_map(of).collect()
}

fn place(pool: &KernelPoolEvidence) -> String {
    let of = pool.interface.as_deref().map_or(String::new(), |name| format!(" of {name}"));
    format!("kernel's page pool {}{of}", pool.id)
}
