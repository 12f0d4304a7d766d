//! The kernel's page pools, at two looks.

use std::collections::HashMap;

use pagepool_net::link::{KernelPagePool, KernelPagePools, Netlink};

use crate::doctor::evidence::KernelPoolEvidence;
use crate::report::error::error_chain;

/// A socket that lists them, and what it listed first; nothing where the kernel lists none.
pub struct KernelPools(Option<(KernelPagePools, Vec<KernelPagePool>)>);

impl KernelPools {
    pub fn look(notes: &mut Vec<String>) -> Self {
        let listed = KernelPagePools::open().and_then(|mut kernel| {
            let first = kernel.list()?;
            Ok((kernel, first))
        });
        Self(listed.map_err(|error| notes.push(error_chain(&error))).ok())
    }

    /// What they did since; of these interfaces alone, if any are named.
    pub fn evidence(&mut self, of: Option<&[String]>) -> Vec<KernelPoolEvidence> {
        let Some((kernel, first)) = &mut self.0 else { return Vec::new() };
        let names: HashMap<_, _> = Netlink::open()
            .and_then(|mut netlink| netlink.links())
            .map(|links| links.into_iter().map(|link| (link.index, link.name)).collect())
            .unwrap_or_default();
        let now = kernel.list().unwrap_or_default();
        let one =
            |pool: &KernelPagePool| moved(pool, first.iter().find(|before| before.id == pool.id), &names);
        let is_asked = |pool: &KernelPoolEvidence| {
            of.is_none_or(|of| pool.interface.as_ref().is_some_and(|name| of.contains(name)))
        };
        now.iter().map(one).filter(is_asked).collect()
    }
}

fn moved(
    pool: &KernelPagePool,
    before: Option<&KernelPagePool>,
    names: &HashMap<u32, String>,
) -> KernelPoolEvidence {
    let then = before.and_then(|before| before.stats);
    KernelPoolEvidence {
        id: pool.id,
        interface: pool.ifindex.and_then(|index| names.get(&index).cloned()),
        inflight: pool.inflight,
        detached: pool.detached_for(),
        is_old: before.is_some(),
        moved: pool.stats.zip(then).map(|(now, then)| now.since(&then)).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use pagepool_net::link::KernelPoolStats;

    use super::*;

    #[test]
    fn a_pool_has_what_it_did_between_the_looks() {
        let look = |fast| {
            let (mut pool, mut stats) = (KernelPagePool::default(), KernelPoolStats::default());
            stats.alloc_fast = fast;
            (pool.id, pool.ifindex, pool.inflight, pool.stats) = (18, Some(2), 64, Some(stats));
            pool
        };
        let names = HashMap::from([(2, "eth0".to_owned())]);
        let of = moved(&look(150), Some(&look(100)), &names);
        assert_eq!((of.moved.alloc_fast, of.interface.as_deref(), of.is_old), (50, Some("eth0"), true));
        let new = moved(&look(150), None, &HashMap::new());
        assert_eq!((new.moved.alloc_fast, new.interface, new.is_old), (0, None, false));
    }
}
