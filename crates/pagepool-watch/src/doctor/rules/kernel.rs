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
    when: "a page pool of the kernel, released by its driver, has waited for its pages for 60 s or more",
    why: "Its packets are still held, by a socket that no program reads or by a leak; its memory is not \
          freed.",
    fix: "`ss -anm` shows sockets with full receive queues; end the program that does not read.",
    verify: "`pagepool list --kernel`: the pool is gone.",
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
        let seen = format!("It has waited for {} pages for {}.", grouped(pool.inflight), spoken(time));
        Some(Finding::new(place(pool), pool.id.to_string(), seen, 0.0))
    };
    evidence.kernel_pools.iter().filter_map(of).collect()
}

pub const KERNEL_SLOW: DoctorRule = DoctorRule {
    name: "kernel_slow",
    cost: Cost::SomePackets,
    when: "a page pool of the kernel with 1,000 allocations/s or more requests pages from the system at \
           least 10 times, and gets at least 5 % of its pages that way (64 single pages per call, or one of \
           a higher order)",
    why: "The driver's pages do not return to its pool: they are mapped and unmapped for each packet.",
    fix: "Lengthen the receive ring (`ethtool -G`), which makes the pool larger; or run readers on the CPU \
          that takes the interrupts.",
    verify: "`pagepool list --kernel --watch`: recyc% of pool {of} rises.",
    find: kernel_slow,
    #[cfg(test)]
    case: RuleCase {
        ill: |of| of.kernel_pools[0].moved.alloc_slow = 100,
        says: "100 calls to the system brought up to 6,400 pages, for 100,100 allocations",
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
            "{} calls to the system brought up to {} pages, for {} allocations.",
            grouped(calls),
            grouped(brought),
            grouped(all)
        );
        let is_much = calls >= LEAST && brought.saturating_mul(20) >= all;
        let many = evidence.per_second(all) >= BUSY && is_much;
        many.then(|| Finding::new(place(pool), pool.id.to_string(), seen, rate))
    };
    evidence.kernel_pools.iter().filter(|pool| pool.is_old).filter_map(of).collect()
}

pub const KERNEL_RING_FULL: DoctorRule = DoctorRule {
    name: "kernel_ring_full",
    cost: Cost::SomePackets,
    when: "`recycle_ring_full` of a page pool of the kernel is at least 1 % of its allocations, with 1,000 \
           allocations/s or more",
    why: "Other CPUs return pages faster than the driver takes them back; the rest go to the system.",
    fix: "Run readers on the CPU that takes the interrupts (RPS off, RFS on), or lengthen the receive ring \
          (`ethtool -G`).",
    verify: "`pagepool list --kernel --json`: recycle_ring_full of pool {of} stands still.",
    find: kernel_ring_full,
    #[cfg(test)]
    case: RuleCase {
        ill: |of| of.kernel_pools[0].moved.recycle_ring_full = 2_000,
        says: "2,000 pages found the ring full, 2.0 %",
        well: |of| of.kernel_pools[0].moved.recycle_ring_full = 500,
    },
};

fn kernel_ring_full(evidence: &Evidence) -> Vec<Finding> {
    let of = |pool: &KernelPoolEvidence| {
        let moved = &pool.moved;
        let full = moved.recycle_ring_full;
        let all = moved.alloc_fast + moved.alloc_refill + moved.alloc_slow + moved.alloc_slow_high_order;
        let percent = full as f64 * 100.0 / all.max(1) as f64;
        let seen = format!("{} pages found the ring full, {percent:.1} % of the allocations.", grouped(full));
        let many = evidence.per_second(all) >= BUSY && full * 100 >= all;
        many.then(|| Finding::new(place(pool), pool.id.to_string(), seen, evidence.per_second(full)))
    };
    evidence.kernel_pools.iter().filter(|pool| pool.is_old).filter_map(of).collect()
}

fn place(pool: &KernelPoolEvidence) -> String {
    let of = pool.interface.as_deref().map_or(String::new(), |name| format!(" of {name}"));
    format!("kernel's page pool {}{of}", pool.id)
}
