//! The output of `list`: a line for each process, and a row for each of its pools.
//!
//! The columns are those of Linux's netlink dump of its page pools (id, ifindex, napi, inflight,
//! inflight-mem, detach-time), with the thread in place of napi, plus figures that Linux has among its
//! statistics or not at all. Figures since the pool was made and since the previous look have different
//! names.

use pagepool_watch::commands::{bytes, recycled_of};
use pagepool_watch::{Life, Observation, PoolMoved, PoolView, ProcessView};

use super::look::{ago, is_alive, percent, places};
use super::options::Looks;
use crate::report::table::{Table, TableColumn, fitted, number, rate, text};
use crate::report::{LiveLine, grouped, width};

/// The columns of a single look, and of repeated looks. A row has at most 79 characters on 80 columns.
const COLUMNS: [[TableColumn; 10]; 2] = [columns("ever%", "slow"), columns("recyc%", "slow/s")];

const fn columns(recycled: &'static str, slow: &'static str) -> [TableColumn; 10] {
    [
        number("id", 4),
        TableColumn { grows: true, ..text("pool", 0) },
        number("if", 4),
        text("thread", 9),
        number("inflight", 8),
        number("mem", 6),
        number(recycled, 6),
        number("out", 7),
        number(slow, 6),
        number("detached", 8),
    ]
}

pub fn lines(looks: Looks<'_, Observation>, selected: &[ProcessView]) -> Vec<LiveLine> {
    let Looks { now: look, before, terminal } = looks;
    let pools = selected.iter().flat_map(|process| &process.pools);
    let longest = pools.map(|pool| width(&pool.name)).max().unwrap_or(0);
    let table = Table::fitted(&COLUMNS[usize::from(before.is_some())], longest, terminal);
    let mut lines = Vec::new();
    for process in selected {
        lines.push(title(look, process));
        if !process.pools.is_empty() {
            lines.push(LiveLine::plain(table.head()));
        }
        for pool in &process.pools {
            let moved = before.map(|before| PoolMoved::between(before, look, process, pool));
            lines.push(row(&table, look, pool, moved));
        }
        if !is_alive(process) {
            lines.extend(process.pools.iter().filter_map(|pool| held(process, pool)));
            lines.extend(sent_by_devices(process));
        }
    }
    lines
}

pub fn title(look: &Observation, process: &ProcessView) -> LiveLine {
    let ProcessView { name, pid, version, not_shown, .. } = process;
    let pools = &process.pools;
    let pages = pools.iter().map(|pool| pool.inflight.total.max(0) as u64).fold(0, u64::saturating_add);
    let memory = bytes(pools.iter().map(PoolView::inflight_bytes).fold(0, u64::saturating_add));
    let out = pools.iter().map(|pool| pool.inflight.out).fold(0, u64::saturating_add);
    let life = match process.life {
        Life::Dead { last_sign } => format!("DEAD, last seen alive {} ago", ago(look, last_sign)),
        _ => format!("runs for {}", ago(look, process.started)),
    };
    let (pages, out) = (grouped(pages), grouped(out));
    let mut text =
        format!("{name}, pid {pid}: {life}; {pages} pages ({memory}), {out} out; pagepool {version}");
    text.extend(look.namesake(process).map(|file| format!("; {file}")));
    if *not_shown > 0 {
        text += &format!("; {} pools or entries are not shown", grouped(*not_shown));
    }
    match is_alive(process) {
        true => LiveLine::plain(text),
        false => LiveLine::bad(text),
    }
}

/// The row of a pool. `moved`: since the previous look, if there was one; `None` within for a pool that could
/// not be read then.
fn row(table: &Table, look: &Observation, pool: &PoolView, moved: Option<Option<PoolMoved>>) -> LiveLine {
    let PoolView { stats, .. } = pool;
    let slow = stats.alloc_slow.wrapping_add(stats.alloc_slow_high_order);
    let (recycled, slow) = match moved {
        None => (recycled_of(&[*stats]), fitted(slow, 6)),
        Some(moved) => {
            let slow = moved.map(|of| of.per_second(of.slow()));
            (moved.and_then(|of| of.recycled()), rate(slow, 6))
        }
    };
    let ago = |time| {
        let time = look.at.duration_since(time).unwrap_or_default();
        format!("{} s", time.as_secs())
    };
    LiveLine::plain(table.row([
        pool.id.to_string(),
        pool.name.clone(),
        pool.ifindex.map_or("-".into(), |index| index.to_string()),
        pool.thread.as_ref().map_or("-".into(), |thread| thread.name.clone()),
        fitted(pool.inflight.total.max(0) as u64, 8),
        bytes(pool.inflight_bytes()),
        recycled.map_or("-".into(), percent),
        fitted(pool.inflight.out, 7),
        slow,
        pool.detached.map_or("-".into(), ago),
    ]))
}

/// Where the pages of a pool were when its process died.
fn held(process: &ProcessView, pool: &PoolView) -> Option<LiveLine> {
    if pool.inflight.out + pool.inflight.uncollected == 0 {
        return None;
    }
    let waiting = process.waiting_for_packets(pool).filter(|&waiting| waiting > 0);
    let waiting = waiting.map(|waiting| format!(", of these {} waiting for packets", grouped(waiting)));
    let (name, places) = (&pool.name, places(&pool.inflight));
    Some(LiveLine::bad(format!("  {name} held when it died: {places}{}", waiting.unwrap_or_default())))
}

/// The buffers that devices were sending when a process died. They are out of any of its pools.
fn sent_by_devices(process: &ProcessView) -> Option<LiveLine> {
    let sent = process.being_sent().filter(|&sent| sent > 0)?;
    Some(LiveLine::bad(format!("  being sent when it died: {} buffers of its pools", grouped(sent))))
}
