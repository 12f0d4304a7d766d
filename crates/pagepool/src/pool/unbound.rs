//! A pool that is bound to no thread.
//!
//! Who    the holder of the [`Pool`] may send it, but not allocate. The owner half (I2) goes with it.

// UNSAFETY: a pool is sent with its owner half.
#![expect(unsafe_code)]

use std::mem::ManuallyDrop;

use crate::core::pool_core::PoolPtr;
use crate::mem::page::NodeId;
use crate::pool::deferred_queue::DeferredQueue;
use crate::pool::pool_ref::PoolRef;
use crate::pool::shutdown::{self, Shutdown};

/// A pool that is bound to no thread: it can be sent, observed and destroyed. Linux: `struct page_pool` with
/// direct recycling disabled.
///
/// Dropping it destroys it: see [`destroy`](Self::destroy).
#[derive(Debug)]
pub struct Pool {
    pub(crate) ptr: PoolPtr,
    /// Read by the owner at a refill.
    pub(crate) policy: RefillPolicy,
    /// The deferred queue, in a pool with `defer_capacity` above 0.
    pub(crate) deferred: Option<Box<DeferredQueue>>,
}

// SAFETY: the pool is bound to no thread, so a move takes the owner half along; the rest is `Sync`.
unsafe impl Send for Pool {}

/// How the owner refills its cache.
#[derive(Debug, Default)]
pub(crate) struct RefillPolicy {
    pub(crate) refill: usize,
    pub(crate) nid: Option<NodeId>,
    pub(crate) node_blind: bool,
    pub(crate) low_water: usize,
    pub(crate) low_water_mark: usize,
    /// The wake-up was armed, and the owner has not acknowledged its signal since.
    pub(crate) unacknowledged: bool,
    /// The wake-up's descriptor was given out, so the program may have read the signal.
    pub(crate) fd_lent: bool,
    /// Flags were raised after the owner last looked for pages and found none.
    pub(crate) recheck: bool,
    /// Tasks that wait for a page.
    pub(crate) waiting: u32,
    /// The next waiting task's key.
    pub(crate) next_key: u64,
    /// The lane with which the next refill begins; one past the last lane is the ring.
    pub(crate) next_queue: usize,
}

impl Pool {
    /// A handle for any thread: counters, page locations, raw addresses.
    pub fn handle(&self) -> PoolRef {
        PoolRef::new(self.ptr)
    }

    /// Ends the pool. Never fails, never waits. Pages in cache, lanes and ring go to the provider now,
    /// buffers that are out when they return; the last one frees the pool, on any thread. Domains that no
    /// other pool of the area uses are unmapped now. Linux: `page_pool_destroy`.
    #[doc(alias = "page_pool_destroy")]
    pub fn destroy(self) -> Shutdown {
        let mut this = ManuallyDrop::new(self);
        shutdown::end(this.ptr, this.deferred.take())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        drop(shutdown::end(self.ptr, self.deferred.take()));
    }
}
