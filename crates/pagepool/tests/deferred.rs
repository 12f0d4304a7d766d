//! Deferred buffers, whose user only answers whether they are still in use: every strategy, every counter,
//! users that misbehave, and the end of a pool while some are in use.

// UNSAFETY: a reader looks at the bytes of a deferred page by address, which is what deferring is for.
#![expect(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use pagepool::{
    Bound, DeferredStats, DeferredUser, InUse, OnBusy, PageIdx, Pool, PoolParams, PoolRef, Shutdown,
    UseCounts,
};
use pagepool_testing::PlainMemory;

/// Uses what the test says, and records the cookies that it was polled for.
#[derive(Default)]
struct UseSet {
    busy: Mutex<BTreeSet<u64>>,
    polled: Mutex<Vec<u64>>,
    refreshed: AtomicUsize,
}

impl UseSet {
    fn uses(cookies: impl IntoIterator<Item = u64>) -> Arc<Self> {
        let set = Self::default();
        set.busy.lock().unwrap().extend(cookies);
        Arc::new(set)
    }

    fn done(&self, cookie: u64) {
        assert!(self.busy.lock().unwrap().remove(&cookie), "cookie {cookie} was in use");
    }

    fn all_done(&self) {
        self.busy.lock().unwrap().clear();
    }

    fn take_polled(&self) -> Vec<u64> {
        std::mem::take(&mut self.polled.lock().unwrap())
    }
}

impl InUse for UseSet {
    fn refresh(&self) {
        self.refreshed.fetch_add(1, Relaxed);
    }

    fn in_use(&self, cookie: u64) -> bool {
        self.polled.lock().unwrap().push(cookie);
        self.busy.lock().unwrap().contains(&cookie)
    }
}

fn params(defer_capacity: usize, on_busy: OnBusy) -> PoolParams {
    PoolParams { refill: 4, cache_size: 8, ring_size: 8, defer_capacity, on_busy, ..Default::default() }
}

fn pool(pages: usize, params: PoolParams) -> (Arc<PlainMemory>, Bound) {
    let memory = PlainMemory::new(pages, params.order).unwrap();
    let pool = Pool::new(params, memory.clone()).unwrap().bind();
    (memory, pool)
}

/// Queues `n` pages, with cookies from 0. They are allocated first, so that no refill polls any.
fn queue(pool: &Bound, user: &DeferredUser, n: u64) -> Vec<PageIdx> {
    let buffers: Vec<_> = (0..n).map(|_| pool.alloc_page().unwrap()).collect();
    let pages = buffers.iter().map(|buffer| buffer.page()).collect();
    (0..).zip(buffers).for_each(|(cookie, buffer)| pool.defer(user, buffer, cookie).unwrap());
    pages
}

/// Asserts every number: those not named are 0.
#[track_caller]
fn assert_deferred(stats: DeferredStats, expected: &[(&str, u64)]) {
    for (name, value) in stats.fields() {
        let wanted = expected.iter().find(|(n, _)| *n == name).map_or(0, |(_, v)| *v);
        assert_eq!(value, wanted, "{name} in {stats:?}");
    }
}

/// Nothing of the pool is anywhere but in its own places.
#[track_caller]
fn assert_returned(handle: &PoolRef) {
    let at = handle.inflight();
    assert_eq!((at.out, at.deferred), (0, 0), "{at:?}");
    assert_eq!(at.total as u64, at.cache + at.lanes + at.ring + at.frag, "{at:?}");
}

// ---- Strategies ---------------------------------------------------------------------------------

#[test]
fn keep_stops_at_the_head_and_keeps_the_order() {
    let (_, pool) = pool(16, params(8, OnBusy::Keep));
    let set = UseSet::uses([0, 3]);
    let user = pool.deferred_user(set.clone()).unwrap();
    queue(&pool, &user, 6);
    assert_eq!(pool.inflight().deferred, 6);
    assert_eq!((pool.poll_deferred(), set.take_polled()), (0, vec![0]));
    set.done(0);
    assert_eq!((pool.poll_deferred(), set.take_polled()), (3, vec![0, 1, 2, 3]));
    set.done(3);
    assert_eq!((pool.poll_deferred(), set.take_polled()), (3, vec![3, 4, 5]));
    let expected = [("queued", 6), ("reused", 6), ("kept", 2), ("polls", 3)];
    assert_deferred(pool.deferred_stats(), &expected);
    assert_returned(&pool.handle());
}

#[test]
fn skip_looks_past_as_many_as_it_may_and_they_keep_their_places() {
    let (_, pool) = pool(16, params(8, OnBusy::Skip { ahead: 2 }));
    let set = UseSet::uses([0, 2, 4]);
    let user = pool.deferred_user(set.clone()).unwrap();
    queue(&pool, &user, 7);
    assert_eq!(
        (pool.poll_deferred(), set.take_polled()),
        (2, vec![0, 1, 2, 3, 4]),
        "the third busy one ends it"
    );
    assert_deferred(
        pool.deferred_stats(),
        &[("queued", 7), ("reused", 2), ("skipped", 2), ("kept", 1), ("polls", 1)],
    );
    set.done(2);
    assert_eq!((pool.poll_deferred(), set.take_polled()), (3, vec![0, 2, 4, 5, 6]));
    set.all_done();
    assert_eq!((pool.poll_deferred(), set.take_polled()), (2, vec![0, 4]));
    assert_deferred(
        pool.deferred_stats(),
        &[("queued", 7), ("reused", 7), ("skipped", 4), ("kept", 1), ("polls", 3)],
    );
    assert_returned(&pool.handle());
}

#[test]
fn release_lets_one_head_a_round_go_and_its_memory_is_kept() {
    let (memory, pool) = pool(16, params(8, OnBusy::Release));
    let set = UseSet::uses([0, 1]);
    let user = pool.deferred_user(set.clone()).unwrap();
    let pages = queue(&pool, &user, 4);
    assert_eq!((pool.inflight().total, memory.free()), (4, 12));
    assert_eq!((pool.poll_deferred(), set.take_polled()), (0, vec![0, 1, 0]));
    assert_deferred(pool.deferred_stats(), &[("queued", 4), ("released", 1), ("kept", 1), ("polls", 1)]);
    let (at, stats) = (pool.inflight(), pool.stats());
    assert_eq!(
        (at.total, at.deferred, memory.free()),
        (3, 3, 12),
        "one left the pool, and is not the provider's"
    );
    assert_eq!((stats.recycle_released_refcnt, stats.release), (1, 1));
    set.done(1);
    assert_eq!(pool.poll_deferred(), 3, "those behind it are not held up");
    // The pool takes fresh memory, up to all there is but for that one page.
    let all: Vec<_> = std::iter::from_fn(|| pool.alloc_page()).collect();
    assert_eq!((all.len(), memory.free()), (15, 0));
    assert!(all.iter().all(|buffer| buffer.page() != pages[0]), "it is in use");
    set.done(0);
    assert_eq!((pool.poll_deferred(), memory.free()), (0, 1), "its memory went back, not its buffer");
    let waits = pool.deferred_stats();
    assert_eq!((waits.released, waits.freed_late, waits.pending()), (1, 1, 0));
    drop(all);
    assert_returned(&pool.handle());
}

#[test]
fn release_falls_back_to_keep_beyond_the_capacity() {
    let (memory, pool) = pool(16, params(2, OnBusy::Release));
    let set = UseSet::uses(0..8);
    let user = pool.deferred_user(set.clone()).unwrap();
    let mut refused = None;
    for cookie in 0..5 {
        refused = pool.defer(&user, pool.alloc_page().unwrap(), cookie).err();
        pool.poll_deferred();
    }
    assert!(refused.is_some(), "two wait, two are held");
    drop(refused);
    let waits = pool.deferred_stats();
    assert_eq!((waits.queued, waits.released, waits.full, waits.pending()), (4, 2, 1, 4));
    assert!(waits.kept > 0 && waits.freed_late == 0);
    set.all_done();
    assert_eq!(pool.poll_deferred(), 2);
    assert_eq!(pool.deferred_stats().freed_late, 2);
    assert_returned(&pool.handle());
    drop(pool);
    assert_eq!(memory.free(), 16);
}

// ---- Refills ------------------------------------------------------------------------------------

#[test]
fn a_refill_checks_as_many_deferred_buffers_as_it_would_add() {
    let (_, pool) = pool(64, params(32, OnBusy::Keep));
    let set = UseSet::uses([]);
    let user = pool.deferred_user(set.clone()).unwrap();
    queue(&pool, &user, 12);
    let before = pool.stats();
    let buffers: Vec<_> = (0..5).map(|_| pool.alloc_page().unwrap()).collect();
    let moved = pool.stats().since(&before);
    assert_eq!((set.take_polled(), set.refreshed.load(Relaxed)), ((0..8).collect(), 2), "four a refill");
    let counted =
        (moved.alloc_refill, moved.alloc_fast, moved.recycle_cached, moved.alloc_slow, moved.alloc_empty);
    assert_eq!(counted, (2, 3, 8, 0, 0));
    assert_deferred(pool.deferred_stats(), &[("queued", 12), ("reused", 8), ("polls", 2)]);
    drop(buffers);
}

#[test]
fn a_pool_can_live_on_deferred_pages_alone() {
    let (memory, pool) = pool(8, params(8, OnBusy::Keep));
    let set = UseSet::uses([]);
    let user = pool.deferred_user(set.clone()).unwrap();
    for cookie in 0..10_000 {
        set.busy.lock().unwrap().insert(cookie);
        pool.defer(&user, pool.alloc_page().unwrap(), cookie).unwrap();
        if cookie >= 3 {
            set.done(cookie - 3); // three in use at any allocation
        }
    }
    assert_eq!((pool.stats().alloc_failed, memory.free()), (0, 4), "with four pages");
    set.all_done();
    pool.poll_deferred();
    assert_returned(&pool.handle());
}

#[test]
fn a_full_queue_gives_the_buffer_back_and_so_does_another_pool() {
    let (_, mine) = pool(8, params(2, OnBusy::Keep));
    let (_, other) = pool(8, params(2, OnBusy::Keep));
    let (set, theirs) = (UseSet::uses(0..8), UseSet::uses([]));
    let (user, stranger) = (mine.deferred_user(set.clone()).unwrap(), other.deferred_user(theirs).unwrap());
    queue(&mine, &user, 2);
    let third = mine.alloc_page().unwrap();
    let page = third.page();
    let third = mine.defer(&user, third, 2).unwrap_err();
    assert_eq!((third.page(), mine.inflight().out), (page, 1));
    assert!(other.defer(&stranger, third, 2).is_err(), "a buffer of another pool");
    assert!(mine.defer(&stranger, mine.alloc_page().unwrap(), 2).is_err(), "a user of another pool");
    assert_deferred(mine.deferred_stats(), &[("queued", 2), ("full", 1)]);
    let (_, without) = pool(8, params(0, OnBusy::Keep));
    assert!(without.deferred_user(UseSet::uses([])).is_err());
    assert!(without.defer(&user, without.alloc_page().unwrap(), 0).is_err());
    assert_eq!((without.poll_deferred(), without.deferred_stats()), (0, DeferredStats::default()));
    set.all_done();
}

#[test]
fn parameters_are_checked_with_field_value_and_range() {
    let refused = |defer_capacity, on_busy| {
        let params = PoolParams { defer_capacity, on_busy, ..Default::default() };
        Pool::new(params, PlainMemory::new(4, 0).unwrap()).unwrap_err().to_string()
    };
    assert_eq!(refused(65537, OnBusy::Keep), "defer_capacity is 65537, but must be 0 to 65536");
    assert_eq!(refused(1, OnBusy::Skip { ahead: 0 }), "on_busy.ahead is 0, but must be 1 to 64");
    assert_eq!(refused(1, OnBusy::Skip { ahead: 65 }), "on_busy.ahead is 65, but must be 1 to 64");
    let nothing = "on_busy is Release, but must be Keep with defer_capacity 0, because no buffer can wait";
    assert_eq!(refused(0, OnBusy::Release), nothing);
}

// ---- What is deferred ---------------------------------------------------------------------------------

#[test]
fn frags_are_deferred_like_pages_and_their_page_is_out() {
    for on_busy in [OnBusy::Keep, OnBusy::Skip { ahead: 3 }, OnBusy::Release] {
        let (memory, pool) = pool(4, PoolParams { cache_size: 4, refill: 1, ..params(8, on_busy) });
        let set = UseSet::uses([0]);
        let user = pool.deferred_user(set.clone()).unwrap();
        for cookie in 0..4 {
            pool.defer(&user, pool.alloc_frag(1024).unwrap(), cookie).unwrap();
        }
        assert_eq!(
            (pool.inflight().deferred, pool.inflight().total),
            (0, 1),
            "fragments are of a page that is out"
        );
        pool.poll_deferred();
        let used = pool.alloc_frag(1024).unwrap();
        let (waits, stats) = (pool.deferred_stats(), pool.stats());
        assert_eq!(waits.released, u64::from(on_busy == OnBusy::Release));
        // A page of which a fragment was released is back with its last fragment, and leaves.
        assert_eq!(stats.recycle_released_refcnt, waits.released, "{on_busy:?}");
        drop(used);
        set.all_done();
        pool.poll_deferred();
        assert_eq!(pool.deferred_stats().pending(), 0);
        drop(pool);
        assert_eq!(memory.free(), 4, "{on_busy:?}");
    }
}

#[test]
fn a_page_with_a_page_ref_besides_leaves_when_it_is_done() {
    let (memory, pool) = pool(8, params(4, OnBusy::Release));
    let set = UseSet::uses([1]);
    let user = pool.deferred_user(set.clone()).unwrap();
    let hold = |cookie| {
        let mut buffer = pool.alloc_page().unwrap();
        let hold = buffer.page_ref();
        pool.defer(&user, buffer, cookie).unwrap();
        hold
    };
    let holds = [hold(0), hold(1)];
    assert_eq!(pool.poll_deferred(), 1);
    let waits = pool.deferred_stats();
    assert_eq!((waits.reused, waits.released, pool.stats().recycle_released_refcnt), (1, 1, 2));
    assert_eq!((memory.free(), pool.inflight().total), (4, 2));
    set.done(1);
    pool.poll_deferred();
    assert_eq!(memory.free(), 4, "the other holds are alive");
    drop(holds);
    assert_eq!(memory.free(), 6);
}

#[test]
fn users_are_refreshed_once_a_round_and_dropped_when_done() {
    let (_, pool) = pool(16, params(8, OnBusy::Skip { ahead: 8 }));
    let (one, two, idle) = (UseSet::uses([0]), UseSet::uses([]), UseSet::uses([]));
    let first = pool.deferred_user(one.clone()).unwrap();
    let second = pool.deferred_user(two.clone()).unwrap();
    let third = pool.deferred_user(idle.clone()).unwrap();
    let mut buffers: Vec<_> = (0..6).map(|_| pool.alloc_page().unwrap()).collect();
    for cookie in 0..3 {
        pool.defer(&first, buffers.pop().unwrap(), cookie).unwrap();
        pool.defer(&second, buffers.pop().unwrap(), cookie).unwrap();
    }
    drop((first, second, third));
    assert_eq!(pool.poll_deferred(), 5);
    let refreshed = |set: &UseSet| set.refreshed.load(Relaxed);
    assert_eq!((refreshed(&one), refreshed(&two), refreshed(&idle)), (1, 1, 0));
    let known = |set: &Arc<UseSet>| Arc::strong_count(set) == 2;
    assert_eq!((known(&one), known(&two), known(&idle)), (true, false, false), "something waits for one");
    one.done(0);
    assert_eq!((pool.poll_deferred(), known(&one)), (1, false));
    let again = pool.deferred_user(two.clone()).unwrap();
    pool.defer(&again, pool.alloc_page().unwrap(), 9).unwrap();
    assert_eq!(
        (pool.poll_deferred(), two.take_polled()),
        (1, vec![0, 1, 2, 9]),
        "in the place of one that went"
    );
}

// ---- Users that misbehave -----------------------------------------------------------------------

thread_local! {
    /// The pool that a user of this thread calls back into.
    static HERE: RefCell<Option<(Rc<Bound>, Rc<DeferredUser>)>> = const { RefCell::new(None) };
}

/// Does everything that it can with its pool while it is polled, until the test stops it.
#[derive(Default)]
struct Reentrant {
    next: AtomicUsize,
    stopped: AtomicBool,
}

impl InUse for Reentrant {
    fn refresh(&self) {
        self.in_use(0);
    }

    fn in_use(&self, cookie: u64) -> bool {
        if self.stopped.load(Relaxed) {
            return false;
        }
        let (pool, user) = HERE.with_borrow(|here| here.clone().unwrap());
        assert_eq!(pool.poll_deferred(), 0, "a poll inside a poll does nothing");
        drop(pool.alloc_page());
        drop(pool.deferred_user(UseSet::uses([])).unwrap());
        let next = self.next.fetch_add(1, Relaxed) as u64;
        drop(pool.alloc_page().map(|buffer| pool.defer(&user, buffer, next)));
        cookie % 3 == 1
    }
}

#[test]
fn a_user_may_call_back_into_the_pool() {
    for on_busy in [OnBusy::Keep, OnBusy::Skip { ahead: 4 }, OnBusy::Release] {
        let (memory, pool) = pool(64, params(8, on_busy));
        let pool = Rc::new(pool);
        let reentrant = Arc::new(Reentrant::default());
        let user = Rc::new(pool.deferred_user(reentrant.clone()).unwrap());
        HERE.set(Some((pool.clone(), user.clone())));
        let mut returned = 0;
        for cookie in 0..200 {
            drop(pool.alloc_page().map(|buffer| pool.defer(&user, buffer, 3 * cookie)));
            returned += pool.poll_deferred();
        }
        let (waits, at) = (pool.deferred_stats(), pool.inflight());
        assert!(returned > 0 && waits.queued > 8, "{on_busy:?}: {waits:?}");
        assert_eq!((at.out, at.deferred), (0, waits.queued - waits.reused - waits.released), "{on_busy:?}");
        reentrant.stopped.store(true, Relaxed);
        HERE.set(None);
        pool.poll_deferred();
        assert_eq!((pool.deferred_stats().pending(), pool.poll_deferred()), (0, 0));
        assert_returned(&pool.handle());
        drop((user, pool));
        assert_eq!(memory.free(), 64, "{on_busy:?}");
    }
}

/// Registers another user when it refreshes, and queues a buffer for that one.
struct Registers(Arc<UseSet>);

impl InUse for Registers {
    fn refresh(&self) {
        let (pool, _) = HERE.with_borrow(|here| here.clone().unwrap());
        let other = pool.deferred_user(self.0.clone()).unwrap();
        pool.defer(&other, pool.alloc_page().unwrap(), 7).unwrap();
    }

    fn in_use(&self, _: u64) -> bool {
        false
    }
}

#[test]
fn a_user_that_comes_during_a_round_is_polled_in_the_next() {
    for on_busy in [OnBusy::Keep, OnBusy::Skip { ahead: 4 }, OnBusy::Release] {
        let (memory, pool) = pool(16, params(8, on_busy));
        let (pool, other) = (Rc::new(pool), UseSet::uses([]));
        let user = Rc::new(pool.deferred_user(Arc::new(Registers(other.clone()))).unwrap());
        HERE.set(Some((pool.clone(), user.clone())));
        pool.defer(&user, pool.alloc_page().unwrap(), 0).unwrap();
        assert_eq!((pool.poll_deferred(), other.take_polled()), (1, vec![]), "{on_busy:?}");
        assert_eq!((pool.poll_deferred(), other.take_polled()), (1, vec![7]), "{on_busy:?}");
        HERE.set(None);
        assert_returned(&pool.handle());
        drop((user, pool));
        assert_eq!(memory.free(), 16, "{on_busy:?}");
    }
}

/// Panics when it is polled for one buffer, or when it refreshes.
struct Panics {
    on: u64,
    refreshing: AtomicBool,
    left: AtomicUsize,
}

impl Panics {
    fn panic_if_any_left(&self) {
        let left = self.left.load(Relaxed);
        if left > 0 {
            self.left.store(left - 1, Relaxed);
            panic!("a user's panic, which the test expects");
        }
    }
}

impl InUse for Panics {
    fn refresh(&self) {
        if self.refreshing.load(Relaxed) {
            self.panic_if_any_left();
        }
    }

    fn in_use(&self, cookie: u64) -> bool {
        if cookie == self.on {
            self.panic_if_any_left();
        }
        false
    }
}

#[test]
fn a_user_that_panics_loses_nothing() {
    for (on_busy, refreshing) in [(OnBusy::Keep, false), (OnBusy::Release, false), (OnBusy::Keep, true)] {
        let (memory, pool) = pool(16, params(8, on_busy));
        let (refreshing, left) = (AtomicBool::new(refreshing), AtomicUsize::new(2));
        let user = pool.deferred_user(Arc::new(Panics { on: 1, refreshing, left })).unwrap();
        queue(&pool, &user, 4);
        let panicked = || catch_unwind(AssertUnwindSafe(|| pool.poll_deferred())).is_err();
        assert!(panicked(), "through poll_deferred");
        let in_cache = pool.inflight().cache;
        // The next allocation has to ask.
        let out: Vec<_> = (0..in_cache).map(|_| pool.alloc_page()).collect();
        assert!(catch_unwind(AssertUnwindSafe(|| pool.alloc_page())).is_err(), "through alloc_page");
        let (waits, total) = (pool.deferred_stats(), pool.inflight().total as u64);
        assert_eq!(pool.poll_deferred() as u64, waits.pending(), "each is there still");
        assert_eq!((pool.inflight().total as u64, pool.inflight().deferred), (total, 0));
        drop((out, pool));
        assert_eq!(memory.free(), 16);
    }
}

// ---- The end of the pool ------------------------------------------------------------------------

#[test]
fn a_destroyed_pool_polls_its_users_until_all_are_done() {
    let (memory, pool) = pool(16, params(8, OnBusy::Keep));
    let set = UseSet::uses([0, 2, 5]);
    let user = pool.deferred_user(set.clone()).unwrap();
    let pages = queue(&pool, &user, 6);
    let handle = pool.handle();
    let shutdown = pool.destroy();
    assert!(!shutdown.is_complete());
    assert_eq!((memory.free(), handle.inflight().deferred, handle.inflight().total), (13, 3, 3));
    let report = shutdown.report();
    let held: BTreeSet<_> = report.pages.iter().map(|held| held.page).collect();
    assert_eq!((report.deferred, held), (3, BTreeSet::from([pages[0], pages[2], pages[5]])));
    assert!(report.to_string().ends_with("deferred buffers still in use: 3"), "{report}");
    assert!(!shutdown.wait(Duration::from_millis(3)));
    assert_eq!(memory.free(), 13, "nothing in use went back");
    set.done(2);
    assert!(!shutdown.is_complete());
    assert_eq!((memory.free(), handle.inflight().deferred), (14, 2));
    set.all_done();
    assert!(shutdown.is_complete(), "{}", shutdown.report());
    assert_eq!((memory.free(), shutdown.report().deferred), (16, 0));
    assert_eq!(
        shutdown.report().to_string(),
        format!("pool shutdown complete: no buffer held (pool pool id {})", handle.id())
    );
    let waits = handle.deferred_stats();
    assert_eq!((waits.queued, waits.reused, waits.leaked, waits.pending()), (6, 6, 0, 0));
    assert_eq!(Arc::strong_count(&set), 1, "the user was let go of");
    drop(user);
}

#[test]
fn memory_that_left_the_queue_is_polled_too() {
    let (memory, pool) = pool(8, params(8, OnBusy::Release));
    let set = UseSet::uses([0, 1]);
    let user = pool.deferred_user(set.clone()).unwrap();
    queue(&pool, &user, 2);
    pool.poll_deferred();
    pool.poll_deferred();
    assert_eq!((pool.deferred_stats().released, pool.inflight().deferred), (2, 0));
    let handle = pool.handle();
    let shutdown = pool.destroy();
    assert!(!shutdown.is_complete(), "all buffers have returned, but not all memory");
    let report = shutdown.report();
    assert_eq!((report.pages.len(), report.deferred, memory.free()), (0, 2, 6));
    assert!(report.to_string().starts_with("stalled pool shutdown: 0 buffers held"), "{report}");
    set.all_done();
    assert!(shutdown.wait(Duration::from_secs(60)), "{}", shutdown.report());
    assert_eq!((memory.free(), handle.deferred_stats().freed_late), (8, 2));
}

/// What is leaked on purpose: reachable from here, so that a leak checker asks about no other.
static LEAKED: Mutex<Vec<(PoolRef, Arc<PlainMemory>)>> = Mutex::new(Vec::new());

#[test]
fn a_dropped_pool_polls_once_more_and_leaks_what_is_in_use() {
    for on_busy in [OnBusy::Keep, OnBusy::Release] {
        let (memory, pool) = pool(8, params(8, on_busy));
        let set = UseSet::uses([1, 2]);
        let user = pool.deferred_user(set.clone()).unwrap();
        queue(&pool, &user, 4);
        pool.poll_deferred();
        pool.poll_deferred();
        let handle = pool.handle();
        drop(pool);
        let waits = handle.deferred_stats();
        assert_eq!((waits.reused, waits.leaked, waits.pending()), (2, 2, 0), "{on_busy:?}");
        set.all_done();
        assert_eq!(memory.free(), 6, "nobody asks any more: used never again rather than too early");
        let left = 2 - waits.released;
        assert_eq!(
            (handle.inflight().total as u64, handle.inflight().deferred),
            (left, left),
            "and it shows"
        );
        assert_eq!(Arc::strong_count(&set), 1);
        LEAKED.lock().unwrap().push((handle, memory));
    }
}

#[test]
fn the_queue_moves_with_its_pool() {
    let (memory, pool) = pool(8, params(8, OnBusy::Keep));
    let set = UseSet::uses([1]);
    let user = pool.deferred_user(set.clone()).unwrap();
    queue(&pool, &user, 3);
    let unbound = pool.unbind();
    let pool = std::thread::spawn(move || {
        let pool = unbound.bind();
        assert_eq!((pool.poll_deferred(), pool.inflight().cache), (1, 2), "into the cache of the new owner");
        pool.defer(&user, pool.alloc_page().unwrap(), 7).unwrap();
        set.all_done();
        pool.unbind()
    });
    let pool = pool.join().unwrap().bind();
    assert_eq!(pool.poll_deferred(), 3);
    assert_returned(&pool.handle());
    let end = pool.destroy();
    assert!(end.is_complete(), "{}", end.report());
    assert_eq!(memory.free(), 8);
}

/// Polls the shutdown of its own pool while it is polled.
#[derive(Default)]
struct Watching(Mutex<Option<Arc<Shutdown>>>, AtomicUsize);

impl InUse for Watching {
    fn in_use(&self, _cookie: u64) -> bool {
        let shutdown = self.0.lock().unwrap().clone();
        assert!(shutdown.is_none_or(|shutdown| !shutdown.is_complete() && shutdown.report().deferred > 0));
        self.1.fetch_add(1, Relaxed) < 3
    }
}

#[test]
fn a_user_may_call_back_into_the_shutdown_and_may_panic_there() {
    let (memory, first) = pool(8, params(8, OnBusy::Keep));
    let watching = Arc::new(Watching::default());
    let user = first.deferred_user(watching.clone()).unwrap();
    queue(&first, &user, 2);
    let shutdown = Arc::new(first.destroy());
    *watching.0.lock().unwrap() = Some(shutdown.clone());
    assert!(shutdown.wait(Duration::from_secs(60)), "{}", shutdown.report());
    *watching.0.lock().unwrap() = None;
    assert_eq!(memory.free(), 8);

    let (memory, second) = pool(8, params(8, OnBusy::Keep));
    let panics = Panics { on: 1, refreshing: AtomicBool::new(false), left: AtomicUsize::new(1) };
    let user = second.deferred_user(Arc::new(panics)).unwrap();
    queue(&second, &user, 4);
    let shutdown = second.destroy();
    assert!(catch_unwind(AssertUnwindSafe(|| shutdown.is_complete())).is_err());
    assert!(shutdown.is_complete(), "what was there is there still, and is asked after again");
    assert_eq!(memory.free(), 8);
}

// ---- Counts of references -----------------------------------------------------------------------

/// Where a page's bytes are, for a reader that has a count of it.
struct BytesAt(*const u8);

// SAFETY: a reader looks at the bytes only while it has a count, and the owner writes them only when there is
// none.
unsafe impl Send for BytesAt {}

impl BytesAt {
    fn all_are(&self, pattern: u8) -> bool {
        // SAFETY: the page is mapped as long as the test's memory, and nobody writes it while this has a
        // count.
        let bytes = unsafe { std::slice::from_raw_parts(self.0, 4096) };
        bytes.iter().all(|&byte| byte == pattern)
    }
}

#[test]
fn readers_on_other_threads_never_see_a_page_reused_early() {
    for on_busy in [OnBusy::Keep, OnBusy::Skip { ahead: 8 }, OnBusy::Release] {
        let (memory, pool) = pool(48, params(32, on_busy));
        let counts = UseCounts::new(1 << 16);
        let user = pool.deferred_user(counts.clone()).unwrap();
        let readers: Vec<_> = (0..2).map(|_| reader(counts.clone())).collect();
        let start = Instant::now();
        let (mut sent, mut starved) = (0_u64, 0);
        // Fewer on a busy machine.
        while sent < 6_000 && (sent < 100 || start.elapsed() < Duration::from_secs(20)) {
            assert!(start.elapsed() < Duration::from_secs(60), "{sent} sent, {starved} times starved");
            let Some(mut buffer) = pool.alloc_page() else {
                starved += 1;
                std::thread::yield_now();
                continue;
            };
            let cookie = sent % (1 << 16);
            buffer.bytes_mut().unwrap().fill(sent as u8);
            for (reader, _) in &readers {
                counts.take(cookie);
                reader.send((BytesAt(buffer.as_ptr().unwrap()), sent as u8, cookie)).unwrap();
            }
            let mut waiting = pool.defer(&user, buffer, cookie);
            while let Err(buffer) = waiting {
                std::thread::yield_now();
                pool.poll_deferred();
                waiting = pool.defer(&user, buffer, cookie);
            }
            sent += 1;
        }
        println!("{on_busy:?}: {sent} sent, {starved} times starved");
        let handle = pool.handle();
        let shutdown = pool.destroy();
        for (reader, thread) in readers {
            drop(reader);
            thread.join().expect("no reader saw a page change under it");
        }
        assert!(shutdown.wait(Duration::from_secs(60)), "{}", shutdown.report());
        let waits = handle.deferred_stats();
        assert_eq!((waits.queued, waits.leaked, waits.pending()), (sent, 0, 0), "{on_busy:?}");
        assert_eq!(memory.free(), 48);
    }
}

type ReadJob = (BytesAt, u8, u64);

/// Looks at each page that it is sent, twice, and puts its count.
fn reader(counts: Arc<UseCounts>) -> (mpsc::Sender<ReadJob>, std::thread::JoinHandle<()>) {
    let (send, inbox) = mpsc::channel::<ReadJob>();
    let read = move || {
        for (bytes, pattern, cookie) in inbox {
            assert!(bytes.all_are(pattern));
            std::thread::yield_now();
            assert!(bytes.all_are(pattern));
            counts.put(cookie);
        }
    };
    (send, std::thread::spawn(read))
}

#[test]
fn a_count_that_is_put_twice_says_so_and_stays_in_use() {
    let counts = UseCounts::new(2);
    counts.take(1);
    counts.put(1);
    let text =
        |run: &dyn Fn()| *catch_unwind(AssertUnwindSafe(run)).unwrap_err().downcast::<String>().unwrap();
    assert_eq!(text(&|| counts.put(1)), "use count 1 was put more often than it was taken");
    assert!(counts.in_use(1), "leaked rather than used too early");
    assert!(text(&|| counts.take(1)).starts_with("use count 1 is "));
    assert!(counts.in_use(1), "also when somebody takes it still");
    assert_eq!(text(&|| counts.take(2)), "use count 2 of 2: create UseCounts with more");
    assert!(!counts.in_use(2));
}
