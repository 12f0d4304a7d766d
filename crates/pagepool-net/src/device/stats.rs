//! What a device counts.

use super::counters::counters;
use crate::sys::clock::ticks;

counters! {
    /// What a device has done so far, and what is on its rings now. All counts are of packets, unless they
    /// say otherwise.
    DeviceStats:
    /// Received and handed on.
    ///
    /// If it rises: normal.
    rx_packets,
    /// Bytes of them.
    ///
    /// If it rises: normal.
    rx_bytes,
    /// Arrived while no buffer was there for them.
    ///
    /// If it rises: the pool was empty (`alloc_failed`), the rings are too small, or the thread is too slow.
    rx_no_buffer,
    /// Arrived empty, or longer than the device takes.
    ///
    /// If it rises: the MTU of the sender is larger than the chunk: `multi_buffer`, or a smaller MTU.
    rx_too_long,
    /// Buffers that came back with a length of 0, or with a packet beyond the buffer, or in its pool's
    /// tailroom.
    ///
    /// If it rises: a faulty device, or the pool's `tailroom` does not fit: see `check_pool`.
    rx_bad_length,
    /// Buffers that the device named and did not have: it named them before, or never had them.
    ///
    /// If it rises: a faulty device or driver; please report it.
    rx_bad_descriptor,
    /// Packets with more buffers than a packet may have, or for whose buffers the pool had no chain.
    ///
    /// If it rises: raise `chains`, or use larger buffers.
    rx_too_many_buffers,
    /// Buffers of a pool that is not mapped in the device's domain.
    ///
    /// If it rises: name the device's domain in `PoolParams::domains`.
    rx_unmapped,
    /// Taken to be sent.
    ///
    /// If it rises: normal.
    tx_packets,
    /// Bytes of them.
    ///
    /// If it rises: normal.
    tx_bytes,
    /// Sent, and given back.
    ///
    /// If it rises: normal; if it stands still, the link is down or nobody calls `complete`.
    tx_completed,
    /// Refused for good: empty, longer than the device sends, or of too many buffers.
    ///
    /// If it rises: the other interface has a smaller MTU.
    tx_too_long,
    /// Refused for good: a buffer outside the device's address space.
    ///
    /// If it rises: send through an `Egress`, which maps or copies.
    tx_unmapped,
    /// Completions that named nothing that was being sent.
    ///
    /// If it rises: a faulty device or driver; please report it.
    tx_bad_descriptor,
    /// Times that the next frame had no room on the ring.
    ///
    /// If it rises: the interface is slower than the source; or call `complete` more often.
    tx_full,
    /// Accesses of the device that its address space refused, as far as the device tells.
    ///
    /// If it rises: a faulty device, or a domain that was unmapped too early.
    faults,
    /// System calls made to move packets.
    ///
    /// If it rises: many for few packets: larger polls, or busy polling.
    calls,
    /// Time of these calls, in TSC ticks.
    ///
    /// If it rises: most of a packet's cost in copy mode.
    call_ticks,
    /// Buffers taken back by `close`, from either ring.
    ///
    /// If it rises: normal.
    closed_with,
    /// Now: buffers that wait for packets.
    ///
    /// If it rises: near 0: the pool is empty.
    in_rx,
    /// Now: buffers that are being sent, or were and were not yet given back.
    ///
    /// If it rises: near the ring's size: the interface is too slow, or down.
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
    ///
    /// If it rises: as `rx_no_buffer`, `rx_too_long`.
    rx_dropped,
    /// Descriptors that the receive side found invalid.
    ///
    /// If it rises: a bug; please report it.
    rx_invalid_descs,
    /// Packets dropped because the receive ring was full.
    ///
    /// If it rises: the thread is too slow: more queues, larger rings, a CPU of its own.
    rx_ring_full,
    /// Times that the kernel found the fill ring empty: the pool was dry, or too few buffers are kept out.
    ///
    /// If it rises: the pool was empty: raise `max_bytes`; or the ring holds too few: raise `rx_buffers`.
    rx_fill_ring_empty,
    /// Descriptors on the transmit ring that the kernel refused, and dropped.
    ///
    /// If it rises: a bug; please report it.
    tx_invalid_descs,
    /// Times that the kernel found the transmit ring empty.
    ///
    /// If it rises: normal.
    tx_ring_empty,
    /// Now: buffers on the fill ring.
    ///
    /// If it rises: near 0 under load: see `rx_fill_ring_empty`.
    fill,
    /// Now: buffers on the receive ring, which have packets.
    ///
    /// If it rises: near the ring's size: the thread is too slow.
    received,
    /// Now: buffers that the kernel took off the fill ring and has put on no other, or that wait in the
    /// device for the rest of their packet.
    ///
    /// If it rises: normal.
    rx_in_kernel,
    /// Now: buffers on the transmit ring.
    ///
    /// If it rises: near the ring's size: the interface is too slow, or down.
    transmit,
    /// Now: buffers on the completion ring.
    ///
    /// If it rises: `complete` is called too rarely.
    completed,
    /// Now: buffers that are being sent.
    ///
    /// If it rises: normal.
    tx_in_kernel,
    /// Now: buffers whose descriptors the kernel refused and never completes; they come back when the device
    /// is closed.
    ///
    /// If it rises: a bug; please report it.
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
