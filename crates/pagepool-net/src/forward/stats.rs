//! Counters of a port of a forwarder.

use crate::device::counters::counters;

counters! {
    /// The packets of a port, by what happened to them. Counts are of packets.
    ///
    /// Received packets: `rx` = `pass` + `drop` + `aborted` + `tx` + `redirect_out` + `redirect_nowhere` +
    /// `too_short`.
    ///
    /// Packets to send: `tx` + `redirect_in`. Of these, `tx_overflow`, `tx_gone` and
    /// [`copy_failed`](crate::PathStats::copy_failed) were not given to the device.
    ForwardStats:
    /// Received.
    ///
    /// If it rises: normal.
    rx,
    /// Passed to the stack.
    ///
    /// If it rises: depends on the handler.
    pass,
    /// Part of `pass`: refused by the stack, and dropped.
    ///
    /// If it rises: the stack is too slow, or there is none.
    pass_refused,
    /// Dropped by the handler.
    ///
    /// If it rises: depends on the handler.
    drop,
    /// Dropped: the handler returned `Aborted`.
    ///
    /// If it rises: check the handler.
    aborted,
    /// Sent back out of the port that received them.
    ///
    /// If it rises: depends on the handler.
    tx,
    /// Redirected to another port.
    ///
    /// If it rises: depends on the handler.
    redirect_out,
    /// Part of `redirect_out`, dropped: the ring to the port's thread was full, or that thread has ended.
    ///
    /// If it rises: use a longer `handoff`, or more CPUs.
    handoff_full,
    /// Redirected to this port.
    ///
    /// If it rises: depends on the handler.
    redirect_in,
    /// Dropped: redirected to a port that does not exist.
    ///
    /// If it rises: a wrong `PortId` in the handler.
    redirect_nowhere,
    /// Dropped before the handler: the first buffer is shorter than an Ethernet header, or the CPU cannot
    /// read it. 0 if the handler's `reads` is false.
    ///
    /// If it rises: packets that are not Ethernet; or the handler reads no packet, and its `reads()` should
    /// return false.
    too_short,
    /// Dropped: too many packets waited for the transmit ring.
    ///
    /// If it rises: the interface is too slow, or down.
    tx_overflow,
    /// Dropped: the device is gone.
    ///
    /// If it rises: the interface was removed.
    tx_gone,
}
