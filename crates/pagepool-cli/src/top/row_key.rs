//! Which pool a row is.

use std::path::PathBuf;
use std::time::SystemTime;

/// Which pool it is, across looks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowKey {
    /// Of a process: its file, and when the pool was made.
    Process(PathBuf, SystemTime, u32),
    /// Of the kernel.
    Kernel(u32),
}
