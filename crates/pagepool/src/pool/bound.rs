//! The owner half: a pool bound to one thread.
//!
//! What   a [`Pool`] may be sent, but cannot allocate. [`Pool::bind`] makes it [`Bound`] to the calling
//!        thread, where it allocates; [`Bound::unbind`] makes it a `Pool` again, to send elsewhere.
//! Who    a `Bound` is neither `Send` nor `Sync`: only its thread has the owner half (I2). A forgotten
//!        `Bound` is a leak, never a race, because its token is never reused. Signal handlers must not touch
//!        buffers.
//! Order  cache -> lanes and ring -> provider, as in net/core/page_pool.c:page_pool_alloc_netmems (v7.3).
//! Cost   from the cache: a load, a compare, two stores, one count. No atomic read-modify-write.

// UNSAFETY: `OwnerProof::assume` for the bound thread; fragment state is reached through its owner cell.
#![expect(unsafe_code)]

pub(crate) mod waiting;

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::os::fd::BorrowedFd;
use std::panic::{RefUnwindSafe, UnwindSafe};

use crate::core::pool_core::{PoolCore, PoolPtr};
use crate::error::Error;
use crate::holders::tag::Tag;
use crate::mem::dma::DomainId;
use crate::mem::page::NodeId;
use crate::pool::params::check_node;
use crate::pool::pool_ref::{self, PoolRef};
use crate::pool::shutdown::Shutdown;
use crate::pool::unbound::{Pool, RefillPolicy};
use crate::recycle::cache::OwnerProof;
use crate::recycle::thread;
use crate::returns::late;
use crate::stats::{Inflight, Stats};
use crate::sys::sync::Ordering;

/// A pool bound to the current thread, which allocates from it. Linux: a `page_pool` inside its NAPI poll.
///
/// It stays on its thread; the compiler's error says why. Send the pool, and bind it there:
///
/// ```compile_fail,E0277
/// # use pagepool::{Arena, ArenaParams, Pool, PoolParams};
/// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() }).unwrap();
/// let pool = Pool::new(PoolParams::default(), arena).unwrap().bind();
/// std::thread::spawn(move || pool.alloc_page()); // `BoundStaysOnItsThreadSendPoolAndBindThere`
/// ```
#[derive(Debug)]
pub struct Bound {
    pub(crate) pool: ManuallyDrop<std::cell::UnsafeCell<Pool>>,
    /// Neither `Send` nor `Sync`: the owner half stays on its thread.
    here: PhantomData<dyn BoundStaysOnItsThreadSendPoolAndBindThere>,
}

/// Its name is what the compiler prints if a `Bound` is sent to another thread. Its bounds keep the other
/// auto traits.
trait BoundStaysOnItsThreadSendPoolAndBindThere: UnwindSafe + RefUnwindSafe + Unpin {}

impl Pool {
    /// Makes the calling thread the owner. Linux: `page_pool_enable_direct_recycling`.
    #[doc(alias = "page_pool_enable_direct_recycling")]
    pub fn bind(mut self) -> Bound {
        self.policy.waiting = 0; // forgotten waits no longer count
        self.ptr.owner.store(thread::token_or_new(), Ordering::Relaxed);
        Bound { pool: ManuallyDrop::new(std::cell::UnsafeCell::new(self)), here: PhantomData }
    }
}

impl Bound {
    #[inline(always)]
    pub(crate) fn ptr(&self) -> PoolPtr {
        // SAFETY: `ptr` never changes, and no exclusive borrow of the pool is live outside `policy`.
        unsafe { (*self.pool.get()).ptr }
    }

    #[inline(always)]
    pub(crate) fn owner(&self) -> OwnerProof {
        // SAFETY: I2. A `Bound` exists only on the thread whose token it put into the owner word.
        unsafe { OwnerProof::assume() }
    }

    /// Reads or changes the refill policy. `f` runs no callback.
    pub(crate) fn policy<R>(&self, f: impl FnOnce(&mut RefillPolicy) -> R) -> R {
        // SAFETY: I2. Only this thread has the pool, and `f` cannot re-enter.
        f(unsafe { &mut (*self.pool.get()).policy })
    }

    /// Unbinds the pool, for another thread to bind. Buffers that this thread drops later take the remote
    /// path. Linux: `page_pool_disable_direct_recycling`.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, Pool, PoolParams};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// let pool = Pool::new(PoolParams::default(), arena)?.bind();
    /// let pool = pool.unbind();
    /// std::thread::spawn(move || assert!(pool.bind().alloc_page().is_some())).join().unwrap();
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    #[doc(alias = "page_pool_disable_direct_recycling")]
    pub fn unbind(self) -> Pool {
        let mut this = ManuallyDrop::new(self);
        this.ptr().owner.store(thread::NOBODY, Ordering::Relaxed);
        // SAFETY: taken once: `this` is never dropped.
        unsafe { ManuallyDrop::take(&mut this.pool) }.into_inner()
    }

    /// Ends the pool: see [`Pool::destroy`].
    pub fn destroy(self) -> Shutdown {
        self.unbind().destroy()
    }

    /// A handle for any thread: counters, page locations, raw addresses.
    pub fn handle(&self) -> PoolRef {
        PoolRef::new(self.ptr())
    }

    /// Changes the preferred NUMA node; `None` is this thread's node, looked up each time. Pages in the cache
    /// go back to the provider. Linux: `page_pool_update_nid`.
    ///
    /// # Errors
    /// If the provider does not know the node. Nothing has changed.
    #[doc(alias = "page_pool_update_nid")]
    pub fn update_nid(&self, nid: Option<NodeId>) -> Result<(), Error> {
        let pool = self.ptr();
        check_node(&**pool.provider(), nid)?;
        self.policy(|p| p.nid = nid);
        let _lent = self.lend_idle_cache();
        let pages: Vec<_> = std::iter::from_fn(|| pool.own.cache.pop(self.owner())).collect();
        pool.own.counts.release.add(pages.len() as u64);
        late::give_back_all(pool, &pages);
        Ok(())
    }

    /// Runs [`update_nid`](Self::update_nid) if the node differs. Linux: `page_pool_nid_changed`.
    #[doc(alias = "page_pool_nid_changed")]
    pub fn nid_changed(&self, nid: Option<NodeId>) -> Result<(), Error> {
        if self.policy(|p| p.nid) == nid { Ok(()) } else { self.update_nid(nid) }
    }

    /// The counters of the pool.
    pub fn stats(&self) -> Stats {
        pool_ref::stats(&self.ptr())
    }

    /// Where the pool's pages are.
    pub fn inflight(&self) -> Inflight {
        pool_ref::inflight(&self.ptr())
    }

    /// Bytes of fragment pages that belong to no fragment: see [`PoolRef::frag_waste`].
    pub fn frag_waste(&self) -> u64 {
        self.ptr().own.frag_waste.read()
    }

    /// Whether this domain is one of the pool's own (`PoolParams::domains`): the pool's buffers then stay
    /// mapped there as long as they are out. Buffers of another pool over the same memory are mapped only
    /// while a pool with the domain lives. A compare per domain.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, DmaDomain, IdentityDomain, Pool, PoolParams};
    /// # use std::sync::Arc;
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// let nic: Arc<dyn DmaDomain> = Arc::new(IdentityDomain::new("nic0"));
    /// let params = PoolParams { domains: vec![nic.clone()], ..Default::default() };
    /// assert!(Pool::new(params, arena.clone())?.bind().has_domain(nic.id()));
    /// assert!(!Pool::new(PoolParams::default(), arena)?.bind().has_domain(nic.id()));
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    pub fn has_domain(&self, domain: DomainId) -> bool {
        self.core().mappings.iter().any(|mapping| mapping.id() == domain)
    }

    /// Whether returned pages are already synced for this device: the domain is one of the pool's, not
    /// coherent, and the pool has `sync_for_device`.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, DmaDomain, IdentityDomain, Pool, PoolParams};
    /// # use std::sync::Arc;
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// let coherent: Arc<dyn DmaDomain> = Arc::new(IdentityDomain::new("nic0"));
    /// let domains = vec![coherent.clone()];
    /// let params = PoolParams { domains, sync_for_device: true, ..Default::default() };
    /// let pool = Pool::new(params, arena)?.bind();
    /// assert!(!pool.syncs_for(coherent.id()), "there is nothing to sync");
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    pub fn syncs_for(&self, domain: DomainId) -> bool {
        self.core().syncing.iter().any(|mapping| mapping.id() == domain)
    }

    /// The descriptor to poll together with the device's, in a pool with `wakeup`. After the pool starved, it
    /// becomes readable once per buffer returns or pages come back to the provider, and stays so until
    /// [`acknowledge_wake`](Self::acknowledge_wake). Returns into the cache, on this thread, do not signal
    /// it: after them, allocate once more before the sleep.
    ///
    /// With edge-triggered polling (`EPOLLET`), acknowledge each signal: no other comes until then.
    ///
    /// After the first call, an allocation that fails while a signal is pending queries the kernel whether
    /// the program read it (one poll(2)).
    pub fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        self.policy(|p| p.fd_lent = true);
        // SAFETY: I9. The pool ends only after this `Bound` is given up, and the borrow ends before.
        unsafe { self.core().wakeup.fd() }
    }

    /// Clears the signal. Call it after waking and before allocating, best just before the last allocation
    /// before a sleep. Until then the signal is pending, and failed allocations do not arm the next. The next
    /// one that fails does, for about 1,600 cycles. Do not call it between a failed allocation and the sleep:
    /// it may clear the signal that should end that sleep.
    ///
    /// Then shrinks the pool, if that was requested: see [`PoolRef::ask_to_shrink`].
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, Pool, PoolParams};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// let pool = Pool::new(PoolParams { wakeup: true, ..Default::default() }, arena)?.bind();
    /// pool.acknowledge_wake();
    /// let page = pool.alloc_page(); // if there is none, sleep on `wake_fd`
    /// # assert!(page.is_some());
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    ///
    /// Cost: a short lock; with a signal to clear, a system call.
    pub fn acknowledge_wake(&self) {
        if self.ptr().wakeup.acknowledge() {
            self.policy(|p| p.unacknowledged = false);
        }
        self.shrink_if_requested(); // behind it, because later requests signal
    }

    /// The fewest pages available at any reservation, in cache and provider.
    pub fn low_water_mark(&self) -> usize {
        self.policy(|p| p.low_water_mark)
    }

    /// Returns the tag with this name ([`Tag::new`]) in a pool with `tagging` or `holders`. In other pools it
    /// creates none, and the tag has no name.
    pub fn tag(&self, name: &str) -> Tag {
        if self.core().tagging { Tag::new(name) } else { Tag::NONE }
    }

    /// Sets or clears the tag of subsequent allocations. [`PageBuf::set_tag`](crate::PageBuf::set_tag)
    /// changes it for one buffer; all that is made of a buffer inherits its tag. The records have names for
    /// the first 256 tags of a pool, of 40 bytes. Does nothing in a pool without
    /// [`holders`](crate::PoolParams::holders).
    pub fn set_tag(&self, tag: Option<Tag>) {
        if let Some(holders) = &self.core().holders {
            holders.tag_next(tag);
        }
    }

    #[inline(always)]
    pub(crate) fn core(&self) -> &PoolCore {
        let pool = self.ptr();
        // SAFETY: I9. This `Bound` has the owner half, so the pool has not ended.
        unsafe { pool.get().as_ref() }
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        self.ptr().owner.store(thread::NOBODY, Ordering::Relaxed);
        // SAFETY: dropped once, here; the drop ends the pool.
        unsafe { ManuallyDrop::drop(&mut self.pool) };
    }
}
