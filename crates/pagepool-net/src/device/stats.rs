//! Counters of a device.

use super::counters::counters;
use crate::sys::clock::ticks;

counters! {
    /// What a device has done so far, and what is on its rings now. Counts are of packets unless they say
    /// otherwise.
    DeviceStats:
    /// Packets received and handed to the caller.
    ///
    /// If it rises: normal.
    rx_packets,
    /// Bytes of `rx_packets`.
    ///
    /// If it rises: normal.
    rx_bytes,
    /// Lost: no buffer was on the receive ring.
    ///
    /// If it rises: the pool was empty (`alloc_failed`), the rings are too small, or the thread is too slow.
    rx_no_buffer,
    /// Lost: empty, or longer than the device accepts.
    ///
    /// If it rises: the sender's MTU is larger than a chunk; set `multi_buffer`, or lower the MTU.
    rx_too_long,
    /// Lost: a length of 0, or a packet that ends beyond its buffer or in its pool's tailroom.
    ///
    /// If it rises: a faulty device, or a `tailroom` that does not fit; see `check_pool`.
    rx_bad_length,
    /// Buffers that the device reported but did not have.
    ///
    /// If it rises: a faulty device or driver; please report it.
    rx_bad_descriptor,
    /// Lost: packets with more buffers than the device accepts (at most 18), and packets for which the pool
    /// had no chain.
    ///
    /// If it rises: raise `chains`, or use larger buffers.
    rx_too_many_buffers,
    /// Buffers not given to the device, because their pool is not mapped in its domain.
    ///
    /// If it rises: name the device's domain in `PoolParams::domains`.
    rx_unmapped,
    /// Packets put on the transmit ring.
    ///
    /// If it rises: normal.
    tx_packets,
    /// Bytes of `tx_packets`.
    ///
    /// If it rises: normal.
    tx_bytes,
    /// Packets whose buffers the device returned after sending, including those in `tx_dropped`.
    ///
    /// If it rises: normal; if it stops, the link is down or `complete` is not called.
    tx_completed,
    /// Dropped: empty, longer than the device sends, or with too many buffers.
    ///
    /// If it rises: the other interface has a smaller MTU.
    tx_too_long,
    /// Dropped: a buffer that is not mapped for the device.
    ///
    /// If it rises: send through an `Egress`, which maps or copies.
    tx_unmapped,
    /// Dropped: the packet requests something that the socket does not support, or its checksum field is
    /// beyond its first buffer; or TX metadata is on, and a buffer has less than 48 bytes before its data in
    /// its chunk.
    ///
    /// If it rises: check `tx_features` first; call `TxMetadata::write` last; use a pool with `headroom` 256.
    tx_bad_metadata,
    /// Lost: the kernel accepted and then dropped them, in a queueing discipline or filter of the interface,
    /// or because the other end of a veth had no room. Counted only in copy mode; drivers with zero copy do
    /// not report it.
    ///
    /// If it rises: the receiver is too slow, or the queueing discipline limits the rate: `tc -s qdisc`.
    tx_dropped,
    /// Completions of buffers that were not being sent.
    ///
    /// If it rises: a faulty device or driver; please report it.
    tx_bad_descriptor,
    /// Times that the ring had no room for the next frame.
    ///
    /// If it rises: the interface is slower than the source; or call `complete` more often.
    tx_full,
    /// Accesses that the device's domain (IOMMU) refused, if the device reports them.
    ///
    /// If it rises: a faulty device, or a domain that was unmapped too early.
    faults,
    /// System calls to move packets.
    ///
    /// If it rises: if faster than packets, use larger polls or busy polling.
    calls,
    /// Time in these calls, in TSC ticks.
    ///
    /// If it rises: normal; in copy mode it is most of a packet's cost.
    call_ticks,
    /// Calls to send frames that the driver refused: EINVAL, ENXIO, ENETDOWN.
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
    /// Counters of the kernel, if the kernel moves the packets.
    kernel: KernelStats,
}

counters! {
    /// Counters of the kernel for a queue, and where its buffers are now. `fill`, `received` and
    /// `rx_in_kernel` add up to [`in_rx`](DeviceStats::in_rx); `transmit`, `completed`, `tx_in_kernel` and
    /// `rejected` to [`in_tx`](DeviceStats::in_tx). A buffer that moves while they are read counts once.
    KernelStats:
    /// Packets dropped: no buffer on the fill ring, or longer than the queue accepts.
    ///
    /// If it rises: see `rx_no_buffer`, `rx_too_long`.
    rx_dropped,
    /// Descriptors on the fill ring that the kernel found invalid.
    ///
    /// If it rises: a bug; please report it.
    rx_invalid_descs,
    /// Packets dropped because the receive ring was full.
    ///
    /// If it rises: the thread is too slow; use more queues, larger rings, or give it a CPU of its own.
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
    /// Now: buffers that the kernel took from the fill ring and has not put on another ring, and buffers in
    /// the device that wait for the rest of their packet.
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

/// System calls, and their time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Calls.
    pub count: u64,
    /// Their time, in [`ticks`](crate::ticks).
    pub ticks: u64,
    /// Refused calls to send frames: `calls_refused` of [`DeviceStats`].
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
