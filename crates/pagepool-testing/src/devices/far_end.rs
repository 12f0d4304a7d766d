//! The other end of a device's wire.

use std::fmt;

use pagepool_net::NicPort;

/// The other end of a device's wire: what one end sends, the other receives.
pub trait FarEnd: fmt::Debug {
    /// Sends a packet to the device; false if the packet is known to be lost.
    fn send(&mut self, packet: &[u8]) -> bool;

    /// Replaces the vector's bytes with the next packet that the device sent; false if there is none.
    fn receive(&mut self, packet: &mut Vec<u8>) -> bool;

    /// The longest packet that this end can send, in bytes.
    fn longest(&self) -> usize {
        usize::MAX
    }

    /// Lets everything between this end and the device do its work.
    fn settle(&mut self) {}

    /// Keeps the device from sending, which fills its ring; false if this end cannot do that.
    fn stall(&mut self, on: bool) -> bool {
        let _ = on;
        false
    }

    /// How many packets this end lost because the device had no buffer; always 0 if it keeps them until there
    /// is one. `None`: the device counts them, in `rx_no_buffer`.
    fn lost(&self) -> Option<u64> {
        None
    }

    /// Makes the device die; false if this end cannot do that.
    fn die(&mut self) -> bool {
        false
    }
}

impl FarEnd for NicPort {
    fn send(&mut self, packet: &[u8]) -> bool {
        self.deliver(packet)
    }

    fn receive(&mut self, packet: &mut Vec<u8>) -> bool {
        packet.clear();
        self.take(|bytes| packet.extend_from_slice(bytes))
    }

    fn stall(&mut self, on: bool) -> bool {
        self.stall(on);
        true
    }

    fn die(&mut self) -> bool {
        self.die();
        true
    }
}
