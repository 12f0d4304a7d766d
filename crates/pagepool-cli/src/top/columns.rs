//! The columns of the table. To add one, add a row to [`COLUMNS`]: cell, order and help line follow.

use std::cmp::Ordering;
use std::time::Duration;

use pagepool_watch::commands::bytes;

use super::rows::{RowRates, TopRow};
use crate::report::table::{cut, fitted, rate};
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

const TEXT: bool = true;
const NUMBER: bool = false;

/// Makes the table of columns. A row: head, letter, width, kind, rank, meaning; cell; order.
macro_rules! columns {
    ($($head:literal $letter:ident$(($key:literal))? $width:literal $is_text:ident $rank:literal
        $about:literal $cell:expr, $order:expr;)+) => {
        /// All columns, from left to right; the bar follows.
        pub const COLUMNS: &[TopColumn] = &[$(TopColumn {
            head: $head,
            letter: $letter$(($key))?,
            about: $about,
            width: $width,
            is_text: $is_text,
            rank: $rank,
            cell: $cell,
            order: $order,
        }),+];
    };
}

columns! {
    "PID" Some('N') 7 NUMBER 3 "the process ID; [kernel] has none"
        |row, _| row.pid.map_or("-".into(), |pid| pid.to_string()), |a, b| a.pid.cmp(&b.pid);
    "PROCESS" None 15 TEXT 0 "the name that it publishes under"
        |row, _| row.process.clone(),
        |a, b| (a.pid.is_none(), &a.process).cmp(&(b.pid.is_none(), &b.process)); // processes first
    "POOL" None 31 TEXT 0 "the pool; for the kernel: interface and number"
        |row, _| row.pool.clone(), |a, b| a.pool.cmp(&b.pool);
    "THREAD" None 15 TEXT 9 "the thread that owns it"
        |row, _| row.thread.clone(), |a, b| a.thread.cmp(&b.thread);
    "ALLOC/s" Some('P') 7 NUMBER 0 "pages and fragments allocated in a second"
        |row, width| match row.alive {
            true => rate(row.rates.map(|rates| rates.allocated), width),
            false => "DEAD".into(),
        },
        |a, b| by(a, b, |rates| Some(rates.allocated));
    "RETN/s" None 7 NUMBER 7 "pages returned in a second"
        |row, width| rate(row.rates.map(|rates| rates.returned), width),
        |a, b| by(a, b, |rates| Some(rates.returned));
    "RECYC%" Some('R') 6 NUMBER 2 "allocated pages that had been used before; 100.00 in a warm pool"
        |row, _| row.rates.and_then(|rates| rates.recycled).map_or("-".into(), |of| format!("{of:.2}")),
        |a, b| by(a, b, |rates| rates.recycled);
    "SLOW/s" Some('S') 6 NUMBER 1 "calls to the arena in a second; 0 in a warm pool"
        |row, width| rate(row.rates.map(|rates| rates.slow), width),
        |a, b| by(a, b, |rates| Some(rates.slow));
    "STARV/s" Some('V') 7 NUMBER 2 "allocations and received packets that found no buffer, in a second"
        |row, width| rate(row.rates.and_then(|rates| rates.starved), width),
        |a, b| by(a, b, |rates| rates.starved);
    "PAGES" None 7 NUMBER 6 "pages that joined the pool and have not left"
        |row, width| fitted(row.pages, width), |a, b| a.pages.cmp(&b.pages);
    "MEM" Some('M') 6 NUMBER 5 "the bytes of these pages"
        |row, _| bytes(row.bytes), |a, b| a.bytes.cmp(&b.bytes);
    "OUT" Some('O') 7 NUMBER 2 "pages in use by the program or its devices"
        |row, width| row.out.map_or("-".into(), |out| fitted(out, width)), |a, b| a.out.cmp(&b.out);
    "OLDEST" Some('T') 6 NUMBER 4 "age of the oldest buffer in use, if the pool tracks it"
        |row, _| row.oldest.map_or("-".into(), age), |a, b| a.oldest.cmp(&b.oldest);
}

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
