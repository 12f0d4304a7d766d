//! The hardware half: takes packets from the wire into posted buffers, and puts posted packets on the wire.
//!
//! Who    its owner, on any thread. Everything happens in a [step](NicPort::step), under the gate.
//! Memory only through the device's domain, and only the bytes of a descriptor that it took off a ring, has
//!        not completed, and did not falsely complete (`inject_*`).
//! Cost   a packet: one access through the domain, one descriptor taken, one completion put.

// UNSAFETY: device accesses are unsafe to call; the head of `mem_nic.rs` says why these are sound.
#![expect(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pagepool::MAX_FRAGS;
use rtrb::{Consumer, Producer};

use super::descriptor::{BufferId, Posted, Received};
use super::device_memory::DeviceMemory;
use super::link::Link;

#[cfg(any(test, feature = "testing"))]
mod broken;

const MAX_PARTS: usize = MAX_FRAGS + 1;

/// The hardware half of an in-memory NIC: the other end of its wire. `Send`. Call [`step`](Self::step)
/// yourself, or through a thread ([`PortThread`](crate::PortThread)).
///
/// Dropping it makes the device [die](Self::die).
#[derive(Debug)]
pub struct NicPort {
    link: Arc<Link>,
    wire: Wire,
}

/// A step of the hardware half: the NIC cannot be closed during it.
///
/// Two of them cannot be exchanged, which would combine one NIC's gate with the other's rings:
///
/// ```compile_fail
/// fn exchange(a: &mut pagepool_net::NicPort, b: &mut pagepool_net::NicPort) {
///     a.step(|a| b.step(|b| std::mem::swap(a, b)));
/// }
/// ```
#[derive(Debug)]
pub struct PortStep<'a>(&'a mut Wire);

#[derive(Debug)]
struct Wire {
    link: Arc<Link>,
    memory: Arc<dyn DeviceMemory>,
    rings: PortRings,
    /// The descriptors of the packet that is being sent, and its bytes.
    parts: [Posted; MAX_PARTS],
    scratch: Box<[u8]>,
    max_buffers: usize,
    /// Whether something was completed in this step.
    produced: bool,
    stalled: bool,
    holding: bool,
    held: Vec<BufferId>,
    /// Ids in false completions: the driver may have these buffers.
    false_received: Vec<BufferId>,
    false_sent: Vec<BufferId>,
}

#[derive(Debug)]
pub(super) struct PortRings {
    pub(super) fill: Consumer<Posted>,
    pub(super) received: Producer<Received>,
    pub(super) send: Consumer<Posted>,
    pub(super) sent: Producer<BufferId>,
}

/// Whether a packet from the wire can be accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    /// Yes, into that many buffers.
    For(usize),
    NotNow,
    Never,
}

impl NicPort {
    pub(super) fn new(
        link: Arc<Link>,
        memory: Arc<dyn DeviceMemory>,
        rings: PortRings,
        max_packet: usize,
        max_buffers: usize,
    ) -> Self {
        let wire = Wire {
            link: link.clone(),
            memory,
            rings,
            parts: [Posted::NONE; MAX_PARTS],
            scratch: vec![0; max_packet].into(),
            max_buffers,
            produced: false,
            stalled: false,
            holding: false,
            held: Vec::new(),
            false_received: Vec::new(),
            false_sent: Vec::new(),
        };
        Self { link, wire }
    }

    /// Runs `work` as the hardware; `None` if the device is dead or the driver has closed it. Takes the gate
    /// once, so several packets in one step cost less than one step each. `work` must not close the driver.
    #[inline]
    pub fn step<R>(&mut self, work: impl FnOnce(&mut PortStep<'_>) -> R) -> Option<R> {
        let gate = self.link.enter()?;
        let result = work(&mut PortStep(&mut self.wire));
        drop(gate);
        if std::mem::take(&mut self.wire.produced) {
            self.link.bell.ring();
        }
        Some(result)
    }

    /// Calls [`PortStep::deliver`] in a step of its own.
    pub fn deliver(&mut self, packet: &[u8]) -> bool {
        self.step(|wire| wire.deliver(packet)).unwrap_or(false)
    }

    /// Calls [`PortStep::take`] in a step of its own.
    pub fn take(&mut self, packet: impl FnOnce(&[u8])) -> bool {
        self.step(|wire| wire.take(packet)).unwrap_or(false)
    }

    /// Stalls the device, or ends that: packets from the wire are missed, none is sent, the rings stay full.
    pub fn stall(&mut self, on: bool) {
        self.wire.stalled = on;
    }

    /// The device does nothing from now on, and the driver's [`wait`](crate::DeviceExt::wait) returns `Gone`.
    pub fn die(&mut self) {
        self.link.die();
    }
}

impl Drop for NicPort {
    fn drop(&mut self) {
        self.link.die();
    }
}

impl PortStep<'_> {
    /// Puts a packet from the wire into as many buffers as it needs. False, and counted, if there are not
    /// enough, or the packet is empty or longer than the device accepts.
    #[inline]
    pub fn deliver(&mut self, packet: &[u8]) -> bool {
        let wire = &mut *self.0;
        match wire.room_for(packet.len()) {
            Room::For(1) => wire.write_one(packet),
            Room::For(buffers) => wire.write(packet, buffers),
            Room::NotNow => {
                wire.link.counts.no_buffer.fetch_add(1, Ordering::Relaxed);
                false
            }
            Room::Never => {
                wire.link.counts.too_long.fetch_add(1, Ordering::Relaxed);
                false
            }
        }
    }

    /// Whether a packet of this length would have to wait for buffers.
    pub fn must_wait(&mut self, len: usize) -> bool {
        self.0.room_for(len) == Room::NotNow
    }

    /// Passes the next packet to `packet`, as the wire; false if there is none. A packet that the domain does
    /// not let the device read is counted, and the next one is taken.
    #[inline]
    pub fn take(&mut self, packet: impl FnOnce(&[u8])) -> bool {
        let wire = &mut *self.0;
        while let Some(count) = wire.next_packet() {
            let Some(len) = wire.read(count) else {
                wire.sent(count);
                continue;
            };
            packet(&wire.scratch[..len]);
            wire.sent(count);
            return true;
        }
        false
    }
}

impl Wire {
    // ---- From the wire -----------------------------------------------------------------------------------

    #[inline]
    fn room_for(&mut self, len: usize) -> Room {
        if len == 0 || len > self.scratch.len() {
            return Room::Never;
        }
        self.skip_falsified();
        match self.rings.fill.peek() {
            _ if self.stalled => Room::NotNow,
            Ok(first) if first.len as usize >= len => self.completions_for(1),
            Ok(_) => self.room_in_several(len),
            Err(_) => Room::NotNow,
        }
    }

    #[inline]
    fn completions_for(&self, buffers: usize) -> Room {
        let ring = &self.rings.received;
        let room = ring.cached_slots() >= buffers || ring.slots() >= buffers;
        if room { Room::For(buffers) } else { Room::NotNow }
    }

    fn room_in_several(&mut self, len: usize) -> Room {
        let ring = self.rings.fill.buffer().capacity();
        let most = self.rings.fill.slots().min(self.max_buffers);
        let Ok(posted) = self.rings.fill.read_chunk(most) else { return Room::NotNow };
        let (first, second) = posted.as_slices();
        let falsified = &self.false_received;
        let mut honest = first.iter().chain(second).filter(|posted| !is_falsified(falsified, posted.id));
        let mut room = 0;
        let enough = honest.position(|posted| {
            room += posted.len as usize;
            room >= len
        });
        match enough {
            Some(at) => self.completions_for(at + 1),
            None if most == self.max_buffers.min(ring) && falsified.is_empty() => Room::Never,
            None => Room::NotNow,
        }
    }

    /// Drops descriptors with falsely completed ids from the front.
    #[inline]
    fn skip_falsified(&mut self) {
        while let Ok(posted) = self.rings.fill.peek()
            && is_falsified(&self.false_received, posted.id)
        {
            let _ = self.rings.fill.pop();
        }
    }

    #[inline]
    fn write_one(&mut self, packet: &[u8]) -> bool {
        let Ok(posted) = self.rings.fill.pop() else { return false };
        self.fill(posted, packet, true)
    }

    fn write(&mut self, packet: &[u8], buffers: usize) -> bool {
        let mut rest = packet;
        let mut whole = true;
        for _ in 0..buffers {
            self.skip_falsified();
            let Ok(posted) = self.rings.fill.pop() else { break };
            let (now, later) = rest.split_at(rest.len().min(posted.len as usize));
            rest = later;
            whole &= self.fill(posted, now, later.is_empty());
        }
        whole
    }

    /// Fills a buffer and completes it; returns whether the domain allowed it.
    #[inline]
    fn fill(&mut self, posted: Posted, bytes: &[u8], last: bool) -> bool {
        // SAFETY: I1, I4. The buffer is in the driver's table until it is completed, which is below; the gate
        // is held.
        let written = unsafe { self.memory.device_write(posted.at, bytes) };
        if written.is_err() {
            self.link.counts.faults.fetch_add(1, Ordering::Relaxed);
        }
        let len = if written.is_ok() { bytes.len() as u32 } else { 0 };
        self.produced = true;
        // There was room before. If false completions took it, the buffer belongs to the device until the
        // driver closes.
        self.rings.received.push(Received { id: posted.id, len, last }).is_ok() && written.is_ok()
    }

    // ---- To the wire -------------------------------------------------------------------------------------

    /// Copies the descriptors of the next packet into `parts`, if it can be completed; returns how many there
    /// are. They stay on the ring.
    #[inline]
    fn next_packet(&mut self) -> Option<usize> {
        self.parts[0] = *self.rings.send.peek().ok()?;
        if self.stalled {
            return None;
        }
        let count = if self.parts[0].last { 1 } else { self.several()? };
        let sent = &self.rings.sent;
        let room = self.holding || sent.cached_slots() >= count || sent.slots() >= count;
        room.then_some(count)
    }

    fn several(&mut self) -> Option<usize> {
        let ring = &mut self.rings.send;
        let all = &mut self.parts[..ring.slots().min(MAX_PARTS)];
        let posted = ring.read_chunk(all.len()).ok()?;
        let (one, two) = posted.as_slices();
        all[..one.len()].copy_from_slice(one);
        all[one.len()..].copy_from_slice(two);
        Some(1 + all.iter().position(|part| part.last)?)
    }

    /// Reads a packet and returns its length; `None` if the device may not read it (counted), or if one of
    /// its buffers was falsely completed.
    #[inline]
    fn read(&mut self, count: usize) -> Option<usize> {
        let mut len = 0;
        for part in &self.parts[..count] {
            if is_falsified(&self.false_sent, part.id) {
                return None;
            }
            let into = self.scratch.get_mut(len..len + part.len as usize)?;
            // SAFETY: I1, I4. The frame is in the driver's table until its last buffer is completed, which
            // comes later; the gate is held.
            if unsafe { self.memory.device_read(part.at, into) }.is_err() {
                self.link.counts.faults.fetch_add(1, Ordering::Relaxed);
                return None;
            }
            len += part.len as usize;
        }
        Some(len)
    }

    /// Takes the packet's descriptors off the ring and completes them, except falsely completed ones.
    #[inline]
    fn sent(&mut self, count: usize) {
        for part in &self.parts[..count] {
            let _ = self.rings.send.pop();
            if is_falsified(&self.false_sent, part.id) {
                continue;
            }
            self.produced = true;
            if self.holding {
                self.held.push(part.id);
            } else {
                let _ = self.rings.sent.push(part.id); // there is room: it was checked
            }
        }
    }
}

/// Whether a list that is empty in an honest device contains this buffer.
#[inline(always)]
fn is_falsified(falsified: &[BufferId], id: BufferId) -> bool {
    !falsified.is_empty() && falsified.contains(&id)
}
