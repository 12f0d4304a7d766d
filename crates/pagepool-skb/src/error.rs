//! Errors of packets of network stacks.

use std::fmt;

/// Why an operation on a packet failed. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SkbError {
    /// The cache has no block left, or no handle.
    Exhausted,
    /// No memory for a larger head.
    NoMemory,
    /// A clone shares the bytes to be written: see [`SkBuff::unclone`](crate::SkBuff::unclone) and
    /// [`SkBuff::cow_head`](crate::SkBuff::cow_head).
    Cloned,
    /// The headroom or tailroom is too small.
    NoRoom,
    /// The packet has fewer bytes.
    TooShort,
    /// The CPU cannot read some of its memory.
    Unreadable,
}

impl fmt::Display for SkbError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exhausted => "the cache has no free block: create a larger cache, or keep a handle of it",
            Self::NoMemory => "no memory for a larger head",
            Self::Cloned => "a clone shares these bytes: unclone the packet first",
            Self::NoRoom => "not enough room: cow_head adds headroom, add_frag adds data",
            Self::TooShort => "the packet has fewer bytes",
            Self::Unreadable => "the packet has memory that the CPU cannot read",
        })
    }
}

impl std::error::Error for SkbError {}
