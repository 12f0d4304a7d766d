//! `pagepool bench`: tables of workloads, and reports.
//!
//! `measure` takes the figures of a workload, `rivals` has code to compare with, `workloads` has the tables,
//! `reports` answer questions that a table cannot. `run` prints the tables, `count` runs under an instruction
//! counter, `plot` draws bars, with those of `peers` beside ours.

pub mod count;
pub mod measure;
mod outcome;
mod peers;
pub mod plot;
pub mod reports;
mod rivals;
pub mod run;
pub mod workloads;
