//! Samples for the screen: the last two looks at processes and at the kernel.

use std::time::Duration;

use pagepool_link::{KernelPagePool, KernelPoolStats};
use pagepool_watch::{KernelLook, KernelWatch, Observation, PoolView, ProcessView, RunFolder};

use super::row_key::RowKey;

#[derive(Debug)]
pub struct Sampled {
    pub now: Observation,
    /// `None` after the first look.
    pub before: Option<Observation>,
    /// `None` if the kernel does not list its pools.
    pub kernel: Option<KernelLook>,
    pub kernel_before: Option<KernelLook>,
}

pub struct Sampler {
    folder: RunFolder,
    kernel: Option<KernelWatch>,
}

impl Sampler {
    pub fn new(folder: RunFolder) -> (Self, Sampled) {
        let mut sampler = Self { folder, kernel: KernelWatch::open().ok() };
        let (now, kernel) = (Observation::at(&sampler.folder), sampler.look_at_kernel());
        (sampler, Sampled { now, before: None, kernel, kernel_before: None })
    }

    pub fn look(&mut self, sampled: &mut Sampled) {
        let now = Observation::at(&self.folder);
        sampled.before = Some(std::mem::replace(&mut sampled.now, now));
        sampled.kernel_before = std::mem::replace(&mut sampled.kernel, self.look_at_kernel());
    }

    fn look_at_kernel(&mut self) -> Option<KernelLook> {
        let kernel = self.kernel.as_mut()?;
        let look = kernel.look();
        if look.is_err() {
            // A new socket: this one may still deliver the rest of the failed reply.
            KernelWatch::open().into_iter().for_each(|anew| *kernel = anew);
        }
        look.ok()
    }
}

impl Sampled {
    /// A process's pool in the last look.
    pub fn pool(&self, key: &RowKey) -> Option<(&ProcessView, &PoolView)> {
        let RowKey::Process(file, created, id) = key else { return None };
        let process = self.now.processes.iter().find(|process| process.file == *file)?;
        let pool = process.pools.iter().find(|pool| (pool.created, pool.id) == (*created, *id))?;
        Some((process, pool))
    }

    /// A kernel pool in the last look.
    pub fn kernel_pool(&self, key: &RowKey) -> Option<&KernelPagePool> {
        let RowKey::Kernel(id) = key else { return None };
        self.kernel.as_ref()?.pools.iter().find(|pool| pool.id == *id)
    }

    /// The changes of a kernel pool between the looks, and the time between them.
    pub fn kernel_moved(&self, pool: &KernelPagePool) -> Option<(KernelPoolStats, Duration)> {
        let (now, before) = (self.kernel.as_ref()?, self.kernel_before.as_ref()?);
        let earlier = before.pools.iter().find(|earlier| earlier.id == pool.id)?;
        let over = now.taken.saturating_duration_since(before.taken);
        Some((pool.stats?.since(&earlier.stats?), over))
    }
}
