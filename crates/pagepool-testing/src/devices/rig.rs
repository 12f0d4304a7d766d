//! A device under test, its far end, its pool, and helpers for all scenarios.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pagepool::{Bound, Provider, XdpBuff, XdpFrame, XdpFrameBulk};
use pagepool_net::{Device, DeviceExt, DeviceStats, TxQueue, Wake};

use super::far_end::FarEnd;

/// The longest wait, even on a busy machine. A far end without a link may wait this long in each poll.
const PATIENCE: Duration = Duration::from_secs(60);
/// The most polls of a device that may lose or delay packets.
const POLLS: usize = 400;

/// What a device may do to packets and calls. `Default` allows nothing: each packet arrives once, unchanged,
/// in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// Received packets may be missing.
    pub loss: bool,
    /// They may arrive twice.
    pub duplicates: bool,
    /// They may arrive in another order, or later.
    pub disorder: bool,
    /// Their bytes may change.
    pub corruption: bool,
    /// Calls may do nothing although they could.
    pub refusals: bool,
}

impl Allowed {
    /// Whether it allows nothing.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// A device under test, with everything that a scenario needs. Scenarios drop the parts in every order: no
/// other code may hold one of them.
pub struct Rig {
    /// The device, fresh.
    pub device: Box<dyn Device>,
    /// Its other end.
    pub far: Box<dyn FarEnd>,
    /// The pool that it is polled with, mapped in the device's domain. It has pages of order 0, none of which
    /// is out: as many as the receive ring has slots, three times those of the transmit ring, and 100. All
    /// its chains are free.
    pub pool: Bound,
    /// The pool's memory.
    pub provider: Arc<dyn Provider>,
    /// What the device may do to packets.
    pub allowed: Allowed,
    /// Asserts what must hold after every scenario: for example, that no access faulted.
    pub verify: Box<dyn Fn()>,
}

/// The bytes of the packet with this number.
pub(super) fn packet(number: usize, len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..len).map(|at| (at * 7 + number) as u8).collect();
    bytes[..14].copy_from_slice(b"\x02to..\x01\x02from\x01\x88\xb5");
    bytes[14..18].copy_from_slice(&(number as u32).to_be_bytes());
    bytes[18..22].copy_from_slice(&(len as u32).to_be_bytes());
    bytes
}

/// The number of a packet; `None` if [`packet`] did not make it.
pub(super) fn number_of(bytes: &[u8]) -> Option<usize> {
    let number = u32::from_be_bytes(bytes.get(14..18)?.try_into().ok()?) as usize;
    (bytes.len() >= 22 && packet(number, bytes.len()) == bytes).then_some(number)
}

/// All bytes of a packet, over its buffers.
pub(super) fn bytes_of(packet: &XdpBuff) -> Vec<u8> {
    let frags = packet.frags().iter().flat_map(|frag| frag.data());
    packet.data().iter().chain(frags).copied().collect()
}

impl Rig {
    /// Gives the device its first buffers.
    pub(super) fn start(&mut self) {
        self.device.receive(&self.pool, &mut Vec::new(), 0);
        self.far.settle();
    }

    /// Numbers polls, until no more packets are expected.
    fn polls(&self) -> impl Iterator<Item = usize> + use<> {
        let (start, polls) = (Instant::now(), if self.allowed.is_nothing() { usize::MAX } else { POLLS });
        (0..polls).take_while(move |_| start.elapsed() < PATIENCE)
    }

    /// Lets everything between the far end and the device do its work until `is_so`.
    pub(super) fn settle_until(&mut self, is_so: impl Fn(&Self) -> bool) {
        for _ in self.polls() {
            self.far.settle();
            if is_so(self) {
                break;
            }
        }
    }

    /// Polls until `n` packets have arrived, or no more are expected.
    pub(super) fn collect(&mut self, n: usize) -> Vec<XdpBuff> {
        self.collect_until(|_, came| came >= n)
    }

    /// Polls until `enough` packets have arrived, or no more are expected.
    pub(super) fn collect_until(&mut self, enough: impl Fn(&Self, usize) -> bool) -> Vec<XdpBuff> {
        let mut packets = Vec::with_capacity(4 * self.device.info().rx_ring + 64);
        for _ in self.polls() {
            self.far.settle();
            self.device.receive(&self.pool, &mut packets, 64);
            let enough = enough(self, packets.len());
            if enough || self.device.wait(&self.pool, Duration::from_micros(50)) == Wake::Gone {
                break;
            }
        }
        packets
    }

    /// A frame with these bytes, in as many buffers of the pool as it needs.
    pub(super) fn frame(&self, bytes: &[u8]) -> XdpFrame {
        let mut parts = bytes.chunks(self.capacity());
        self.chained(parts.next().unwrap_or(&[]), parts)
    }

    /// A frame of `buffers` buffers with 100 bytes in each.
    pub(super) fn scattered(&self, buffers: usize) -> XdpFrame {
        self.chained(&[9; 100], std::iter::repeat_n(&[9; 100][..], buffers - 1))
    }

    fn chained<'a>(&self, first: &[u8], more: impl Iterator<Item = &'a [u8]>) -> XdpFrame {
        let mut packet = XdpBuff::received(self.filled(first), first.len()).expect("it was filled");
        for part in more {
            let buffer = self.filled(part);
            let offset = buffer.packet_offset();
            packet.add_frag(buffer, offset, part.len()).expect("a chain, and room in it");
        }
        XdpFrame::from(packet)
    }

    fn filled(&self, bytes: &[u8]) -> pagepool::PageBuf {
        let mut buffer = self.pool.alloc_page().expect("the rig's pool has pages enough");
        buffer.packet_mut().expect("the CPU reads it")[..bytes.len()].copy_from_slice(bytes);
        buffer
    }

    /// The most bytes of a packet in one buffer.
    pub(super) fn capacity(&self) -> usize {
        self.pool.alloc_page().expect("the rig's pool has pages enough").packet_capacity()
    }

    /// Sends everything in the queue and returns what arrived at the other end, until nothing is left in the
    /// queue, on the ring or on its way.
    pub(super) fn send_all(&mut self, queue: &mut TxQueue) -> Vec<Vec<u8>> {
        self.far.settle(); // a card may restart its link after it was opened
        let (mut done, mut arrived) = (XdpFrameBulk::new(), Vec::new());
        let sent_before = self.device.stats().tx_packets;
        for _ in self.polls() {
            let (before, refused) = (queue.len(), queue.refused());
            let sent = self.device.transmit(queue);
            let refused = (queue.refused() - refused) as usize;
            assert_eq!(
                queue.len() + sent + refused,
                before,
                "transmit says how many it took, refused ones apart"
            );
            self.take_arrived(&mut arrived);
            self.device.complete(&mut done, 64);
            done.flush();
            if queue.is_empty() && self.device.stats().in_tx == 0 {
                break;
            }
        }
        let sent = (self.device.stats().tx_packets - sent_before) as usize;
        for _ in self.polls() {
            if arrived.len() >= sent || self.allowed.loss {
                break;
            }
            self.take_arrived(&mut arrived);
        }
        arrived
    }

    fn take_arrived(&mut self, arrived: &mut Vec<Vec<u8>>) {
        let mut bytes = Vec::new();
        self.far.settle();
        while self.far.receive(&mut bytes) {
            arrived.push(bytes.clone());
        }
    }

    /// Asserts that every buffer of the pool that is out is on the device's rings, or one of the `held` that
    /// the scenario has.
    pub(super) fn adds_up(&self, held: usize) {
        let stats: DeviceStats = self.device.stats();
        let (out, buffers) = (self.pool.inflight().out, stats.in_rx + stats.in_tx + held as u64);
        assert_eq!(out, buffers, "out = in_rx + in_tx + {held}: {stats:?}");
    }

    /// Closes the device; asserts that everything has returned, and nothing forbidden was done.
    pub(super) fn end(mut self) {
        self.device.close();
        self.adds_up(0);
        let stats = self.device.stats();
        assert_eq!((stats.in_rx, stats.in_tx, self.pool.inflight().out), (0, 0, 0), "all are returned");
        (self.verify)();
    }
}
