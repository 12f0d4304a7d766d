//! A cable between two in-memory NICs.

use pagepool_net::NicPort;

/// Packets that cross in one direction in a step.
const BURST: usize = 64;

/// Connects two ports: each receives what the other sends. A packet waits on the cable for buffers, and the
/// sender's ring fills. Packets that the other end can never accept are dropped, and everything once it is
/// gone.
pub struct Cable {
    ends: [NicPort; 2],
    /// What waits for the second end, and for the first; empty if nothing does.
    waiting: [Vec<u8>; 2],
}

impl Cable {
    pub fn new(a: NicPort, b: NicPort) -> Self {
        Self { ends: [a, b], waiting: Default::default() }
    }

    /// Carries at most 64 packets in each direction; returns how many crossed.
    pub fn step(&mut self) -> usize {
        let Self { ends: [a, b], waiting: [to_b, to_a] } = self;
        carry(a, b, to_b) + carry(b, a, to_a)
    }
}

fn carry(from: &mut NicPort, to: &mut NicPort, waiting: &mut Vec<u8>) -> usize {
    let crosses = |_: &usize| {
        if waiting.is_empty() && !from.take(|packet| waiting.extend_from_slice(packet)) {
            return false;
        }
        let crossed = to.step(|to| {
            let waits = to.must_wait(waiting.len());
            if !waits {
                to.deliver(waiting);
            }
            !waits
        });
        if crossed != Some(false) {
            waiting.clear();
        }
        crossed != Some(false)
    };
    (0..BURST).take_while(crosses).count()
}
