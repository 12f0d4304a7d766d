//! Free frames: those of a pool, or a list.

use std::sync::Arc;

use pagepool::{Arena, ArenaParams, Bound, DeviceAddr, OffsetDomain, PAGE_SIZE, Pool, PoolParams, PoolRef};
use xsk_rs::{FrameDesc, Umem};

/// Free frames.
pub enum Frames {
    Pool(PoolFrames),
    /// A list, as in the crate's own examples.
    Own(Vec<FrameDesc>),
}

/// Frames of a pool.
pub struct PoolFrames {
    pool: Bound,
    pool_ref: PoolRef,
    /// The crate's descriptor of each page, by page number.
    descs: Vec<FrameDesc>,
}

impl Frames {
    /// A pool over the memory of a UMEM. `descs` describe all its frames, in order.
    pub fn from_pool(umem: Umem, descs: Vec<FrameDesc>) -> Result<Self, pagepool::Error> {
        // SAFETY: the descriptor belongs to this UMEM, and the kernel holds no frame yet.
        let (start, _) = unsafe { umem.frame(&descs[0]) };
        let (base, len) = (start.contents().as_ptr().cast_mut(), descs.len() * PAGE_SIZE);
        // SAFETY: the UMEM is `len` zeroed bytes at `base`, which do not move while a clone of it lives. Its
        // frames are reached only through the pool.
        let arena = unsafe { Arena::over_owned_memory(umem, base, len, ArenaParams::default()) }?;
        let domains: Vec<Arc<dyn pagepool::DmaDomain>> = vec![Arc::new(OffsetDomain::new("umem"))];
        let pool = Pool::new(PoolParams { domains, ..Default::default() }, arena)?.bind();
        Ok(Self::Pool(PoolFrames { pool_ref: pool.handle(), pool, descs }))
    }

    /// Fills `into` with free frames, 64 at most. Returns how many.
    pub fn take(&mut self, into: &mut [FrameDesc]) -> usize {
        match self {
            Self::Pool(frames) => frames.take(into),
            Self::Own(free) => {
                let rest = free.len().saturating_sub(into.len());
                into.iter_mut().zip(free.drain(rest..)).map(|(to, desc)| *to = desc).count()
            }
        }
    }

    /// Frees frames.
    pub fn free(&mut self, descs: &[FrameDesc]) {
        match self {
            Self::Pool(frames) => descs.iter().for_each(|desc| frames.free(desc)),
            Self::Own(free) => free.extend_from_slice(descs),
        }
    }

    /// Call this once the sockets are closed; `on_rings` frames were on rings. Returns how many are free.
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
    fn free(&self, desc: &FrameDesc) {
        // The pool refuses a page that is not out, which then counts as missing.
        drop(self.pool_ref.from_raw(DeviceAddr(desc.addr() as u64)));
    }

    /// The pool refuses pages that are not out, so it accepts exactly those that were on the rings.
    fn close(self, on_rings: usize) -> Result<u64, String> {
        let addresses = (0..self.descs.len()).map(|page| DeviceAddr((page * PAGE_SIZE) as u64));
        let returned = addresses.filter(|&addr| self.pool_ref.from_raw(addr).is_ok()).count();
        if returned != on_rings {
            return Err(format!("{on_rings} frames were on rings, but {returned} were out"));
        }
        let out = self.pool.inflight().out;
        let ended = self.pool.destroy().is_complete();
        if ended == (out == 0) {
            Ok(self.descs.len() as u64 - out)
        } else {
            Err("the pool must end when its last buffer returns".into())
        }
    }
}
