//! The device's half of a split virtqueue, over mapped memory (Virtual I/O Device specification, version 1.2,
//! section 2.7). It copies every packet.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU8, Ordering, fence};

use super::settings::{Frame, Lie};
use crate::sys::shared_memory::SharedMemory;

/// Flags of a descriptor: another follows; the device writes its buffer.
const NEXT: u16 = 1;
const WRITE: u16 = 2;
/// The driver's flag for no signals.
const NO_SIGNAL: u16 = 1;
/// Bytes of the header before each packet, and of its part that is the packet's own.
const HEADER: usize = 12;
const OWN_HEADER: usize = 10;

/// A region of the front end's memory.
#[derive(Debug)]
pub(super) struct Region {
    /// Its address in descriptors.
    pub(super) device: u64,
    /// Its address in the front end's process.
    pub(super) front_end: u64,
    pub(super) len: u64,
    pub(super) memory: SharedMemory,
}

/// All memory that the front end shares.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) regions: Vec<Region>,
}

impl Memory {
    /// The memory at an address in descriptors.
    fn at_device(&self, at: u64, len: usize) -> Option<&[AtomicU8]> {
        self.regions.iter().find_map(|region| region.memory.bytes(at.checked_sub(region.device)?, len))
    }

    /// The region at an address of the front end's process, and the offset in it.
    fn at_front_end(&self, at: u64) -> Option<(usize, u64)> {
        let inside = |region: &Region| at.checked_sub(region.front_end).filter(|offset| *offset < region.len);
        self.regions.iter().enumerate().find_map(|(number, region)| Some((number, inside(region)?)))
    }

    fn bytes(&self, (region, offset): (usize, u64), plus: u64, len: usize) -> Option<&[AtomicU8]> {
        self.regions.get(region)?.memory.bytes(offset + plus, len)
    }

    fn number<const N: usize>(&self, at: (usize, u64), plus: u64) -> [u8; N] {
        let bytes = self.bytes(at, plus, N);
        let byte = |n: usize| bytes.map_or(0, |bytes| bytes[n].load(Ordering::Relaxed));
        std::array::from_fn(byte)
    }

    fn load(&self, (region, offset): (usize, u64), plus: u64) -> u16 {
        let half = self.regions.get(region).and_then(|region| region.memory.half(offset + plus));
        u16::from_le(half.map_or(0, |half| half.load(Ordering::Acquire)))
    }

    fn store(&self, (region, offset): (usize, u64), plus: u64, value: u16) {
        if let Some(half) = self.regions.get(region).and_then(|region| region.memory.half(offset + plus)) {
            half.store(value.to_le(), Ordering::Release);
        }
    }
}

fn write(to: &[AtomicU8], from: &[u8]) {
    to.iter().zip(from).for_each(|(to, &from)| to.store(from, Ordering::Relaxed));
}

/// A buffer of a chain.
#[derive(Clone, Copy, Debug)]
struct Buffer {
    at: u64,
    len: u32,
    flags: u16,
    next: u16,
}

/// One queue.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) size: u16,
    /// Descriptors, used ring, available ring: in which region, and where in it.
    places: Option<[(usize, u64); 3]>,
    /// Heads ever taken, chains ever completed.
    taken: u16,
    completed: u16,
    pub(super) has_wishes: bool,
    pub(super) enabled: bool,
    pub(super) kick: Option<OwnedFd>,
    pub(super) call: Option<OwnedFd>,
}

impl Queue {
    /// Sets where its parts are, as addresses of the front end's process. False if it shares no such memory.
    pub(super) fn place(&mut self, memory: &Memory, descriptors: u64, used: u64, available: u64) -> bool {
        let place = |at| memory.at_front_end(at);
        self.places = (|| Some([place(descriptors)?, place(used)?, place(available)?]))();
        self.places.is_some()
    }

    /// Begins at this entry.
    pub(super) fn begin(&mut self, at: u16) {
        (self.taken, self.completed) = (at, at);
    }

    /// Stops. Returns at which entry.
    pub(super) fn stop(&mut self) -> u16 {
        (self.kick, self.enabled) = (None, false);
        self.taken
    }

    /// Whether it runs.
    pub(super) fn is_running(&self) -> bool {
        self.enabled && self.kick.is_some() && self.places.is_some()
    }

    /// Heads that the driver has made available.
    fn pending(&self, memory: &Memory) -> u16 {
        let Some([_, _, available]) = self.places.filter(|_| self.is_running()) else { return 0 };
        memory.load(available, 2).wrapping_sub(self.taken).min(self.size)
    }

    /// From now on the driver signals the next head. True if there is one already.
    pub(super) fn request_signal(&self, memory: &Memory) -> bool {
        let Some([_, used, _]) = self.places.filter(|_| self.is_running()) else { return false };
        match self.has_wishes {
            true => memory.store(used, 4 + 8 * u64::from(self.size), self.taken),
            false => memory.store(used, 0, 0),
        }
        fence(Ordering::SeqCst); // the driver stores its index, and then looks at the wish
        self.pending(memory) > 0
    }

    /// The head that is `ahead` of the next.
    fn head(&self, memory: &Memory, ahead: u16) -> u16 {
        let Some([_, _, available]) = self.places else { return 0 };
        let entry = self.taken.wrapping_add(ahead) % self.size.max(1);
        u16::from_le_bytes(memory.number(available, 4 + 2 * u64::from(entry)))
    }

    fn chain(&self, memory: &Memory, head: u16) -> Vec<Buffer> {
        let Some([descriptors, ..]) = self.places else { return Vec::new() };
        let describe = |number: u16| {
            let word: [u8; 16] = memory.number(descriptors, 16 * u64::from(number));
            let all = u128::from_le_bytes(word);
            let (at, len) = (all as u64, (all >> 64) as u32);
            Buffer { at, len, flags: (all >> 96) as u16, next: (all >> 112) as u16 }
        };
        let next = |buffer: &Buffer| (buffer.flags & NEXT != 0).then(|| describe(buffer.next));
        std::iter::successors(Some(describe(head)), next).take(self.size.into()).collect()
    }

    /// Takes a packet that the driver sent. Returns it, and the number of its head, which is to be completed.
    pub(super) fn take(&mut self, memory: &Memory) -> Option<(Frame, u16)> {
        if self.pending(memory) == 0 {
            return None;
        }
        let head = self.head(memory, 0);
        self.taken = self.taken.wrapping_add(1);
        let mut bytes = Vec::new();
        for buffer in self.chain(memory, head) {
            let from = memory.at_device(buffer.at, buffer.len as usize).unwrap_or_default();
            bytes.extend(from.iter().map(|byte| byte.load(Ordering::Relaxed)));
        }
        let mut header = [0; OWN_HEADER];
        header.iter_mut().zip(&bytes).for_each(|(to, from)| *to = *from);
        Some((Frame { pair: 0, header, bytes: bytes.split_off(HEADER.min(bytes.len())) }, head))
    }

    /// Puts a packet into the driver's buffers: into as many as it needs, or none. Returns whether it did.
    pub(super) fn deliver(&mut self, memory: &Memory, frame: &Frame, lie: Option<Lie>) -> bool {
        let mut bytes = frame.header.to_vec();
        bytes.extend([0; HEADER - OWN_HEADER]);
        bytes.extend(&frame.bytes);
        let Some(chains) = self.chains_for(memory, bytes.len()) else { return false };
        let buffers = if let Some(Lie::Buffers(buffers)) = lie { buffers } else { chains.len() as u16 };
        bytes[OWN_HEADER..HEADER].copy_from_slice(&buffers.to_le_bytes());
        let mut rest = &bytes[..];
        for (head, chain) in chains {
            let before = rest.len();
            for buffer in chain {
                let (now, later) = rest.split_at(rest.len().min(buffer.len as usize));
                write(memory.at_device(buffer.at, now.len()).unwrap_or_default(), now);
                rest = later;
            }
            self.taken = self.taken.wrapping_add(1);
            self.complete(memory, head, (before - rest.len()) as u32, lie);
        }
        self.publish(memory, lie);
        true
    }

    /// The next chains of the driver that hold so many bytes together.
    fn chains_for(&self, memory: &Memory, len: usize) -> Option<Vec<(u16, Vec<Buffer>)>> {
        let (mut chains, mut room) = (Vec::new(), 0);
        for ahead in 0..self.pending(memory) {
            let head = self.head(memory, ahead);
            let mut chain = self.chain(memory, head);
            chain.retain(|buffer| buffer.flags & WRITE != 0);
            room += chain.iter().map(|buffer| buffer.len as usize).sum::<usize>();
            chains.push((head, chain));
            if room >= len {
                return Some(chains);
            }
        }
        None
    }

    /// Completes a chain, unseen by the driver.
    pub(super) fn complete(&mut self, memory: &Memory, head: u16, len: u32, lie: Option<Lie>) {
        let Some([_, used, _]) = self.places else { return };
        let (mut head, mut len, mut times) = (u32::from(head), len, 1);
        match lie {
            Some(Lie::Head(other)) => head = other,
            Some(Lie::Length(other)) => len = other,
            Some(Lie::Twice) => times = 2,
            _ => {}
        }
        let entry = (u64::from(head) | u64::from(len) << 32).to_le_bytes();
        for _ in 0..times {
            let at = 4 + 8 * u64::from(self.completed % self.size.max(1));
            memory.bytes(used, at, 8).into_iter().for_each(|to| write(to, &entry));
            self.completed = self.completed.wrapping_add(1);
        }
    }

    /// Publishes what was completed, and signals the driver if it asks for that.
    pub(super) fn publish(&mut self, memory: &Memory, lie: Option<Lie>) {
        let Some([_, used, available]) = self.places else { return };
        let before = memory.load(used, 2);
        if let Some(Lie::Index(more)) = lie {
            self.completed = self.completed.wrapping_add(more);
        }
        memory.store(used, 2, self.completed);
        fence(Ordering::SeqCst); // the driver stores its wish, and then looks at the index
        let wanted = match self.has_wishes {
            true => {
                let wish = memory.load(available, 4 + 2 * u64::from(self.size));
                let (now, passed) = (self.completed, self.completed.wrapping_sub(wish).wrapping_sub(1));
                passed < now.wrapping_sub(before)
            }
            false => memory.load(available, 0) & NO_SIGNAL == 0,
        };
        if let Some(call) = self.call.as_ref().filter(|_| wanted) {
            let _ = rustix::io::write(call, &1u64.to_ne_bytes()); // full: it is signalled already
        }
    }

    /// Fills the rings with bytes that follow from a seed.
    pub(super) fn scribble(&self, memory: &Memory, seed: u64) {
        let mut state = seed | 1;
        let size = u64::from(self.size);
        let parts = self.places.into_iter().flatten().zip([16 * size, 6 + 8 * size, 6 + 2 * size]);
        for (place, len) in parts {
            for byte in memory.bytes(place, 0, len as usize).unwrap_or_default() {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                byte.store(state as u8, Ordering::Relaxed);
            }
        }
    }
}
