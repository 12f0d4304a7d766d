//! An in-memory NIC: a device in software, with descriptor rings and a driver that does not trust it.
//!
//! What   two halves that share four rings and a gate. [`MemNic`] is the driver, a [`Device`] for the thread
//!        that polls. [`NicPort`] is the hardware, on any thread.
//!
//! ```text
//!   driver: MemNic                      rings                        hardware: NicPort
//!   table: id -> PageBuf    ── fill: address, length, id ────────►  deliver(packet): writes by the domain
//!                           ◄─ received: id, length, last? ───────
//!   table: id -> XdpFrame   ── send: address, length, id, last? ─►  take(packet): reads by the domain
//!                           ◄─ sent: id ──────────────────────────
//! ```
//!
//! Memory the hardware has no handle and no pointer: it knows device addresses, which its domain translates.
//!        It writes memory that another thread hands out. That is sound because:
//!        * The driver puts a descriptor on a ring only after the buffer is in its table, where no code can
//!          access it: the buffer is out (I1), its memory stays (I3), no reference to its bytes exists (I4),
//!          and its address is that of a mapping of this very domain object (`mapping_cache.rs`).
//!        * The port touches the bytes of a descriptor only between taking it off the ring and completing it,
//!          and never those of an id that it completed falsely (`port.rs`). An id is not used twice within 65,536
//!          lives of its slot.
//!        * The driver takes a buffer out of the table when it is completed, after the port's last access.
//!          The ring's tail is stored with Release and loaded with Acquire, both ways. Or at the end, below.
//! End    `close` takes the gate: it waits for a step of the port to end, and no other begins. Then only the
//!        driver has the buffers. A port that died may never complete a buffer; `close` returns it.
//! Rings  of the crate `rtrb`: one producer, one consumer, bulk access at both ends, indices in separate
//!        cache lines. Every ring has a place for each slot of the table, so an honest port never finds a
//!        completion ring full.
//! Cost   receive: per packet a completion is copied, a table entry emptied and filled, an address computed,
//!        a descriptor put. No read-modify-write, no lock, no allocation.

mod descriptor;
pub(crate) mod device_memory;
mod link;
pub(crate) mod nic_domain;
mod params;
mod port;
pub(crate) mod port_thread;
mod receiver;
mod sender;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pagepool::{Bound, DmaDomain, Error, XdpBuff, XdpFrameBulk};
use rtrb::RingBuffer;

pub use params::MemNicParams;
pub use port::{NicPort, PortStep};

use crate::device::device::{HEADERS, make_room};
use crate::device::mapping_cache::MappingCache;
use crate::device::tx_slots::TxLimits;
use crate::device::{Armed, Calls, Device, DeviceInfo, DeviceStats, QueueState, TxQueue};
use device_memory::DeviceMemory;
use link::Link;
use port::PortRings;
use receiver::Receiver;
use sender::Sender;

/// The driver half of an in-memory NIC. See [`mem_nic`].
#[derive(Debug)]
pub struct MemNic {
    info: DeviceInfo,
    mappings: MappingCache,
    link: Arc<Link>,
    /// Whether the port wakes this end: true from `arm` on.
    armed: bool,
    receiver: Receiver,
    sender: Sender,
    stats: DeviceStats,
    open: bool,
}

/// Makes an in-memory NIC that accesses memory through `memory`: a [`NicDomain`](crate::NicDomain), or in
/// tests `pagepool_testing::CheckingIommu`. Its pools must name that domain.
///
/// It has no buffers for packets before its first [`receive`](Device::receive).
///
/// ```
/// use pagepool::{Arena, ArenaParams, XdpFrameBulk, Pool, PoolParams};
/// use pagepool_net::{Device, MemNicParams, NicDomain, TxQueue, mem_nic};
///
/// let domain = NicDomain::new("mem0");
/// let arena = Arena::new(ArenaParams { max_bytes: 4 << 20, ..Default::default() })?;
/// let pool = Pool::new(PoolParams { domains: vec![domain.clone()], ..Default::default() }, arena)?.bind();
/// let (mut nic, mut wire) = mem_nic(MemNicParams::default(), domain)?;
///
/// let mut packets = Vec::with_capacity(64);
/// let mut out = TxQueue::with_capacity(64, 64);
/// let mut done = XdpFrameBulk::new();
/// nic.receive(&pool, &mut packets, 64); // the first buffers
///
/// for round in 0..10u8 {
///     assert!(wire.deliver(&[round; 60]));
///     nic.receive(&pool, &mut packets, 64);
///     for mut packet in packets.drain(..) {
///         packet.data_mut()[0] = 99;
///         out.push(packet); // back to where it came from
///     }
///     nic.transmit(&mut out);
///     let sent = wire.take(|packet| assert_eq!((packet.len(), packet[0], packet[1]), (60, 99, round)));
///     assert!(sent);
///     nic.complete(&mut done, 64);
///     done.flush();
/// }
/// assert_eq!((nic.stats().rx_packets, nic.stats().tx_completed), (10, 10));
/// nic.close();
/// assert_eq!(pool.inflight().out, 0);
/// # Ok::<(), pagepool::Error>(())
/// ```
pub fn mem_nic(params: MemNicParams, memory: Arc<dyn DeviceMemory>) -> Result<(MemNic, NicPort), Error> {
    params.check()?;
    let link = Arc::new(Link::new()?);
    let (fill, posted) = RingBuffer::new(params.rx_ring);
    let (received, came) = RingBuffer::new(params.rx_ring);
    let (send, to_send) = RingBuffer::new(params.tx_ring);
    let (sent, went) = RingBuffer::new(params.tx_ring);
    let domain: Arc<dyn DmaDomain> = memory.clone();
    let rings = PortRings { fill: posted, received, send: to_send, sent };
    let port = NicPort::new(link.clone(), memory, rings, params.max_packet, params.max_buffers);
    let limits = TxLimits { max_packet: params.max_packet, max_buffers: params.max_buffers };
    let nic = MemNic {
        info: DeviceInfo {
            name: params.name,
            domain: Some(domain.clone()),
            rx_ring: params.rx_ring,
            tx_ring: params.tx_ring,
            max_packet: params.max_packet,
            mtu: params.max_packet.saturating_sub(HEADERS),
            max_buffers: params.max_buffers,
            mac: None,
            maps: true,
        },
        mappings: MappingCache::new(domain),
        link,
        armed: false,
        receiver: Receiver::new(fill, came, params.max_buffers),
        sender: Sender::new(send, went, limits),
        stats: DeviceStats::default(),
        open: true,
    };
    Ok((nic, port))
}

impl MemNic {
    /// Reads at most `budget` packets in place, and gives their buffers to the device again, like a driver
    /// with a fixed array of buffers; returns how many. Only for packets of one buffer: a part of a larger
    /// packet counts as `rx_bad_length`. The buffers are those of the last [`receive`](Device::receive).
    #[doc(hidden)]
    #[cfg(any(test, feature = "testing"))]
    #[inline]
    pub fn look_in_place(&mut self, budget: usize, look: impl FnMut(&mut [u8])) -> usize {
        if self.link.is_gone() {
            return 0;
        }
        self.receiver.look_in_place(budget, &self.mappings, &mut self.stats, look)
    }

    /// Ends the sleep, and takes back the wake-up signal.
    #[cold]
    fn disarm(&mut self) {
        self.armed = false;
        self.link.bell.awake();
    }
}

impl Device for MemNic {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    #[inline]
    fn receive(&mut self, pool: &Bound, into: &mut Vec<XdpBuff>, budget: usize) -> usize {
        if self.link.is_gone() {
            return 0;
        }
        if self.armed {
            self.disarm();
        }
        let mut n = self.receiver.receive(into, budget, &self.mappings, &mut self.stats);
        if n == 0 && make_room(into, budget, self.info.rx_ring) {
            n = self.receiver.receive(into, budget, &self.mappings, &mut self.stats);
        }
        self.receiver.refill(pool, &mut self.mappings, &mut self.stats);
        n
    }

    #[inline]
    fn transmit(&mut self, queue: &mut TxQueue) -> usize {
        if self.link.is_gone() {
            return 0;
        }
        self.sender.transmit(queue, &mut self.mappings, &mut self.stats)
    }

    #[inline]
    fn complete(&mut self, done: &mut XdpFrameBulk, budget: usize) -> usize {
        if self.link.is_gone() {
            return 0;
        }
        self.sender.complete(done, budget, &mut self.stats)
    }

    fn state(&self) -> QueueState {
        QueueState { tx_room: self.sender.room(), calls: Calls::default() }
    }

    fn arm(&mut self, pool: &Bound) -> Armed<'_> {
        if self.armed {
            self.disarm();
        }
        self.armed = true;
        self.link.bell.sleep();
        if self.link.is_gone() {
            return Armed::Gone;
        }
        let before = self.receiver.held();
        self.receiver.refill(pool, &mut self.mappings, &mut self.stats);
        if self.receiver.held() > before || self.receiver.has_some() || self.sender.has_some() {
            Armed::Ready
        } else {
            Armed::Idle { fd: Some(self.link.bell.event()), waker_fd: None, at_most: Duration::MAX }
        }
    }

    fn stats(&self) -> DeviceStats {
        let counts = &self.link.counts;
        DeviceStats {
            rx_no_buffer: counts.no_buffer.load(Ordering::Relaxed),
            rx_too_long: counts.too_long.load(Ordering::Relaxed),
            faults: counts.faults.load(Ordering::Relaxed),
            in_rx: self.receiver.held() as u64,
            in_tx: self.sender.held() as u64,
            ..self.stats
        }
    }

    fn close(&mut self) {
        if std::mem::replace(&mut self.open, false) {
            self.link.close();
            self.stats.closed_with += (self.receiver.clear() + self.sender.clear()) as u64;
        }
    }
}

impl Drop for MemNic {
    fn drop(&mut self) {
        self.close();
    }
}
