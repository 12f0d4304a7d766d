//! Taking a buffer out of its token, once, and returning it.
//!
//! Pages  `LifeTable` says how the life of a page ends. The owner ends it in a section of the table. Another
//!        thread that returns the page ([`send`]) only sends the life to the owner; a thread that takes it
//!        for another use ([`claim`]) ends it with the table's lock.
//! Frags  the thread that changes the fragment's word gets it: see `life_word`.
//! Freed  between the check of the life and the message, another thread may return the same buffer, and the
//!        pool may be freed. So [`send`] touches only static tables and the thread's own lane. What needs the
//!        pool takes a reference to it under the slot's lock, and finds a freed pool gone.
//! Cost   a return of a plain page by the owner or through a lane: no atomic operation. A claim by another
//!        thread: a lock, and about 1,600 cycles if the owner works without the lock.

// UNSAFETY: buffers are made from the words that belong to their tokens.
#![expect(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::*;

use ::pagepool::{LifeLane, MayHaveRefs, PageBuf, PageLife, Sent, with_refs};

use crate::error::{CallError, CallResult, status};
use crate::handles::directory::{self, DirectoryRow, entry};
use crate::handles::owner::frag_over;
use crate::handles::slots;
use crate::handles::thread::me;
use crate::handles::token::{HandleKind, Token};
use crate::handles::view::{NO_LANE, PoolView, RUN, each_of_eight};

/// A buffer taken out of its token: the caller's alone.
pub(crate) struct Claimed {
    pub(crate) buffer: PageBuf,
    token: Token,
    view: &'static PoolView,
}

/// Takes the buffer of a token, which is refused from now on.
pub(crate) fn claim(token: Token) -> CallResult<Claimed> {
    let row = directory::find(token)?;
    let bits = end_life(row, token).ok_or(CallError::STALE)?;
    let view = row.view();
    // SAFETY: the life that just ended was begun by the buffer's owner, and ended here alone.
    let buffer = unsafe { buffer_of(view, bits) };
    Ok(Claimed { buffer, token, view })
}

/// Ends the life of a token; returns the second word of its buffer.
fn end_life(row: &DirectoryRow, token: Token) -> Option<u64> {
    if token.is(HandleKind::Frag) {
        let entry = entry(token.place());
        return Some(u64::from(entry.word.end(token)?) << 32 | entry.page.load(Relaxed));
    }
    let (view, words) = (row.view(), row.page(token));
    let refs = match view.is_mine() {
        true => view.guard.owned(|| words.end(token.0)),
        false => view.guard.claim(words, token.0),
    };
    Some(page_word(view.page_of(token), refs?))
}

/// The second word of a whole page.
#[inline(always)]
fn page_word(page: u32, MayHaveRefs(refs): MayHaveRefs) -> u64 {
    u64::from(page) | if refs { PageBuf::WITH_REFS } else { 0 }
}

/// # Safety
/// The second word is that of a buffer of the pool that is out, and the caller takes it over or never drops
/// it.
#[inline(always)]
unsafe fn buffer_of(view: &PoolView, bits: u64) -> PageBuf {
    // Not NULL: the pool has a buffer out.
    let core = NonNull::<c_void>::new(view.core.load(Relaxed)).unwrap_or(NonNull::dangling());
    // SAFETY: these are the words that the buffer was made of; the caller guarantees the rest.
    unsafe { PageBuf::from_token(core, bits) }
}

/// The row of a page's token, and the calling thread's lane to its pool; `None` on the owner's thread, or if
/// the thread has no lane at hand.
#[inline(always)]
fn away<'a>(token: Token) -> Option<(&'static DirectoryRow, LifeLane<'a>)> {
    // Finds the lane before the life is checked. That check proves that this is the pool of the life.
    let find = || {
        let row = directory::find_page(token)?;
        let view = row.view();
        if view.is_mine() { None } else { Some((row, view.lane())) }
    };
    // SAFETY: `find` returns no buffer, and callers use the lane at once.
    unsafe { LifeLane::at_hand(find) }
}

/// Sends a plain page that is out to its pool, if this thread is not the owner and has a lane at hand; gives
/// the status of the call, 0. What needs a call is the last thing that it does, so it saves no register.
#[inline(always)]
fn send(token: Token) -> Option<c_int> {
    let (row, lane) = away(token)?;
    if !PageLife::leave(row.outs()(token), token.0) {
        return None;
    }
    Some(match lane.send_quickly(row.view().page_of(token), token.generation()) {
        Some(true) => 0,
        Some(false) => send_watched(row.view(), lane, token),
        None => send_slowly(row, lane, token),
    })
}

/// A message was sent through a lane whose owner sleeps or has ended.
#[cold]
#[inline(never)]
pub(crate) fn send_watched(view: &'static PoolView, lane: LifeLane<'_>, token: Token) -> c_int {
    if let late @ Sent::Late(_) = lane.after_sending() {
        send_otherwise(view, lane.pool(), Some(lane), &[token], late);
    }
    0
}

/// Sends a token in the lane's next run of slots.
#[cold]
#[inline(never)]
fn send_slowly(row: &DirectoryRow, lane: LifeLane<'_>, token: Token) -> c_int {
    match lane.send_each(&[token], |token| (row.view().page_of(*token), token.generation())) {
        Sent::Some(1) => {}
        sent => send_otherwise(row.view(), lane.pool(), Some(lane), &[token], sent),
    }
    0
}

/// Sends the first tokens to their pool, at most [`RUN`], while [`send`] would send them and they are of one
/// directory row; returns how many.
#[inline(never)]
pub(crate) fn send_run(tokens: &[Token]) -> usize {
    let Some((row, lane)) = tokens.first().and_then(|&first| away(first)) else { return 0 };
    let (n, base) = (leave_run(row, &tokens[..tokens.len().min(RUN)]), row.view().base.load(Relaxed));
    let page_and_half = |token: &Token| ((token.0 as u32).wrapping_sub(base) >> 4, token.generation());
    match lane.send_each(&tokens[..n], page_and_half) {
        Sent::Some(sent) if sent == n => {}
        sent => send_otherwise(row.view(), lane.pool(), Some(lane), &tokens[..n], sent),
    }
    n
}

/// Marks leading pages as returned, up to the first that is not out as a plain page, or is in another row of
/// the directory. Returns their number. Not inlined: so the compiler has enough registers for the loop.
#[inline(never)]
fn leave_run(row: &DirectoryRow, tokens: &[Token]) -> usize {
    let (out, first) = (row.outs(), tokens[0]);
    each_of_eight(tokens, &mut [(); RUN][..tokens.len()], |token, ()| {
        directory::in_one_row(first, token) && PageLife::leave(out(token), token.0)
    })
}

/// Sends a plain page that is out to its pool, on a thread without a lane at hand; returns whether it did.
pub(crate) fn send_alone(token: Token) -> bool {
    directory::find(token).is_ok_and(|row| send_first(row, token))
}

/// Sends a plain page of a row that the caller found, unless this thread owns the pool or the pool has no
/// lanes.
fn send_first(row: &DirectoryRow, token: Token) -> bool {
    let view = row.view();
    let key = view.lane().0; // before the life is checked, as in `away`
    let leaves = token.is(HandleKind::Page) && !view.is_mine() && key != NO_LANE && {
        repair(row.page(token), token.0);
        PageLife::leave(row.outs()(token), token.0)
    };
    if leaves {
        send_otherwise(view, key, None, &[token], Sent::Some(0));
    }
    leaves
}

/// Repairs the out word of a plain page that is out in this life.
fn repair(page: PageLife, life: u64) {
    if page.is_out(life) && page.out.load(Relaxed) != with_refs(life) {
        page.out.store(life, Relaxed);
    }
}

/// Sends tokens through the pool itself, after those that were sent through the lane. If these came after the
/// pool's end, accounts for them. The pool is the one of the row if it has this first half of a lane key:
/// otherwise it is freed, and the row another one's.
#[cold]
#[inline(never)]
fn send_otherwise(
    view: &'static PoolView,
    key: u32,
    lane: Option<LifeLane<'_>>,
    tokens: &[Token],
    sent: Sent,
) {
    let (Sent::Some(n) | Sent::Late(n)) = sent;
    let late = if let Sent::Late(_) = sent { lane } else { None };
    // The clone keeps the pool's memory: buffers are returned with no lock held.
    let pool = slots::with_life_behind(view, |life| Ok(life.handle.clone()));
    match pool {
        Ok(pool) if pool.lane_key().0 == key => {
            let half = |token: &Token| (view.page_of(*token), token.generation());
            tokens[n..].iter().map(half).for_each(|(page, half)| pool.put_life(page, half));
            late.into_iter().for_each(|lane| pool.take_late(lane));
        }
        // These buffers had returned. First, because the drop of a pool may run callbacks.
        other => {
            late.into_iter().for_each(LifeLane::discard);
            drop(other);
        }
    }
}

/// Whether a token may be a page of the pool that this thread bound last, and still owns.
#[inline(always)]
pub(crate) fn is_here(token: Token) -> bool {
    let (me, view) = (me(), PoolView::hint(me()));
    view.has(view.page_of(token)) && view.owner.load(Relaxed) == me
}

/// Returns a whole page of the pool that this thread bound last into the cache, if this thread is the owner.
/// Otherwise changes nothing and returns false.
#[inline(always)]
fn put_here(token: Token) -> bool {
    let me = me();
    put_into(PoolView::hint(me), token, me)
}

#[inline(always)]
fn put_into(view: &PoolView, token: Token, me: u64) -> bool {
    let page = view.page_of(token);
    view.has(page) && view.owner.load(Relaxed) == me && view.guard.owned(move || view.put(page, token))
}

/// The return off the owner's thread, most likely. Not inlined: each case gets only the stack that it needs.
#[inline(never)]
pub(crate) extern "C" fn put_away(token: Token) -> c_int {
    send(token).unwrap_or_else(|| put_any(token))
}

/// Any return.
#[inline(never)]
pub(crate) extern "C" fn put_any(token: Token) -> c_int {
    if put_here(token) { 0 } else { status(|| put(token)) }
}

/// Returns any buffer.
fn put(token: Token) -> CallResult<()> {
    let row = directory::find(token)?;
    if put_into(row.view(), token, me()) || send_first(row, token) {
        return Ok(());
    }
    drop(claim(token)?.keep());
    Ok(())
}

/// Returns the first tokens into the cache of their pool while they are its whole pages, if this thread is
/// the owner; returns how many.
#[inline(always)]
pub(crate) fn put_run(tokens: &[Token]) -> usize {
    let (me, Some(&first)) = (me(), tokens.first()) else { return 0 };
    let hint = PoolView::hint(me);
    let found = || directory::find(first).map_or(hint, DirectoryRow::view);
    let view = if hint.has(hint.page_of(first)) { hint } else { found() };
    if view.owner.load(Relaxed) != me {
        return 0;
    }
    view.guard.owned(|| view.put_run(tokens))
}

/// Ends the token of a buffer that was kept: a fragment's place becomes free.
fn end_token(token: Token, view: &PoolView) {
    if token.is(HandleKind::Frag) {
        frag_over(view, token.place());
    }
}

impl Claimed {
    pub(crate) fn view(&self) -> &'static PoolView {
        self.view
    }

    /// Keeps the buffer permanently; its token ends.
    pub(crate) fn keep(self) -> PageBuf {
        end_token(self.token, self.view);
        self.buffer
    }

    /// Passes the buffer to `to`. If `to` refuses it, the token names it again.
    pub(crate) fn give<T>(
        self,
        to: impl FnOnce(PageBuf) -> Result<T, (PageBuf, CallError)>,
    ) -> CallResult<T> {
        let Self { buffer, token, view } = self;
        match to(buffer) {
            Ok(taken) => {
                // The taker keeps the pool alive, until this caller passes the result on.
                end_token(token, view);
                Ok(taken)
            }
            Err((buffer, error)) => {
                Self { buffer, token, view }.put_back();
                Err(error)
            }
        }
    }

    /// Makes the token name the buffer again, as it is now.
    pub(crate) fn put_back(self) {
        let (page, (_, bits)) = (self.buffer.page().0, self.buffer.into_token());
        match self.token.is(HandleKind::Frag) {
            true => entry(self.token.place()).word.resume(self.token, (bits >> 32) as u32),
            false => self.view.guard.page(page).resume(self.token.0, refs_of(bits)),
        }
    }
}

/// Whether the page with this second word may have references.
fn refs_of(bits: u64) -> MayHaveRefs {
    MayHaveRefs(bits >> 32 != 0)
}

pub(crate) fn change<R>(token: Token, change: impl FnOnce(&mut PageBuf) -> R) -> CallResult<R> {
    let mut claimed = claim(token)?;
    let done = change(&mut claimed.buffer);
    claimed.put_back();
    Ok(done)
}

/// Lends the buffer of a token, for work that leaves the handle as it is and may call back. On the owner's
/// thread the token is refused meanwhile; elsewhere the owner is not slowed for that.
pub(crate) fn lend<R>(token: Token, work: impl FnOnce(&mut PageBuf) -> R) -> CallResult<R> {
    let row = directory::find(token)?;
    let view = row.view();
    if token.is(HandleKind::Frag) || view.is_mine() {
        return change(token, work);
    }
    // Keeps the pool's memory, whatever a callback returns.
    let pool = slots::with_life_behind(view, |life| Ok(life.handle.clone()))?;
    let refs = refs_now(row.page(token), token.0).ok_or(CallError::STALE)?;
    // SAFETY: the life has not ended, so this is its pool. The value is never dropped.
    let buffer = unsafe { PageBuf::from_token(pool.token(), page_word(view.page_of(token), refs)) };
    Ok(work(&mut ManuallyDrop::new(buffer)))
}

/// Reads the buffer of a token that the caller holds. If another thread returns it during the call, the
/// result means nothing.
#[inline(always)]
pub(crate) fn read<R>(token: Token, read: impl FnOnce(&PageBuf) -> R) -> CallResult<R> {
    let row = directory::find(token)?;
    let view = row.view();
    let bits = if token.is(HandleKind::Frag) {
        let entry = entry(token.place());
        entry.word.part(token).map(|part| u64::from(part) << 32 | entry.page.load(Relaxed))
    } else {
        refs_now(row.page(token), token.0).map(|refs| page_word(view.page_of(token), refs))
    };
    // SAFETY: the token was given out, and its life has not ended. The value made here is never dropped; the
    // caller keeps its own.
    let buffer = ManuallyDrop::new(unsafe { buffer_of(view, bits.ok_or(CallError::STALE)?) });
    Ok(read(&buffer))
}

/// Whether the page may have references, if it is out in this life.
#[inline(always)]
fn refs_now(page: PageLife, life: u64) -> Option<MayHaveRefs> {
    let out = page.out.load(Acquire);
    if out == life {
        return Some(MayHaveRefs(false));
    }
    page.is_out(life).then_some(MayHaveRefs(out == with_refs(life)))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::thread;

    use ::pagepool::{Arena, ArenaParams, Pool, PoolParams};

    use super::*;
    use crate::handles::owner::{enter, page_token};
    use crate::handles::{binding, slots};

    pub(crate) fn new_pool() -> Token {
        let arena = Arena::new(ArenaParams { max_bytes: 4 << 20, ..Default::default() }).unwrap();
        let make = |lives| Ok(Pool::with_lives(PoolParams::default(), arena, lives).unwrap());
        let pool = slots::insert(1024, 0, make).unwrap();
        binding::bind(pool).unwrap();
        pool
    }

    pub(crate) fn alloc(pool: Token) -> Token {
        enter(pool, |owned| owned.token_for(owned.bound.alloc_page().unwrap())).unwrap()
    }

    fn elsewhere<R: Send>(work: impl FnOnce() -> R + Send) -> R {
        thread::scope(|threads| threads.spawn(work).join().unwrap())
    }

    fn returned_twice(pool: Token) -> u64 {
        slots::handle(pool).unwrap().stats().returned_twice
    }

    #[test]
    fn a_return_elsewhere_changes_nothing_for_the_owner() {
        let pool = new_pool();
        let view = slots::view(pool).unwrap();
        let pages = [alloc(pool), alloc(pool), alloc(pool)];
        elsewhere(|| {
            for page in pages {
                put(page).unwrap();
                assert!(put(page).is_err() && claim(page).is_err() && read(page, |_| ()).is_err());
            }
        });
        assert!(pages.into_iter().all(|page| put(page).is_err()), "they have returned");
        assert!(view.guard.limit.load(Relaxed) != 0);
        let again: Vec<Token> = (0..64).map(|_| alloc(pool)).collect();
        assert!(pages.iter().all(|page| !again.contains(page)), "a new life has a new token");
        assert_eq!((put_run(&again), returned_twice(pool)), (64, 0));
        binding::destroy(pool).unwrap();
    }

    /// As if two threads had found the page out at the same moment.
    #[test]
    fn of_two_returns_at_the_same_moment_one_is_refused() {
        for owner_first in [false, true] {
            let pool = new_pool();
            let view = slots::view(pool).unwrap();
            let page = alloc(pool);
            elsewhere(|| {
                put(page).unwrap();
                view.guard.page(view.page_of(page)).out.store(page.0, Relaxed);
                if !owner_first {
                    put(page).unwrap();
                }
            });
            if owner_first {
                put(page).unwrap();
            }
            let all: Vec<Token> = std::iter::from_fn(|| {
                enter(pool, |owned| owned.token_for(owned.bound.alloc_page().ok_or(CallError::STALE)?)).ok()
            })
            .collect();
            assert_eq!((all.len(), returned_twice(pool)), (1024, 1));
            all.into_iter().for_each(|page| put(page).unwrap());
            binding::destroy(pool).unwrap();
        }
    }

    #[test]
    fn a_claim_elsewhere_slows_the_owner_for_a_while() {
        let pool = new_pool();
        let view = slots::view(pool).unwrap();
        let page = alloc(pool);
        elsewhere(|| drop(claim(page).unwrap().keep()));
        assert_eq!(view.guard.limit.load(Relaxed), 0);
        assert!(claim(page).is_err() && put(page).is_err());
        (0..100).for_each(|_| put(alloc(pool)).unwrap());
        assert_ne!(view.guard.limit.load(Relaxed), 0);
        binding::destroy(pool).unwrap();
    }

    /// Two threads return the same buffers, and a third claims them: each page is out once at the end.
    #[test]
    fn threads_that_race_for_buffers_damage_nothing() {
        for round in 0..200 {
            let pool = new_pool();
            let pages: Vec<Token> = (0..32).map(|_| alloc(pool)).collect();
            let work = |first: usize, claims: bool| {
                for at in 0..pages.len() {
                    let page = pages[(first + at) % pages.len()];
                    match claims && at % 3 == 0 {
                        true => drop(claim(page).map(Claimed::keep)),
                        false => drop(put(page)),
                    }
                }
            };
            thread::scope(|threads| {
                threads.spawn(|| work(round % 32, false));
                threads.spawn(|| work(round * 5 % 32, true));
                work(round * 7 % 32, round % 2 == 0);
            });
            let next = || enter(pool, |owned| Ok(owned.bound.alloc_page())).unwrap();
            let held: Vec<PageBuf> = std::iter::from_fn(next).collect();
            let mut all: Vec<u32> = held.iter().map(|page| page.page().0).collect();
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), 1024, "round {round}");
            drop(held);
            binding::destroy(pool).unwrap();
            slots::reap();
        }
    }

    /// Lives begin on the owner's thread and on another one, and end on either: no token comes twice, and
    /// none is stale when it is given out. The second pool reuses the first one's places.
    #[test]
    fn lives_follow_each_other_wherever_they_begin() {
        for _ in 0..2 {
            let pool = new_pool();
            let view = slots::view(pool).unwrap();
            let mut seen = Vec::new();
            for round in 0..64 {
                let pages = [alloc(pool), alloc(pool)];
                seen.extend(pages);
                let again = |page| page_token(view, claim(page).unwrap().keep());
                let pages = match round % 3 {
                    0 => pages.map(again),
                    1 => elsewhere(|| pages.map(again)),
                    _ => pages,
                };
                seen.extend(pages.iter().filter(|_| round % 3 != 2));
                let put_all = |pages: &[Token]| pages.iter().for_each(|&page| put(page).unwrap());
                let run = || put_all(&pages[send_run(&pages)..]);
                match round % 4 {
                    0 => put_all(&pages),
                    1 => elsewhere(|| put_all(&pages)),
                    2 => elsewhere(run),
                    _ => elsewhere(|| pages.into_iter().for_each(|page| drop(claim(page).unwrap().keep()))),
                }
            }
            let all = seen.len();
            assert!(seen.iter().all(|&token| put(token).is_err()), "all have returned");
            seen.sort_unstable_by_key(|token| token.0);
            seen.dedup();
            assert_eq!(seen.len(), all);
            binding::destroy(pool).unwrap();
            slots::reap();
        }
    }
}
