//! What is shown while a command runs: lines, and tables with a head and rows.

use super::colour::Colour;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveLine {
    pub text: String,
    pub colour: Option<Colour>,
}

impl LiveLine {
    /// A line without a colour.
    pub fn plain(text: String) -> Self {
        Self { text, colour: None }
    }

    /// A line about losses.
    pub fn bad(text: String) -> Self {
        Self { text, colour: Some(Colour::Bad) }
    }
}

/// A head, and the width of each column. A width of 0 hides the column.
#[derive(Clone, Copy, Debug)]
pub struct LiveTable<const N: usize> {
    pub head: [&'static str; N],
    pub widths: [usize; N],
}

impl<const N: usize> LiveTable<N> {
    pub fn head(&self) -> String {
        self.row(&self.head.map(str::to_owned))
    }

    pub fn row(&self, cells: &[String; N]) -> String {
        let shown = cells.iter().zip(self.widths).filter(|(_, width)| *width > 0);
        shown.map(|(cell, width)| format!("{cell:>width$}")).collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_align_with_their_head_and_hide_what_has_no_width() {
        let table = LiveTable { head: ["time", "Gbit/s", "slow"], widths: [5, 0, 6] };
        assert_eq!(table.head(), " time   slow");
        assert_eq!(table.row(&["1s".into(), "9".into(), "0".into()]), "   1s      0");
    }
}
