//! The handler, which decides about packets.
//!
//! The verdicts have the meaning that they have in XDP. A closure is a handler.

use pagepool::XdpBuff;

/// The number of a port of a forwarder, in the order in which they were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortId(pub u32);

/// What to do with a packet. Linux: `enum xdp_action`.
#[doc(alias = "xdp_action")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The handler failed: counted apart, else as `Drop`. Linux: `XDP_ABORTED`.
    Aborted,
    /// The packet ends here. Linux: `XDP_DROP`.
    Drop,
    /// To the stack. Linux: `XDP_PASS`.
    Pass,
    /// Out of the port that it came in by. Linux: `XDP_TX`.
    Tx,
    /// Out of another port. Linux: `XDP_REDIRECT`. A port that does not exist is counted, and the packet
    /// ends.
    Redirect(PortId),
}

/// The port at which a packet arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ingress {
    /// The port.
    pub port: PortId,
}

/// Bytes of a MAC address.
const MAC: usize = 6;

/// Swaps the two MAC addresses of an Ethernet frame, so that it goes back to its sender. Leaves a frame that
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
    // As arrays they are a few loads and stores; as slices, loops.
    if let Some((to, rest)) = frame.split_first_chunk_mut::<MAC>()
        && let Some(from) = rest.first_chunk_mut::<MAC>()
    {
        std::mem::swap(to, from);
    }
}

/// Decides about packets, and may change them: what an XDP program is to the kernel. Runs on the thread that
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
    /// The verdict on one packet. The packet has at least an Ethernet header in its first buffer, unless
    /// [`reads`](Self::reads) returns false.
    fn handle(&mut self, packet: &mut XdpBuff, at: Ingress) -> Action;

    /// Whether this handler, or what sends its packets, looks at their bytes. If so, the first cache line of
    /// each packet is prefetched some packets ahead, and a packet without an Ethernet header is dropped
    /// before `handle`. Return `false` in a handler that ends packets without looking at them: it saves both.
    /// A closure always returns `true`.
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
