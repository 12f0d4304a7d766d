//! The owner's calls: the check that the caller is the owner, and the tokens of what it allocates.
//!
//! Who    [`enter`] checks that the caller is the owner; then nobody else can bind, unbind or destroy the
//!        pool, so its parts are there for the length of the call. The owner itself could, from a callback:
//!        `calls` refuses that.

// UNSAFETY: the owner's part is reached by address, after the check.
#![expect(unsafe_code)]

use std::cell::Cell;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use ::pagepool::{Bound, DeviceAddr, PageBuf};

use crate::error::{CallError, CallResult};
use crate::handles::directory;
use crate::handles::owner_half::OwnerHalf;
use crate::handles::slots;
use crate::handles::token::{HandleKind, Token};
use crate::handles::view::PoolView;

/// A call of the owner, while it lasts.
pub(crate) struct OwnerCall<'a> {
    pub(crate) view: &'static PoolView,
    pub(crate) pool: Token,
    pub(crate) bound: &'a Bound,
    own: &'a OwnerHalf,
}

/// Counts a call while it lives.
struct CallCount<'a>(&'a Cell<u32>);

impl Drop for CallCount<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Runs a call of the owner, or refuses: a token that is no pool's, or a thread that is not the owner.
pub(crate) fn enter<R>(pool: Token, call: impl FnOnce(&OwnerCall<'_>) -> CallResult<R>) -> CallResult<R> {
    let view = slots::view(pool)?;
    if !view.is_mine() {
        return Err(CallError::NOT_OWNER);
    }
    // SAFETY: this thread owns the pool, so its part is there, and only this thread may take it away.
    let own = unsafe { &*view.own.load(Acquire) };
    own.calls.set(own.calls.get() + 1);
    let _call = CallCount(&own.calls);
    // SAFETY: this thread owns the pool; while `calls` is not 0 `bound` is not taken away.
    let bound = unsafe { &*own.bound.get() }.as_ref().ok_or(CallError::NOT_OWNER)?;
    call(&OwnerCall { view, pool, bound, own })
}

impl OwnerCall<'_> {
    /// The buffer of a device address.
    pub(crate) fn at_address(&self, addr: u64) -> CallResult<PageBuf> {
        Ok(self.own.handle.from_raw(DeviceAddr(addr))?)
    }

    /// Refuses a buffer of another pool.
    pub(crate) fn check_buffer(&self, buf: Token) -> CallResult<()> {
        const ANOTHERS: CallError = CallError::fixed(libc::EINVAL, c"the buffer belongs to another pool");
        if std::ptr::eq(directory::find(buf)?.view, self.view) { Ok(()) } else { Err(ANOTHERS) }
    }

    /// Gives a buffer of this pool a token. If there is no memory for that, the buffer returns to the pool.
    pub(crate) fn token_for(&self, buffer: PageBuf) -> CallResult<Token> {
        if buffer.is_frag() { self.frag_token(buffer) } else { Ok(page_token(self.view, buffer)) }
    }

    fn frag_token(&self, buffer: PageBuf) -> CallResult<Token> {
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
pub(crate) fn page_token(view: &PoolView, buffer: PageBuf) -> Token {
    let page = buffer.page().0;
    let (_, place) = buffer.into_token();
    view.word(page).begin(view.place_of(page), (place >> 32) as u32)
}

/// A token for a fragment, from a list of free entries that begins with `first`; and what the list begins
/// with then. Without an entry the buffer returns to its pool.
pub(crate) fn frag_token(first: u64, buffer: PageBuf) -> CallResult<(Token, u64)> {
    let at = first.checked_sub(1).ok_or(CallError::NO_MEMORY)? as u32;
    let next = directory::entry(at).page.load(Relaxed);
    Ok((begin_frag(at, buffer), next))
}

/// Begins the life of a fragment's token, in a free entry that is in no list any more.
fn begin_frag(at: u32, frag: PageBuf) -> Token {
    let entry = directory::entry(at);
    let (_, place) = frag.into_token();
    entry.page.store(place as u32 as u64, Relaxed);
    entry.word.begin(Token::new(HandleKind::Frag, at, 0).0 as u32, (place >> 32) as u32)
}

/// A free entry for a fragment of a pool, of which the caller has a buffer, on any thread. Dropped, it is
/// free again.
pub(crate) struct FreeFragEntry {
    view: &'static PoolView,
    place: u32,
}

impl FreeFragEntry {
    pub(crate) fn take(view: &'static PoolView) -> CallResult<Self> {
        let home = || view.frags_home.0.swap(0, Acquire); // pairs with frag_over()
        let take_first =
            |first: u64| (first as u32 - 1, directory::entry(first as u32 - 1).page.load(Relaxed));
        let listed = |first: u64| if first == 0 { home() } else { first };
        if view.is_mine() {
            // SAFETY: this thread owns the pool, so its part is there.
            let own = unsafe { &*view.own.load(Relaxed) };
            let first = match listed(own.frags.get()) {
                0 => slots::with_life_behind(view, |life| life.take_frags(view))?,
                first => first,
            };
            let (place, next) = take_first(first);
            own.frags.set(next);
            return Ok(Self { view, place });
        }
        slots::with_life_behind(view, |life| {
            let first = match listed(life.frags) {
                0 => life.take_frags(view)?,
                first => first,
            };
            let (place, next) = take_first(first);
            life.frags = next;
            Ok(Self { view, place })
        })
    }

    /// The token of this fragment, which has the entry from now on.
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

/// A fragment's token is over: its entry is free, on whichever thread. Whoever calls it still has the
/// fragment, so the pool is there.
pub(crate) fn frag_over(view: &PoolView, place: u32) {
    let entry = directory::entry(place);
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
