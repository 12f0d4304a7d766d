//! Where a polling thread's own frames come from.

use std::time::Duration;

use pagepool_net::{Forwarder, PacketHandler, Stack};

pub trait FrameSource: Send + 'static {
    fn send_due<H: PacketHandler, S: Stack>(&mut self, forwarder: &mut Forwarder<H, S>) -> SourceState;

    fn make_ticks(&self) -> u64 {
        0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceState {
    /// It sent frames, or frames wait for the transmit ring.
    Active,
    /// No frame is due for this long.
    Later(Duration),
    /// It will have no more frames.
    Finished,
}

impl SourceState {
    /// When its next frame is due, if it has one.
    pub fn due(self) -> Duration {
        if let Self::Later(due) = self { due } else { Duration::MAX }
    }
}

/// The source of a thread that sends only what it has received.
pub struct NoSource;

impl FrameSource for NoSource {
    #[inline]
    fn send_due<H: PacketHandler, S: Stack>(&mut self, _: &mut Forwarder<H, S>) -> SourceState {
        SourceState::Later(Duration::MAX)
    }
}
