//! The owner half: a pool bound to one thread.
//!
//! What   [`Pool`] may be sent and cannot allocate. [`Pool::bind`] makes it [`Bound`] to the calling thread,
//!        where it allocates; [`Bound::unbind`] gives it back, to move elsewhere.
//! Who    a `Bound` is neither `Send` nor `Sync`, so its thread alone holds the owner half (I2). A forgotten
//!        `Bound` is a leak, never a race: its token is never used again. Signal handlers must not touch
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

use crate::error::Error;
use crate::holders::tag::Tag;
use crate::home::cache::OwnerProof;
use crate::home::stats::{Inflight, Stats};
use crate::home::thread;
use crate::mem::dma::DomainId;
use crate::mem::page::NodeId;
use crate::pool::params::check_node;
use crate::pool::pool_ref::{self, PoolRef};
use crate::pool::shutdown::Shutdown;
use crate::pool::unbound::{Pool, RefillPolicy};
use crate::returns::late;
use crate::returns::pool_core::{PoolCore, PoolPtr};
use crate::sys::sync::Ordering;

/// A pool bound to the current thread, which allocates from it. Linux: a `page_pool` inside its NAPI poll.
///
/// It stays on its thread, and the compiler's error names the reason. Send the pool, and bind it there:
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

/// The name is what the compiler prints where a `Bound` is sent to another thread. It says nothing else of a
/// `Bound` than that.
trait BoundStaysOnItsThreadSendPoolAndBindThere: UnwindSafe + RefUnwindSafe + Unpin {}

impl Pool {
    /// Makes the calling thread the owner. Linux: `page_pool_enable_direct_recycling`.
    #[doc(alias = "page_pool_enable_direct_recycling")]
    pub fn bind(mut self) -> Bound {
        self.policy.waiting = 0; // a wait that was forgotten counts no more
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
        // SAFETY: I2. A `Bound` exists on the thread whose token it put into the owner word, and nowhere
        // else.
        unsafe { OwnerProof::assume() }
    }

    /// Reads or changes the refill policy; `f` runs no callback.
    pub(crate) fn policy<R>(&self, f: impl FnOnce(&mut RefillPolicy) -> R) -> R {
        // SAFETY: I2. This thread alone has the pool, and `f` cannot come back here.
        f(unsafe { &mut (*self.pool.get()).policy })
    }

    /// Gives the pool back, to be bound by another thread. Buffers that are dropped on this thread afterwards
    /// go the way of other threads. Linux: `page_pool_disable_direct_recycling`.
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

    /// As [`Pool::destroy`].
    pub fn destroy(self) -> Shutdown {
        self.unbind().destroy()
    }

    /// A handle for any thread: counters, locations of pages, raw addresses.
    pub fn handle(&self) -> PoolRef {
        PoolRef::new(self.ptr())
    }

    /// Changes the preferred NUMA node; `None` is the node of this thread, looked up each time. Pages in
    /// the cache go back to the provider. An unknown node is an error, and nothing changes. Linux:
    /// `page_pool_update_nid`.
    #[doc(alias = "page_pool_update_nid")]
    pub fn update_nid(&self, nid: Option<NodeId>) -> Result<(), Error> {
        let pool = self.ptr();
        check_node(&**pool.provider(), nid)?;
        self.policy(|p| p.nid = nid);
        let _stock = self.stock_in_cache();
        let mut pages = Vec::with_capacity(pool.own.cache.count());
        while let Some(page) = pool.own.cache.pop(self.owner()) {
            pages.push(page);
        }
        pool.own.counts.release.add(pages.len() as u64);
        late::give_back_all(pool, &pages);
        Ok(())
    }

    /// [`update_nid`](Self::update_nid) if the node is another one. Linux: `page_pool_nid_changed`.
    #[doc(alias = "page_pool_nid_changed")]
    pub fn nid_changed(&self, nid: Option<NodeId>) -> Result<(), Error> {
        if self.policy(|p| p.nid) == nid { Ok(()) } else { self.update_nid(nid) }
    }

    /// The counters of the pool.
    pub fn stats(&self) -> Stats {
        pool_ref::stats(&self.ptr())
    }

    /// Where its pages are.
    pub fn inflight(&self) -> Inflight {
        pool_ref::inflight(&self.ptr())
    }

    /// As [`PoolRef::frag_waste`].
    pub fn frag_waste(&self) -> u64 {
        self.ptr().own.frag_waste.read()
    }

    /// Whether this domain is among the pool's own (`PoolParams::domains`), so that its buffers stay mapped
    /// there as long as they are out. Buffers of another pool over the same memory are mapped only as long as
    /// a pool that has the domain lives. A compare for each domain.
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

    /// Whether returned pages are synced for this device, so that they need no sync before the device gets
    /// them: the domain is one of the pool's, not coherent, and the pool was made with `sync_for_device`.
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

    /// The descriptor to poll together with the device's, in a pool made with `wakeup`. It is readable once a
    /// buffer returns, or pages come back to the provider, after the pool starved, and stays so until
    /// [`acknowledge_wake`](Self::acknowledge_wake). Returns into the cache, on this thread, do not signal
    /// it: after them, allocate once more before the sleep.
    ///
    /// If you poll it edge-triggered (`EPOLLET`), acknowledge each signal: until then no further one comes.
    ///
    /// From the first call on, an allocation that fails while a signal stands asks the kernel whether the
    /// program read it (one poll(2)).
    pub fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        self.policy(|p| p.fd_lent = true);
        // SAFETY: I9. The pool ends only after this `Bound` is given up, and the borrow ends before.
        unsafe { self.core().wakeup.fd() }
    }

    /// Clears the signal. Call it after waking and before allocating, best just before the last allocation
    /// that precedes a sleep: until then the signal is pending, and allocations that fail arm nothing. The
    /// next one that fails arms the next signal, for about 1,600 cycles. Do not call it between a failed
    /// allocation and the sleep: it may clear the signal that should end that sleep.
    ///
    /// Then shrinks the pool, if that was asked for: see [`PoolRef::ask_to_shrink`].
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
            self.policy(|p| p.asked = false);
        }
        self.shrink_if_asked(); // behind it: who asks signals afterwards
    }

    /// The fewest pages available at a reservation so far, cache and provider together.
    pub fn low_water_mark(&self) -> usize {
        self.policy(|p| p.low_water_mark)
    }

    /// As [`Tag::new`], if the pool was made with `tagging` or `holders`; else nothing is entered, and the
    /// tag has no name.
    pub fn tag(&self, name: &str) -> Tag {
        if self.core().tagging { Tag::new(name) } else { Tag::NONE }
    }

    /// Allocations have this tag from now on; `None`: no tag. [`PageBuf::set_tag`](crate::PageBuf::set_tag)
    /// changes it for one buffer, and what is made of buffers has the same. Of the tags that a pool has seen
    /// the first 256 have names in its records, of 40 bytes. Without effect in a pool made without
    /// [`holders`](crate::PoolParams::holders).
    pub fn set_tag(&self, tag: Option<Tag>) {
        if let Some(holders) = &self.core().holders {
            holders.tag_next(tag);
        }
    }

    #[inline(always)]
    pub(crate) fn core(&self) -> &PoolCore {
        let pool = self.ptr();
        // SAFETY: I9. The owner half is this `Bound`'s, so the pool has not ended.
        unsafe { pool.get().as_ref() }
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        self.ptr().owner.store(thread::NOBODY, Ordering::Relaxed);
        // SAFETY: dropped once, here; dropping the pool ends it.
        unsafe { ManuallyDrop::drop(&mut self.pool) };
    }
}
