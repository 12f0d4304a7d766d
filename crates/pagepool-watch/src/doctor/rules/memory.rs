//! The kind of memory, and where packets begin in it.

use crate::doctor::evidence::{Evidence, OfProcess, PoolEvidence};
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
    when: "a pool allocates 10,000 pages/s or more from an arena of small pages that has taken 6 MiB or more \
           from the system",
    why: "Packets are spread over more small pages than a TLB covers, so CPU and IOMMU miss their TLBs.",
    fix: "Use the default (transparent huge pages), or `--hugepages` or `Backing::Huge2M` with `sysctl \
          vm.nr_hugepages=N`.",
    verify: "`pagepool show {of}`: `got` of the arena names huge pages.",
    find: no_huge_pages,
    #[cfg(test)]
    case: RuleCase {
        ill: |of| {
            of.arena().set("got", "4 KiB pages");
            of.arena().set("why", "none are free");
        },
        says: "Arena drop0 has 64.0M of 4 KiB pages; 2 MiB pages were requested (none are free)",
        well: |of| {
            of.arena().set("got", "4 KiB pages");
            of.arena().now.insert("committed_bytes".into(), 2 << 20);
        },
    },
};

fn no_huge_pages(evidence: &Evidence) -> Vec<Finding> {
    let of = |(process, pool): OfProcess<'_, PoolEvidence>| {
        let (arena, rate) = (process.arena(pool)?, evidence.per_second(pool.allocated()));
        let taken = arena.now.get("committed_bytes").copied();
        let (got, size) = (arena.param("got")?, taken.or_else(|| arena.number("max_bytes"))?);
        let is_small = got.ends_with("KiB pages") || got == "memfd";
        if !is_small || size < TLB_REACH || rate < BUSY {
            return None;
        }
        let asked = arena.param("backing").filter(|asked| *asked != got);
        let why = arena.param("why").unwrap_or("");
        let asked = asked.map_or(String::new(), |asked| format!("; {asked} were requested ({why})"));
        let seen = format!(
            "Arena {} has {} of {got}{asked}. The pool allocates {} pages per second.",
            arena.name,
            bytes(size),
            grouped(rate as u64)
        );
        let never = evidence.transparent_huge_pages.as_deref() == Some("never");
        let enable = "Run `echo madvise > /sys/kernel/mm/transparent_hugepage/enabled` and restart the \
                      program. Or reserve huge pages with `sysctl vm.nr_hugepages=N`, and use `--hugepages` \
                      or `Backing::Huge2M`.";
        Some(Finding::of_pool((process, pool), seen, rate).fixed_if(never.then_some(enable)))
    };
    evidence.warm_pools().filter_map(of).collect()
}

pub const COLOUR_LOST: DoctorRule = DoctorRule {
    name: "colour_lost",
    cost: Cost::EachPacket,
    when: "all packets of a pool with 4 KiB pages begin at the same offset (`colours` is 1), at least 512 \
           pages are out, and the pool allocates 10,000 pages/s or more. Pools with a domain are not judged, \
           because their device may choose the offset, as AF_XDP does",
    why: "The first cache lines of all packets share a few sets of the CPU's caches. With 1,024 pages out, \
          allocating, touching and returning a page takes 10.0 ns instead of 5.7 ns \
          ([benchmarks.md](benchmarks.md)).",
    fix: "Use a smaller `max_len`. If it is 1024 bytes below the room between headroom and tailroom, the \
          pool has 16 colours.",
    verify: "`pagepool show {of}`: colours is above 1.",
    find: colour_lost,
    #[cfg(test)]
    case: RuleCase {
        ill: |of| {
            of.pool().set("colours", "1");
            of.pool().set("domains", "0");
        },
        says: "colours is 1, colour is 1, and 1,300 pages are out",
        well: |of| of.pool().set("colours", "1"),
    },
};

fn colour_lost(evidence: &Evidence) -> Vec<Finding> {
    let is_lost = |pool: &PoolEvidence| {
        let is = |name, number| pool.number(name) == Some(number);
        is("colours", 1) && pool.page_bytes == 4096 && pool.pages.out >= L1_LINES && !pool.has_device()
    };
    let of = |(process, pool): OfProcess<'_, PoolEvidence>| {
        let rate = evidence.per_second(pool.allocated());
        let asked = pool.number("colour").unwrap_or(0);
        let seen = format!("colours is 1, colour is {asked}, and {} pages are out.", grouped(pool.pages.out));
        let off =
            "Leave `colour` on (C: no PAGEPOOL_NO_COLOUR), with a `max_len` that leaves room in the page.";
        let finding = Finding::of_pool((process, pool), seen, rate).fixed_if((asked == 0).then_some(off));
        (rate >= BUSY).then_some(finding)
    };
    evidence.warm_pools().filter(|(_, pool)| is_lost(pool)).filter_map(of).collect()
}
