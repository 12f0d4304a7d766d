//! A pool to which a thread returns buffers and which it does not own, for the inline functions of
//! `pagepool.h`.
//!
//! What   one record per thread. With it the inline functions return buffers without a call. Each program and
//!        shared object keeps its address.
//! Who    only the thread itself: the library writes it, the inline functions read it.
//! Stale  a record may outlive its pool. So its readers compare `token` with that of the view, before they
//!        look at the out word of a page. The view's token changes before another pool gets the places, whose
//!        words are never freed. A lane may be freed in two cases. After its pool's end: then the token
//!        differs, because `binding::destroy` changes it before the pool marks its lanes, and a thread drops
//!        marked lanes only. When the thread ends: then the number at `hand` is 0.
//! Pairs  insert() in slots (Release fence; the view's fields) -> of() (fields; Acquire fence; token).

// UNSAFETY: follows the address of a view, and uses a lane.
#![expect(unsafe_code)]

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed},
    fence,
};

use ::pagepool::LifeLane;

use crate::handles::claim;
use crate::handles::directory;
use crate::handles::token::Token;
use crate::handles::view::{NO_POOL, PoolView};

/// With 0 pages it is a record of no pool: no token finds a page.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct There {
    /// The lower half of the token of page 0.
    pub(crate) base: u32,
    /// Pages that return through `lane`: all, or none if the thread has no lane at hand.
    pub(crate) pages: u32,
    pub(crate) outs: *mut AtomicU64,
    pub(crate) view: *const PoolView,
    pub(crate) token: u64,
    pub(crate) hand: *const c_void,
    pub(crate) lane: *const c_void,
    /// For a message that was just sent through a lane with a flag raised: wakes the owner or, if the pool
    /// has ended, accounts for the message. Returns 0. A field, because the caller may not know the tables yet.
    pub(crate) after_sending: extern "C" fn(buf: *mut c_void) -> c_int,
    /// The first half of the pool's lane key.
    lane_pool: u32,
}

thread_local! {
    /// Has no destructor, so it is usable until the thread ends.
    static THERE: Cell<There> = const { Cell::new(There::NONE) };
}

/// Where the calling thread's record is, until it ends.
pub(crate) fn place() -> *const There {
    THERE.with(|there| there.as_ptr().cast_const())
}

/// Keeps the pool of a page's token, unless the calling thread owns it, or has a lane to the kept pool but
/// none to this one.
pub(crate) fn note(token: Token) {
    let there = directory::find_page(token).and_then(|row| There::of(row.view()));
    if let Some(there) = there.filter(|there| there.pages != 0 || THERE.get().pages == 0) {
        THERE.set(there);
    }
}

/// The calling thread is about to own this pool, so its returns must not be messages. In a turn of a pool
/// without an owner they may be: the record stays.
pub(crate) fn forget(view: &PoolView) {
    if ptr::eq(THERE.get().view, view) {
        THERE.set(There::NONE);
    }
}

extern "C" fn after_sending(buf: *mut c_void) -> c_int {
    THERE.get().after_sending(Token::of(buf))
}

impl There {
    const NONE: Self = Self {
        base: 0,
        pages: 0,
        outs: ptr::null_mut(),
        view: &raw const NO_POOL,
        token: 0,
        hand: ptr::null(),
        lane: ptr::null(),
        after_sending,
        lane_pool: 0,
    };

    fn of(view: &PoolView) -> Option<Self> {
        let (token, key) = (view.token.load(Acquire), view.lane());
        if view.is_mine() || token == 0 {
            return None;
        }
        // SAFETY: only the address is kept. The inline functions follow it after they checked that the pool
        // exists and that the thread has lanes.
        let lane = unsafe { LifeLane::at_hand(|| Some(((), key))) };
        let there = Self {
            base: view.base.load(Relaxed),
            pages: lane.map_or(0, |_| view.pages.load(Relaxed)),
            outs: view.guard.outs.load(Relaxed),
            view,
            token,
            hand: LifeLane::hand(),
            lane: lane.map_or(ptr::null(), |((), lane)| lane.address()),
            after_sending,
            lane_pool: key.0,
        };
        fence(Acquire); // pairs with insert()
        (view.token.load(Relaxed) == token).then_some(there)
    }

    fn after_sending(self, token: Token) -> c_int {
        let Some(lane) = NonNull::new(self.lane.cast_mut()) else { return 0 };
        // SAFETY: the thread has just sent through it, and has not changed its lanes since.
        let lane = unsafe { LifeLane::at(lane, self.lane_pool) };
        // SAFETY: views are static.
        claim::send_watched(unsafe { &*self.view }, lane, token)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use ::pagepool::PageLife;

    use super::*;
    use crate::handles::claim::put_any;
    use crate::handles::claim::tests::{alloc, new_pool};
    use crate::handles::{binding, slots};

    /// What the inline functions do, with a pause before the message. In it the pool ends.
    fn put_around(page: Token, ends: &Barrier) {
        let there = THERE.get();
        let row = directory::find_page(page).unwrap();
        assert!(PageLife::leave(row.outs()(page), page.0));
        ends.wait();
        ends.wait();
        // SAFETY: the thread has not ended, and its lane has a message to come.
        let lane = unsafe { LifeLane::at(NonNull::new(there.lane.cast_mut()).unwrap(), there.lane_pool) };
        assert_eq!(lane.send_quickly(row.view().page_of(page), page.generation()), Some(false));
        assert_eq!((there.after_sending)(page.0 as *mut c_void), 0);
    }

    /// Also if the lane is at hand no more, because the thread returned to many other pools since.
    #[test]
    fn a_message_to_a_pool_that_ends_meanwhile_is_not_lost() {
        for crowd in [0, 40] {
            let (pool, ends) = (new_pool(), Barrier::new(2));
            let pages = [alloc(pool), alloc(pool)];
            let others: Vec<Token> = (0..crowd).map(|_| new_pool()).collect();
            let of_others: Vec<Token> = others.iter().map(|&other| alloc(other)).collect();
            let ended = thread::scope(|threads| {
                threads.spawn(|| {
                    assert_eq!(put_any(pages[0]), 0);
                    note(pages[1]);
                    let first = THERE.get();
                    of_others.iter().for_each(|&page| assert_eq!(put_any(page), 0));
                    THERE.set(first);
                    put_around(pages[1], &ends);
                });
                ends.wait();
                let ended = binding::destroy(pool).unwrap();
                assert!(!ended.shutdown.is_complete(), "a buffer is out");
                ends.wait();
                ended
            });
            assert!(ended.shutdown.is_complete(), "{crowd} other pools");
            others.into_iter().for_each(|other| drop(binding::destroy(other).unwrap()));
        }
    }

    #[test]
    fn a_thread_that_becomes_the_owner_sends_no_more() {
        let pool = new_pool();
        let pages = [alloc(pool), alloc(pool)];
        binding::unbind(pool).unwrap();
        assert_eq!(put_any(pages[0]), 0); // makes a lane
        note(pages[1]);
        assert!(THERE.get().pages > 0);
        binding::bind(pool).unwrap();
        assert_eq!(THERE.get().pages, 0);
        assert_eq!(put_any(pages[1]), 0);
        binding::destroy(pool).unwrap();
    }

    /// As if two threads had found the page out at the same moment: the other one's return ended the pool, and
    /// another pool has its row.
    #[test]
    fn a_late_message_to_a_freed_pool_does_not_reach_the_next_one() {
        let (pool, ends) = (new_pool(), Barrier::new(2));
        let pages = [alloc(pool), alloc(pool)];
        let view = slots::view(pool).unwrap();
        let next = thread::scope(|threads| {
            threads.spawn(|| {
                assert_eq!(put_any(pages[0]), 0);
                note(pages[1]);
                put_around(pages[1], &ends);
            });
            ends.wait();
            view.guard.page(view.page_of(pages[1])).out.store(pages[1].0, Relaxed);
            assert_eq!(put_any(pages[1]), 0);
            assert!(binding::destroy(pool).unwrap().shutdown.is_complete());
            // Other tests may take the row first.
            let next: Vec<Token> = (0..64).map(|_| new_pool()).collect();
            ends.wait();
            next
        });
        for next in next {
            let stats = slots::handle(next).unwrap().stats();
            assert_eq!((stats.returned_twice, stats.recycle_ring), (0, 0));
            assert!(binding::destroy(next).unwrap().shutdown.is_complete());
        }
    }
}
