//! The figures of a demonstration while it runs: one line a second, for people or as JSON.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use pagepool::Holders;
use pagepool_link::TcpTransfer;
use serde_json::{Map, Value};

use super::outcome::DemoResult;
use crate::report::table::Table;
use crate::report::{FigureOptions, LossLimit, Verdict, per_second};
use crate::signals::Signals;
use crate::traffic::figures::{ExtraCounts, JsonLines, QueueName, RunMoment, losses};
use crate::traffic::{PortSample, Sample, SharedState, Trigger, Watch, figures, sum};

/// Seconds between two lines.
const STATS_EVERY: u64 = 1;

/// How long a demonstration runs, and what it shows.
pub struct DemoView<'a> {
    pub seconds: u64,
    pub options: FigureOptions,
    /// What pools record about pages that are out.
    pub holders: Holders,
    pub limit: LossLimit,
    pub signals: &'a Signals,
}

pub struct DemoFigures<'a> {
    view: &'a DemoView<'a>,
    warm: Sample,
    before: Snapshot,
    table: Table,
    /// The legend and the heads of the table, until they are printed.
    head: Option<String>,
    /// JSON lines, which replace the table.
    json_lines: Option<JsonLines>,
}

/// The title: what is demonstrated, for people and as JSON.
pub struct DemoTitle {
    pub line: String,
    pub fields: Vec<(&'static str, Value)>,
    /// The interface of each port.
    pub interfaces: [&'static str; 2],
    /// Whether a transfer runs, which has a rate in Gbit/s.
    pub has_transfer: bool,
}

impl<'a> DemoFigures<'a> {
    /// Prints the title. `warm`: the counts at the end of the warm-up.
    pub fn begin(view: &'a DemoView<'a>, warm: Sample, title: DemoTitle) -> Self {
        let options = view.options;
        options.print(&title.line);
        let names = title.interfaces.map(|name| QueueName { interface: name.into(), queue: 0 }).to_vec();
        let json_lines = JsonLines::begin(options, "demo", names, &warm.ports, title.fields);
        let widths = if title.has_transfer { WITH_TRANSFER } else { WIDTHS };
        let table = Table::of_numbers(HEAD.split(' ').zip(widths));
        let head = Some(format!("{LEGEND}\n\n{}", table.head()));
        let before = Snapshot { sample: warm.clone(), ..Snapshot::default() };
        let mut figures = Self { view, warm, before, table, head, json_lines };
        if view.options.every(STATS_EVERY).is_some() {
            figures.show_head();
        }
        figures
    }

    fn show_head(&mut self) {
        self.head.take().iter().for_each(|head| self.view.options.row(head));
    }

    /// Waits until the time is over, a signal ends the demonstration, or the transfer is over. `arrived`
    /// counts the packets that reached the end of their path.
    pub fn watch(
        &mut self,
        state: &SharedState,
        transfer: Option<&TcpTransfer>,
        arrived: impl Fn(&SharedState, &Sample) -> u64,
    ) {
        let view = self.view;
        let watch = Watch {
            start: Instant::now(),
            limit: Some(Duration::from_secs(view.seconds)),
            every: view.options.every(STATS_EVERY),
            signals: view.signals,
        };
        let is_over = || transfer.is_some_and(TcpTransfer::is_over);
        let show = |at, trigger| {
            let sample = state.sample();
            let arrived = arrived(state, &sample);
            let bytes = transfer.map_or(0, TcpTransfer::received);
            self.show(trigger, Snapshot { at, arrived, bytes, sample });
        };
        watch.wait(state, is_over, show, |_| ());
    }

    fn show(&mut self, trigger: Trigger, now: Snapshot) {
        match &mut self.json_lines {
            Some(lines) => {
                let beside = Some(beside(now.arrived, now.bytes));
                lines.figures(trigger, RunMoment { at: now.at, ports: now.sample.ports.clone(), beside });
            }
            None => {
                self.show_head();
                let row = self.table.row(cells(&self.before, &now, &self.warm));
                self.view.options.row(&row);
            }
        }
        self.before = now;
    }

    /// Prints the verdict in the chosen form, and returns the status.
    pub fn end(self, result: &DemoResult, bytes: u64, verdict: &Verdict) -> ExitCode {
        let at = Duration::from_secs_f64(result.seconds);
        let beside = Some(beside(result.arrived, bytes));
        let end = RunMoment { at, ports: result.end.clone(), beside };
        JsonLines::end(self.json_lines, end, verdict, self.view.options)
    }
}

#[derive(Default)]
struct Snapshot {
    at: Duration,
    arrived: u64,
    bytes: u64,
    sample: Sample,
}

/// What reached the end of its path.
fn beside(packets: u64, bytes: u64) -> ExtraCounts {
    ExtraCounts { name: "arrived", counts: vec![("packets", packets), ("bytes", bytes)], now: Map::new() }
}

/// Packets that found a queue full.
fn lost(ports: &[PortSample]) -> u64 {
    losses::at_full_queues(ports).iter().map(|(_, count)| count).sum()
}

const LEGEND: &str = "\
Columns of pages: cache and ring are idle in the pools; lanes are being returned
by other threads; rx and tx are at the NICs; in_use are held by the forwarder or
by the thread that it passed them to.";

const COLUMNS: usize = 12;
const HEAD: &str = "time Gbit/s packets/s cache lanes ring rx tx in_use recycled slow lost/s";
/// A line has at most 80 characters. Only a transfer has Gbit/s.
const WIDTHS: [usize; COLUMNS] = [4, 0, 10, 5, 6, 6, 5, 5, 6, 8, 5, 10];
const WITH_TRANSFER: [usize; COLUMNS] = [4, 6, 9, 5, 5, 5, 4, 4, 6, 8, 4, 9];

fn cells(before: &Snapshot, now: &Snapshot, warm: &Sample) -> [String; COLUMNS] {
    let took = now.at.saturating_sub(before.at).as_secs_f64().max(1e-3); // two requests at once
    let rate = |new: u64, old: u64| per_second(new.saturating_sub(old), took);
    let ports = &now.sample.ports;
    let pages = |of: fn(&PortSample) -> u64| sum(ports, of).to_string();
    [
        format!("{}s", now.at.as_secs()),
        format!("{:.2}", (now.bytes - before.bytes) as f64 * 8e-9 / took),
        rate(now.arrived, before.arrived),
        pages(|at| at.pool.1.cache),
        pages(|at| at.pool.1.lanes + at.pool.1.uncollected),
        pages(|at| at.pool.1.ring),
        pages(|at| at.nic.in_rx),
        pages(|at| at.nic.in_tx),
        figures::in_use(ports).to_string(),
        format!("{:.2}%", figures::recycled_percent(&warm.ports, ports).unwrap_or(0.0)),
        figures::slow(&warm.ports, ports).to_string(),
        rate(lost(ports), lost(&before.sample.ports)),
    ]
}
