//! The figures that are printed while a command runs: some lines each time.

use std::time::Duration;

use super::losses::LOSSES;
use super::queue_name::QueueName;
use super::queue_table::{self, TableRoom};
use crate::engine::buffer_locations::BufferLocations;
use crate::engine::figures;
use crate::engine::port_sample::PortSample;
use crate::engine::run_state::Sample;
use crate::report::live_table::LiveLine;
use crate::report::number::grouped;

/// What was seen last, and when the warm-up was over.
pub struct LiveFigures {
    warm: Sample,
    /// Of the ports, in the order of the samples.
    names: Vec<QueueName>,
    at: Duration,
    before: Sample,
}

impl LiveFigures {
    /// Before the first lines.
    pub fn new(warm: Sample, names: Vec<QueueName>) -> Self {
        Self { before: warm.clone(), at: Duration::ZERO, warm, names }
    }

    /// The lines for what moved since the last ones.
    pub fn lines(&mut self, at: Duration, now: Sample, room: TableRoom) -> Vec<LiveLine> {
        let seconds = (at - self.at).as_secs_f64();
        let ports = &now.ports;
        let rate = |of: fn(&[PortSample]) -> (u64, u64)| {
            let ((packets, bytes), (old, old_bytes)) = (of(ports), of(&self.before.ports));
            let packets = packets.saturating_sub(old) as f64 / seconds;
            let mbit_s = bytes.saturating_sub(old_bytes) as f64 * 8e-6 / seconds;
            format!("{:>11}/s {mbit_s:>8.1} Mbit/s", grouped(packets as u64))
        };
        let mut lines = vec![
            format!("{:>4}s  in {}   out {}", at.as_secs(), rate(received), rate(sent)),
            pool_line(ports, &self.warm.ports),
            BufferLocations::of(ports).to_string(),
        ];
        if let Some(checked) = now.checked {
            let (good, corrupt) = (grouped(checked.good), grouped(checked.corrupt));
            lines.push(format!("numbered: good {good}, damaged {corrupt}"));
        }
        lines.extend(figures::kernel_problems(ports));
        let mut lines: Vec<_> = lines.into_iter().map(LiveLine::plain).collect();
        lines.extend(loss_lines(&self.before.ports, ports, seconds).into_iter().map(LiveLine::bad));
        let table = queue_table::lines(&self.names, &self.before.ports, ports, seconds, room.below(&lines));
        lines.extend(table.into_iter().map(LiveLine::plain));
        (self.at, self.before) = (at, now);
        room.indent(&mut lines);
        lines
    }
}

/// Packets and bytes.
fn received(ports: &[PortSample]) -> (u64, u64) {
    (ports.iter().map(|at| at.nic.rx_packets).sum(), ports.iter().map(|at| at.nic.rx_bytes).sum())
}

fn sent(ports: &[PortSample]) -> (u64, u64) {
    (ports.iter().map(PortSample::sent).sum(), ports.iter().map(PortSample::sent_bytes).sum())
}

fn pool_line(ports: &[PortSample], warm: &[PortSample]) -> String {
    let pages = figures::page_locations(ports);
    let recycled = figures::recycled_percent(warm, ports);
    let recycled = recycled.map_or("nothing".into(), |percent| format!("{percent:.2} %"));
    let (slow, idle) = (grouped(figures::slow(warm, ports)), grouped(pages.cache + pages.lanes + pages.ring));
    format!("pool: recycled {recycled}, slow {slow}; idle {idle}")
}

/// Packets a second that were lost, by reason.
fn loss_lines(before: &[PortSample], now: &[PortSample], seconds: f64) -> Vec<String> {
    let new = |loss: &super::losses::Loss| loss.count(now).saturating_sub(loss.count(before));
    let lost = LOSSES.iter().map(|loss| (new(loss), loss.why(before, now))).filter(|(new, _)| *new > 0);
    lost.map(|(new, why)| format!("lost {}/s: {why}", grouped((new as f64 / seconds) as u64))).collect()
}
