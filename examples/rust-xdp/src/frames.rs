//! Where frames come from that are on no ring: the choice that this example is about.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pagepool::{Arena, ArenaParams, Bound, DeviceAddr, OffsetDomain, PAGE_SIZE, Pool, PoolParams, PoolRef};
use xdp::libc::xdp::XDP_PACKET_HEADROOM;
use xdp::{CompletionRing, WakableFillRing};
use xdp::{Packet, Umem};

/// Frames that are free.
pub enum Frames {
    Pool(PoolFrames),
    /// The list that a UMEM of this crate has.
    Own(Umem),
}

/// Frames of a pool.
pub struct PoolFrames {
    pool: Bound,
    home: PoolRef,
    /// The pool keeps it too. Nobody else locks it while this thread works.
    umem: Arc<Mutex<Umem>>,
    /// Address of its first byte.
    base: usize,
    /// The crate's handle of each page that is on no ring, in their order.
    packets: Vec<Option<Packet>>,
}

impl Frames {
    /// A pool over the memory of a UMEM of which no frame was given out.
    pub fn from_pool(mut umem: Umem) -> Result<Self, lab::Error> {
        // SAFETY: a packet has no life of its own; it is used while the UMEM is there.
        let packets: Vec<_> = (0..umem.capacity()).map(|_| unsafe { umem.alloc() }).collect();
        let start = packets.first().and_then(Option::as_ref).ok_or("a UMEM has frames")?.as_ptr();
        let base = start.wrapping_sub(XDP_PACKET_HEADROOM as usize).cast_mut();
        let (umem, len) = (Arc::new(Mutex::new(umem)), packets.len() * PAGE_SIZE);
        // SAFETY: the UMEM is so many zeroed pages from there, which stay where they are while it lives. Its
        // frames are reached through the pool alone.
        let arena = unsafe { Arena::over_owned_memory(umem.clone(), base, len, ArenaParams::default()) }?;
        let domains: Vec<Arc<dyn pagepool::DmaDomain>> = vec![Arc::new(OffsetDomain::new("umem"))];
        let pool = Pool::new(PoolParams { domains, ..Default::default() }, arena)?.bind();
        Ok(Self::Pool(PoolFrames { home: pool.handle(), pool, umem, base: base as usize, packets }))
    }

    /// Puts up to so many frames, 64 at most, onto a fill ring that has room for them; says how many.
    pub fn fill(&mut self, ring: &mut WakableFillRing, count: usize) -> io::Result<usize> {
        match self {
            Self::Pool(frames) => frames.fill(ring, count),
            // SAFETY: the ring is that of a socket which has this UMEM.
            Self::Own(umem) => unsafe { ring.enqueue(umem, count, false) },
        }
    }

    /// Takes up to so many frames off a completion ring, and home; says how many.
    pub fn complete(&mut self, ring: &mut CompletionRing, count: usize) -> usize {
        match self {
            Self::Pool(frames) => frames.complete(ring, count),
            Self::Own(umem) => ring.dequeue(umem, count),
        }
    }

    /// Gives back a frame that is not sent.
    pub fn give(&mut self, packet: Packet) {
        match self {
            Self::Pool(PoolFrames { home, base, packets, .. }) => put(home, *base, packets, packet),
            Self::Own(umem) => umem.free_packet(packet),
        }
    }

    /// Runs something that needs the UMEM, but not its list.
    pub fn with_umem<T>(&self, work: impl FnOnce(&Umem) -> T) -> T {
        match self {
            Self::Pool(frames) => work(&lock(&frames.umem)),
            Self::Own(umem) => work(umem),
        }
    }

    /// Ends it, when the sockets are closed; gives how many frames are home. So many were on their rings.
    pub fn close(self, on_rings: usize) -> Result<u64, String> {
        match self {
            Self::Pool(frames) => frames.close(on_rings),
            Self::Own(umem) => Ok((umem.allocatable() + on_rings) as u64),
        }
    }
}

fn lock(umem: &Mutex<Umem>) -> MutexGuard<'_, Umem> {
    umem.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A page comes home. The address may lie anywhere in it: packets begin after the headroom.
fn put(home: &PoolRef, base: usize, packets: &mut [Option<Packet>], packet: Packet) {
    let offset = packet.as_ptr() as usize - base;
    packets[offset / PAGE_SIZE] = Some(packet);
    drop(home.from_raw(DeviceAddr(offset as u64))); // what is not out is refused, and counts as missing
}

impl PoolFrames {
    fn fill(&mut self, ring: &mut WakableFillRing, count: usize) -> io::Result<usize> {
        let (mut batch, mut umem) = (self.pool.alloc_batch(count), lock(&self.umem));
        while let Some(raw) = batch.pop().and_then(|buffer| buffer.into_raw().ok()) {
            let packet = self.packets[raw.addr.0 as usize / PAGE_SIZE].take();
            umem.free_packet(packet.expect("a page that the pool gave is on no ring"));
        }
        let count = umem.allocatable();
        // SAFETY: the ring is that of a socket which has this UMEM.
        unsafe { ring.enqueue(&mut umem, count, false) }
    }

    fn complete(&mut self, ring: &mut CompletionRing, count: usize) -> usize {
        let mut umem = lock(&self.umem);
        let count = ring.dequeue(&mut umem, count);
        for _ in 0..count {
            // SAFETY: as in `from_pool`.
            let packet = unsafe { umem.alloc() }.expect("as many as the ring had");
            put(&self.home, self.base, &mut self.packets, packet);
        }
        count
    }

    /// The pool knows which pages are out: those that were on the rings come back by their addresses.
    fn close(self, on_rings: usize) -> Result<u64, String> {
        let addresses = (0..self.packets.len()).map(|page| DeviceAddr((page * PAGE_SIZE) as u64));
        let back = addresses.filter(|&addr| self.home.from_raw(addr).is_ok()).count();
        if back != on_rings {
            return Err(format!("{on_rings} frames were on rings, and the pool had {back} out"));
        }
        let out = self.pool.inflight().out;
        let ended = self.pool.destroy().is_complete();
        if ended == (out == 0) {
            Ok(self.packets.len() as u64 - out)
        } else {
            Err("a pool ends when all is home".into())
        }
    }
}
