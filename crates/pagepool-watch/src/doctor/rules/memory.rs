//! The kind of memory, and where packets begin in it.

use crate::doctor::evidence::{Evidence, PoolEvidence, ProcessEvidence};
#[cfg(test)]
use crate::doctor::rule::RuleCase;
use crate::doctor::rule::{Cost, DoctorRule, Finding};
use crate::words::{bytes, grouped};

/// Pages per second from which on a pool is judged.
const BUSY: f64 = 10_000.0;
/// What a CPU's TLB covers with pages of 4 KiB: 1,536 entries or more.
const TLB_REACH: u64 = 6 << 20;
/// Pages out whose first lines, all at one offset, fill a first-level cache: 64 sets of 8.
const L1_LINES: u64 = 512;

pub const NO_HUGE_PAGES: DoctorRule = DoctorRule {
    name: "no_huge_pages",
    cost: Cost::EachPacket,
    when: "a pool allocates 10,000 pages/s or more from memory of small pages, and the arena has taken 6 MiB \
           or more from the system",
    why: "CPU and IOMMU miss their TLB: packets are spread over more small pages than it covers.",
    fix: "Use `--hugepages` or `Backing::Huge2M`, with `sysctl vm.nr_hugepages=N`; or the default, \
          transparent huge pages.",
    verify: "`pagepool show {of}`: `got` of the arena.",
    find: no_huge_pages,
    #[cfg(test)]
    case: RuleCase {
        ill: |of| {
            of.arena().set("got", "4 KiB pages");
            of.arena().set("why", "none are free");
        },
        says: "64.0M of 4 KiB pages; 2 MiB pages requested: none are free",
        well: |of| {
            of.arena().set("got", "4 KiB pages");
            of.arena().now.insert("committed_bytes".into(), 2 << 20);
        },
    },
};

fn no_huge_pages(evidence: &Evidence) -> Vec<Finding> {
    let of = |(process, pool): (&ProcessEvidence, &PoolEvidence)| {
        let (arena, rate) = (process.arena(pool)?, evidence.per_second(pool.allocated()));
        let taken = arena.now.get("committed_bytes").copied();
        let (got, size) = (arena.param("got")?, taken.or_else(|| arena.number("max_bytes"))?);
        let is_small = got.ends_with("KiB pages") || got == "memfd";
        if !is_small || size < TLB_REACH || rate < BUSY {
            return None;
        }
        let asked = arena.param("backing").filter(|asked| *asked != got);
        let why = arena.param("why").unwrap_or("");
        let asked = asked.map_or(String::new(), |asked| format!("; {asked} requested: {why}"));
        let seen = format!(
            "Arena {}: {} of {got}{asked}. {} pages a second are allocated.",
            arena.name,
            bytes(size),
            grouped(rate as u64)
        );
        let never = evidence.huge_pages.transparent.as_deref() == Some("never");
        let place = format!("{}, pool {}", process.title(), pool.name);
        let finding = Finding::new(place, &*pool.name, seen, rate);
        let enable = "`echo madvise > /sys/kernel/mm/transparent_hugepage/enabled` and restart the \
                      program; or `--hugepages` (`Backing::Huge2M`) with `sysctl vm.nr_hugepages=N`.";
        Some(if never { finding.fixed_by(enable) } else { finding })
    };
    evidence.warm_pools().filter_map(of).collect()
}

pub const COLOUR_LOST: DoctorRule = DoctorRule {
    name: "colour_lost",
    cost: Cost::EachPacket,
    when: "all packets of a pool of whole order-0 pages begin at one offset (`colours` is 1), 512 pages or \
           more are out, and it allocates 10,000 pages/s or more; except pools with a domain, whose device \
           may choose the offset, as AF_XDP does",
    why: "The first lines of all packets share few sets of the CPU's caches: with 1,024 pages out, touching \
          one takes 10.0 ns instead of 5.7 ([benchmarks.md](benchmarks.md)).",
    fix: "Use a smaller `max_len`: 1024 bytes less than the room between headroom and tailroom gives 16 \
          colours.",
    verify: "`pagepool show {of}`: colours is above 1.",
    find: colour_lost,
    #[cfg(test)]
    case: RuleCase {
        ill: |of| {
            of.pool().set("colours", "1");
            of.pool().set("domains", "0");
        },
        says: "colours 1, colour 1; 1,300 pages are out",
        well: |of| of.pool().set("colours", "1"),
    },
};

fn colour_lost(evidence: &Evidence) -> Vec<Finding> {
    let is_lost = |pool: &PoolEvidence| {
        let is = |name, number| pool.number(name) == Some(number);
        is("colours", 1) && is("order", 0) && pool.pages.out >= L1_LINES && !pool.has_device()
    };
    let of = |(process, pool): (&ProcessEvidence, &PoolEvidence)| {
        let rate = evidence.per_second(pool.allocated());
        let asked = pool.number("colour").unwrap_or(0);
        let seen = format!("colours 1, colour {asked}; {} pages are out.", grouped(pool.pages.out));
        let finding =
            Finding::new(format!("{}, pool {}", process.title(), pool.name), &*pool.name, seen, rate);
        let off =
            "Leave `colour` on (C: no PAGEPOOL_NO_COLOUR), with a `max_len` that leaves room in the page.";
        let finding = if asked == 0 { finding.fixed_by(off) } else { finding };
        (rate >= BUSY).then_some(finding)
    };
    evidence.warm_pools().filter(|(_, pool)| is_lost(pool)).filter_map(of).collect()
}
