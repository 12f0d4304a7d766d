//! The counter vectors of Linux 7.3, through the public API, and the identities that follow.

use pagepool::{Bound, PageBuf, Pool, PoolParams, Stats};
use pagepool_testing::PlainMemory;

fn pool(pages: usize) -> Bound {
    pool_with(pages, PoolParams::default())
}

fn pool_with(pages: usize, params: PoolParams) -> Bound {
    let memory = PlainMemory::new(pages, params.order).expect("a small memory");
    Pool::new(params, memory).expect("the parameters are valid").bind()
}

fn take(pool: &Bound, n: usize) -> Vec<PageBuf> {
    (0..n).map(|_| pool.alloc_page().expect("the pool has that many")).collect()
}

/// Asserts every counter: those not named are 0. Hold and release are checked by their balance.
fn assert_stats(stats: Stats, expected: &[(&str, u64)]) {
    for (name, value) in stats.fields() {
        if name == "hold" || name == "release" {
            continue;
        }
        let wanted = expected.iter().find(|(n, _)| *n == name).map_or(0, |(_, v)| *v);
        assert_eq!(value, wanted, "{name} in {stats:?}");
    }
}

#[test]
fn three_refills_are_taken_and_returned_by_the_owner() {
    let pool = pool(1024);
    drop(take(&pool, 192));
    let expected = [
        ("alloc_empty", 3),
        ("alloc_slow", 3),
        ("alloc_fast", 189),
        ("recycle_cached", 128),
        ("recycle_cache_full", 64),
        ("recycle_ring", 64),
    ];
    assert_stats(pool.stats(), &expected);
    let at = pool.inflight();
    assert_eq!((at.total, at.cache, at.ring, at.out), (192, 128, 64, 0));
}

#[test]
fn in_bulk_the_counters_are_those_of_single_calls() {
    let pool = pool(1024);
    let mut buffers = Vec::with_capacity(192);
    assert_eq!(pool.alloc_bulk(&mut buffers, 192), 192);
    pagepool::put_bulk(&mut buffers);
    let expected = [
        ("alloc_empty", 3),
        ("alloc_slow", 3),
        ("alloc_fast", 189),
        ("recycle_cached", 128),
        ("recycle_cache_full", 64),
        ("recycle_ring", 64),
    ];
    assert_stats(pool.stats(), &expected);
}

#[test]
fn one_page_over_and_over() {
    let pool = pool(64);
    for _ in 0..100_000 {
        drop(pool.alloc_page().unwrap());
    }
    let expected =
        [("alloc_empty", 1), ("alloc_slow", 1), ("alloc_fast", 99_999), ("recycle_cached", 100_000)];
    assert_stats(pool.stats(), &expected);
}

/// Linux's benches prefill: 64 allocated, 64 put, which lands in the ring.
fn prefilled(pages: usize) -> (Bound, Stats) {
    let pool = pool(pages);
    take(&pool, 64).into_iter().for_each(PageBuf::put_ring);
    let stats = pool.stats();
    (pool, stats)
}

#[test]
fn bench_01_direct() {
    let (pool, before) = prefilled(128);
    for _ in 0..100_000 {
        pool.recycle_direct(pool.alloc_page().unwrap()).unwrap();
    }
    let expected = [("alloc_refill", 1), ("alloc_fast", 99_999), ("recycle_cached", 100_000)];
    assert_stats(pool.stats().since(&before), &expected);
}

#[test]
fn bench_02_ring() {
    let (pool, before) = prefilled(128);
    for _ in 0..100_000 {
        pool.alloc_page().unwrap().put_ring();
    }
    let expected = [("alloc_refill", 1563), ("alloc_fast", 98_437), ("recycle_ring", 100_000)];
    assert_stats(pool.stats().since(&before), &expected);
}

#[test]
fn bench_03_every_page_leaves() {
    let (pool, before) = prefilled(256);
    for _ in 0..100_000 {
        let mut buffer = pool.alloc_page().unwrap();
        let hold = buffer.page_ref();
        drop(buffer);
        drop(hold);
    }
    let expected = [
        ("alloc_refill", 1),
        ("alloc_fast", 98_437),
        ("alloc_empty", 1562),
        ("alloc_slow", 1562),
        ("recycle_released_refcnt", 100_000),
    ];
    assert_stats(pool.stats().since(&before), &expected);
    let at = pool.stats();
    assert_eq!(at.hold - at.release, pool.inflight().total as u64);
}

#[test]
fn a_full_ring_refuses_and_the_page_leaves() {
    let pool = pool_with(64, PoolParams { ring_size: 16, refill: 8, cache_size: 16, ..Default::default() });
    let mut buffers = take(&pool, 20);
    pagepool::put_ring_bulk(&mut buffers);
    let stats = pool.stats();
    assert_eq!((stats.recycle_ring, stats.recycle_ring_full), (16, 4));
    assert_eq!(pool.inflight().ring, 16);
    assert_eq!(stats.release, 4);
}

#[test]
fn another_thread_returns_through_its_lane() {
    let pool = pool(1024);
    let buffers = take(&pool, 192);
    std::thread::spawn(move || drop(buffers)).join().unwrap();
    assert_eq!(pool.inflight().lanes, 192);
    let again = take(&pool, 192);
    let stats = pool.stats();
    assert_eq!((stats.alloc_slow, stats.alloc_refill, stats.recycle_ring), (3, 3, 192));
    drop(again);
    assert_eq!(pool.inflight().out, 0);
}

#[test]
fn exhaustion_is_a_value_and_is_counted() {
    let pool = pool(10);
    let buffers = take(&pool, 10);
    assert!(pool.alloc_page().is_none());
    let mut more = Vec::with_capacity(4);
    assert_eq!(pool.alloc_bulk(&mut more, 4), 0);
    assert!(pool.alloc_batch(4).is_empty());
    let stats = pool.stats();
    assert_eq!((stats.alloc_failed, stats.alloc_empty, stats.alloc_slow), (3, 4, 1));
    drop(buffers);
    assert!(pool.alloc_page().is_some());
}

#[test]
fn a_page_holds_fifteen_fragments_of_2090_and_is_reused() {
    let pool = pool_with(8, PoolParams { order: 3, ..Default::default() });
    let frags: Vec<_> = (0..15).map(|_| pool.alloc_frag(2090).unwrap()).collect();
    for (at, frag) in frags.iter().enumerate() {
        assert_eq!((frag.offset(), frag.len()), (at * 2112, 2090));
    }
    let page = frags[0].page();
    drop(frags);
    let next = pool.alloc_frag(2090).unwrap();
    assert_eq!((next.page(), next.offset()), (page, 0), "in place");
    let expected =
        [("alloc_empty", 1), ("alloc_slow_high_order", 1), ("recycle_cached", 1), ("alloc_fast", 1)];
    assert_stats(pool.stats(), &expected);
}

#[test]
fn an_allocation_takes_the_page_being_cut_as_its_last_choice() {
    let pool = pool(1);
    drop(pool.alloc_frag(1024).expect("the pool has a page"));
    // Linux gives nothing here, which moves `alloc_empty` alone; what it counts until then is the same.
    let opened = [("alloc_empty", 1), ("alloc_slow", 1)];
    assert_stats(pool.stats(), &opened);
    let page = pool.alloc_page().expect("all of the page that is being cut is here");
    assert!(pool.alloc_page().is_none());
    let given = [
        ("alloc_empty", 3),
        ("alloc_slow", 1),
        ("alloc_fast", 1),
        ("recycle_cached", 1),
        ("alloc_failed", 1),
    ];
    assert_stats(pool.stats(), &given);
    assert_eq!((pool.frag_waste(), pool.inflight().out), (3072, 1));
    drop(page);
    let frag = pool.alloc_frag(4096).expect("the page is back");
    assert_eq!(pool.alloc_batch(2).len(), 0, "a fragment of it is out");
    drop(frag);
    assert_eq!(pool.alloc_batch(2).len(), 1);
}

#[test]
fn hybrid_sizes_are_linuxs_with_its_alignment() {
    let pool = pool_with(8, PoolParams { order: 3, frag_align: 8, ..Default::default() });
    let sizes: Vec<_> = (0..3).map(|_| pool.alloc(8590).unwrap()).collect();
    let seen: Vec<_> = sizes.iter().map(|b| (b.offset(), b.len())).collect();
    assert_eq!(seen, [(0, 8590), (8592, 8590), (17184, 32768 - 17184)]);
    assert_eq!(pool.alloc(16385).unwrap().len(), 32768);
    assert!(pool.alloc(16384).unwrap().is_frag());
    assert!(pool.alloc(0).is_none() && pool.alloc(32769).is_none() && pool.alloc_frag(32769).is_none());
}

#[test]
fn frags_from_elsewhere_count_once_their_page_has_returned() {
    let pool = pool_with(8, PoolParams { order: 3, ..Default::default() });
    let frags: Vec<_> = (0..30).map(|_| pool.alloc_frag(2090).unwrap()).collect();
    std::thread::spawn(move || drop(frags)).join().unwrap();
    drop(pool.alloc_page().unwrap());
    let stats = pool.stats();
    assert_eq!((stats.alloc_slow_high_order, stats.recycle_ring, stats.alloc_refill), (2, 1, 1), "{stats:?}");
}

#[test]
fn late_returns_are_counted_the_same_on_every_way() {
    for max_lanes in [0, 1] {
        let pool = pool_with(16, PoolParams { max_lanes, ..Default::default() });
        let mut out = take(&pool, 6);
        let hold = out[0].page_ref();
        let handle = pool.handle();
        let before = handle.stats();
        drop(pool);
        out.drain(..3).for_each(drop);
        pagepool::put_bulk(&mut out);
        let after = handle.stats().since(&before);
        assert_eq!((after.recycle_ring, after.recycle_released_refcnt), (5, 1), "{max_lanes} lanes");
        drop(hold);
    }
}

#[test]
fn pages_whose_frags_are_in_the_ring_are_uncollected() {
    let params = PoolParams { order: 3, max_lanes: 0, ..Default::default() };
    let pool = pool_with(2, params);
    let frags: Vec<_> = (0..30).map(|_| pool.alloc_frag(2090).unwrap()).collect();
    std::thread::spawn(move || drop(frags)).join().unwrap();
    let at = pool.inflight();
    assert_eq!((at.total, at.ring, at.uncollected, at.frag, at.out), (2, 0, 1, 1, 0));
}

#[test]
fn of_a_pool_that_has_ended_only_what_is_out_is_in_flight() {
    for max_lanes in [0, 1] {
        let pool = pool_with(16, PoolParams { max_lanes, ..Default::default() });
        let mut pages = take(&pool, 3);
        let frags = [pool.alloc_frag(100).unwrap(), pool.alloc_frag(100).unwrap()];
        let (early, late) = (pages.pop().unwrap(), pages.pop().unwrap());
        std::thread::spawn(move || drop(early)).join().unwrap();
        let handle = pool.handle();
        let shutdown = pool.destroy();
        let at = handle.inflight();
        assert_eq!((at.total, at.cache, at.lanes, at.ring, at.frag, at.out), (3, 0, 0, 0, 0, 3));
        std::thread::spawn(move || drop(late)).join().unwrap();
        let at = handle.inflight();
        assert_eq!((at.total, at.lanes, at.ring, at.out), (2, 0, 0, 2));
        drop((pages, frags));
        assert_eq!((handle.inflight().total, shutdown.is_complete()), (0, true), "{}", shutdown.report());
    }
}

/// A thread that always has a full lane must not keep another's buffers from returning.
#[test]
fn a_busy_lane_does_not_strand_buffers_of_other_lanes() {
    let pool = pool(1024);
    let strays = take(&pool, 32);
    let mut missing: std::collections::HashSet<_> = strays.iter().map(|buffer| buffer.page()).collect();
    std::thread::scope(|threads| {
        let (to_busy, busy_in) = std::sync::mpsc::sync_channel::<Vec<PageBuf>>(0);
        let (done, busy_out) = std::sync::mpsc::sync_channel::<()>(0);
        threads.spawn(move || {
            for buffers in busy_in {
                drop(buffers);
                if done.send(()).is_err() {
                    return;
                }
            }
        });
        let busy = |buffers| {
            to_busy.send(buffers).unwrap();
            busy_out.recv().unwrap();
        };
        busy(take(&pool, 256));
        std::thread::spawn(move || drop(strays)).join().unwrap();
        for _ in 0..16 {
            let buffers = take(&pool, 64); // the busy lane never has fewer than 128
            missing.retain(|&page| buffers.iter().all(|buffer| buffer.page() != page));
            busy(buffers);
        }
    });
    assert!(missing.is_empty(), "{missing:?} never came out again");
}

#[test]
fn a_lane_is_had_again_at_once_when_its_thread_ends() {
    let pool = pool_with(256, PoolParams { max_lanes: 1, ..Default::default() });
    for _ in 0..4 {
        let buffers = take(&pool, 8);
        std::thread::spawn(move || drop(buffers)).join().unwrap();
    }
    assert_eq!((pool.inflight().lanes, pool.inflight().ring), (32, 0));
}

#[test]
fn the_cache_of_large_pages_is_smaller_than_linuxs() {
    let pages_cached = |order| {
        let pool = pool_with(130, PoolParams { order, ..Default::default() });
        drop(take(&pool, 130));
        pool.stats().recycle_cached
    };
    assert_eq!([0, 1, 2, 3, 4, 5].map(pages_cached), [128, 128, 32, 32, 8, 8], "docs/notes/0004");
}
