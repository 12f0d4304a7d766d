//! The ports of a forwarder, lent to its stack.

use pagepool::{Bound, XdpFrame};

use super::PortRoute;
use super::handler::PortId;
use super::poll_list::PollList;
use super::port::Port;
use crate::device::DeviceInfo;

/// The ports of a forwarder, for a [`Stack`](super::Stack) that sends packets.
///
/// ```
/// use pagepool::XdpBuff;
/// use pagepool_net::{Ingress, Outlets, Stack};
///
/// /// Answers each packet with a copy.
/// #[derive(Default)]
/// struct Copier(Vec<(XdpBuff, Ingress)>);
///
/// impl Stack for Copier {
///     fn deliver(&mut self, packet: XdpBuff, at: Ingress) -> Result<(), XdpBuff> {
///         self.0.push((packet, at));
///         Ok(())
///     }
///     fn flush(&mut self, out: &mut Outlets<'_>) {
///         for (packet, at) in self.0.drain(..) {
///             if out.room(at.port) == 0 {
///                 continue; // drops it: what the sender cannot take is lost, as on any link
///             }
///             let copy = out.pool(at.port).and_then(|pool| pool.packet(packet.data_len()));
///             let Some(mut copy) = copy else { continue };
///             let len = copy.data_len(); // the first buffer's; the others are in `frags_mut`
///             copy.data_mut().copy_from_slice(&packet.data()[..len]);
///             let _ = out.send(at.port, copy.into());
///         }
///     }
/// }
/// # let _ = Copier::default();
/// ```
#[derive(Debug)]
pub struct Outlets<'a> {
    pub(super) ports: &'a mut [Port],
    pub(super) poll_list: &'a mut PollList,
    pub(super) routes: &'a [PortRoute],
}

impl Outlets<'_> {
    /// Sends a frame out of a port, after this burst. It counts as redirected to that port. Returns the frame
    /// if the port's queue is full, its device is gone, or this forwarder has no such port.
    pub fn send(&mut self, port: PortId, frame: XdpFrame) -> Result<(), XdpFrame> {
        let Some(at) = self.place(port) else { return Err(frame) };
        let sent = self.ports[at].send_on(frame);
        self.poll_list.activate(&mut self.ports[at], at);
        sent
    }

    /// How many frames [`send`](Self::send) accepts for a port now; 0 if its device is gone.
    pub fn room(&self, port: PortId) -> usize {
        self.place(port).map_or(0, |at| self.ports[at].room())
    }

    /// The pool of a port, to make packets in: see [`Bound::packet`].
    pub fn pool(&self, port: PortId) -> Option<&Bound> {
        Some(&self.ports[self.place(port)?].pool)
    }

    /// The device of a port: its MAC address and limits.
    pub fn info(&self, port: PortId) -> Option<&DeviceInfo> {
        Some(self.ports[self.place(port)?].device.info())
    }

    fn place(&self, port: PortId) -> Option<usize> {
        PortRoute::place(self.routes, port)
    }
}
