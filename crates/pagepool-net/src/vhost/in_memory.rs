//! A back end in this process, for tests, where it can misbehave, and for measurements.
//!
//! Memory it accesses a buffer only between taking and completing it, and holds the gate meanwhile, a lock
//!        for which closing waits. A misbehaving one may also write after that. An address outside the arena
//!        is counted, not followed.

// UNSAFETY: the half copies bytes to and from buffers that it was given; the head says why that is sound.
#![expect(unsafe_code)]

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pagepool::{Arena, DmaDomain, Error, MAX_FRAGS, Provider};

use super::domain::{ARENA_AT, RINGS_AT, VhostDomain};
use crate::sys::event;
use crate::sys::remedy::failed;
use crate::virtio::back_end::{BackEnd, QueueSetup, SharedRegion, Wanted, feature};
use crate::virtio::device::VirtioNet;
use crate::virtio::device_ring::{Described, DeviceRing};
use crate::virtio::net_header;
use crate::virtio::params::VirtioParams;
use crate::virtio::port::{Port, PortMemory};
use crate::virtio::ring::{NEXT, QueueLayout, RingParts, Used, WRITE};
use crate::virtio::sys::RingMemory;

/// Most descriptors of a chain: those of a frame, and one for its header.
const MAX_PARTS: usize = MAX_FRAGS + 2;

/// What driver and device share beside the rings.
#[derive(Debug, Default)]
struct Gate {
    /// Whether the driver's side is connected.
    open: bool,
    /// Whether the device accepts connections.
    dead: bool,
    /// Set by each start: whether both sides say after which entry they want a signal; and the signal.
    started: Option<(bool, OwnedFd)>,
}

/// The device's side of a pair of virtio queues in this process.
#[derive(Debug)]
pub struct VirtioHalf {
    gate: Arc<Mutex<Gate>>,
    arena: Arc<Arena>,
    rings: Arc<RingMemory>,
    sizes: [u16; 2],
    queues: Option<Queues>,
    scratch: Vec<u8>,
    merges: bool,
    stalled: bool,
    faults: u64,
}

#[derive(Debug)]
struct Queues {
    receive: DeviceRing,
    send: DeviceRing,
    call: OwnedFd,
}

/// The parameters of a virtio device whose back end is in this process.
#[derive(Clone, Copy, Debug)]
pub struct VirtioSizes {
    /// Descriptors of the receive queue: a power of two.
    pub rx_ring: usize,
    /// Descriptors of the transmit queue: a power of two.
    pub tx_ring: usize,
    /// Most buffers of a packet.
    pub max_buffers: usize,
}

/// The address space of such devices over an arena, for their pools.
pub fn virtio_domain(arena: &Arc<Arena>) -> Arc<dyn DmaDomain> {
    VhostDomain::new(arena)
}

/// A virtio device over an arena, and its device half in this process.
pub fn virtio_in_memory(
    sizes: VirtioSizes,
    arena: &Arc<Arena>,
    domain: &Arc<dyn DmaDomain>,
) -> Result<(VirtioNet, VirtioHalf), Error> {
    open(sizes, arena, domain, false)
}

/// The same, for packets that leave checksums, and being cut into segments, to the other side.
pub fn virtio_with_offloads(
    sizes: VirtioSizes,
    arena: &Arc<Arena>,
    domain: &Arc<dyn DmaDomain>,
) -> Result<(VirtioNet, VirtioHalf), Error> {
    open(sizes, arena, domain, true)
}

fn open(
    sizes: VirtioSizes,
    arena: &Arc<Arena>,
    domain: &Arc<dyn DmaDomain>,
    offloads: bool,
) -> Result<(VirtioNet, VirtioHalf), Error> {
    let VirtioSizes { rx_ring, tx_ring, max_buffers } = sizes;
    let (name, max_packet) = ("virtio0".to_owned(), if offloads { 65_550 } else { 9018 });
    let params = VirtioParams { name, rx_ring, tx_ring, max_packet, mtu: 9000, max_buffers, offloads };
    params.check()?;
    let rings = RingMemory::new(VirtioNet::ring_bytes(&params));
    let rings = rings.map_err(|source| failed("memfd_create", source, "use smaller rings"))?;
    let gate = Arc::new(Mutex::new(Gate::default()));
    let back_end = Box::new(InMemory { gate: gate.clone(), features: 0 });
    let shared =
        PortMemory { rings: rings.clone(), rings_at: RINGS_AT, arena: arena.clone(), arena_at: ARENA_AT };
    let port = Port::new(back_end, params.wanted(), shared);
    let mut device = VirtioNet::new(&port, 0, "memory", domain.clone(), &params)?;
    device.start()?;
    let half = VirtioHalf {
        gate,
        arena: arena.clone(),
        rings,
        sizes: [rx_ring as u16, tx_ring as u16],
        queues: None,
        scratch: vec![0; (1 << 16) + 64],
        merges: params.has_several_buffers(),
        stalled: false,
        faults: 0,
    };
    Ok((device, half))
}

#[derive(Debug)]
struct InMemory {
    gate: Arc<Mutex<Gate>>,
    features: u64,
}

impl InMemory {
    fn lock(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BackEnd for InMemory {
    fn name(&self) -> &str {
        "virtio0"
    }

    fn connect(&mut self, wanted: Wanted, _memory: &[SharedRegion<'_>]) -> Result<u64, Error> {
        self.features = wanted.required | wanted.optional;
        let mut gate = self.lock();
        if gate.dead {
            return Err(Error::Busy { what: "the device half died".into() });
        }
        gate.open = true;
        Ok(self.features)
    }

    fn start(&mut self, _pair: u16, queues: [QueueSetup<'_>; 2]) -> Result<(), Error> {
        let call = queues[0].call.try_clone_to_owned();
        let call = call.map_err(|source| failed("fcntl(F_DUPFD_CLOEXEC)", source, "use fewer devices"))?;
        self.lock().started = Some((self.features & feature::EVENT_INDEX != 0, call));
        Ok(())
    }

    fn stop(&mut self, _pair: u16) -> bool {
        self.disconnect();
        true
    }

    fn is_gone(&mut self) -> bool {
        !self.lock().open
    }

    /// Waits for a step of the half to end.
    fn disconnect(&mut self) {
        self.lock().open = false;
    }
}

/// A step of the device half: the driver cannot take its buffers back during it.
#[derive(Debug)]
pub struct VirtioStep<'a> {
    arena: &'a Arena,
    faults: &'a mut u64,
    queues: &'a mut Queues,
    scratch: &'a mut [u8],
    merges: bool,
}

impl VirtioHalf {
    /// Runs `work` as the device; `None` if the driver has closed the queues, or the device died.
    #[inline]
    pub fn step<R>(&mut self, work: impl FnOnce(&mut VirtioStep<'_>) -> R) -> Option<R> {
        let Self { gate, arena, rings, sizes, queues, scratch, merges, stalled, faults } = self;
        let mut gate = gate.lock().unwrap_or_else(PoisonError::into_inner);
        if !gate.open || *stalled {
            return None;
        }
        if let Some((has_wishes, call)) = gate.started.take() {
            let second = QueueLayout::new(sizes[0]).bytes;
            let ring = |at, size| DeviceRing::new(RingParts::new(rings, at, size), has_wishes);
            let (mut receive, mut send) = (ring(0, sizes[0]), ring(second, sizes[1]));
            receive.want_signals(false);
            send.want_signals(false);
            *queues = Some(Queues { receive, send, call });
        }
        let queues = queues.as_mut()?;
        let result = work(&mut VirtioStep { arena, faults, queues, scratch, merges: *merges });
        // Both: each publishes.
        if queues.receive.publish() | queues.send.publish() {
            event::signal(queues.call.as_fd());
        }
        drop(gate);
        Some(result)
    }

    /// Accesses to memory outside the arena, none of which was made.
    pub fn faults(&self) -> u64 {
        self.faults
    }

    /// Keeps the device from doing anything.
    pub fn stall(&mut self, on: bool) {
        self.stalled = on;
    }

    /// Closes the connection. The device may connect again if `back`.
    pub fn die(&mut self, back: bool) {
        let mut gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        (gate.open, gate.dead) = (false, !back);
        if let Some(queues) = &self.queues {
            event::signal(queues.call.as_fd());
        }
    }
}

impl VirtioStep<'_> {
    /// Puts a packet into as many buffers as it needs. False if there are not enough.
    #[inline]
    pub fn deliver(&mut self, packet: &[u8]) -> bool {
        self.deliver_with(net_header::PLAIN, packet)
    }

    /// The same with this header, in which it writes the number of buffers.
    #[inline]
    pub fn deliver_with(&mut self, header: [u8; net_header::LEN], packet: &[u8]) -> bool {
        let pending = self.queues.receive.pending();
        if pending == 0 || packet.is_empty() {
            return false;
        }
        let first = self.queues.receive.described(self.queues.receive.peek(0));
        if packet.len() + net_header::LEN <= first.len as usize {
            let head = self.queues.receive.take();
            self.write(first, header, packet, 1);
            self.complete_received(head.into(), packet.len() + net_header::LEN);
            return true;
        }
        self.merges && self.deliver_merged(header, packet)
    }

    fn deliver_merged(&mut self, first: [u8; net_header::LEN], packet: &[u8]) -> bool {
        let pending = self.queues.receive.pending_now();
        let receive = &self.queues.receive;
        let (mut room, mut buffers) = (0, 0);
        while room < packet.len() + net_header::LEN {
            if usize::from(buffers) == pending {
                return false;
            }
            room += receive.described(receive.peek(buffers)).len as usize;
            buffers += 1;
        }
        let mut rest = packet;
        for at in 0..buffers {
            let head = self.queues.receive.take();
            let described = self.queues.receive.described(head);
            let header = if at == 0 { net_header::LEN } else { 0 };
            let (now, later) = rest.split_at(rest.len().min(described.len as usize - header));
            if at == 0 {
                self.write(described, first, now, buffers)
            } else {
                self.write_at(described.at, now)
            }
            self.complete_received(head.into(), now.len() + header);
            rest = later;
        }
        true
    }

    /// Writes a header and the bytes behind it.
    #[inline]
    fn write(&mut self, to: Described, mut header: [u8; net_header::LEN], bytes: &[u8], buffers: u16) {
        header[10..].copy_from_slice(&buffers.to_le_bytes());
        self.write_at(to.at, &header);
        self.write_at(to.at + net_header::LEN as u64, bytes);
    }

    #[inline]
    fn write_at(&mut self, at: u64, bytes: &[u8]) {
        if let Some(to) = self.access(at, bytes.len()) {
            // SAFETY: I3, I4. The buffer is in the driver's table until it is completed, which comes later,
            // and the gate is held. `bytes` is other memory.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        }
    }

    /// Reads bytes into the scratch memory; zeros from a header in the memory of the rings.
    #[inline]
    fn read_at(&mut self, at: u64, to: usize, len: usize) {
        if (RINGS_AT..ARENA_AT).contains(&at) {
            return self.scratch[to..to + len].fill(0);
        }
        if let Some(from) = self.access(at, len) {
            let to = self.scratch[to..to + len].as_mut_ptr();
            // SAFETY: I3, I4. The frame is in the driver's table until it is completed, which comes later,
            // and the gate is held. The scratch memory is other memory, of that length.
            unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
        }
    }

    /// The memory at a device address; none, and counted, outside the arena.
    #[inline]
    fn access(&mut self, at: u64, len: usize) -> Option<*mut u8> {
        let area = self.arena.area();
        let offset = at.wrapping_sub(ARENA_AT);
        let within = offset <= area.len_bytes() && len as u64 <= area.len_bytes() - offset;
        let base = area.base().filter(|_| within);
        *self.faults += u64::from(base.is_none());
        Some(std::ptr::with_exposed_provenance_mut(base? + offset as usize))
    }

    /// Passes the next packet to `packet`; false if there is none.
    #[inline]
    pub fn take(&mut self, packet: impl FnOnce(&[u8])) -> bool {
        self.take_with_header(|_, bytes| packet(bytes))
    }

    /// Passes the next packet's header and bytes to `packet`; false if there is none.
    #[inline]
    pub fn take_with_header(&mut self, packet: impl FnOnce(&[u8], &[u8])) -> bool {
        if self.queues.send.pending() == 0 {
            return false;
        }
        let head = self.queues.send.take();
        let (mut len, mut next) = (0, Some(head));
        // An honest driver's chain ends; one that does not is cut.
        for _ in 0..MAX_PARTS {
            let Some(number) = next else { break };
            let part = self.queues.send.described(number);
            let bytes = (part.len as usize).min(self.scratch.len() - len);
            self.read_at(part.at, len, bytes);
            len += bytes;
            next = (part.flags & NEXT != 0).then_some(part.next);
        }
        let (header, bytes) = self.scratch[..len].split_at(net_header::LEN.min(len));
        packet(header, bytes);
        self.queues.send.complete(Used { head: head.into(), len: 0 });
        true
    }

    // ---- What only a broken device does ------------------------------------------------------------------

    /// Takes the head of the next receive buffer, if there is one.
    pub fn take_posted(&mut self) -> Option<u16> {
        (self.queues.receive.pending() > 0).then(|| self.queues.receive.take())
    }

    /// Takes the head of the next chain to send, if there is one.
    pub fn take_sent(&mut self) -> Option<u16> {
        (self.queues.send.pending() > 0).then(|| self.queues.send.take())
    }

    /// Completes any head on the receive queue, with any length.
    pub fn complete_received(&mut self, head: u32, len: usize) {
        self.queues.receive.complete(Used { head, len: len as u32 });
    }

    /// Completes any head on the transmit queue.
    pub fn complete_sent(&mut self, head: u32) {
        self.queues.send.complete(Used { head, len: 0 });
    }

    /// Writes any header into a receive buffer.
    pub fn write_header(&mut self, head: u16, header: [u8; net_header::LEN]) {
        let described = self.queues.receive.described(head);
        if described.flags & WRITE != 0 {
            self.write_at(described.at, &header);
        }
    }

    /// Moves the index of completed entries of the receive (0) or transmit queue by any number, also back.
    pub fn shift_index(&mut self, queue: usize, by: u16) {
        let ring = if queue == 0 { &mut self.queues.receive } else { &mut self.queues.send };
        ring.shift(by);
    }
}
