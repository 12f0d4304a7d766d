//! Pools that found no page with their provider, and the pages that come back to it.
//!
//! Who    a pool's owner adds itself when it starves, before its last look; whoever gives pages back to the
//!        provider wakes all, and so do an arena that grows or trims, and a domain that goes and may have
//!        kept it from growing. A provider of another crate that gets pages in another way wakes nobody.
//! All    and not as many as pages came: a pool that was woken may take none of them (it ended, it wants a
//!        higher order, another node, another pool was faster), and would have to wake the next. A pool is
//!        woken once for each time that it armed, so one release costs at most one signal for each pool that
//!        sleeps, and those that find nothing sleep again.
//! Pairs  owner: `add` (list), `raise_all` (heavy fence), then it asks the provider again. Giver: `release`,
//!        light fence, list: one of them sees the other. The fence in `add` orders `starved` before the
//!        owner's look at its listed lanes (pool_core.rs, `claim_lane`).
//! Cost   where no pool starves: a load for each release. The owner pays for both fences, as it does for its
//!        lanes, by the same call.

use std::sync::Arc;

use crate::sys::sync::{AtomicBool, Lock, Ordering, fence, light_fence};
use crate::sys::wakeup::Wakeup;

/// The pools over one area that wait for pages.
#[derive(Debug)]
pub(crate) struct StarvedPools {
    any: AtomicBool,
    pools: Lock<Vec<Arc<Wakeup>>>,
}

impl StarvedPools {
    pub(crate) fn new() -> Self {
        Self { any: AtomicBool::new(false), pools: Lock::new(Vec::new()) }
    }

    /// For a pool's owner: from now on pages that come back wake it, if a heavy fence follows.
    pub(crate) fn add(&self, wakeup: &Arc<Wakeup>) {
        let mut pools = self.pools.lock();
        if !pools.iter().any(|known| Arc::ptr_eq(known, wakeup)) {
            pools.push(wakeup.clone());
        }
        self.any.store(true, Ordering::Relaxed);
        drop(pools);
        fence(Ordering::SeqCst); // pairs with claim_lane(); wake_all() needs the heavy one that follows
    }

    /// The pool ends.
    pub(crate) fn remove(&self, wakeup: &Arc<Wakeup>) {
        self.pools.lock().retain(|known| !Arc::ptr_eq(known, wakeup));
    }

    /// Whether a pool was added that nobody has woken since. To the owner that added it this is exact: either
    /// it finds the pool listed, or the pool is being woken.
    pub(crate) fn are_listed(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Pages came back to the provider, or it may have more than before. The caller holds no lock: this runs
    /// callbacks.
    pub(crate) fn wake_all(&self) {
        light_fence(); // pairs with the heavy fence in raise_all(), after add()
        if self.any.load(Ordering::Relaxed) {
            self.wake_those_that_wait();
        }
    }

    #[cold]
    fn wake_those_that_wait(&self) {
        let waiting = {
            let mut pools = self.pools.lock();
            self.any.store(false, Ordering::Relaxed);
            std::mem::take(&mut *pools)
        };
        waiting.iter().for_each(|wakeup| wakeup.wake());
    }
}
