//! The rows of the figures that are printed while a command runs: one for each queue that moves something.

use super::losses;
use super::queue_name::QueueName;
use super::setup::listed;
use crate::engine::port_sample::PortSample;
use crate::report::live_table::LiveTable;
use crate::report::number::grouped;

/// Most rows: what a terminal shows at once. The queues that move least are told in one line.
const ROWS: usize = 16;
const TABLE: LiveTable<7> = LiveTable {
    head: ["queue", "in/s", "Mbit/s", "out/s", "Mbit/s", "idle pages", "lost/s"],
    widths: [18, 12, 9, 12, 9, 10, 9],
};

/// What a queue moved.
struct QueueRow<'a> {
    name: &'a QueueName,
    received: u64,
    received_bytes: u64,
    sent: u64,
    sent_bytes: u64,
    lost: u64,
    idle: u64,
}

impl<'a> QueueRow<'a> {
    fn of(name: &'a QueueName, before: &PortSample, now: &PortSample) -> Self {
        let moved = |of: fn(&PortSample) -> u64| of(now).saturating_sub(of(before));
        let lost = |at: &PortSample| losses::total(std::slice::from_ref(at));
        let pages = now.pool.1;
        Self {
            name,
            received: moved(|at| at.nic.rx_packets),
            received_bytes: moved(|at| at.nic.rx_bytes),
            sent: moved(PortSample::sent),
            sent_bytes: moved(PortSample::sent_bytes),
            lost: lost(now).saturating_sub(lost(before)),
            idle: pages.cache + pages.lanes + pages.ring,
        }
    }

    fn moved(&self) -> u64 {
        self.received + self.sent + self.lost
    }

    fn cells(&self, seconds: f64) -> [String; 7] {
        let rate = |count: u64| grouped((count as f64 / seconds) as u64);
        let mbit_s = |bytes: u64| format!("{:.1}", bytes as f64 * 8e-6 / seconds);
        [
            self.name.to_string(),
            rate(self.received),
            mbit_s(self.received_bytes),
            rate(self.sent),
            mbit_s(self.sent_bytes),
            grouped(self.idle),
            rate(self.lost),
        ]
    }
}

/// The lines for what moved in these seconds, by interface and queue; none for a single queue, which is the
/// sum.
pub fn lines(names: &[QueueName], before: &[PortSample], now: &[PortSample], seconds: f64) -> Vec<String> {
    if names.len() < 2 {
        return Vec::new();
    }
    let samples = before.iter().zip(now);
    let mut rows: Vec<_> =
        names.iter().zip(samples).map(|(name, (before, now))| QueueRow::of(name, before, now)).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.moved()));
    let mut quiet = rows.split_off(rows.partition_point(|row| row.moved() > 0).min(ROWS));
    let place = |row: &QueueRow<'_>| (interface_at(names, row.name), row.name.queue);
    rows.sort_by_key(place);
    quiet.sort_by_key(place);
    let mut lines = Vec::new();
    if !rows.is_empty() {
        lines.push(TABLE.head());
        lines.extend(rows.iter().map(|row| TABLE.row(&row.cells(seconds))));
    }
    lines.extend(rest(&quiet, seconds));
    lines
}

/// Interfaces are told in the order of the command's arguments.
fn interface_at(names: &[QueueName], of: &QueueName) -> usize {
    names.iter().position(|name| name.interface == of.interface).unwrap_or(0)
}

/// What the queues without a row moved together, and which they are.
fn rest(rows: &[QueueRow<'_>], seconds: f64) -> Option<String> {
    let mut all: Vec<(&str, Vec<u32>)> = Vec::new();
    for QueueRow { name, .. } in rows {
        match all.last_mut().filter(|(interface, _)| *interface == name.interface) {
            Some((_, queues)) => queues.push(name.queue),
            None => all.push((&name.interface, vec![name.queue])),
        }
    }
    let which: Vec<_> =
        all.iter().map(|(interface, queues)| format!("{interface} {}", listed(queues))).collect();
    let moved: u64 = rows.iter().map(QueueRow::moved).sum();
    (!rows.is_empty()).then(|| match moved {
        0 => format!("nothing moved: {}", which.join("; ")),
        _ => format!("{}/s together: {}", grouped((moved as f64 / seconds) as u64), which.join("; ")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(of: &[(&str, u32)]) -> Vec<QueueName> {
        of.iter().map(|&(interface, queue)| QueueName { interface: interface.into(), queue }).collect()
    }

    fn received(packets: u64) -> PortSample {
        let mut at = PortSample::default();
        (at.nic.rx_packets, at.nic.rx_bytes) = (packets, packets * 125);
        at
    }

    #[test]
    fn each_queue_that_moves_has_a_row_and_the_others_one_line() {
        let names = names(&[("w", 0), ("e", 0), ("w", 1), ("e", 1)]);
        let before = [PortSample::default(); 4];
        let mut now = [received(2_000), received(0), received(4_000), received(0)];
        now[2].nic.rx_no_buffer = 6;
        let shown = lines(&names, &before, &now, 2.0);
        let words: Vec<Vec<_>> = shown.iter().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(words.len(), 4, "{shown:#?}");
        assert_eq!(words[1], ["w", "0", "1,000", "1.0", "0", "0.0", "0", "0"]);
        assert_eq!(words[2], ["w", "1", "2,000", "2.0", "0", "0.0", "0", "3"]);
        assert_eq!(shown[3], "nothing moved: e 0-1");
        assert!(lines(&names[..1], &before, &now, 2.0).is_empty(), "it is the sum");
    }

    #[test]
    fn many_queues_have_rows_for_those_that_move_most() {
        let names: Vec<_> = (0..20).map(|queue| QueueName { interface: "w".into(), queue }).collect();
        let now: Vec<_> = (0..20).map(|queue| received(100 + queue)).collect();
        let shown = lines(&names, &[PortSample::default(); 20], &now, 1.0);
        assert_eq!(shown.len(), 1 + ROWS + 1);
        assert!(shown[1].trim_start().starts_with("w 4 "), "in the order of queues: {}", shown[1]);
        assert_eq!(shown[17], "406/s together: w 0-3");
    }
}
