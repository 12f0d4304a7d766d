//! The header before each packet on a virtio queue: `struct virtio_net_hdr_v1` (Virtual I/O Device
//! specification, version 1.2, section 5.1.6).

/// Bytes of a header.
pub(crate) const LEN: usize = 12;

/// A header of a sent packet that asks for nothing.
pub(crate) const PLAIN: [u8; LEN] = [0; LEN];

/// Number of buffers of a received packet, from its header.
#[inline(always)]
pub(crate) fn buffers(header: &[u8; LEN]) -> u16 {
    u16::from_le_bytes([header[10], header[11]])
}
