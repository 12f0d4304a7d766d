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
    /// Lost: no buffer was on the receive ring.
    ///
    /// If it rises: the pool was empty (`alloc_failed`), the rings are too small, or the thread is too slow.
    rx_no_buffer,
    /// Lost: empty, or longer than the device takes.
    ///
    /// If it rises: the sender's MTU is larger than a chunk; set `multi_buffer`, or lower the MTU.
    rx_too_long,
    /// Lost: a length of 0, or a packet that ends beyond its buffer or in its pool's tailroom.
    ///
    /// If it rises: a faulty device, or a `tailroom` that does not fit; see `check_pool`.
    rx_bad_length,
    /// Buffers that the device reported and did not have.
    ///
    /// If it rises: a faulty device or driver; please report it.
    rx_bad_descriptor,
    /// Lost: packets of more buffers than the device takes (18 at most), and packets for which the pool had
    /// no chain.
    ///
    /// If it rises: raise `chains`, or use larger buffers.
    rx_too_many_buffers,
    /// Buffers not given to the device, because their pool is not mapped in its domain.
    ///
    /// If it rises: name the device's domain in `PoolParams::domains`.
    rx_unmapped,
    /// Put on the transmit ring.
    ///
    /// If it rises: normal.
    tx_packets,
    /// Bytes of them.
    ///
    /// If it rises: normal.
    tx_bytes,
    /// Sent, and their buffers taken back; those of `tx_dropped` among them.
    ///
    /// If it rises: normal; if it stops, the link is down or nobody calls `complete`.
    tx_completed,
    /// Dropped: empty, longer than the device sends, or of too many buffers.
    ///
    /// If it rises: the other interface has a smaller MTU.
    tx_too_long,
    /// Dropped: a buffer that is not mapped for the device.
    ///
    /// If it rises: send through an `Egress`, which maps or copies.
    tx_unmapped,
    /// Dropped: the packet requests something that the socket does not support, or a checksum field beyond
    /// its first buffer; or TX metadata is on, and a buffer has less than 48 bytes before its data in its
    /// chunk.
    ///
    /// If it rises: ask `tx_features` before; call `TxMetadata::write` last; use a pool with `headroom` 256.
    tx_bad_metadata,
    /// Lost: the kernel took them and dropped them. A queueing discipline or filter of the interface did, or
    /// the other end of a veth had no room. In copy mode only; a driver with zero copy does not say.
    ///
    /// If it rises: the receiver is too slow, or the queueing discipline limits the rate: `tc -s qdisc`.
    tx_dropped,
    /// Completions of buffers that were not being sent.
    ///
    /// If it rises: a faulty device or driver; please report it.
    tx_bad_descriptor,
    /// Times that the next frame had no room on the ring.
    ///
    /// If it rises: the interface is slower than the source; or call `complete` more often.
    tx_full,
    /// Accesses that the device's domain (IOMMU) refused, as far as the device reports them.
    ///
    /// If it rises: a faulty device, or a domain that was unmapped too early.
    faults,
    /// System calls made to move packets.
    ///
    /// If it rises: if faster than packets, use larger polls or busy polling.
    calls,
    /// Time of these calls, in TSC ticks.
    ///
    /// If it rises: normal; in copy mode it is most of a packet's cost.
    call_ticks,
    /// Those of them that were to have frames sent, and that the driver refused: EINVAL, ENXIO, ENETDOWN.
    ///
    /// If it rises: the interface is down, or zero copy sends nothing because no XDP program is attached.
    calls_refused,
    /// Buffers that `close` took back from the rings.
    ///
    /// If it rises: normal.
    closed_with,
    /// Now: buffers that wait for packets.
    ///
    /// If it rises: normal; if it falls to 0, the pool is empty.
    in_rx,
    /// Now: buffers that are being sent, or were sent and not yet taken back.
    ///
    /// If it rises: if near the ring's size, the interface is too slow, or down.
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
    /// Descriptors on the fill ring that the kernel found invalid.
    ///
    /// If it rises: a bug; please report it.
    rx_invalid_descs,
    /// Packets dropped because the receive ring was full.
    ///
    /// If it rises: the thread is too slow; use more queues, larger rings, or a CPU of its own.
    rx_ring_full,
    /// Times that the kernel found the fill ring empty.
    ///
    /// If it rises: the pool was empty; raise `max_bytes`. Or the ring has too few buffers; raise
    /// `rx_buffers`.
    rx_fill_ring_empty,
    /// Descriptors on the transmit ring that the kernel refused.
    ///
    /// If it rises: a bug; please report it.
    tx_invalid_descs,
    /// Times that the kernel found the transmit ring empty.
    ///
    /// If it rises: normal.
    tx_ring_empty,
    /// Now: buffers on the fill ring.
    ///
    /// If it rises: normal; if near 0 under load, see `rx_fill_ring_empty`.
    fill,
    /// Now: buffers on the receive ring, with packets.
    ///
    /// If it rises: if near the ring's size, the thread is too slow.
    received,
    /// Now: buffers that the kernel took off the fill ring and has put on no other ring, and those that wait
    /// in the device for the rest of their packet.
    ///
    /// If it rises: normal.
    rx_in_kernel,
    /// Now: buffers on the transmit ring.
    ///
    /// If it rises: if near the ring's size, the interface is too slow, or down.
    transmit,
    /// Now: buffers on the completion ring.
    ///
    /// If it rises: if near the ring's size, `complete` is called too rarely.
    completed,
    /// Now: buffers that are being sent.
    ///
    /// If it rises: normal.
    tx_in_kernel,
    /// Now: buffers whose descriptors the kernel refused; `close` takes them back.
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
    /// Those that were to have frames sent, and were refused: `calls_refused` of [`DeviceStats`].
    pub refused: u64,
    /// Packets that these calls dropped: `tx_dropped` of [`DeviceStats`].
    pub dropped: u64,
}

impl std::ops::Add for Calls {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            count: self.count + other.count,
            ticks: self.ticks + other.ticks,
            refused: self.refused + other.refused,
            dropped: self.dropped + other.dropped,
        }
    }
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
