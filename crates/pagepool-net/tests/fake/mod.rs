//! A device for tests whose wire the test holds: packets put there arrive, and what is sent lies there.
//!
//! It keeps no ring of receive buffers, so that all that is in flight is what the forwarder has.
#![allow(dead_code, reason = "each test file that has this module uses a part of it")]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use pagepool::{
    Arena, ArenaParams, Bound, DmaDomain, PageBuf, Pool, PoolParams, XdpBuff, XdpFrame, XdpFrameBulk,
};
use pagepool_net::{Armed, Calls, Device, DeviceInfo, DeviceStats, QueueState, TxQueue};
use pagepool_testing::CheckingIommu;

/// How long the wire is not looked at by one who sleeps, for it makes nothing readable.
const BLIND: Duration = Duration::from_micros(200);

/// What the test sees of a device.
#[derive(Debug, Default)]
pub struct Wire {
    pub arriving: VecDeque<Vec<u8>>,
    pub sent: Vec<Vec<u8>>,
    /// Nothing that is on the transmit ring is ever sent.
    pub stuck: bool,
    pub dead: bool,
    /// Calls of `receive`, `transmit`, `complete` and `state` so far.
    pub asked: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Hand(Arc<Mutex<Wire>>);

impl Hand {
    pub fn wire(&self) -> MutexGuard<'_, Wire> {
        self.0.lock().expect("no test panics while it looks at the wire")
    }

    pub fn arrive(&self, packet: impl Into<Vec<u8>>) {
        self.wire().arriving.push_back(packet.into());
    }

    pub fn sent(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.wire().sent)
    }
}

#[derive(Debug)]
pub struct FakeNic {
    hand: Hand,
    info: DeviceInfo,
    /// Its domain, if the device accesses memory through one.
    iommu: Option<Arc<CheckingIommu>>,
    /// How many packets it takes without frames, one call after the other.
    short_way: Vec<usize>,
    tx: VecDeque<XdpFrame>,
    stats: DeviceStats,
}

impl FakeNic {
    /// A device that copies what it sends and receives.
    pub fn copying() -> (Self, Hand) {
        Self::make(None, false)
    }

    /// A device that sees this address space alone.
    pub fn behind(iommu: &Arc<CheckingIommu>, maps: bool) -> (Self, Hand) {
        Self::make(Some(iommu.clone()), maps)
    }

    fn make(iommu: Option<Arc<CheckingIommu>>, maps: bool) -> (Self, Hand) {
        let hand = Hand::default();
        let domain = iommu.clone().map(|iommu| iommu as Arc<dyn DmaDomain>);
        let (name, rx_ring, max_packet, max_buffers) = ("fake".into(), 64, 16384, 18);
        let info = DeviceInfo {
            name,
            domain,
            rx_ring,
            tx_ring: 256,
            max_packet,
            mtu: max_packet - 18,
            max_buffers,
            mac: None,
            maps,
        };
        let (tx, stats) = (VecDeque::new(), DeviceStats::default());
        (Self { hand: hand.clone(), info, iommu, short_way: Vec::new(), tx, stats }, hand)
    }

    pub fn tx_ring(self, tx_ring: usize) -> Self {
        Self { info: DeviceInfo { tx_ring, ..self.info }, ..self }
    }

    /// Takes that many packets by the short way, the last number first; then none.
    pub fn short_way(self, short_way: Vec<usize>) -> Self {
        Self { short_way, ..self }
    }

    fn receive_one(&self, pool: &Bound, bytes: &[u8]) -> Option<XdpBuff> {
        let (first, len) = self.fill(pool, bytes)?;
        let mut packet = XdpBuff::received(first, len).ok()?;
        let mut rest = &bytes[len..];
        while !rest.is_empty() {
            let (next, len) = self.fill(pool, rest)?;
            let offset = next.packet_offset();
            packet.add_frag(next, offset, len).ok()?;
            rest = &rest[len..];
        }
        Some(packet)
    }

    /// Writes a buffer as the device, in its address space.
    fn fill(&self, pool: &Bound, bytes: &[u8]) -> Option<(PageBuf, usize)> {
        let mut buffer = pool.alloc_page()?;
        let len = bytes.len().min(buffer.packet_capacity());
        match &self.iommu {
            None => buffer.packet_mut()?[..len].copy_from_slice(&bytes[..len]),
            Some(iommu) => {
                let mut at = buffer.dma_addr_in(iommu.id()).expect("the pool is mapped for its device");
                at.0 += buffer.packet_offset() as u64;
                iommu.sync_for_device(at, len);
                iommu.device_write(at, &bytes[..len]).expect("the device owns it");
                iommu.sync_for_cpu(at, len);
            }
        }
        Some((buffer, len))
    }

    /// Packets at the front of a burst, as many as the next number says, of one area.
    fn transmit_packets(&mut self, packets: &mut Vec<XdpBuff>) -> usize {
        let area = |packet: &XdpBuff| Arc::as_ptr(packet.buffer().area());
        let of_one_area = packets.iter().take_while(|packet| area(packet) == area(&packets[0])).count();
        let room = self.info.tx_ring - self.tx.len();
        let n = self.short_way.pop().unwrap_or(0).min(of_one_area).min(room);
        self.tx.extend(packets.drain(..n).map(XdpFrame::from));
        self.stats.tx_packets += n as u64;
        n
    }

    /// Hands the frame to the device; returns whether the device can access it.
    fn hand_over(&self, frame: &XdpFrame) -> bool {
        let Some(iommu) = &self.iommu else { return true };
        frame.segments().all(|segment| {
            let at = segment.dma_addr_in(iommu.id());
            at.inspect(|&at| iommu.sync_for_device(at, segment.len)).is_some()
        })
    }

    /// Reads a frame as the device.
    fn read(&self, frame: &XdpFrame) -> Vec<u8> {
        let mut bytes = Vec::new();
        for segment in frame.segments() {
            let mut part = segment.data().to_vec();
            if let Some(iommu) = &self.iommu {
                let at = segment.dma_addr_in(iommu.id()).expect("it stays mapped while it is sent (I6)");
                part.fill(0);
                iommu.device_read(at, &mut part).expect("the device owns it");
            }
            bytes.extend(part);
        }
        bytes
    }
}

impl Device for FakeNic {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn receive(&mut self, pool: &Bound, into: &mut Vec<XdpBuff>, budget: usize) -> usize {
        let most = budget.min(into.capacity() - into.len());
        let mut wire = self.hand.wire();
        wire.asked += 1;
        if wire.dead {
            return 0;
        }
        let n = most.min(wire.arriving.len());
        let arrived: Vec<_> = wire.arriving.drain(..n).collect();
        drop(wire);
        let before = into.len();
        into.extend(arrived.iter().filter_map(|bytes| self.receive_one(pool, bytes)));
        into.len() - before
    }

    fn transmit(&mut self, queue: &mut TxQueue) -> usize {
        self.hand.wire().asked += 1;
        let mut sent = queue.burst().map_or(0, |packets| self.transmit_packets(packets));
        while self.tx.len() < self.info.tx_ring && !self.hand.wire().dead {
            let Some(frame) = queue.front() else { break };
            if !self.hand_over(frame) {
                self.stats.tx_unmapped += 1;
                queue.refuse();
                continue;
            }
            self.stats.tx_packets += 1;
            self.tx.extend(queue.pop());
            sent += 1;
        }
        sent
    }

    fn complete(&mut self, done: &mut XdpFrameBulk, budget: usize) -> usize {
        self.hand.wire().asked += 1;
        let still = |wire: MutexGuard<'_, Wire>| wire.stuck || wire.dead;
        let n = if still(self.hand.wire()) { 0 } else { budget.min(self.tx.len()) };
        for _ in 0..n {
            let Some(frame) = self.tx.pop_front() else { break };
            let bytes = self.read(&frame);
            self.hand.wire().sent.push(bytes);
            done.push(frame);
        }
        n
    }

    fn state(&self) -> QueueState {
        self.hand.wire().asked += 1;
        QueueState { tx_room: self.info.tx_ring - self.tx.len(), calls: Calls::default() }
    }

    fn arm(&mut self, _: &Bound) -> Armed<'_> {
        let wire = self.hand.wire();
        let is_ready = !wire.arriving.is_empty() || (!self.tx.is_empty() && !wire.stuck);
        match (wire.dead, is_ready) {
            (true, _) => Armed::Gone,
            (_, true) => Armed::Ready,
            _ => Armed::Idle { fd: None, waker_fd: None, at_most: BLIND },
        }
    }

    fn stats(&self) -> DeviceStats {
        DeviceStats { in_tx: self.tx.len() as u64, ..self.stats }
    }

    fn close(&mut self) {
        self.hand.wire().dead = true;
        self.tx.clear();
    }
}

/// A pool over memory of its own, for packets of up to 1514 bytes in a buffer.
pub fn pool(domains: Vec<Arc<dyn DmaDomain>>) -> Bound {
    let arena = Arena::new(ArenaParams { max_bytes: 4 << 20, ..Default::default() }).expect("4 MiB are free");
    let layout = PoolParams { headroom: 256, max_len: 1514, tailroom: 320, ..Default::default() };
    Pool::new(PoolParams { domains, ..layout }, arena).expect("the domains map").bind()
}

/// A packet with an Ethernet header and `number` behind it, filled to `len` bytes.
pub fn packet(number: u32, len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..len).map(|at| (at as u32 ^ number) as u8).collect();
    bytes[14..18].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// The number in a packet.
pub fn number(packet: &[u8]) -> u32 {
    u32::from_be_bytes(packet[14..18].try_into().expect("four bytes"))
}
