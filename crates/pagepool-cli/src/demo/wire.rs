//! The wire: the hardware halves of both NICs, with a source and a sink.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pagepool_net::{BUDGET, NicPort, PortStep};

use super::content::{Content, ContentCheck};
use super::plan::DemoAction;
use crate::traffic::{Phase, SharedState};

/// The two ends of the wire, and the packets on it.
#[derive(Debug)]
pub struct PacketWire {
    ports: [NicPort; 2],
    /// The port with the sink.
    sink: usize,
    content: Content,
    check: ContentCheck,
    next: u64,
    packet: Vec<u8>,
    state: Arc<SharedState>,
}

impl PacketWire {
    /// The source sends into the first port. The sink is where packets come out.
    pub fn new(ports: [NicPort; 2], action: DemoAction, content: &Content, state: Arc<SharedState>) -> Self {
        let sink = if action == DemoAction::Echo { 0 } else { 1 };
        let check = content.clone().check(action == DemoAction::Echo);
        Self { ports, sink, content: content.clone(), check, next: 0, packet: Vec::new(), state }
    }

    /// Delivers a burst to the first NIC, and takes all packets at the sink. Returns whether a packet moved.
    pub fn step(&mut self) -> bool {
        let delivered = match self.state.reached(Phase::Stopping) {
            false if self.state.reached(Phase::Traffic) => self.deliver(),
            false => 0,
            true => {
                self.state.move_to(Phase::Draining);
                0
            }
        };
        delivered + self.take() > 0
    }

    /// Delivers only packets that the NIC has room for: the source obeys flow control.
    fn deliver(&mut self) -> u64 {
        let Self { ports, content, next, packet, .. } = self;
        let mut one = |wire: &mut PortStep<'_>| {
            let bytes = content.write(*next, packet);
            let taken = !wire.must_wait(bytes.len()) && wire.deliver(bytes);
            *next += u64::from(taken);
            taken
        };
        let delivered = ports[0].step(|wire| (0..BUDGET).take_while(|_| one(wire)).count());
        let delivered = delivered.unwrap_or(0) as u64;
        self.state.sent.fetch_add(delivered, Ordering::Relaxed);
        delivered
    }

    fn take(&mut self) -> u64 {
        let Self { ports, check, .. } = self;
        let (mut arrived, mut corrupt) = (0, 0);
        let mut one = |packet: &[u8]| {
            arrived += 1;
            corrupt += u64::from(!check.is_good(std::iter::once(packet)));
        };
        ports[self.sink].step(|wire| while wire.take(&mut one) {});
        self.state.count_arrived(arrived, corrupt);
        arrived
    }
}
