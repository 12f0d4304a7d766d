//! Tables: texts aligned left, numbers right; at most as wide as the terminal.

use super::number::grouped;
use super::terminal::{Terminal, width};

#[derive(Clone, Copy, Debug)]
pub struct TableColumn {
    pub head: &'static str,
    /// The least number of characters. A width of 0 hides a column that does not grow.
    pub width: usize,
    /// Whether it has texts, not numbers. Texts are cut to fit.
    pub is_text: bool,
    /// Whether it takes the remaining width, if its texts need it.
    pub grows: bool,
}

pub const fn number(head: &'static str, width: usize) -> TableColumn {
    TableColumn { head, width, is_text: false, grows: false }
}

pub const fn text(head: &'static str, width: usize) -> TableColumn {
    TableColumn { head, width, is_text: true, grows: false }
}

#[derive(Debug)]
pub struct Table(Vec<TableColumn>);

impl Table {
    /// Columns of numbers: heads and widths.
    pub fn of_numbers(columns: impl IntoIterator<Item = (&'static str, usize)>) -> Self {
        Self(columns.into_iter().map(|(head, width)| number(head, width)).collect())
    }

    /// Fits the columns to the longest text of the column that grows: in a pipe all of it, on a terminal as
    /// much as does not wrap. The last column of a terminal stays empty, because some wrap there.
    pub fn fitted(columns: &[TableColumn], longest: usize, terminal: Option<Terminal>) -> Self {
        let fixed: usize = columns.iter().filter(|column| !column.grows).map(|column| column.width).sum();
        let room =
            terminal.map_or(usize::MAX, |terminal| terminal.columns.saturating_sub(fixed + columns.len()));
        let grown = |column: &TableColumn| match column.grows {
            true => TableColumn { width: longest.max(width(column.head)).min(room.max(4)), ..*column },
            false => *column,
        };
        Self(columns.iter().map(grown).collect())
    }

    pub fn head(&self) -> String {
        self.row(self.0.iter().map(|column| column.head.to_owned()))
    }

    pub fn row(&self, cells: impl IntoIterator<Item = String>) -> String {
        let cell = |(column, cell): (&TableColumn, String)| {
            let wide = column.width;
            match column.is_text {
                true => format!("{:<wide$}", cut(&cell, wide)),
                false => format!("{cell:>wide$}"),
            }
        };
        let shown = self.0.iter().zip(cells).filter(|(column, _)| column.width > 0);
        shown.map(cell).collect::<Vec<_>>().join(" ").trim_end().to_owned()
    }
}

/// Cuts a text that is too long, and marks the cut.
pub fn cut(text: &str, columns: usize) -> String {
    match width(text) > columns {
        true => text.chars().take(columns.saturating_sub(1)).chain((columns > 0).then_some('…')).collect(),
        false => text.to_owned(),
    }
}

/// A number in a column of this width: in thousands, millions and so on if its digits do not fit.
pub fn fitted(number: u64, columns: usize) -> String {
    let whole = grouped(number);
    if whole.len() <= columns {
        return whole;
    }
    let (mut of, mut unit) = (number as f64, ' ');
    for next in ['k', 'M', 'G', 'T', 'P', 'E'] {
        if of < 999.5 {
            break;
        }
        (of, unit) = (of / 1000.0, next);
    }
    let decimals = match of {
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    };
    format!("{of:.decimals$}{unit}")
}

/// A rate in a column of this width. A small rate has a decimal.
pub fn rate(rate: Option<f64>, columns: usize) -> String {
    match rate {
        None => "-".into(),
        Some(rate) if rate > 0.0 && rate < 0.05 => "<0.1".into(),
        Some(rate) if rate > 0.0 && rate < 9.95 && rate.fract() != 0.0 => format!("{rate:.1}"),
        Some(rate) => fitted(rate.round() as u64, columns),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [TableColumn; 3] =
        [number("id", 3), TableColumn { grows: true, ..text("pool", 0) }, number("out", 5)];

    #[test]
    fn names_have_the_room_that_is_left() {
        let terminal = |columns| Some(Terminal { columns, rows: 24 });
        let cells = || ["7", "averylongname", "12"].map(str::to_owned);
        let narrow = Table::fitted(&COLUMNS, 13, terminal(20));
        assert_eq!(narrow.head(), " id pool        out");
        assert_eq!(narrow.row(cells()), "  7 averylon…    12");
        assert!(width(&narrow.row(cells())) < 20);
        for wide in [terminal(200), None] {
            let table = Table::fitted(&COLUMNS, 13, wide);
            assert_eq!(table.row(cells()), "  7 averylongname    12");
        }
    }

    #[test]
    fn rows_align_with_their_head_and_hide_what_has_no_width() {
        let table = Table::of_numbers([("time", 5), ("Gbit/s", 0), ("slow", 6)]);
        assert_eq!(table.head(), " time   slow");
        assert_eq!(table.row(["1s", "9", "0"].map(str::to_owned)), "   1s      0");
    }

    #[test]
    fn a_number_without_room_has_a_unit() {
        let all = [0, 999_999, 1_000_000, 9_999_999, 123_456_789, u64::MAX].map(|n| fitted(n, 7));
        assert_eq!(all, ["0", "999,999", "1.00M", "10.0M", "123M", "18.4E"]);
        assert_eq!(fitted(1_234, 5), "1,234");
        let rates = [None, Some(0.0), Some(1.0 / 60.0), Some(0.5), Some(3.0), Some(12.4), Some(1_234_567.8)];
        assert_eq!(rates.map(|of| rate(of, 7)), ["-", "0", "<0.1", "0.5", "3", "12", "1.23M"]);
    }
}
