//! Checks numbered frames.

use pagepool::XdpBuff;
use pagepool_net::{Arrival, Tally};

#[derive(Debug, Default)]
pub struct FrameCheck {
    pub tally: Tally,
    /// A packet of several buffers, as one.
    whole: Vec<u8>,
}

impl FrameCheck {
    /// Expects the numbers below this one.
    pub fn new(expected: u64) -> Self {
        Self { tally: Tally::new(expected), whole: Vec::new() }
    }

    pub fn take(&mut self, packet: &XdpBuff) -> Arrival {
        if !packet.has_frags() {
            return self.tally.take(packet.data());
        }
        self.whole.clear();
        self.whole.extend_from_slice(packet.data());
        packet.frags().iter().for_each(|frag| self.whole.extend_from_slice(frag.data()));
        self.tally.take(&self.whole)
    }
}
