//! Where packets go that a program passes.

use pagepool::Buff;

use crate::program::Ingress;

/// Takes the packets that a program passes. A closure is a stack. Runs on the thread that polls; must not block.
///
/// A packet may be kept, sent to another thread, or dropped there: it goes home by itself.
pub trait Stack {
    /// Takes a packet, or gives it back: then it is counted, and goes home.
    fn deliver(&mut self, packet: Buff, at: Ingress) -> Result<(), Buff>;
}

impl<F: FnMut(Buff, Ingress) -> Result<(), Buff>> Stack for F {
    #[inline]
    fn deliver(&mut self, packet: Buff, at: Ingress) -> Result<(), Buff> {
        self(packet, at)
    }
}

/// No stack: every packet comes back.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoStack;

impl Stack for NoStack {
    #[inline]
    fn deliver(&mut self, packet: Buff, _: Ingress) -> Result<(), Buff> {
        Err(packet)
    }
}
