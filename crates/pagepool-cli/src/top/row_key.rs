//! The identity of a row.

use std::path::PathBuf;
use std::time::SystemTime;

/// Identifies a pool across looks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowKey {
    /// A process's pool: the published file, when the pool was created, and its id.
    Process(PathBuf, SystemTime, u32),
    /// A kernel pool: its id.
    Kernel(u32),
}
