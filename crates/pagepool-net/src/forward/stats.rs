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
    ///
    /// If it rises: normal.
    rx,
    /// Passed to the stack.
    ///
    /// If it rises: as the handler decides.
    pass,
    /// Of those, given back by the stack, and dropped.
    ///
    /// If it rises: the stack is too slow, or there is none.
    pass_refused,
    /// Dropped by the handler.
    ///
    /// If it rises: as the handler decides.
    drop,
    /// The handler failed; dropped.
    ///
    /// If it rises: look at the handler.
    aborted,
    /// To be sent out of the same port.
    ///
    /// If it rises: as the handler decides.
    tx,
    /// Redirected from here to a port that exists.
    ///
    /// If it rises: as the handler decides.
    redirect_out,
    /// Of those, dropped because the ring to the port's thread had no room, or the thread is gone.
    ///
    /// If it rises: a longer `handoff`, or more CPUs.
    handoff_full,
    /// Redirected to here.
    ///
    /// If it rises: as the handler decides.
    redirect_in,
    /// Redirected to a port that does not exist; dropped.
    ///
    /// If it rises: a wrong `PortId` in the handler.
    redirect_nowhere,
    /// Dropped without asking the handler: less than an Ethernet header in the first buffer, or not readable.
    /// 0 if the handler's `reads` is false.
    ///
    /// If it rises: not Ethernet; or a handler that reads nothing, whose `reads()` should return false.
    too_short,
    /// Dropped because the queue of the transmit ring was full.
    ///
    /// If it rises: the interface is too slow, or down.
    tx_overflow,
    /// Dropped because the device is gone.
    ///
    /// If it rises: the interface was removed.
    tx_gone,
}
