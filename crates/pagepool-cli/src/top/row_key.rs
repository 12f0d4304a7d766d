//! The identity of a row.

use std::path::PathBuf;
use std::time::SystemTime;

/// Identifies a pool across looks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowKey {
    /// The published file, the time of creation, and the id.
    Process(PathBuf, SystemTime, u32),
    /// The id.
    Kernel(u32),
}
