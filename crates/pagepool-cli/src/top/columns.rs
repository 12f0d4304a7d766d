//! The columns of the table. To add one, add a row to [`COLUMNS`]: cell, order and help line follow.

use std::cmp::Ordering;
use std::time::Duration;

use pagepool_watch::commands::bytes;

use super::rows::{RowRates, TopRow};
use crate::observing::table::{fitted, rate};
use crate::report::width;

pub struct TopColumn {
    pub head: &'static str,
    /// The key that sorts by this column.
    pub letter: Option<char>,
    /// The meaning, for the help.
    pub about: &'static str,
    /// The width of a number, or the maximum of a text, in characters.
    width: usize,
    pub is_text: bool,
    /// A narrow screen drops the columns of the highest rank first.
    rank: u8,
    cell: fn(&TopRow, usize) -> String,
    order: fn(&TopRow, &TopRow) -> Ordering,
}

/// All columns, from left to right; the bar follows.
pub const COLUMNS: [TopColumn; 13] = [
    TopColumn {
        head: "PID",
        letter: Some('N'),
        about: "the process ID; [kernel] has none",
        width: 7,
        is_text: false,
        rank: 3,
        cell: |row, _| row.pid.map_or("-".into(), |pid| pid.to_string()),
        order: |a, b| a.pid.cmp(&b.pid),
    },
    TopColumn {
        head: "PROCESS",
        letter: None,
        about: "the name that it publishes under",
        width: 15,
        is_text: true,
        rank: 0,
        cell: |row, _| row.process.clone(),
        order: |a, b| (a.pid.is_none(), &a.process).cmp(&(b.pid.is_none(), &b.process)), // processes first
    },
    TopColumn {
        head: "POOL",
        letter: None,
        about: "the pool; for the kernel: interface and number",
        width: 31,
        is_text: true,
        rank: 0,
        cell: |row, _| row.pool.clone(),
        order: |a, b| a.pool.cmp(&b.pool),
    },
    TopColumn {
        head: "THREAD",
        letter: None,
        about: "the thread that owns it",
        width: 15,
        is_text: true,
        rank: 9,
        cell: |row, _| row.thread.clone(),
        order: |a, b| a.thread.cmp(&b.thread),
    },
    TopColumn {
        head: "ALLOC/s",
        letter: Some('P'),
        about: "pages and fragments allocated in a second",
        width: 7,
        is_text: false,
        rank: 0,
        cell: |row, width| match row.alive {
            true => rate(row.rates.map(|rates| rates.allocated), width),
            false => "DEAD".into(),
        },
        order: |a, b| by(a, b, |rates| Some(rates.allocated)),
    },
    TopColumn {
        head: "RETN/s",
        letter: None,
        about: "pages returned in a second",
        width: 7,
        is_text: false,
        rank: 7,
        cell: |row, width| rate(row.rates.map(|rates| rates.returned), width),
        order: |a, b| by(a, b, |rates| Some(rates.returned)),
    },
    TopColumn {
        head: "RECYC%",
        letter: Some('R'),
        about: "allocated pages that had been used before; 100.00 in a warm pool",
        width: 6,
        is_text: false,
        rank: 2,
        cell: |row, _| {
            let recycled = row.rates.and_then(|rates| rates.recycled);
            recycled.map_or("-".into(), |percent| format!("{percent:.2}"))
        },
        order: |a, b| by(a, b, |rates| rates.recycled),
    },
    TopColumn {
        head: "SLOW/s",
        letter: Some('S'),
        about: "calls to the arena in a second; 0 in a warm pool",
        width: 6,
        is_text: false,
        rank: 1,
        cell: |row, width| rate(row.rates.map(|rates| rates.slow), width),
        order: |a, b| by(a, b, |rates| Some(rates.slow)),
    },
    TopColumn {
        head: "STARV/s",
        letter: Some('V'),
        about: "allocations and received packets that found no buffer, in a second",
        width: 7,
        is_text: false,
        rank: 2,
        cell: |row, width| rate(row.rates.and_then(|rates| rates.starved), width),
        order: |a, b| by(a, b, |rates| rates.starved),
    },
    TopColumn {
        head: "PAGES",
        letter: None,
        about: "pages that joined the pool and have not left",
        width: 7,
        is_text: false,
        rank: 6,
        cell: |row, width| fitted(row.pages, width),
        order: |a, b| a.pages.cmp(&b.pages),
    },
    TopColumn {
        head: "MEM",
        letter: Some('M'),
        about: "the bytes of these pages",
        width: 6,
        is_text: false,
        rank: 5,
        cell: |row, _| bytes(row.bytes),
        order: |a, b| a.bytes.cmp(&b.bytes),
    },
    TopColumn {
        head: "OUT",
        letter: Some('O'),
        about: "pages in use by the program or its devices",
        width: 7,
        is_text: false,
        rank: 2,
        cell: |row, width| row.out.map_or("-".into(), |out| fitted(out, width)),
        order: |a, b| a.out.cmp(&b.out),
    },
    TopColumn {
        head: "OLDEST",
        letter: Some('T'),
        about: "age of the oldest buffer in use, if the pool tracks it",
        width: 6,
        is_text: false,
        rank: 4,
        cell: |row, _| row.oldest.map_or("-".into(), age),
        order: |a, b| a.oldest.cmp(&b.oldest),
    },
];

const LEAST_BAR: usize = 10;
/// The least bar while columns of a rank above 4 remain.
const GOOD_BAR: usize = 14;
const LEAST_NAME: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FittedColumn {
    /// An index into [`COLUMNS`].
    pub at: usize,
    pub width: usize,
}

/// Returns the columns that fit into `columns` characters, and the room left for the bar.
pub fn fit(rows: &[&TopRow], columns: usize) -> (Vec<FittedColumn>, usize) {
    let mut fitted: Vec<_> =
        (0..COLUMNS.len()).map(|at| FittedColumn { at, width: wanted(at, rows) }).collect();
    let used = |fitted: &[FittedColumn]| fitted.iter().map(|column| column.width + 1).sum::<usize>();
    loop {
        let highest = fitted.iter().map(|column| COLUMNS[column.at].rank).max().unwrap_or(0);
        let bar = if highest > 4 { GOOD_BAR } else { LEAST_BAR };
        if highest == 0 || used(&fitted) + bar <= columns {
            break;
        }
        let last = fitted.iter().rposition(|column| COLUMNS[column.at].rank == highest);
        last.map(|at| fitted.remove(at));
    }
    // Narrow the widest texts until the bar fits.
    while used(&fitted) + LEAST_BAR > columns {
        let texts = fitted.iter_mut().filter(|column| COLUMNS[column.at].is_text);
        let Some(widest) = texts.max_by_key(|column| column.width).filter(|of| of.width > LEAST_NAME) else {
            break;
        };
        widest.width -= 1;
    }
    let room = columns.saturating_sub(used(&fitted));
    (fitted, if room >= LEAST_NAME { room } else { 0 })
}

/// The width that a column wants: for texts and PIDs that of the longest cell.
fn wanted(at: usize, rows: &[&TopRow]) -> usize {
    let column = &COLUMNS[at];
    let longest = || rows.iter().map(|row| width(&(column.cell)(row, column.width))).max().unwrap_or(0);
    match column.is_text || at == 0 {
        true => longest().clamp(width(column.head), column.width),
        false => column.width,
    }
}

impl TopColumn {
    pub fn cell(&self, row: &TopRow, columns: usize) -> String {
        self.aligned(&(self.cell)(row, columns), columns)
    }

    pub fn aligned(&self, text: &str, columns: usize) -> String {
        match self.is_text {
            true => format!("{:<columns$}", cut(text, columns)),
            false => format!("{:>columns$}", cut(text, columns)),
        }
    }

    /// The order that users want: texts from A, numbers from the largest.
    pub fn order(&self, a: &TopRow, b: &TopRow) -> Ordering {
        match self.is_text || self.head == COLUMNS[0].head {
            true => (self.order)(a, b),
            false => (self.order)(b, a),
        }
    }
}

/// Cuts a long text, with an ellipsis.
pub fn cut(text: &str, columns: usize) -> String {
    match width(text) > columns {
        true => text.chars().take(columns.saturating_sub(1)).chain((columns > 0).then_some('…')).collect(),
        false => text.to_owned(),
    }
}

/// Formats a time in at most six characters.
pub fn age(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0 => format!("{}ms", time.as_millis()),
        1..100 => format!("{seconds}s"),
        100..6000 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        6000..360_000 => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
        360_000..8_640_000 => format!("{}d{:02}h", seconds / 86_400, seconds / 3600 % 24),
        _ => format!("{}d", (seconds / 86_400).min(99_999)),
    }
}

fn by(a: &TopRow, b: &TopRow, of: fn(RowRates) -> Option<f64>) -> Ordering {
    let [a, b] = [a, b].map(|row| row.rates.and_then(of).unwrap_or(-1.0)); // rows without a rate sort below 0
    a.total_cmp(&b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_their_room() {
        let ages = [0.25, 59.0, 125.0, 7_500.0, 400_000.0, 1e9].map(Duration::from_secs_f64).map(age);
        assert_eq!(ages, ["250ms", "59s", "2m05s", "2h05m", "4d15h", "11574d"]);
    }

    #[test]
    fn no_letter_sorts_by_two_columns() {
        let mut letters: Vec<_> = COLUMNS.iter().filter_map(|column| column.letter).collect();
        let count = letters.len();
        letters.sort_unstable();
        letters.dedup();
        assert_eq!(letters.len(), count);
    }
}
