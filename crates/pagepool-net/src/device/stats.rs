//! What a device counts.

use super::counters::counters;
use crate::sys::clock::ticks;

counters! {
    /// What a device has done so far, and what is on its rings now. All counts are of packets, unless they
    /// say otherwise.
    DeviceStats:
    /// Received and handed on.
    rx_packets,
    /// Bytes of them.
    rx_bytes,
    /// Arrived while no buffer was there for them.
    rx_no_buffer,
    /// Arrived empty, or longer than the device takes.
    rx_too_long,
    /// Buffers that came back with a length of 0, or with a packet beyond the buffer, or in its pool's
    /// tailroom.
    rx_bad_length,
    /// Buffers that the device named and did not have: it named them before, or never had them.
    rx_bad_descriptor,
    /// Packets with more buffers than a packet may have, or for whose buffers the pool had no chain.
    rx_too_many_buffers,
    /// Buffers of a pool that is not mapped in the device's domain.
    rx_unmapped,
    /// Taken to be sent.
    tx_packets,
    /// Bytes of them.
    tx_bytes,
    /// Sent, and given back.
    tx_completed,
    /// Refused: empty, longer than the device sends, or of too many buffers.
    tx_too_long,
    /// Refused: a buffer outside the device's address space.
    tx_unmapped,
    /// Completions that named nothing that was being sent.
    tx_bad_descriptor,
    /// Times that the next frame had no room.
    tx_full,
    /// Accesses of the device that its address space refused, as far as the device tells.
    faults,
    /// System calls made to move packets.
    calls,
    /// Their time, as [`ticks`](crate::ticks) counts it.
    call_ticks,
    /// Buffers taken back by close, from either ring.
    closed_with,
    /// Now: buffers that wait for packets.
    in_rx,
    /// Now: buffers that are being sent, or were and were not yet given back.
    in_tx,
    and
    /// What the kernel counts, if it is the kernel that moves the packets.
    kernel: KernelStats,
}

counters! {
    /// What the kernel counts for a queue, and where its buffers are now. `fill`, `received` and
    /// `rx_in_kernel` add up to [`in_rx`](DeviceStats::in_rx); `transmit`, `completed`, `tx_in_kernel` and
    /// `rejected` to [`in_tx`](DeviceStats::in_tx). While packets move, a buffer that goes from one place to
    /// the next counts in one of them.
    KernelStats:
    /// Packets dropped: no buffer on the fill ring, or longer than the queue takes.
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
    /// Now: buffers that the kernel took off the fill ring and has put on no other, or that wait here for the
    /// rest of their packet.
    rx_in_kernel,
    /// Now: buffers on the transmit ring.
    transmit,
    /// Now: buffers on the completion ring.
    completed,
    /// Now: buffers that are being sent.
    tx_in_kernel,
    /// Now: buffers whose descriptors the kernel refused and never completes; they come back when the device
    /// is closed.
    rejected,
}

/// System calls, and what they took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// How many.
    pub count: u64,
    /// Their time, as [`ticks`](crate::ticks) counts it.
    pub ticks: u64,
}

impl Calls {
    /// Makes a system call, and counts it.
    #[inline]
    pub(crate) fn make<R>(&mut self, call: impl FnOnce() -> R) -> R {
        let start = ticks();
        let result = call();
        self.count += 1;
        self.ticks += ticks().saturating_sub(start);
        result
    }
}
