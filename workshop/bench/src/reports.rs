//! Reports: questions that one line of the bench does not answer.

pub mod across;
pub mod contention;
pub mod mtu;
pub mod numa;
pub mod pools;

use std::process::ExitCode;

use crate::measure::machine::Machine;
use comfy_table::{CellAlignment, Table, presets};
use pagepool_cli::report::{output, print_json};
use serde::Serialize;

#[derive(Serialize)]
struct ReportJson<'a, R> {
    machine: &'a Machine,
    report: &'static str,
    results: &'a R,
    failed: &'a [String],
}

pub struct Report<R> {
    /// In the JSON.
    pub name: &'static str,
    /// For people.
    pub about: String,
    /// For programs.
    pub results: R,
    /// For people.
    pub table: Table,
    /// Why the figures are invalid.
    pub failed: Vec<String>,
}

impl<R: Serialize> Report<R> {
    /// `machine`: from before this thread was pinned.
    pub fn print(self, machine: &Machine, json: bool) -> ExitCode {
        if json {
            let Self { name, results, failed, .. } = &self;
            print_json(&ReportJson { machine, report: name, results, failed });
        } else {
            output::line(format_args!("{machine}\n{}\n\n{}", self.about, self.table.trim_fmt()));
        }
        for why in &self.failed {
            output::error(format_args!("failed: {why}"));
        }
        if self.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// The first `left` columns are for words, the others for numbers.
fn table(head: &[&str], left: usize) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(head);
    for column in table.column_iter_mut().skip(left) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table
}
