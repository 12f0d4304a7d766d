//! What a port of a forwarder has done.

use crate::device::counters::counters;

counters! {
    /// What became of the packets of a port. All counts are of packets.
    ///
    /// Each packet that was received counts once more: `rx` is the sum of `pass`, `drop`, `aborted`, `tx`,
    /// `redirect_out`, `redirect_nowhere` and `too_short`. Each that is to go out is `tx` here or
    /// `redirect_in`; those of them that the device was not given are `tx_overflow` and `tx_gone`, and of
    /// those redirected in also [`copy_failed`](crate::PathStats::copy_failed).
    ForwardStats:
    /// Received.
    rx,
    /// Passed to the stack.
    pass,
    /// Of those, given back by the stack, and dropped.
    pass_refused,
    /// Dropped by the handler.
    drop,
    /// The handler failed; dropped.
    aborted,
    /// To be sent out of the same port.
    tx,
    /// Redirected from here to a port that there is.
    redirect_out,
    /// Of those, dropped because the ring to the port's thread had no room, or the thread is gone.
    handoff_full,
    /// Redirected to here.
    redirect_in,
    /// Redirected to a port that there is not; dropped.
    redirect_nowhere,
    /// Less than an Ethernet header in the first buffer, or not readable; dropped, and the handler was not
    /// asked. None where the handler says that it [reads](crate::PacketHandler::reads) none: that is asked
    /// about all.
    too_short,
    /// Dropped because as many packets as may wait for the transmit ring did.
    tx_overflow,
    /// Dropped because the device is gone.
    tx_gone,
}
