//! What the kernel counts for a socket (`XDP_STATISTICS`), and where its buffers are.

use super::sys::socket::KernelCounts;
use crate::device::KernelStats;

/// Of both sides: buffers that are out, and those of them on either ring.
pub(super) fn kernel_stats(
    kernel: KernelCounts,
    (rx, (fill, received)): (usize, (usize, usize)),
    (tx, (transmit, completed)): (usize, (usize, usize)),
) -> KernelStats {
    // Each number is limited to the rest, so that the sum is right although the kernel moves on between the
    // reads.
    let received = received.min(rx);
    let fill = fill.min(rx - received);
    let completed = completed.min(tx);
    let transmit = transmit.min(tx - completed);
    let rejected = kernel.tx_invalid_descs.min((tx - completed - transmit) as u64);
    KernelStats {
        rx_dropped: kernel.rx_dropped,
        rx_invalid_descs: kernel.rx_invalid_descs,
        rx_ring_full: kernel.rx_ring_full,
        rx_fill_ring_empty: kernel.rx_fill_ring_empty_descs,
        tx_invalid_descs: kernel.tx_invalid_descs,
        tx_ring_empty: kernel.tx_ring_empty_descs,
        fill: fill as u64,
        received: received as u64,
        rx_in_kernel: (rx - received - fill) as u64,
        transmit: transmit as u64,
        completed: completed as u64,
        tx_in_kernel: (tx - completed - transmit) as u64 - rejected,
        rejected,
    }
}
