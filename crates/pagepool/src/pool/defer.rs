//! The owner's side of the deferred queue: buffers that others still use.

// UNSAFETY: the queue is reached through the bound pool.
#![expect(unsafe_code)]

use std::sync::Arc;

use crate::buf::page_buf::PageBuf;
use crate::error::Error;
use crate::pool::bound::Bound;
use crate::pool::deferred_queue::{DeferredQueue, DeferredUser, InUse};
use crate::pool::pool_ref;
use crate::stats::DeferredStats;

impl Bound {
    /// The deferred queue, if the pool has one.
    pub(crate) fn deferred(&self) -> Option<&DeferredQueue> {
        // SAFETY: I2. Only this thread has the pool, and there is no exclusive reference to this field while
        // it is bound.
        unsafe { &(*self.pool.get()).deferred }.as_deref()
    }

    /// Registers a user of deferred buffers. Slow: it allocates, so that queueing does not.
    ///
    /// # Errors
    /// If the pool has no deferred queue (`defer_capacity` 0).
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, Pool, PoolParams, UseCounts};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// let pool = Pool::new(PoolParams::default(), arena)?.bind();
    /// let error = pool.deferred_user(UseCounts::new(1)).unwrap_err();
    /// let text = "pool pool has no deferred queue: create it with defer_capacity above 0";
    /// assert_eq!(error.to_string(), text);
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    pub fn deferred_user(&self, user: Arc<dyn InUse>) -> Result<DeferredUser, Error> {
        let pool = self.ptr();
        let deferred = self.deferred().ok_or_else(|| Error::Unsupported {
            what: format!("pool {} has no deferred queue: create it with defer_capacity above 0", pool.name),
        })?;
        Ok(deferred.register(pool.id, user))
    }

    /// Queues a buffer that `user` still uses. It returns to the pool once `user` answers that the buffer of
    /// this cookie is not in use; refills and [`poll_deferred`](Self::poll_deferred) query it. No atomic
    /// operation, no allocation.
    ///
    /// Returns `Err(buffer)` if the queue is full, or if buffer or user belong to another pool.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, Pool, PoolParams, UseCounts};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 4 << 12, ..Default::default() })?;
    /// let params = PoolParams { defer_capacity: 4, ..Default::default() };
    /// let pool = Pool::new(params, arena)?.bind(); // over 4 pages
    /// let counts = UseCounts::new(4);
    /// let user = pool.deferred_user(counts.clone())?;
    /// for cookie in 0..4 {
    ///     counts.take(cookie);
    ///     pool.defer(&user, pool.alloc_page().unwrap(), cookie).expect("there is room for 4");
    /// }
    /// assert!(pool.alloc_page().is_none(), "all are in use");
    /// counts.put(0);
    /// assert!(pool.alloc_page().is_some(), "the refill polled");
    /// # (1..4).for_each(|cookie| counts.put(cookie));
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    #[inline]
    pub fn defer(&self, user: &DeferredUser, buffer: PageBuf, cookie: u64) -> Result<(), PageBuf> {
        let pool = self.ptr();
        match self.deferred() {
            Some(deferred) if buffer.pool == pool && user.pool == pool.id => {
                deferred.push(user, buffer, cookie)
            }
            _ => Err(buffer),
        }
    }

    /// Polls all deferred buffers, by the rule of [`OnBusy`](crate::OnBusy); returns how many returned to the
    /// pool. Refills poll automatically; call this if the owner is idle. Does nothing inside an [`InUse`]. A
    /// user's panic passes through, and no buffer is lost. Then shrinks the pool if that was requested
    /// ([`PoolRef::ask_to_shrink`](crate::PoolRef::ask_to_shrink)), even in a pool without a queue.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, Pool, PoolParams, UseCounts};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// let pool = Pool::new(PoolParams { defer_capacity: 4, ..Default::default() }, arena)?.bind();
    /// let user = pool.deferred_user(UseCounts::new(4))?;
    /// pool.defer(&user, pool.alloc_page().unwrap(), 0).unwrap();
    /// assert_eq!((pool.poll_deferred(), pool.poll_deferred()), (1, 0));
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    pub fn poll_deferred(&self) -> usize {
        let returned = self.deferred().map_or(0, |deferred| deferred.poll(usize::MAX));
        self.shrink_if_requested();
        returned
    }

    /// Counters of the deferred queue: see [`PoolRef::deferred_stats`](crate::PoolRef::deferred_stats).
    pub fn deferred_stats(&self) -> DeferredStats {
        pool_ref::deferred_stats(&self.ptr())
    }
}
