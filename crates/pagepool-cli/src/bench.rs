//! `pagepool bench`: tables of workloads and reports.
//!
//! `measure` takes the figures of a workload, `rivals` are what the pool is measured beside, `workloads` are
//! the tables, `reports` answer what one line of a table does not; `run` prints the tables, `count` runs
//! under an instruction counter, `plot` draws bars, with those of `peers` beside ours.

pub mod count;
pub mod measure;
mod outcome;
mod peers;
pub mod plot;
pub mod reports;
mod rivals;
pub mod run;
pub mod workloads;
