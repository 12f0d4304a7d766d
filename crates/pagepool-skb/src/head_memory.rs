//! Memory of a packet's head.

use pagepool::internal::zeroed_bytes;
use pagepool::{PAGE_SIZE, PageBuf};

use crate::error::SkbError;

/// Most bytes of a head and its headroom.
const MAX_HEAD: usize = i32::MAX as usize;

/// Bytes of a block for its own head.
pub(crate) const INSIDE: usize = 512;

/// Memory of a head.
#[derive(Debug)]
pub(crate) enum Head {
    /// The block's own bytes.
    Inside,
    /// Ordinary memory, if the block's bytes are too few.
    Heap(Box<[u8]>),
    /// The first bytes of a pool's buffer, which the CPU can read.
    Pool(PageBuf, u32),
}

impl Head {
    /// Bytes of memory outside of the block.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Inside => 0,
            Self::Heap(bytes) => bytes.len(),
            Self::Pool(buffer, _) => buffer.len(),
        }
    }
}

/// Ordinary memory for a head of `len` bytes, and its headroom: at least `least` bytes, up to `wanted` if
/// they are free or memory is allocated anyway.
pub(crate) fn ordinary(least: usize, wanted: usize, len: usize) -> Result<(Head, usize), SkbError> {
    if least.checked_add(len).is_none_or(|sum| sum > MAX_HEAD) {
        return Err(SkbError::NoMemory);
    }
    if least + len <= INSIDE {
        return Ok((Head::Inside, wanted.min(INSIDE - len)));
    }
    let headroom = wanted.min(least.max(PAGE_SIZE));
    let bytes = zeroed_bytes(headroom + len).map_err(|_| SkbError::NoMemory)?;
    Ok((Head::Heap(bytes), headroom))
}
