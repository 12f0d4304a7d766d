//! Pools that give idle pages back, at once or when another thread asks, and the memory that an arena gives
//! back to the system then.

#![expect(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use pagepool::{
    Arena, ArenaParams, Bound, PAGE_SIZE, PageBuf, PageIdx, Pool, PoolParams, Provider, UseCounts,
};

const MIB: u64 = 1 << 20;

fn arena(max_bytes: u64) -> Arc<Arena> {
    Arena::new(ArenaParams { max_bytes, ..Default::default() }).unwrap()
}

fn pool_of(arena: &Arc<Arena>, params: PoolParams) -> Bound {
    Pool::new(params, arena.clone()).unwrap().bind()
}

fn take(pool: &Bound, n: usize) -> Vec<PageBuf> {
    (0..n).map(|_| pool.alloc_page().unwrap()).collect()
}

fn elsewhere(work: impl FnOnce() + Send + 'static) {
    thread::spawn(work).join().unwrap();
}

/// Every page that a pool of default size can keep: in the cache, in the ring, and in each lane.
fn full_pool(arena: &Arc<Arena>) -> Bound {
    let pool = pool_of(arena, PoolParams::default());
    let (lanes, lane, ring, cache) = (16, 1024, 1024, 128);
    let mut pages = take(&pool, cache + ring + lanes * lane);
    pages.iter_mut().for_each(|page| page.bytes_mut().unwrap()[0] = 1);
    // All threads have their lanes at the same time.
    let meet = Arc::new(Barrier::new(lanes));
    let threads: Vec<_> = (0..lanes)
        .map(|_| (pages.split_off(pages.len() - lane), meet.clone()))
        .map(|(theirs, meet)| {
            thread::spawn(move || {
                drop(theirs);
                meet.wait();
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    drop(pages);
    let at = pool.inflight();
    assert_eq!((at.cache, at.ring, at.lanes), (cache as u64, ring as u64, (lanes * lane) as u64));
    pool
}

/// Bytes of an arena in memory.
fn resident(arena: &Arena) -> u64 {
    let (base, bytes) = (arena.area().base().unwrap(), arena.area().pages() as usize * PAGE_SIZE);
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let (mut is_ours, mut kib) = (false, 0);
    for line in maps.lines() {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let range = range.map(|(begin, end)| [begin, end].map(|at| usize::from_str_radix(at, 16).unwrap()));
        if let Some([begin, end]) = range {
            is_ours = begin < base + bytes && base < end;
        } else if let Some(rss) = line.strip_prefix("Rss:").filter(|_| is_ours) {
            kib += rss.trim().trim_end_matches(" kB").parse::<u64>().unwrap();
        }
    }
    kib << 10
}

#[test]
fn an_idle_pool_gives_its_memory_back_to_the_system() {
    let arena = arena(128 * MIB);
    let pool = full_pool(&arena);
    let (committed, before) = (arena.description().committed_bytes, resident(&arena));
    assert!(committed > 68 * MIB && arena.trim() == 0, "{committed}");
    let handle = pool.handle();
    elsewhere(move || handle.ask_to_shrink(0));
    assert!(arena.pages_out() > 17_000, "the owner has not polled yet");
    pool.poll_deferred();
    assert_eq!((arena.pages_out(), pool.inflight().total), (0, 0));
    assert_eq!(pool.stats().release, pool.stats().hold);
    assert_eq!(arena.trim(), committed, "every region went");
    let after = resident(&arena);
    println!("resident: {} MiB before, {} MiB after", before / MIB, after / MIB);
    assert!(after + 48 * MIB < before, "{before} and {after} bytes");
    assert!(pool.alloc_page().is_some(), "the arena grows again");
}

#[test]
fn as_many_pages_stay_as_are_to_be_kept() {
    let arena = arena(128 * MIB);
    let pool = full_pool(&arena);
    let all = pool.inflight().total as usize;
    for keep in [usize::MAX, 17_000, 1000, 128, 100, 1, 0] {
        let before = arena.pages_out() as usize;
        let stays = keep.min(before);
        assert_eq!(pool.shrink(keep), before - stays, "to {keep} of {all}");
        assert_eq!((arena.pages_out() as usize, pool.inflight().total as usize), (stays, stays));
        assert_eq!(pool.stats().release as usize, all - stays);
    }
    let stats = pool.stats();
    assert_eq!((stats.recycle_ring_full, stats.alloc_waive, stats.recycle_released_refcnt), (0, 0, 0));
}

#[test]
fn the_pages_that_were_returned_last_stay() {
    let arena = arena(4 * MIB);
    let pool = pool_of(&arena, PoolParams::default());
    let mut pages = take(&pool, 64);
    let last: Vec<PageIdx> = pages[54..].iter().map(PageBuf::page).collect();
    pages.drain(..).for_each(drop);
    assert_eq!(pool.shrink(10), 54);
    let kept: Vec<PageIdx> = take(&pool, 10).iter().rev().map(PageBuf::page).collect();
    assert_eq!(kept, last);
}

#[test]
fn an_owner_that_refills_shrinks_the_pool_first() {
    let arena = arena(8 * MIB);
    let pool = pool_of(&arena, PoolParams { refill: 8, ..Default::default() });
    let mut pages = take(&pool, 512);
    let mine = pages.pop();
    elsewhere(move || drop(pages));
    pool.handle().ask_to_shrink(20);
    pool.handle().ask_to_shrink(100); // the lowest counts
    let found: Vec<_> = std::iter::from_fn(|| pool.alloc_page()).take(1).collect();
    assert_eq!(arena.pages_out(), 21, "20 that were kept, of which one is out, and one more that is out");
    drop((found, mine));
    pool.poll_deferred();
    assert_eq!(arena.pages_out(), 21, "one request shrinks once");
}

#[test]
fn an_owner_that_sleeps_is_woken_to_shrink() {
    let arena = arena(8 * MIB);
    let pool = pool_of(&arena, PoolParams { wakeup: true, ..Default::default() });
    drop(take(&pool, 100));
    let handle = pool.handle();
    let asker = thread::spawn(move || handle.ask_to_shrink(0));
    // The descriptor is in non-blocking mode: as `poll` sleeps, until something can be read.
    let fd = pool.wake_fd().unwrap().try_clone_to_owned().unwrap();
    asker.join().unwrap();
    assert!(std::fs::File::from(fd).read(&mut [0; 8]).is_ok(), "nothing woke the owner");
    pool.acknowledge_wake();
    assert_eq!(arena.pages_out(), 0);
}

#[test]
fn pages_whose_fragments_lie_in_lanes_and_ring_go() {
    for (max_lanes, ring_size) in [(1, 64), (0, 1024), (0, 4)] {
        let arena = arena(8 * MIB);
        let params = PoolParams { max_lanes, ring_size, lane_size: 256, ..Default::default() };
        let pool = pool_of(&arena, params);
        let frags: Vec<_> = (0..200).map(|_| pool.alloc_frag(2048).unwrap()).collect();
        pool.shrink(0);
        assert_eq!(arena.pages_out(), 100, "those whose fragments are out");
        elsewhere(move || drop(frags));
        let at = pool.inflight();
        assert_eq!((at.out, at.uncollected, at.ring, at.frag), (0, 99, 0, 1), "one is open");
        // What found no room in the ring is complete at once.
        assert_eq!((pool.shrink(0), arena.pages_out()), (100, 0), "{max_lanes} lanes, ring of {ring_size}");
        let stats = pool.stats();
        assert_eq!((stats.recycle_ring, stats.hold), (99, stats.release), "{stats:?}");
    }
}

#[test]
fn pages_whose_fragments_lie_in_a_lane_are_kept_as_others_are() {
    let pool = pool_of(&arena(8 * MIB), PoolParams { lane_size: 512, ..Default::default() });
    let frags: Vec<_> = (0..400).map(|_| pool.alloc_frag(1024).unwrap()).collect();
    elsewhere(move || drop(frags));
    let total = pool.inflight().total as usize;
    assert_eq!((pool.shrink(80), pool.inflight().total), (total - 80, 80));
}

#[test]
fn an_open_page_stays_while_a_fragment_of_it_is_out() {
    let arena = arena(4 * MIB);
    let pool = pool_of(&arena, PoolParams { refill: 1, ..Default::default() });
    let frag = pool.alloc_frag(1024).unwrap();
    assert_eq!((pool.shrink(0), arena.pages_out(), pool.inflight().frag), (0, 1, 1));
    let more = pool.alloc_frag(1024).unwrap();
    assert_eq!(more.page(), frag.page(), "it is still being cut");
    drop((frag, more));
    assert_eq!((pool.shrink(1), pool.shrink(0), arena.pages_out()), (0, 1, 0));
    assert_eq!((pool.inflight().frag, pool.handle().frag_waste()), (0, 2048));
    assert!(pool.alloc_frag(1024).is_some());
}

#[test]
fn deferred_buffers_that_are_done_go_and_others_stay() {
    let arena = arena(4 * MIB);
    let pool = pool_of(&arena, PoolParams { defer_capacity: 16, ..Default::default() });
    let counts = UseCounts::new(16);
    let user = pool.deferred_user(counts.clone()).unwrap();
    (8..16).for_each(|cookie| counts.take(cookie));
    (0..16).for_each(|cookie| pool.defer(&user, pool.alloc_page().unwrap(), cookie).unwrap());
    pool.shrink(0);
    assert_eq!((arena.pages_out(), pool.inflight().deferred), (8, 8));
    (8..16).for_each(|cookie| counts.put(cookie));
    pool.handle().ask_to_shrink(0);
    assert_eq!((pool.poll_deferred(), arena.pages_out()), (8, 0));
}

#[test]
fn a_pool_that_has_ended_is_not_disturbed() {
    let arena = arena(4 * MIB);
    let pool = pool_of(&arena, PoolParams { wakeup: true, ..Default::default() });
    let (handle, out) = (pool.handle(), pool.alloc_page());
    let shutdown = pool.destroy();
    handle.ask_to_shrink(0);
    assert_eq!(arena.pages_out(), 1);
    drop(out);
    handle.ask_to_shrink(0);
    assert!(shutdown.is_complete(), "{}", shutdown.report());
}

#[test]
fn a_request_waits_for_the_next_owner() {
    let arena = arena(4 * MIB);
    let pool = pool_of(&arena, PoolParams::default());
    drop(pool.alloc_page());
    let pool = pool.unbind();
    pool.handle().ask_to_shrink(0);
    thread::spawn(move || pool.bind().poll_deferred()).join().unwrap();
    assert_eq!(arena.pages_out(), 0);
}

#[test]
fn pages_that_return_while_the_pool_shrinks_are_counted_once() {
    let arena = arena(16 * MIB);
    let params = PoolParams { ring_size: 64, lane_size: 64, ..Default::default() };
    let pool = pool_of(&arena, params);
    let stop = Arc::new(AtomicBool::new(false));
    let asker = {
        let (handle, stop) = (pool.handle(), stop.clone());
        thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                handle.ask_to_shrink(40);
                thread::yield_now();
            }
        })
    };
    let (send, receive) = std::sync::mpsc::sync_channel::<Vec<PageBuf>>(4);
    let returner = thread::spawn(move || receive.into_iter().for_each(drop));
    for round in 0..400 {
        let mut burst: Vec<_> = (0..100).filter_map(|_| pool.alloc_page()).collect();
        burst.extend((0..60).filter_map(|_| pool.alloc_frag(1000)));
        send.send(burst).unwrap();
        pool.shrink(round % 90);
    }
    drop(send);
    returner.join().unwrap();
    stop.store(true, Ordering::Relaxed);
    asker.join().unwrap();
    pool.shrink(0);
    let (at, stats) = (pool.inflight(), pool.stats());
    assert_eq!((arena.pages_out(), at.total, at.lanes, at.ring), (0, 0, 0, 0), "{at:?} {stats:?}");
    let end = pool.destroy();
    assert!(end.is_complete(), "{}", end.report());
}
