//! `pagepool-bench`: tables of workloads, and reports.
//!
//! `measure` takes the figures of a workload, `rivals` has code to compare with, `workloads` has the tables,
//! `reports` answer questions that a table cannot. `run` prints the tables, `count` runs under an instruction
//! counter, `plot` draws bars, with those of `peers` beside ours.

// A panic because text cannot be printed would end a run before its end: see `report::output` of the crate
// `pagepool-cli`.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod count;
mod measure;
mod options;
mod outcome;
mod peers;
mod plot;
mod reports;
mod rivals;
mod run;
mod sys;
mod workloads;

use std::process::ExitCode;

use crate::options::BenchArgs;

fn main() -> ExitCode {
    pagepool_cli::program::main::<BenchArgs>()
}
