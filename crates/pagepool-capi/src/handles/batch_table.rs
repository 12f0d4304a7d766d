//! The batches: what their tokens name, and which call uses one now.
//!
//! What   one row per batch, found by the place in its token. Rows are never freed, only reused with the next
//!        generation. `taken` is 1 during a call on the batch: another call on it is refused. So none waits,
//!        and a callback may use every other batch.
//! Who    any thread. The content belongs to the call that has the turn and then found the token in the row;
//!        only such a call removes the token. Creating and destroying take the lock of the list.
//! Pages  a page in a batch has no handle: its life ended before, or begins when it is popped. The pool
//!        counts it as out, so the pool's row stays while a batch has a page of it.

// UNSAFETY: rows are reached by address and never freed; calls use their content in turn.
#![expect(unsafe_code)]

use std::cell::UnsafeCell;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ::pagepool::{Batch, PageBuf};

use crate::caller::Caller;
use crate::error::{CallError, CallResult};
use crate::handles::owner::{OwnerCall, page_token};
use crate::handles::token::{Generations, HandleKind, Token};
use crate::handles::view::PoolView;
use crate::oom;

const MAX_BATCHES: usize = 4096;

/// A batch, and the row of its pages' pool.
pub(crate) struct BatchEntry {
    pub(crate) batch: Batch,
    view: Option<&'static PoolView>,
}

#[repr(align(64))]
struct BatchRow {
    /// The batch's token, or 0.
    token: AtomicU64,
    taken: AtomicU32,
    /// [`Generations`] of the batches that had this row.
    generations: AtomicU64,
    entry: UnsafeCell<BatchEntry>,
}

static ROWS: [AtomicPtr<BatchRow>; MAX_BATCHES] = [const { AtomicPtr::new(null_mut()) }; MAX_BATCHES];

struct RowList {
    made: u32,
    free: Vec<u32>,
}

fn list() -> MutexGuard<'static, RowList> {
    static LIST: Mutex<RowList> = Mutex::new(RowList { made: 0, free: Vec::new() });
    LIST.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RowList {
    fn take(&mut self) -> CallResult<u32> {
        const FULL: CallError =
            CallError::fixed(libc::EBUSY, c"there are 4096 batches, the limit: destroy one first");
        if let Some(at) = self.free.pop() {
            return Ok(at);
        }
        let at = self.made;
        let place = ROWS.get(at as usize).ok_or(FULL)?;
        oom::expect(oom::FEW)?;
        self.free.try_reserve(at as usize + 1)?;
        let entry = UnsafeCell::new(BatchEntry { batch: Batch::new(), view: None });
        let (token, generations) = (AtomicU64::new(0), AtomicU64::new(0));
        let row = Box::new(BatchRow { token, taken: AtomicU32::new(0), generations, entry });
        place.store(Box::into_raw(row), Release); // pairs with row_of()
        self.made += 1;
        Ok(at)
    }
}

/// The row that a token names, whichever batch has it now.
#[inline(always)]
fn row_of(token: Token) -> CallResult<&'static BatchRow> {
    if !token.is(HandleKind::Batch) {
        return Err(CallError::NO_HANDLE);
    }
    let row = ROWS.get(token.place() as usize).map_or(null_mut(), |row| row.load(Acquire));
    // SAFETY: NULL, or the address of a row, which is never freed; its content is atomic, or used in `with`
    // alone.
    unsafe { row.as_ref() }.ok_or(CallError::NO_HANDLE)
}

pub(crate) fn create() -> CallResult<Token> {
    let at = list().take()?;
    let row = row_of(Token::new(HandleKind::Batch, at, 0))?;
    let generations = Generations(row.generations.load(Relaxed)).next();
    row.generations.store(generations.0, Relaxed);
    let token = Token::new(HandleKind::Batch, at, generations.latest());
    row.token.store(token.0, Release);
    Ok(token)
}

/// Runs a call on a batch; refused while another call uses it.
#[inline(always)]
pub(crate) fn with<R>(token: Token, call: impl FnOnce(&mut BatchEntry) -> CallResult<R>) -> CallResult<R> {
    const BUSY: CallError = CallError::fixed(
        libc::EBUSY,
        c"another call is using this batch: on another thread, or the call that runs this callback",
    );
    let row = row_of(token)?;
    row.check(token)?; // first, so that a stale token does not take the turn of another batch
    if row.taken.swap(1, Acquire) != 0 {
        return Err(BUSY);
    }
    let _turn = HeldTurn(row);
    row.check(token)?;
    // SAFETY: this call has the turn, and the batch has not ended, so no other call uses the content.
    call(unsafe { &mut *row.entry.get() })
}

/// The turn to use a batch.
struct HeldTurn(&'static BatchRow);

impl Drop for HeldTurn {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.taken.store(0, Release); // pairs with with()
    }
}

/// Returns the pages and frees the row.
pub(crate) fn destroy(token: Token) -> CallResult<()> {
    with(token, |entry| {
        entry.batch.put();
        row_of(token)?.token.store(0, Release);
        Ok(())
    })?;
    list().free.push(token.place()); // room for every row was reserved
    Ok(())
}

impl BatchRow {
    #[inline(always)]
    fn check(&self, token: Token) -> CallResult<()> {
        if self.token.load(Acquire) == token.0 { Ok(()) } else { Err(self.missing(token)) }
    }

    #[cold]
    fn missing(&self, token: Token) -> CallError {
        let generations = Generations(self.generations.load(Relaxed));
        if generations.had(token.generation()) { CallError::STALE } else { CallError::NO_HANDLE }
    }
}

const ANOTHERS: CallError = CallError::fixed(
    libc::EINVAL,
    c"the batch has pages of another pool: return them first (pagepool_batch_put)",
);
const FULL: CallError =
    CallError::fixed(libc::ENOBUFS, c"the batch has 64 pages, the limit: return them, or use another");
const NOT_WHOLE: CallError = CallError::fixed(
    libc::EINVAL,
    c"a batch takes whole pages that were never shared and have no reference: return this one separately",
);

const _: () = assert!(Batch::MAX == 64, "FULL names it");

impl BatchEntry {
    /// Refuses to mix pages of two pools.
    fn check_pool(&self, view: &PoolView) -> CallResult<()> {
        let same = self.batch.is_empty() || self.view.is_some_and(|own| std::ptr::eq(own, view));
        if same { Ok(()) } else { Err(ANOTHERS) }
    }

    /// Adds up to `n` pages; returns how many.
    #[inline(always)]
    pub(crate) fn alloc(&mut self, owned: &OwnerCall<'_>, n: usize, caller: Caller) -> CallResult<usize> {
        self.check_pool(owned.view)?;
        self.view = Some(owned.view);
        Ok(owned.alloc_for(caller, |bound| bound.alloc_bulk(&mut self.batch, n)))
    }

    pub(crate) fn check_room(&self) -> CallResult<()> {
        if self.batch.len() == Batch::MAX { Err(FULL) } else { Ok(()) }
    }

    /// Removes the last page; its next life begins.
    pub(crate) fn pop(&mut self) -> CallResult<Token> {
        const EMPTY: CallError = CallError::fixed(libc::ENOENT, c"the batch is empty");
        let page = self.batch.pop().ok_or(EMPTY)?;
        let view = self.view.ok_or(CallError::INTERNAL)?;
        Ok(page_token(view, page))
    }

    /// Adds a buffer whose life ended; returns it if refused.
    pub(crate) fn push(
        &mut self,
        buffer: PageBuf,
        view: &'static PoolView,
    ) -> Result<(), (PageBuf, CallError)> {
        if let Err(error) = self.check_room().and_then(|()| self.check_pool(view)) {
            return Err((buffer, error));
        }
        self.view = Some(view);
        self.batch.push(buffer).map_err(|buffer| (buffer, NOT_WHOLE))
    }
}
