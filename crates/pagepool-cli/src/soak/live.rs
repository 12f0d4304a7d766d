//! The figures that are shown while a soak runs: one line every five seconds.

use std::time::Duration;

use super::counts::PeerCounts;
use super::holdings::Holdings;
use super::schedule::Schedule;
use crate::engine::figures;
use crate::engine::run_state::Sample;
use crate::report::live_table::LiveTable;
use crate::report::number::grouped;
use crate::report::output;

const EVERY: Duration = Duration::from_secs(5);

/// No line is longer than 80.
const TABLE: LiveTable<12> = LiveTable {
    head: [
        "time",
        "packets/s",
        "arrived",
        "damaged",
        "rx",
        "tx",
        "in_use",
        "slow",
        "flaps",
        "kills",
        "outage",
        "MiB",
    ],
    widths: [5, 9, 11, 7, 4, 4, 6, 4, 5, 5, 6, 3],
};

const LEGEND: &str = "\
rx and tx: pages at the sockets. in_use: pages with the forwarder. slow: calls
to the arena. flaps: interfaces taken down. kills: peers killed. outage: longest
time in ms without packets, outside faults. MiB: resident memory.";

/// What was shown last.
#[derive(Debug)]
pub struct SoakTable {
    warm: Sample,
    at: Duration,
    arrived: u64,
}

impl SoakTable {
    /// Counts from the end of the warm-up.
    pub fn new(warm: Sample) -> Self {
        Self { warm, at: Duration::ZERO, arrived: 0 }
    }

    /// Prints the head.
    pub fn begin(&self, schedule: &Schedule) {
        let Schedule { seconds, flap_every, kill_every } = schedule;
        output::line(format_args!(
            "Two peers send at full speed for {seconds} s. An interface goes down every {flap_every} s, and \
             a peer is killed every {kill_every} s.\n{LEGEND}\n\n{}",
            TABLE.head()
        ));
    }

    /// Whether a line is due.
    pub fn is_due(&self, now: Duration) -> bool {
        now >= self.at + EVERY
    }

    /// Prints a line.
    pub fn line(
        &mut self,
        now: Duration,
        sample: &Sample,
        peers: [PeerCounts; 2],
        (flaps, kills): (u64, u64),
        outage: Duration,
    ) {
        let arrived = peers.iter().map(|peer| peer.arrived).sum();
        let rate = (arrived - self.arrived) as f64 / (now - self.at).as_secs_f64();
        let pages = figures::page_locations(&sample.ports);
        let cells = [
            format!("{}s", now.as_secs()),
            grouped(rate as u64),
            grouped(arrived),
            peers.iter().map(|peer| peer.damaged + peer.again).sum::<u64>().to_string(),
            pages.rx.to_string(),
            pages.tx.to_string(),
            pages.in_use.to_string(),
            figures::slow(&self.warm.ports, &sample.ports).to_string(),
            flaps.to_string(),
            kills.to_string(),
            outage.as_millis().to_string(),
            (Holdings::now().rss_kib >> 10).to_string(),
        ];
        output::line(TABLE.row(&cells));
        (self.at, self.arrived) = (now, arrived);
    }
}
