//! Tasks that wait for a page, without an executor: who wakes them, where from, and what a waker may do.
#![cfg(not(loom))]
#![expect(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use pagepool::{Arena, ArenaParams, Bound, PageBuf, Pool, PoolParams};
use pagepool_testing::PlainMemory;

/// No wake takes as long.
const LIMIT: Duration = Duration::from_secs(60);

type Hook = Box<dyn FnOnce() + Send>;

/// Counts its wakes, and does something within the first one.
#[derive(Default)]
struct Bell {
    rung: AtomicU32,
    hook: Mutex<Option<Hook>>,
}

impl Bell {
    fn with(hook: impl FnOnce() + Send + 'static) -> Arc<Self> {
        Arc::new(Self { rung: AtomicU32::new(0), hook: Mutex::new(Some(Box::new(hook))) })
    }

    fn rung(&self) -> u32 {
        self.rung.load(Ordering::Relaxed)
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.rung.fetch_add(1, Ordering::Relaxed);
        let hook = self.hook.lock().unwrap().take();
        if let Some(hook) = hook {
            hook();
        }
    }
}

fn poll<T>(future: &mut (impl Future<Output = T> + Unpin), bell: &Arc<Bell>) -> Poll<T> {
    let waker = Waker::from(bell.clone());
    Pin::new(future).poll(&mut Context::from_waker(&waker))
}

/// A pool that has all of so many pages, and these.
fn dry(pages: usize, params: PoolParams) -> (Bound, Vec<PageBuf>) {
    let pool = Pool::new(params, PlainMemory::new(pages, 0).unwrap()).unwrap().bind();
    let taken = std::iter::from_fn(|| pool.alloc_page()).collect();
    (pool, taken)
}

fn elsewhere(f: impl FnOnce() + Send + 'static) {
    thread::spawn(f).join().unwrap();
}

#[test]
fn a_return_on_any_thread_wakes_a_task_once() {
    for (wakeup, max_lanes, here) in
        [(false, 4, false), (true, 4, false), (false, 0, false), (false, 4, true), (true, 0, true)]
    {
        let (pool, mut pages) = dry(3, PoolParams { wakeup, max_lanes, ..Default::default() });
        let bell = Arc::new(Bell::default());
        let mut task = pool.wait_for(Bound::alloc_page);
        for sleeps in 1..=2 {
            assert!(poll(&mut task, &bell).is_pending() && poll(&mut task, &bell).is_pending());
            assert_eq!(bell.rung(), sleeps - 1);
            let mut back = pages.split_off(1);
            if here {
                back.clear()
            } else {
                elsewhere(move || drop(back))
            };
            assert_eq!(bell.rung(), sleeps, "wakeup {wakeup}, {max_lanes} lanes, own thread {here}");
            pages.extend([(); 2].map(|()| pool.alloc_page().unwrap())); // another task was faster
        }
        drop(pages.pop());
        assert_eq!(pool.stats().recycle_cached, 0, "a task waited all the time");
        assert!(poll(&mut task, &bell).is_ready());
    }
}

#[test]
fn fragments_and_pages_for_the_provider_wake_a_task() {
    let memory = PlainMemory::new(1, 0).unwrap();
    let pool = Pool::new(PoolParams::default(), memory.clone()).unwrap().bind();
    let bell = Arc::new(Bell::default());
    let halves = [(); 2].map(|()| pool.alloc_frag(2048).unwrap());
    let mut task = pool.wait_for(|pool| pool.alloc_frag(2048));
    assert!(poll(&mut task, &bell).is_pending());
    elsewhere(move || drop(halves));
    assert_eq!(bell.rung(), 1);
    let Poll::Ready(frag) = poll(&mut task, &bell) else { panic!("it has two fragments") };
    drop(task);
    let other = Pool::new(PoolParams::default(), memory).unwrap().bind();
    let mut task = other.wait_for(Bound::alloc_page);
    assert!(poll(&mut task, &bell).is_pending());
    drop(frag);
    assert_eq!(bell.rung(), 1, "the first pool has it");
    drop(pool);
    assert_eq!(bell.rung(), 2);
    assert!(poll(&mut task, &bell).is_ready());
}

#[test]
fn a_page_that_is_being_cut_ends_a_wait_once_it_is_whole() {
    let (pool, _) = dry(1, PoolParams::default());
    let bell = Arc::new(Bell::default());
    let mut task = pool.wait_for(Bound::alloc_page);
    drop(pool.alloc_frag(1024)); // 3072 bytes of the page were never cut
    assert!(poll(&mut task, &bell).is_ready(), "no return will come");
    for sleeps in 1..=2 {
        let frag = pool.alloc_frag(1024).unwrap();
        assert!(poll(&mut task, &bell).is_pending());
        elsewhere(|| drop(frag));
        assert_eq!(bell.rung(), sleeps);
        assert!(poll(&mut task, &bell).is_ready());
    }
    let mut frag = pool.alloc_frag(1024).unwrap();
    let page = frag.page_ref();
    drop(frag);
    assert!(poll(&mut task, &bell).is_pending(), "something still reads it");
    drop(page);
    assert_eq!(bell.rung(), 3);
    assert!(poll(&mut task, &bell).is_ready());
}

#[test]
fn all_tasks_are_woken_and_those_that_find_nothing_wait_on() {
    let (pool, mut pages) = dry(2, PoolParams::default());
    let bells = [(); 3].map(|()| Arc::new(Bell::default()));
    let mut tasks = [(); 3].map(|()| pool.wait_for(Bound::alloc_page));
    tasks.iter_mut().zip(&bells).for_each(|(task, bell)| assert!(poll(task, bell).is_pending()));
    let page = pages.pop();
    elsewhere(|| drop(page));
    assert_eq!(bells.each_ref().map(|bell| bell.rung()), [1, 1, 1]);
    assert!(poll(&mut tasks[1], &bells[1]).is_ready(), "the page is dropped here, and a task waits still");
    let got: Vec<_> = tasks.iter_mut().zip(&bells).map(|(task, bell)| poll(task, bell)).collect();
    assert_eq!(got.iter().filter(|got| got.is_ready()).count(), 1, "{got:?}");
}

#[test]
fn a_task_that_gives_up_leaves_nothing_behind() {
    let (pool, mut pages) = dry(2, PoolParams::default());
    let bell = Arc::new(Bell::default());
    let (mut first, mut second) = (pool.wait_for(Bound::alloc_page), pool.wait_for(Bound::alloc_page));
    assert!(poll(&mut first, &bell).is_pending() && poll(&mut second, &bell).is_pending());
    assert_eq!(Arc::strong_count(&bell), 3);
    drop((first, second));
    assert_eq!(Arc::strong_count(&bell), 1);
    drop(pages.pop());
    assert_eq!((pool.stats().recycle_cached, bell.rung()), (1, 0), "the owner recycles directly again");
    let mut third = pool.wait_for(Bound::alloc_page);
    assert!(poll(&mut third, &bell).is_ready());
}

#[test]
fn a_wait_that_was_forgotten_ends_with_the_binding() {
    let (pool, mut pages) = dry(2, PoolParams::default());
    let bell = Arc::new(Bell::default());
    let mut forgotten = pool.wait_for(Bound::alloc_page);
    assert!(poll(&mut forgotten, &bell).is_pending());
    std::mem::forget(forgotten);
    let pool = pool.unbind().bind();
    let mut task = pool.wait_for(Bound::alloc_page);
    assert!(poll(&mut task, &bell).is_pending());
    drop(task);
    pages.clear();
    assert_eq!(pool.stats().recycle_cached, 2, "nobody waits: the owner's returns go into its cache");
}

#[test]
fn a_waker_that_panics_loses_no_page_and_no_other_wake() {
    for max_lanes in [0, 4] {
        let (pool, pages) = dry(4, PoolParams { max_lanes, ..Default::default() });
        let loud = Bell::with(|| panic!("a waker"));
        let bell = Arc::new(Bell::default());
        let (mut first, mut second) = (pool.wait_for(Bound::alloc_page), pool.wait_for(Bound::alloc_page));
        assert!(poll(&mut first, &loud).is_pending() && poll(&mut second, &bell).is_pending());
        elsewhere(move || drop(pages)); // it goes on after the first of them
        assert_eq!((loud.rung(), bell.rung()), (1, 1));
        assert!(poll(&mut second, &bell).is_ready() && poll(&mut first, &bell).is_ready());
        drop((first, second));
        assert_eq!(pool.alloc_batch(8).len(), 4, "every page is back");
    }
}

#[test]
fn a_waker_is_called_with_no_lock_held() {
    for max_lanes in [0, 4] {
        let (pool, mut pages) = dry(4, PoolParams { max_lanes, ring_size: 4, ..Default::default() });
        let (one, more) = (pages.pop(), pages.split_off(1));
        // Back by the same lock that the first return held.
        let bell = Bell::with(move || pagepool::put_ring_bulk(&mut { more }));
        let mut task = pool.wait_for(Bound::alloc_page);
        assert!(poll(&mut task, &bell).is_pending());
        elsewhere(move || drop(one));
        let Poll::Ready(_page) = poll(&mut task, &bell) else { panic!("three pages are back") };
        assert_eq!(pool.alloc_batch(4).len(), 2);
    }
    let arena = Arena::new(ArenaParams { max_bytes: 8 << 20, ..Default::default() }).unwrap();
    let poor = Pool::new(PoolParams { order: 10, ..Default::default() }, arena.clone()).unwrap().bind();
    let other = Pool::new(PoolParams::default(), arena.clone()).unwrap().bind();
    let (_all, page) = (poor.alloc_page().unwrap(), other.alloc_page().unwrap());
    let trimmed = arena.clone();
    // By the lock that a trim holds.
    let bell = Bell::with(move || assert_eq!(trimmed.trim(), 0));
    let mut task = poor.wait_for(Bound::alloc_page);
    assert!(poll(&mut task, &bell).is_pending());
    arena.trim();
    assert_eq!(bell.rung(), 1);
    drop((page, other));
    assert!(poll(&mut task, &bell).is_ready());
}

/// Parks the thread until it is woken.
struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread, which sleeps meanwhile. A wake that is lost ends the test.
fn block_on<T>(mut future: impl Future<Output = T> + Unpin) -> T {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let start = Instant::now();
    loop {
        if let Poll::Ready(output) = Pin::new(&mut future).poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        thread::park_timeout(LIMIT);
        assert!(start.elapsed() < LIMIT, "asleep, and nobody wakes it");
    }
}

#[test]
fn no_wake_is_lost_between_threads() {
    for (max_lanes, low_water) in [(0, 0), (4, 0), (4, 1), (0, 1)] {
        let params = PoolParams { wakeup: low_water > 0, max_lanes, low_water, ..Default::default() };
        let (pool, pages) = dry(2, params);
        let (to_returner, work) = std::sync::mpsc::sync_channel::<PageBuf>(2);
        pages.into_iter().for_each(|page| to_returner.send(page).unwrap());
        let returner = thread::spawn(move || work.into_iter().for_each(drop));
        for _ in 0..20_000 {
            to_returner.send(block_on(pool.wait_for(Bound::alloc_page))).unwrap();
        }
        drop(to_returner);
        returner.join().unwrap();
    }
}
