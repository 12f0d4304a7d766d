//! `pagepool-bench mtu`: the question of the thread "page_pool: introduce page_pool_alloc() API" (netdev,
//! 2023). What does a packet cost at MTU 1500, 4000, 8000 and 9000, from whole pages, from `page_frag`, and
//! from fragments of order-3 pages? At MTU 1500 also without Linux's shared info behind the packet: then a
//! packet fits a page of 2 KiB.
//!
//! 64 packets are allocated and then returned, as in one poll, on one core. The memory of a packet is
//! measured: the pages taken for a run of packets.

use std::collections::BTreeSet;

use crate::measure::summary::{Summary, Times, cell};
use crate::measure::workload::{Plan, Ready};
use crate::measure::{Measured, measure};
use crate::rivals::page_frag::{self, PageFrag};
use crate::sys;
use crate::workloads::{order3, page_frag_burst64, pools};
use pagepool::{ArenaParams, Bound, PAGE_SIZE, PageBuf, PoolParams};
use pagepool_cli::report::output;
use serde::Serialize;

use super::{Report, table};

/// Before a packet: Ethernet header and XDP headroom.
const BEFORE: usize = 14 + 256;
/// Behind it: Linux's shared info.
const SHARED_INFO: usize = 320;
const POLL: usize = 64;
/// Packets over which memory is measured: a multiple of 18, 15, 7 and 3, the fragments per page.
const MEASURED_OVER: usize = 630;

/// An MTU, the bytes behind a packet, and the size of pages.
type Layout = (usize, usize, usize);

const LAYOUTS: [Layout; 5] = [
    (1500, SHARED_INFO, PAGE_SIZE),
    (1500, 0, 2048),
    (4000, SHARED_INFO, PAGE_SIZE),
    (8000, SHARED_INFO, PAGE_SIZE),
    (9000, SHARED_INFO, PAGE_SIZE),
];

#[derive(Serialize)]
pub struct MtuRow {
    mtu: usize,
    need_bytes: usize,
    storage: String,
    returned: &'static str,
    ns_med: Option<f64>,
    tsc_med: Option<f64>,
    core_cycles_med: Option<f64>,
    instructions: Option<f64>,
    memory_bytes: f64,
    /// From the figures in the thread "[PATCH net-next v3 3/4] page_pool: introduce page_pool_alloc() API":
    /// 48 cycles for a page through the ring, 514 for an order-3 page from the allocator, 17 for an atomic.
    predicted_cycles: Option<f64>,
}

/// On the owner's core.
#[derive(Clone, Copy, PartialEq)]
enum ReturnKind {
    Ring,
    Direct,
}

impl ReturnKind {
    fn name(self) -> &'static str {
        match self {
            Self::Ring => "ring",
            Self::Direct => "direct",
        }
    }

    #[inline(always)]
    fn give_back(self, buf: PageBuf) {
        match self {
            Self::Ring => buf.put_ring(),
            Self::Direct => drop(buf),
        }
    }
}

pub fn run(plan: Plan) -> Result<Report<Vec<MtuRow>>, String> {
    sys::pin_owner();
    let plan = plan.lighter(4);
    let mut rows = Vec::new();
    for layout in LAYOUTS {
        output::progress(format_args!("bench mtu: {} of up to 9000 bytes", layout.0));
        rows.extend(at_mtu(plan, layout)?);
    }
    let head = ["MTU", "need", "storage", "returned", "ns", "tsc", "core", "instr", "memory", "mail's tsc"];
    let mut table = table(&head, 0);
    rows.iter().for_each(|row| _ = table.add_row(cells(row)));
    let about = "per packet, 64 packets in flight, one core; need: with the bytes around the packet; memory: \
                 bytes of pages per packet;\n\
                 mail's tsc: predicted from the figures in \"page_pool: introduce page_pool_alloc() API\" \
                 (netdev, 2023):\n\
                 48 for a page through the ring, 514 for an order-3 page of the allocator, 17 for an atomic";
    Ok(Report { name: "mtu", about: about.into(), results: rows, table, failed: Vec::new() })
}

fn at_mtu(plan: Plan, (mtu, behind, page_size): Layout) -> Result<Vec<MtuRow>, String> {
    let need = BEFORE + mtu + behind;
    let pages = need.div_ceil(page_size);
    let frags = (page_frag::PAGE_BYTES / need) as f64;
    let memory = [(pages * page_size) as f64, page_frag_memory(need)?, fragment_memory(need)?];
    let name = format!("{} KiB pages", page_size / 1024);
    let mut rows = Vec::new();
    let mut add = |storage: &str, returned, ready, memory_bytes, predicted| {
        let figures = measure(plan, ready, None, None)?.own;
        rows.push(row([mtu, need], (storage, returned), &figures, memory_bytes, predicted));
        Ok::<_, String>(())
    };
    for way in [ReturnKind::Ring, ReturnKind::Direct] {
        let predicted = (way == ReturnKind::Ring).then_some(48.0 * pages as f64);
        add(&name, way.name(), whole_pages(pages, page_size, way)?, memory[0], predicted)?;
    }
    add("page_frag", "allocator", page_frag_burst64(need)?, memory[1], Some(514.0 / frags))?;
    for way in [ReturnKind::Ring, ReturnKind::Direct] {
        let predicted = (way == ReturnKind::Ring).then_some(48.0 / frags + 17.0);
        add("fragments", way.name(), fragments(need, way)?, memory[2], predicted)?;
    }
    Ok(rows)
}

fn row(
    [mtu, need_bytes]: [usize; 2],
    (storage, returned): (&str, &'static str),
    figures: &Measured,
    memory_bytes: f64,
    predicted_cycles: Option<f64>,
) -> MtuRow {
    let Times { ns_med, tsc_med, .. } = Times::of(&figures.ticks);
    MtuRow {
        mtu,
        need_bytes,
        storage: storage.into(),
        returned,
        ns_med,
        tsc_med,
        core_cycles_med: Summary::median(&figures.core_cycles),
        instructions: Summary::median(&figures.instructions),
        memory_bytes,
        predicted_cycles,
    }
}

fn cells(row: &MtuRow) -> [String; 10] {
    [
        row.mtu.to_string(),
        row.need_bytes.to_string(),
        row.storage.clone(),
        row.returned.into(),
        cell(row.ns_med, 1),
        cell(row.tsc_med, 1),
        cell(row.core_cycles_med, 1),
        cell(row.instructions, 1),
        format!("{:.0}", row.memory_bytes),
        cell(row.predicted_cycles, 1),
    ]
}

/// Packets of `pages` order-0 pages each.
fn whole_pages(pages: usize, page_size: usize, way: ReturnKind) -> Result<Ready, String> {
    let memory = ArenaParams { page_size, ..ArenaParams::default() };
    let pool = pools::over(PoolParams::default(), pools::arena_with(pools::PAGES, memory)?)?;
    Ok(polls(pool, pages, way, pools::page))
}

/// Packets of one fragment of an order-3 page each.
fn fragments(need: usize, way: ReturnKind) -> Result<Ready, String> {
    Ok(polls(pools::bound(order3())?, 1, way, move |pool| frag(pool, need)))
}

/// Packets of this many buffers each.
fn polls(pool: Bound, buffers: usize, way: ReturnKind, alloc: impl Fn(&Bound) -> PageBuf + 'static) -> Ready {
    let size = POLL * buffers;
    let mut held = Vec::with_capacity(size);
    pools::one_core_over(pool, move |pool, n| {
        let give_back = |held: &mut Vec<_>| held.drain(..).for_each(|buf| way.give_back(buf));
        pools::in_bursts(n * buffers, size, &mut held, || alloc(pool), give_back);
    })
}

#[inline(always)]
fn frag(pool: &Bound, need: usize) -> PageBuf {
    pool.alloc(need).expect("the arena has more pages than 64 packets need")
}

fn fragment_memory(need: usize) -> Result<f64, String> {
    let pool = pools::bound(order3())?;
    let held: Vec<_> = (0..MEASURED_OVER).map(|_| frag(&pool, need)).collect();
    let page = |buf: &PageBuf| u64::from(buf.page().0) / (page_frag::PAGE_BYTES / PAGE_SIZE) as u64;
    Ok(memory(held.iter().map(page)))
}

fn page_frag_memory(need: usize) -> Result<f64, String> {
    let cache = PageFrag::new(pools::arena(pools::PAGES)?);
    let held: Vec<_> = (0..MEASURED_OVER).filter_map(|_| cache.alloc(need)).collect();
    Ok(memory(held.iter().map(|frag| frag.start() / page_frag::PAGE_BYTES as u64)))
}

/// Bytes per packet in the order-3 pages taken.
fn memory(pages: impl Iterator<Item = u64>) -> f64 {
    let taken = pages.collect::<BTreeSet<_>>().len() * page_frag::PAGE_BYTES;
    taken as f64 / MEASURED_OVER as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_what_the_sizes_take() {
        let rows = run(Plan { repeats: 1, buffers: 4096 }).expect("64 MiB of addresses").results;
        let memory = |need, storage: &str| {
            rows.iter().find(|r| r.need_bytes == need && r.storage == storage).map(|r| r.memory_bytes)
        };
        assert_eq!((memory(2090, "4 KiB pages"), memory(1770, "2 KiB pages")), (Some(4096.0), Some(2048.0)));
        assert_eq!(memory(8590, "4 KiB pages"), Some(3.0 * 4096.0));
        for (need, per_page) in [(1770, 18.0), (2090, 15.0), (8590, 3.0)] {
            for storage in ["fragments", "page_frag"] {
                assert!(memory(need, storage).is_some_and(|is| (is - 32768.0 / per_page).abs() < 1e-6));
            }
        }
        assert_eq!(rows.len(), LAYOUTS.len() * 5);
    }
}
