//! One look at the page pools of the kernel's drivers.

use std::collections::HashMap;
use std::time::Instant;

use pagepool_link::{KernelPagePool, KernelPagePools, LinkError, Netlink};

/// The state of the kernel at one time.
#[derive(Clone, Debug)]
pub struct KernelLook {
    #[cfg_attr(not(feature = "full"), expect(dead_code, reason = "only `top` shows rates"))]
    pub taken: Instant,
    pub pools: Vec<KernelPagePool>,
    /// The names of this network namespace's interfaces.
    pub names: HashMap<u32, String>,
    /// Whether the kernel counts: CONFIG_PAGE_POOL_STATS.
    pub has_stats: bool,
}

#[derive(Debug)]
pub struct KernelWatch(KernelPagePools);

impl KernelWatch {
    /// Connects to the kernel. [`LinkError::NoKernelPools`] says what it lacks.
    pub fn open() -> Result<Self, LinkError> {
        KernelPagePools::open().map(Self)
    }

    pub fn look(&mut self) -> Result<KernelLook, LinkError> {
        let (taken, pools) = (Instant::now(), self.0.list()?);
        let names = if pools.is_empty() { HashMap::new() } else { names()? };
        Ok(KernelLook { taken, pools, names, has_stats: self.0.has_stats() })
    }
}

impl KernelLook {
    /// The name of a pool's interface; `None` if it was removed, or has no name here.
    pub fn interface(&self, pool: &KernelPagePool) -> Option<&str> {
        pool.ifindex.and_then(|index| self.names.get(&index)).map(String::as_str)
    }
}

fn names() -> Result<HashMap<u32, String>, LinkError> {
    Ok(Netlink::open()?.links()?.into_iter().map(|link| (link.index, link.name)).collect())
}
