//! The stack, which gets the packets that a handler passes.

use pagepool::XdpBuff;

use super::handler::Ingress;

/// Gets the packets that a handler passes. A closure is a stack. Runs on the thread that polls; must not
/// block.
///
/// It may keep a packet, send it to another thread, or drop it, which returns its buffers.
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
