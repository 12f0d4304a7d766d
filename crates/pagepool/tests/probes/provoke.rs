//! What makes each probe fire, and with which arguments.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::task::{Context, Waker};
use std::time::Duration;

use pagepool::{
    Arena, ArenaParams, Bound, NoDirectRecycle, PageBuf, Pool, PoolParams, Provider, Topology, UseCounts,
};
use pagepool_testing::PlainMemory;

/// A probe that fired, with its arguments.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fired {
    pub probe: &'static str,
    pub args: Vec<i64>,
}

fn fired<const N: usize>(probe: &'static str, args: [i64; N]) -> Fired {
    Fired { probe, args: args.into() }
}

/// Provokes all of them on this thread, and says what fired; a time is 0 here.
pub fn all() -> Vec<Fired> {
    let cases =
        [slow(), high_order(), full(), waived(), starved(), low(), asked(), arena(), stalled(), deferred()];
    cases.into_iter().flatten().collect()
}

fn bound(params: PoolParams, memory: Arc<dyn Provider>) -> (Bound, i64) {
    let pool = Pool::new(params, memory).unwrap().bind();
    let id = pool.handle().id().into();
    (pool, id)
}

fn over_pages(params: PoolParams, pages: usize) -> (Bound, i64) {
    bound(params, PlainMemory::new(pages, 0).unwrap())
}

fn take(pool: &Bound, n: usize) -> Vec<PageBuf> {
    (0..n).map(|_| pool.alloc_page().unwrap()).collect()
}

fn number(buffer: &PageBuf) -> i64 {
    buffer.page().0.into()
}

fn slow() -> Vec<Fired> {
    let (pool, id) = over_pages(PoolParams::default(), 8);
    drop(take(&pool, 8));
    drop(take(&pool, 8)); // from the cache: nothing fires
    drop(pool);
    vec![fired("alloc_slow", [id, 8, 0]), fired("destroy", [id, 0, 0])]
}

fn high_order() -> Vec<Fired> {
    let params = PoolParams { order: 2, ..Default::default() };
    let (pool, id) = bound(params, PlainMemory::new(2, 2).unwrap());
    drop(take(&pool, 2));
    drop(pool);
    let slow = || fired("alloc_slow", [id, 1, 2]);
    vec![slow(), slow(), fired("destroy", [id, 0, 0])]
}

fn full() -> Vec<Fired> {
    let (pool, id) = over_pages(PoolParams { ring_size: 2, max_lanes: 0, ..Default::default() }, 5);
    let buffers = take(&pool, 5);
    let numbers: Vec<_> = buffers.iter().map(number).collect();
    let scope = NoDirectRecycle::enter();
    drop(buffers);
    drop(scope);
    let in_ring = pool.stats().recycle_ring as usize;
    assert_eq!(pool.stats().recycle_ring_full as usize, 5 - in_ring);
    drop(pool);
    let mut all = vec![fired("alloc_slow", [id, 5, 0]), fired("destroy", [id, 0, 0])];
    all.extend(numbers[in_ring..].iter().map(|&page| fired("ring_full", [id, page])));
    all
}

fn waived() -> Vec<Fired> {
    let here = Arc::new(AtomicU8::new(0));
    let topology = Topology::pretend_halves(2).with_current_node(here.clone());
    let params = ArenaParams { max_bytes: 16 << 20, topology, ..Default::default() };
    let arena = Arena::new(params).unwrap();
    let area = arena.area().id() as i64;
    let (pool, id) = bound(PoolParams::default(), arena);
    let mut buffers = take(&pool, 64);
    let first = number(&buffers[0]);
    pagepool::put_ring_bulk(&mut buffers);
    here.store(1, Relaxed);
    drop(take(&pool, 1));
    assert_eq!(pool.stats().alloc_waive, 1);
    drop(pool);
    let slow = || fired("alloc_slow", [id, 64, 0]);
    let grow = fired("grow", [area, 4 << 20, 8 << 20]);
    vec![slow(), fired("waive", [id, first, 0]), grow, slow(), fired("destroy", [id, 0, 0])]
}

/// One page, a task that waits for it, and then nobody.
fn starved() -> Vec<Fired> {
    let (pool, id) = over_pages(PoolParams { wakeup: true, max_lanes: 0, ..Default::default() }, 1);
    let page = pool.alloc_page();
    let mut waiting = pin!(pool.wait_for(Bound::alloc_page));
    assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let scope = NoDirectRecycle::enter();
    drop(page);
    drop(scope);
    let starve = fired("starve", [id, 1]);
    vec![
        fired("alloc_slow", [id, 1, 0]),
        starve.clone(),
        starve,
        fired("wake", [id, 1]),
        fired("destroy", [id, 0, 0]),
    ]
}

/// Fewer pages are left than the owner wants.
fn low() -> Vec<Fired> {
    let params = PoolParams { wakeup: true, low_water: 10, max_lanes: 0, ..Default::default() };
    let (pool, id) = over_pages(params, 8);
    drop(take(&pool, 1));
    drop(pool);
    vec![fired("alloc_slow", [id, 8, 0]), fired("starve", [id, 8]), fired("destroy", [id, 0, 0])]
}

fn asked() -> Vec<Fired> {
    let (pool, id) = over_pages(PoolParams::default(), 8);
    pool.handle().ask_to_shrink(0);
    drop(pool);
    vec![fired("wake", [id, 0]), fired("destroy", [id, 0, 0])]
}

/// The second region is for the 17th refill.
fn arena() -> Vec<Fired> {
    let arena = Arena::new(ArenaParams { max_bytes: 16 << 20, ..Default::default() }).unwrap();
    let area = arena.area().id() as i64;
    let (pool, id) = bound(PoolParams::default(), arena.clone());
    drop(take(&pool, 1025));
    assert_eq!(arena.trim(), 0, "pages of both regions are in the pool");
    pool.shrink(0);
    let gone = arena.trim() as i64;
    assert_eq!((gone, arena.trim()), (8 << 20, 0));
    drop(pool);
    let mut all: Vec<_> = (0..17).map(|_| fired("alloc_slow", [id, 64, 0])).collect();
    all.push(fired("grow", [area, 4 << 20, 8 << 20]));
    all.push(fired("trim", [area, gone, 0]));
    all.push(fired("destroy", [id, 0, 0]));
    all
}

fn stalled() -> Vec<Fired> {
    let (pool, id) = over_pages(PoolParams::default(), 8);
    let buffer = pool.alloc_page();
    let shutdown = pool.destroy();
    assert!(!shutdown.wait(Duration::ZERO));
    assert_eq!(shutdown.report().pages.len(), 1);
    drop(buffer);
    assert!(shutdown.wait(Duration::ZERO));
    assert_eq!(shutdown.report().pages.len(), 0);
    let stall = || fired("stall", [id, 1, 0, 0]);
    vec![fired("alloc_slow", [id, 8, 0]), fired("destroy", [id, 1, 0]), stall(), stall()]
}

fn deferred() -> Vec<Fired> {
    let (pool, id) = over_pages(PoolParams { defer_capacity: 8, ..Default::default() }, 8);
    let counts = UseCounts::new(1);
    counts.take(0);
    let user = pool.deferred_user(counts.clone()).unwrap();
    pool.defer(&user, pool.alloc_page().unwrap(), 0).unwrap();
    let shutdown = pool.destroy();
    assert_eq!(shutdown.report().deferred, 1);
    counts.put(0);
    assert!(shutdown.is_complete());
    let stall = fired("stall", [id, 1, 1, 0]);
    vec![fired("alloc_slow", [id, 8, 0]), fired("destroy", [id, 1, 1]), stall]
}

/// The probes that fired, by name.
pub fn names(fired: &[Fired]) -> BTreeSet<&str> {
    fired.iter().map(|fired| fired.probe).collect()
}
