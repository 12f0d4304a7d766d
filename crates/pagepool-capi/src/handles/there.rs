//! The pool to which a thread returned last without owning it, as the inline functions of `pagepool.h` keep it.
//!
//! What   a program, and each shared object of it, has one such row per thread, in thread-local memory. With it
//!        the inline functions return buffers, and find their addresses, without a call.
//! Who    only the thread itself writes and reads its rows.
//! Stale  a row may outlive its pool. So its readers compare `token` with that of the view, before they look at
//!        the out word of a page. The view gets another token before the pool's places are another pool's. The
//!        words of a place are never freed. The thread's lane is freed after the pool's end, or when the thread ends:
//!        then `hand` says so.
//! Pairs  insert() in slots (Release fence; the fields of the view) -> note() (fields;
//!        Acquire fence; token).

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

/// Zeroes are a row of no pool: no token finds a page.
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
        // SAFETY: only its address is used, and that after the checks of `lane`.
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

    /// Follows a message that the inline functions have just sent with a flag raised.
    pub(crate) fn after_sending(&self, token: Token) -> c_int {
        let Some(lane) = NonNull::new(self.lane.cast_mut()) else { return 0 };
        // SAFETY: the thread sent through it, and has not changed its lanes since.
        let lane = unsafe { LifeLane::at(lane) };
        // SAFETY: a row with a lane has a view, which is static.
        claim::send_watched(unsafe { &*self.view }, lane, token)
    }
}
