//! The end of a pool. Buffers may be out; the last return frees the pool, on any thread.
//!
//! Who    the holder of the owner half ends the pool, once.
//! How    (1) The owner word names no thread, so every drop takes the remote path. (2) `detached` is set
//!        under the return lock: nothing enters the ring any more. (3) Every lane is flagged, a heavy fence
//!        follows, and every lane is emptied under its cold lock. A returner stores its message, then loads
//!        the flag: either it sees the flag, takes its own messages out under the lane's cold lock and
//!        accounts for them, or its message was there when the lane was emptied. (4) The number of pages
//!        still out is added to `remaining`, and each late return subtracts its pages; the thread whose
//!        change makes it 0 frees the pool (end_watch.rs).
//! Frags  the owner's counts of fragments stay in the pages' records. A thread that finds `detached` under
//!        the return lock continues them. Nothing is moved, so a large area does not delay the end.
//! Defer  deferred buffers stay out, and the queue passes to the [`Shutdown`] (protocol: deferred_queue.rs).
//! I9     after step 3 nothing enters cache, ring or lanes, except messages that their own returner removes.
//! Linux  net/core/page_pool.c:page_pool_destroy, page_pool_release (v7.3), without its retry timer.

// UNSAFETY: `OwnerProof::assume` for the thread that ends the pool, and access to the owner cells.
#![expect(unsafe_code)]

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::core::end_watch::EndWatch;
use crate::core::pool_core::PoolPtr;
use crate::holders::record::Since;
use crate::holders::table::HolderTable;
use crate::holders::tag::Tag;
use crate::holders::view::{AGE_EDGES, HolderGroup, HolderView, HoldersView, ages_text};
use crate::mem::area::Area;
use crate::mem::page::PageIdx;
use crate::pool::deferred_queue::DeferredQueue;
use crate::probes;
use crate::recycle::cache::OwnerProof;
use crate::recycle::lane::{DETACHED, raise_all};
use crate::recycle::message::{Message, MessageQueue};
use crate::recycle::thread;
use crate::returns::late;
use crate::stats::DeferredCounts;
use crate::sys::call::{coarse_ms, sleep};
use crate::sys::placed::Shared;
use crate::sys::published_memory::PublishedRow;
use crate::sys::sync::{Lock, Ordering};

/// How often [`Shutdown::wait`] polls the deferred queue.
const ASK_EVERY: Duration = Duration::from_millis(1);

/// Ends the pool. The caller gives up the owner half. Buffers in its deferred queue stay out.
pub(crate) fn end(pool: PoolPtr, deferred: Option<Box<DeferredQueue>>) -> Shutdown {
    // SAFETY: I2. The caller holds the owner half and gives it up with this call.
    let owner = unsafe { OwnerProof::assume() };
    let shutdown = Shutdown::new(pool, deferred);
    // From here on every drop takes the remote path: nothing enters the cache while it is emptied (I9).
    // Relaxed: only this thread compares the word with its own token.
    pool.owner.store(thread::NOBODY, Ordering::Relaxed);
    pool.area.starved.remove(&pool.wakeup);
    pool.wakeup.close(); // no thread sleeps on it, but the lanes refer to it
    // The lock orders this with pushes into the ring: each is finished before, or sees `detached`.
    pool.returns.lock().detached = true;
    pool.row.lock().iter().for_each(PublishedRow::end);
    // The heavy fence orders the flags before `collect` reads the slots; a returner stores its slot, then
    // reads the flag. Each message is seen here, or removed by its returner; none is lost.
    raise_all(pool.lanes.all(), DETACHED);
    // Collects all before it gives anything back: `release` is a callback, and may drop buffers of this pool.
    let mut returned = Vec::new();
    collect(pool, owner, &mut returned);
    pool.own.counts.release.add(returned.len() as u64);
    let mut last = LastSteps { pool, detached: 0 };
    late::give_back_all(pool, &returned);
    // After the pages went back: a page is mapped until its last return (I6).
    last.detach();
    drop(last); // the pool may be freed
    probes::destroy(shutdown.id, shutdown.watch.out(), shutdown.pending());
    shutdown
}

/// The most bytes that [`end`] allocates: for the pages in cache, queues and records, and for messages in
/// lanes and ring (up to as many per page as it has fragments). If a returner finds the pool ended it takes
/// its own messages out, and `end` does not.
pub(crate) fn most_bytes(pool: PoolPtr) -> usize {
    // In up to five lists, each with up to twice the capacity it needs.
    const PAGE: usize = 10 * size_of::<PageIdx>();
    // In its lane's list, and in that of all, which is copied as it grows.
    const MESSAGE: usize = 6 * size_of::<Message>();
    let pages = usize::try_from(pool.pages()).unwrap_or(0);
    let slots: usize = pool.lanes.all().iter().map(|lane| lane.capacity()).sum();
    let parts = pool.geometry.page_size() / (pool.geometry.frag_mask.wrapping_neg() as usize).max(1);
    let messages = (slots + pool.ring.capacity()).min(pages.saturating_mul(parts));
    pages.saturating_mul(PAGE).saturating_add(messages.saturating_mul(MESSAGE))
}

/// The last steps after the pages went back, also if a callback panics.
struct LastSteps {
    pool: PoolPtr,
    /// Number of domains already detached.
    detached: usize,
}

impl LastSteps {
    fn detach(&mut self) {
        while let Some(mapping) = self.pool.mappings.get(self.detached) {
            self.detached += 1;
            self.pool.area.detach(mapping);
        }
    }
}

impl Drop for LastSteps {
    fn drop(&mut self) {
        self.detach();
        let pool = self.pool;
        let out = pool.pages();
        // Late returns may have come first and taken the number below 0. The last one counted frees the pool,
        // here or there.
        if pool.watch.expect(out) {
            late::free(pool);
        }
    }
}

/// Empties cache, lanes and ring, and adds the pages whose last fragment was there.
fn collect(pool: PoolPtr, owner: OwnerProof, returned: &mut Vec<PageIdx>) {
    returned.extend(std::iter::from_fn(|| pool.own.cache.pop(owner)));
    if let Some(holders) = &pool.holders {
        returned.extend(std::iter::from_fn(|| holders.idle_cache().pop(owner)));
    }
    // Each lane under its cold lock, which late returners take too: a message is counted once.
    let mut messages: Vec<Message> = pool.lanes.all().iter().flat_map(|lane| lane.take_all()).collect();
    // Under the lock no producer is in a push, so this thread may consume from the ring.
    let mut returns = pool.returns.lock();
    messages.extend(std::iter::from_fn(|| pool.ring.pop()));
    let mut count_frags = |page: PageIdx, n: u32| {
        if pool.frag_counted(owner, page, n) {
            pool.has_no_holder(page);
            returned.push(page);
        }
    };
    while let Some((page, frags)) = pool.take_overflow(&mut returns) {
        pool.note_collected(page, frags);
        count_frags(page, frags);
    }
    for message in messages.iter().filter(|message| message.is_frag()) {
        let (page, n) = message.frags(pool.geometry.head_mask);
        pool.note_collected(page, n);
        count_frags(page, n);
    }
    // SAFETY: I2; no callback runs in this function.
    // The open page's bias counts fragments that were never allocated: those have returned.
    if let Some((page, unused)) = unsafe { &mut *pool.own.frag.get() }.close() {
        count_frags(page, unused);
    }
    pool.own.frag_open.store(false, Ordering::Relaxed);
    let pages = messages.into_iter().filter(|&message| !message.is_frag() && pool.ends_life(message));
    returned.extend(pages.map(Message::page));
}

/// The deferred queue of a pool that has ended. A poll takes the queue out, to run users with no lock held. A
/// second thread, or a user that re-enters, finds it taken.
#[derive(Debug)]
struct LateDeferred {
    queue: Lock<Option<Box<DeferredQueue>>>,
    counts: Shared<DeferredCounts>,
}

impl LateDeferred {
    /// Polls all users, unless another poll runs.
    fn poll(&self) {
        // A statement of its own: the users' callbacks must not run under the lock.
        let taken = self.queue.lock().take();
        if let Some(queue) = taken {
            let back = PutBack { to: self, queue: Some(queue) };
            back.queue.iter().for_each(|queue| queue.poll_all());
        }
    }

    /// Buffers still in use, including memory of released ones.
    fn pending(&self) -> u64 {
        self.counts.stats().pending()
    }
}

/// Puts the queue back, also if a user panics. An empty queue is dropped with its users.
struct PutBack<'a> {
    to: &'a LateDeferred,
    queue: Option<Box<DeferredQueue>>,
}

impl Drop for PutBack<'_> {
    fn drop(&mut self) {
        let rest = self.queue.take().filter(|queue| !queue.is_empty());
        *self.to.queue.lock() = rest;
    }
}

/// Watches a destroyed pool until its last buffer returns.
///
/// Its drop does not affect buffers that are out: the last one frees the pool. Only this polls the deferred
/// queue of a destroyed pool: keep it until [`is_complete`](Self::is_complete). An earlier drop polls once
/// more and leaks all that is still in use, because users may read it: the pool never ends.
/// [`DeferredStats::leaked`](crate::DeferredStats::leaked) counts it.
///
/// ```
/// # use pagepool::{Arena, ArenaParams, Pool, PoolParams, UseCounts};
/// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
/// let pool = Pool::new(PoolParams { defer_capacity: 8, ..Default::default() }, arena)?.bind();
/// let counts = UseCounts::new(1);
/// counts.take(0);
/// let user = pool.deferred_user(counts.clone())?;
/// pool.defer(&user, pool.alloc_page().unwrap(), 0).unwrap();
/// let shutdown = pool.destroy();
/// assert_eq!((shutdown.is_complete(), shutdown.report().deferred), (false, 1));
/// counts.put(0);
/// assert!(shutdown.is_complete());
/// # Ok::<(), pagepool::Error>(())
/// ```
#[derive(Debug)]
pub struct Shutdown {
    watch: Arc<EndWatch>,
    area: Arc<Area>,
    id: u32,
    order: u8,
    name: String,
    since: Instant,
    holders: Option<Arc<HolderTable>>,
    deferred: Option<LateDeferred>,
}

impl Shutdown {
    fn new(pool: PoolPtr, deferred: Option<Box<DeferredQueue>>) -> Self {
        let deferred = deferred.filter(|queue| !queue.is_empty()).zip(pool.deferred.clone());
        Self {
            watch: pool.watch.clone(),
            area: pool.area.clone(),
            id: pool.id,
            order: pool.geometry.order(),
            name: pool.name.clone(),
            since: Instant::now(),
            holders: pool.holders.clone(),
            deferred: deferred.map(|(queue, counts)| LateDeferred { queue: Lock::new(Some(queue)), counts }),
        }
    }

    /// Whether all buffers returned, the pool is freed, and the deferred queue is empty. Polls that queue,
    /// and may therefore run users.
    pub fn is_complete(&self) -> bool {
        self.deferred.iter().for_each(LateDeferred::poll);
        self.is_over()
    }

    fn is_over(&self) -> bool {
        self.watch.is_finished() && self.pending() == 0
    }

    fn pending(&self) -> u64 {
        self.deferred.as_ref().map_or(0, LateDeferred::pending)
    }

    /// Waits until the pool is freed, for at most `limit`; returns whether it is. Any thread; sleeps without
    /// spinning. If buffers are deferred, it polls their users every millisecond.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, Pool, PoolParams};
    /// # use std::time::Duration;
    /// let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// let pool = Pool::new(PoolParams::default(), arena)?.bind();
    /// let buffer = pool.alloc_page().unwrap();
    /// let shutdown = pool.destroy();
    /// assert!(!shutdown.wait(Duration::from_millis(1)));
    /// assert!(shutdown.report().to_string().starts_with("stalled pool shutdown: 1 buffer held for "));
    /// drop(buffer);
    /// assert!(shutdown.wait(Duration::from_secs(10)));
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    pub fn wait(&self, limit: Duration) -> bool {
        let until = Instant::now().checked_add(limit); // none: beyond the clock's range
        while !self.is_complete() {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                self.report_stall();
                return false;
            }
            self.sleep(left);
        }
        true
    }

    /// Sleeps until the pool is freed, `left` is over, or the next poll is due.
    fn sleep(&self, left: Option<Duration>) {
        // A late return signals the futex. A user that is done does not, and must be polled.
        if self.pending() == 0 {
            self.watch.sleep(left);
            return;
        }
        sleep(left.unwrap_or(ASK_EVERY).min(ASK_EVERY));
    }

    /// Reports what is still out, after a poll of the deferred queue. Any thread; walks the area's records,
    /// in time proportional to the area's size.
    pub fn report(&self) -> ShutdownReport {
        let is_complete = self.is_complete();
        if !is_complete {
            self.report_stall();
        }
        let holders = self.holders.as_ref().filter(|_| !is_complete);
        let HoldersView { ages, groups, more_groups, .. } =
            holders.map(|holders| holders.view(&[])).unwrap_or_default();
        ShutdownReport {
            pool: self.name.clone(),
            id: self.id,
            held_for: self.since.elapsed(),
            pages: if is_complete { Vec::new() } else { self.pages_out() },
            ages,
            groups,
            more_groups,
            deferred: self.pending(),
        }
    }

    fn report_stall(&self) {
        let held_ms = self.since.elapsed().as_millis() as u64;
        probes::stall(self.id, self.watch.out(), self.pending(), held_ms);
    }

    fn pages_out(&self) -> Vec<HolderView> {
        let ranges = self.area.present_pages();
        let all = ranges.into_iter().flat_map(|r| r.step_by(1 << self.order)).map(PageIdx);
        let is_held = |page: &PageIdx| self.area.meta(*page).pool.load(Ordering::Relaxed) == self.id;
        let now_ms = coarse_ms();
        let mut held: Vec<_> = all.filter(is_held).map(|page| self.held_page(page, now_ms)).collect();
        held.sort_by_key(|(since, _)| (since.is_none(), *since)); // stable: the others by number
        held.into_iter().map(|(_, page)| page).collect()
    }

    fn held_page(&self, page: PageIdx, now_ms: u64) -> (Option<Since>, HolderView) {
        let name = |tag: Tag| tag.name().to_owned(); // whole; a record has only its start
        let last = Tag::of_number(self.area.meta(page).tag.load(Ordering::Relaxed) as u16);
        let record = self.holders.as_ref().and_then(|holders| Some((holders, holders.holder(page, now_ms)?)));
        let Some((holders, (since, tag, view))) = record else {
            return (None, HolderView { page, tag: last.map(name), ..HolderView::default() });
        };
        // The records' table has no row for later tags.
        let tag = tag.or(last.filter(|&tag| !holders.knows(tag))).map(name);
        (Some(since), HolderView { tag, ..view })
    }
}

impl Drop for Shutdown {
    /// Polls once more, then leaks what is in use, with the queue.
    fn drop(&mut self) {
        self.deferred.iter().for_each(LateDeferred::poll);
    }
}

/// The buffers that keep a destroyed pool from being freed. Its text resembles the kernel's.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// The pool's name.
    pub pool: String,
    /// The pool's id.
    pub id: u32,
    /// Time since the pool was destroyed.
    pub held_for: Duration,
    /// The pages that are out; a page with fragments out counts once. The oldest first in a pool with
    /// [`holders`](crate::PoolParams::holders).
    pub pages: Vec<HolderView>,
    /// Number of pages by age in a pool with `holders`, see [`HoldersView::ages`]; else zeroes.
    pub ages: [u64; AGE_EDGES.len() + 1],
    /// The largest groups of equal tag, thread and site, in a pool with `holders`, see
    /// [`HoldersView::groups`].
    pub groups: Vec<HolderGroup>,
    /// Number of groups that are not in `groups`.
    pub more_groups: u64,
    /// Deferred buffers still in use: queued ones, whose pages are among `pages`, and released ones
    /// ([`OnBusy::Release`](crate::OnBusy::Release)), whose pages already left the pool.
    pub deferred: u64,
}

/// Most lines of pages, and of groups, in a report's text.
const MOST_LINES: usize = 16;

impl fmt::Display for ShutdownReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.pages.len();
        if n == 0 && self.deferred == 0 {
            return write!(f, "pool shutdown complete: no buffer held (pool {} id {})", self.pool, self.id);
        }
        let s = if n == 1 { "" } else { "s" };
        let seconds = self.held_for.as_secs();
        write!(
            f,
            "stalled pool shutdown: {n} buffer{s} held for {seconds} s (pool {} id {})",
            self.pool, self.id
        )?;
        ages_text(&self.ages).iter().try_for_each(|ages| write!(f, "\n  {ages}"))?;
        self.groups.iter().take(MOST_LINES).try_for_each(|group| write!(f, "\n  {group}"))?;
        let more_groups = self.groups.len().saturating_sub(MOST_LINES) as u64 + self.more_groups;
        if more_groups > 0 {
            let s = if more_groups == 1 { "" } else { "s" };
            write!(f, "\n  and {more_groups} more group{s}")?;
        }
        self.pages.iter().take(MOST_LINES).try_for_each(|held| write!(f, "\n  {held}"))?;
        if n > MOST_LINES {
            write!(f, "\n  and {} more", n - MOST_LINES)?;
        }
        if self.deferred > 0 {
            write!(f, "\n  deferred buffers still in use: {}", self.deferred)?;
        }
        Ok(())
    }
}
