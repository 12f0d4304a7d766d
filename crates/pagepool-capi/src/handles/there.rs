//! The pool that a thread used last among those that it does not own, as the inline functions of `pagepool.h`
//! keep it.
//!
//! What   a program, and each shared object of it, has one such record per thread, in thread-local memory.
//!        With it the inline functions return buffers, and find their addresses, without a call.
//! Who    only the thread itself writes and reads its records.
//! Stale  a record may outlive its pool. So its readers compare `token` with that of the view, before they
//!        look at the out word of a page. The view's token changes before another pool gets the places, whose
//!        words are never freed. A lane may be freed in two cases. After its pool's end: then the token
//!        differs. When the thread ends: then the number at `hand` is 0.
//! Pairs  insert() in slots (Release fence; the view's fields) -> note() (fields; Acquire fence; token).

// UNSAFETY: follows the address of a view, and uses a lane.
#![expect(unsafe_code)]

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
use crate::handles::view::PoolView;

/// All zeroes is a record of no pool: no token finds a page.
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
    pub(crate) memory: u64,
    pub(crate) readable: u64,
    pub(crate) base_page: u64,
}

impl There {
    /// Keeps the pool of a page's token, unless the calling thread owns it.
    pub(crate) fn note(&mut self, token: Token) {
        let Some(view) = directory::find_page(token).map(|row| row.view()) else { return };
        let pool = view.token.load(Acquire);
        if view.is_mine() || pool == 0 {
            return;
        }
        let there = Self::of(view, pool);
        fence(Acquire); // pairs with insert()
        if view.token.load(Relaxed) == pool {
            *self = there;
        }
    }

    fn of(view: &PoolView, token: u64) -> Self {
        // SAFETY: only the address is kept. The inline functions follow it after they checked that the pool
        // exists and that the thread has lanes.
        let lane = unsafe { LifeLane::at_hand(|| Some(((), view.lane()))) };
        Self {
            base: view.base.load(Relaxed),
            pages: lane.map_or(0, |_| view.pages.load(Relaxed)),
            outs: view.guard.outs.load(Relaxed),
            view,
            token,
            hand: LifeLane::hand(),
            lane: lane.map_or(ptr::null(), |((), lane)| lane.address()),
            memory: view.memory.load(Relaxed),
            readable: view.readable.load(Relaxed),
            base_page: view.base_page.load(Relaxed),
        }
    }

    /// For a message that the inline functions have just sent through a lane with a flag raised.
    pub(crate) fn after_sending(&self, token: Token) -> c_int {
        let Some(lane) = NonNull::new(self.lane.cast_mut()) else { return 0 };
        // SAFETY: the thread sent through it, and has not changed its lanes since.
        let lane = unsafe { LifeLane::at(lane) };
        // SAFETY: a record with a lane has a view, which is static.
        claim::send_watched(unsafe { &*self.view }, lane, token)
    }
}
