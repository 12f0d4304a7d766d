//! The figures shown during a soak: a line every five seconds, for people or for programs.

use std::process::ExitCode;
use std::time::Duration;

use crate::counts::PeerCounts;
use crate::holdings::Holdings;
use crate::schedule::Schedule;
use pagepool_cli::report::table::Table;
use pagepool_cli::report::{FigureOptions, Verdict, grouped, object};
use pagepool_cli::traffic::figures::{ExtraCounts, JsonLines, QueueName, RunMoment};
use pagepool_cli::traffic::{Sample, Trigger, figures, sum};

const STATS_EVERY: u64 = 5;

const HEAD: &str = "time packets/s arrived damaged rx tx in_use slow flaps kills outage MiB";
/// Lines have at most 80 characters.
const WIDTHS: [usize; 12] = [5, 9, 11, 7, 4, 4, 6, 4, 5, 5, 6, 3];

const LEGEND: &str = "\
rx and tx: pages at the sockets. in_use: held by the forwarder. slow: calls
to the arena. flaps: interfaces taken down. kills: peers killed. outage: longest
time in ms without packets, outside faults. MiB: resident memory.";

pub struct SoakFigures {
    options: FigureOptions,
    every: Option<Duration>,
    warm: Sample,
    /// When figures were last due; time and arrivals of the last line.
    due: Duration,
    at: Duration,
    arrived: u64,
    table: Table,
    /// Until it is shown.
    head: Option<String>,
    /// Replaces the table for programs.
    json_lines: Option<JsonLines>,
}

pub struct SoakSnapshot {
    pub at: Duration,
    pub sample: Sample,
    pub peers: [PeerCounts; 2],
    pub flaps: u64,
    pub kills: u64,
    /// The longest time without a frame.
    pub outage: Duration,
}

impl SoakFigures {
    /// `warm`: the sample after the warm-up.
    pub fn begin(options: FigureOptions, warm: Sample, schedule: &Schedule, mode: &str) -> Self {
        let Schedule { seconds, flap_every, kill_every } = *schedule;
        options.print(&format_args!(
            "Two peers send at full speed for {seconds} s. An interface goes down every {flap_every} s, and \
             a peer is killed every {kill_every} s."
        ));
        let names = ["near0", "near1"].map(|name| QueueName { interface: name.into(), queue: 0 }).to_vec();
        let what = [("seconds", seconds), ("flap_every", flap_every), ("kill_every", kill_every)];
        let what = what.map(|(key, value)| (key, value.into())).into_iter().chain([("mode", mode.into())]);
        let json_lines = JsonLines::begin(options, "soak", names, &warm.ports, what);
        let table = Table::of_numbers(HEAD.split(' ').zip(WIDTHS));
        let (every, head) = (options.every(STATS_EVERY), format!("{LEGEND}\n\n{}", table.head()));
        let (due, at, arrived) = (Duration::ZERO, Duration::ZERO, 0);
        let mut figures =
            Self { options, every, warm, due, at, arrived, table, head: Some(head), json_lines };
        if every.is_some() {
            figures.show_head();
        }
        figures
    }

    fn show_head(&mut self) {
        self.head.take().iter().for_each(|head| self.options.row(head));
    }

    /// Only people need a progress line.
    pub fn is_for_people(&self) -> bool {
        !self.options.is_json()
    }

    pub fn is_due(&self, now: Duration) -> bool {
        self.every.is_some_and(|every| now >= self.due + every)
    }

    pub fn show(&mut self, trigger: Trigger, now: SoakSnapshot) {
        if trigger == Trigger::Timer {
            self.due = now.at;
        }
        if let Some(lines) = &mut self.json_lines {
            let beside = Some(beside(&now));
            return lines.figures(trigger, RunMoment { at: now.at, ports: now.sample.ports, beside });
        }
        self.show_head();
        let cells = self.cells(&now);
        self.options.row(&self.table.row(cells));
    }

    /// Prints the verdict, and returns the status.
    pub fn end(self, end: SoakSnapshot, verdict: &Verdict) -> ExitCode {
        let beside = Some(beside(&end));
        let end = RunMoment { at: end.at, ports: end.sample.ports, beside };
        JsonLines::end(self.json_lines, end, verdict, self.options)
    }

    fn cells(&mut self, now: &SoakSnapshot) -> [String; 12] {
        let SoakSnapshot { at, ref sample, ref peers, flaps, kills, outage } = *now;
        let arrived = peers.iter().map(|peer| peer.arrived).sum();
        let seconds = at.saturating_sub(self.at).as_secs_f64().max(1e-3); // asked for twice at once
        let rate = (arrived - self.arrived) as f64 / seconds;
        let ports = &sample.ports;
        (self.at, self.arrived) = (at, arrived);
        [
            format!("{}s", at.as_secs()),
            grouped(rate as u64),
            grouped(arrived),
            peers.iter().map(|peer| peer.damaged + peer.again).sum::<u64>().to_string(),
            sum(ports, |at| at.nic.in_rx).to_string(),
            sum(ports, |at| at.nic.in_tx).to_string(),
            figures::in_use(ports).to_string(),
            figures::slow(&self.warm.ports, ports).to_string(),
            flaps.to_string(),
            kills.to_string(),
            outage.as_millis().to_string(),
            (Holdings::now().rss_kib >> 10).to_string(),
        ]
    }
}

fn beside(now: &SoakSnapshot) -> ExtraCounts {
    let peers = now.peers[0].plus(&now.peers[1]);
    let counts = vec![
        ("sent", peers.sent),
        ("arrived", peers.arrived),
        ("damaged", peers.damaged),
        ("repeated", peers.again),
        ("flaps", now.flaps),
        ("kills", now.kills),
    ];
    let figures =
        [("longest_silence_ms", now.outage.as_millis() as u64), ("rss_kib", Holdings::now().rss_kib)];
    ExtraCounts { name: "peers", counts, now: object(figures) }
}
