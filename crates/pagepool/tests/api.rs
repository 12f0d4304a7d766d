//! What a user of the pool may rely on: who may be sent where, what is refused and in which words, the
//! wake-up, the end.
#![allow(clippy::unwrap_used)]
// UNSAFETY: the test sleeps in poll(2).
#![expect(unsafe_code)]

use std::collections::HashSet;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use pagepool::{
    Arena, ArenaParams, Batch, Bound, DeviceMemory, DeviceTable, Error, NodeId, PageBuf, PageRef, Pool,
    PoolParams, PoolRef, Provider, Registry, SharedBuf, Shutdown, Topology, XdpBuff, XdpFrame, XdpFrameBulk,
};
use pagepool_testing::{CheckingIommu, PlainMemory};

fn pool_with(pages: usize, params: PoolParams) -> Bound {
    Pool::new(params.clone(), PlainMemory::new(pages, params.order).unwrap()).unwrap().bind()
}

fn pool(pages: usize) -> Bound {
    pool_with(pages, PoolParams::default())
}

// ---- Who may be sent where ----------------------------------------------------------------------

/// Says at compile time that a type is not what the trait bound would make ambiguous.
macro_rules! assert_not {
    ($type:ty: $trait:path) => {
        const _: fn() = || {
            trait Ambiguous<A> {
                fn which() {}
            }
            impl<T: ?Sized> Ambiguous<()> for T {}
            impl<T: ?Sized + $trait> Ambiguous<u8> for T {}
            let _ = <$type as Ambiguous<_>>::which;
        };
    };
}

assert_not!(Pool: Sync);
assert_not!(Bound: Send);
assert_not!(Bound: Sync);
assert_not!(PageBuf: Clone);
assert_not!(Batch: Clone);
assert_not!(PageRef: Clone);

#[test]
fn what_may_be_sent_may_be_sent() {
    fn sent<T: Send>() {}
    fn shared<T: Send + Sync>() {}
    fn observer<T: Send + Sync + Clone>() {}
    sent::<Pool>();
    shared::<PageBuf>();
    shared::<Batch>();
    shared::<PageRef>();
    shared::<Shutdown>();
    observer::<SharedBuf>();
    observer::<PoolRef>();
    shared::<XdpBuff>();
    shared::<XdpFrame>();
    shared::<XdpFrameBulk>();
    shared::<DeviceTable>();
    shared::<Registry>();
    assert_eq!((size_of::<PageBuf>(), size_of::<Option<PageBuf>>()), (16, 16));
}

// ---- Parameters ---------------------------------------------------------------------------------

/// The refusal names the field, the value, and the range.
#[track_caller]
fn refused(params: PoolParams, field: &str, value: &str, range: &str) {
    let memory = Arena::new(ArenaParams { max_bytes: 8 << 20, ..Default::default() }).unwrap();
    let error = Pool::new(params, memory).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::Parameter { field: named, .. } if named == field), "{text}");
    assert_eq!(error.errno(), 22);
    assert!([field, value, range].iter().all(|part| text.contains(part)), "{text}");
}

macro_rules! refusals {
    ($(
        $test:ident: $field:ident = $value:expr, $shown:literal, $range:literal
        $(, $other:ident = $with:expr)*;
    )+) => {
        $(#[test]
        fn $test() {
            let params = PoolParams { $field: $value, $($other: $with,)* ..Default::default() };
            refused(params, stringify!($field), $shown, $range);
        })+
    };
}

refusals! {
    order_beyond_the_largest: order = 11, "11", "0 to 10";
    cache_beyond_the_largest: cache_size = 1025, "1025", "0 to 1024";
    refill_beyond_the_cache: refill = 9, "9", "1 to 8", cache_size = 8;
    refill_beyond_the_largest: refill = 257, "257", "1 to 256", cache_size = 1024;
    too_many_lanes: max_lanes = 65, "65", "0 to 64";
    lane_of_one_slot: lane_size = 1, "1", "power of two from 2 to 16384";
    lane_no_power_of_two: lane_size = 48, "48", "power of two";
    lane_beyond_the_largest: lane_size = 32768, "32768", "16384";
    headroom_of_a_whole_page: headroom = 4096, "4096", "0 to 4095";
    tailroom_beyond_the_page: tailroom = 3000, "3000", "0 to 2095", headroom = 2000;
    sizes_that_overflow: tailroom = usize::MAX, "18446744073709551615", "0 to 3095", headroom = 1000;
    headroom_that_overflows: headroom = usize::MAX, "18446744073709551615", "0 to 4095";
    packet_beyond_the_page: max_len = 4000, "4000", "1 to 3584", headroom = 256, tailroom = 256;
    frag_align_of_4: frag_align = 4, "4", "power of two from 8 to 4096";
    frag_align_no_power_of_two: frag_align = 96, "96", "power of two";
    frag_align_of_0: frag_align = 0, "0", "8 to 4096";
    frag_align_beyond_the_largest: frag_align = 8192, "8192", "4096";
    sync_without_a_domain: sync_for_device = true, "true", "domains";
    node_that_is_not_there: nid = Some(NodeId(77)), "77", "node";
}

#[test]
fn an_order_beyond_the_arena_is_refused() {
    let memory = PlainMemory::new(1, 2).unwrap();
    let params = PoolParams { order: 3, ..Default::default() };
    let text = Pool::new(params, memory).unwrap_err().to_string();
    assert!(text.contains("order") && text.contains('3') && text.contains("16384 bytes"), "{text}");
}

#[test]
fn sizes_of_0_are_linuxs_defaults_and_a_huge_ring_is_clamped() {
    let params = PoolParams { ring_size: 1_000_000, max_lanes: 0, ..Default::default() };
    let pool = pool_with(17_000, params);
    let buffers: Vec<_> = (0..17_000).map(|_| pool.alloc_page().unwrap()).collect();
    std::thread::spawn(move || drop(buffers)).join().unwrap();
    let stats = pool.stats();
    assert_eq!((stats.recycle_ring, stats.recycle_ring_full), (16_384, 17_000 - 16_384));
    for (order, refill) in [(0, 64), (1, 64)] {
        let pool = pool_with(256, PoolParams { order, ..Default::default() });
        let buffers: Vec<_> = (0..256).map(|_| pool.alloc_page().unwrap()).collect();
        drop(buffers);
        assert_eq!(pool.inflight().cache, 2 * refill, "order {order}");
    }
    let large = pool_with(64, PoolParams { order: 2, ..Default::default() });
    drop((0..64).map(|_| large.alloc_page().unwrap()).collect::<Vec<_>>());
    assert_eq!(large.inflight().cache, 32, "16 KiB pages: a refill of 16");
}

#[test]
fn a_refused_pool_leaves_nothing_mapped() {
    let memory = PlainMemory::new(8, 0).unwrap();
    let (good, bad) = (CheckingIommu::new("good"), CheckingIommu::new("bad"));
    bad.fail_map(1);
    let params = PoolParams { name: "rx".into(), domains: vec![good.clone(), bad], ..Default::default() };
    let error = Pool::new(params, memory.clone()).unwrap_err();
    assert!(error.to_string().contains("bad"), "{error}");
    let counts = good.counts();
    assert_eq!((counts.maps, counts.unmaps, good.mapped_regions()), (1, 1, 0));
    assert_eq!(memory.free(), 8);
}

// ---- Packets in pages ---------------------------------------------------------------------------

#[test]
fn colours_move_packets_and_never_take_headroom() {
    let params = PoolParams { headroom: 256, max_len: 1514, tailroom: 320, ..Default::default() };
    let coloured = pool_with(64, params.clone());
    let buffers: Vec<_> = (0..64).map(|_| coloured.alloc_page().unwrap()).collect();
    let offsets: HashSet<_> = buffers.iter().map(PageBuf::packet_offset).collect();
    assert_eq!(offsets.len(), 16);
    for buffer in &buffers {
        let at = buffer.packet_offset();
        assert!(at >= 256 && at % 64 == 0 && at + 1514 + 320 <= 4096, "{at}");
        assert_eq!((buffer.packet().unwrap().len(), buffer.len()), (1514, 4096));
    }
    let plain = pool_with(64, PoolParams { colour: false, ..params });
    let buffers: Vec<_> = (0..64).map(|_| plain.alloc_page().unwrap()).collect();
    assert!(buffers.iter().all(|buffer| buffer.packet_offset() == 256));
    let full = pool_with(64, PoolParams { headroom: 256, ..Default::default() });
    let buffers: Vec<_> = (0..64).map(|_| full.alloc_page().unwrap()).collect();
    assert!(buffers.iter().all(|buffer| buffer.packet_offset() == 256), "nothing is left over for colours");
    let halves = ArenaParams { max_bytes: 1 << 20, page_size: 2048, ..Default::default() };
    let (halves, params) = (Arena::new(halves).unwrap(), PoolParams { max_len: 60, ..Default::default() });
    let small = Pool::new(params.clone(), halves.clone()).unwrap().bind();
    let buffers: Vec<_> = (0..64).map(|_| small.alloc_page().unwrap()).collect();
    assert!(buffers.iter().all(|buffer| buffer.packet_offset() == 0), "pages of 2 KiB have none");
    let two = Pool::new(PoolParams { order: 1, ..params }, halves).unwrap().bind();
    let offset = |_| two.alloc_page().map(|page| (page.packet_offset(), page));
    let buffers: Vec<_> = (0..16).filter_map(offset).collect();
    let offsets: HashSet<_> = buffers.iter().map(|(offset, _)| offset).collect();
    assert_eq!(offsets.len(), 16, "two together have");
}

#[test]
fn memory_that_the_cpu_cannot_read_is_none() {
    let memory = DeviceMemory::new("gpu", 1 << 20, NodeId(0)).unwrap();
    let pool = Pool::new(PoolParams::default(), memory).unwrap().bind();
    let mut buffer = pool.alloc_page().unwrap();
    assert!(buffer.bytes().is_none() && buffer.bytes_mut().is_none() && buffer.as_ptr().is_none());
    assert!(buffer.packet().is_none() && buffer.packet_mut().is_none());
    assert!(buffer.page_ref().as_ptr().is_none());
    let mut batch = pool.alloc_batch(2);
    assert!(batch.bytes_mut(0).is_none() && batch.packet_mut(1).is_none());
    assert!(buffer.into_shared().bytes().is_none());
}

#[test]
fn a_pool_refuses_to_recycle_anothers_buffer() {
    let (ours, theirs) = (pool(64), pool(64));
    let buffer = theirs.alloc_page().unwrap();
    let buffer = ours.recycle_direct(buffer).unwrap_err();
    drop(buffer);
    assert_eq!((ours.stats().recycle_cached, theirs.stats().recycle_cached), (0, 1));
    let mut batch = ours.alloc_batch(1);
    let buffer = batch.push(theirs.alloc_page().unwrap()).unwrap_err();
    assert_eq!((batch.len(), buffer.pool_id()), (1, theirs.handle().id()));
}

// ---- Running dry --------------------------------------------------------------------------------

/// Sleeps on the pool's descriptor, as a poll loop does beside its socket's.
fn readable(pool: &Bound, limit: Duration) -> bool {
    let mut fd = libc::pollfd { fd: pool.wake_fd().unwrap().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one pollfd, which lives across the call.
    unsafe { libc::poll(&mut fd, 1, limit.as_millis() as libc::c_int) == 1 }
}

#[test]
fn a_sleeping_owner_is_woken_by_the_first_return() {
    for max_lanes in [0, 4] {
        let pool = pool_with(8, PoolParams { wakeup: true, max_lanes, ..Default::default() });
        let mut buffers = Vec::with_capacity(8);
        assert_eq!(pool.alloc_bulk(&mut buffers, 8), 8);
        assert!(!readable(&pool, Duration::ZERO), "nobody starved yet");
        assert!(pool.alloc_page().is_none());
        let returner = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            pagepool::put_bulk(&mut buffers);
        });
        assert!(readable(&pool, Duration::from_secs(60)), "woken");
        pool.acknowledge_wake();
        assert!(!readable(&pool, Duration::ZERO), "once");
        returner.join().unwrap();
        assert!(pool.alloc_page().is_some());
    }
    assert!(pool(8).wake_fd().is_none(), "not asked for");
}

#[test]
fn the_low_water_mark_can_be_set() {
    let pool = pool_with(192, PoolParams { wakeup: true, low_water: 100, ..Default::default() });
    assert_eq!(pool.low_water_mark(), 192);
    let first: Vec<_> = (0..64).map(|_| pool.alloc_page().unwrap()).collect();
    std::thread::spawn(move || drop(first)).join().unwrap();
    assert!(!readable(&pool, Duration::ZERO), "191 were left");
    let second: Vec<_> = (0..192).map(|_| pool.alloc_page().unwrap()).collect();
    assert!(pool.low_water_mark() <= 64, "{}", pool.low_water_mark());
    std::thread::spawn(move || drop(second)).join().unwrap();
    assert!(readable(&pool, Duration::ZERO), "fewer than 100 were left");
}

// ---- Nodes --------------------------------------------------------------------------------------

#[test]
fn a_page_of_another_node_is_waived_one_per_allocation() {
    let here = Arc::new(AtomicU8::new(0));
    let topology = Topology::pretend_halves(2).with_current_node(here.clone());
    let arena = Arena::new(ArenaParams { max_bytes: 16 << 20, topology, ..Default::default() }).unwrap();
    let pool = Pool::new(PoolParams::default(), arena).unwrap().bind();
    let before: Vec<_> = (0..64).map(|_| pool.alloc_page().unwrap()).collect();
    std::thread::spawn(move || drop(before)).join().unwrap();
    here.store(1, Ordering::Relaxed); // the owner's thread moved
    let after: Vec<_> = (0..64 * 4).map(|_| pool.alloc_page().unwrap()).collect();
    let stats = pool.stats();
    assert_eq!((stats.alloc_waive, stats.alloc_refill), (4, 0), "{stats:?}");
    assert_eq!(stats.alloc_slow + stats.alloc_failed, stats.alloc_empty + stats.alloc_waive);
    assert_eq!(stats.alloc_fast + stats.alloc_refill + stats.alloc_slow, 64 * 5);
    drop(after);
    assert_eq!(stats.hold - stats.release, pool.inflight().total as u64);
}

#[test]
fn update_nid_empties_the_cache_and_moves() {
    let topology = Topology::pretend_halves(2);
    let arena = Arena::new(ArenaParams { max_bytes: 16 << 20, topology, ..Default::default() }).unwrap();
    let pool =
        Pool::new(PoolParams { nid: Some(NodeId(0)), ..Default::default() }, arena.clone()).unwrap().bind();
    drop(pool.alloc_page().unwrap());
    pool.nid_changed(Some(NodeId(0))).unwrap();
    assert_eq!(pool.inflight().cache, 64, "it was that node already");
    pool.nid_changed(Some(NodeId(1))).unwrap();
    assert_eq!(pool.inflight().total, 0);
    let buffer = pool.alloc_page().unwrap();
    assert_eq!(arena.area().node_of(buffer.page()), NodeId(1));
    assert!(pool.update_nid(Some(NodeId(9))).is_err());
}

// ---- The end ------------------------------------------------------------------------------------

#[test]
fn a_stalled_end_says_who_holds_what() {
    let pool = pool_with(64, PoolParams { name: "rx7".into(), tagging: true, ..Default::default() });
    let mut buffers: Vec<_> = (0..3).map(|_| pool.alloc_page().unwrap()).collect();
    let stack = pool.tag("tcp stack");
    assert_eq!(stack, pool.tag("tcp stack"));
    buffers[1].set_tag(stack);
    let (page, id) = (buffers[1].page(), buffers[1].pool_id());
    let shutdown = pool.destroy();
    let from = Instant::now();
    assert!(!shutdown.wait(Duration::from_millis(30)));
    assert!(from.elapsed() >= Duration::from_millis(30));
    let report = shutdown.report();
    assert_eq!((report.pages.len(), report.id, report.pool.as_str()), (3, id, "rx7"));
    let text = report.to_string();
    let seconds = report.held_for.as_secs();
    let head = format!("stalled pool shutdown: 3 buffers held for {seconds} s (pool rx7 id {id})");
    assert!(text.starts_with(&head), "{text}");
    assert!(text.contains(&format!("page {page:?} held by tcp stack")), "{text}");
    buffers.truncate(1);
    assert!(shutdown.report().to_string().starts_with("stalled pool shutdown: 1 buffer held for "));
    let last = std::thread::spawn(move || drop(buffers));
    assert!(shutdown.wait(Duration::from_secs(60)), "{}", shutdown.report());
    last.join().unwrap();
    assert!(shutdown.report().to_string().starts_with("pool shutdown complete"));
}

#[test]
fn a_long_report_names_sixteen_pages_and_counts_the_rest() {
    let pool = pool(64);
    let buffers: Vec<_> = (0..20).map(|_| pool.alloc_page().unwrap()).collect();
    let text = pool.destroy().report().to_string();
    assert!(text.contains("20 buffers") && text.ends_with("and 4 more"), "{text}");
    drop(buffers);
}

/// What the end of a pool with a fragment out takes, over a new arena, of which all is there.
fn end_with_a_frag_out(max_bytes: u64) -> Duration {
    let arena = Arena::new(ArenaParams { max_bytes, commit_all: true, ..Default::default() }).unwrap();
    let pool = Pool::new(PoolParams::default(), arena.clone()).unwrap().bind();
    let frag = pool.alloc_frag(100).unwrap();
    let from = Instant::now();
    let shutdown = pool.destroy();
    let took = from.elapsed();
    drop(frag);
    assert!(shutdown.is_complete(), "{}", shutdown.report());
    assert_eq!(arena.pages_out(), 0);
    took
}

#[test]
fn ending_a_pool_costs_as_much_in_an_arena_of_any_size() {
    let small = (0..7).map(|_| end_with_a_frag_out(4 << 20)).min().unwrap();
    // A walk over the records of 8 GiB takes tens of milliseconds, each time; the end itself some ten
    // microseconds, if this thread runs as long. One that was undisturbed is enough.
    let most = small * 8 + Duration::from_millis(1);
    let mut large: Vec<Duration> = Vec::new();
    while large.last().is_none_or(|&took| took >= most) {
        assert!(large.len() < 100, "4 MiB: {small:?}, 8 GiB: {large:?}");
        large.push(end_with_a_frag_out(8 << 30));
    }
}

#[test]
fn a_pool_moves_and_its_old_thread_returns_like_any_other() {
    let first = pool(64);
    let kept = first.alloc_page().unwrap();
    let moved = first.unbind();
    let owner = std::thread::spawn(move || {
        let pool = moved.bind();
        drop(pool.alloc_page().unwrap());
        assert_eq!(pool.stats().recycle_cached, 1);
        pool.unbind()
    });
    let pool = owner.join().unwrap();
    drop(kept);
    let stats = pool.handle().stats();
    assert_eq!((stats.recycle_cached, stats.recycle_ring), (1, 1));
    assert_eq!(pool.bind().inflight().out, 0);
}

#[test]
fn one_thread_polls_many_pools() {
    let pools: Vec<_> = (0..40).map(|_| pool(8)).collect();
    let mut buffers: Vec<_> = pools.iter().map(|pool| pool.alloc_page().unwrap()).collect();
    pagepool::put_bulk(&mut buffers);
    assert!(pools.iter().all(|pool| pool.stats().recycle_cached == 1));
    let buffers: Vec<_> = pools.iter().map(|pool| pool.alloc_page().unwrap()).collect();
    std::thread::spawn(move || drop(buffers)).join().unwrap();
    assert!(pools.iter().all(|pool| pool.inflight().lanes == 1), "more pools than a thread's table has ways");
}

#[test]
fn identities_of_the_counters_hold() {
    let pool = pool_with(4096, PoolParams { ring_size: 100, lane_size: 64, ..Default::default() });
    let mut returned = 0u64;
    for round in 0..50u64 {
        let mut buffers: Vec<_> = (0..30 + round * 7).map(|_| pool.alloc_page().unwrap()).collect();
        returned += buffers.len() as u64;
        let elsewhere = buffers.split_off(buffers.len() / 2);
        drop(buffers);
        std::thread::spawn(move || drop(elsewhere)).join().unwrap();
    }
    let stats = pool.stats();
    assert_eq!(stats.alloc_fast + stats.alloc_refill + stats.alloc_slow, returned);
    assert_eq!(stats.alloc_slow + stats.alloc_failed, stats.alloc_empty + stats.alloc_waive);
    let by_call =
        stats.recycle_cached + stats.recycle_ring + stats.recycle_ring_full + stats.recycle_released_refcnt;
    assert_eq!(by_call, returned);
    assert!(stats.recycle_cache_full <= stats.recycle_ring + stats.recycle_ring_full);
    let at = pool.inflight();
    assert_eq!(
        (at.cache + at.lanes + at.ring, at.total as u64),
        (at.total as u64, stats.hold - stats.release)
    );
}
