//! A task that waits until an allocation succeeds.
//!
//! Who    the bound thread: the future borrows the [`Bound`], and stays there. A thread that brings a page
//!        calls the wakers of all waiting tasks, with no lock held.
//! How    a poll tries. In one step it then leaves its waker with the wake-up and clears a pending signal. It
//!        tries again, which arms the wake-up before its last look (refill.rs, `last_attempt`). Thus it
//!        finds a page, or the page's returner finds the waker.
//! Cache  other tasks on the owner's thread drop buffers during the wait, and a return into the cache wakes
//!        no task. Therefore the owner word names no thread while a task waits: that thread returns through
//!        lane or ring, like any other.
//! Cost   without a waiting task: nothing. A poll that finds nothing takes a short lock twice.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use crate::pool::bound::Bound;
use crate::recycle::thread;
use crate::sys::sync::Ordering;

/// The future of [`Bound::wait_for`]. Its drop ends the wait, and loses no page.
///
/// While a task of the pool waits, buffers that the owner's thread drops return by lane or ring, not into the
/// cache, and count in `recycle_ring`. A forgotten future (`mem::forget`) leaves this so until the pool is
/// bound anew.
#[must_use = "a future does nothing until it is awaited"]
pub struct Waiting<'a, F> {
    pool: &'a Bound,
    attempt: F,
    /// The key of the waker that the wake-up has.
    key: Option<u64>,
}

impl Bound {
    /// Waits until `attempt`, an allocation from this pool, succeeds. For tasks of an executor. Needs neither
    /// a reactor nor a descriptor, so `wakeup` may be off.
    ///
    /// The task wakes and tries again when a buffer returns, on any thread, or pages come back to the
    /// provider. Several tasks may wait. A deferred buffer whose user is done wakes no task. An attempt that
    /// cannot succeed, such as a fragment larger than a page, waits for ever. A poll without success counts
    /// once or twice in `alloc_failed`. A waker's panic is caught: the thread that returned the buffer
    /// continues.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, Bound, Pool, PoolParams};
    /// # use std::{future::Future, pin::pin, sync::Arc, task::{Context, Poll, Wake}, thread::{self, Thread}};
    /// # struct Unpark(Thread);
    /// # impl Wake for Unpark {
    /// #     fn wake(self: Arc<Self>) { self.0.unpark(); }
    /// # }
    /// # fn block_on<T>(future: impl Future<Output = T>) -> T {
    /// #     let (mut future, waker) = (pin!(future), Arc::new(Unpark(thread::current())).into());
    /// #     loop {
    /// #         match future.as_mut().poll(&mut Context::from_waker(&waker)) {
    /// #             Poll::Ready(output) => return output,
    /// #             Poll::Pending => thread::park(),
    /// #         }
    /// #     }
    /// # }
    /// # let arena = Arena::new(ArenaParams { max_bytes: 4 << 12, ..Default::default() })?;
    /// let pool = Pool::new(PoolParams::default(), arena)?.bind(); // over 4 pages
    /// let pages: Vec<_> = std::iter::from_fn(|| pool.alloc_page()).collect();
    /// let returner = thread::spawn(move || drop(pages));
    /// block_on(async {
    ///     let page = pool.wait_for(Bound::alloc_page).await;
    ///     let piece = pool.wait_for(|pool| pool.alloc_frag(1024)).await;
    ///     assert_eq!((page.len(), piece.len()), (4096, 1024));
    /// });
    /// # returner.join().unwrap();
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    pub fn wait_for<T, F: FnMut(&Self) -> Option<T>>(&self, attempt: F) -> Waiting<'_, F> {
        Waiting { pool: self, attempt, key: None }
    }
}

impl<F> Waiting<'_, F> {
    /// Before the last attempt of the poll: the next signal calls this waker.
    fn begin(&mut self, waker: &Waker) {
        let key = *self.key.get_or_insert_with(|| {
            self.pool.policy(|p| {
                p.waiting += 1;
                p.next_key += 1;
                p.next_key
            })
        });
        let pool = self.pool.ptr();
        let (stood, _earlier) = pool.wakeup.expect(key, waker.clone());
        if stood {
            self.pool.policy(|p| p.unacknowledged = false);
        }
        pool.owner.store(thread::NOBODY, Ordering::Relaxed);
    }

    fn end(&mut self) {
        let Some(key) = self.key.take() else { return };
        let left = self.pool.policy(|p| {
            p.waiting -= 1;
            p.waiting
        });
        let pool = self.pool.ptr();
        if left == 0 {
            pool.owner.store(thread::token_or_new(), Ordering::Relaxed);
        }
        pool.wakeup.forget(key);
    }
}

/// The attempt is called in place, and never pinned.
impl<F> Unpin for Waiting<'_, F> {}

impl<T, F: FnMut(&Bound) -> Option<T>> Future for Waiting<'_, F> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let this = self.get_mut();
        let mut found = (this.attempt)(this.pool);
        if found.is_none() {
            this.begin(context.waker());
            found = (this.attempt)(this.pool);
        }
        let Some(found) = found else { return Poll::Pending };
        this.end();
        Poll::Ready(found)
    }
}

impl<F> Drop for Waiting<'_, F> {
    fn drop(&mut self) {
        self.end();
    }
}

impl<F> fmt::Debug for Waiting<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting").field("pool", self.pool).finish_non_exhaustive()
    }
}
