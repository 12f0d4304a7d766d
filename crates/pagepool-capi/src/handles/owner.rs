//! The owner's calls: the check that the caller is the owner, and the tokens of what it allocates.
//!
//! Who    [`enter`] checks that the caller is the owner; then no other thread can bind, unbind or destroy the
//!        pool, so its parts exist during the call. The owner itself could, from a callback: `calls` refuses
//!        that.
//! Free   entries for fragments are in three lists. The owner's own, of at most [`OWNED`] entries, takes no
//!        atomic operation. The shared one is under the slot's lock. `returned_frags` has the entries that became
//!        free on other threads, or on the owner's while its own list is full: any thread pushes. A thread
//!        that finds the shared list empty, under the lock, moves all of `returned_frags` there; the owner takes
//!        [`REFILL`] of the shared list when its own is empty.
//! Bound  fresh entries are taken only while the shared list and `returned_frags` are empty: then all others are
//!        out, or on the owner's list. So a pool has at most as many as were out at one time, plus [`OWNED`]
//!        and a row. If either side took whole lists for itself, the other would take fresh ones forever.

// UNSAFETY: the owner's part is reached by address, after the check.
#![expect(unsafe_code)]

use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use ::pagepool::{Bound, CachedAddrs, DeviceAddr, MayHaveRefs, PageBuf};

use crate::caller::Caller;
use crate::error::{CallError, CallResult};
use crate::handles::directory;
use crate::handles::owner_half::OwnerHalf;
use crate::handles::slots;
use crate::handles::slots::turn;
use crate::handles::token::{HandleKind, Token, first_generation};
use crate::handles::view::PoolView;

/// Limit of the owner's list of free entries: as many as a row has.
const OWNED: u32 = 4096;
/// Entries that the owner takes together under the lock.
const REFILL: u32 = 64;

pub(crate) struct OwnerCall<'a> {
    pub(crate) view: &'static PoolView,
    pub(crate) bound: &'a Bound,
    own: &'a OwnerHalf,
}

struct CallCount<'a>(&'a Cell<u32>);

impl Drop for CallCount<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Runs a call of the owner. Refuses a token that is no pool's, and a thread that is not the owner.
pub(crate) fn enter<R>(pool: Token, call: impl FnOnce(&OwnerCall<'_>) -> CallResult<R>) -> CallResult<R> {
    let view = slots::view(pool)?;
    if !view.is_mine() {
        return Err(refusal(view));
    }
    // SAFETY: this thread owns the pool, so its part exists, and only this thread may take it away.
    let own = unsafe { &*view.own.load(Acquire) };
    own.calls.set(own.calls.get() + 1);
    let _call = CallCount(&own.calls);
    // SAFETY: this thread owns the pool; while `calls` is not 0 `bound` is not taken away.
    let bound = unsafe { &*own.bound.get() }.as_ref().ok_or(CallError::NOT_OWNER)?;
    call(&OwnerCall { view, bound, own })
}

#[cold]
fn refusal(view: &PoolView) -> CallError {
    if view.no_owner.load(Relaxed) != 0 { turn::NO_OWNER } else { CallError::NOT_OWNER }
}

/// Takes addresses from the owner's cache or puts them there, if the caller is the owner.
#[inline(always)]
pub(crate) fn mine<R>(pool: Token, call: impl FnOnce(CachedAddrs<'_>) -> R) -> Option<R> {
    let view = slots::view_of(pool);
    if !view.is_mine() || view.token.load(Relaxed) != pool.0 {
        return None;
    }
    // SAFETY: the pool exists, so its address is not NULL.
    let core = unsafe { NonNull::new_unchecked(view.core.load(Relaxed)) };
    // SAFETY: this thread owns the pool, and no other thread destroys or unbinds it.
    Some(call(unsafe { CachedAddrs::of(core) }))
}

/// Takes addresses from the owner's cache or puts them there: if the caller is the owner, or in a pool
/// without an owner under its lock.
#[inline(always)]
pub(crate) fn quickly<R>(pool: Token, call: impl FnOnce(CachedAddrs<'_>) -> R) -> Option<R> {
    let view = slots::view_of(pool);
    let _held = match view.is_mine() {
        true if view.token.load(Relaxed) != pool.0 => return None,
        true => None,
        false => Some(turn::lock(view, pool)?),
    };
    let core = view.core.load(Relaxed);
    // SAFETY: the pool exists, so its address is not NULL.
    let core = unsafe { NonNull::new_unchecked(core) };
    // SAFETY: this thread owns the pool or has the turn, in which no other thread destroys or unbinds it.
    Some(call(unsafe { CachedAddrs::of(core) }))
}

impl OwnerCall<'_> {
    /// Allocates on behalf of the caller of the library.
    #[inline(always)]
    pub(crate) fn alloc_for<R>(&self, caller: Caller, alloc: impl FnOnce(&Bound) -> R) -> R {
        self.bound.called_from(caller.0, alloc)
    }

    pub(crate) fn at_address(&self, addr: u64) -> CallResult<PageBuf> {
        Ok(self.own.handle.from_raw(DeviceAddr(addr))?)
    }

    pub(crate) fn put_addrs(&self, addrs: &[DeviceAddr]) -> CallResult<()> {
        Ok(self.own.handle.put_addr_bulk(addrs)?)
    }

    pub(crate) fn check_buffer(&self, buf: Token) -> CallResult<()> {
        const ANOTHERS: CallError = CallError::fixed(libc::EINVAL, c"the buffer belongs to another pool");
        if std::ptr::eq(directory::find(buf)?.view(), self.view) { Ok(()) } else { Err(ANOTHERS) }
    }

    /// Gives a buffer of this pool a token. Without memory for the token, the buffer returns to the pool.
    pub(crate) fn token_for(&self, buffer: PageBuf) -> CallResult<Token> {
        if !buffer.is_frag() {
            return Ok(page_token(self.view, buffer));
        }
        Ok(begin_frag(take_own(self.view, self.own)?, buffer))
    }
}

/// Begins the life of a whole page's token.
pub(crate) fn page_token(view: &PoolView, buffer: PageBuf) -> Token {
    let page = buffer.page().0;
    let (_, bits) = buffer.into_token();
    let refs = MayHaveRefs(bits >> 32 != 0);
    let first = || u64::from(first_generation()) << 32 | u64::from(view.place_of(page));
    Token(view.guard.page(page).begin(refs, first))
}

/// A free entry for a fragment of a pool of which the caller has a buffer, on any thread. Dropping it frees
/// the entry again.
pub(crate) struct FreeFragEntry {
    view: &'static PoolView,
    place: u32,
}

impl FreeFragEntry {
    pub(crate) fn take(view: &'static PoolView) -> CallResult<Self> {
        let place = if view.is_mine() {
            // SAFETY: this thread owns the pool, so its part exists.
            take_own(view, unsafe { &*view.own.load(Relaxed) })?
        } else {
            slots::with_life_behind(view, |life| life.take_frag(view))?
        };
        Ok(Self { view, place })
    }

    /// Gives the entry to this fragment; returns its token.
    pub(crate) fn fill(self, frag: PageBuf) -> Token {
        let place = self.place;
        std::mem::forget(self);
        begin_frag(place, frag)
    }
}

impl Drop for FreeFragEntry {
    fn drop(&mut self) {
        frag_over(self.view, self.place);
    }
}

/// Takes a free entry, on the owner's thread.
pub(crate) fn take_own(view: &'static PoolView, own: &OwnerHalf) -> CallResult<u32> {
    if own.frags.get() == 0 {
        refill(view, own)?;
    }
    let place = own.frags.get() as u32 - 1;
    own.frags.set(directory::next_free(place));
    own.free_frags.set(own.free_frags.get() - 1);
    Ok(place)
}

/// Moves the first entries of the shared list to the owner's list, which is empty.
#[cold]
fn refill(view: &'static PoolView, own: &OwnerHalf) -> CallResult<()> {
    slots::with_life_behind(view, |life| {
        let first = life.shared_frags(view)?;
        let (mut last, mut count) = (first as u32 - 1, 1);
        while count < REFILL && directory::next_free(last) != 0 {
            last = directory::next_free(last) as u32 - 1;
            count += 1;
        }
        life.frags = directory::next_free(last);
        directory::entry(last).page.store(0, Relaxed);
        own.frags.set(first);
        own.free_frags.set(count);
        Ok(())
    })
}

/// Begins the life of a fragment's token, in a free entry that was removed from its list.
pub(crate) fn begin_frag(at: u32, frag: PageBuf) -> Token {
    let entry = directory::entry(at);
    let (_, place) = frag.into_token();
    entry.page.store(place as u32 as u64, Relaxed);
    entry.word.begin(Token::new(HandleKind::Frag, at, 0).0 as u32, (place >> 32) as u32)
}

/// Ends a fragment's token and frees its entry, on any thread. The caller still has the fragment, so the pool
/// exists.
pub(crate) fn frag_over(view: &PoolView, place: u32) {
    let entry = directory::entry(place);
    let this = u64::from(place) + 1;
    if view.is_mine() {
        // SAFETY: this thread owns the pool, so its part exists.
        let own = unsafe { &*view.own.load(Relaxed) };
        let free = own.free_frags.get();
        if free < OWNED {
            own.free_frags.set(free + 1);
            entry.page.store(own.frags.replace(this), Relaxed);
            return;
        }
    }
    let list = &view.away.returned_frags;
    let mut head = list.load(Relaxed);
    loop {
        entry.page.store(head, Relaxed);
        // The list is taken as a whole or not at all, so an entry that is pushed again in between does no
        // harm.
        match list.compare_exchange_weak(head, this, AcqRel, Relaxed) {
            Ok(_) => return,
            Err(now) => head = now,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use ::pagepool::{Arena, ArenaParams, Pool, PoolParams};

    use super::*;
    use crate::handles::binding;
    use crate::handles::claim::claim;

    const BATCH: usize = 64;

    /// Work for another thread on tokens; it returns tokens.
    type Task = (fn(Vec<Token>) -> Vec<Token>, Vec<Token>);

    /// A pool that this thread owns, and another thread.
    struct TwoThreads {
        pool: Token,
        tasks: Sender<Task>,
        done: Receiver<Vec<Token>>,
    }

    impl TwoThreads {
        fn new() -> Self {
            let arena = Arena::new(ArenaParams { max_bytes: 4 << 20, ..Default::default() }).unwrap();
            let make = |lives| Ok(Pool::with_lives(PoolParams::default(), arena, lives).unwrap());
            let pool = slots::insert(1024, 0, make).unwrap();
            binding::bind(pool).unwrap();
            let ((tasks, todo), (results, done)) = (channel::<Task>(), channel());
            std::thread::spawn(move || {
                while let Ok((task, tokens)) = todo.recv() {
                    results.send(task(tokens)).unwrap();
                }
            });
            Self { pool, tasks, done }
        }

        fn elsewhere(&self, task: fn(Vec<Token>) -> Vec<Token>, tokens: Vec<Token>) -> Vec<Token> {
            self.tasks.send((task, tokens)).unwrap();
            self.done.recv().unwrap()
        }

        fn pages(&self) -> Vec<Token> {
            let page =
                || enter(self.pool, |owned| owned.token_for(owned.bound.alloc_page().unwrap())).unwrap();
            (0..BATCH).map(|_| page()).collect()
        }

        /// Splits a batch of pages into fragments on one thread, and returns these on one.
        fn round(&self, split_here: bool, put_here: bool) {
            let pages = self.pages();
            let parts = if split_here { split(pages) } else { self.elsewhere(split, pages) };
            if put_here {
                put(parts)
            } else {
                self.elsewhere(put, parts)
            };
        }

        fn rows(&self) -> usize {
            slots::with_life(self.pool, |life| Ok(life.taken.len() - 1)).unwrap()
        }
    }

    impl Drop for TwoThreads {
        fn drop(&mut self) {
            binding::destroy(self.pool).unwrap();
        }
    }

    fn split(pages: Vec<Token>) -> Vec<Token> {
        let parts_of = |page| {
            let claimed = claim(page).unwrap();
            let view = claimed.view();
            let (front, rest) = claimed.keep().split_at(64).unwrap();
            [front, rest].map(|part| FreeFragEntry::take(view).unwrap().fill(part))
        };
        pages.into_iter().flat_map(parts_of).collect()
    }

    fn put(parts: Vec<Token>) -> Vec<Token> {
        parts.into_iter().for_each(|part| drop(claim(part).unwrap().keep()));
        Vec::new()
    }

    #[test]
    fn entries_that_end_on_the_owners_thread_serve_the_others() {
        let threads = TwoThreads::new();
        for _ in 0..512 {
            threads.round(false, true);
        }
        assert!(threads.rows() <= 2, "{} rows for 128 fragments", threads.rows());
    }

    /// Each change of threads finds nearly all entries on a list of the other side.
    #[test]
    fn entries_serve_whichever_thread_takes_the_next() {
        let threads = TwoThreads::new();
        for _ in 0..6 {
            for (split_here, put_here) in [(false, true), (true, false), (false, false), (true, true)] {
                for _ in 0..256 {
                    threads.round(split_here, put_here);
                }
            }
        }
        assert!(threads.rows() <= 2, "{} rows for 128 fragments", threads.rows());
    }
}
