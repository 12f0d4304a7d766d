//! The state of a thread: its token, and its lanes.
//!
//! The token is a number that no other thread ever has; a pool's owner word holds the token of the thread it
//! is bound to. Returns compare that with a word of the thread's that holds its token, or 0 while a
//! `NoDirectRecycle` scope hides it; so the scope costs a return nothing. The table finds the lane for a pool
//! in one compare, and a list keeps every lane of the thread alive until the thread ends; then the next
//! thread may have it, behind whatever messages this one left.
//!
//! Cost   the token and the table are plain thread-local memory: one load each in an executable, a call in a
//!        shared library. The first lane of a thread registers its exit hook, which allocates once per
//!        thread.

// UNSAFETY: lanes are kept alive by `Arc` counts that stand in raw pointers.
#![expect(unsafe_code)]

use std::cell::Cell;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::home::lane::Lane;

/// The owner word of a pool that is bound to no thread; no thread has this token.
pub(crate) const NOBODY: u64 = 1;

/// Pools for which a thread finds its lane in one compare; beyond, it walks its list.
const KNOWN_LANES: usize = 16;

/// Returns that a thread makes through the ring before it asks a pool again for a lane that it could not
/// have.
const RETRY: u32 = 256;

struct KnownLane {
    pool: Cell<u32>,
    /// Null where the pool had no lane to give; then `wait` counts returns until the next try.
    lane: Cell<*const Lane>,
    wait: Cell<u32>,
}

impl KnownLane {
    const fn empty() -> Self {
        Self { pool: Cell::new(0), lane: Cell::new(ptr::null()), wait: Cell::new(0) }
    }
}

#[cfg(not(loom))]
thread_local! {
    static SHOWN: Cell<u64> = const { Cell::new(0) };
    static TOKEN: ThreadToken = const { ThreadToken { token: Cell::new(0), hidden: Cell::new(0) } };
    static KNOWN: [KnownLane; KNOWN_LANES] = const { [const { KnownLane::empty() }; KNOWN_LANES] };
    static LANES: ThreadLanes = const { ThreadLanes(Cell::new(ptr::null())) };
}
#[cfg(loom)]
loom::thread_local! {
    static SHOWN: Cell<u64> = Cell::new(0);
    static TOKEN: ThreadToken = ThreadToken { token: Cell::new(0), hidden: Cell::new(0) };
    static KNOWN: [KnownLane; KNOWN_LANES] = [const { KnownLane::empty() }; KNOWN_LANES];
    static LANES: ThreadLanes = ThreadLanes(Cell::new(ptr::null()));
}

/// Who a thread is, also while it hides that.
struct ThreadToken {
    /// 0 until its first use.
    token: Cell<u64>,
    /// Scopes that hide it.
    hidden: Cell<u32>,
}

/// This thread's token as its returns see it: 0 if it was never given one (then it owns no pool), and while
/// it is hidden (then it returns as if it owned none).
#[inline(always)]
pub(crate) fn token() -> u64 {
    #[cfg(not(loom))]
    {
        SHOWN.get()
    }
    #[cfg(loom)]
    SHOWN.try_with(Cell::get).unwrap_or(0)
}

/// This thread's token, given now if it had none, hidden or not. Never reused: 2^64 threads do not happen.
pub(crate) fn token_or_new() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(NOBODY + 1);
    TOKEN.with(|identity| {
        if identity.token.get() == 0 {
            identity.token.set(NEXT.fetch_add(1, Relaxed));
        }
        if identity.hidden.get() == 0 {
            SHOWN.with(|shown| shown.set(identity.token.get()));
        }
        identity.token.get()
    })
}

/// Hides this thread's token from its returns, until [`show_token`] was called as often.
pub(crate) fn hide_token() {
    TOKEN.with(|identity| identity.hidden.set(identity.hidden.get() + 1));
    SHOWN.with(|shown| shown.set(0));
}

/// Takes back one [`hide_token`].
pub(crate) fn show_token() {
    TOKEN.with(|identity| {
        identity.hidden.set(identity.hidden.get() - 1);
        if identity.hidden.get() == 0 {
            SHOWN.with(|shown| shown.set(identity.token.get()));
        }
    });
}

/// The lane through which this thread returns to a pool. `claim` finds a free lane when it has none yet.
/// `None` means the ring: the pool has no lane left, or the thread is past its exit hook.
///
/// The lane lives at least until the thread ends, so also for the rest of the caller's return.
#[inline(always)]
pub(crate) fn lane<'a>(pool: u32, claim: impl FnOnce() -> Option<Arc<Lane>>) -> Option<&'a Lane> {
    let known_lane = |table: &[KnownLane; KNOWN_LANES]| {
        let known_lane = &table[pool as usize % KNOWN_LANES];
        (known_lane.pool.get() == pool && !known_lane.lane.get().is_null()).then(|| known_lane.lane.get())
    };
    #[cfg(not(loom))]
    let known = KNOWN.with(known_lane);
    #[cfg(loom)]
    let known = KNOWN.try_with(known_lane).ok().flatten();
    let lane = match known {
        Some(lane) => lane,
        None => find(pool, claim)?,
    };
    // SAFETY: the thread's list holds a count of the lane until the thread's exit hook, which also clears the
    // table.
    Some(unsafe { &*lane })
}

#[cold]
fn find(pool: u32, claim: impl FnOnce() -> Option<Arc<Lane>>) -> Option<*const Lane> {
    let look = |table: &[KnownLane; KNOWN_LANES], mine: &ThreadLanes| {
        let known_lane = &table[pool as usize % KNOWN_LANES];
        if known_lane.pool.get() == pool && known_lane.wait.get() > 0 {
            known_lane.wait.set(known_lane.wait.get() - 1);
            return None;
        }
        let lane = mine.find(pool).or_else(|| claim().map(|lane| mine.keep(lane, table)));
        known_lane.pool.set(pool);
        known_lane.lane.set(lane.unwrap_or(ptr::null()));
        known_lane.wait.set(if lane.is_none() { RETRY } else { 0 });
        lane
    };
    // Past the exit hook LANES is gone, and the thread returns through the ring.
    KNOWN.try_with(|table| LANES.try_with(|mine| look(table, mine)).ok().flatten()).ok().flatten()
}

/// The lanes of a thread: a list through [`Lane::next_of_thread`], each with one count of its `Arc`.
struct ThreadLanes(Cell<*const Lane>);

impl ThreadLanes {
    fn find(&self, pool: u32) -> Option<*const Lane> {
        let mut at = self.0.get();
        while !at.is_null() {
            // SAFETY: the list holds a count of every lane in it.
            let lane = unsafe { &*at };
            if lane.pool == pool {
                return Some(at);
            }
            at = lane.next_of_thread.load(Relaxed);
        }
        None
    }

    /// Adds a lane, and lets go of those whose pools have ended.
    fn keep(&self, lane: Arc<Lane>, table: &[KnownLane; KNOWN_LANES]) -> *const Lane {
        let mut at = self.0.replace(ptr::null());
        while !at.is_null() {
            // SAFETY: the count that the list held is taken over here, once.
            let old = unsafe { Arc::from_raw(at) };
            at = old.next_of_thread.load(Relaxed);
            if old.is_detached() && old.is_empty() {
                table
                    .iter()
                    .filter(|known_lane| ptr::eq(known_lane.lane.get(), &*old))
                    .for_each(|known_lane| known_lane.lane.set(ptr::null()));
            } else {
                self.link(old);
            }
        }
        self.link(lane)
    }

    fn link(&self, lane: Arc<Lane>) -> *const Lane {
        lane.next_of_thread.store(self.0.get().cast_mut(), Relaxed);
        let lane = Arc::into_raw(lane);
        self.0.set(lane);
        lane
    }
}

impl Drop for ThreadLanes {
    fn drop(&mut self) {
        #[cfg(loom)]
        if std::thread::panicking() {
            return; // the model has failed, and its atomics are gone
        }
        let _ = KNOWN.try_with(|table| {
            table.iter().for_each(|known_lane| {
                known_lane.pool.set(0);
                known_lane.lane.set(ptr::null());
            });
        });
        let mut at = self.0.replace(ptr::null());
        while !at.is_null() {
            // SAFETY: the count that the list held is taken over here, once; nothing finds the lane through
            // it any more.
            let lane = unsafe { Arc::from_raw(at) };
            at = lane.next_of_thread.load(Relaxed);
            lane.unclaim();
        }
    }
}

/// Prepares this thread for returning buffers: registers its exit hook. Without this call, the first return
/// to a pool of another thread does so. Allocates once per thread.
///
/// ```
/// std::thread::spawn(pagepool::prepare_thread).join().unwrap();
/// ```
pub fn prepare_thread() {
    token_or_new();
    let _ = LANES.try_with(|_| ());
}
