//! The figures that are shown while a demonstration runs: one line a second.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use pagepool_lab::TcpTransfer;

use crate::engine::figures;
use crate::engine::run_state::{RunState, Sample};
use crate::engine::watch::Watch;
use crate::report::live_table::LiveTable;
use crate::report::number::grouped;
use crate::report::output;

/// How long a demonstration runs, and what is shown meanwhile.
pub struct View<'a> {
    pub seconds: u64,
    /// Print a line a second.
    pub lines: bool,
    /// The user wants an end.
    pub interrupted: &'a AtomicBool,
}

/// Lets a demonstration run until the time is over, it is interrupted, or the transfer is over. `arrived`
/// counts the packets that came to the end of their way.
pub fn watch(
    state: &RunState,
    warm: &Sample,
    view: &View<'_>,
    transfer: Option<&TcpTransfer>,
    arrived: impl Fn(&RunState, &Sample) -> u64,
) {
    let table = LiveTable { head: HEAD, widths: if transfer.is_some() { WITH_TRANSFER } else { WIDTHS } };
    if view.lines {
        output::line(format_args!("{LEGEND}\n\n{}", table.head()));
    }
    let look = |at| {
        let sample = state.sample();
        let arrived = arrived(state, &sample);
        Snapshot { at, arrived, bytes: transfer.map_or(0, TcpTransfer::received), sample }
    };
    let mut before = Snapshot { sample: warm.clone(), ..Snapshot::default() };
    let watch = Watch {
        start: Instant::now(),
        limit: Some(Duration::from_secs(view.seconds)),
        every: view.lines.then_some(Duration::from_secs(1)),
        interrupted: view.interrupted,
    };
    let is_over = || transfer.is_some_and(TcpTransfer::is_over);
    let show = |at| {
        let now = look(at);
        output::line(table.row(&cells(&before, &now, warm)));
        before = now;
    };
    watch.run(state, is_over, show, |_| ());
}

/// The figures of one time.
#[derive(Default)]
struct Snapshot {
    at: Duration,
    arrived: u64,
    bytes: u64,
    sample: Sample,
}

const LEGEND: &str = "\
Columns of pages: cache and ring are idle in the pools; lanes are being returned
by other threads; rx and tx are at the NICs; in_use are with the forwarder, or
with the thread that it passed them to.";

const COLUMNS: usize = 12;
const HEAD: [&str; COLUMNS] = [
    "time",
    "Gbit/s",
    "packets/s",
    "cache",
    "lanes",
    "ring",
    "rx",
    "tx",
    "in_use",
    "recycled",
    "slow",
    "dropped/s",
];
/// No line is longer than 80. Only a transfer has Gbit/s.
const WIDTHS: [usize; COLUMNS] = [4, 0, 10, 5, 6, 6, 5, 5, 6, 8, 5, 10];
const WITH_TRANSFER: [usize; COLUMNS] = [4, 6, 9, 5, 5, 5, 4, 4, 6, 8, 4, 9];

fn cells(before: &Snapshot, now: &Snapshot, warm: &Sample) -> [String; COLUMNS] {
    let took = (now.at - before.at).as_secs_f64();
    let rate = |new: u64, old: u64| grouped((new.saturating_sub(old) as f64 / took) as u64);
    let ports = &now.sample.ports;
    let pages = figures::page_locations(ports);
    [
        format!("{}s", now.at.as_secs()),
        format!("{:.2}", (now.bytes - before.bytes) as f64 * 8e-9 / took),
        rate(now.arrived, before.arrived),
        pages.cache.to_string(),
        pages.lanes.to_string(),
        pages.ring.to_string(),
        pages.rx.to_string(),
        pages.tx.to_string(),
        pages.in_use.to_string(),
        format!("{:.2}%", figures::recycled_percent(&warm.ports, ports).unwrap_or(0.0)),
        figures::slow(&warm.ports, ports).to_string(),
        rate(figures::dropped(ports), figures::dropped(&before.sample.ports)),
    ]
}
