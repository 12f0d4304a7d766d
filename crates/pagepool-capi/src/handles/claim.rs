//! Taking a buffer out of its token, once.
//!
//! How    the thread that changes the word of a life from its token to the next token gets the buffer. One
//!        thread may do that with plain operations while its mark is set: see [`bias`]. If none may, every
//!        thread uses a compare-and-swap.
//! Cost   a return by the owner that has the bias: five plain stores, no atomic operation; in bulk two and a
//!        share of the others. In a pool whose buffers two threads return: one compare-and-swap. Each move of
//!        the bias: about 1,600 cycles.

// UNSAFETY: buffers are made from the words that belong to their tokens.
#![expect(unsafe_code)]

pub(crate) mod bias;

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::*};

use ::pagepool::{Backoff, PageBuf};

use crate::error::{CallError, CallResult};
use crate::handles::directory::{self, BufPlace};
use crate::handles::life_word::{self, LifeWord};
use crate::handles::owner::frag_over;
use crate::handles::thread::me;
use crate::handles::token::{HandleKind, Token};
use crate::handles::view::{PoolView, RUN};
use bias::{BiasWords, SEVERAL, Wanted};

/// A buffer taken out of its token: the caller's alone.
pub(crate) struct Claimed {
    pub(crate) buffer: PageBuf,
    token: Token,
    word: &'static LifeWord,
    view: &'static PoolView,
}

/// Takes the buffer of a token, which is refused from now on.
pub(crate) fn claim(token: Token) -> CallResult<Claimed> {
    claim_at(directory::find(token)?, token)
}

#[inline(always)]
fn claim_at(BufPlace { word, view, .. }: BufPlace, token: Token) -> CallResult<Claimed> {
    let was = end_life(word, view, token).ok_or(CallError::STALE)?;
    // SAFETY: the life that just ended was begun by the buffer's owner, and ended here alone.
    let buffer = unsafe { buffer_of(token, was, view) };
    Ok(Claimed { buffer, token, word, view })
}

/// Claims a plain page, if this thread may do so without moving the bias.
#[inline(always)]
pub(crate) fn claim_plain(token: Token) -> Option<PageBuf> {
    let (word, view) = directory::find_page(token)?;
    let ended = match view.bias.load(Acquire) {
        bias::SHARED => word.end_plain_together(token),
        _ => end_biased(view, || word.end_plain(token)) == Some(true),
    };
    // SAFETY: the life that just ended was begun by the buffer's owner, and ended here alone.
    ended.then(|| unsafe { buffer_of(token, token.0, view) })
}

/// Claims the first tokens, at most [`RUN`], while they are plain pages of one directory row and this thread
/// may claim them without moving the bias. Passes each buffer to `to`; returns how many.
#[inline(always)]
pub(crate) fn claim_run(tokens: &[Token], to: impl FnMut(PageBuf)) -> usize {
    let Some(&first) = tokens.first().filter(|first| first.is(HandleKind::Page)) else { return 0 };
    let Ok(found) = directory::find(first) else { return 0 };
    let ended = |end: fn(&LifeWord, Token) -> bool| {
        let ends = |&&token: &&Token| {
            directory::in_one_row(first, token) && end(directory::word_beside(found, first, token), token)
        };
        tokens.iter().take(RUN).take_while(ends).count()
    };
    let done = match found.view.bias.load(Acquire) {
        bias::SHARED => ended(LifeWord::end_plain_together),
        _ => end_biased(found.view, || ended(LifeWord::end_plain)).unwrap_or(0),
    };
    // SAFETY: the lives that just ended were begun by the buffers' owners, and ended here alone.
    tokens[..done].iter().map(|&token| unsafe { buffer_of(token, token.0, found.view) }).for_each(to);
    done
}

/// The buffer of a token, in the life that `word` says.
///
/// # Safety
/// The buffer is out in that life, and the caller takes it over or never drops it.
#[inline(always)]
unsafe fn buffer_of(token: Token, word: u64, view: &PoolView) -> PageBuf {
    let (page, part) = if token.is(HandleKind::Frag) {
        (directory::entry(token.place()).page.load(Relaxed), word as u32)
    } else {
        (u64::from(view.page_of(token)), life_word::part_of_page(word, token))
    };
    // Not NULL: the pool has a buffer out.
    let core = NonNull::<c_void>::new(view.core.load(Relaxed)).unwrap_or(NonNull::dangling());
    // SAFETY: these are the words that the buffer was made of; the caller guarantees the rest.
    unsafe { PageBuf::from_token(core, u64::from(part) << 32 | page) }
}

/// Ends the life of a token. Returns the word before, if this caller ended that life.
#[inline(always)]
fn end_life(word: &LifeWord, view: &PoolView, token: Token) -> Option<u64> {
    loop {
        if view.bias.load(Acquire) == bias::SHARED {
            return word.end(token);
        }
        if let Some(ended) = end_biased(view, || word.end_alone(token)) {
            return ended;
        }
        if !life_word::is_in(word.now(), token) {
            return None; // a stale token must not take the bias
        }
        take_bias(word, view, token);
    }
}

/// Ends lives with plain operations, if this thread has the bias.
#[inline(always)]
fn end_biased<R>(view: &PoolView, end: impl FnOnce() -> R) -> Option<R> {
    let mine = mark_of(view);
    let begun = bias::begin(&view.bias, me(), mine, SEVERAL);
    let ended = begun.then(end);
    if begun {
        bias::take_back(mine);
    }
    ended
}

/// The mark that the calling thread uses if it has the bias.
#[inline(always)]
fn mark_of(view: &PoolView) -> &AtomicU64 {
    if view.is_mine() { &view.returning } else { &view.away.returning }
}

/// Biases the pool to this thread instead of its owner, or to none.
///
/// Wait   until the thread that has the bias has finished its current return, some ten instructions, or 64
///        times as many in bulk; and for another thread that moves the bias. A waiter sleeps 50 microseconds
///        at every 1024th pause, so that a waiter with real-time priority lets a thread on its CPU run. The
///        wait ends when that thread has run those instructions.
#[cold]
fn take_bias(word: &LifeWord, view: &PoolView, token: Token) {
    let marks = [&view.returning, &view.away.returning];
    let words = BiasWords { holder: &view.bias, limit: &view.limit, marks, owner: &view.owner };
    bias::take(&words, me(), &mut WantedLife { word, view, token, backoff: Backoff::default() });
}

struct WantedLife<'a> {
    word: &'a LifeWord,
    view: &'a PoolView,
    token: Token,
    backoff: Backoff,
}

impl Wanted for WantedLife<'_> {
    fn is_there(&self) -> bool {
        life_word::is_in(self.word.now(), self.token)
    }

    fn is_over(&self, token: u64) -> bool {
        let page = self.view.page_of(Token(token));
        !self.view.has(page) || self.view.word(page).now() != token
    }

    fn prepare(&self) {
        self.view.begin_apart();
    }

    fn pause(&mut self) {
        self.backoff.pause();
    }
}

/// Returns a whole page of the pool that this thread bound last into the cache, if this thread is the owner
/// and has the bias. Otherwise changes nothing and returns false.
#[inline(always)]
pub(crate) fn put_here(token: Token) -> bool {
    let me = me();
    put_into(PoolView::hint(me), token, me)
}

#[inline(always)]
pub(crate) fn put(token: Token) -> CallResult<()> {
    let found = directory::find(token)?;
    if !put_into(found.view, token, me()) {
        drop(claim_at(found, token)?.keep());
    }
    Ok(())
}

/// Returns the first tokens into the cache of their pool while they are its whole pages, if this thread is
/// the owner and has the bias; returns how many.
#[inline(always)]
pub(crate) fn put_run(tokens: &[Token]) -> usize {
    let (me, Some(&first)) = (me(), tokens.first()) else { return 0 };
    let hint = PoolView::hint(me);
    let found = || directory::find(first).map_or(hint, |found| found.view);
    let view = if hint.has(hint.page_of(first)) { hint } else { found() };
    if view.owner.load(Relaxed) != me {
        return 0;
    }
    end_biased(view, || view.put_run(tokens)).unwrap_or(0)
}

#[inline(always)]
fn put_into(view: &PoolView, token: Token, me: u64) -> bool {
    let page = view.page_of(token);
    if !view.has(page) || view.owner.load(Relaxed) != me {
        return false;
    }
    let begun = bias::begin(&view.bias, me, &view.returning, token.0);
    let done = begun && view.put(page, token);
    if begun && !done {
        bias::take_back(&view.returning);
    }
    done
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
        let Self { buffer, token, word, view } = self;
        match to(buffer) {
            Ok(taken) => {
                // The taker keeps the pool alive, until this caller passes the result on.
                end_token(token, view);
                Ok(taken)
            }
            Err((buffer, error)) => {
                Self { buffer, token, word, view }.put_back();
                Err(error)
            }
        }
    }

    /// Makes the token name the buffer again, as it is now.
    pub(crate) fn put_back(self) {
        let (_, place) = self.buffer.into_token();
        self.word.resume(self.token, (place >> 32) as u32);
    }
}

pub(crate) fn change<R>(token: Token, change: impl FnOnce(&mut PageBuf) -> R) -> CallResult<R> {
    let mut claimed = claim(token)?;
    let done = change(&mut claimed.buffer);
    claimed.put_back();
    Ok(done)
}

/// Reads the buffer of a token that the caller holds. If another thread returns it during the call, the
/// result means nothing.
#[inline(always)]
pub(crate) fn read<R>(token: Token, read: impl FnOnce(&PageBuf) -> R) -> CallResult<R> {
    let BufPlace { word, view, .. } = directory::find(token)?;
    let now = word.now();
    if !life_word::is_in(now, token) {
        return Err(CallError::STALE);
    }
    // SAFETY: the token was given out, and its life has not ended. The value made here is never dropped; the
    // caller keeps its own.
    let buffer = ManuallyDrop::new(unsafe { buffer_of(token, now, view) });
    Ok(read(&buffer))
}

#[cfg(test)]
mod tests {
    use std::thread;

    use ::pagepool::{Arena, ArenaParams, Pool, PoolParams};

    use super::*;
    use crate::handles::owner::{enter, page_token};
    use crate::handles::{binding, slots};

    fn new_pool() -> Token {
        let arena = Arena::new(ArenaParams { max_bytes: 4 << 20, ..Default::default() }).unwrap();
        let pool = Pool::new(PoolParams::default(), arena).unwrap();
        let pool = slots::insert(pool, 1024, 0).unwrap();
        binding::bind(pool).unwrap();
        pool
    }

    fn alloc(pool: Token) -> Token {
        enter(pool, |owned| owned.token_for(owned.bound.alloc_page().unwrap())).unwrap()
    }

    fn elsewhere<R: Send>(work: impl FnOnce() -> R + Send) -> R {
        thread::scope(|threads| threads.spawn(work).join().unwrap())
    }

    fn holder(pool: Token) -> u64 {
        slots::view(pool).unwrap().bias.load(Relaxed)
    }

    #[test]
    fn the_bias_moves_to_one_other_thread_and_then_is_shared() {
        let pool = new_pool();
        let view = slots::view(pool).unwrap();
        put(alloc(pool)).unwrap();
        assert!(holder(pool) == me() && view.limit.load(Relaxed) != 0);
        let pages = [alloc(pool), alloc(pool), alloc(pool)];
        elsewhere(|| {
            for page in pages {
                put(page).unwrap();
                assert!(holder(pool) == me() && view.limit.load(Relaxed) == 0);
                assert!(put(page).is_err(), "it has returned");
            }
        });
        assert!(pages.into_iter().all(|page| put(page).is_err()), "they have returned");
        assert_ne!(holder(pool), bias::SHARED, "a stale token takes nothing");
        put(alloc(pool)).unwrap();
        assert_eq!(holder(pool), bias::SHARED);
        binding::destroy(pool).unwrap();
    }

    #[test]
    fn a_thread_that_took_the_bias_over_has_it_as_the_owner() {
        let pool = new_pool();
        let page = alloc(pool);
        binding::unbind(pool).unwrap();
        binding::bind(pool).unwrap();
        let view = slots::view(pool).unwrap();
        thread::scope(|threads| {
            let (unbound, is_unbound) = std::sync::mpsc::channel();
            let (returned, has_returned) = std::sync::mpsc::channel();
            threads.spawn(move || {
                put(page).unwrap();
                returned.send(()).unwrap();
                is_unbound.recv().unwrap();
                binding::bind(pool).unwrap();
                assert!(holder(pool) == me() && view.limit.load(Relaxed) != 0);
                put(alloc(pool)).unwrap();
                assert_eq!(holder(pool), me());
                binding::destroy(pool).unwrap();
            });
            has_returned.recv().unwrap();
            binding::unbind(pool).unwrap();
            unbound.send(()).unwrap();
        });
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
                // Whether these two may claim depends on who returned the last ones.
                let run = || put_all(&pages[claim_run(&pages, drop)..]);
                let plain = |page: Token| claim_plain(page).map_or_else(|| put_all(&[page]), drop);
                match round % 4 {
                    0 => put_all(&pages),
                    1 => elsewhere(|| put_all(&pages)),
                    2 => elsewhere(run),
                    _ => elsewhere(|| pages.into_iter().for_each(plain)),
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
