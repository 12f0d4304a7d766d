//! A guard: one thread at a time decides where a page is, and the owner does so by plain operations.
//!
//! What   [`Guard`] is around the words of a pool that say which handle has a page (lives.rs), and around
//!        those that say whether a page is out as a device address (raw_line.rs).
//! Owner  changes the words in a plain section ([`owned`](Guard::owned)). While `limit` is 0, it takes the
//!        lock `claims` for that. So the check and the store that take a page need no atomic operation.
//! Claim  another thread takes the lock, sets `limit` to 0, waits for the owner's section, and changes the
//!        words ([`alone`](Guard::alone)). The owner takes the lock, too, until [`QUIET`] of its sections
//!        found no further claim.
//! Pairs  owner: `busy`, free fence, `limit`. Claimer: `limit`, heavy fence, `busy`. Either the owner sees 0
//!        and takes the lock, or the claimer sees it busy and waits. `busy` 0 is Release, read with Acquire:
//!        the claimer sees all that the section changed. The owner sets `limit` again under the lock.
//! Who    `limit` is changed under the lock; `busy` by the owner. One owner's sections precede the next
//!        one's, because the pool moves between them.
//! Cost   the owner: two stores and a load per section. A claim: the lock, and about 1,600 cycles if the
//!        owner did not take it before.

use std::mem::offset_of;
use std::ops::Deref;

use crate::sys::sync::{
    AtomicU32, AtomicU64, Backoff, Lock, Ordering::*, Padded, fences_are_free, free_fence, heavy_fence,
};

/// The owner needs no lock after this many of its sections in a row without a claim.
const QUIET: u32 = 64;

/// Words that the owner and, seldom, other threads change. Zeroes are a guard whose owner takes the lock.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Guard<T> {
    /// The words, or where they are. Threads only read this.
    pub guarded: T,
    /// What the owner's cache takes with a store each, if the owner needs no lock; else 0.
    pub limit: AtomicU64,
    /// The value of `limit` for this owner.
    room: AtomicU64,
    /// 1 while the owner is in a plain section.
    busy: OwnersLine,
    /// The owner's sections since the last claim.
    claims: Padded<Lock<u32>>,
}

/// A line that the owner writes with each buffer. Beside it is one that others seldom read.
#[derive(Debug)]
#[repr(align(64))]
struct OwnersLine(AtomicU32);

/// A plain section. It ends with this value, even if its work panics.
struct PlainSection<'a>(&'a AtomicU32);

impl Drop for PlainSection<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.store(0, Release); // pairs with alone()
    }
}

impl<T> Deref for Guard<T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        &self.guarded
    }
}

impl<T> Guard<T> {
    /// Where other languages find the word that is 1 while the owner is in a plain section.
    pub const BUSY_AT: usize = offset_of!(Self, busy);

    /// A guard of an owner with this room.
    pub(crate) fn new(guarded: T, room: u64) -> Self {
        let room = allowed(room);
        let (limit, room, claims) = (AtomicU64::new(room), AtomicU64::new(room), Padded(Lock::new(0)));
        Self { guarded, limit, room, busy: OwnersLine(AtomicU32::new(0)), claims }
    }

    /// Runs `work`, which changes the words, for the holder of the owner half. `work` is short and takes no
    /// lock.
    #[inline(always)]
    pub fn owned<R>(&self, work: impl FnOnce() -> R) -> R {
        match self.enter() {
            Some(_section) => work(),
            None => self.owned_with_lock(work),
        }
    }

    /// [`owned`](Self::owned), unless that needs the lock.
    #[inline(always)]
    pub(crate) fn plainly<R>(&self, work: impl FnOnce() -> R) -> Option<R> {
        self.enter().map(|_section| work())
    }

    /// Begins a plain section of the owner, unless it needs the lock.
    #[inline(always)]
    fn enter(&self) -> Option<PlainSection<'_>> {
        self.busy.0.store(1, Relaxed);
        free_fence(); // pairs with alone(); without free fences the limit is always 0
        let section = PlainSection(&self.busy.0);
        (self.limit.load(Relaxed) != 0).then_some(section)
    }

    #[inline(never)]
    fn owned_with_lock<R>(&self, work: impl FnOnce() -> R) -> R {
        let mut quiet = self.claims.lock();
        let done = work();
        *quiet = quiet.saturating_add(1);
        if *quiet >= QUIET {
            self.limit.store(self.room.load(Relaxed), Relaxed);
        }
        done
    }

    /// Runs `work`, which changes the words, on any thread. Slows the owner for a while.
    #[cold]
    pub(crate) fn alone<R>(&self, work: impl FnOnce() -> R) -> R {
        let mut quiet = self.claims.lock();
        *quiet = 0;
        if self.limit.load(Relaxed) != 0 {
            self.limit.store(0, Relaxed);
            heavy_fence(); // pairs with the free fence in enter()
            let mut backoff = Backoff::default();
            while self.busy.0.load(Acquire) != 0 {
                backoff.pause();
            }
        }
        work()
    }

    /// The pool has an owner, whose cache takes up to `room` pages with a store each.
    pub fn bind(&self, room: u64) {
        let mut quiet = self.claims.lock();
        *quiet = 0;
        self.room.store(allowed(room), Relaxed);
        self.limit.store(allowed(room), Relaxed);
    }

    /// The owner gives the pool up.
    pub fn unbind(&self) {
        let _quiet = self.claims.lock();
        self.room.store(0, Relaxed);
        self.limit.store(0, Relaxed);
    }
}

/// Without free fences every owner takes the lock.
fn allowed(room: u64) -> u64 {
    if cfg!(loom) || fences_are_free() { room } else { 0 }
}
