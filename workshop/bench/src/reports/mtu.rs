//! `pagepool-bench mtu`: the question of the thread "page_pool: introduce page_pool_alloc() API" (netdev,
//! 2023). What does a packet cost at MTU 1500, 4000, 8000 and 9000, from whole pages, from `page_frag`, and
//! from fragments of order-3 pages?
//!
//! 64 packets are allocated and then returned, as in one poll, on one core. Wasted bytes are measured: the
//! pages taken for a run of packets, minus what the packets need.

use std::collections::BTreeSet;

use crate::measure::summary::{Summary, Times, cell};
use crate::measure::workload::{Plan, Ready};
use crate::measure::{Measured, measure};
use crate::rivals::page_frag::{self, PageFrag};
use crate::sys;
use crate::workloads::{order3, page_frag_burst64, pools};
use pagepool::{Bound, PAGE_SIZE, PageBuf, PoolParams};
use pagepool_cli::report::output;
use serde::Serialize;

use super::{Report, table};

/// Around a packet: Ethernet header, XDP headroom, Linux's shared info.
const AROUND: usize = 14 + 256 + 320;
const POLL: usize = 64;
/// Packets over which waste is measured: a multiple of 15, 7 and 3, the fragments per page.
const WASTE_OVER: usize = 210;

#[derive(Serialize)]
pub struct MtuRow {
    mtu: usize,
    need_bytes: usize,
    storage: &'static str,
    returned: &'static str,
    ns_med: Option<f64>,
    tsc_med: Option<f64>,
    core_cycles_med: Option<f64>,
    instructions: Option<f64>,
    wasted_bytes: f64,
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
    for mtu in [1500, 4000, 8000, 9000] {
        output::progress(format_args!("bench mtu: {mtu} of up to 9000 bytes"));
        rows.extend(at_mtu(plan, mtu)?);
    }
    let head = ["MTU", "need", "storage", "returned", "ns", "tsc", "core", "instr", "wasted", "mail's tsc"];
    let mut table = table(&head, 0);
    rows.iter().for_each(|row| _ = table.add_row(cells(row)));
    let about = "per packet, 64 packets in flight, one core; wasted: bytes of its pages that a packet does \
                 not need;\n\
                 mail's tsc: predicted from the figures in \"page_pool: introduce page_pool_alloc() API\" \
                 (netdev, 2023):\n\
                 48 for a page through the ring, 514 for an order-3 page of the allocator, 17 for an atomic";
    Ok(Report { name: "mtu", about: about.into(), results: rows, table, failed: Vec::new() })
}

fn at_mtu(plan: Plan, mtu: usize) -> Result<Vec<MtuRow>, String> {
    let need = mtu + AROUND;
    let pages = need.div_ceil(PAGE_SIZE);
    let frags = (page_frag::PAGE_BYTES / need) as f64;
    let per_page = 48.0 * pages as f64;
    let waste_of_pages = (pages * PAGE_SIZE - need) as f64;
    let waste_of_fragments = fragment_waste(need)?;
    let mut rows = Vec::new();
    for way in [ReturnKind::Ring, ReturnKind::Direct] {
        let figures = measure(plan, whole_pages(pages, way)?, None, None)?.own;
        let predicted = (way == ReturnKind::Ring).then_some(per_page);
        rows.push(row(mtu, ("pages", way.name()), &figures, waste_of_pages, predicted));
    }
    let figures = measure(plan, page_frag_burst64(need)?, None, None)?.own;
    rows.push(row(mtu, ("page_frag", "allocator"), &figures, page_frag_waste(need)?, Some(514.0 / frags)));
    for way in [ReturnKind::Ring, ReturnKind::Direct] {
        let figures = measure(plan, fragments(need, way)?, None, None)?.own;
        let predicted = (way == ReturnKind::Ring).then_some(48.0 / frags + 17.0);
        rows.push(row(mtu, ("fragments", way.name()), &figures, waste_of_fragments, predicted));
    }
    Ok(rows)
}

fn row(
    mtu: usize,
    (storage, returned): (&'static str, &'static str),
    figures: &Measured,
    wasted_bytes: f64,
    predicted_cycles: Option<f64>,
) -> MtuRow {
    let Times { ns_med, tsc_med, .. } = Times::of(&figures.ticks);
    MtuRow {
        mtu,
        need_bytes: mtu + AROUND,
        storage,
        returned,
        ns_med,
        tsc_med,
        core_cycles_med: Summary::median(&figures.core_cycles),
        instructions: Summary::median(&figures.instructions),
        wasted_bytes,
        predicted_cycles,
    }
}

fn cells(row: &MtuRow) -> [String; 10] {
    [
        row.mtu.to_string(),
        row.need_bytes.to_string(),
        row.storage.into(),
        row.returned.into(),
        cell(row.ns_med, 1),
        cell(row.tsc_med, 1),
        cell(row.core_cycles_med, 1),
        cell(row.instructions, 1),
        format!("{:.0}", row.wasted_bytes),
        cell(row.predicted_cycles, 1),
    ]
}

/// Packets of `pages` order-0 pages each.
fn whole_pages(pages: usize, way: ReturnKind) -> Result<Ready, String> {
    polls(PoolParams::default(), pages, way, pools::page)
}

/// Packets of one fragment of an order-3 page each.
fn fragments(need: usize, way: ReturnKind) -> Result<Ready, String> {
    polls(order3(), 1, way, move |pool| frag(pool, need))
}

/// Packets of this many buffers each.
fn polls(
    params: PoolParams,
    buffers: usize,
    way: ReturnKind,
    alloc: impl Fn(&Bound) -> PageBuf + 'static,
) -> Result<Ready, String> {
    let size = POLL * buffers;
    let mut held = Vec::with_capacity(size);
    pools::one_core(params, move |pool, n| {
        let give_back = |held: &mut Vec<_>| held.drain(..).for_each(|buf| way.give_back(buf));
        pools::in_bursts(n * buffers, size, &mut held, || alloc(pool), give_back);
    })
}

#[inline(always)]
fn frag(pool: &Bound, need: usize) -> PageBuf {
    pool.alloc(need).expect("the arena has more pages than 64 packets need")
}

fn fragment_waste(need: usize) -> Result<f64, String> {
    let pool = pools::bound(order3())?;
    let held: Vec<_> = (0..WASTE_OVER).map(|_| frag(&pool, need)).collect();
    Ok(waste(
        need,
        held.iter().map(|buf| u64::from(buf.page().0) / (page_frag::PAGE_BYTES / PAGE_SIZE) as u64),
    ))
}

fn page_frag_waste(need: usize) -> Result<f64, String> {
    let cache = PageFrag::new(pools::arena(pools::PAGES)?);
    let held: Vec<_> = (0..WASTE_OVER).filter_map(|_| cache.alloc(need)).collect();
    Ok(waste(need, held.iter().map(|frag| frag.start() / page_frag::PAGE_BYTES as u64)))
}

/// Bytes per packet in the order-3 pages taken that no packet needs.
fn waste(need: usize, pages: impl Iterator<Item = u64>) -> f64 {
    let taken = pages.collect::<BTreeSet<_>>().len() * page_frag::PAGE_BYTES;
    taken as f64 / WASTE_OVER as f64 - need as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waste_is_what_the_sizes_leave_over() {
        let rows = run(Plan { repeats: 1, buffers: 4096 }).expect("64 MiB of addresses").results;
        let waste =
            |mtu, storage| rows.iter().find(|r| r.mtu == mtu && r.storage == storage).map(|r| r.wasted_bytes);
        assert_eq!(waste(1500, "pages"), Some(2006.0));
        assert_eq!(waste(8000, "pages"), Some(3698.0));
        let fifteenth = 32768.0 / 15.0 - 2090.0;
        let third = 32768.0 / 3.0 - 8590.0;
        for storage in ["fragments", "page_frag"] {
            assert!(waste(1500, storage).is_some_and(|waste| (waste - fifteenth).abs() < 1e-6));
            assert!(waste(8000, storage).is_some_and(|waste| (waste - third).abs() < 1e-6));
        }
        assert_eq!(rows.len(), 4 * 5);
    }
}
