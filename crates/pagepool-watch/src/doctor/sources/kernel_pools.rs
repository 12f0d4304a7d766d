//! The kernel's page pools, at two looks.

use pagepool_link::{KernelPagePool, LinkError};

use crate::doctor::evidence::{KernelPoolEvidence, Unseen};
use crate::kernel_look::{KernelLook, KernelWatch};
use crate::words::error_chain;

/// The watch and its first list; `None` if the kernel lists no pools.
pub struct KernelPools(Option<(KernelWatch, KernelLook)>);

impl KernelPools {
    pub fn look(unseen: &mut Unseen) -> Self {
        let listed = KernelWatch::open().and_then(|mut kernel| {
            let first = kernel.look()?;
            Ok((kernel, first))
        });
        Self(listed.map_err(|error| failed(error, unseen)).ok())
    }

    pub fn are_seen(&self) -> bool {
        self.0.is_some()
    }

    /// The changes since the first look, on these interfaces if any are named.
    pub fn evidence(&mut self, of: Option<&[String]>, unseen: &mut Unseen) -> Vec<KernelPoolEvidence> {
        let Some((kernel, first)) = &mut self.0 else { return Vec::new() };
        let now = match kernel.look() {
            Ok(now) => now,
            Err(error) => {
                failed(error, unseen);
                return Vec::new();
            }
        };
        let one = |pool: &KernelPagePool| {
            moved(pool, first.pools.iter().find(|before| before.id == pool.id), now.interface(pool))
        };
        let is_asked = |pool: &KernelPoolEvidence| {
            of.is_none_or(|of| pool.interface.as_ref().is_some_and(|name| of.contains(name)))
        };
        now.pools.iter().map(one).filter(is_asked).collect()
    }
}

/// A kernel without a list leaves nothing to judge: that is only a note.
fn failed(error: LinkError, unseen: &mut Unseen) {
    let said = error_chain(&error);
    match error {
        LinkError::NoKernelPools { .. } => unseen.notes.push(said),
        _ => unseen.not_judged.push(said),
    }
}

fn moved(
    pool: &KernelPagePool,
    before: Option<&KernelPagePool>,
    interface: Option<&str>,
) -> KernelPoolEvidence {
    let then = before.and_then(|before| before.stats);
    KernelPoolEvidence {
        id: pool.id,
        interface: interface.map(str::to_owned),
        inflight: pool.inflight,
        detached: pool.detached_for(),
        is_old: before.is_some(),
        moved: pool.stats.zip(then).map(|(now, then)| now.since(&then)).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use pagepool_link::KernelPoolStats;

    use super::*;

    #[test]
    fn a_pool_has_what_it_did_between_the_looks() {
        let counted = |fast| {
            let (mut pool, mut stats) = (KernelPagePool::default(), KernelPoolStats::default());
            stats.alloc_fast = fast;
            (pool.id, pool.ifindex, pool.inflight, pool.stats) = (18, Some(2), 64, Some(stats));
            pool
        };
        let evidence = moved(&counted(150), Some(&counted(100)), Some("eth0"));
        assert_eq!(
            (evidence.moved.alloc_fast, evidence.interface.as_deref(), evidence.is_old),
            (50, Some("eth0"), true)
        );
        let new = moved(&counted(150), None, None);
        assert_eq!((new.moved.alloc_fast, new.interface, new.is_old), (0, None, false));
    }
}
