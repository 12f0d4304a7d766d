//! What a packet that outlives the poll lies in.

use crate::buf::PageBuf;

/// The memory of a frame's first buffer: the types of XDP's memory model. Linux: `enum xdp_mem_type`.
#[doc(alias = "xdp_mem_type")]
#[derive(Debug)]
#[non_exhaustive]
pub enum Memory {
    /// A buffer of a pool.
    Pool(PageBuf),
}
