//! `pagepool-bench numa`: the table of "[PATCH net-next v2] net: page_pool: optimize page pool page
//! allocation in NUMA scenario" (netdev, 2022), on a simulated machine of two nodes.
//!
//! A device on node 1 keeps 512 buffers; a poll takes 64 and returns the 64 oldest through the ring, as the
//! driver did there. Before that patch the pool named no node when it reserved pages, and got those of node 0
//! first. Each was released on its return, and a refill of 64 fresh pages replaced it; these filled the ring,
//! and later returns found it full.

use std::collections::BTreeMap;
use std::collections::VecDeque;

use crate::measure::counted::Counted;
use crate::measure::measure;
use crate::measure::summary::Times;
use crate::measure::workload::{Plan, Ready};
use crate::sys;
use crate::workloads::pools;
use pagepool::{ArenaParams, Bound, NodeId, PageBuf, PoolParams, Topology};
use pagepool_cli::report::output;
use serde::Serialize;

use super::{Report, table};

const KEPT: usize = 512;
const POLL: usize = 64;
/// The first half of the arena is on node 0, and is allocated first.
const DEVICE_NODE: NodeId = NodeId(1);

/// The columns in that mail: counters at 16.8 Gbit/s before the patch, and at 93 Gbit/s with it.
const PATCH: &[(&str, u64, u64)] = &[
    ("alloc_fast", 13_794_308, 60_066_264),
    ("alloc_slow", 108_625, 16_512),
    ("alloc_slow_high_order", 0, 0),
    ("alloc_empty", 8_192, 16_512),
    ("alloc_refill", 0, 473_841),
    ("alloc_waive", 100_433, 0),
    ("recycle_cached", 0, 0),
    ("recycle_cache_full", 0, 0),
    ("recycle_ring", 362_400, 29_754_145),
    ("recycle_ring_full", 6_064_893, 0),
    ("recycle_released_refcnt", 0, 0),
];

/// One kind of refill.
#[derive(Serialize)]
pub struct Column {
    refill: &'static str,
    buffers_per_second: f64,
    #[serde(flatten)]
    times: Times,
    buffers: u64,
    counters: Counted,
}

pub fn run(plan: Plan) -> Result<Report<Vec<Column>>, String> {
    sys::pin_owner();
    output::progress("bench numa: two runs");
    let columns = vec![column(plan, "node-blind", true)?, column(plan, "node-aware", false)?];
    let mut table = table(&["", "node-blind", "node-aware", "mail, before", "mail, after"], 1);
    let rate = |c: &Column| format!("{:.1} M/s", c.buffers_per_second / 1e6);
    let [blind, aware] = [&columns[0], &columns[1]];
    table.add_row([
        "throughput".into(),
        rate(blind),
        rate(aware),
        "16.8 Gbit/s".into(),
        "93 Gbit/s".to_owned(),
    ]);
    let patch: BTreeMap<_, _> = PATCH.iter().map(|&(name, before, after)| (name, (before, after))).collect();
    let named = PATCH.iter().map(|row| row.0);
    let others = blind.counters.0.keys().copied().filter(|name| !patch.contains_key(name));
    for name in named.chain(others) {
        let of = |c: &Column| c.counters.0.get(name).map_or("-".into(), u64::to_string);
        let (before, after) =
            patch.get(name).map_or(("-".into(), "-".into()), |(b, a)| (b.to_string(), a.to_string()));
        table.add_row([name.to_owned(), of(blind), of(aware), before, after]);
    }
    let about = format!(
        "a device on node 1 of a simulated machine of two nodes; {} buffers each; the device keeps \
         512, and\n\
         returns go through the ring; node-blind refill names no node to the arena, as in Linux before 2022",
        blind.buffers
    );
    let failed = judge(blind, aware);
    Ok(Report { name: "numa", about, results: columns, table, failed })
}

/// What must be true of both columns, or the comparison is worthless.
fn judge(blind: &Column, aware: &Column) -> Vec<String> {
    let of = |column: &Column, name: &str| column.counters.0.get(name).copied().unwrap_or(0);
    let mut failed = Vec::new();
    if of(blind, "alloc_waive") == 0 {
        failed.push("node-blind refill waived no page".into());
    }
    for name in ["alloc_waive", "alloc_slow", "recycle_ring_full"] {
        if of(aware, name) != 0 {
            failed.push(format!("node-aware refill: {name} is {}, but must be 0", of(aware, name)));
        }
    }
    let identity = of(blind, "alloc_empty") + of(blind, "alloc_waive");
    if of(blind, "alloc_slow") != identity {
        failed.push(format!(
            "node-blind refill: alloc_slow is {}, but alloc_empty + alloc_waive is {identity}",
            of(blind, "alloc_slow")
        ));
    }
    failed
}

fn column(plan: Plan, refill: &'static str, node_blind: bool) -> Result<Column, String> {
    let figures = measure(plan, polls(node_blind)?, None, None)?.own;
    let times = Times::of(&figures.ticks);
    Ok(Column {
        refill,
        buffers_per_second: 1e9 / times.ns_med.ok_or("no repetitions")?,
        times,
        buffers: figures.buffers,
        counters: figures.counted,
    })
}

fn polls(node_blind: bool) -> Result<Ready, String> {
    let topology = Topology::pretend_halves(2);
    let two_nodes = pools::arena_with(pools::PAGES, ArenaParams { topology, ..ArenaParams::default() })?;
    let params = PoolParams { nid: Some(DEVICE_NODE), node_blind, ..PoolParams::default() };
    let pool = pools::over(params, two_nodes)?;
    let mut kept: VecDeque<PageBuf> = VecDeque::with_capacity(KEPT + POLL);
    kept.extend((0..KEPT).map(|_| pools::page(&pool)));
    let run = move |pool: &Bound, n| {
        for _ in 0..n / POLL {
            kept.extend((0..POLL).map(|_| pools::page(pool)));
            kept.drain(..POLL).for_each(|buf| buf.put_ring());
        }
    };
    Ok(pools::one_core_over(pool, run))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_aware_refill_lets_nothing_go_and_node_blind_refill_does() {
        let report = run(Plan { repeats: 1, buffers: 16384 }).expect("64 MiB of addresses");
        assert_eq!(report.failed, Vec::<String>::new());
        assert!(report.results[0].counters.0["recycle_ring_full"] > 0);
    }

    #[test]
    fn figures_that_do_not_fit_fail_it() {
        let column = |fields: &[(&'static str, u64)]| Column {
            refill: "",
            buffers_per_second: 0.0,
            times: Times::default(),
            buffers: 0,
            counters: Counted::from_fields(fields.iter().copied()),
        };
        let blind = column(&[("alloc_waive", 3), ("alloc_slow", 4), ("alloc_empty", 1)]);
        assert_eq!(judge(&blind, &column(&[])).len(), 0);
        assert_eq!(judge(&column(&[]), &column(&[])).len(), 1);
        assert_eq!(judge(&blind, &column(&[("alloc_waive", 1), ("alloc_slow", 1)])).len(), 2);
    }

    #[test]
    fn the_figures_of_the_mail_satisfy_the_identity() {
        let patch: BTreeMap<_, _> =
            PATCH.iter().map(|&(name, before, after)| (name, [before, after])).collect();
        let [slow, empty, waive] = ["alloc_slow", "alloc_empty", "alloc_waive"].map(|name| patch[name]);
        assert_eq!(slow, [empty[0] + waive[0], empty[1] + waive[1]]);
    }
}
