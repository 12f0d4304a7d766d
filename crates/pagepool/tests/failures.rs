//! Failure, injected: reservations that come short, domains that refuse, no lane left, holds and ends in
//! between. Whatever fails, nothing leaks, nothing is mapped twice, and the counters say what happened.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use pagepool::{Arena, ArenaParams, Bound, DmaDomain, PageBuf, Pool, PoolParams, Provider};
use pagepool_testing::{CheckingIommu, FailNth, PlainMemory};

const PAGES: usize = 200;

fn small() -> PoolParams {
    PoolParams { cache_size: 16, refill: 8, ring_size: 8, lane_size: 8, max_lanes: 2, ..Default::default() }
}

/// Takes and returns in every way, whatever fails meanwhile; says how many were had.
fn use_it(pool: &Bound, rounds: usize) -> usize {
    let mut had = 0;
    for round in 0..rounds {
        let mut buffers: Vec<PageBuf> = (0..20).filter_map(|_| pool.alloc_page()).collect();
        buffers.extend((0..10).filter_map(|n| pool.alloc_frag(300 + n * 100)));
        let batch = pool.alloc_batch(12);
        had += buffers.len() + batch.len();
        let holds: Vec<_> = buffers.iter_mut().step_by(7).map(PageBuf::page_ref).collect();
        let mut elsewhere = buffers.split_off(buffers.len() / 2);
        let returner = std::thread::spawn(move || {
            pagepool::put_bulk(&mut elsewhere);
            drop(batch);
        });
        if round % 2 == 0 {
            pagepool::put_ring_bulk(&mut buffers)
        } else {
            drop(buffers)
        }
        returner.join().unwrap();
        drop(holds);
    }
    had
}

/// Nothing is out, so nothing is left when the pool has gone.
fn end(pool: Bound) {
    let handle = pool.handle();
    let end = pool.destroy();
    assert!(end.is_complete(), "{}", end.report());
    let stats = handle.stats();
    assert_eq!((stats.hold, handle.inflight().total), (stats.release, 0));
}

#[test]
fn every_nth_reservation_comes_short() {
    for every in 1..8 {
        let memory = PlainMemory::new(PAGES, 0).unwrap();
        let failing = FailNth::new(memory.clone(), every);
        let pool = Pool::new(small(), failing.clone()).unwrap().bind();
        assert!(use_it(&pool, 40) > 0);
        assert!(failing.failed() > 0);
        end(pool);
        assert_eq!(memory.free(), PAGES, "every {every}.");
    }
}

#[test]
fn a_refill_of_one_that_fails_is_a_counted_none() {
    let memory = PlainMemory::new(PAGES, 0).unwrap();
    let failing = FailNth::new(memory.clone(), 1);
    let params = PoolParams { refill: 1, cache_size: 1, ..small() };
    let pool = Pool::new(params, failing.clone()).unwrap().bind();
    assert!(pool.alloc_page().is_none() && pool.alloc_frag(100).is_none() && pool.alloc_batch(3).is_empty());
    let stats = pool.stats();
    assert_eq!((stats.alloc_failed, stats.alloc_slow, stats.alloc_empty), (3, 0, 3));
    assert_eq!(stats.alloc_slow + stats.alloc_failed, stats.alloc_empty + stats.alloc_waive);
    failing.set_every(2);
    assert!(pool.alloc_page().is_some(), "it recovers");
    end(pool);
    assert_eq!(memory.free(), PAGES);
}

#[test]
fn every_nth_map_fails_while_the_arena_grows() {
    for n in 1..6 {
        let arena = Arena::new(ArenaParams { max_bytes: 20 << 20, ..Default::default() }).unwrap();
        let iommu = CheckingIommu::new("nic");
        let available = arena.available(0);
        iommu.fail_map(n);
        let domains = vec![iommu.clone() as Arc<dyn DmaDomain>];
        let params = PoolParams { domains, sync_for_device: true, ..small() };
        let Ok(pool) = Pool::new(params, arena.clone()) else {
            assert_eq!((n, iommu.mapped_regions(), arena.pages_out()), (1, 0, 0), "refused and undone");
            continue;
        };
        let pool = pool.bind();
        let buffers: Vec<_> = (0..4000).map_while(|_| pool.alloc_page()).collect();
        let addresses =
            buffers.iter().filter_map(PageBuf::dma_addr).collect::<std::collections::HashSet<_>>();
        assert_eq!(addresses.len(), buffers.len(), "every page that is out is mapped");
        drop(buffers);
        assert!(use_it(&pool, 5) > 0, "it goes on");
        end(pool);
        let counts = iommu.counts();
        assert_eq!((counts.maps, counts.bad_unmaps, counts.bad_syncs), (counts.unmaps, 0, 0));
        assert_eq!((iommu.mapped_regions(), arena.pages_out(), arena.available(0)), (0, 0, available));
    }
}

#[test]
fn more_threads_than_lanes() {
    for max_lanes in [0, 1, 3] {
        let memory = PlainMemory::new(PAGES, 0).unwrap();
        let pool = Pool::new(PoolParams { max_lanes, ..small() }, memory.clone()).unwrap().bind();
        for _ in 0..20 {
            let buffers: Vec<PageBuf> = (0..96).filter_map(|_| pool.alloc_page()).collect();
            assert_eq!(buffers.len(), 96, "what leaves a full ring can be allocated again");
            let mut buffers = buffers.into_iter();
            let returners: Vec<_> = (0..8)
                .map(|_| buffers.by_ref().take(12).collect::<Vec<_>>())
                .map(|part| std::thread::spawn(move || drop(part)))
                .collect();
            returners.into_iter().for_each(|returner| returner.join().unwrap());
        }
        let stats = pool.stats();
        assert_eq!(stats.recycle_ring + stats.recycle_ring_full, 20 * 96);
        end(pool);
        assert_eq!(memory.free(), PAGES);
    }
}

#[test]
fn frags_that_find_no_room_are_counted_in_their_page() {
    let memory = PlainMemory::new(8, 3).unwrap();
    let params = PoolParams { order: 3, max_lanes: 0, ring_size: 1, ..Default::default() };
    let pool = Pool::new(params, memory.clone()).unwrap().bind();
    for _ in 0..10 {
        let frags: Vec<_> = (0..45).map(|_| pool.alloc_frag(2090).unwrap()).collect();
        std::thread::spawn(move || drop(frags)).join().unwrap();
    }
    let late: Vec<_> = (0..45).map(|_| pool.alloc_frag(2090).unwrap()).collect();
    let shutdown = pool.destroy();
    assert!(!shutdown.is_complete());
    std::thread::spawn(move || drop(late)).join().unwrap();
    assert!(shutdown.is_complete(), "{}", shutdown.report());
    assert_eq!(memory.free(), 8);
}

#[test]
fn buffers_dropped_in_thread_local_destructors_return() {
    thread_local! {
        static KEPT: std::cell::RefCell<Vec<PageBuf>> = const { std::cell::RefCell::new(Vec::new()) };
    }
    let memory = PlainMemory::new(PAGES, 0).unwrap();
    let pool = Pool::new(small(), memory.clone()).unwrap().bind();
    let buffers: Vec<_> = (0..10).map(|_| pool.alloc_page().unwrap()).collect();
    std::thread::spawn(move || {
        KEPT.with_borrow_mut(|kept| kept.extend(buffers));
        pagepool::prepare_thread(); // its exit hook may run before or after the list is dropped
    })
    .join()
    .unwrap();
    end(pool);
    assert_eq!(memory.free(), PAGES);
}

#[test]
fn a_panic_with_buffers_in_hand_returns_them() {
    let memory = PlainMemory::new(PAGES, 0).unwrap();
    let pool = Pool::new(small(), memory.clone()).unwrap().bind();
    let buffers: Vec<_> = (0..10).map(|_| pool.alloc_page().unwrap()).collect();
    let fell = std::thread::spawn(move || {
        let _mine = buffers;
        std::panic::resume_unwind(Box::new("on purpose"));
    });
    assert!(fell.join().is_err());
    end(pool);
    assert_eq!(memory.free(), PAGES);
}

#[test]
fn a_forgotten_owner_only_leaks() {
    let memory = PlainMemory::new(PAGES, 0).unwrap();
    let pool = Pool::new(small(), memory.clone()).unwrap().bind();
    let buffer = pool.alloc_page().unwrap();
    let handle = pool.handle();
    // Forgotten, but where the leak checker finds it.
    static FORGOTTEN: AtomicPtr<Bound> = AtomicPtr::new(std::ptr::null_mut());
    FORGOTTEN.store(Box::into_raw(Box::new(pool)), Ordering::Relaxed);
    std::hint::black_box(&FORGOTTEN); // an optimiser leaves out a store that nothing reads
    std::thread::spawn(move || drop(buffer)).join().unwrap();
    assert_eq!(handle.inflight().lanes, 1);
    assert!(!handle.is_destroyed());
}
