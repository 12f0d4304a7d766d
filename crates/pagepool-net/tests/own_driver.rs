//! A driver of a made-up card, which docs/guide.md explains: in the conformance suite, in a forwarder, and
//! against a card that lies. It uses the public interface only.
//!
//! Card   two rings of descriptors of 16 bytes: one for packets that come, one for packets to send. Driver
//!        and card use them in order. A packet has one descriptor, and one buffer.

mod card;

use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pagepool::{
    Arena, ArenaParams, Batch, Bound, DeviceAddr, DeviceTable, DmaDomain, DomainId, PageIdx, Pool,
    PoolParams, Provider, Region, XdpBuff, XdpFrame, XdpFrameBulk,
};
use pagepool_net::{Action, Armed, Device, DeviceInfo, DeviceStats, Forwarder, QueueState, TxQueue};
use pagepool_testing::{Allowed, FarEnd, Rig, conformance_device};

use card::Card;

// ---- What driver and card share ---------------------------------------------------------------------------

const SLOTS: usize = 64;
const LONGEST: usize = 1518;
/// Where the arena begins, for the card.
const ARENA_AT: u64 = 1 << 40;
/// Of a descriptor's word: it is the card's. The bits below it are a length.
const OF_CARD: u64 = 1 << 32;

#[derive(Debug, Default)]
#[repr(C, align(16))]
struct Descriptor {
    at: AtomicU64,
    word: AtomicU64,
}

#[derive(Debug)]
struct Shared {
    rx: [Descriptor; SLOTS],
    tx: [Descriptor; SLOTS],
    /// Whether the next completion shall interrupt.
    interrupts: AtomicBool,
    /// Whether the card runs. It has the lock while it accesses a buffer.
    runs: Mutex<bool>,
}

// ---- The address space ------------------------------------------------------------------------------------

/// The card reaches one arena, as a whole.
#[derive(Debug)]
struct CardDomain {
    id: DomainId,
    area: u64,
}

impl DmaDomain for CardDomain {
    fn id(&self) -> DomainId {
        self.id
    }
    fn name(&self) -> String {
        "card".into()
    }
    fn map(&self, region: &Region) -> Result<DeviceAddr, String> {
        match region.area() == self.area {
            true => Ok(DeviceAddr(ARENA_AT + region.offset())),
            false => Err("the card reaches only the arena that it was opened with".into()),
        }
    }
    fn unmap(&self, _: &Region, _: DeviceAddr) {}
    fn sync_for_device(&self, _: DeviceAddr, _: usize) {}
    fn sync_for_cpu(&self, _: DeviceAddr, _: usize) {}
}

// ---- The driver -------------------------------------------------------------------------------------------

/// The driver's place on a ring: descriptors ever given to the card, and taken back.
#[derive(Debug, Default)]
struct Place {
    given: usize,
    taken: usize,
}

impl Place {
    fn held(&self) -> usize {
        self.given - self.taken
    }

    /// Gives the next descriptor to the card. What it names is in a table already.
    fn give(&mut self, ring: &[Descriptor; SLOTS], at: u64, len: usize) {
        let descriptor = &ring[self.given % SLOTS];
        descriptor.at.store(at, Ordering::Relaxed);
        descriptor.word.store(OF_CARD | len as u64, Ordering::Release); // the card loads it with Acquire
        self.given += 1;
    }

    /// The length in a descriptor that the card has, the n-th of them, if the card is done with it.
    fn done(&self, ring: &[Descriptor; SLOTS], n: usize) -> Option<u32> {
        let word = ring[(self.taken + n) % SLOTS].word.load(Ordering::Acquire);
        (n < self.held() && word & OF_CARD == 0).then_some(word as u32)
    }
}

#[derive(Debug)]
struct CardDevice {
    info: DeviceInfo,
    domain: DomainId,
    page_size: u64,
    shared: Arc<Shared>,
    interrupt: UnixStream,
    rx: Place,
    /// The pages that the card has, and for each descriptor where its packet begins in the area.
    pages: DeviceTable,
    offsets: [u64; SLOTS],
    tx: Place,
    frames: [Option<XdpFrame>; SLOTS],
    stats: DeviceStats,
    open: bool,
}

impl CardDevice {
    fn new(shared: Arc<Shared>, interrupt: UnixStream, domain: Arc<CardDomain>, arena: &Arena) -> Self {
        let area = arena.area();
        Self {
            domain: domain.id,
            info: DeviceInfo {
                name: "card0".into(),
                domain: Some(domain),
                rx_ring: SLOTS,
                tx_ring: SLOTS,
                max_packet: LONGEST,
                mtu: LONGEST - 18, // an Ethernet header with a VLAN tag
                max_buffers: 1,
                mac: None,
                maps: false,
            },
            page_size: area.page_size() as u64,
            shared,
            interrupt,
            rx: Place::default(),
            pages: DeviceTable::new(area.pages() as usize),
            offsets: [0; SLOTS],
            tx: Place::default(),
            frames: [const { None }; SLOTS],
            stats: DeviceStats::default(),
            open: true,
        }
    }

    /// Moves at most `most` packets into the vector, which has room for them.
    fn take(&mut self, most: usize, into: &mut Vec<XdpBuff>) -> usize {
        let Self { shared, rx, pages, offsets, stats, .. } = self;
        let before = into.len();
        while into.len() - before < most {
            let named = |n| Some((offsets[(rx.taken + n) % SLOTS], rx.done(&shared.rx, n)?));
            let (taken, bytes) = pages.remove_packets(most - (into.len() - before), named, into);
            stats.rx_bytes += bytes;
            if taken == 0 {
                let Some((offset, _)) = named(0) else { break };
                // It is empty, or ends beyond its buffer: the page returns to its pool.
                drop(pages.remove(PageIdx((offset / self.page_size) as u32)));
                stats.rx_bad_length += 1;
            }
            rx.taken += taken.max(1);
        }
        into.len() - before
    }

    fn refill(&mut self, pool: &Bound) {
        let page_size = self.page_size;
        while self.rx.held() < SLOTS {
            let mut batch = pool.alloc_batch((SLOTS - self.rx.held()).min(Batch::MAX));
            let (len, Some(first)) = (batch.len(), batch.pop()) else { return }; // the pool is empty
            let end = first.packet_offset() + first.packet_capacity();
            // One check for all: the pages of a batch are of one pool, and thus of one area.
            let reached = first.len() as u64 == page_size && first.dma_addr_in(self.domain).is_some();
            let whole = batch.push(first).is_ok();
            let Self { shared, rx, pages, offsets, .. } = self;
            let give = |page: PageIdx, offset: usize| {
                let at = u64::from(page.0) * page_size + offset as u64;
                offsets[rx.given % SLOTS] = at;
                rx.give(&shared.rx, ARENA_AT + at, end - offset);
            };
            if !reached || !whole || pages.insert(batch, give).is_err() {
                self.stats.rx_unmapped += len as u64; // they return to their pool
                return;
            }
        }
    }
}

impl Device for CardDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn receive(&mut self, pool: &Bound, into: &mut Vec<XdpBuff>, budget: usize) -> usize {
        if !self.open {
            return 0;
        }
        if into.capacity() == 0 {
            into.reserve_exact(budget.min(SLOTS));
        }
        let n = self.take(budget.min(into.capacity() - into.len()), into);
        self.stats.rx_packets += n as u64;
        self.refill(pool);
        n
    }

    fn transmit(&mut self, queue: &mut TxQueue) -> usize {
        let before = self.tx.given;
        while let Some(frame) = queue.front().filter(|_| self.open) {
            let (len, buffers) = (frame.len(), frame.segment_count());
            let at = frame.segments().next().and_then(|part| part.dma_addr_in(self.domain));
            match at {
                _ if buffers > 1 || !(1..=LONGEST).contains(&len) => self.stats.tx_too_long += 1,
                None => self.stats.tx_unmapped += 1,
                Some(_) if self.tx.held() == SLOTS => {
                    self.stats.tx_full += 1;
                    break;
                }
                Some(at) => {
                    self.frames[self.tx.given % SLOTS] = queue.pop();
                    self.tx.give(&self.shared.tx, at.0, len);
                    self.stats.tx_packets += 1;
                    self.stats.tx_bytes += len as u64;
                    continue;
                }
            }
            queue.refuse();
        }
        self.tx.given - before
    }

    fn complete(&mut self, done: &mut XdpFrameBulk, budget: usize) -> usize {
        let mut n = 0;
        while n < budget && self.tx.done(&self.shared.tx, 0).is_some() {
            if let Some(frame) = self.frames[self.tx.taken % SLOTS].take() {
                done.push(frame);
            }
            self.tx.taken += 1;
            n += 1;
        }
        self.stats.tx_completed += n as u64;
        n
    }

    fn state(&self) -> QueueState {
        QueueState { tx_room: SLOTS - self.tx.held(), ..Default::default() }
    }

    fn arm(&mut self, pool: &Bound) -> Armed<'_> {
        if !self.open {
            return Armed::Gone;
        }
        let _ = self.interrupt.read(&mut [0; 8]); // takes back an old one
        self.shared.interrupts.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst); // pairs with the card's: it sees the wish, or this sees what it completed
        let held = self.rx.held();
        self.refill(pool);
        let has_more = self.rx.held() > held;
        let is_done = |place: &Place, ring| place.done(ring, 0).is_some();
        if has_more || is_done(&self.rx, &self.shared.rx) || is_done(&self.tx, &self.shared.tx) {
            return Armed::Ready;
        }
        Armed::Idle { fd: Some(self.interrupt.as_fd()), waker_fd: None, at_most: Duration::MAX }
    }

    fn stats(&self) -> DeviceStats {
        DeviceStats { in_rx: self.rx.held() as u64, in_tx: self.tx.held() as u64, ..self.stats }
    }

    fn close(&mut self) {
        if !std::mem::replace(&mut self.open, false) {
            return;
        }
        *self.shared.runs.lock().unwrap_or_else(PoisonError::into_inner) = false; // waits for its last access
        self.stats.closed_with += (self.rx.held() + self.tx.held()) as u64;
        self.pages.clear();
        self.frames.fill_with(|| None);
        (self.rx, self.tx) = (Place::default(), Place::default());
    }
}

impl Drop for CardDevice {
    fn drop(&mut self) {
        self.close();
    }
}

// ---- Tests ------------------------------------------------------------------------------------------------

/// A card, its driver, and a pool that it reaches.
fn open() -> (CardDevice, Card, Bound, Arc<Arena>) {
    let arena = Arena::new(ArenaParams { max_bytes: 4 << 20, ..Default::default() }).expect("4 MiB");
    let domain = Arc::new(CardDomain { id: DomainId::unique(), area: arena.area().id() });
    let params = PoolParams { domains: vec![domain.clone()], headroom: 64, ..Default::default() };
    let pool = Pool::new(params, arena.clone()).expect("parameters in range").bind();
    let ring = || std::array::from_fn(|_| Descriptor::default());
    let (interrupts, runs) = (AtomicBool::new(false), Mutex::new(true));
    let shared = Arc::new(Shared { rx: ring(), tx: ring(), interrupts, runs });
    let (interrupt, line) = UnixStream::pair().expect("two descriptors");
    interrupt.set_nonblocking(true).expect("a socket");
    let device = CardDevice::new(shared.clone(), interrupt, domain, &arena);
    (device, Card::new(shared, line, arena.clone()), pool, arena)
}

#[test]
fn it_keeps_the_rules_of_devices() {
    conformance_device(|| {
        let (device, far, pool, provider) = open();
        let allowed = Allowed::default();
        Rig { device: Box::new(device), far: Box::new(far), pool, provider, allowed, verify: Box::new(|| {}) }
    });
}

#[test]
fn a_forwarder_echoes_over_it() {
    let (device, mut card, pool, _arena) = open();
    let mut forwarder = Forwarder::new(|_, _| Action::Tx);
    forwarder.add_port(device, pool);
    forwarder.poll(); // gives the card its first buffers
    assert!(card.send(&[7; 60]));
    forwarder.poll();
    let mut packet = Vec::new();
    assert!(card.receive(&mut packet) && packet == [7; 60]);
}

/// Words of every kind, at any time: nothing is read beyond a buffer, and no page has two owners.
#[test]
fn a_card_that_lies_costs_packets_only() {
    let (mut device, mut card, pool, _arena) = open();
    let (mut packets, mut queue, mut done) = (Vec::with_capacity(64), TxQueue::new(), XdpFrameBulk::new());
    for round in 0..2000_u64 {
        device.receive(&pool, &mut packets, 64);
        assert!(packets.iter().all(|packet| (1..=4096).contains(&packet.data().len())));
        queue.extend(packets.drain(..));
        device.transmit(&mut queue);
        device.complete(&mut done, 64);
        done.flush();
        let stats = device.stats();
        assert_eq!(pool.inflight().out, stats.in_rx + stats.in_tx + queue.len() as u64, "{stats:?}");
        card.lie(round);
    }
    assert!(device.stats().rx_packets > 0 && device.stats().rx_bad_length > 0);
    queue.clear();
    device.close();
    assert_eq!(pool.inflight().out, 0);
}
