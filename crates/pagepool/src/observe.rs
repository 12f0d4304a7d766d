//! Observes other processes: shows what they [`publish`](crate::publish). Takes nothing from a running
//! process; a killed one still shows its last state.
//!
//! [`RunFolder::processes`] reads all of a user's processes. Files are read, never mapped, and every offset
//! in them is checked: a damaged file gives an error.
//!
//! The layout is in `docs/published-file.md`.

mod bytes;
mod dead_file;
mod holders_block;
#[cfg(feature = "metrics")]
mod metrics;
mod model;
mod pool_block;
pub(crate) mod process;
pub(crate) mod publication;
mod run_folder;

#[cfg(feature = "metrics")]
pub use metrics::{MetricsFormat, write_metrics};
pub use model::{
    AGE_EDGES, EntryView, HolderGroup, HolderView, HoldersView, Life, MOST_GROUPS, MOST_OLDEST, PoolView,
    ProcessView, ThreadView,
};
pub use run_folder::RunFolder;

pub use crate::shown::{is_shown, shown, shown_except, shown_path};
