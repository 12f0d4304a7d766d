//! The kernel's counts for a socket (`XDP_STATISTICS`), and where its buffers are.

use super::sys::socket::KernelCounts;
use crate::device::KernelStats;

/// For both sides: buffers that are out, and those on either ring.
pub(super) fn kernel_stats(
    kernel: KernelCounts,
    (rx, (fill, received)): (usize, (usize, usize)),
    (tx, (transmit, completed)): (usize, (usize, usize)),
) -> KernelStats {
    // Limited to the rest, so the sum is right even if the kernel moves on between the reads.
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

/// Packets without a buffer or room on the receive ring; and packets that were too long.
pub(super) fn lost_before_the_ring(kernel: KernelCounts, several: bool, zero_copy: bool) -> (u64, u64) {
    if zero_copy {
        // The kernel counts a driver's attempts to get buffers, ahead of packets. What the hardware drops is
        // in the interface's own counters.
        return (kernel.rx_ring_full, kernel.rx_dropped);
    }
    // With several buffers no packet is too long, and the kernel does not count an empty fill ring.
    let no_buffer = kernel.rx_fill_ring_empty_descs.max(if several { kernel.rx_dropped } else { 0 });
    (no_buffer + kernel.rx_ring_full, kernel.rx_dropped.saturating_sub(no_buffer))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xsk::sys::socket::NO_COUNTS;

    #[test]
    fn attempts_of_a_zero_copy_driver_are_no_lost_packets() {
        let counts =
            KernelCounts { rx_dropped: 7, rx_ring_full: 2, rx_fill_ring_empty_descs: 5, ..NO_COUNTS };
        assert_eq!(lost_before_the_ring(counts, false, false), (7, 2));
        assert_eq!(lost_before_the_ring(counts, true, false), (9, 0));
        assert_eq!(lost_before_the_ring(KernelCounts { rx_dropped: 0, ..counts }, false, true), (2, 0));
    }
}
