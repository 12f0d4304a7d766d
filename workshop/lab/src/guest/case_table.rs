//! The table of guest results in a document: the lines between two marks.

use std::fmt::Write;

use super::case::{Case, CaseResult};
use super::case_list::{CASE_GUESTS, CASES};

const HEAD: &str = "<!-- cases: written by `guest cases --table` -->\n\n\
                    | guest | case | kernel | result | date |\n|---|---|---|---|---|\n";
const END: &str = "\n<!-- end of cases -->";

/// The table of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaseTable {
    before: String,
    rows: Vec<String>,
    after: String,
}

impl CaseTable {
    /// Finds the table; `None` if the document has none.
    pub fn of(document: &str) -> Option<Self> {
        let (before, rest) = document.split_once(HEAD)?;
        let (rows, after) = rest.split_once(END)?;
        let rows = rows.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect();
        Some(Self { before: before.to_owned(), rows, after: after.to_owned() })
    }

    /// Returns the document with new rows for `results`; other rows stay.
    pub fn with(&self, results: &[CaseResult], date: &str) -> String {
        let mut text = format!("{}{HEAD}", self.before);
        for case in CASES {
            let result = results
                .iter()
                .find(|result| result.case.guest == case.guest && result.case.name == case.name);
            let row = match result {
                Some(result) if !result.kernel.is_empty() => {
                    row(case, &result.kernel, &result.shown().replace('|', "/"), date)
                }
                _ => self.row_of(case).map_or_else(|| row(case, "", "not run yet", ""), str::to_owned),
            };
            writeln!(text, "{row}").expect("a string takes everything");
        }
        text + END + &self.after
    }

    /// The row of a case.
    pub fn row_of(&self, case: &Case) -> Option<&str> {
        let key = key(case);
        self.rows.iter().map(String::as_str).find(|row| row.starts_with(&key))
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.rows.len()
    }
}

fn key(case: &Case) -> String {
    let guest = CASE_GUESTS.iter().find(|guest| guest.name == case.guest);
    let (kernel, about) = guest.map_or(("", ""), |guest| (guest.kernel, guest.about));
    format!("| Linux {kernel}, {about} | {} |", case.name)
}

fn row(case: &Case, release: &str, result: &str, date: &str) -> String {
    format!("{} {release} | {result} | {date} |", key(case))
}
