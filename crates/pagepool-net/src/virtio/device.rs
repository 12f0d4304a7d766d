//! A pair of virtio queues as a device: the driver.

use std::cell::Cell;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use pagepool::{Bound, DmaDomain, Error, XdpBuff, XdpFrameBulk};

use super::back_end::{QueueSetup, feature};
use super::layout::Layout;
use super::params::VirtioParams;
use super::port::{PAUSES, Port, PortMemory};
use super::receiver::Receiver;
use super::ring::{QueueLayout, Ring, RingParts};
use super::sender::Sender;
use super::sys::PacketMemory;
use crate::device::device::make_room;
use crate::device::mapping_cache::MappingCache;
use crate::device::tx_slots::TxLimits;
use crate::device::{Armed, Calls, Device, DeviceDescription, DeviceInfo, DeviceStats, QueueState, TxQueue};
use crate::sys::event;
use crate::sys::remedy::no_event;

/// After so many receives without a packet, a thread that polls looks whether the back end is still there.
const LOOK_AFTER: u32 = 1024;
/// A thread that sleeps does so this often.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// One pair of virtio queues.
#[derive(Debug)]
pub struct VirtioNet {
    info: DeviceInfo,
    kind: &'static str,
    port: Arc<Port>,
    pair: u16,
    /// The connection that the queues run over; 0 without one.
    connection: u32,
    mappings: MappingCache,
    receiver: Receiver,
    sender: Sender,
    events: Events,
    /// Whether the device signals: true from `arm` on.
    armed: bool,
    /// Receives without a packet, since the last look.
    idle: u32,
    stats: DeviceStats,
    /// What the back end dropped, as last known.
    dropped: Cell<u64>,
    calls: Calls,
    open: bool,
}

/// Event counters: the driver signals the device by one for each queue, and is signalled by one for both.
#[derive(Debug)]
struct Events {
    receive: OwnedFd,
    send: OwnedFd,
    call: OwnedFd,
}

impl VirtioNet {
    /// Bytes of ring memory that a pair takes.
    pub(crate) fn ring_bytes(params: &VirtioParams) -> usize {
        [params.rx_ring, params.tx_ring].map(|size| QueueLayout::new(size as u16).bytes).iter().sum()
    }

    /// The device of a pair of queues, which are not started: the first receive does that.
    pub(crate) fn new(
        port: &Arc<Port>,
        pair: u16,
        kind: &'static str,
        domain: Arc<dyn DmaDomain>,
        params: &VirtioParams,
    ) -> Result<Self, Error> {
        params.check()?;
        let event = || event::eventfd().map_err(no_event);
        let start = usize::from(pair) * Self::ring_bytes(params);
        let (rx, tx) = (params.rx_ring as u16, params.tx_ring as u16);
        let rx_bytes = QueueLayout::new(rx).bytes;
        let ring = |start, size| Ring::new(RingParts::new(&port.memory.rings, start, size));
        let headers = port.memory.rings_at + (start + rx_bytes + QueueLayout::new(tx).headers) as u64;
        let PortMemory { arena, arena_at, .. } = &port.memory;
        let layout = Layout::new(arena, *arena_at);
        let unreadable =
            || Error::Unsupported { what: "a virtio device reads headers, but the CPU cannot".into() };
        let memory = || PacketMemory::new(arena).ok_or_else(unreadable);
        let limits = TxLimits { max_packet: params.max_packet, max_buffers: params.max_buffers };
        Ok(Self {
            info: info(domain.clone(), params),
            kind,
            port: port.clone(),
            pair,
            connection: 0,
            mappings: MappingCache::new(domain),
            receiver: Receiver::new(ring(start, rx), layout, memory()?, params),
            sender: Sender::new(ring(start + rx_bytes, tx), layout, memory()?, headers, limits)
                .serving(params.offloads),
            events: Events { receive: event()?, send: event()?, call: event()? },
            armed: false,
            idle: 0,
            stats: DeviceStats::default(),
            dropped: Cell::new(0),
            calls: Calls::default(),
            open: true,
        })
    }

    /// Starts the queues, so that the caller learns why they cannot start.
    pub(crate) fn start(&mut self) -> Result<(), Error> {
        let connected = self.port.connect()?;
        self.start_over(connected.number, connected.features)
    }

    fn start_over(&mut self, number: u32, features: u64) -> Result<(), Error> {
        let has_wishes = features & feature::EVENT_INDEX != 0;
        self.receiver.ring.reset(has_wishes);
        self.sender.ring.reset(has_wishes);
        let start = self.port.memory.rings.address() + u64::from(self.pair) * self.bytes();
        let (rx, tx) = (self.receiver.ring.size(), self.sender.ring.size());
        let second = start + QueueLayout::new(rx).bytes as u64;
        let Events { receive, send, call } = &self.events;
        let queues = [queue(start, rx, receive, call), queue(second, tx, send, call)];
        self.port.start(self.pair, number, queues)?;
        self.connection = number;
        Ok(())
    }

    fn bytes(&self) -> u64 {
        [self.receiver.ring.size(), self.sender.ring.size()]
            .map(|size| QueueLayout::new(size).bytes as u64)
            .iter()
            .sum()
    }

    #[inline(always)]
    fn is_connected(&self) -> bool {
        self.connection != 0 && self.connection == self.port.connection()
    }

    /// Takes back the buffers of a lost connection, and tries to start the queues over a new one.
    #[cold]
    fn restart(&mut self) -> bool {
        if !self.open {
            return false;
        }
        if self.connection != 0 {
            let lost = std::mem::take(&mut self.connection);
            self.stats.link_lost += 1;
            if self.port.is_stuck(lost) {
                self.stats.kept += self.forget();
            } else {
                self.receiver.clear();
                self.sender.clear();
            }
        }
        let connected = self.port.reconnect();
        connected.is_some_and(|connected| self.start_over(connected.number, connected.features).is_ok())
    }

    /// Nothing came: looks now and then whether the back end is still there, or breaks the rules.
    #[inline(never)]
    fn nothing_came(&mut self) {
        self.idle += 1;
        if self.idle == LOOK_AFTER {
            self.idle = 0;
            self.port.look(self.connection);
        }
    }

    /// Leaks the buffers that the back end may still access; returns how many.
    fn forget(&mut self) -> u64 {
        (self.receiver.forget() + self.sender.forget()) as u64
    }

    /// Ends the connection if the back end breaks the rules.
    #[inline(always)]
    fn check_rings(&self) {
        if self.receiver.ring.is_broken() || self.sender.ring.is_broken() {
            self.port.lost(self.connection);
        }
    }

    /// Ends the sleep, and takes back the signal.
    #[cold]
    fn disarm(&mut self) {
        self.armed = false;
        self.receiver.ring.decline_signals();
        self.sender.ring.decline_signals();
        event::take(self.events.call.as_fd());
    }

    #[inline]
    fn refill(&mut self, pool: &Bound, all: bool) {
        if self.receiver.refill(pool, all, &mut self.mappings, &mut self.stats) {
            self.calls.make(|| event::signal(self.events.receive.as_fd()));
        }
    }
}

/// A queue that begins at this address.
fn queue<'a>(start: u64, size: u16, kick: &'a OwnedFd, call: &'a OwnedFd) -> QueueSetup<'a> {
    let layout = QueueLayout::new(size);
    QueueSetup {
        size,
        descriptors: start + layout.descriptors as u64,
        available: start + layout.available as u64,
        used: start + layout.used as u64,
        kick: kick.as_fd(),
        call: call.as_fd(),
    }
}

fn info(domain: Arc<dyn DmaDomain>, params: &VirtioParams) -> DeviceInfo {
    DeviceInfo {
        name: params.name.clone(),
        domain: Some(domain),
        rx_ring: params.rx_ring,
        tx_ring: params.tx_ring,
        max_packet: params.max_packet,
        mtu: params.mtu,
        max_buffers: params.max_buffers,
        mac: None,
        maps: true,
    }
}

impl Device for VirtioNet {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    #[inline]
    fn receive(&mut self, pool: &Bound, into: &mut Vec<XdpBuff>, budget: usize) -> usize {
        if !self.is_connected() && !self.restart() {
            return 0;
        }
        if self.armed {
            self.disarm();
        }
        let Self { receiver, stats, .. } = self;
        let mut n = receiver.receive(into, budget, stats);
        if n == 0 {
            if make_room(into, budget, self.info.rx_ring) {
                n = receiver.receive(into, budget, stats);
            }
            self.nothing_came();
        }
        self.check_rings();
        self.refill(pool, n == 0);
        n
    }

    #[inline]
    fn transmit(&mut self, queue: &mut TxQueue) -> usize {
        if !self.is_connected() {
            return 0;
        }
        let (n, signal) = self.sender.transmit(queue, &mut self.mappings, &mut self.stats);
        if signal {
            self.calls.make(|| event::signal(self.events.send.as_fd()));
        }
        n
    }

    #[inline]
    fn complete(&mut self, done: &mut XdpFrameBulk, budget: usize) -> usize {
        if !self.is_connected() {
            return 0;
        }
        self.sender.complete(done, budget, &mut self.stats)
    }

    fn state(&self) -> QueueState {
        let tx_room = if self.is_connected() { self.sender.room() } else { 0 };
        QueueState { tx_room, calls: self.calls }
    }

    fn arm(&mut self, pool: &Bound) -> Armed<'_> {
        if !self.open {
            return Armed::Gone;
        }
        if self.armed {
            self.disarm();
        }
        if self.is_connected() {
            self.check_rings();
            self.port.look(self.connection);
        }
        if !self.is_connected() && !self.restart() {
            return Armed::Idle { fd: None, waker_fd: None, at_most: PAUSES[0] };
        }
        self.armed = true;
        self.receiver.ring.request_signal(0);
        // One signal for all that is being sent.
        self.sender.ring.request_signal(self.sender.ring.outstanding().saturating_sub(1));
        let before = self.receiver.held();
        self.refill(pool, true);
        let has_more = self.receiver.held() > before;
        if has_more || self.receiver.ring.pending() > 0 || self.sender.ring.pending() > 0 {
            return Armed::Ready;
        }
        Armed::Idle { fd: Some(self.events.call.as_fd()), waker_fd: None, at_most: LOOK_EVERY }
    }

    fn stats(&self) -> DeviceStats {
        self.dropped.set(self.port.dropped(self.pair).unwrap_or(self.dropped.get()));
        DeviceStats {
            rx_no_buffer: self.dropped.get(),
            in_rx: self.receiver.held() as u64,
            in_tx: self.sender.held() as u64,
            calls: self.calls.count,
            call_ticks: self.calls.ticks,
            ..self.stats
        }
    }

    fn describe(&self) -> DeviceDescription {
        let DeviceInfo { name, rx_ring, tx_ring, mtu, .. } = &self.info;
        let sizes = [("rx_ring", rx_ring), ("tx_ring", tx_ring), ("mtu", mtu)];
        let mut params = vec![("mode", self.kind.to_owned())];
        params.extend(sizes.map(|(name, value)| (name, value.to_string())));
        let interface = name.rsplit_once(':').map_or(&**name, |(interface, _)| interface).to_owned();
        DeviceDescription { kind: "nic", interface, queue: self.pair.into(), ifindex: None, params }
    }

    fn close(&mut self) {
        if !std::mem::replace(&mut self.open, false) {
            return;
        }
        // Also without a connection: the back end learns that the pair has ended.
        if self.port.stop(self.pair, self.connection) {
            self.stats.closed_with += (self.receiver.clear() + self.sender.clear()) as u64;
        } else {
            self.stats.kept += self.forget();
        }
        self.connection = 0;
    }
}

impl Drop for VirtioNet {
    fn drop(&mut self) {
        self.close();
    }
}
