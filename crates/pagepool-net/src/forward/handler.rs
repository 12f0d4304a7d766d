//! The handler, which decides about packets. A verdict means what it means in XDP. A closure is a handler.

use pagepool::XdpBuff;

/// The number of a port of a forwarder, in the order of adding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortId(pub u32);

/// A verdict on a packet. Linux: `enum xdp_action`.
#[doc(alias = "xdp_action")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Drop the packet, because the handler failed; has its own counter. Linux: `XDP_ABORTED`.
    Aborted,
    /// Drop the packet. Linux: `XDP_DROP`.
    Drop,
    /// Deliver it to the stack. Linux: `XDP_PASS`.
    Pass,
    /// Send it out of the port that received it. Linux: `XDP_TX`.
    Tx,
    /// Send it out of another port. Linux: `XDP_REDIRECT`. If that port does not exist, the packet is counted
    /// and dropped.
    Redirect(PortId),
}

/// The port that received a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ingress {
    /// The port.
    pub port: PortId,
}

const MAC: usize = 6;

/// Swaps the two MAC addresses of an Ethernet frame, which sends it back to its sender. Leaves a frame that
/// is too short unchanged.
///
/// ```
/// let mut frame = [1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 8, 0];
/// pagepool_net::swap_macs(&mut frame);
/// assert_eq!(frame, [2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 8, 0]);
/// pagepool_net::swap_macs(&mut frame[..11]);
/// assert_eq!(frame[..7], [2, 2, 2, 2, 2, 2, 1]);
/// ```
#[inline]
pub fn swap_macs(frame: &mut [u8]) {
    // Arrays compile to a few loads and stores, slices to loops.
    if let Some((to, rest)) = frame.split_first_chunk_mut::<MAC>()
        && let Some(from) = rest.first_chunk_mut::<MAC>()
    {
        std::mem::swap(to, from);
    }
}

/// Decides about packets, and may change them, like an XDP program in the kernel. Runs on the thread that
/// polls; must not block.
///
/// ```
/// use pagepool_net::{Action, Ingress, PacketHandler};
/// let mut seen = 0;
/// let mut handler = |packet: &mut pagepool::XdpBuff, _: Ingress| {
///     seen += packet.len();
///     if packet.data()[0] & 1 == 1 { Action::Drop } else { Action::Tx }
/// };
/// fn takes(_: &mut impl PacketHandler) {}
/// takes(&mut handler);
/// ```
pub trait PacketHandler {
    /// Returns the verdict on one packet. The packet has at least an Ethernet header in its first buffer,
    /// unless [`reads`](Self::reads) returns false.
    fn handle(&mut self, packet: &mut XdpBuff, at: Ingress) -> Action;

    /// Whether this handler, or the code that sends its packets, reads their bytes. If so, the first cache
    /// line of each packet is prefetched some packets ahead, and a packet without an Ethernet header is
    /// dropped before `handle`. Return `false` in a handler that drops packets unread: it saves both. A
    /// closure always returns `true`.
    #[inline]
    fn reads(&self) -> bool {
        true
    }
}

impl<F: FnMut(&mut XdpBuff, Ingress) -> Action> PacketHandler for F {
    #[inline]
    fn handle(&mut self, packet: &mut XdpBuff, at: Ingress) -> Action {
        self(packet, at)
    }
}
