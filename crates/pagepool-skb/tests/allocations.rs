//! Packets allocate nothing: an allocator that counts, per thread.

// UNSAFETY: an allocator is unsafe to implement.
#![expect(unsafe_code)]
#![allow(clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use pagepool::{Arena, ArenaParams, Bound, Pool, PoolParams, XdpBuff, XdpFrame};
use pagepool_skb::{SkBuff, SkbCache};

struct AllocationCount;

thread_local! {
    static ALLOCATED: Cell<u64> = const { Cell::new(0) };
    static FREED: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: the system's allocator does it all.
unsafe impl GlobalAlloc for AllocationCount {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.with(|count| count.set(count.get() + 1));
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        FREED.with(|count| count.set(count.get() + 1));
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: AllocationCount = AllocationCount;

fn allocated() -> u64 {
    ALLOCATED.with(Cell::get)
}

/// What is allocated and not freed, as far as this thread did both.
fn live() -> i64 {
    ALLOCATED.with(Cell::get) as i64 - FREED.with(Cell::get) as i64
}

fn receive(pool: &Bound, cache: &SkbCache, frags: usize) -> SkBuff {
    let mut packet = XdpBuff::received(pool.alloc_page().unwrap(), 1500).unwrap();
    for _ in 0..frags {
        packet.add_frag(pool.alloc_page().unwrap(), 0, 1500).unwrap();
    }
    SkBuff::from_frame(cache, XdpFrame::from(packet)).unwrap()
}

/// What a stack does with packets: parses, clones, reassembles, answers, sends.
fn work(pool: &Bound, cache: &SkbCache) {
    let mut stream = receive(pool, cache, 2);
    let clone = stream.clone();
    drop(stream.clone());
    drop(clone);
    stream.pull(54).unwrap();
    let mut next = receive(pool, cache, 1);
    next.pull(54).unwrap();
    stream.try_coalesce(next).unwrap();
    let mut cloned = receive(pool, cache, 3);
    cloned.pull(1500).unwrap();
    stream.try_coalesce(cloned.clone()).unwrap();
    let rest = stream.split(4000).unwrap();
    assert!(rest.chunks().unwrap().count() > 1);
    let mut answer = SkBuff::with_capacity(cache, 128, 0).unwrap();
    answer.add_frag(pool.alloc_page().unwrap(), 0, 1400).unwrap();
    answer.make_linear(100).unwrap();
    answer.push(14).unwrap().fill(1);
    let mut copy = answer.clone();
    copy.cow_head(64).unwrap();
    copy.trim(400).unwrap();
    cloned.pull(1600).unwrap();
}

#[test]
fn after_warm_up_nothing_is_allocated() {
    let arena = Arena::new(ArenaParams { max_bytes: 4 << 20, ..Default::default() }).unwrap();
    let pool = Pool::new(PoolParams::default(), arena).unwrap().bind();
    let cache = SkbCache::new(32).unwrap();
    work(&pool, &cache);
    let (before, returned) = (allocated(), pool.stats().recycle_cached);
    for _ in 0..1000 {
        work(&pool, &cache);
    }
    assert_eq!(allocated() - before, 0);
    assert_eq!((pool.stats().recycle_cached - returned, pool.inflight().out), (10_000, 0));
}

#[test]
fn nor_by_the_last_clone_on_another_thread() {
    let arena = Arena::new(ArenaParams { max_bytes: 4 << 20, ..Default::default() }).unwrap();
    let pool = Pool::new(PoolParams::default(), arena).unwrap().bind();
    let cache = SkbCache::new(32).unwrap();
    let packets: Vec<_> = (0..20).map(|_| receive(&pool, &cache, 2)).collect();
    let clones = packets.clone();
    drop(packets);
    let other = std::thread::spawn(move || {
        let mut clones = clones.into_iter();
        drop(clones.next()); // a thread's first return claims its lane
        let before = allocated();
        clones.by_ref().for_each(drop);
        allocated() - before
    });
    assert_eq!((other.join().unwrap(), pool.inflight().out), (0, 0));
}

#[test]
fn the_last_packet_frees_its_cache() {
    let before = live();
    let cache = SkbCache::new(4).unwrap();
    let made = live();
    let packets = [1, 2].map(|byte| SkBuff::from_bytes(&cache, 0, &[byte]).unwrap());
    drop(SkBuff::from_bytes(&cache, 0, &[3]).unwrap());
    let clone = packets[1].clone();
    drop(cache);
    let handle_gone = live();
    assert!(before < handle_gone && handle_gone < made);
    drop(packets);
    assert_eq!((live(), clone.data()), (handle_gone, &[2][..]));
    drop(clone);
    assert_eq!(live(), before, "the blocks are freed");
    drop(SkbCache::new(4).unwrap());
    assert_eq!(live(), before, "with nothing out the last handle frees them");
}
