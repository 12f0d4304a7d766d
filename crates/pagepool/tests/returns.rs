//! The return paths of frames: dropped, in the poll, through the ring, in bulk; and the scope without direct
//! recycling.

#![allow(clippy::unwrap_used)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use pagepool::{
    Arena, ArenaParams, Bound, DmaDomain, NoDirectRecycle, PageBuf, Pool, PoolParams, XdpBuff, XdpFrame,
    XdpFrameBulk,
};
use pagepool_testing::PlainMemory;

use crate::panicking_device::PanicsOnce;

fn arena() -> Arc<Arena> {
    Arena::new(ArenaParams { max_bytes: 16 << 20, ..Default::default() }).unwrap()
}

fn pool_of(arena: &Arc<Arena>, params: PoolParams) -> Bound {
    Pool::new(params, arena.clone()).unwrap().bind()
}

fn pool() -> Bound {
    pool_of(&arena(), PoolParams::default())
}

fn frame(pool: &Bound, frags: usize) -> XdpFrame {
    let mut packet = XdpBuff::received(pool.alloc_page().unwrap(), 60).unwrap();
    for _ in 0..frags {
        packet.add_frag(pool.alloc_page().unwrap(), 0, 60).unwrap();
    }
    packet.into()
}

fn elsewhere(work: impl FnOnce() + Send) {
    std::thread::scope(|threads| threads.spawn(work).join().unwrap());
}

#[test]
fn each_kind_of_return_moves_its_counter() {
    let pool = pool();
    let counts = |pool: &Bound| (pool.stats().recycle_cached, pool.stats().recycle_ring);
    drop(frame(&pool, 2));
    assert_eq!(counts(&pool), (3, 0));
    frame(&pool, 2).put_ring();
    assert_eq!(counts(&pool), (3, 3));
    let away = frame(&pool, 2);
    elsewhere(move || drop(away));
    assert_eq!(counts(&pool), (3, 6));
    let mut bulk = XdpFrameBulk::new();
    bulk.push(frame(&pool, 2));
    assert_eq!((bulk.len(), counts(&pool)), (3, (3, 6)));
    drop(bulk);
    assert_eq!(counts(&pool), (6, 6));
    let mut bulk = XdpFrameBulk::new();
    (0..30).for_each(|_| bulk.push(frame(&pool, 2)));
    drop(bulk);
    assert_eq!((counts(&pool), pool.inflight().out), ((96, 6), 0));
}

#[test]
fn further_buffers_return_to_the_pool_that_owns_them() {
    let [mine, other] = [pool(), pool()];
    for way in 0..3 {
        let mut packet = XdpBuff::received(mine.alloc_page().unwrap(), 60).unwrap();
        packet.add_frag(other.alloc_page().unwrap(), 0, 60).unwrap();
        let frame = XdpFrame::from(packet);
        match way {
            0 => drop(frame),
            1 => frame.put_ring(),
            _ => XdpFrameBulk::new().push(frame),
        }
        assert_eq!((mine.inflight().out, other.inflight().out), (0, 0));
    }
}

/// Whole pages, fragments and pages with a `PageRef` of three pools, interleaved, with the references.
fn mixed(pools: &[Bound]) -> (Vec<PageBuf>, Vec<pagepool::PageRef>) {
    let mut holds = Vec::new();
    let buffers = (0..96).map(|at| {
        let pool = &pools[at % pools.len()];
        match at % 8 {
            1 | 5 => pool.alloc_frag(700).unwrap(),
            3 if at % 3 == 0 => {
                let mut held = pool.alloc_page().unwrap();
                holds.push(held.page_ref());
                held
            }
            _ => pool.alloc_page().unwrap(),
        }
    });
    (buffers.collect(), holds)
}

fn bulk_of_everything(put: impl Fn(Vec<PageBuf>) + Send + Copy, threads: bool) {
    let arena = arena();
    let small = PoolParams { cache_size: 8, lane_size: 8, ring_size: 8, ..Default::default() };
    let no_lane = PoolParams { max_lanes: 0, ring_size: 4, ..Default::default() };
    let pools = [PoolParams::default(), small, no_lane].map(|params| pool_of(&arena, params));
    for _ in 0..20 {
        let (buffers, holds) = mixed(&pools);
        if threads {
            elsewhere(move || put(buffers))
        } else {
            put(buffers)
        }
        drop(holds);
        for pool in &pools {
            drop(pool.alloc_frag(700)); // takes in what came as messages
            let held: Vec<_> = (0..40).map_while(|_| pool.alloc_page()).collect();
            drop(held);
        }
    }
    for pool in pools {
        let handle = pool.handle();
        let end = pool.destroy();
        assert!(end.is_complete(), "{}", end.report());
        assert_eq!(handle.stats().inflight(), 0);
    }
    assert_eq!(arena.pages_out(), 0);
}

#[test]
fn mixed_bulks_return_everything() {
    let frames = |buffers: Vec<PageBuf>| {
        let mut bulk = XdpFrameBulk::new();
        for buffer in buffers {
            bulk.push(XdpBuff::new(buffer, 0, 60).unwrap().into());
        }
    };
    for threads in [false, true] {
        bulk_of_everything(|mut buffers| pagepool::put_bulk(&mut buffers), threads);
        bulk_of_everything(|mut buffers| pagepool::put_ring_bulk(&mut buffers), threads);
        bulk_of_everything(frames, threads);
    }
}

#[test]
fn single_buffers_return_with_the_frames_of_a_bulk() {
    let pool = pool();
    let mut bulk = XdpFrameBulk::new();
    bulk.push(frame(&pool, 1));
    bulk.push_buffer(pool.alloc_frag(100).unwrap());
    (3..XdpFrameBulk::MAX).for_each(|_| bulk.push_buffer(pool.alloc_page().unwrap()));
    assert_eq!((bulk.len(), pool.stats().recycle_cached), (64, 0), "it is full");
    bulk.push_buffer(pool.alloc_page().unwrap());
    assert_eq!(
        (bulk.len(), pool.stats().recycle_cached),
        (1, 63),
        "all of them, but the page that is being cut"
    );
    drop(bulk);
    assert_eq!((pool.inflight().out, pool.stats().recycle_cached), (0, 64));
}

#[test]
fn a_bulk_may_outlive_the_pools_of_its_frames() {
    let memory = PlainMemory::new(64, 0).unwrap();
    let pool = Pool::new(PoolParams { refill: 4, ..Default::default() }, memory.clone()).unwrap().bind();
    let mut bulk = XdpFrameBulk::new();
    bulk.push(frame(&pool, 3));
    let shutdown = pool.destroy();
    assert!(!shutdown.is_complete());
    elsewhere(move || drop(bulk));
    assert!(shutdown.is_complete(), "{}", shutdown.report());
    assert_eq!(memory.free(), 64);
}

#[test]
fn a_panic_during_a_return_loses_no_buffer_and_no_chain() {
    let domain = PanicsOnce::new();
    let domains: Vec<Arc<dyn DmaDomain>> = vec![domain.clone()];
    let params = PoolParams { chains: 1, sync_for_device: true, domains, ..Default::default() };
    let pool = pool_of(&arena(), params);
    for put in [drop::<XdpFrame>, XdpFrame::put_ring] {
        let frame = frame(&pool, 5);
        domain.arm();
        assert!(catch_unwind(AssertUnwindSafe(|| put(frame))).is_err());
        assert_eq!(pool.inflight().out, 0, "the one that the device was being handed left the pool");
    }
    drop(frame(&pool, 1)); // the only chain is free
    assert_eq!(pool.stats().release, 2);
}

#[test]
fn without_direct_recycling_the_cache_stands_still() {
    let pool = pool();
    let before: Vec<_> = (0..4).map(|_| frame(&pool, 1)).collect();
    let [one, two, three, four]: [XdpFrame; 4] = before.try_into().unwrap();
    let frag = pool.alloc_frag(100).unwrap();
    {
        let _scope = NoDirectRecycle::enter();
        let inner = NoDirectRecycle::enter();
        drop(one);
        drop(inner);
        drop(two);
        let mut bulk = XdpFrameBulk::new();
        bulk.push(three);
        bulk.flush();
        drop(four);
        drop(frag);
        assert_eq!((pool.stats().recycle_cached, pool.stats().recycle_ring), (0, 8));
    }
    drop(pool.alloc_page());
    assert_eq!(pool.stats().recycle_cached, 1, "the scope has ended");
}

#[test]
fn the_owner_stays_the_owner_inside_the_scope() {
    std::thread::spawn(|| {
        let scope = NoDirectRecycle::enter();
        let first = pool(); // the thread's first token is given inside
        let buffers: Vec<_> = (0..100).map(|_| first.alloc_page().unwrap()).collect();
        drop(buffers);
        let again: Vec<_> = (0..100).map(|_| first.alloc_page().unwrap()).collect();
        assert_eq!((first.stats().hold, first.stats().recycle_cached), (128, 0), "what returned was found");
        let first = first.unbind().bind();
        let second = pool();
        drop(second.alloc_page());
        let end = second.destroy();
        assert!(end.is_complete(), "{}", end.report());
        drop(scope);
        drop(again);
        assert_eq!(first.stats().recycle_cached, 100);
        let end = first.destroy();
        assert!(end.is_complete(), "{}", end.report());
    })
    .join()
    .unwrap();
}

#[test]
fn scopes_may_end_in_any_order() {
    let pool = pool();
    let [one, two] = [NoDirectRecycle::enter(), NoDirectRecycle::enter()];
    drop(one);
    drop(pool.alloc_page());
    assert_eq!(pool.stats().recycle_cached, 0);
    drop(two);
    drop(pool.alloc_page());
    assert_eq!(pool.stats().recycle_cached, 1);
}
