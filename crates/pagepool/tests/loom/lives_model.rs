//! Handles that are numbers: threads return the same buffers, or take them for other uses, and each life ends
//! once. The real table, lanes and pools; around them, in a few lines, what the C interface does.

// UNSAFETY: buffers are made from page numbers, as the C interface makes them; tables live as long as a run.
#![expect(unsafe_code)]

use std::sync::Arc;

use loom::sync::atomic::{AtomicU64, Ordering::Relaxed};
use loom::thread;
use pagepool::{
    Bound, LifeLane, LifeTable, MayHaveRefs, PageBuf, PageLife, Pool, PoolParams, PoolRef, Sent, next_life,
};
use pagepool_testing::PlainMemory;

use super::scene::{Scene, explore, small};

const LIFE: u64 = 7 << 32 | 1;

/// A pool of one page, which is out in its first life.
struct Numbered {
    table: &'static LifeTable,
    /// The table, and its words.
    made: (*mut LifeTable, *mut [AtomicU64; 2]),
    scene: Scene,
}

// SAFETY: the addresses are freed by the last thread.
unsafe impl Send for Numbered {}
// SAFETY: the addresses are not used before.
unsafe impl Sync for Numbered {}

/// The core of a pool and the page, as the C interface's tables have them.
#[derive(Clone)]
struct Handle {
    table: &'static LifeTable,
    pool: PoolRef,
    page: u32,
}

fn numbered(params: PoolParams) -> (Numbered, Bound, Handle) {
    let words = Box::into_raw(Box::new([0; 2].map(|_| AtomicU64::new(0))));
    let made = Box::into_raw(Box::new(LifeTable::none()));
    // SAFETY: freed at the end of the model.
    let table: &'static LifeTable = unsafe { &*made };
    let first = words.cast::<AtomicU64>();
    table.begin(first, first.wrapping_add(1), 1);
    let memory = PlainMemory::new(1, params.order).unwrap();
    let pool = Pool::with_lives(params, memory.clone(), table).unwrap().bind();
    table.bind(1);
    let scene = Scene { memory, pages: 1, handle: pool.handle() };
    let (page, refs) = (pool.alloc_page().unwrap().into_token().1 as u32, MayHaveRefs(false));
    assert_eq!(table.page(page).begin(refs, || LIFE), LIFE);
    let handle = Handle { table, pool: pool.handle(), page };
    (Numbered { table, made: (made, words), scene }, pool, handle)
}

impl Numbered {
    /// No life has the page: it returned once, in whatever order.
    fn end(self, pool: Option<Bound>) {
        if let Some(pool) = pool {
            self.table.unbind();
            self.scene.destroy(pool);
        }
        assert_eq!(self.table.page(0).life.load(Relaxed), next_life(LIFE));
        // SAFETY: every other thread has ended.
        drop(unsafe { (Box::from_raw(self.made.0), Box::from_raw(self.made.1)) });
    }
}

impl Handle {
    fn words(&self) -> PageLife {
        self.table.page(self.page)
    }

    /// The buffer, whose life this thread ended.
    fn buffer(&self) -> PageBuf {
        // SAFETY: I1. The life ended once, on this thread.
        unsafe { PageBuf::from_token(self.pool.token(), self.page.into()) }
    }

    /// A return by the owner; says whether it ended the life.
    fn put_here(&self) -> bool {
        self.put_here_in(LIFE)
    }

    fn put_here_in(&self, life: u64) -> bool {
        let ended = self.table.owned(|| self.words().end_plain(life));
        if ended {
            drop(self.buffer());
        }
        ended
    }

    /// A return elsewhere; says whether it was refused at once.
    fn put_there(&self) -> bool {
        self.put_life(LIFE)
    }

    fn put_life(&self, life: u64) -> bool {
        // SAFETY: it is used before the thread returns to another pool.
        let lane = unsafe { LifeLane::at_hand(|| Some(((), self.pool.lane_key()))) };
        let refused = !PageLife::leave(self.words().out, life);
        let half = (life >> 32) as u32;
        let sent = |lane: LifeLane<'_>| lane.send_each(&[self.page], |&page| (page, half));
        match lane.filter(|_| !refused).map(|((), lane)| (sent(lane), lane)) {
            _ if refused => {}
            None | Some((Sent::Some(0), _)) => self.pool.put_life(self.page, half),
            Some((Sent::Some(_), _)) => {}
            Some((Sent::Late(_), lane)) => self.pool.take_late(lane),
        }
        refused
    }

    /// The buffer for another use.
    fn claim(&self) -> Option<PageBuf> {
        self.table.claim(self.words(), LIFE).map(|_| self.buffer())
    }

    /// For the owner: the buffer for another use.
    fn claim_here(&self) -> Option<PageBuf> {
        self.table.owned(|| self.words().end(LIFE)).map(|_| self.buffer())
    }
}

/// What a thread does with the handle.
type Deed = fn(&Handle);

const PUT: Deed = |handle| {
    handle.put_there();
};
const PUT_TWICE: Deed = |handle| {
    handle.put_there();
    assert!(handle.put_there(), "the second of two returns");
};
const CLAIM: Deed = |handle| drop(handle.claim());

/// The owner's and other threads' deeds; then the owner finds the page, once.
fn race(name: &str, bound: usize, lanes: usize, own: fn(&Handle), others: &'static [Deed]) {
    explore(name, bound, move || {
        let (numbered, pool, handle) = numbered(small(lanes, 1));
        let threads: Vec<_> = others
            .iter()
            .map(|&deed| {
                let handle = handle.clone();
                thread::spawn(move || deed(&handle))
            })
            .collect();
        own(&handle);
        let early = pool.alloc_page();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let late = pool.alloc_page();
        assert!(early.is_none() || late.is_none(), "the page was given out twice");
        drop((early, late));
        let again = pool.alloc_page().expect("the page returned");
        assert!(pool.alloc_page().is_none(), "the page was given out twice");
        drop((again, handle));
        numbered.end(Some(pool));
    });
}

const PUT_HERE: fn(&Handle) = |handle| {
    handle.put_here();
};
const CLAIM_HERE: fn(&Handle) = |handle| drop(handle.claim_here());

#[test]
fn owner_and_thread_return_one_life() {
    race("lives/owner and lane", 3, 1, PUT_HERE, &[PUT]);
    race("lives/owner and ring", 3, 0, PUT_HERE, &[PUT]);
    race("lives/owner and twice", 3, 1, PUT_HERE, &[PUT_TWICE]);
}

#[test]
fn two_threads_return_one_life() {
    race("lives/two lanes", 2, 2, |_| (), &[PUT, PUT]);
    race("lives/lane and ring", 2, 1, |_| (), &[PUT, PUT]);
}

#[test]
fn a_claim_against_returns_of_one_life() {
    race("lives/owner and claim", 3, 1, PUT_HERE, &[CLAIM]);
    race("lives/claims", 3, 1, CLAIM_HERE, &[CLAIM]);
    race("lives/claim here", 3, 1, CLAIM_HERE, &[PUT]);
    race("lives/claim and lane", 2, 2, |_| (), &[CLAIM, PUT]);
}

/// The pool ends while its last page returns twice. A reference to the pool keeps its memory.
fn twice_against_destroy(name: &str, lanes: usize, deeds: [Deed; 2]) {
    explore(name, 2, move || {
        let (numbered, pool, handle) = numbered(small(lanes, 1));
        let threads = deeds.map(|deed| {
            let handle = handle.clone();
            thread::spawn(move || deed(&handle))
        });
        numbered.table.unbind();
        let shutdown = pool.destroy();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        numbered.scene.ended(&shutdown);
        drop(handle);
        numbered.end(None);
    });
}

#[test]
fn a_life_returns_twice_while_the_pool_ends() {
    twice_against_destroy("lives/late lanes", 2, [PUT, PUT]);
    twice_against_destroy("lives/late ring", 0, [PUT, PUT]);
    twice_against_destroy("lives/late claim", 1, [PUT, CLAIM]);
}

/// The owner takes a life, and its next one, while a thread fills the lane's next lap.
#[test]
fn lives_follow_each_other_through_a_lane() {
    explore("lives/laps", 2, || {
        let (numbered, pool, handle) = numbered(small(1, 0));
        let shared = Arc::new(AtomicU64::new(0));
        let (theirs, other) = (shared.clone(), handle.clone());
        let returner = thread::spawn(move || {
            other.put_there();
            let life = theirs.load(loom::sync::atomic::Ordering::Acquire);
            assert!(life == 0 || !other.put_life(life), "the next life is out");
        });
        let found = pool.alloc_page().map(PageBuf::into_token);
        if found.is_some() {
            shared.store(next_life(LIFE), loom::sync::atomic::Ordering::Release);
        }
        returner.join().unwrap();
        if found.is_none() {
            drop(pool.alloc_page().expect("the page returned"));
        } else if pool.alloc_page().is_none() {
            assert!(handle.put_here_in(next_life(LIFE)), "the second life did not return");
        }
        numbered.table.page(0).life.store(next_life(LIFE), Relaxed);
        drop(handle);
        numbered.end(Some(pool));
    });
}
