//! Pools that found no page in their provider, and their wake-up when pages return to it.
//!
//! Who    a pool's owner adds itself when it arms its wake-up, before its last look for pages. A thread
//!        that releases pages to the provider wakes all pools. So does an arena that grows or trims, and a
//!        domain that is removed, because it may have prevented growth. Pages that a provider of another
//!        crate gains in another way wake no pool.
//! All    not only as many pools as pages: a woken pool may take none (it ended, wants a higher order or
//!        another node, another pool was faster), and would have to wake the next. A pool is woken once each
//!        time it arms. So a release costs at most one signal per sleeping pool, and pools that find nothing
//!        sleep again.
//! Pairs  owner: `add` (list), `raise_all` (heavy fence), then another request to the provider. Releasing
//!        thread: `release`, light fence, list. One of them sees the other. The fence in `add` orders
//!        `starved` before the owner's look at its listed lanes (pool_core.rs, `claim_lane`).
//! Cost   one load per release if no pool is listed. The owner pays for both fences, in the call that does so
//!        for its lanes.

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

    /// For a pool's owner: from now on returned pages wake it, if a heavy fence follows.
    pub(crate) fn add(&self, wakeup: &Arc<Wakeup>) {
        let mut pools = self.pools.lock();
        if !pools.iter().any(|known| Arc::ptr_eq(known, wakeup)) {
            pools.push(wakeup.clone());
        }
        self.any.store(true, Ordering::Relaxed);
        drop(pools);
        fence(Ordering::SeqCst); // pairs with claim_lane(); wake_all() needs the heavy one that follows
    }

    /// For a pool's end.
    pub(crate) fn remove(&self, wakeup: &Arc<Wakeup>) {
        self.pools.lock().retain(|known| !Arc::ptr_eq(known, wakeup));
    }

    /// Whether a pool was added and not woken since. Exact for the owner that added it: either its pool is
    /// listed, or it is being woken.
    pub(crate) fn are_listed(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Called when pages returned to the provider, or it may have more. Runs callbacks: the caller holds no
    /// lock.
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
