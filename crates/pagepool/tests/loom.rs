//! Every interleaving of small scenes over the real pool, within a bound on preemptions.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p pagepool --profile loom --test loom`
//!
//! Each model makes a pool of very few pages over plain memory, lets two or three threads race, and checks at
//! the end that the provider has every page back exactly once, that hold and release balance, and that the
//! pool was freed. `LOOM_MAX_PREEMPTIONS` overrides the bound. Note 0001 lists the mutations that each model
//! finds.
#![cfg(loom)]
#![allow(clippy::unwrap_used)]

use std::future::Future;
use std::io::Read;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Wake};

use loom::thread::{self, JoinHandle};
use pagepool::{
    Bound, DeviceAddr, Holders, IdentityDomain, OnBusy, PageBuf, Pool, PoolParams, PoolRef, Registry,
    Shutdown, UseCounts, XdpBuff, XdpFrame, XdpFrameBulk,
};
use pagepool_testing::Op;

#[path = "loom/lives_model.rs"]
mod lives_model;
#[path = "loom/scene.rs"]
mod scene;

use scene::{Scene, explore, scene, small};

fn drop_there(buffer: PageBuf) -> JoinHandle<()> {
    thread::spawn(move || drop(buffer))
}

fn take(pool: &Bound, n: usize) -> Vec<PageBuf> {
    (0..n).map(|_| pool.alloc_page().unwrap()).collect()
}

// ---- Return against refill ----------------------------------------------------------------------

fn return_against_refill(params: PoolParams) {
    let (scene, pool) = scene(2, params);
    let mut out = take(&pool, 2);
    let mine = out.pop().unwrap();
    let returner = thread::spawn(move || drop(out));
    let found = pool.alloc_page();
    returner.join().unwrap();
    let late = found.is_none();
    assert!(found.or_else(|| pool.alloc_page()).is_some(), "what was returned can be allocated");
    let stats = pool.stats();
    assert_eq!(stats.alloc_failed, u64::from(late));
    assert_eq!((stats.alloc_refill, stats.recycle_ring), (1, 1), "{stats:?}");
    drop(mine);
    scene.destroy(pool);
}

#[test]
fn return_against_refill_through_the_lane() {
    explore("return_against_refill/lane", 3, || return_against_refill(small(1, 1)));
}

#[test]
fn return_against_refill_through_the_ring() {
    explore("return_against_refill/ring", 3, || return_against_refill(small(0, 1)));
}

/// Who returns a page clears its record, the owner writes it anew: never the other way round.
fn records_against_returns(max_lanes: usize) {
    let (scene, pool) = scene(1, PoolParams { holders: Holders::Ages, ..small(max_lanes, 1) });
    let [first, second] = ["first", "second"].map(|name| pool.tag(name));
    pool.set_tag(Some(first));
    let returner = drop_there(pool.alloc_page().unwrap());
    pool.set_tag(Some(second));
    let again = pool.alloc_page();
    returner.join().unwrap();
    let view = scene.handle.holders().unwrap();
    assert_eq!(view.held, u64::from(again.is_some()));
    assert!(view.oldest.iter().all(|holder| holder.tag.as_deref() == Some("second")), "{view:?}");
    drop(again);
    scene.destroy(pool);
    assert_eq!(scene.handle.holders().unwrap().held, 0);
}

#[test]
fn records_of_pages_that_return_through_the_lane() {
    explore("records_lane", 3, || records_against_returns(1));
}

#[test]
fn records_of_pages_that_return_through_the_ring() {
    explore("records_ring", 3, || records_against_returns(0));
}

fn bytes_return(max_lanes: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let (scene, pool) = scene(1, small(max_lanes, 1));
        let mut buffer = pool.alloc_page().unwrap();
        // Loom watches the cell as it would the page's bytes: an access that is not ordered is a failure.
        let bytes = Arc::new(loom::cell::UnsafeCell::new(0u8));
        let theirs = bytes.clone();
        let returner = thread::spawn(move || {
            theirs.with_mut(|_| ());
            buffer.bytes_mut().unwrap()[0] = 1;
            drop(buffer);
        });
        if let Some(again) = pool.alloc_page() {
            bytes.with_mut(|_| ());
            assert_eq!(again.bytes().unwrap()[0], 1);
        }
        returner.join().unwrap();
        scene.destroy(pool);
    }
}

#[test]
fn bytes_written_before_the_return_are_seen_after_the_refill() {
    explore("bytes/lane", 3, bytes_return(1));
    explore("bytes/ring", 3, bytes_return(0));
}

#[test]
fn bulk_return_against_refill() {
    explore("bulk_return", 2, || {
        let (scene, pool) = scene(3, small(1, 1));
        let mut out = take(&pool, 3);
        let returner = thread::spawn(move || pagepool::put_bulk(&mut out));
        let found: Vec<_> = (0..2).filter_map(|_| pool.alloc_page()).collect();
        returner.join().unwrap();
        let stats = pool.stats();
        // Two lie in the lane, the third in the ring, unless the owner took one meanwhile.
        assert_eq!(stats.recycle_ring + stats.recycle_ring_full, 3);
        drop(found);
        scene.destroy(pool);
    });
}

#[test]
fn batch_return_against_refill() {
    explore("batch_return", 2, || {
        let params = PoolParams { cache_size: 2, refill: 2, ..small(1, 1) };
        let (scene, pool) = scene(2, params);
        let batch = pool.alloc_batch(2);
        assert_eq!(batch.len(), 2);
        let returner = thread::spawn(move || drop(batch));
        let found = pool.alloc_batch(2);
        returner.join().unwrap();
        assert_eq!(pool.stats().recycle_ring, 2);
        drop(found);
        scene.destroy(pool);
    });
}

/// Pages return into the second lap of a lane of one line as soon as the owner has taken one of the first.
/// Each page has a cell that its holder writes: an access that is not ordered is a failure, and so is a page
/// that is out twice.
fn lane_laps(give_back: fn(&mut Vec<PageBuf>)) {
    let (scene, pool) = scene(3, PoolParams { cache_size: 2, refill: 2, ..small(1, 1) });
    let cells: Arc<[loom::cell::UnsafeCell<u8>; 3]> = Arc::default();
    let mut out = take(&pool, 3);
    out.iter_mut().zip(0..).for_each(|(buffer, at)| buffer.bytes_mut().unwrap()[0] = at);
    let theirs = cells.clone();
    let write = |cells: &[loom::cell::UnsafeCell<u8>; 3], buffer: &PageBuf| {
        cells[usize::from(buffer.bytes().unwrap()[0])].with_mut(|_| ());
    };
    let returner = thread::spawn(move || {
        out.iter().for_each(|buffer| write(&theirs, buffer));
        give_back(&mut out);
    });
    let mut found: Vec<PageBuf> = Vec::new();
    for _ in 0..2 {
        let from = found.len();
        found.extend((0..2).filter_map(|_| pool.alloc_page()));
        found[from..].iter().for_each(|buffer| write(&cells, buffer));
    }
    returner.join().unwrap();
    let stats = pool.stats();
    assert_eq!(stats.recycle_ring + stats.recycle_ring_full, 3, "{stats:?}");
    drop(found);
    scene.destroy(pool);
}

#[test]
fn returns_go_on_into_the_next_lap_of_the_lane() {
    explore("lane/laps", 3, || lane_laps(Vec::clear));
    explore("lane/laps_in_bulk", 3, || lane_laps(pagepool::put_bulk));
}

#[test]
fn ring_push_against_pop_wraps() {
    explore("ring_push_pop", 3, || {
        let (scene, pool) = scene(2, small(0, 1));
        let out = take(&pool, 2);
        let returner = thread::spawn(move || drop(out));
        let found: Vec<_> = (0..2).filter_map(|_| pool.alloc_page()).collect();
        returner.join().unwrap();
        let stats = pool.stats();
        assert_eq!(stats.recycle_ring + stats.recycle_ring_full, 2, "each page is counted once: {stats:?}");
        drop(found);
        scene.destroy(pool);
    });
}

#[test]
fn a_lane_wraps_while_it_is_drained() {
    explore("lane_wraps", 3, || {
        let (scene, pool) = scene(4, small(1, 4));
        let out = take(&pool, 4);
        let returner = thread::spawn(move || drop(out));
        let found: Vec<_> = (0..3).filter_map(|_| pool.alloc_page()).collect();
        returner.join().unwrap();
        assert_eq!(pool.stats().recycle_ring, 4, "each page is counted once");
        let rest = take(&pool, 4 - found.len());
        drop((found, rest));
        scene.destroy(pool);
    });
}

// ---- The last return against destroy ------------------------------------------------------------

fn last_return_against_destroy(params: PoolParams, fill_ring: bool) {
    let (scene, pool) = scene(2, params);
    let mut out = take(&pool, 2);
    let (last, other) = (out.pop().unwrap(), out.pop().unwrap());
    if fill_ring {
        other.put_ring();
    } else {
        drop(other);
    }
    let returner = drop_there(last);
    let shutdown = pool.destroy();
    returner.join().unwrap();
    scene.ended(&shutdown);
}

#[test]
fn last_return_through_the_lane() {
    explore("destroy/lane", 3, || last_return_against_destroy(small(1, 1), false));
}

#[test]
fn last_return_through_the_ring() {
    explore("destroy/ring", 3, || last_return_against_destroy(small(0, 2), false));
}

#[test]
fn last_return_out_of_a_full_ring() {
    explore("destroy/ring_full", 3, || last_return_against_destroy(small(0, 1), true));
}

fn last_frags_against_destroy(params: PoolParams, frags: usize, fill_ring: bool) {
    let (scene, pool) = scene(2, params);
    if fill_ring {
        pool.alloc_page().unwrap().put_ring();
    }
    let mut out: Vec<_> = (0..frags).map(|_| pool.alloc_frag(1024).unwrap()).collect();
    assert!(out.iter().all(|frag| frag.page() == out[0].page()));
    let mine = (frags > 2).then(|| out.pop().unwrap());
    let returner = thread::spawn(move || drop(out));
    let shutdown = pool.destroy();
    drop(mine);
    returner.join().unwrap();
    scene.ended(&shutdown);
}

#[test]
fn last_frag_through_the_lane() {
    explore("destroy/frag_lane", 3, || last_frags_against_destroy(small(1, 1), 2, false));
}

#[test]
fn last_frag_on_either_thread() {
    explore("destroy/frag_both", 2, || last_frags_against_destroy(small(2, 1), 3, false));
}

#[test]
fn last_frag_through_the_ring() {
    explore("destroy/frag_ring", 3, || last_frags_against_destroy(small(0, 2), 2, false));
}

#[test]
fn last_frag_of_the_overflow() {
    explore("destroy/frag_overflow", 3, || last_frags_against_destroy(small(0, 1), 2, true));
}

#[test]
fn frags_of_the_overflow_against_refill() {
    explore("frag_overflow_refill", 2, || {
        let (scene, pool) = scene(2, small(0, 1));
        let frags: Vec<_> = (0..2).map(|_| pool.alloc_frag(2048).unwrap()).collect();
        let next = pool.alloc_frag(2048).unwrap();
        let page = frags[0].page();
        assert_ne!(next.page(), page, "the first page is cut up");
        let returner = thread::spawn(move || drop(frags));
        let found = pool.alloc_page();
        returner.join().unwrap();
        let found = found.or_else(|| pool.alloc_page()).expect("both fragments have returned");
        assert_eq!(found.page(), page);
        drop((found, next));
        scene.destroy(pool);
    });
}

/// One fragment lies in the overflow when the pool ends, another of the same page is late: both count in one
/// word.
#[test]
fn an_overflowed_frag_and_a_late_one() {
    explore("destroy/overflow_and_late", 3, || {
        let (scene, pool) = scene(2, small(0, 1));
        let [early, late] = [(); 2].map(|()| pool.alloc_frag(2048).unwrap());
        pool.alloc_page().unwrap().put_ring(); // which is full now
        drop_there(early).join().unwrap();
        let returner = drop_there(late);
        let shutdown = pool.destroy();
        returner.join().unwrap();
        scene.ended(&shutdown);
    });
}

fn two_returners_against_destroy(params: PoolParams) {
    let (scene, pool) = scene(2, params);
    let returners: Vec<_> = take(&pool, 2).into_iter().map(drop_there).collect();
    let shutdown = pool.destroy();
    for returner in returners {
        returner.join().unwrap();
    }
    scene.ended(&shutdown);
}

#[test]
fn two_returners_through_their_lanes() {
    explore("destroy/two_lanes", 2, || two_returners_against_destroy(small(2, 1)));
}

#[test]
fn two_returners_through_lane_and_ring() {
    explore("destroy/lane_and_ring", 2, || two_returners_against_destroy(small(1, 1)));
}

#[test]
fn two_frags_of_one_page_on_two_threads() {
    explore("destroy/two_frags", 2, || {
        let (scene, pool) = scene(1, small(2, 1));
        let returners: Vec<_> = (0..2).map(|_| pool.alloc_frag(1024).unwrap()).map(drop_there).collect();
        let shutdown = pool.destroy();
        for returner in returners {
            returner.join().unwrap();
        }
        scene.ended(&shutdown);
    });
}

#[test]
fn bulk_return_against_destroy() {
    explore("destroy/bulk", 2, || {
        let (scene, pool) = scene(3, small(1, 1));
        let mut out = take(&pool, 3);
        let returner = thread::spawn(move || pagepool::put_bulk(&mut out));
        let shutdown = pool.destroy();
        returner.join().unwrap();
        scene.ended(&shutdown);
    });
}

/// The thread's first return takes the lane; from then on it is at hand, and a bulk goes straight into it.
#[test]
fn bulk_return_through_a_lane_at_hand_against_destroy() {
    explore("destroy/bulk_at_hand", 3, || {
        let (scene, pool) = scene(4, small(1, 1));
        let mut out = take(&pool, 4);
        let first = out.pop();
        let returner = thread::spawn(move || {
            drop(first);
            pagepool::put_bulk(&mut out);
        });
        let shutdown = pool.destroy();
        returner.join().unwrap();
        scene.ended(&shutdown);
    });
}

#[test]
fn bulk_return_through_a_lane_at_hand_against_starving() {
    explore("starve/bulk_at_hand", 3, || {
        let (scene, pool) = scene(4, PoolParams { wakeup: true, ..small(1, 1) });
        let mut out = take(&pool, 4);
        let first = out.pop();
        let returner = thread::spawn(move || {
            drop(first);
            pagepool::put_bulk(&mut out);
        });
        let found = [pool.alloc_page(), pool.alloc_page()];
        let starved = found.iter().any(Option::is_none);
        returner.join().unwrap();
        assert!(!starved || signalled(&pool), "asleep, and pages are there");
        drop(found);
        scene.destroy(pool);
    });
}

/// Neighbours of one page are taken out of the lane together, while more of them come.
#[test]
fn frags_of_one_page_return_while_pages_are_cut() {
    explore("refill/frags_together", 3, || {
        let (scene, pool) = scene(3, small(1, 1));
        let frags: Vec<_> = (0..4).map(|_| pool.alloc_frag(1000).unwrap()).collect();
        let returner = thread::spawn(move || drop(frags));
        let cut = [pool.alloc_frag(3000), pool.alloc_frag(3000)];
        returner.join().unwrap();
        drop(cut);
        scene.destroy(pool);
    });
}

/// Fragments of pages of order 1, of which two share a message: of two pages, more than the lane has slots
/// for.
fn in_shared_messages(max_lanes: usize, ring_size: usize) -> (Scene, Bound, Vec<PageBuf>) {
    let (scene, pool) = scene(3, PoolParams { order: 1, ..small(max_lanes, ring_size) });
    let out = (0..6).map(|_| pool.alloc_frag(2048).unwrap()).collect();
    (scene, pool, out)
}

#[test]
fn frags_that_share_a_message_against_cuts() {
    explore("refill/frags_share", 3, || {
        let (scene, pool, mut out) = in_shared_messages(1, 1);
        let returner = thread::spawn(move || pagepool::put_bulk(&mut out));
        let cut = [pool.alloc_frag(5000), pool.alloc_frag(5000)];
        assert!(cut[0].is_some(), "the third page");
        returner.join().unwrap();
        drop(cut);
        let again: Vec<_> = (0..3).map(|_| pool.alloc_page().expect("all have returned")).collect();
        drop(again);
        scene.destroy(pool);
    });
}

#[test]
fn frags_that_share_a_message_against_destroy() {
    for (max_lanes, ring_size) in [(1, 1), (1, 2), (0, 2), (0, 1)] {
        explore(&format!("destroy/frags_share_{max_lanes}_{ring_size}"), 3, move || {
            let (scene, pool, mut out) = in_shared_messages(max_lanes, ring_size);
            let returner = thread::spawn(move || pagepool::put_bulk(&mut out));
            let shutdown = pool.destroy();
            returner.join().unwrap();
            scene.ended(&shutdown);
        });
    }
}

#[test]
fn a_lane_in_use_is_taken_over_from_its_owner() {
    explore("destroy/lane_in_use", 3, || {
        let (scene, pool) = scene(2, small(2, 1));
        let out = take(&pool, 2);
        let returner = thread::spawn(move || drop(out));
        let found = pool.alloc_page(); // the owner has been at the lane's other end before
        let shutdown = pool.destroy();
        drop(found);
        returner.join().unwrap();
        scene.ended(&shutdown);
    });
}

#[test]
fn both_late_the_pool_is_freed_once() {
    explore("destroy/both_late", 3, || {
        let (scene, pool) = scene(2, small(1, 1));
        let mut out = take(&pool, 2);
        let shutdown = pool.destroy();
        let returner = drop_there(out.pop().unwrap());
        drop(out);
        returner.join().unwrap();
        scene.ended(&shutdown);
    });
}

// ---- Lanes and threads --------------------------------------------------------------------------

#[test]
fn a_lane_is_made_and_left_while_it_is_drained() {
    explore("lane_exit", 2, || {
        let (scene, pool) = scene(2, small(1, 2));
        let mut out = take(&pool, 2);
        let first = drop_there(out.pop().unwrap());
        let found = pool.alloc_page();
        first.join().unwrap();
        // The lane may be given to the second thread now, or that one takes the ring.
        drop(pool.alloc_page());
        let second = drop_there(out.pop().unwrap());
        let more = pool.alloc_page();
        second.join().unwrap();
        drop((found, more));
        scene.destroy(pool);
    });
}

#[test]
fn a_lane_changes_hands_while_it_is_drained() {
    explore("lane_reuse", 2, || {
        let (scene, pool) = scene(2, small(1, 2));
        let out = take(&pool, 2);
        let returners: Vec<_> = out.into_iter().map(drop_there).collect();
        let found: Vec<_> = (0..3).filter_map(|_| pool.alloc_page()).collect();
        for returner in returners {
            returner.join().unwrap();
        }
        drop(found);
        assert_eq!(take(&pool, 2).len(), 2, "both pages can be allocated, whichever thread had the lane");
        scene.destroy(pool);
    });
}

/// The lane of a thread that ended, empty and still listed; the page that came through it is out again.
fn leave_a_lane(pool: &Bound) -> PageBuf {
    drop_there(pool.alloc_page().unwrap()).join().unwrap();
    pool.alloc_page().unwrap()
}

#[test]
fn a_lane_is_claimed_while_it_is_taken_off_the_list() {
    explore("lane_unlisted", 3, || {
        let (scene, pool) = scene(1, small(1, 1));
        let page = leave_a_lane(&pool);
        let returner = drop_there(page);
        let found = pool.alloc_page();
        returner.join().unwrap();
        assert!(
            found.or_else(|| pool.alloc_page()).is_some(),
            "the owner looks at every lane with a message"
        );
        scene.destroy(pool);
    });
}

// ---- The owner moves ----------------------------------------------------------------------------

#[test]
fn the_owner_moves_with_returns_in_flight() {
    explore("hand_over", 2, || {
        let (scene, pool) = scene(2, small(2, 1));
        let mut out = take(&pool, 2);
        let returner = drop_there(out.pop().unwrap());
        let pool = pool.unbind();
        let new_owner = thread::spawn(move || {
            let pool = pool.bind();
            drop(pool.alloc_page());
            pool.unbind()
        });
        drop(out); // on the thread that was the owner: through a lane now
        let pool = new_owner.join().unwrap();
        returner.join().unwrap();
        scene.ended(&pool.destroy());
    });
}

#[test]
fn the_owner_comes_back() {
    explore("hand_back", 2, || {
        let (scene, pool) = scene(2, small(1, 1));
        let mut out = take(&pool, 2);
        let (mine, theirs) = (out.pop().unwrap(), out.pop().unwrap());
        let pool = pool.unbind();
        let new_owner = thread::spawn(move || {
            let pool = pool.bind();
            drop(theirs); // here the owner: into the cache
            assert_eq!(pool.stats().recycle_cached, 1);
            pool.unbind()
        });
        drop(mine);
        let pool = new_owner.join().unwrap().bind();
        assert_eq!(take(&pool, 2).len(), 2);
        scene.destroy(pool);
    });
}

#[test]
fn the_new_owner_destroys() {
    explore("hand_over_destroy", 2, || {
        let (scene, pool) = scene(2, small(1, 1));
        let out = take(&pool, 2);
        let pool = pool.unbind();
        let destroyer = thread::spawn(move || pool.bind().destroy());
        drop(out);
        scene.ended(&destroyer.join().unwrap());
    });
}

// ---- The wake-up --------------------------------------------------------------------------------

fn signalled(pool: &Bound) -> bool {
    let fd = pool.wake_fd().unwrap().try_clone_to_owned().unwrap();
    std::fs::File::from(fd).read(&mut [0; 8]).is_ok()
}

/// Allocates while another thread drops a buffer, from which a page comes: the allocation finds it, or the
/// owner is woken and finds it then.
fn starve_against(pool: &Bound, buffer: PageBuf) {
    let returner = drop_there(buffer);
    let found = pool.alloc_page();
    returner.join().unwrap();
    if found.is_none() {
        assert!(signalled(pool), "the owner would sleep for ever");
        assert!(pool.alloc_page().is_some());
    }
}

fn starve_against_return(max_lanes: usize) {
    let params = PoolParams { wakeup: true, ..small(max_lanes, 1) };
    let (scene, pool) = scene(1, params);
    starve_against(&pool, pool.alloc_page().unwrap());
    scene.destroy(pool);
}

#[test]
fn starving_against_a_return_through_the_lane() {
    explore("wake/lane", 3, || starve_against_return(1));
}

#[test]
fn starving_while_a_lane_is_claimed_that_is_taken_off_the_list() {
    explore("wake/unlisted", 2, || {
        let (scene, pool) = scene(1, PoolParams { wakeup: true, ..small(1, 1) });
        let page = leave_a_lane(&pool);
        starve_against(&pool, page);
        scene.destroy(pool);
    });
}

#[test]
fn starving_against_a_return_through_the_ring() {
    explore("wake/ring", 3, || starve_against_return(0));
}

#[test]
fn a_return_while_the_pool_falls_below_its_low_water_mark() {
    for max_lanes in [0, 1] {
        explore(["wake/low_water/ring", "wake/low_water/lane"][max_lanes], 3, move || {
            let params = PoolParams { wakeup: true, low_water: 1, ..small(max_lanes, 1) };
            let (scene, pool) = scene(1, params);
            // The first reservation raises the flags, the first return lowers them.
            drop_there(pool.alloc_page().unwrap()).join().unwrap();
            assert!(signalled(&pool));
            starve_against(&pool, pool.alloc_page().unwrap());
            scene.destroy(pool);
        });
    }
}

#[test]
fn starving_while_a_page_comes_back_to_the_provider() {
    explore("wake/provider", 3, || {
        let (scene, pool) = scene(1, PoolParams { wakeup: true, ..small(1, 1) });
        let other = Pool::new(small(1, 1), scene.memory.clone()).unwrap().bind();
        let last = other.alloc_page().unwrap();
        let end = other.destroy();
        starve_against(&pool, last);
        assert!(end.is_complete(), "{}", end.report());
        scene.destroy(pool);
    });
}

#[test]
fn a_return_and_a_page_for_the_provider_below_low_water() {
    explore("wake/both", 2, || {
        let params = PoolParams { wakeup: true, low_water: 1, ..small(1, 1) };
        let (scene, pool) = scene(2, params);
        let other = Pool::new(small(1, 1), scene.memory.clone()).unwrap().bind();
        let last = other.alloc_page().unwrap();
        let end = other.destroy();
        let returners = [drop_there(pool.alloc_page().unwrap()), drop_there(last)];
        let mut found = Vec::new();
        loop {
            pool.acknowledge_wake();
            let Some(page) = pool.alloc_page() else { break };
            found.push(page);
        }
        returners.into_iter().for_each(|returner| returner.join().unwrap());
        if found.len() < 2 {
            assert!(signalled(&pool), "the owner would sleep with {} pages", found.len());
        }
        drop(found);
        assert!(end.is_complete(), "{}", end.report());
        scene.destroy(pool);
    });
}

#[test]
fn starving_against_an_overflowed_frag() {
    explore("wake/overflow", 2, || {
        let params = PoolParams { wakeup: true, ..small(0, 1) };
        let (scene, pool) = scene(1, params);
        let frags: Vec<_> = (0..2).map(|_| pool.alloc_frag(2048).unwrap()).collect();
        let returner = thread::spawn(move || drop(frags));
        let found = pool.alloc_frag(2048);
        returner.join().unwrap();
        if found.is_none() {
            assert!(signalled(&pool), "the owner would sleep for ever");
        }
        drop(found);
        scene.destroy(pool);
    });
}

#[test]
fn starving_against_the_last_frag_of_the_open_page() {
    for max_lanes in [0, 1] {
        explore(["wake/open/ring", "wake/open/lane"][max_lanes], 3, move || {
            let (scene, pool) = scene(1, PoolParams { wakeup: true, ..small(max_lanes, 1) });
            starve_against(&pool, pool.alloc_frag(2048).unwrap());
            scene.destroy(pool);
        });
    }
}

#[test]
fn starving_twice_signals_twice() {
    explore("wake/twice", 2, || {
        let params = PoolParams { wakeup: true, ..small(1, 1) };
        let (scene, pool) = scene(2, params);
        let mut out = take(&pool, 2);
        assert!(pool.alloc_page().is_none());
        let (first, second) = (out.pop().unwrap(), out.pop().unwrap());
        let returner = thread::spawn(move || {
            drop(first);
            drop(second);
        });
        let mut found = Vec::new();
        // As a poll loop does: take, and sleep only when there is nothing and no signal.
        for _ in 0..2 {
            found.extend(pool.alloc_page());
        }
        returner.join().unwrap();
        if found.len() < 2 {
            assert!(signalled(&pool), "the owner would sleep with {} pages", found.len());
        }
        drop(found);
        scene.destroy(pool);
    });
}

#[test]
fn acknowledging_while_pages_return() {
    for max_lanes in [0, 1] {
        explore(["wake/acknowledged/ring", "wake/acknowledged/lane"][max_lanes], 2, move || {
            let params = PoolParams { wakeup: true, ..small(max_lanes, 2) };
            let (scene, pool) = scene(2, params);
            let out = take(&pool, 2);
            assert!(pool.alloc_page().is_none());
            let returner = thread::spawn(move || drop(out));
            let mut found = Vec::new();
            // The signal of the first return may be on its way, or be taken back while the second returns.
            loop {
                pool.acknowledge_wake();
                let Some(page) = pool.alloc_page() else { break };
                found.push(page);
            }
            returner.join().unwrap();
            if found.len() < 2 {
                assert!(signalled(&pool), "the owner would sleep with {} pages", found.len());
            }
            drop(found);
            scene.destroy(pool);
        });
    }
}

// ---- Tasks that wait ----------------------------------------------------------------------------

#[derive(Default)]
struct Bell(AtomicBool);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}

/// A task waits while another thread drops a buffer, from which a page comes: the task finds it, or its waker
/// is called.
fn wait_against(pool: &Bound, buffer: PageBuf, on_its_way: Option<JoinHandle<()>>) {
    let bell = Arc::new(Bell::default());
    let waker = bell.clone().into();
    let mut task = pool.wait_for(Bound::alloc_page);
    let mut poll = || Pin::new(&mut task).poll(&mut Context::from_waker(&waker)).is_ready();
    let returner = drop_there(buffer);
    let found = poll();
    [returner].into_iter().chain(on_its_way).for_each(|returner| returner.join().unwrap());
    assert!(found || bell.0.load(Relaxed), "the task would wait for ever");
    assert!(found || poll());
}

#[test]
fn a_task_waits_against_a_return() {
    for max_lanes in [0, 1] {
        explore(["wait/ring", "wait/lane"][max_lanes], 3, move || {
            let (scene, pool) = scene(1, small(max_lanes, 1));
            wait_against(&pool, pool.alloc_page().unwrap(), None);
            scene.destroy(pool);
        });
    }
}

#[test]
fn a_task_waits_against_a_page_for_the_provider() {
    explore("wait/provider", 2, || {
        let (scene, pool) = scene(1, small(1, 1));
        let other = Pool::new(small(1, 1), scene.memory.clone()).unwrap().bind();
        let last = other.alloc_page().unwrap();
        let end = other.destroy();
        wait_against(&pool, last, None);
        assert!(end.is_complete(), "{}", end.report());
        scene.destroy(pool);
    });
}

#[test]
fn a_task_waits_again_while_its_first_signal_is_in_flight() {
    explore("wait/twice", 2, || {
        let (scene, pool) = scene(2, small(1, 1));
        let mut out = take(&pool, 2);
        let bell = Arc::new(Bell::default());
        let waker = bell.clone().into();
        let mut context = Context::from_waker(&waker);
        let mut task = pool.wait_for(Bound::alloc_page);
        assert!(Pin::new(&mut task).poll(&mut context).is_pending());
        let first = drop_there(out.pop().unwrap());
        let again = Pin::new(&mut task).poll(&mut context);
        drop(task);
        match again {
            std::task::Poll::Ready(_page) => wait_against(&pool, out.pop().unwrap(), Some(first)),
            std::task::Poll::Pending => first.join().unwrap(),
        }
        drop(out);
        scene.destroy(pool);
    });
}

// ---- Shrinking ----------------------------------------------------------------------------------

#[test]
fn a_request_to_shrink_is_found_or_signalled() {
    explore("shrink/asked", 3, || {
        let (scene, pool) = scene(1, PoolParams { wakeup: true, ..small(1, 1) });
        drop(pool.alloc_page());
        let handle = pool.handle();
        let asker = thread::spawn(move || handle.ask_to_shrink(0));
        pool.acknowledge_wake();
        asker.join().unwrap();
        if scene.memory.free() == 0 {
            assert!(signalled(&pool), "the owner would sleep with a page");
            pool.poll_deferred();
        }
        assert_eq!(scene.memory.free(), 1);
        scene.destroy(pool);
    });
}

#[test]
fn two_requests_to_shrink_and_the_owner_that_does_it() {
    explore("shrink/two", 2, || {
        let (scene, pool) = scene(2, PoolParams { cache_size: 2, refill: 2, ..small(1, 1) });
        drop(take(&pool, 2));
        let askers = [0, 1].map(|keep| {
            let handle = pool.handle();
            thread::spawn(move || handle.ask_to_shrink(keep))
        });
        pool.poll_deferred();
        askers.into_iter().for_each(|asker| asker.join().unwrap());
        pool.poll_deferred();
        assert_eq!(scene.memory.free(), 2, "the lowest counts");
        scene.destroy(pool);
    });
}

#[test]
fn shrinking_against_returns() {
    for max_lanes in [0, 1] {
        explore(["shrink/ring", "shrink/lane"][max_lanes], 2, move || {
            let (scene, pool) = scene(3, small(max_lanes, 2));
            let mut out = take(&pool, 1);
            out.extend((0..2).filter_map(|_| pool.alloc_frag(2048)));
            let returner = thread::spawn(move || drop(out));
            pool.shrink(0);
            returner.join().unwrap();
            pool.shrink(0);
            assert_eq!(scene.memory.free(), 3);
            scene.destroy(pool);
        });
    }
}

// ---- Shared buffers, page references, raw addresses ---------------------------------------------

#[test]
fn the_last_reader_returns_the_buffer() {
    explore("shared", 3, || {
        let (scene, pool) = scene(1, small(2, 1));
        let shared = pool.alloc_page().unwrap().into_shared();
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let clone = shared.clone();
                thread::spawn(move || drop(clone))
            })
            .collect();
        drop(shared);
        for reader in readers {
            reader.join().unwrap();
        }
        assert!(pool.alloc_page().is_some());
        scene.destroy(pool);
    });
}

#[test]
fn readers_finish_before_the_page_is_used_again() {
    explore("shared/bytes", 3, || {
        let (scene, pool) = scene(1, small(1, 1));
        let shared = pool.alloc_page().unwrap().into_shared();
        let clone = shared.clone();
        let bytes = Arc::new(loom::cell::UnsafeCell::new(0u8));
        let theirs = bytes.clone();
        let reader = thread::spawn(move || {
            theirs.with(|_| ());
            drop(clone);
        });
        drop(shared);
        if let Some(again) = pool.alloc_page() {
            bytes.with_mut(|_| ()); // written again: every read must be over
            drop(again);
        }
        reader.join().unwrap();
        scene.destroy(pool);
    });
}

// ---- The deferred queue -------------------------------------------------------------------------

/// One page in the deferred queue, for a reader on another thread; and the reader's count and bytes.
fn deferred(on_busy: OnBusy) -> (Scene, Bound, Arc<UseCounts>, Arc<loom::cell::UnsafeCell<u8>>) {
    let (scene, pool) = scene(1, PoolParams { defer_capacity: 1, on_busy, ..small(1, 1) });
    let counts = UseCounts::new(1);
    let user = pool.deferred_user(counts.clone()).unwrap();
    counts.take(0);
    pool.defer(&user, pool.alloc_page().unwrap(), 0).unwrap();
    (scene, pool, counts, Arc::new(loom::cell::UnsafeCell::new(0u8)))
}

#[test]
fn a_deferred_page_is_used_again_after_every_read() {
    for on_busy in [OnBusy::Keep, OnBusy::Release] {
        explore("deferred/bytes", 3, move || {
            let (scene, pool, counts, bytes) = deferred(on_busy);
            let (theirs, reader) = (bytes.clone(), counts.clone());
            let reader = thread::spawn(move || {
                theirs.with(|_| ());
                reader.put(0);
            });
            if let Some(again) = pool.alloc_page() {
                bytes.with_mut(|_| ()); // written again: every read must be over
                drop(again);
            }
            reader.join().unwrap();
            pool.poll_deferred();
            assert_eq!(pool.deferred_stats().pending(), 0);
            scene.destroy(pool);
        });
    }
}

#[test]
fn two_watchers_of_the_end_poll_the_deferred_queue() {
    explore("deferred/destroy", 2, || {
        let (scene, pool, counts, _) = deferred(OnBusy::Keep);
        let shutdown = Arc::new(pool.destroy());
        let watching = shutdown.clone();
        let reader = thread::spawn(move || {
            counts.put(0);
            watching.is_complete()
        });
        shutdown.is_complete();
        reader.join().unwrap();
        assert!(shutdown.is_complete(), "nobody uses it any more, and nobody else polls");
        scene.ended(&shutdown);
        assert_eq!(scene.handle.deferred_stats().reused, 1);
    });
}

#[test]
fn clones_of_two_frags_share_one_count() {
    explore("shared/fragments", 2, || {
        let (scene, pool) = scene(1, small(1, 1));
        let (one, other) = (pool.alloc_frag(2048).unwrap(), pool.alloc_frag(2048).unwrap());
        let one = one.into_shared();
        let (clone, other) = (one.clone(), other.into_shared());
        let reader = thread::spawn(move || {
            drop(clone);
            drop(other);
        });
        drop(one);
        reader.join().unwrap();
        assert!(pool.alloc_frag(2048).is_some(), "all three readers are done");
        scene.destroy(pool);
    });
}

#[test]
fn a_clone_outlives_the_pool() {
    explore("shared/destroy", 2, || {
        let (scene, pool) = scene(1, small(1, 1));
        let shared = pool.alloc_page().unwrap().into_shared();
        let clone = shared.clone();
        let reader = thread::spawn(move || drop(clone));
        let shutdown = pool.destroy();
        drop(shared);
        reader.join().unwrap();
        scene.ended(&shutdown);
    });
}

#[test]
fn a_page_ref_ends_while_its_page_returns() {
    explore("page_ref", 3, || {
        let (scene, pool) = scene(1, small(1, 1));
        let mut buffer = pool.alloc_page().unwrap();
        let page_ref = buffer.page_ref();
        let holder = thread::spawn(move || drop(page_ref));
        drop(buffer);
        holder.join().unwrap();
        let stats = pool.stats();
        assert_eq!(stats.recycle_released_refcnt + stats.recycle_cached, 1, "{stats:?}");
        scene.destroy(pool);
    });
}

#[test]
fn two_page_refs_end_while_another_thread_returns_the_page() {
    explore("page_ref/two", 2, || {
        let (scene, pool) = scene(1, small(1, 1));
        let mut buffer = pool.alloc_page().unwrap();
        let page_refs = [buffer.page_ref(), buffer.page_ref()];
        let [first, second] = page_refs.map(|page_ref| thread::spawn(move || drop(page_ref)));
        let returner = drop_there(buffer);
        for thread in [first, second, returner] {
            thread.join().unwrap();
        }
        scene.destroy(pool);
    });
}

#[test]
fn a_page_ref_outlives_the_pool() {
    explore("page_ref/destroy", 2, || {
        let (scene, pool) = scene(1, small(1, 1));
        let mut buffer = pool.alloc_page().unwrap();
        let page_ref = buffer.page_ref();
        let returner = drop_there(buffer);
        let shutdown = pool.destroy();
        drop(page_ref);
        returner.join().unwrap();
        scene.ended(&shutdown);
    });
}

#[test]
fn two_threads_return_one_address_and_one_is_refused() {
    explore("raw_twice", 3, || {
        let domains = vec![Arc::new(IdentityDomain::new("nic")) as Arc<_>];
        let (scene, pool) = scene(1, PoolParams { domains, ..small(2, 1) });
        let raw = pool.alloc_page().unwrap().into_raw().unwrap();
        let bring = |handle: PoolRef| thread::spawn(move || handle.from_raw(raw.addr).is_ok());
        let (first, second) = (bring(scene.handle.clone()), bring(scene.handle.clone()));
        let accepted = [first.join().unwrap(), second.join().unwrap()];
        assert_eq!(accepted.iter().filter(|ok| **ok).count(), 1, "{accepted:?}");
        scene.destroy(pool);
    });
}

/// A pool of this many pages, all of which are out as addresses.
fn scene_of_addresses<const N: usize>() -> (Scene, Bound, [DeviceAddr; N]) {
    let domains = vec![Arc::new(IdentityDomain::new("nic")) as Arc<_>];
    let (scene, pool) = scene(N, PoolParams { domains, cache_size: N, refill: N, ..small(2, 1) });
    let mut addrs = [DeviceAddr(0); N];
    assert_eq!(pool.alloc_addr_bulk(&mut addrs), Ok(N));
    (scene, pool, addrs)
}

/// The owner takes pages back by plain operations until another thread does: each address has one taker.
#[test]
fn owner_and_thread_return_one_address_and_one_is_refused() {
    explore("raw_twice/owner", 3, || {
        let (scene, pool, [addr]) = scene_of_addresses();
        let handle = scene.handle.clone();
        let other = thread::spawn(move || handle.from_raw(addr).is_ok());
        let here = scene.handle.from_raw(addr).is_ok();
        assert!(here ^ other.join().unwrap());
        scene.destroy(pool);
    });
}

#[test]
fn owner_and_two_threads_return_one_address_and_two_are_refused() {
    explore("raw_twice/owner and two", 2, || {
        let (scene, pool, [addr]) = scene_of_addresses();
        let bring = |handle: PoolRef| thread::spawn(move || handle.put_addr_bulk(&[addr]).is_ok());
        let others = [bring(scene.handle.clone()), bring(scene.handle.clone())];
        let accepted = u32::from(pool.cached_addrs().put_one(addr))
            + others.into_iter().map(|other| u32::from(other.join().unwrap())).sum::<u32>();
        assert_eq!(accepted, 1);
        scene.destroy(pool);
    });
}

/// The owner brings two addresses in one turn, and then what it allocated again, while another thread brings
/// one of the first.
#[test]
fn the_owner_returns_addresses_in_bulk_beside_another_thread() {
    explore("raw_bulk", 3, || {
        let (scene, pool, addrs) = scene_of_addresses::<2>();
        let handle = scene.handle.clone();
        let other = thread::spawn(move || handle.from_raw(addrs[1]).ok());
        let here = scene.handle.put_addr_bulk(&addrs).is_ok();
        let again = pool.alloc_page().expect("at least one came here").into_raw().unwrap();
        let elsewhere = other.join().unwrap();
        // The other one may have brought what was allocated again, which cannot be told from a page that is
        // out. Nobody else can.
        let left = scene.handle.put_addr_bulk(&[again.addr]).is_ok();
        assert!(here || elsewhere.is_some(), "both were refused");
        assert!(left || elsewhere.is_some(), "it was taken from the one who has it");
        assert_eq!(scene.handle.inflight().out, u64::from(elsewhere.is_some()));
        drop(elsewhere);
        scene.destroy(pool);
    });
}

#[test]
fn owner_and_thread_return_one_frag_and_one_is_refused() {
    explore("raw_twice/fragment", 2, || {
        let domains = vec![Arc::new(IdentityDomain::new("nic")) as Arc<_>];
        let (scene, pool) = scene(1, PoolParams { domains, ..small(2, 1) });
        let raws: Vec<_> = (0..2).map(|_| pool.alloc_frag(128).unwrap().into_raw().unwrap()).collect();
        let (one, other) = (raws[0].addr, raws[1].addr);
        let handle = scene.handle.clone();
        let twice = thread::spawn(move || handle.from_raw(one).is_ok());
        let accepted = scene.handle.from_raw(one).map(drop).is_ok();
        assert!(scene.handle.from_raw(other).is_ok(), "its neighbour is not disturbed");
        assert!(accepted ^ twice.join().unwrap());
        scene.destroy(pool);
    });
}

// ---- Split --------------------------------------------------------------------------------------

/// A whole page is split on a thread that is not the owner's, and both parts return from there.
fn split_elsewhere(params: PoolParams) {
    let (scene, pool) = scene(2, params);
    let buffer = pool.alloc_page().unwrap();
    let other = thread::spawn(move || drop(buffer.split_at(100).unwrap()));
    let mut found: Vec<_> = (0..2).filter_map(|_| pool.alloc_page()).collect();
    other.join().unwrap();
    found.extend((found.len()..2).map(|_| pool.alloc_page().expect("both parts have returned")));
    assert_ne!(found[0].page(), found[1].page());
    drop(found);
    scene.destroy(pool);
}

#[test]
fn a_page_split_elsewhere_returns_once() {
    explore("split/lane", 3, || split_elsewhere(small(1, 1)));
    explore("split/ring", 3, || split_elsewhere(small(0, 2)));
    explore("split/overflow", 3, || split_elsewhere(small(0, 1)));
}

/// The owner splits, another thread does, and hands a part on, which a third drops.
#[test]
fn parts_that_are_handed_on_return_once() {
    explore("split/handed_on", 2, || {
        let (scene, pool) = scene(1, small(1, 4));
        let (mine, theirs) = pool.alloc_page().unwrap().split_at(1000).unwrap();
        drop(mine.split_at(500).unwrap());
        let first = thread::spawn(move || {
            let (kept, handed_on) = theirs.split_at(1000).unwrap();
            let second = drop_there(handed_on);
            drop(kept);
            second.join().unwrap();
        });
        assert!(pool.alloc_page().is_none_or(|_| pool.stats().recycle_ring == 1), "a part is out");
        first.join().unwrap();
        assert!(pool.alloc_page().is_some(), "all parts have returned");
        scene.destroy(pool);
    });
}

/// Of two parts elsewhere one is split; the page's next user has the page alone.
#[test]
fn a_part_is_split_while_another_returns() {
    explore("split/two", 2, || {
        let (scene, pool) = scene(1, small(0, 4));
        let (one, two) = pool.alloc_page().unwrap().split_at(1000).unwrap();
        let bytes = Arc::new([(); 2].map(|()| loom::cell::UnsafeCell::new(0u8)));
        let parts = [(0, one), (1, two)].map(|(n, part)| {
            let bytes = bytes.clone();
            thread::spawn(move || {
                bytes[n].with_mut(|_| ());
                if n == 0 { drop(part.split_at(10).unwrap()) } else { drop(part) }
            })
        });
        if let Some(again) = pool.alloc_page() {
            bytes.iter().for_each(|part| part.with_mut(|_| ()));
            drop(again);
        }
        parts.into_iter().for_each(|part| part.join().unwrap());
        assert!(pool.alloc_page().is_some());
        scene.destroy(pool);
    });
}

/// Buffers are split and dropped elsewhere while their pool ends.
fn splits_against_destroy(params: PoolParams, frag: bool) {
    let (scene, pool) = scene(2, params);
    let buffer = if frag { pool.alloc_frag(2000) } else { pool.alloc_page() }.unwrap();
    let mine = pool.alloc_page().unwrap();
    let other = thread::spawn(move || {
        let (first, rest) = buffer.split_at(100).unwrap();
        drop(first);
        drop(rest.split_at(100).unwrap());
    });
    let (first, last) = mine.split_at(100).unwrap();
    drop(first);
    let shutdown = pool.destroy();
    drop(last.split_at(100).unwrap());
    other.join().unwrap();
    scene.ended(&shutdown);
}

#[test]
fn splits_while_the_pool_ends() {
    explore("split/destroy_lane", 2, || splits_against_destroy(small(1, 1), false));
    explore("split/destroy_ring", 2, || splits_against_destroy(small(0, 1), false));
    explore("split/destroy_frag", 2, || splits_against_destroy(small(1, 1), true));
}

#[test]
fn two_threads_split_one_page_while_the_pool_ends() {
    explore("split/destroy_two", 2, || {
        let (scene, pool) = scene(1, small(0, 1));
        let (one, two) = pool.alloc_page().unwrap().split_at(1000).unwrap();
        let other = thread::spawn(move || drop(one.split_at(10).unwrap()));
        let shutdown = pool.destroy();
        drop(two.split_at(10).unwrap());
        other.join().unwrap();
        scene.ended(&shutdown);
    });
}

/// The holders of a buffer each ask for it: at most one gets it, and only when the others have read.
fn asking_for_it_alone(frag: bool) {
    let (scene, pool) = scene(2, small(2, 1));
    let take = |frag: bool| if frag { pool.alloc_frag(1000) } else { pool.alloc_page() }.unwrap();
    let bytes = Arc::new(loom::cell::UnsafeCell::new(0u8));
    let shared = take(frag).into_shared();
    // Another fragment of the page, whose drop may take the clone off the page's count.
    let beside = frag.then(|| take(frag).into_shared());
    let (clone, theirs) = (shared.clone(), bytes.clone());
    let other = thread::spawn(move || {
        theirs.with(|_| ());
        drop(beside);
        clone.try_unique().is_ok_and(|_| {
            theirs.with_mut(|_| ());
            true
        })
    });
    bytes.with(|_| ());
    let mine = shared.try_unique().is_ok_and(|_| {
        bytes.with_mut(|_| ());
        true
    });
    let theirs = other.join().unwrap();
    assert!(!(mine && theirs) || frag, "one of a page's two holders found the other");
    drop(pool.alloc_page());
    scene.destroy(pool);
}

#[test]
fn two_holders_try_to_get_a_shared_buffer_alone() {
    explore("unique/page", 3, || asking_for_it_alone(false));
    explore("unique/fragment", 2, || asking_for_it_alone(true));
}

// ---- Every operation against every other --------------------------------------------------------

/// What a returner does with two pages' worth of buffers, taken on the owner's thread.
fn returning(op: Op, pool: &Bound) -> Box<dyn FnOnce() + Send> {
    match op {
        Op::DropRemote(_) => Box::new(drop_all(take(pool, 2))),
        Op::PutRingRemote(_) => {
            let out = take(pool, 2);
            Box::new(move || out.into_iter().for_each(PageBuf::put_ring))
        }
        Op::PutBulkRemote(..) => {
            let mut out = take(pool, 2);
            Box::new(move || pagepool::put_bulk(&mut out))
        }
        Op::DropBatchRemote(_) => Box::new(drop_all(pool.alloc_batch(2))),
        Op::AllocFrag(..) => {
            Box::new(drop_all([1000, 1000, 3000].map(|size| pool.alloc_frag(size).unwrap())))
        }
        Op::DropSharedRemote(_) => {
            let shared = pool.alloc_page().unwrap().into_shared();
            Box::new(drop_all((shared.clone(), pool.alloc_page(), shared)))
        }
        Op::SplitOffElsewhere(..) => {
            let out = take(pool, 2);
            let halves = |buffer: PageBuf| buffer.split_at(100).unwrap();
            Box::new(move || drop(out.into_iter().map(halves).collect::<Vec<_>>()))
        }
        Op::PageRef(_) => {
            let mut buffer = pool.alloc_page().unwrap();
            Box::new(drop_all((buffer.page_ref(), buffer, pool.alloc_page())))
        }
        Op::FromRaw(..) => {
            let (handle, raw) = (pool.handle(), pool.alloc_page().unwrap().into_raw().unwrap());
            Box::new(move || drop(handle.from_raw(raw.addr).unwrap()))
        }
        other => unreachable!("{other:?} returns nothing"),
    }
}

fn drop_all<T: Send + 'static>(out: T) -> impl FnOnce() + Send {
    move || drop(out)
}

/// What the owner does meanwhile; the pool, if it lives on.
fn owning(op: Op, pool: Bound) -> Result<Bound, Shutdown> {
    match op {
        Op::AllocPage(_) => drop(pool.alloc_page()),
        Op::AllocBulk(..) => drop((pool.alloc_page(), pool.alloc_page())),
        Op::AllocFrag(..) => drop(pool.alloc_frag(1000)),
        Op::UpdateNid(..) => pool.update_nid(None).unwrap(),
        Op::BindElsewhere(_) => return Ok(pool.unbind().bind()),
        Op::Destroy(_) => return Err(pool.destroy()),
        other => unreachable!("{other:?} is not the owner's"),
    }
    Ok(pool)
}

#[test]
fn every_return_against_everything_that_an_owner_does() {
    let returns = [
        Op::DropRemote(0),
        Op::PutRingRemote(0),
        Op::PutBulkRemote(0, 2),
        Op::DropBatchRemote(0),
        Op::AllocFrag(0, 0),
        Op::SplitOffElsewhere(0, 0),
        Op::DropSharedRemote(0),
        Op::PageRef(0),
        Op::FromRaw(0, 0),
    ];
    let deeds = [
        Op::AllocPage(0),
        Op::AllocBulk(0, 2),
        Op::AllocFrag(0, 0),
        Op::UpdateNid(0, 0),
        Op::BindElsewhere(0),
        Op::Destroy(0),
    ];
    for (returned, deed, lanes) in
        returns.iter().flat_map(|r| deeds.map(|d| (*r, d, 0)).into_iter().chain(deeds.map(|d| (*r, d, 1))))
    {
        explore(&format!("pair/{returned:?}/{deed:?}/{lanes} lanes"), 2, move || pair(returned, deed, lanes));
    }
}

fn pair(returned: Op, deed: Op, lanes: usize) {
    let domains = vec![Arc::new(IdentityDomain::new("nic")) as Arc<_>];
    let (scene, pool) = scene(3, PoolParams { domains, ..small(lanes, 1) });
    let returner = thread::spawn(returning(returned, &pool));
    let left = owning(deed, pool);
    returner.join().unwrap();
    match left {
        Ok(pool) => scene.destroy(pool),
        Err(shutdown) => scene.ended(&shutdown),
    }
}

// ---- Packets ------------------------------------------------------------------------------------

/// A packet, and a buffer to be added to it.
fn packet(pool: &Bound) -> (XdpBuff, PageBuf) {
    (XdpBuff::received(pool.alloc_page().unwrap(), 60).unwrap(), pool.alloc_page().unwrap())
}

/// Adds the buffer, which takes a chain, and looks at it; `None` if there was no chain.
fn chained((mut packet, buffer): (XdpBuff, PageBuf)) -> Option<XdpBuff> {
    let page = buffer.page();
    packet.add_frag(buffer, 0, 1).ok()?;
    assert_eq!(packet.frags()[0].buffer().page(), page);
    Some(packet)
}

/// Takes the buffer off, which puts the chain back.
fn unchained(mut packet: XdpBuff) -> (XdpBuff, PageBuf) {
    let frag = packet.pop_frag().unwrap();
    (packet, frag.into_buffer())
}

#[test]
fn two_take_a_chain_and_put_it_back() {
    explore("chains/two", 3, || {
        let (scene, pool) = scene(4, PoolParams { chains: 1, ..small(1, 1) });
        let (ours, theirs) = (packet(&pool), packet(&pool));
        let other = thread::spawn(move || chained(theirs).map(unchained));
        let mine = chained(ours).map(unchained);
        let theirs = other.join().unwrap();
        assert!(mine.is_some() || theirs.is_some(), "one of two finds it free");
        drop((mine, theirs));
        scene.destroy(pool);
    });
}

#[test]
fn the_stack_of_chains_notices_an_aba_change() {
    explore("chains/changed_back", 3, || {
        let (scene, pool) = scene(8, PoolParams { chains: 2, ..small(1, 1) });
        let [one, two] = [packet(&pool), packet(&pool)].map(|p| chained(p).unwrap());
        let (one, two, ours) = (unchained(one), unchained(two), [packet(&pool), packet(&pool)]);
        // Both are free, one on top of the other: taken both, and the first put back, the top is what it was.
        let other = thread::spawn(move || {
            let (one, two) = (chained(one), chained(two));
            (one.map(unchained), two)
        });
        let mine = ours.map(chained);
        let (one, two) = other.join().unwrap();
        let pages =
            |packet: &XdpBuff| packet.frags().iter().map(|frag| frag.buffer().page()).collect::<Vec<_>>();
        let mut all: Vec<_> = mine.iter().flatten().chain(&two).flat_map(pages).collect();
        let having = all.len();
        all.sort();
        all.dedup();
        assert!(having <= 2 && all.len() == having, "nobody has another's chain: {all:?}");
        drop((mine, one, two));
        scene.destroy(pool);
    });
}

fn jumbo_against_destroy(lanes: usize, put: fn(XdpFrame)) -> impl Fn() + Send + Sync + 'static {
    move || {
        let (scene, pool) = scene(2, small(lanes, 2));
        let frame = XdpFrame::from(chained(packet(&pool)).unwrap());
        let returner = thread::spawn(move || put(frame));
        let shutdown = pool.destroy();
        returner.join().unwrap();
        scene.ended(&shutdown);
    }
}

#[test]
fn a_chain_returns_before_its_packet_and_the_pool_ends_last() {
    explore("jumbo/destroy/lane", 2, jumbo_against_destroy(1, drop));
    explore("jumbo/destroy/ring", 2, jumbo_against_destroy(0, drop));
    explore("jumbo/destroy/bulk", 2, jumbo_against_destroy(1, |frame| XdpFrameBulk::new().push(frame)));
}

#[test]
fn a_memory_id_is_released_once_while_a_watcher_reads() {
    explore("registry", 3, || {
        let registry = Registry::new();
        let (scene, pool) = scene(1, PoolParams { registry: Some(registry.clone()), ..small(0, 1) });
        let buffer = pool.alloc_page().unwrap();
        let returner = drop_there(buffer);
        let looked = registry.clone();
        let watcher =
            thread::spawn(move || looked.pools().iter().for_each(|pool| assert_eq!(pool.mem_id().get(), 1)));
        let shutdown = pool.destroy();
        returner.join().unwrap();
        assert!(registry.is_empty(), "the last buffer has returned");
        watcher.join().unwrap();
        scene.ended(&shutdown);
    });
}
