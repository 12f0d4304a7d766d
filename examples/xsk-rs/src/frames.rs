//! Where frames come from that are on no ring: the choice that this example is about.

use std::sync::Arc;

use pagepool::{Arena, ArenaParams, Bound, DeviceAddr, OffsetDomain, PAGE_SIZE, Pool, PoolParams, PoolRef};
use xsk_rs::{FrameDesc, Umem};

/// Frames that are free.
pub enum Frames {
    Pool(PoolFrames),
    /// A list, as in the crate's own examples.
    Own(Vec<FrameDesc>),
}

/// Frames of a pool.
pub struct PoolFrames {
    pool: Bound,
    home: PoolRef,
    /// The crate's descriptor of each page, in their order.
    descs: Vec<FrameDesc>,
}

impl Frames {
    /// A pool over the memory of a UMEM. `descs` are those of all its frames, in their order.
    pub fn from_pool(umem: Umem, descs: Vec<FrameDesc>) -> Result<Self, pagepool::Error> {
        // SAFETY: the descriptor is of this UMEM, and the kernel has no frame yet.
        let (start, _) = unsafe { umem.frame(&descs[0]) };
        let (base, len) = (start.contents().as_ptr().cast_mut(), descs.len() * PAGE_SIZE);
        // SAFETY: the UMEM is so many zeroed pages from there, which stay where they are while a clone of it
        // lives. Its frames are reached through the pool alone.
        let arena = unsafe { Arena::over_owned_memory(umem, base, len, ArenaParams::default()) }?;
        let domains: Vec<Arc<dyn pagepool::DmaDomain>> = vec![Arc::new(OffsetDomain::new("umem"))];
        let pool = Pool::new(PoolParams { domains, ..Default::default() }, arena)?.bind();
        Ok(Self::Pool(PoolFrames { home: pool.handle(), pool, descs }))
    }

    /// Takes as many frames as there is room for, up to 64; says how many there were.
    pub fn take(&mut self, into: &mut [FrameDesc]) -> usize {
        match self {
            Self::Pool(frames) => frames.take(into),
            Self::Own(free) => {
                let rest = free.len().saturating_sub(into.len());
                into.iter_mut().zip(free.drain(rest..)).map(|(to, desc)| *to = desc).count()
            }
        }
    }

    /// Gives frames back.
    pub fn give(&mut self, descs: &[FrameDesc]) {
        match self {
            Self::Pool(frames) => descs.iter().for_each(|desc| frames.give(desc)),
            Self::Own(free) => free.extend_from_slice(descs),
        }
    }

    /// Ends it, when the sockets are closed; gives how many frames are home. So many were on their rings.
    pub fn close(self, on_rings: usize) -> Result<u64, String> {
        match self {
            Self::Pool(frames) => frames.close(on_rings),
            Self::Own(free) => Ok((free.len() + on_rings) as u64),
        }
    }
}

impl PoolFrames {
    fn take(&mut self, into: &mut [FrameDesc]) -> usize {
        let mut batch = self.pool.alloc_batch(into.len());
        let mut count = 0;
        while let Some(raw) = batch.pop().and_then(|buffer| buffer.into_raw().ok()) {
            into[count] = self.descs[raw.addr.0 as usize / PAGE_SIZE];
            count += 1;
        }
        count
    }

    /// The address may lie anywhere in the page: received packets begin after the headroom.
    fn give(&self, desc: &FrameDesc) {
        // what is not out is refused, and counts as missing
        drop(self.home.from_raw(DeviceAddr(desc.addr() as u64)));
    }

    /// The pool knows which pages are out: those that were on the rings come back by their addresses.
    fn close(self, on_rings: usize) -> Result<u64, String> {
        let addresses = (0..self.descs.len()).map(|page| DeviceAddr((page * PAGE_SIZE) as u64));
        let back = addresses.filter(|&addr| self.home.from_raw(addr).is_ok()).count();
        if back != on_rings {
            return Err(format!("{on_rings} frames were on rings, and the pool had {back} out"));
        }
        let out = self.pool.inflight().out;
        let ended = self.pool.destroy().is_complete();
        if ended == (out == 0) {
            Ok(self.descs.len() as u64 - out)
        } else {
            Err("a pool ends when all is home".into())
        }
    }
}
