//! What a port of a forwarder has done.

use crate::device::counters::counters;

counters! {
    /// What became of the packets of a port. All counts are of packets.
    ///
    /// Received packets: `rx` = `pass` + `drop` + `aborted` + `tx` + `redirect_out` + `redirect_nowhere` +
    /// `too_short`.
    ///
    /// Packets to be sent: `tx` + `redirect_in`. Of these, `tx_overflow`, `tx_gone` and
    /// [`copy_failed`](crate::PathStats::copy_failed) were not given to the device.
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
    /// Redirected from here to a port that exists.
    redirect_out,
    /// Of those, dropped because the ring to the port's thread had no room, or the thread is gone.
    handoff_full,
    /// Redirected to here.
    redirect_in,
    /// Redirected to a port that does not exist; dropped.
    redirect_nowhere,
    /// Dropped without asking the handler: less than an Ethernet header in the first buffer, or not readable.
    /// 0 if the handler's [`reads`](crate::PacketHandler::reads) is false.
    too_short,
    /// Dropped because the queue of the transmit ring was full.
    tx_overflow,
    /// Dropped because the device is gone.
    tx_gone,
}
