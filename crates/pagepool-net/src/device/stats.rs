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
    /// Bytes in the received packets.
    ///
    /// If it rises: normal.
    rx_bytes,
    /// Packets lost because the device had no buffer for them or the receive ring was full. For a TAP:
    /// packets that the kernel dropped because its queue was full.
    ///
    /// If it rises: the pool was empty (`alloc_failed`), the rings are too small, or the thread is too slow.
    rx_no_buffer,
    /// Packets lost because they were empty or longer than the device accepts.
    ///
    /// If it rises: the sender's MTU is larger than a chunk. Set `multi_buffer`, or lower that MTU.
    rx_too_long,
    /// Packets lost because their length was 0, or because they ended beyond their buffer or in their pool's
    /// tailroom.
    ///
    /// If it rises: the device is faulty, or the pool's `tailroom` is too large. See `check_pool`.
    rx_bad_length,
    /// Buffers that the device reported although it did not have them.
    ///
    /// If it rises: the device or its driver is faulty. Please report it.
    rx_bad_descriptor,
    /// Packets lost because they had more buffers than the device accepts (at most 18), or because the pool
    /// had no chain for them.
    ///
    /// If it rises: raise `chains`, or use larger buffers.
    rx_too_many_buffers,
    /// Buffers not given to the device because their pool is not mapped in the device's domain.
    ///
    /// If it rises: add that domain to `PoolParams::domains`.
    rx_unmapped,
    /// Packets put on the transmit ring.
    ///
    /// If it rises: normal.
    tx_packets,
    /// Bytes in the packets put on the transmit ring.
    ///
    /// If it rises: normal.
    tx_bytes,
    /// Packets whose buffers the device returned after sending, including those in `tx_dropped`.
    ///
    /// If it rises: normal. If it stops rising, the link is down or `complete` is not called.
    tx_completed,
    /// Packets dropped because they were empty (for a TAP: shorter than an Ethernet header), were longer than
    /// the device can send, or had too many buffers.
    ///
    /// If it rises: packets arrive from an interface with a larger MTU.
    tx_too_long,
    /// Packets dropped because a buffer was not mapped for the device.
    ///
    /// If it rises: send through an `Egress`, which maps or copies packets.
    tx_unmapped,
    /// Packets dropped because they request something that the device does not support, because their
    /// checksum field lies beyond the first buffer, because they request segments without the checksum, or
    /// because TX metadata is on and a buffer's data begins in the first 48 bytes of its chunk.
    ///
    /// If it rises: check `tx_features` first, call `TxMetadata::write` last, and use a pool with `headroom`
    /// 256.
    tx_bad_metadata,
    /// Packets that the kernel accepted and then dropped, in a qdisc or filter of the interface, or because
    /// the other end of a veth had no room. Counted only in copy mode: drivers with zero copy do not report
    /// it.
    ///
    /// If it rises: the receiver is too slow, or a qdisc limits the rate. See `tc -s qdisc`.
    tx_dropped,
    /// Completions of buffers that were not being sent.
    ///
    /// If it rises: the device or its driver is faulty. Please report it.
    tx_bad_descriptor,
    /// How often the ring had no room for the next frame.
    ///
    /// If it rises: the interface is slower than the source, or `complete` is called too rarely.
    tx_full,
    /// Accesses that the device's domain (IOMMU) refused, if the device reports them.
    ///
    /// If it rises: the device is faulty, or memory was unmapped from its domain too early.
    faults,
    /// System calls to move packets.
    ///
    /// If it rises: normal. If it outpaces the packet counters, poll more packets at once or use busy
    /// polling.
    calls,
    /// Time spent in `calls`, in TSC ticks.
    ///
    /// If it rises: normal. In copy mode it is most of the cost per packet.
    call_ticks,
    /// Calls to send frames that the driver refused with EINVAL, ENXIO or ENETDOWN, or that a TAP refused
    /// with EIO.
    ///
    /// If it rises: the interface is down, or zero copy sends nothing because no XDP program is attached.
    calls_refused,
    /// Buffers that `close` took back from the rings.
    ///
    /// If it rises: normal.
    closed_with,
    /// Buffers left to a vhost back end that did not answer when asked to stop, and may still write to them.
    ///
    /// If it rises: the back end hangs. The buffers never return; kill the back end, and restart this
    /// process.
    kept,
    /// How often a vhost back end exited, closed the connection, or broke the rules of the rings. All buffers
    /// on the rings returned, except those in `kept`.
    ///
    /// If it rises: see the back end's log. The device reconnects by itself.
    link_lost,
    /// Now: buffers that wait for packets.
    ///
    /// If it rises: normal. If it falls to 0, the pool is empty.
    in_rx,
    /// Now: buffers that are being sent, or that were sent but not yet taken back.
    ///
    /// If it rises: normal. If it nears the ring's size, the interface is too slow or down.
    in_tx,
    and
    /// Counters of the kernel, if the kernel moves the packets.
    kernel: KernelStats,
}

counters! {
    /// The kernel's counters for a queue, and where its buffers are now. `fill`, `received` and
    /// `rx_in_kernel` add up to [`in_rx`](DeviceStats::in_rx); `transmit`, `completed`, `tx_in_kernel` and
    /// `rejected` to [`in_tx`](DeviceStats::in_tx). A buffer that moves while they are read counts once.
    KernelStats:
    /// Packets dropped because no buffer was on the fill ring, or because they were longer than the queue
    /// accepts.
    ///
    /// If it rises: see `rx_no_buffer` and `rx_too_long`.
    rx_dropped,
    /// Descriptors on the fill ring that the kernel found invalid.
    ///
    /// If it rises: this is a bug. Please report it.
    rx_invalid_descs,
    /// Packets dropped because the receive ring was full.
    ///
    /// If it rises: the thread is too slow. Use more queues or larger rings, or give the thread a CPU of its
    /// own.
    rx_ring_full,
    /// How often the kernel found the fill ring empty.
    ///
    /// If it rises: the pool was empty (raise `max_bytes`), the ring has too few buffers (raise
    /// `rx_buffers`), or the thread is too slow.
    rx_fill_ring_empty,
    /// Descriptors on the transmit ring that the kernel refused.
    ///
    /// If it rises: this is a bug. Please report it.
    tx_invalid_descs,
    /// How often the kernel found the transmit ring empty.
    ///
    /// If it rises: normal.
    tx_ring_empty,
    /// Now: buffers on the fill ring.
    ///
    /// If it rises: normal. If it is near 0 under load, see `rx_fill_ring_empty`.
    fill,
    /// Now: buffers with packets on the receive ring.
    ///
    /// If it rises: normal. If it nears the ring's size, the thread is too slow.
    received,
    /// Now: buffers that the kernel took from the fill ring but has not put on another ring, plus received
    /// buffers that wait for the rest of their packet.
    ///
    /// If it rises: normal.
    rx_in_kernel,
    /// Now: buffers on the transmit ring.
    ///
    /// If it rises: normal. If it nears the ring's size, the interface is too slow or down.
    transmit,
    /// Now: buffers on the completion ring.
    ///
    /// If it rises: normal. If it nears the ring's size, `complete` is called too rarely.
    completed,
    /// Now: buffers that are being sent.
    ///
    /// If it rises: normal.
    tx_in_kernel,
    /// Now: buffers whose descriptors the kernel refused. `close` takes them back.
    ///
    /// If it rises: this is a bug. Please report it.
    rejected,
}

counters! {
    /// System calls, and their time.
    Calls:
    /// Calls.
    count,
    /// Their time, in [`ticks`](crate::ticks).
    ticks,
    /// Refused calls to send frames: `calls_refused` of [`DeviceStats`].
    refused,
    /// Packets that these calls dropped: `tx_dropped` of [`DeviceStats`].
    dropped,
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
