//! `pagepool bench`: tables of workloads, and reports.
//!
//! `measure` takes the figures of a workload, `rivals` has the code that the pool is compared with,
//! `workloads` has the tables, and `reports` answer questions that a line of a table cannot. `run` prints the
//! tables, `count` runs under an instruction counter, and `plot` draws bars, with those of `peers` beside
//! ours.

pub mod count;
pub mod measure;
mod outcome;
mod peers;
pub mod plot;
pub mod reports;
mod rivals;
pub mod run;
pub mod workloads;
