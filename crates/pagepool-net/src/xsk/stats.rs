//! What the kernel says of a socket, and where its buffers are.

use super::sys::socket::KernelCounts;
use crate::device::counters::counters;

counters! {
    /// What the kernel counts for a socket (`XDP_STATISTICS`), and where the buffers of a device are now. `fill`, `received`
    /// and `rx_in_kernel` add up to [`in_rx`](crate::DeviceStats::in_rx); `transmit`, `completed`, `tx_in_kernel` and
    /// `rejected` to [`in_tx`](crate::DeviceStats::in_tx). While packets move it is read between two steps of the kernel, so
    /// what moves from one place to the next counts in one of them.
    XskStats:
    /// Packets dropped: no buffer on the fill ring, or longer than the socket takes.
    rx_dropped,
    /// Descriptors that the receive side found invalid.
    rx_invalid_descs,
    /// Packets dropped because the receive ring was full.
    rx_ring_full,
    /// Times that the kernel found the fill ring empty: the pool was dry, or too few buffers are kept out.
    rx_fill_ring_empty,
    /// Descriptors on the transmit ring that the kernel refused, and dropped.
    tx_invalid_descs,
    /// Times that the kernel found the transmit ring empty.
    tx_ring_empty,
    /// Now: buffers on the fill ring.
    fill,
    /// Now: buffers on the receive ring, which have packets.
    received,
    /// Now: buffers that the kernel took off the fill ring and has put on no other, or that wait here for the rest of
    /// their packet.
    rx_in_kernel,
    /// Now: buffers on the transmit ring.
    transmit,
    /// Now: buffers on the completion ring.
    completed,
    /// Now: buffers that are being sent.
    tx_in_kernel,
    /// Now: buffers whose descriptors the kernel refused and never completes; they come back when the device is closed.
    rejected,
}

impl XskStats {
    /// Of both sides: buffers that are out, and those of them on either ring.
    pub(super) fn new(
        kernel: KernelCounts,
        (rx, (fill, received)): (usize, (usize, usize)),
        (tx, (transmit, completed)): (usize, (usize, usize)),
    ) -> Self {
        // Each is cut to what is left, so that the places add up whatever the kernel does between the looks.
        let received = received.min(rx);
        let fill = fill.min(rx - received);
        let completed = completed.min(tx);
        let transmit = transmit.min(tx - completed);
        let rejected = kernel.tx_invalid.min((tx - completed - transmit) as u64);
        Self {
            rx_dropped: kernel.rx_dropped,
            rx_invalid_descs: kernel.rx_invalid,
            rx_ring_full: kernel.rx_ring_full,
            rx_fill_ring_empty: kernel.fill_ring_empty,
            tx_invalid_descs: kernel.tx_invalid,
            tx_ring_empty: kernel.tx_ring_empty,
            fill: fill as u64,
            received: received as u64,
            rx_in_kernel: (rx - received - fill) as u64,
            transmit: transmit as u64,
            completed: completed as u64,
            tx_in_kernel: (tx - completed - transmit) as u64 - rejected,
            rejected,
        }
    }
}
