//! Frames on their way home together.

use crate::frame::Frame;

/// Collects frames and sends them home together, whichever pools they are of. Linux: `struct xdp_frame_bulk`.
#[doc(alias = "xdp_frame_bulk")]
#[derive(Debug, Default)]
pub struct FrameBulk;

impl FrameBulk {
    /// An empty one.
    pub fn new() -> Self {
        Self
    }

    /// Adds a frame, and sends home what is there if it is full. Linux: `xdp_return_frame_bulk`.
    #[doc(alias = "xdp_return_frame_bulk")]
    pub fn push(&mut self, frame: Frame) {
        drop(frame);
    }

    /// Sends home what is there. Dropping does too. Linux: `xdp_flush_frame_bulk`.
    #[doc(alias = "xdp_flush_frame_bulk")]
    pub fn flush(&mut self) {}
}
