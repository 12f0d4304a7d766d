//! Finds out why a packet path is slow or leaks: reads what processes publish of their page pools.
//!
//! A process that calls [`pagepool::publish`] shows its pools in a file. [`RunFolder::processes`] reads the
//! files of all processes of a user. It takes nothing from a running process; a killed one still shows its
//! last state. Files are read, never mapped, and every offset in them is checked: a damaged file gives an
//! error.

pub mod doctor;
mod kernel_list;
mod kernel_look;
mod late_thread;
mod metrics;
mod observation;
mod pool_moved;
mod published;
mod words;

pub use kernel_look::{KernelLook, KernelWatch};
pub use metrics::{MetricsFormat, write_metrics};
pub use observation::Observation;
pub use pagepool::published::{is_shown, shown, shown_except, shown_path};
pub use pool_moved::PoolMoved;
pub use published::model::{EntryView, Life, PoolView, ProcessView};
pub use published::run_folder::RunFolder;

/// What the commands of `pagepool-cli` share with this crate. Not an API: any version may change it.
#[doc(hidden)]
pub mod commands {
    pub use crate::kernel_list::numbers;
    pub use crate::late_thread::{LateThread, MoreQueues};
    pub use crate::pool_moved::{per_second, recycled_of};
    pub use crate::words::{bytes, error_chain, grouped, spoken};
}

/// For tests and fuzzers.
#[doc(hidden)]
pub mod testing {
    pub use crate::published::process::read_bytes as read_published;
}
