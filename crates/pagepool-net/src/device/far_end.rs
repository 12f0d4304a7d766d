//! The other end of a device's wire.

use std::any::Any;
use std::fmt;

/// The other end of a device: what it sends arrives here, what this sends arrives there.
///
/// A kind of wire can do more than this: the [`NicPort`](crate::NicPort) of a NIC in memory, for one, which
/// a cast to `Box<dyn Any>` gives back.
pub trait FarEnd: Any + fmt::Debug {
    /// Sends a packet to the device; false if it is known to be lost.
    fn send(&mut self, packet: &[u8]) -> bool;

    /// Replaces the vector's bytes by the next packet that the device sent; false if there is none.
    fn receive(&mut self, packet: &mut Vec<u8>) -> bool;

    /// Most bytes of a packet that this end sends.
    fn longest(&self) -> usize {
        usize::MAX
    }

    /// Lets whatever is between this and the device do its work.
    fn settle(&mut self) {}

    /// Keeps the device from sending, so that its ring fills; false where that cannot be done.
    fn stall(&mut self, on: bool) -> bool {
        let _ = on;
        false
    }

    /// The device dies; false where that cannot be done.
    fn die(&mut self) -> bool {
        false
    }
}
