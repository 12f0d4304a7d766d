//! Free frames: those of a pool, or the UMEM's own list.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pagepool::{Arena, ArenaParams, Bound, DeviceAddr, OffsetDomain, PAGE_SIZE, Pool, PoolParams, PoolRef};
use xdp::libc::xdp::XDP_PACKET_HEADROOM;
use xdp::{CompletionRing, WakableFillRing};
use xdp::{Packet, Umem};

/// Free frames.
pub enum Frames {
    Pool(PoolFrames),
    /// The UMEM's own list.
    Own(Umem),
}

/// Frames of a pool.
pub struct PoolFrames {
    pool: Bound,
    pool_ref: PoolRef,
    /// The pool keeps the UMEM too. No other thread locks it while this one works.
    umem: Arc<Mutex<Umem>>,
    /// Address of the UMEM's first byte.
    base: usize,
    /// The crate's handle for each page that is on no ring, by page number.
    packets: Vec<Option<Packet>>,
}

impl Frames {
    /// A pool over the memory of a UMEM with no frame in use.
    pub fn from_pool(mut umem: Umem) -> Result<Self, lab::Error> {
        // SAFETY: the packets are used only while the UMEM exists.
        let packets: Vec<_> = (0..umem.capacity()).map(|_| unsafe { umem.alloc() }).collect();
        let start = packets.first().and_then(Option::as_ref).ok_or("the UMEM has no frames")?.as_ptr();
        let base = start.wrapping_sub(XDP_PACKET_HEADROOM as usize).cast_mut();
        let (umem, len) = (Arc::new(Mutex::new(umem)), packets.len() * PAGE_SIZE);
        // SAFETY: the UMEM is `len` zeroed bytes at `base`, which do not move while it lives. Its frames are
        // reached only through the pool.
        let arena = unsafe { Arena::over_owned_memory(umem.clone(), base, len, ArenaParams::default()) }?;
        let domains: Vec<Arc<dyn pagepool::DmaDomain>> = vec![Arc::new(OffsetDomain::new("umem"))];
        let pool = Pool::new(PoolParams { domains, ..Default::default() }, arena)?.bind();
        Ok(Self::Pool(PoolFrames { pool_ref: pool.handle(), pool, umem, base: base as usize, packets }))
    }

    /// Puts up to `count` frames, 64 at most, onto a fill ring with room for them. Returns how many.
    pub fn fill(&mut self, ring: &mut WakableFillRing, count: usize) -> io::Result<usize> {
        match self {
            Self::Pool(frames) => frames.fill(ring, count),
            // SAFETY: the ring belongs to a socket of this UMEM.
            Self::Own(umem) => unsafe { ring.enqueue(umem, count, false) },
        }
    }

    /// Frees up to `count` frames from a completion ring. Returns how many.
    pub fn complete(&mut self, ring: &mut CompletionRing, count: usize) -> usize {
        match self {
            Self::Pool(frames) => frames.complete(ring, count),
            Self::Own(umem) => ring.dequeue(umem, count),
        }
    }

    /// Frees a frame that was not sent.
    pub fn free(&mut self, packet: Packet) {
        match self {
            Self::Pool(PoolFrames { pool_ref, base, packets, .. }) => put(pool_ref, *base, packets, packet),
            Self::Own(umem) => umem.free_packet(packet),
        }
    }

    /// Runs `work`, which needs the UMEM but not the UMEM's list.
    pub fn with_umem<T>(&self, work: impl FnOnce(&Umem) -> T) -> T {
        match self {
            Self::Pool(frames) => work(&lock(&frames.umem)),
            Self::Own(umem) => work(umem),
        }
    }

    /// Call this once the sockets are closed; `on_rings` frames were on rings. Returns how many are free.
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

/// Returns a page to the pool, by any address in the page: packets begin after the headroom.
fn put(pool: &PoolRef, base: usize, packets: &mut [Option<Packet>], packet: Packet) {
    let offset = packet.as_ptr() as usize - base;
    packets[offset / PAGE_SIZE] = Some(packet);
    // The pool refuses a page that is not out, which then counts as missing.
    drop(pool.from_raw(DeviceAddr(offset as u64)));
}

impl PoolFrames {
    fn fill(&mut self, ring: &mut WakableFillRing, count: usize) -> io::Result<usize> {
        let (mut batch, mut umem) = (self.pool.alloc_batch(count), lock(&self.umem));
        while let Some(raw) = batch.pop().and_then(|buffer| buffer.into_raw().ok()) {
            let packet = self.packets[raw.addr.0 as usize / PAGE_SIZE].take();
            umem.free_packet(packet.expect("an allocated page is on no ring"));
        }
        let count = umem.allocatable();
        // SAFETY: the ring belongs to a socket of this UMEM.
        unsafe { ring.enqueue(&mut umem, count, false) }
    }

    fn complete(&mut self, ring: &mut CompletionRing, count: usize) -> usize {
        let mut umem = lock(&self.umem);
        let count = ring.dequeue(&mut umem, count);
        for _ in 0..count {
            // SAFETY: as in `from_pool`.
            let packet = unsafe { umem.alloc() }.expect("the ring returned that many");
            put(&self.pool_ref, self.base, &mut self.packets, packet);
        }
        count
    }

    /// The pool refuses pages that are not out, so it accepts exactly those that were on the rings.
    fn close(self, on_rings: usize) -> Result<u64, String> {
        let addresses = (0..self.packets.len()).map(|page| DeviceAddr((page * PAGE_SIZE) as u64));
        let returned = addresses.filter(|&addr| self.pool_ref.from_raw(addr).is_ok()).count();
        if returned != on_rings {
            return Err(format!("{on_rings} frames were on rings, but {returned} were out"));
        }
        let out = self.pool.inflight().out;
        let ended = self.pool.destroy().is_complete();
        if ended == (out == 0) {
            Ok(self.packets.len() as u64 - out)
        } else {
            Err("the pool must end when its last buffer returns".into())
        }
    }
}
