//! Finds out why a packet path is slow or leaks: reads what processes publish of their page pools.
//!
//! A process that calls [`pagepool::publish`] shows its pools in a file. [`RunFolder::processes`] reads the
//! files of all processes of a user. It takes nothing from a running process; a killed one still shows its
//! last state. Files are read, never mapped, and every offset in them is checked: a damaged file gives an
//! error.

mod metrics;
mod published;

pub use metrics::{MetricsFormat, write_metrics};
pub use pagepool::published::{is_shown, shown, shown_except, shown_path};
pub use published::model::{EntryView, Life, PoolView, ProcessView};
pub use published::run_folder::RunFolder;

/// For tests and fuzzers.
#[doc(hidden)]
pub mod testing {
    pub use crate::published::process::read_bytes as read_published;
}
