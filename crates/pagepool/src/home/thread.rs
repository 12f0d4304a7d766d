//! What a thread knows: its token, and its lanes.
//!
//! The token is a number that no other thread ever has; a pool's owner word holds the token of the thread it is bound
//! to. Returns compare that with a word of the thread's that holds its token, or 0 while a `NoDirectRecycle` scope hides it;
//! so the scope costs a return nothing. The table finds the lane for a pool in one compare, and a list keeps every lane
//! of the thread alive until the thread ends; then the next thread may have it, behind whatever messages this one left.
//!
//! Cost   the token and the table are plain thread-local memory: one load each in a program, a call in a shared library.
//!        The first lane of a thread registers its exit hook, which allocates once per thread.

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
const WAYS: usize = 16;

/// Returns that a thread makes through the ring before it asks a pool again for a lane that it could not have.
const RETRY: u32 = 256;

struct Way {
    pool: Cell<u32>,
    /// Null where the pool had no lane to give; then `wait` counts returns until the next try.
    lane: Cell<*const Lane>,
    wait: Cell<u32>,
}

impl Way {
    const fn empty() -> Self {
        Self { pool: Cell::new(0), lane: Cell::new(ptr::null()), wait: Cell::new(0) }
    }
}

#[cfg(not(loom))]
thread_local! {
    static SHOWN: Cell<u64> = const { Cell::new(0) };
    static IDENTITY: Identity = const { Identity { token: Cell::new(0), hidden: Cell::new(0) } };
    static TABLE: [Way; WAYS] = const { [const { Way::empty() }; WAYS] };
    static MINE: Mine = const { Mine(Cell::new(ptr::null())) };
}
#[cfg(loom)]
loom::thread_local! {
    static SHOWN: Cell<u64> = Cell::new(0);
    static IDENTITY: Identity = Identity { token: Cell::new(0), hidden: Cell::new(0) };
    static TABLE: [Way; WAYS] = [const { Way::empty() }; WAYS];
    static MINE: Mine = Mine(Cell::new(ptr::null()));
}

/// Who a thread is, also while it hides that.
struct Identity {
    /// 0 until it is asked for.
    token: Cell<u64>,
    /// Scopes that hide it.
    hidden: Cell<u32>,
}

/// This thread's token as its returns see it: 0 if it was never given one (then it owns no pool), and while it is hidden
/// (then it returns as if it owned none).
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
    IDENTITY.with(|identity| {
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
    IDENTITY.with(|identity| identity.hidden.set(identity.hidden.get() + 1));
    SHOWN.with(|shown| shown.set(0));
}

/// Takes back one [`hide_token`].
pub(crate) fn show_token() {
    IDENTITY.with(|identity| {
        identity.hidden.set(identity.hidden.get() - 1);
        if identity.hidden.get() == 0 {
            SHOWN.with(|shown| shown.set(identity.token.get()));
        }
    });
}

/// The lane through which this thread returns to a pool. `claim` is asked for a free lane when it has none yet.
/// `None` means the ring: the pool has no lane left, or the thread is past its exit hook.
///
/// The lane lives at least until the thread ends, so also for the rest of the caller's return.
#[inline(always)]
pub(crate) fn lane<'a>(pool: u32, claim: impl FnOnce() -> Option<Arc<Lane>>) -> Option<&'a Lane> {
    let way = |table: &[Way; WAYS]| {
        let way = &table[pool as usize % WAYS];
        (way.pool.get() == pool && !way.lane.get().is_null()).then(|| way.lane.get())
    };
    #[cfg(not(loom))]
    let known = TABLE.with(way);
    #[cfg(loom)]
    let known = TABLE.try_with(way).ok().flatten();
    let lane = match known {
        Some(lane) => lane,
        None => find(pool, claim)?,
    };
    // SAFETY: the thread's list holds a count of the lane until the thread's exit hook, which also clears the table.
    Some(unsafe { &*lane })
}

#[cold]
fn find(pool: u32, claim: impl FnOnce() -> Option<Arc<Lane>>) -> Option<*const Lane> {
    let look = |table: &[Way; WAYS], mine: &Mine| {
        let way = &table[pool as usize % WAYS];
        if way.pool.get() == pool && way.wait.get() > 0 {
            way.wait.set(way.wait.get() - 1);
            return None;
        }
        let lane = mine.find(pool).or_else(|| claim().map(|lane| mine.keep(lane, table)));
        way.pool.set(pool);
        way.lane.set(lane.unwrap_or(ptr::null()));
        way.wait.set(if lane.is_none() { RETRY } else { 0 });
        lane
    };
    // Past the exit hook MINE is gone, and the thread returns through the ring.
    TABLE.try_with(|table| MINE.try_with(|mine| look(table, mine)).ok().flatten()).ok().flatten()
}

/// The lanes of a thread: a list through [`Lane::next_of_thread`], each with one count of its `Arc`.
struct Mine(Cell<*const Lane>);

impl Mine {
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
    fn keep(&self, lane: Arc<Lane>, table: &[Way; WAYS]) -> *const Lane {
        let mut at = self.0.replace(ptr::null());
        while !at.is_null() {
            // SAFETY: the count that the list held is taken over here, once.
            let old = unsafe { Arc::from_raw(at) };
            at = old.next_of_thread.load(Relaxed);
            if old.is_detached() && old.is_empty() {
                table
                    .iter()
                    .filter(|way| ptr::eq(way.lane.get(), &*old))
                    .for_each(|way| way.lane.set(ptr::null()));
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

impl Drop for Mine {
    fn drop(&mut self) {
        #[cfg(loom)]
        if std::thread::panicking() {
            return; // the model has failed, and its atomics are gone
        }
        let _ = TABLE.try_with(|table| {
            table.iter().for_each(|way| {
                way.pool.set(0);
                way.lane.set(ptr::null());
            });
        });
        let mut at = self.0.replace(ptr::null());
        while !at.is_null() {
            // SAFETY: the count that the list held is taken over here, once; nothing finds the lane through it any more.
            let lane = unsafe { Arc::from_raw(at) };
            at = lane.next_of_thread.load(Relaxed);
            lane.unclaim();
        }
    }
}

/// Makes this thread ready to return buffers: registers its exit hook now, which otherwise the first return to a pool
/// from a thread that does not own it does. Allocates once per thread.
///
/// ```
/// std::thread::spawn(pagepool::prepare_thread).join().unwrap();
/// ```
pub fn prepare_thread() {
    token_or_new();
    let _ = MINE.try_with(|_| ());
}
