//! A table of figures while a command runs: a row for each queue that moved something.

use crate::report::table::Table;
use crate::report::{LiveLine, Terminal, fold, grouped, per_second, ranges};
use crate::traffic::PortSample;
use crate::traffic::figures::{QueueName, buffer_locations, losses};

/// The room for figures.
#[derive(Clone, Copy, Debug)]
pub struct TableRoom {
    columns: usize,
    rows: usize,
    /// The lines of the screen that the figures may take, if there is one.
    screen: Option<usize>,
}

impl TableRoom {
    /// The room on a terminal; else in a file.
    pub fn on(terminal: Option<Terminal>) -> Self {
        match terminal {
            // In addition to the table, there are the sums, the heads and the losses.
            Some(Terminal { columns, rows }) => {
                let columns = columns - INDENT.min(columns);
                Self { columns, rows: rows.max(14) - 10, screen: Some(rows.max(14) - 1) }
            }
            None => Self { columns: 92, rows: 16, screen: None },
        }
    }

    /// The rows left below these lines. The last line of the table stays.
    pub fn below(self, lines: &[LiveLine]) -> Self {
        let above: usize = lines.iter().map(|line| fold(&line.text, self.columns, INDENT).len()).sum();
        let Some(left) = self.screen.map(|screen| screen.saturating_sub(above + HEAD_AND_LAST)) else {
            return self;
        };
        // Each row may split the list of queues without a row once more.
        let rows = (left * self.columns).saturating_sub(REST) / (self.columns + RANGE);
        Self { rows: self.rows.min(rows), ..self }
    }

    /// Indents all lines except the first, on a screen. In a pipe they get an indent elsewhere.
    pub fn indent(self, lines: &mut [LiveLine]) {
        let others = lines.iter_mut().skip(1).filter(|_| self.screen.is_some());
        others.for_each(|line| line.text.insert_str(0, &" ".repeat(INDENT)));
    }
}

const INDENT: usize = 2;
/// The line with the heads, and the last line, about the queues without a row.
const HEAD_AND_LAST: usize = 2;
/// Columns of the last line without its list of queues, and of a part of the list: `100-120, `.
const REST: usize = 60;
const RANGE: usize = 9;

/// What a queue moved in some seconds, and its current state.
struct QueueRow<'a> {
    name: &'a QueueName,
    before: &'a PortSample,
    now: &'a PortSample,
    seconds: f64,
}

/// A column: its head, its width, its rank (a column yields to those of lower rank), and its cells.
struct QueueColumn {
    head: &'static str,
    width: usize,
    rank: u8,
    cell: fn(&QueueRow<'_>) -> String,
}

/// The columns in the order of display, if they fit.
const COLUMNS: [QueueColumn; 14] = [
    QueueColumn { head: "in/s", width: 11, rank: 0, cell: |row| row.rate(|at| at.nic.rx_packets) },
    QueueColumn { head: "Mbit/s", width: 8, rank: 4, cell: |row| row.mbit_s(|at| at.nic.rx_bytes) },
    QueueColumn { head: "out/s", width: 11, rank: 1, cell: |row| row.rate(PortSample::sent) },
    QueueColumn { head: "Mbit/s", width: 8, rank: 5, cell: |row| row.mbit_s(PortSample::sent_bytes) },
    QueueColumn { head: "idle pages", width: 10, rank: 3, cell: |row| grouped(row.idle()) },
    QueueColumn { head: "lost/s", width: 9, rank: 2, cell: |row| row.rate(lost) },
    QueueColumn { head: "fill", width: 6, rank: 6, cell: |row| row.located("fill") },
    QueueColumn { head: "receive", width: 7, rank: 7, cell: |row| row.located("receive") },
    QueueColumn { head: "transmit", width: 8, rank: 8, cell: |row| row.located("transmit") },
    QueueColumn { head: "completion", width: 10, rank: 9, cell: |row| row.located("completion") },
    QueueColumn { head: "tx_queue", width: 8, rank: 10, cell: |row| row.located("tx_queue") },
    QueueColumn { head: "ring full/s", width: 11, rank: 11, cell: |row| row.rate(losses::ring_full) },
    QueueColumn { head: "fill empty/s", width: 12, rank: 12, cell: |row| row.rate(fill_empty) },
    QueueColumn { head: "slow/s", width: 6, rank: 13, cell: |row| row.rate(|at| at.pool.0.alloc_slow) },
];

fn lost(at: &PortSample) -> u64 {
    losses::total(std::slice::from_ref(at))
}

fn fill_empty(at: &PortSample) -> u64 {
    at.nic.kernel.map_or(0, |kernel| kernel.rx_fill_ring_empty)
}

impl QueueRow<'_> {
    fn since(&self, of: fn(&PortSample) -> u64) -> u64 {
        of(self.now).saturating_sub(of(self.before))
    }

    fn rate(&self, of: fn(&PortSample) -> u64) -> String {
        per_second(self.since(of), self.seconds)
    }

    fn mbit_s(&self, of: fn(&PortSample) -> u64) -> String {
        format!("{:.1}", self.since(of) as f64 * 8e-6 / self.seconds)
    }

    /// Buffers at this place.
    fn located(&self, place: &str) -> String {
        let places = buffer_locations(std::slice::from_ref(self.now));
        grouped(places.iter().filter(|(name, _)| *name == place).map(|(_, count)| count).sum())
    }

    fn idle(&self) -> u64 {
        let pages = self.now.pool.1;
        pages.cache + pages.lanes + pages.ring
    }

    fn moved(&self) -> u64 {
        self.since(|at| at.nic.rx_packets) + self.since(PortSample::sent) + self.since(lost)
    }
}

/// The columns that fit beside names of this width, in their order.
fn fitting(names: usize, room: TableRoom) -> Vec<&'static QueueColumn> {
    let mut by_rank: Vec<_> = COLUMNS.iter().collect();
    by_rank.sort_by_key(|column| column.rank);
    let taken = by_rank.iter().scan(names, |width, column| {
        *width += 1 + column.width;
        Some(*width)
    });
    let last = if room.screen.is_some() { COLUMNS.len() } else { 6 }; // in a file, always these columns
    let fit = taken.take(last).take_while(|&width| width <= room.columns).count();
    COLUMNS.iter().filter(|column| (column.rank as usize) < fit).collect()
}

/// The lines for what moved in these seconds, by interface and queue. Empty for a single queue: the sums show
/// it.
pub fn lines(
    names: &[QueueName],
    before: &[PortSample],
    now: &[PortSample],
    seconds: f64,
    room: TableRoom,
) -> Vec<String> {
    if names.len() < 2 {
        return Vec::new();
    }
    let samples = names.iter().zip(before.iter().zip(now));
    let mut rows: Vec<_> =
        samples.map(|(name, (before, now))| QueueRow { name, before, now, seconds }).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.moved()));
    let mut quiet = rows.split_off(rows.partition_point(|row| row.moved() > 0).min(room.rows));
    // Interfaces in the order of the command's arguments.
    let interface = |of: &QueueName| names.iter().position(|name| name.interface == of.interface);
    let place = |row: &QueueRow<'_>| (interface(row.name), row.name.queue);
    rows.sort_by_key(place);
    quiet.sort_by_key(place);
    let mut lines = if rows.is_empty() { Vec::new() } else { table(&rows, room) };
    lines.extend(rest(&quiet, seconds));
    lines
}

fn table(rows: &[QueueRow<'_>], room: TableRoom) -> Vec<String> {
    let names = rows.iter().map(|row| row.name.to_string().len()).max().unwrap_or(0).max("queue".len());
    let columns = fitting(names, room);
    let heads = columns.iter().map(|column| (column.head, column.width));
    let table = Table::of_numbers([("queue", names)].into_iter().chain(heads));
    let line = |row: &QueueRow<'_>| {
        let cells = columns.iter().map(|column| (column.cell)(row));
        table.row([row.name.to_string()].into_iter().chain(cells))
    };
    std::iter::once(table.head()).chain(rows.iter().map(line)).collect()
}

/// What the queues without a row moved together, and their names.
fn rest(rows: &[QueueRow<'_>], seconds: f64) -> Option<String> {
    let mut all: Vec<(&str, Vec<u32>)> = Vec::new();
    for QueueRow { name, .. } in rows {
        match all.last_mut().filter(|(interface, _)| *interface == name.interface) {
            Some((_, queues)) => queues.push(name.queue),
            None => all.push((&name.interface, vec![name.queue])),
        }
    }
    // With spaces, where a long list can be folded.
    let which: Vec<_> =
        all.iter().map(|(of, queues)| format!("{of} {}", ranges(queues).replace(',', ", "))).collect();
    let moved: u64 = rows.iter().map(QueueRow::moved).sum();
    (!rows.is_empty()).then(|| match moved {
        0 => format!("nothing moved: {}", which.join("; ")),
        _ => format!("{}/s together: {}", per_second(moved, seconds), which.join("; ")),
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
        let shown = lines(&names, &before, &now, 2.0, TableRoom::on(None));
        let words: Vec<Vec<_>> = shown.iter().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(words.len(), 4, "{shown:#?}");
        assert_eq!(words[1], ["w", "0", "1,000", "1.0", "0", "0.0", "0", "0"]);
        assert_eq!(words[2], ["w", "1", "2,000", "2.0", "0", "0.0", "0", "3"]);
        assert_eq!(shown[3], "nothing moved: e 0-1");
        assert!(lines(&names[..1], &before, &now, 2.0, TableRoom::on(None)).is_empty(), "it is the sum");
    }

    #[test]
    fn many_queues_have_rows_for_those_that_move_most() {
        let names: Vec<_> = (0..20).map(|queue| QueueName { interface: "w".into(), queue }).collect();
        let now: Vec<_> = (0..20).map(|queue| received(100 + queue)).collect();
        let shown = lines(&names, &[PortSample::default(); 20], &now, 1.0, TableRoom::on(None));
        assert_eq!(shown.len(), 1 + 16 + 1);
        assert!(shown[1].trim_start().starts_with("w 4 "), "in the order of queues: {}", shown[1]);
        assert_eq!(shown[17], "406/s together: w 0-3");
    }

    #[test]
    fn many_queues_and_losses_fit_a_screen_with_the_last_line() {
        let names: Vec<_> =
            ["near0", "near1"].iter().flat_map(|of| (0..64).map(|queue| (*of, queue))).collect();
        let names = self::names(&names);
        let now: Vec<_> = (0..128).map(|at| received(100 + u64::from(at % 4 == 1))).collect();
        let before = [PortSample::default(); 128];
        for (lost, rows) in [(0, 24), (5, 24), (12, 24), (30, 24), (5, 50)] {
            let terminal = Terminal { columns: 80, rows };
            let mut above = vec![LiveLine::plain("short".into()); 4];
            above.resize(4 + lost, LiveLine::bad("lost: ".repeat(15))); // each takes two lines
            let room = TableRoom::on(Some(terminal)).below(&above);
            let table = lines(&names, &before, &now, 1.0, room);
            let folded: Vec<_> = table.iter().flat_map(|line| fold(line, 78, 4)).collect();
            assert!(folded.iter().all(|line| line.len() <= 78), "nothing wraps: {folded:#?}");
            assert!(folded.last().is_some_and(|last| last.ends_with("63")), "{folded:#?}");
            let most = (rows - 1).saturating_sub(4 + 2 * lost);
            assert!(folded.len() <= most.max(HEAD_AND_LAST), "{lost} {rows}: {folded:#?}");
        }
    }

    #[test]
    fn a_table_is_as_wide_as_there_is_room() {
        let names = names(&[("near0", 0), ("near0", 12)]);
        let mut now = [received(100_000_000), received(1)];
        let mut before = [PortSample::default(); 2];
        before[0].pool.0.alloc_slow = 60; // during the warm-up
        now[0].pool.0.alloc_slow = 60;
        let at = |columns, rows| {
            let room = TableRoom::on(Some(Terminal { columns, rows }));
            lines(&names, &before, &now, 1.0, room)
        };
        let words = |line: &str| line.split_whitespace().count();
        let widest = |lines: &[String]| lines.iter().map(String::len).max().unwrap_or(0);
        let (usual, wide) = (at(80, 24), at(200, 50));
        assert!(widest(&usual) <= 78 && words(&usual[0]) == 9, "{usual:#?}");
        assert!(widest(&wide) > 140 && widest(&wide) <= 198, "{wide:#?}");
        assert_eq!(words(&wide[1]), 2 + COLUMNS.len(), "the name has two: {wide:#?}");
        assert!(wide[1].ends_with(" 0"), "none was slow since: {wide:#?}");
        let narrow = at(50, 24);
        assert!(widest(&narrow) <= 48 && narrow[0].ends_with("lost/s"), "{narrow:#?}");
    }
}
