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
    /// Packets received.
    ///
    /// If it rises: normal.
    rx,
    /// Packets passed to the forwarder's network stack.
    ///
    /// If it rises: depends on the handler.
    pass,
    /// Packets in `pass` that the stack refused. They were dropped.
    ///
    /// If it rises: the stack is too slow, or the forwarder has none.
    pass_refused,
    /// Packets that the handler dropped.
    ///
    /// If it rises: depends on the handler.
    drop,
    /// Packets dropped because the handler returned `Aborted`.
    ///
    /// If it rises: check the handler.
    aborted,
    /// Packets sent back out of the port that received them.
    ///
    /// If it rises: depends on the handler.
    tx,
    /// Packets redirected to another port.
    ///
    /// If it rises: depends on the handler.
    redirect_out,
    /// Packets in `redirect_out` that were dropped because the ring to the other port's thread was full or
    /// that thread had ended.
    ///
    /// If it rises: use a longer `handoff` ring or more CPUs.
    handoff_full,
    /// Packets redirected to this port.
    ///
    /// If it rises: depends on the handler.
    redirect_in,
    /// Packets dropped because they were redirected to a port that does not exist.
    ///
    /// If it rises: the handler returns a wrong `PortId`.
    redirect_nowhere,
    /// Packets dropped before the handler ran, because their first buffer is shorter than an Ethernet header
    /// or the CPU cannot read it. Stays 0 if the handler's `reads` returns false.
    ///
    /// If it rises: packets that are not Ethernet arrive. If the handler does not read packets, its `reads`
    /// should return false.
    too_short,
    /// Packets dropped because too many packets were waiting for the transmit ring.
    ///
    /// If it rises: the interface is too slow or down.
    tx_overflow,
    /// Packets dropped because the device is gone.
    ///
    /// If it rises: the interface was removed.
    tx_gone,
}
