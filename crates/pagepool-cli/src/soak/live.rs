//! The figures that are shown while it runs: one line every five seconds.

use std::time::Duration;

use super::counts::Counts;
use super::process::Holdings;
use super::schedule::Schedule;
use crate::demo::course::Sample;
use crate::engine::figures;
use crate::report::number::grouped;

const EVERY: Duration = Duration::from_secs(5);

const COLUMNS: usize = 11;
const HEAD: [&str; COLUMNS] =
    ["time", "packets/s", "arrived", "damaged", "rx", "tx", "held", "slow", "fl/kill", "outage", "MiB"];
/// No line is longer than 80.
const WIDTHS: [usize; COLUMNS] = [6, 9, 13, 7, 5, 5, 5, 4, 7, 6, 5];

const LEGEND: &str = "\
Pages are under rx and tx with the sockets, and held by the forwarding loop; slow
counts calls to the arena. An outage is the longest time in ms without packets, of
when nothing is in their way.";

/// What was said last.
#[derive(Debug)]
pub struct Live {
    warm: Sample,
    at: Duration,
    arrived: u64,
}

impl Live {
    /// Nothing yet. What is shown is counted from the end of the warm-up.
    pub fn new(warm: Sample) -> Self {
        Self { warm, at: Duration::ZERO, arrived: 0 }
    }

    /// What will be seen.
    pub fn begin(&self, schedule: &Schedule) {
        let Schedule { seconds, flap_every, kill_every } = schedule;
        println!(
            "Two peers at full speed for {seconds} s. An interface goes down every {flap_every} s, and a peer is killed \
             every {kill_every} s.\n{LEGEND}\n\n{}",
            row(&HEAD.map(str::to_owned))
        );
    }

    /// Whether a line is to be said.
    pub fn is_due(&self, now: Duration) -> bool {
        now >= self.at + EVERY
    }

    /// Says it.
    pub fn line(
        &mut self,
        now: Duration,
        sample: &Sample,
        peers: [Counts; 2],
        (flaps, kills): (u64, u64),
        outage: Duration,
    ) {
        let arrived = peers.iter().map(|peer| peer.arrived).sum();
        let rate = (arrived - self.arrived) as f64 / (now - self.at).as_secs_f64();
        let places = figures::places(sample);
        let cells = [
            format!("{}s", now.as_secs()),
            grouped(rate as u64),
            grouped(arrived),
            peers.iter().map(|peer| peer.damaged + peer.again).sum::<u64>().to_string(),
            places.rx.to_string(),
            places.tx.to_string(),
            places.held.to_string(),
            figures::slow(&self.warm, sample).to_string(),
            format!("{flaps}/{kills}"),
            outage.as_millis().to_string(),
            (Holdings::now().rss_kib >> 10).to_string(),
        ];
        println!("{}", row(&cells));
        (self.at, self.arrived) = (now, arrived);
    }
}

fn row(cells: &[String; COLUMNS]) -> String {
    let cells = cells.iter().zip(WIDTHS).map(|(cell, width)| format!("{cell:>width$}"));
    cells.collect::<Vec<_>>().join(" ")
}
