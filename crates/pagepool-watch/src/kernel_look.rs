//! One look at the page pools of the kernel's drivers.

use std::collections::HashMap;
use std::time::Instant;

use pagepool_link::{KernelPagePool, KernelPagePools, LinkError, Netlink};

/// The kernel's page pools at one time.
#[derive(Clone, Debug)]
pub struct KernelLook {
    /// The time of the look.
    pub taken: Instant,
    /// All page pools that drivers report.
    pub pools: Vec<KernelPagePool>,
    /// The names of this network namespace's interfaces.
    pub names: HashMap<u32, String>,
    /// Whether the kernel counts: CONFIG_PAGE_POOL_STATS.
    pub has_stats: bool,
}

/// Looks at the page pools of the kernel's drivers in this network namespace (Linux 6.8).
///
/// ```
/// use pagepool_watch::KernelWatch;
/// # fn main() -> Result<(), pagepool_link::LinkError> {
/// # if KernelWatch::open().is_err() { return Ok(()) }
/// let mut kernel = KernelWatch::open()?;
/// let look = kernel.look()?;
/// for pool in &look.pools {
///     println!("{}: {} pages of {}", pool.id, pool.inflight, look.interface(pool).unwrap_or("?"));
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct KernelWatch(KernelPagePools);

impl KernelWatch {
    /// Connects to the kernel. [`LinkError::NoKernelPools`] says what it lacks.
    pub fn open() -> Result<Self, LinkError> {
        KernelPagePools::open().map(Self)
    }

    /// Reads all pools, and the names of interfaces.
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
