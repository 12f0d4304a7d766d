//! Where a polling thread's own frames come from.

use std::time::Duration;

use pagepool_net::{Forwarder, PacketHandler, Stack};

/// Makes frames and sends them.
pub trait FrameSource: Send + 'static {
    /// Sends the frames that are due now.
    fn send_due<H: PacketHandler, S: Stack>(&mut self, forwarder: &mut Forwarder<H, S>) -> SourceState;

    /// Ticks spent on making frames.
    fn make_ticks(&self) -> u64 {
        0
    }
}

/// What a source has for a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceState {
    /// It sent frames, or frames wait for the transmit ring.
    Active,
    /// It has no frame before so long.
    Later(Duration),
    /// It has no frame any more.
    Finished,
}

impl SourceState {
    /// When its next frame is due, as far as it has one.
    pub fn due(self) -> Duration {
        if let Self::Later(due) = self { due } else { Duration::MAX }
    }
}

/// The source of a thread that sends only what it received.
pub struct NoSource;

impl FrameSource for NoSource {
    #[inline]
    fn send_due<H: PacketHandler, S: Stack>(&mut self, _: &mut Forwarder<H, S>) -> SourceState {
        SourceState::Later(Duration::MAX)
    }
}
