//! What only the owner's thread touches of a pool, and the way in.
//!
//! Who    [`enter`] checks that the caller is the owner; then nobody else can bind, unbind or destroy the pool, so its
//!        parts are there for the length of the call. The owner itself could, from a callback: `calls` refuses that.

// UNSAFETY: the owner's part is reached by address, after the check.
#![expect(unsafe_code)]

use std::cell::{Cell, UnsafeCell};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use ::pagepool::{Bound, DeviceAddr, PageBuf, PoolRef};

use crate::error::{Outcome, Refusal};
use crate::handles::ledger;
use crate::handles::slots;
use crate::handles::token::{Kind, Token};
use crate::handles::view::View;

/// The owner's part of a pool.
pub(crate) struct Own {
    /// The pool, for the owner's calls that take addresses.
    handle: PoolRef,
    /// There while the pool is bound.
    pub(crate) bound: UnsafeCell<Option<Bound>>,
    /// Calls of the owner that have not returned: more than one when a callback calls back.
    calls: Cell<u32>,
    /// Free entries for fragments: the first one's place, plus one.
    frags: Cell<u64>,
}

// SAFETY: whoever touches it owns the pool, or holds the slot's lock while nobody does.
unsafe impl Send for Own {}

/// A call of the owner, while it lasts.
pub(crate) struct Owned<'a> {
    pub(crate) view: &'static View,
    pub(crate) pool: Token,
    pub(crate) bound: &'a Bound,
    own: &'a Own,
}

impl Own {
    pub(crate) fn new(handle: PoolRef) -> Self {
        Self { handle, bound: UnsafeCell::new(None), calls: Cell::new(0), frags: Cell::new(0) }
    }

    /// Whether a call of the owner is under way, so that this one comes from a callback.
    pub(crate) fn is_in_call(&self) -> bool {
        self.calls.get() != 0
    }
}

/// Counts a call while it lives.
struct Call<'a>(&'a Cell<u32>);

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Runs a call of the owner, or refuses: a token that is no pool's, or a thread that is not the owner.
pub(crate) fn enter<R>(pool: Token, call: impl FnOnce(&Owned<'_>) -> Outcome<R>) -> Outcome<R> {
    let view = slots::view(pool)?;
    if !view.is_mine() {
        return Err(Refusal::not_owner());
    }
    // SAFETY: this thread owns the pool, so its part is there, and only this thread may take it away.
    let own = unsafe { &*view.own.load(Acquire) };
    own.calls.set(own.calls.get() + 1);
    let _call = Call(&own.calls);
    // SAFETY: as above; while `calls` is not 0 it is not taken away.
    let bound = unsafe { &*own.bound.get() }.as_ref().ok_or(Refusal::not_owner())?;
    call(&Owned { view, pool, bound, own })
}

impl Owned<'_> {
    /// Bytes in a page of this pool.
    pub(crate) fn page_size(&self) -> usize {
        self.view.page_size.load(Relaxed) as usize
    }

    /// The buffer of a device address.
    pub(crate) fn at_address(&self, addr: u64) -> Outcome<PageBuf> {
        Ok(self.own.handle.from_raw(DeviceAddr(addr))?)
    }

    /// Gives a buffer of this pool a token. Where there is no memory for that it goes home.
    pub(crate) fn token_for(&self, buffer: PageBuf) -> Outcome<Token> {
        if buffer.is_frag() { self.frag_token(buffer) } else { Ok(page_token(self.view, buffer)) }
    }

    fn frag_token(&self, buffer: PageBuf) -> Outcome<Token> {
        if self.own.frags.get() == 0 {
            // Those that ended on other threads, and where there is none a fresh chunk.
            let mut list = self.view.frags_home.0.swap(0, Acquire); // pairs with frag_over()
            if list == 0 {
                list = slots::with_life(self.pool, |life| life.take_frags(self.view))?;
            }
            self.own.frags.set(list);
        }
        let first = self.own.frags.get();
        let (token, next) = frag_token(first, buffer)?;
        self.own.frags.set(next);
        Ok(token)
    }
}

/// A token for a whole page.
pub(crate) fn page_token(view: &View, buffer: PageBuf) -> Token {
    let page = buffer.page().0;
    let (_, place) = buffer.into_token();
    view.word(page).begin(view.place_of(page), (place >> 32) as u32)
}

/// A token for a fragment, from a list of free entries that begins with `first`; and what the list begins with then. The
/// buffer goes home where there is no entry.
pub(crate) fn frag_token(first: u64, buffer: PageBuf) -> Outcome<(Token, u64)> {
    let at = first.checked_sub(1).ok_or(Refusal::no_memory())? as u32;
    let entry = ledger::entry(at);
    let (_, place) = buffer.into_token();
    let next = entry.page.swap(place as u32 as u64, Relaxed);
    Ok((entry.word.begin(Token::new(Kind::Frag, at, 0).0 as u32, (place >> 32) as u32), next))
}

/// A fragment's token is over: its entry is free, on whichever thread. Whoever calls it still has the fragment, so the pool
/// is there.
pub(crate) fn frag_over(view: &View, place: u32) {
    let entry = ledger::entry(place);
    let this = u64::from(place) + 1;
    if view.is_mine() {
        // SAFETY: this thread owns the pool, so its part is there.
        let own = unsafe { &*view.own.load(Relaxed) };
        entry.page.store(own.frags.replace(this), Relaxed);
        return;
    }
    let list = &view.frags_home.0;
    let mut head = list.load(Relaxed);
    loop {
        entry.page.store(head, Relaxed);
        // Taken all at once or not at all, so that an entry that comes back meanwhile does no harm.
        match list.compare_exchange_weak(head, this, AcqRel, Relaxed) {
            Ok(_) => return,
            Err(now) => head = now,
        }
    }
}
