//! Where things are in a chunk of a UMEM.

#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Bytes of a chunk.
    pub(super) chunk: u32,
    /// Bytes before the packet in a chunk.
    pub(super) before: u32,
    pub(super) unaligned: bool,
    /// log2 of the bytes per entry of a table of buffers: half a page, or a page.
    pub(super) unit_shift: u32,
    /// Bytes of the UMEM.
    pub(super) len: u64,
}
