//! Taking a buffer out of its token, once.
//!
//! How    whoever changes the word of a life from its token to that of the next one has the buffer. While only
//!        the owner returns buffers of a pool it does that with plain operations: the pool is biased to it.
//!        The first thread that returns one elsewhere ends that for good, and from then on everybody uses a
//!        compare-and-swap.
//! Bias   [`BIAS_FREE`] (0): nobody was biased since the pool was made or unbound. A thread: it owns the pool
//!        and is biased. [`BIAS_ENDING`]: somebody is ending it. [`BIAS_SHARED`]: everybody uses the
//!        compare-and-swap.
//! Mark   `returning` says which return the owner is in. Of one buffer it is the token, and nobody takes it
//!        back: it is over when the word is another. [`SEVERAL`] is taken back, and so is any mark of an owner
//!        that finds no bias.
//! Pairs  the owner: mark, compiler fence, bias, word. Who ends it: bias, fence_all_threads, mark. Either the
//!        owner sees that it is not biased any more, or its mark is seen, and waited for: a stale token's is
//!        over at once, as the owner finds another word, too. The inline functions look at `limit`, which is 0
//!        without a bias, in place of the bias: one comparison for both that and the room in the cache.
//! Cost   the owner of a biased pool: five plain stores, no atomic operation; in bulk two and their share of
//!        the others. Others: one compare-and-swap, and once in a pool's life about 1,600 cycles. The owner
//!        of a pool that others return to: one compare-and-swap.

// UNSAFETY: buffers are made from the words that stand behind their tokens.
#![expect(unsafe_code)]

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::atomic::{Ordering::*, compiler_fence};

use ::pagepool::{Backoff, PageBuf, fence_all_threads};

use crate::error::{CallError, CallResult};
use crate::handles::directory::{self, BufPlace};
use crate::handles::life_word::{self, LifeWord};
use crate::handles::owner::frag_over;
use crate::handles::thread::me;
use crate::handles::token::{HandleKind, Token};
use crate::handles::view::{BIAS_ENDING, BIAS_FREE, BIAS_SHARED, PoolView, SEVERAL};

/// A buffer that was taken out of its token: the caller's alone.
pub(crate) struct Claimed {
    pub(crate) buffer: PageBuf,
    token: Token,
    word: &'static LifeWord,
    view: &'static PoolView,
}

/// Takes the buffer of a token; everybody else who has the token is refused from now on.
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

/// Claims the first of these one after the other while they are plain pages of one row of a pool that is not
/// biased, and gives each to `to`; says how many.
#[inline(always)]
pub(crate) fn claim_run(tokens: &[Token], mut to: impl FnMut(PageBuf)) -> usize {
    let Some(&first) = tokens.first().filter(|first| first.is(HandleKind::Page)) else { return 0 };
    let Ok(found) = directory::find(first) else { return 0 };
    if found.view.bias.load(Acquire) != BIAS_SHARED {
        return 0; // pairs with end_bias()
    }
    for (at, &token) in tokens.iter().enumerate() {
        if !directory::in_one_row(first, token)
            || !directory::word_beside(found, first, token).end_plain_together(token)
        {
            return at;
        }
        // SAFETY: the life that just ended was begun by the buffer's owner, and ended here alone.
        to(unsafe { buffer_of(token, token.0, found.view) });
    }
    tokens.len()
}

/// The buffer that a token stands for, in the life that `word` says.
///
/// # Safety
/// It is out in that life, and the caller takes it over, or never drops it.
#[inline(always)]
unsafe fn buffer_of(token: Token, word: u64, view: &PoolView) -> PageBuf {
    let (page, part) = if token.is(HandleKind::Frag) {
        (directory::entry(token.place()).page.load(Relaxed), word as u32)
    } else {
        (u64::from(view.page_of(token)), life_word::part_of_page(word, token))
    };
    // The address is that of a pool that has a buffer out.
    let home = NonNull::<c_void>::new(view.home.load(Relaxed)).unwrap_or(NonNull::dangling());
    // SAFETY: these are the words that the buffer was made of; the caller answers for the rest.
    unsafe { PageBuf::from_token(home, u64::from(part) << 32 | page) }
}

/// Ends a life; gives what its word was if it was that life, and this caller who ended it.
#[inline(always)]
fn end_life(word: &LifeWord, view: &PoolView, token: Token) -> Option<u64> {
    let shared = view.bias.load(Acquire) == BIAS_SHARED; // pairs with end_bias()
    if shared && token.is(HandleKind::Page) && word.end_plain_together(token) {
        return Some(token.0);
    }
    if view.bias.load(Relaxed) == me() {
        mark(view, SEVERAL);
        let biased = view.bias.load(Relaxed) == me();
        let ended = if biased { word.end_alone(token) } else { None };
        mark(view, 0);
        if biased {
            return ended;
        }
    }
    if !life_word::is_in(word.now(), token) {
        return None; // a stale token must not end a bias
    }
    if view.bias.load(Acquire) != BIAS_SHARED {
        end_bias(view);
    }
    word.end(token)
}

/// Says that the owner's thread is in a return, before it looks whether it may use plain operations; 0 when it
/// is over.
#[inline(always)]
fn mark(view: &PoolView, mark: u64) {
    view.returning.store(mark, Release); // pairs with end_bias()
    compiler_fence(SeqCst);
}

/// Whether the owner is in a return by plain operations.
fn is_returning(view: &PoolView) -> bool {
    match view.returning.load(Acquire) {
        0 => false,
        SEVERAL => true,
        token => {
            let page = view.page_of(Token(token));
            view.has(page) && view.word(page).now() == token
        }
    }
}

/// Makes sure that nobody uses plain operations any more.
///
/// Wait   for the owner to finish the return that it is in, some ten instructions, or 64 times as many in
///        bulk; and for another thread that waits for that. A waiter sleeps 50 microseconds after 1024 pauses, so that one with real-time
///        priority lets an owner run that shares its CPU. The wait ends when the owner has had the CPU for
///        those instructions.
#[cold]
fn end_bias(view: &PoolView) {
    let mut backoff = Backoff::default();
    loop {
        match view.bias.load(Acquire) {
            BIAS_SHARED => return,
            BIAS_ENDING => backoff.pause(),
            bias => {
                if view.bias.compare_exchange(bias, BIAS_ENDING, AcqRel, Relaxed).is_err() {
                    continue;
                }
                view.limit.store(0, Relaxed);
                if bias != BIAS_FREE && bias != me() {
                    fence_all_threads(); // pairs with mark()
                    while is_returning(view) {
                        backoff.pause();
                    }
                }
                view.bias.store(BIAS_SHARED, Release);
            }
        }
    }
}

/// A whole page of the pool that this thread bound last goes into the cache, if this thread is the biased
/// owner; says whether it did. Nothing happened if not.
#[inline(always)]
pub(crate) fn put_here(token: Token) -> bool {
    let me = me();
    put_into(PoolView::hint(me), token, me)
}

/// Returns any buffer.
#[inline(always)]
pub(crate) fn put(token: Token) -> CallResult<()> {
    let found = directory::find(token)?;
    if !put_into(found.view, token, me()) {
        drop(claim_at(found, token)?.keep());
    }
    Ok(())
}

/// The first of these go into the cache of their pool together, if this thread is its biased owner, while
/// they are its whole pages; says how many.
#[inline(always)]
pub(crate) fn put_run(tokens: &[Token]) -> usize {
    let (me, Some(&first)) = (me(), tokens.first()) else { return 0 };
    let hint = PoolView::hint(me);
    let found = || directory::find(first).map_or(hint, |found| found.view);
    let view = if hint.has(hint.page_of(first)) { hint } else { found() };
    if view.bias.load(Relaxed) != me {
        return 0;
    }
    mark(view, SEVERAL);
    let done = if view.bias.load(Relaxed) == me { view.put_run(tokens) } else { 0 };
    mark(view, 0);
    done
}

#[inline(always)]
fn put_into(view: &PoolView, token: Token, me: u64) -> bool {
    let page = view.page_of(token);
    if !view.has(page) || view.bias.load(Relaxed) != me {
        return false;
    }
    mark(view, token.0);
    let done = view.bias.load(Relaxed) == me && view.put(page, token);
    if !done {
        mark(view, 0);
    }
    done
}

/// The token of a buffer that was kept is over: a fragment's place is free for another.
fn end_token(token: Token, view: &PoolView) {
    if token.is(HandleKind::Frag) {
        frag_over(view, token.place());
    }
}

impl Claimed {
    /// Where its pool is.
    pub(crate) fn view(&self) -> &'static PoolView {
        self.view
    }

    /// Keeps the buffer, for good: its token is over.
    pub(crate) fn keep(self) -> PageBuf {
        end_token(self.token, self.view);
        self.buffer
    }

    /// Gives the buffer to somebody; where they refuse it, it is behind its token again.
    pub(crate) fn give<T>(
        self,
        to: impl FnOnce(PageBuf) -> Result<T, (PageBuf, CallError)>,
    ) -> CallResult<T> {
        let Self { buffer, token, word, view } = self;
        match to(buffer) {
            Ok(taken) => {
                // Whoever took it keeps the pool, until this caller hands that on.
                end_token(token, view);
                Ok(taken)
            }
            Err((buffer, error)) => {
                Self { buffer, token, word, view }.put_back();
                Err(error)
            }
        }
    }

    /// Puts the buffer back behind its token, as it is now.
    pub(crate) fn put_back(self) {
        let (_, place) = self.buffer.into_token();
        self.word.resume(self.token, (place >> 32) as u32);
    }
}

/// Changes the buffer of a token, which stays the caller's.
pub(crate) fn change<R>(token: Token, change: impl FnOnce(&mut PageBuf) -> R) -> CallResult<R> {
    let mut claimed = claim(token)?;
    let done = change(&mut claimed.buffer);
    claimed.put_back();
    Ok(done)
}

/// Looks at the buffer of a token, which whoever calls has: if somebody else returns it meanwhile the answer
/// means nothing.
#[inline(always)]
pub(crate) fn look<R>(token: Token, look: impl FnOnce(&PageBuf) -> R) -> CallResult<R> {
    let BufPlace { word, view, .. } = directory::find(token)?;
    let now = word.now();
    if !life_word::is_in(now, token) {
        return Err(CallError::STALE);
    }
    // SAFETY: the token's buffer is out; what is made here is never dropped, and the caller keeps its own.
    let buffer = ManuallyDrop::new(unsafe { buffer_of(token, now, view) });
    Ok(look(&buffer))
}
