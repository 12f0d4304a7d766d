//! The stack, which gets the packets that a handler passes.

use std::time::Instant;

use pagepool::XdpBuff;

use super::handler::Ingress;
use super::outlets::Outlets;

/// Gets the packets that a handler passes. A closure is a stack. Runs on the thread that polls; must not
/// block.
///
/// It may keep a packet, send it to another thread, or drop it, which returns its buffers. A stack that
/// answers packets sends them in [`flush`](Self::flush); one with timers says when the next is
/// [due](Self::due).
///
/// ```
/// use pagepool_net::{Action, Forwarder, Ingress};
/// let (to_thread, from_here) = std::sync::mpsc::sync_channel::<pagepool::XdpBuff>(512);
/// let stack = move |packet, _: Ingress| to_thread.try_send(packet).map_err(|error| match error {
///     std::sync::mpsc::TrySendError::Full(packet) => packet,
///     std::sync::mpsc::TrySendError::Disconnected(packet) => packet,
/// });
/// let forwarder = Forwarder::with_stack(|_: &mut pagepool::XdpBuff, _: Ingress| Action::Pass, stack);
/// # drop((forwarder, from_here));
/// ```
pub trait Stack {
    /// Takes a packet. A packet that it returns is counted and goes back to its pool.
    fn deliver(&mut self, packet: XdpBuff, at: Ingress) -> Result<(), XdpBuff>;

    /// Called once after each burst of each port, and when the stack is [due](Self::due). Sends the packets
    /// that are ready. Does nothing by default.
    #[inline]
    fn flush(&mut self, out: &mut Outlets<'_>) {
        let _ = out;
    }

    /// When [`flush`](Self::flush) must be called even without a packet. The forwarder asks after each round,
    /// and wakes by then. `flush` must set a later time, or the forwarder never sleeps. A stack that keeps
    /// frames because a port has no [room](Outlets::room) sets one some microseconds ahead: room alone leads
    /// to no call. `None` by default: only bursts lead to calls.
    #[inline]
    fn due(&self) -> Option<Instant> {
        None
    }
}

impl<F: FnMut(XdpBuff, Ingress) -> Result<(), XdpBuff>> Stack for F {
    #[inline]
    fn deliver(&mut self, packet: XdpBuff, at: Ingress) -> Result<(), XdpBuff> {
        self(packet, at)
    }
}

/// No stack: every packet is refused.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoStack;

impl Stack for NoStack {
    #[inline]
    fn deliver(&mut self, packet: XdpBuff, _: Ingress) -> Result<(), XdpBuff> {
        Err(packet)
    }
}
