//! The deferred queue: buffers whose users do not signal that they are done, but only answer "still in use?".
//!
//! What   "Keep track of pages" of "Evolving the page_pool API" (J. D. Brouer, 2018): the application gives
//!        up a buffer that another party still reads (a kernel that sends from it, a reference count
//!        elsewhere), and gets no call at the end. The buffers wait here, first in, first out; the pool polls
//!        their users when it needs pages.
//! Who    only the holder of the owner half (I2); the queue moves with the pool. After the pool's end, the
//!        thread that took it out of its [`Shutdown`](crate::Shutdown). Any thread may read the counts.
//! When   a refill polls as many buffers as it would take pages, before it reads lanes and ring;
//!        [`Bound::poll_deferred`](crate::Bound::poll_deferred) polls all. No thread polls in the background.
//!        A user that is done does not wake a sleeping owner: the owner must sleep on the user's descriptor
//!        (a socket with completions reports `POLLERR`), or with a timeout.
//! Cost   queueing: a compare and 32 bytes written; no atomic operation, no allocation. A round: one atomic
//!        read-modify-write and its reversal, one call per registered user, one per polled buffer.
//!
//! Callbacks: an [`InUse`] may do all that its thread may: allocate from this pool, drop buffers, queue
//! others, poll. Therefore no borrow of queue or cache is live while it runs. During a round only the round
//! removes entries, and others are added only at the back: positions stay valid. An entry stays queued while
//! its user is polled: a panic loses nothing. A poll inside a poll does nothing. Buffers queued during a
//! round are polled in the next.
//!
//! Failure: an entry that is dropped before its user said "done" never returns to its pool. Memory may leak,
//! but is never reused too early.
//!
//! The end of the pool: a deferred buffer is out, so the pool does not end before it has returned (I9). The
//! queue passes to the [`Shutdown`](crate::Shutdown), whose methods
//! ([`is_complete`](crate::Shutdown::is_complete), [`wait`](crate::Shutdown::wait),
//! [`report`](crate::Shutdown::report)) poll all of it. One thread at a time has the queue; a second
//! continues without it. A buffer that is done returns like a late buffer. The `Shutdown`'s drop polls once
//! more, then deliberately leaks all that is still in use, counted in
//! [`DeferredStats::leaked`](crate::DeferredStats::leaked). A dropped pool drops its `Shutdown` at once.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use crate::buf::page_buf::PageBuf;
use crate::buf::page_ref::PageRef;
use crate::pool::params::OnBusy;
use crate::stats::DeferredCounts;
use crate::sys::placed::Shared;

/// A user of buffers that it does not own. It answers whether a buffer is still in use.
///
/// The cookie with which a buffer was queued names it: the number of a send, the index of a count. The answer
/// of `in_use` decides when memory is reused. Code that reads the bytes after the buffer was given up (unsafe
/// code, a kernel, a device) is safe only if the answer is right.
///
/// ```
/// use pagepool::{Arena, ArenaParams, InUse, Pool, PoolParams};
/// use std::sync::{Arc, atomic::{AtomicU64, Ordering}};
///
/// /// A device that says up to which packet it has come.
/// struct SentUpTo(AtomicU64);
///
/// impl InUse for SentUpTo {
///     fn in_use(&self, cookie: u64) -> bool {
///         self.0.load(Ordering::Acquire) <= cookie
///     }
/// }
///
/// let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
/// let pool = Pool::new(PoolParams { defer_capacity: 64, ..Default::default() }, arena)?.bind();
/// let device = Arc::new(SentUpTo(AtomicU64::new(0)));
/// let user = pool.deferred_user(device.clone())?;
/// for packet in 0..3 {
///     pool.defer(&user, pool.alloc_page().unwrap(), packet).expect("there is room for 64");
/// }
/// assert_eq!((pool.poll_deferred(), pool.inflight().deferred), (0, 3));
/// device.0.store(2, Ordering::Release);
/// assert_eq!((pool.poll_deferred(), pool.inflight().deferred), (2, 1));
/// # device.0.store(3, Ordering::Release);
/// # Ok::<(), pagepool::Error>(())
/// ```
pub trait InUse: Send + Sync {
    /// Called once before each round of polling, for a user that must first read a socket's error queue or a
    /// device's ring. Runs inside an allocation, so its time should be bounded.
    fn refresh(&self) {}

    /// Whether the buffer queued with this cookie is still in use. After `false` the buffer returns to its
    /// pool and is not polled again: all the user's accesses to its bytes must be finished, and ordered
    /// before the answer.
    fn in_use(&self, cookie: u64) -> bool;
}

/// A user registered with a pool, for [`Bound::defer`](crate::Bound::defer).
/// [`Bound::deferred_user`](crate::Bound::deferred_user) creates it.
///
/// After its drop, the pool drops the user at the first poll that finds no buffer of it.
#[derive(Debug)]
#[must_use = "a user without its registration can have no buffers"]
pub struct DeferredUser {
    pub(crate) pool: u32,
    at: usize,
    /// The queue has the other count, and detects that this one is gone.
    _alive: Arc<()>,
}

/// The users by number; `None` if dropped.
type Users = Vec<Option<Arc<dyn InUse>>>;

/// A buffer in the queue, or the memory of one that left the queue while in use.
#[derive(Debug)]
struct Deferred<T> {
    memory: T,
    user: usize,
    cookie: u64,
}

impl<T> Deferred<T> {
    fn used_by(&self) -> (usize, u64) {
        (self.user, self.cookie)
    }
}

type Queued = Deferred<PageBuf>;

const _: () = assert!(size_of::<Queued>() == 32, "the module's head and defer_capacity say so");
const _: () = assert!(size_of::<Deferred<PageRef>>() == 40, "defer_capacity says so");

/// A registered user's state.
#[derive(Debug)]
struct UserSlot {
    alive: Arc<()>,
    /// Its queued and released buffers.
    pending: usize,
}

impl UserSlot {
    /// No buffer can be queued for it any more, and none is left.
    fn is_over(&self) -> bool {
        self.pending == 0 && Arc::strong_count(&self.alive) == 1
    }
}

struct DeferredState {
    queued: VecDeque<Queued>,
    released: VecDeque<Deferred<PageRef>>,
    /// A round clones the `Arc`, to run users without a borrow.
    users: Arc<Users>,
    slots: Vec<UserSlot>,
    polling: bool,
}

/// The queue of a pool.
pub(crate) struct DeferredQueue {
    counts: Shared<DeferredCounts>,
    on_busy: OnBusy,
    capacity: usize,
    state: RefCell<DeferredState>,
}

impl fmt::Debug for DeferredQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeferredQueue").field("capacity", &self.capacity).finish_non_exhaustive()
    }
}

impl DeferredQueue {
    /// An empty queue, fully allocated; `None` without counters.
    pub(crate) fn new(
        capacity: usize,
        on_busy: OnBusy,
        counts: Option<Shared<DeferredCounts>>,
    ) -> Option<Box<Self>> {
        let released = if on_busy == OnBusy::Release { capacity } else { 0 };
        let state = DeferredState {
            queued: VecDeque::with_capacity(capacity),
            released: VecDeque::with_capacity(released),
            users: Arc::default(),
            slots: Vec::new(),
            polling: false,
        };
        Some(Box::new(Self { counts: counts?, on_busy, capacity, state: RefCell::new(state) }))
    }

    /// Registers a user.
    pub(crate) fn register(&self, pool: u32, user: Arc<dyn InUse>) -> DeferredUser {
        let alive = Arc::new(());
        let mut state = self.state.borrow_mut();
        let slot = UserSlot { alive: alive.clone(), pending: 0 };
        let at = state.users.iter().position(Option::is_none).unwrap_or(state.slots.len());
        let users = Arc::make_mut(&mut state.users);
        if at == users.len() {
            users.push(Some(user));
            state.slots.push(slot);
        } else {
            users[at] = Some(user);
            state.slots[at] = slot;
        }
        DeferredUser { pool, at, _alive: alive }
    }

    /// Queues a buffer; `Err(buffer)` if the queue is full.
    #[inline]
    pub(crate) fn push(&self, user: &DeferredUser, buffer: PageBuf, cookie: u64) -> Result<(), PageBuf> {
        let mut state = self.state.borrow_mut();
        if state.queued.len() == self.capacity {
            self.counts.counters.full.add(1);
            return Err(buffer);
        }
        self.counts.counters.queued.add(1);
        self.counts.pages.add(u64::from(!buffer.is_frag()));
        state.slots[user.at].pending += 1;
        state.queued.push_back(Deferred { memory: buffer, user: user.at, cookie });
        Ok(())
    }

    /// Whether no buffer is queued or released.
    pub(crate) fn is_empty(&self) -> bool {
        let state = self.state.borrow();
        state.queued.is_empty() && state.released.is_empty()
    }

    /// One round: polls up to `most` queued buffers, and as many released ones. Returns how many returned to
    /// the pool.
    pub(crate) fn poll(&self, most: usize) -> usize {
        let Some(round) = PollRound::begin(self) else { return 0 };
        let returned = round.poll_in_order(most);
        round.poll_released(most);
        returned
    }

    /// One round over all buffers, in no order, for a pool that has ended.
    pub(crate) fn poll_all(&self) {
        let Some(round) = PollRound::begin(self) else { return };
        round.poll_each();
        round.poll_released(usize::MAX);
    }

    /// Drops users without buffers for which no buffer can be queued.
    fn retire(&self) {
        while let Some(user) = self.take_retired() {
            drop(user); // a callback, with no borrow live
        }
    }

    fn take_retired(&self) -> Option<Arc<dyn InUse>> {
        let state = &mut *self.state.borrow_mut();
        let over = |(slot, user): (&UserSlot, &Option<_>)| user.is_some() && slot.is_over();
        let at = state.slots.iter().zip(state.users.iter()).position(over)?;
        Arc::make_mut(&mut state.users)[at].take()
    }
}

impl Drop for DeferredQueue {
    /// No thread polls any more: leaks the rest, because its users may not be done.
    fn drop(&mut self) {
        let state = self.state.get_mut();
        self.counts.counters.leaked.add((state.queued.len() + state.released.len()) as u64);
        state.queued.drain(..).for_each(std::mem::forget);
        state.released.drain(..).for_each(std::mem::forget);
    }
}

/// A round of polling. While it lives, only it takes buffers out.
struct PollRound<'a> {
    /// Dropped before `end`, which drops retired users: this must not keep them.
    users: Arc<Users>,
    /// Buffers queued when it began; later ones wait for the next round.
    queued: usize,
    end: PollEnd<'a>,
}

/// Ends the round when dropped, also if a user panics.
struct PollEnd<'a>(&'a DeferredQueue);

impl Drop for PollEnd<'_> {
    fn drop(&mut self) {
        self.0.state.borrow_mut().polling = false;
        self.0.retire();
    }
}

impl<'a> PollRound<'a> {
    /// `None` if an outer call on this stack runs a round, or if there is nothing to poll.
    fn begin(queue: &'a DeferredQueue) -> Option<Self> {
        if queue.state.borrow().polling {
            return None;
        }
        if queue.is_empty() {
            queue.retire();
            return None;
        }
        let (users, queued) = {
            let mut state = queue.state.borrow_mut();
            state.polling = true;
            (state.users.clone(), state.queued.len())
        };
        let round = Self { users, queued, end: PollEnd(queue) };
        round.counts().counters.polls.add(1);
        round.refresh();
        Some(round)
    }

    fn state(&self) -> &RefCell<DeferredState> {
        &self.end.0.state
    }

    fn counts(&self) -> &DeferredCounts {
        &self.end.0.counts
    }

    fn refresh(&self) {
        for (at, user) in self.users.iter().enumerate() {
            let pending = self.state().borrow().slots[at].pending > 0;
            if let Some(user) = user.as_ref().filter(|_| pending) {
                user.refresh();
            }
        }
    }

    fn in_use(&self, user: usize, cookie: u64) -> bool {
        // All that this round polls was queued before it began, and keeps its user.
        self.users[user].as_ref().is_none_or(|user| user.in_use(cookie))
    }

    /// Polls from the head on, by the rule of [`OnBusy`].
    fn poll_in_order(&self, most: usize) -> usize {
        let counters = &self.counts().counters;
        let (mut returned, mut past, mut released) = (0, 0, false);
        for _ in 0..most.min(self.queued) {
            let (user, cookie) = self.entry(past);
            if !self.in_use(user, cookie) {
                self.return_queued(|queued| queued.remove(past));
                returned += 1;
                continue;
            }
            match self.end.0.on_busy {
                OnBusy::Skip { ahead } if past < ahead => {
                    counters.skipped.add(1);
                    past += 1;
                }
                OnBusy::Release if !released && self.release_head() => released = true,
                _ => {
                    counters.kept.add(1);
                    break;
                }
            }
        }
        returned
    }

    /// Polls each buffer once. The last buffer moves into the place of a returned one.
    fn poll_each(&self) {
        let mut past = 0;
        for _ in 0..self.queued {
            let (user, cookie) = self.entry(past);
            if self.in_use(user, cookie) {
                self.counts().counters.skipped.add(1);
                past += 1;
            } else {
                self.return_queued(|queued| queued.swap_remove_back(past));
            }
        }
    }

    /// Polls released memory, each once, from where the last round stopped.
    fn poll_released(&self, most: usize) {
        let released = self.state().borrow().released.len();
        for _ in 0..most.min(released) {
            let (user, cookie) = self.state().borrow().released[0].used_by();
            if self.in_use(user, cookie) {
                self.state().borrow_mut().released.rotate_left(1);
            } else {
                self.free_released();
            }
        }
    }

    fn entry(&self, at: usize) -> (usize, u64) {
        self.state().borrow().queued[at].used_by()
    }

    /// Takes a buffer out and drops it, which may run callbacks.
    fn return_queued(&self, take: impl FnOnce(&mut VecDeque<Queued>) -> Option<Queued>) {
        let mut state = self.state().borrow_mut();
        let Some(Deferred { memory: buffer, user, .. }) = take(&mut state.queued) else { return };
        state.slots[user].pending -= 1;
        drop(state);
        self.counts().counters.reused.add(1);
        self.counts().pages.take(u64::from(!buffer.is_frag()));
        drop(buffer);
    }

    /// Releases the head, unless `capacity` buffers are released. A reference keeps its memory before the
    /// buffer returns to its pool.
    fn release_head(&self) -> bool {
        let mut state = self.state().borrow_mut();
        if state.released.len() == self.end.0.capacity {
            return false;
        }
        let Some(Deferred { memory: mut buffer, user, cookie }) = state.queued.pop_front() else {
            return false;
        };
        state.released.push_back(Deferred { memory: buffer.page_ref(), user, cookie });
        drop(state);
        self.counts().counters.released.add(1);
        self.counts().pages.take(u64::from(!buffer.is_frag()));
        drop(buffer);
        true
    }

    /// Frees the first released page, whose user is done.
    fn free_released(&self) {
        let mut state = self.state().borrow_mut();
        let Some(Deferred { memory: page_ref, user, .. }) = state.released.pop_front() else { return };
        state.slots[user].pending -= 1;
        drop(state);
        drop(page_ref);
        self.counts().counters.freed_late.add(1);
    }
}
