//! No heap allocation per packet: everything that is done to packets, counted.

// UNSAFETY: a global allocator that counts, over the system's.
#![expect(unsafe_code)]
#![allow(clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use pagepool::{
    Arena, ArenaParams, Bound, DeviceAddr, DmaDomain, DomainId, NoDirectRecycle, Pool, PoolParams, Region,
    XdpBuff, XdpFrame, XdpFrameBulk,
};
use pagepool_testing::PlainMemory;

struct CountingAllocator;

thread_local! {
    static MADE: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        MADE.set(MADE.get() + 1);
        // SAFETY: the caller's promise is the same.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        MADE.set(MADE.get() + 1);
        // SAFETY: as above.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static COUNTING: CountingAllocator = CountingAllocator;

/// What this thread allocates and frees in the second half of many rounds, the first being the warm-up.
fn allocations(rounds: usize, mut work: impl FnMut(usize)) -> u64 {
    (0..rounds / 2).for_each(&mut work);
    let before = MADE.get();
    (rounds / 2..rounds).for_each(&mut work);
    MADE.get() - before
}

/// A pool with enough pages in its ring not to need its provider again.
fn pool(name: &str) -> Bound {
    let params = PoolParams { name: name.into(), headroom: 256, ..Default::default() };
    let pool = Pool::new(params, PlainMemory::new(1024, 0).unwrap()).unwrap().bind();
    let pages: Vec<_> = (0..640).map(|_| pool.alloc_page().unwrap()).collect();
    drop(pages);
    pool
}

/// A jumbo packet whose head and tail were moved, with a further buffer of another pool and a fragment.
fn frame(pool: &Bound, other: &Bound) -> XdpFrame {
    let mut packet = XdpBuff::received(pool.alloc_page().unwrap(), 1000).unwrap();
    packet.adjust_head(-4).unwrap();
    packet.adjust_meta(-4).unwrap();
    for buffer in [pool.alloc_page(), other.alloc_page(), pool.alloc_frag(1000), pool.alloc_frag(1000)] {
        packet.add_frag(buffer.unwrap(), 0, 1000).unwrap();
    }
    packet.adjust_tail(-1200).unwrap();
    XdpFrame::from(packet).into_buff().into()
}

/// Returns frames in bulk.
fn put_frames(frames: &mut Vec<XdpFrame>) {
    let mut bulk = XdpFrameBulk::new();
    frames.drain(..).for_each(|frame| bulk.push(frame));
}

#[test]
fn on_the_owner_s_thread() {
    let [pool, other] = ["one", "two"].map(pool);
    let mut bulk = XdpFrameBulk::new();
    let mut frames = Vec::with_capacity(8);
    let made = allocations(4000, |round| match round % 5 {
        0 => drop(frame(&pool, &other)),
        1 => frame(&pool, &other).put_ring(),
        2 => bulk.push(frame(&pool, &other)),
        3 => {
            let _scope = NoDirectRecycle::enter();
            drop(frame(&pool, &other));
            bulk.flush();
        }
        _ => {
            frames.extend((0..8).map(|_| frame(&pool, &other)));
            put_frames(&mut frames);
        }
    });
    assert_eq!(made, 0);
    drop(bulk);
    for end in [pool.destroy(), other.destroy()] {
        assert!(end.is_complete(), "{}", end.report());
    }
}

/// Returns bursts in turn by each way, and says what it allocated once there are no more.
fn returner(bursts: Receiver<Vec<XdpFrame>>, empty: SyncSender<Vec<XdpFrame>>) -> u64 {
    let mut bulk = XdpFrameBulk::new();
    let put = |round: usize, burst: &mut Vec<XdpFrame>, bulk: &mut XdpFrameBulk| match round % 4 {
        0 => burst.clear(),
        1 => burst.drain(..).for_each(XdpFrame::put_ring),
        2 => put_frames(burst),
        _ => {
            burst.drain(..).for_each(|frame| bulk.push(frame));
            bulk.flush();
        }
    };
    let mut made = 0;
    for (round, mut burst) in bursts.iter().enumerate() {
        let before = MADE.get();
        put(round, &mut burst, &mut bulk);
        made += if round < 100 { 0 } else { MADE.get() - before };
        empty.send(burst).unwrap();
    }
    made
}

#[test]
fn on_a_returning_thread_and_its_owner_s() {
    let [pool, other] = ["one", "two"].map(pool);
    let (send, bursts) = sync_channel::<Vec<XdpFrame>>(1);
    let (give, empty) = sync_channel(1);
    let returner = std::thread::spawn(move || returner(bursts, give));
    let mut burst = Some(Vec::with_capacity(8));
    let mut made = 0;
    for round in 0..400 {
        let mut frames = burst.take().unwrap();
        let before = MADE.get();
        frames.extend((0..8).map(|_| frame(&pool, &other)));
        made += if round < 100 { 0 } else { MADE.get() - before };
        send.send(frames).unwrap();
        burst = Some(empty.recv().unwrap());
    }
    drop(send);
    assert_eq!((made, returner.join().unwrap()), (0, 0), "owner, returner");
    for end in [pool.destroy(), other.destroy()] {
        assert!(end.is_complete(), "{}", end.report());
    }
}

/// A domain that fixes its area, as a UMEM does, and counts how often it is asked.
#[derive(Debug)]
struct Umem(DomainId, AtomicUsize);

impl Umem {
    fn asked(&self) {
        self.1.fetch_add(1, Relaxed);
    }
}

impl DmaDomain for Umem {
    fn id(&self) -> DomainId {
        self.asked();
        self.0
    }
    fn name(&self) -> String {
        self.asked();
        "umem".into()
    }
    fn map(&self, region: &Region) -> Result<DeviceAddr, String> {
        Ok(DeviceAddr(region.offset()))
    }
    fn unmap(&self, _region: &Region, _at: DeviceAddr) {}
    fn sync_for_device(&self, _at: DeviceAddr, _len_bytes: usize) {}
    fn sync_for_cpu(&self, _at: DeviceAddr, _len_bytes: usize) {}
    fn fixes_area(&self) -> bool {
        self.asked();
        true
    }
}

/// A receive queue that outruns its consumers fails to allocate over and over.
#[test]
fn a_failing_allocation_allocates_no_heap_and_calls_no_domain() {
    // Of 16 MiB the first 4 are committed when the domain fixes the arena.
    let arena = Arena::new(ArenaParams { max_bytes: 16 << 20, ..Default::default() }).unwrap();
    let umem = Arc::new(Umem(DomainId::unique(), AtomicUsize::new(0)));
    let params = PoolParams { domains: vec![umem.clone()], ..Default::default() };
    let pool = Pool::new(params, arena.clone()).unwrap().bind();
    let _all: Vec<_> = std::iter::from_fn(|| pool.alloc_page()).collect();
    let asked = umem.1.load(Relaxed);
    assert_eq!(allocations(200, |_| assert!(pool.alloc_page().is_none())), 0);
    assert_eq!(umem.1.load(Relaxed), asked);
    let error = arena.last_growth_error().unwrap().to_string();
    assert!(error.contains("umem"), "{error}");
}
