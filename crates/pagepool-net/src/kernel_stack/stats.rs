//! Counters of a [`KernelStack`](super::KernelStack).

use crate::device::counters::counters;

counters! {
    /// The packets of a [`KernelStack`](super::KernelStack), by what happened to them. Counts are of packets,
    /// except `runs`.
    KernelStackStats:
    /// Packets that the kernel's stack received.
    ///
    /// If it rises: normal.
    passed,
    /// Packets that the kernel did not accept, which were dropped. Its backlog was full, the interface was
    /// down or removed, or the stack has stopped: a generic XDP program was attached, or the forwarder ran in
    /// another network namespace. Also packets that are shorter than an Ethernet header, that the CPU cannot
    /// read, or that have no room for their VLAN tag.
    ///
    /// If it rises: raise `net.core.netdev_max_backlog`, or check the interface.
    refused,
    /// Packets dropped because they were longer than 15 KiB.
    ///
    /// If it rises: lower the MTU.
    too_long,
    /// System calls that copied packets into the kernel, 64 packets each at most.
    ///
    /// If it rises: normal.
    runs,
}
