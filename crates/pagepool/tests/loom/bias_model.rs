//! The bias of the C interface's pools: threads return the same buffers, by plain operations where they may.
//!
//! `bias` is the file of the library. Around it stands what its `claim` and the inline functions of the
//! header do with one word of a life, in a few lines.

use std::sync::Arc;

use loom::sync::atomic::{AtomicU64, Ordering::*};
use loom::thread;

use super::explore_to;

#[path = "../../../pagepool-capi/src/handles/claim/bias.rs"]
mod bias;

use bias::{BiasWords, SEVERAL, SHARED, Wanted};

/// Threads; the first is the owner.
const OWNER: u64 = 10;
const OTHER: u64 = 12;
const THIRD: u64 = 14;

/// A pool of two buffers, 4 and 5. A buffer's word is its number until its life ends.
struct BiasedPool {
    holder: AtomicU64,
    limit: AtomicU64,
    owner: AtomicU64,
    marks: [AtomicU64; 2],
    words: [AtomicU64; 2],
    /// Not part of the model.
    waits: std::sync::atomic::AtomicU32,
}

const MOST_WAITS: u32 = 2;

const FIRST: u64 = 4;
const ENDED: u64 = 99;

impl BiasedPool {
    fn new() -> Arc<Self> {
        let zero = || AtomicU64::new(0);
        let words = std::array::from_fn(|at| AtomicU64::new(FIRST + at as u64));
        let (holder, owner) = (AtomicU64::new(OWNER), AtomicU64::new(OWNER));
        Arc::new(Self {
            holder,
            limit: AtomicU64::new(8),
            owner,
            marks: [zero(), zero()],
            words,
            waits: 0.into(),
        })
    }

    fn word(&self, token: u64) -> &AtomicU64 {
        &self.words[(token - FIRST) as usize]
    }

    fn mark_of(&self, me: u64) -> &AtomicU64 {
        &self.marks[usize::from(me != OWNER)]
    }

    /// Not one operation: a load and a store.
    fn end_plain(&self, token: u64) -> bool {
        let same = self.word(token).load(Relaxed) == token;
        if same {
            self.word(token).store(ENDED, Relaxed);
        }
        same
    }

    /// As the library: with the token as mark, like `claim::put_into`; with [`SEVERAL`], like
    /// `claim::end_life` and a bulk.
    fn put(&self, me: u64, token: u64, several: bool) -> u64 {
        let mine = self.mark_of(me);
        loop {
            if self.holder.load(Acquire) == SHARED {
                return self.word(token).compare_exchange(token, ENDED, AcqRel, Relaxed).is_ok().into();
            }
            if bias::begin(&self.holder, me, mine, if several { SEVERAL } else { token }) {
                let ended = self.end_plain(token);
                if several || !ended {
                    bias::take_back(mine);
                }
                return ended.into();
            }
            if self.word(token).load(Acquire) != token {
                return 0;
            }
            let (marks, owner) = ([&self.marks[0], &self.marks[1]], &self.owner);
            let words = BiasWords { holder: &self.holder, limit: &self.limit, marks, owner };
            bias::take(&words, me, &mut WantedToken { pool: self, token });
        }
    }

    /// Lets others run. Nothing new is tried in a run that has waited [`MOST_WAITS`] times: a wait for a
    /// thread that waits for a third one would be tried for ever.
    fn pause(&self) {
        if self.waits.fetch_add(1, std::sync::atomic::Ordering::Relaxed) >= MOST_WAITS {
            loom::skip_branch();
        }
        thread::yield_now();
    }

    /// As the header's inline functions on the owner's thread, which look at the limit.
    fn put_inline(&self, token: u64) -> u64 {
        let mine = &self.marks[0];
        mine.store(token, Release);
        pagepool::fence_all_threads(); // a compiler fence in the header
        if self.limit.load(Relaxed) != 0 && self.end_plain(token) {
            return 1;
        }
        bias::take_back(mine);
        self.put(OWNER, token, false)
    }
}

struct WantedToken<'a> {
    pool: &'a BiasedPool,
    token: u64,
}

impl Wanted for WantedToken<'_> {
    fn is_there(&self) -> bool {
        !self.is_over(self.token)
    }

    fn is_over(&self, token: u64) -> bool {
        self.pool.word(token).load(Acquire) != token
    }

    fn prepare(&self) {}

    fn pause(&mut self) {
        self.pool.pause();
    }
}

/// What a thread does; it says how many lives its returns ended.
type Putting = fn(&BiasedPool) -> u64;

/// Threads end lives, each of which ends once. Three threads with a bound of 3 take two minutes.
fn race(name: &str, bound: usize, lives: u64, own: Putting, others: &'static [Putting]) {
    explore_to(name, bound, move || {
        let pool = BiasedPool::new();
        let start = |work: &Putting| {
            let (pool, work) = (pool.clone(), *work);
            thread::spawn(move || work(&pool))
        };
        let threads: Vec<_> = others.iter().map(start).collect();
        let own = own(&pool);
        let all: u64 = own + threads.into_iter().map(|thread| thread.join().unwrap()).sum::<u64>();
        assert_eq!(all, lives, "lives that ended, where there were {lives}");
    });
}

#[test]
fn one_life_ends_once() {
    race("bias one life", 3, 1, |pool| pool.put(OWNER, 4, false), &[|pool| pool.put(OTHER, 4, false)]);
    race("bias one life inline", 3, 1, |pool| pool.put_inline(4), &[|pool| pool.put(OTHER, 4, false)]);
    race("bias one life in bulk", 3, 1, |pool| pool.put(OWNER, 4, true), &[|pool| pool.put(OTHER, 4, true)]);
}

#[test]
fn one_life_ends_once_among_three_threads() {
    const OTHERS: [Putting; 2] = [|pool| pool.put(OTHER, 4, false), |pool| pool.put(THIRD, 4, true)];
    race("bias three threads", 2, 1, |pool| pool.put_inline(4), &OTHERS);
}

#[test]
fn two_lives_end_once_each_whatever_their_order() {
    const OTHERS: [Putting; 1] = [|pool| pool.put(OTHER, 5, false) + pool.put(OTHER, 4, false)];
    race("bias two lives", 3, 2, |pool| pool.put_inline(4) + pool.put_inline(5), &OTHERS);
}

/// A mark of a return that was refused does not hide the one before it.
#[test]
fn a_stale_token_behind_a_live_one_hides_nothing() {
    const OTHERS: [Putting; 1] = [|pool| pool.put(OTHER, 4, false)];
    let twice = |pool: &BiasedPool| pool.put(OWNER, 4, false) + pool.put(OWNER, 4, false);
    race("bias stale", 3, 1, twice, &OTHERS);
}

/// The thread that took over returns others while a third one asks.
#[test]
fn a_third_thread_waits_for_the_one_that_took_over() {
    const OTHERS: [Putting; 2] =
        [|pool| pool.put(OTHER, 4, true) + pool.put(OTHER, 5, false), |pool| pool.put(THIRD, 5, false)];
    race("bias taken over", 2, 2, |pool| pool.put_inline(4), &OTHERS);
}
