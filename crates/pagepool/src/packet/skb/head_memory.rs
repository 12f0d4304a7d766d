//! What the linear part of a packet lies in.

use crate::buf::page_buf::PageBuf;
use crate::mem::page::PAGE_SIZE;
use crate::packet::skb::error::SkbError;
use crate::sys::table::zeroed;

/// Most bytes of a head with its headroom.
const MAX_HEAD: usize = i32::MAX as usize;

/// Bytes that a block has for a head of its own.
pub(crate) const INSIDE: usize = 512;

/// The linear part's memory.
#[derive(Debug)]
pub(crate) enum Head {
    /// The block's own bytes.
    Inside,
    /// Ordinary memory, where those do not suffice.
    Heap(Box<[u8]>),
    /// The bytes of a pool's buffer that the head has; the CPU can read them.
    Pool(PageBuf, u32),
}

impl Head {
    /// Bytes of memory beside the block that it keeps.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Inside => 0,
            Self::Heap(bytes) => bytes.len(),
            Self::Pool(buffer, _) => buffer.len(),
        }
    }
}

/// Ordinary memory for a head of `len` bytes, and its headroom: `least` bytes, and up to `wanted` where they
/// cost nothing or memory is allocated anyway.
pub(crate) fn ordinary(least: usize, wanted: usize, len: usize) -> Result<(Head, usize), SkbError> {
    if least.checked_add(len).is_none_or(|sum| sum > MAX_HEAD) {
        return Err(SkbError::NoMemory);
    }
    if least + len <= INSIDE {
        return Ok((Head::Inside, wanted.min(INSIDE - len)));
    }
    let headroom = wanted.min(least.max(PAGE_SIZE));
    let bytes = zeroed(headroom + len).map_err(|_| SkbError::NoMemory)?;
    Ok((Head::Heap(bytes), headroom))
}
