//! Lists the page pools of the kernel's drivers over netlink.

use std::collections::HashMap;

use super::family::NetdevFamily;
use super::kernel_pool::{KernelPagePool, KernelPoolStats};
use crate::error::LinkError;
use crate::sys::errno::{ENOENT, EOPNOTSUPP};
use crate::sys::uapi;

/// A socket that lists the kernel's page pools of one network namespace.
///
/// Requires Linux 6.8 with `CONFIG_PAGE_POOL`, and no capability. Only pools are listed whose driver named
/// its interface when it made them; veth does not (Linux 6.18).
///
/// ```
/// use pagepool_link::KernelPagePools;
/// match KernelPagePools::open() {
///     Ok(mut pools) => {
///         for pool in pools.list()? {
///             let recycled = pool.stats.and_then(|stats| stats.recycle_percent());
///             println!("{}: {} pages, recycled {recycled:?} %", pool.id, pool.inflight);
///         }
///     }
///     Err(error) => println!("{error}"), // an older kernel
/// }
/// # Ok::<(), pagepool_link::LinkError>(())
/// ```
#[derive(Debug)]
pub struct KernelPagePools {
    family: NetdevFamily,
    has_stats: bool,
}

impl KernelPagePools {
    /// Opens a socket in the calling thread's namespace. Fails if the kernel does not list its pools.
    pub fn open() -> Result<Self, LinkError> {
        let family = NetdevFamily::open().map_err(|error| known(error, ENOENT))?;
        let mut pools = Self { family, has_stats: true };
        pools.list()?;
        Ok(pools)
    }

    /// Whether this kernel has counters for its pools (`CONFIG_PAGE_POOL_STATS`).
    pub fn has_stats(&self) -> bool {
        self.has_stats
    }

    /// All pools, in the kernel's order: by interface, those without an interface first.
    pub fn list(&mut self) -> Result<Vec<KernelPagePool>, LinkError> {
        let request = self.family.request(uapi::NETDEV_CMD_PAGE_POOL_GET, uapi::NLM_F_DUMP);
        let pools = self.family.exchange(request, ("list", "the page pools"), KernelPagePool::parse);
        let mut pools = pools.map_err(|error| known(error, EOPNOTSUPP))?;
        let stats: HashMap<_, _> = self.stats()?.into_iter().collect();
        // A pool that was made in between has no counters yet.
        pools.iter_mut().for_each(|pool| pool.stats = stats.get(&pool.id).copied());
        Ok(pools)
    }

    /// The counters of all pools; empty if the kernel has none.
    fn stats(&mut self) -> Result<Vec<(u32, KernelPoolStats)>, LinkError> {
        if !self.has_stats {
            return Ok(Vec::new());
        }
        let request = self.family.request(uapi::NETDEV_CMD_PAGE_POOL_STATS_GET, uapi::NLM_F_DUMP);
        let asked = ("list", "the counters of page pools");
        match self.family.exchange(request, asked, KernelPagePool::parse_stats) {
            Err(error) if error.errno() == Some(EOPNOTSUPP) => {
                self.has_stats = false;
                Ok(Vec::new())
            }
            read => read,
        }
    }
}

/// The error for a kernel that lists no pools, which it reports by this errno.
fn known(error: LinkError, errno: i32) -> LinkError {
    match error {
        LinkError::Refused { source, .. } if source.raw_os_error() == Some(errno) => {
            LinkError::NoKernelPools { source }
        }
        error => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_without_pool_lists_differs_from_other_refusals() {
        let refused = |errno| {
            let (request, about, extack, remedy) = ("list", "page pools".to_owned(), None, String::new());
            let source = std::io::Error::from_raw_os_error(errno);
            LinkError::Refused { request, about, extack, remedy, source }
        };
        let error = known(refused(EOPNOTSUPP), EOPNOTSUPP);
        assert!(error.to_string().contains("Linux 6.8") && error.errno() == Some(EOPNOTSUPP), "{error}");
        assert!(matches!(known(refused(ENOENT), EOPNOTSUPP), LinkError::Refused { .. }));
    }

    #[test]
    fn the_pools_of_this_kernel_are_listed() {
        let mut pools = match KernelPagePools::open() {
            Ok(pools) => pools,
            Err(error @ LinkError::NoKernelPools { .. }) => return println!("SKIP page pools: {error}"),
            Err(error) => panic!("{error}"),
        };
        let listed = pools.list().unwrap();
        if !pools.has_stats() {
            println!("SKIP counters of page pools: this kernel is without CONFIG_PAGE_POOL_STATS");
        }
        if listed.is_empty() {
            println!("SKIP page pools: no driver of this machine lists any");
        }
        for pool in &listed {
            assert!(pool.id > 0 && pool.inflight_bytes >= pool.inflight, "{pool:?}");
            assert!(pool.stats.is_none() || pools.has_stats(), "{pool:?}");
        }
    }
}
