//! One buffer becomes two: who may split what, where the parts go, when the page is back; and a shared buffer
//! that is its holder's own again.
#![allow(clippy::unwrap_used)]

use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};
use std::thread;

use pagepool::{
    Bound, DmaDomain, IdentityDomain, NoDirectRecycle, PageBuf, Pool, PoolParams, Provider, SplitError,
    XdpBuff,
};
use pagepool_testing::{CheckingIommu, PlainMemory};

fn pool_with(pages: usize, params: PoolParams) -> Bound {
    Pool::new(params.clone(), PlainMemory::new(pages, params.order).unwrap()).unwrap().bind()
}

fn pool(pages: usize) -> Bound {
    pool_with(pages, PoolParams::default())
}

fn elsewhere<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    thread::spawn(work).join().unwrap()
}

/// Cuts the buffer at these places, which count from its first byte.
fn cut(mut buffer: PageBuf, places: &[usize]) -> Vec<PageBuf> {
    let mut parts: Vec<_> = places.iter().rev().map(|&at| buffer.split_off(at).unwrap()).collect();
    parts.push(buffer);
    parts.reverse();
    parts
}

// ---- What the parts are -------------------------------------------------------------------------

#[test]
fn parts_lie_side_by_side_and_have_their_bytes_alone() {
    for order in [0, 3, 10] {
        let pool = pool_with(1, PoolParams { order, ..Default::default() });
        let size = 4096 << order;
        let mut places = [1, 8, 54, 64, 2047, size - 7, size - 1];
        if order == 10 {
            let refused = pool.alloc_page().unwrap().split_off(55).unwrap_err();
            assert!(refused.to_string().starts_with("in a page of 4 MiB, parts begin at multiples of 2: "));
            places = places.map(|at| at + at % 2);
            places[6] -= 2;
            places[5] -= 2;
        }
        let before = pool.stats().recycle_cached;
        let mut parts = cut(pool.alloc_page().unwrap(), &places);
        for (n, part) in parts.iter_mut().enumerate() {
            part.bytes_mut().unwrap().fill(n as u8);
        }
        let mut end = 0;
        for (n, part) in parts.iter().enumerate() {
            assert_eq!(part.offset(), end);
            assert!(part.is_frag() && part.bytes().unwrap().iter().all(|&byte| byte == n as u8));
            assert_eq!((part.packet_offset(), part.packet_capacity()), (0, part.len()));
            end += part.len();
        }
        assert_eq!((end, parts.len()), (size, places.len() + 1));
        let (pool_word, place) = parts.remove(3).into_token();
        drop(parts);
        assert_eq!(pool.inflight().out, 1);
        let part = from_token(pool_word, place);
        assert_eq!((part.offset(), part.len()), (54, 10));
        drop(part);
        assert_eq!((pool.inflight().out, pool.stats().recycle_cached - before), (0, 1));
    }
}

#[expect(unsafe_code, reason = "UNSAFETY: a handle is made from the two words that another just gave")]
fn from_token(pool: std::ptr::NonNull<std::ffi::c_void>, place: u64) -> PageBuf {
    // SAFETY: the words come from `into_token`, and are used once.
    unsafe { PageBuf::from_token(pool, place) }
}

#[test]
fn a_refused_split_changes_nothing() {
    let pool = pool(1);
    let mut buffer = pool.alloc_page().unwrap();
    for at in [0, 4096, 4097, usize::MAX] {
        assert_eq!(buffer.split_off(at).unwrap_err(), refusal(at, 4096));
    }
    assert!(!buffer.is_frag(), "a whole page still");
    let (buffer, refused) = buffer.split_at(5000).unwrap_err();
    let text = "a buffer of 4096 bytes cannot be split at 5000: each part needs a byte; split at 1 to 4095";
    assert_eq!(refused.to_string(), text);
    let short = cut(buffer, &[1]).remove(0).split_at(1).unwrap_err().1;
    assert_eq!(short.to_string(), "a buffer of 1 bytes cannot be split at 1: the minimum is 2");
    assert_eq!((pool.inflight().out, pool.stats().recycle_cached), (0, 1));
}

fn refusal(at: usize, len: usize) -> SplitError {
    let mut byte = pool(1).alloc_frag(1).unwrap();
    let mut refusal = byte.split_off(9).unwrap_err();
    assert_eq!((refusal.at, refusal.len, refusal.step), (9, 1, 1));
    (refusal.at, refusal.len) = (at, len);
    refusal
}

#[test]
fn a_packet_is_split_with_its_headroom_and_further_buffers() {
    let pool = pool_with(4, PoolParams { headroom: 256, ..Default::default() });
    let mut header = XdpBuff::received(pool.alloc_page().unwrap(), 1000).unwrap();
    header.data_mut().iter_mut().enumerate().for_each(|(n, byte)| *byte = n as u8);
    header.adjust_meta(-4).unwrap();
    header.add_frag(pool.alloc_page().unwrap(), 0, 500).unwrap();
    let headroom = header.headroom();
    assert_eq!(header.split_off(1000).unwrap_err(), refusal(1000, 1000));
    let payload = header.split_off(54).unwrap();
    assert_eq!((header.len(), header.headroom(), header.meta().len()), (54, headroom, 4));
    assert_eq!((payload.len(), payload.headroom(), payload.meta().len()), (946 + 500, 0, 0));
    assert!(!header.has_frags() && payload.has_frags());
    assert_eq!((header.data()[53], payload.data()[0]), (53, 54));
    assert_eq!(header.tailroom(), 0, "the payload begins there");
    elsewhere(move || drop(payload));
    drop(header);
    assert_eq!(pool.stats().recycle_cached, 0, "the header was not the last one");
    drop((0..4).map(|_| pool.alloc_page().unwrap()).collect::<Vec<_>>());
    assert_eq!(pool.inflight().out, 0);
}

#[test]
fn a_packet_that_is_not_split_says_its_own_numbers() {
    let pool = pool_with(1, PoolParams { order: 10, headroom: 255, ..Default::default() });
    let mut packet = XdpBuff::received(pool.alloc_page().unwrap(), 1000).unwrap();
    packet.adjust_head(1 - (packet.headroom() % 2) as isize).unwrap(); // begins at an odd byte
    let len = packet.len();
    let refused = packet.split_off(54).unwrap_err();
    assert_eq!((refused.at, refused.len, refused.step), (54, len, 2));
    let text = format!(
        "in a page of 4 MiB, parts begin at multiples of 2: a buffer of {len} bytes cannot be split at 54; \
         split it a byte earlier or later"
    );
    assert_eq!(refused.to_string(), text);
    assert_eq!(packet.split_off(55).unwrap().len(), len - 55);
}

// ---- When the page is back ----------------------------------------------------------------------

/// Splits what `alloc` gives on this thread or another, twice, and drops the parts in each order.
fn every_order(alloc: impl Fn(&Bound) -> PageBuf) {
    for (first, second, order) in (0..4).flat_map(|who| (0..6).map(move |n| (who & 1, who & 2, n))) {
        let pool = pool(2);
        let buffer = alloc(&pool);
        let page = buffer.page();
        let split = move |buffer: PageBuf| {
            let half = buffer.len() / 2;
            buffer.split_at(half).unwrap()
        };
        let (one, rest) = if first == 0 { split(buffer) } else { elsewhere(move || split(buffer)) };
        let (two, three) = if second == 0 { split(rest) } else { elsewhere(move || split(rest)) };
        let mut parts = vec![one, two, three];
        parts.swap(0, order % 3);
        parts.swap(1, 1 + order / 3);
        for (n, part) in parts.into_iter().enumerate() {
            assert_eq!(pool.inflight().out, 1, "{n} of 3 parts have returned");
            if order % 2 == n % 2 {
                elsewhere(move || drop(part))
            } else {
                drop(part)
            }
            let other = pool.alloc_page();
            assert!(other.is_none_or(|other| n == 2 || other.page() != page), "{n}: a part is out");
        }
        let (pages, open) = ([pool.alloc_page(), pool.alloc_page()], pool.inflight().frag as usize);
        assert_eq!(pages.iter().flatten().count(), 2 - open, "what is not being cut has returned");
    }
}

#[test]
fn a_page_returns_with_its_last_part_on_any_thread() {
    every_order(|pool| pool.alloc_page().unwrap());
    every_order(|pool| {
        // The only fragment of its page, which is cut up: the next one does not fit.
        let frag = pool.alloc_frag(4000).unwrap();
        drop(pool.alloc_frag(4000).unwrap());
        drop(pool.alloc_frag(4096).unwrap());
        frag
    });
}

#[test]
fn parts_count_as_fragments_do() {
    let pool = pool(1);
    drop(cut(pool.alloc_page().unwrap(), &[100, 200, 300]));
    let stats = pool.stats();
    assert_eq!((stats.recycle_cached, stats.recycle_ring, stats.alloc_slow), (1, 0, 1));
    let buffer = pool.alloc_page().unwrap();
    elsewhere(move || drop(cut(buffer, &[100, 200, 300])));
    drop(pool.alloc_page().unwrap());
    let moved = pool.stats().since(&stats);
    assert_eq!((moved.recycle_ring, moved.alloc_refill, moved.recycle_cached), (1, 1, 1), "{moved:?}");
}

#[test]
fn an_open_page_closes_over_the_parts_of_its_fragments() {
    let pool = pool(2);
    let frags: Vec<_> = (0..2).map(|_| pool.alloc_frag(2048).unwrap()).collect();
    let page = frags[0].page();
    let parts =
        elsewhere(move || frags.into_iter().flat_map(|frag| cut(frag, &[10, 1000])).collect::<Vec<_>>());
    let next = pool.alloc_frag(2048).unwrap();
    assert_ne!(next.page(), page, "the first page is cut up, and its parts are out");
    drop(parts);
    let again = pool.alloc_page().unwrap();
    assert_eq!(again.page(), page);
}

#[test]
fn inside_no_direct_recycle_the_owner_splits_as_another_thread() {
    let pool = pool(1);
    let (one, two) = {
        let _scope = NoDirectRecycle::enter();
        pool.alloc_page().unwrap().split_at(100).unwrap()
    };
    let (three, four) = two.split_at(100).unwrap();
    drop((one, three));
    assert_eq!(pool.inflight().out, 1);
    drop(four);
    assert_eq!((pool.inflight().out, pool.stats().recycle_cached), (0, 1));
}

#[test]
fn a_full_lane_and_a_full_ring_lose_no_part() {
    let params = PoolParams { lane_size: 2, ring_size: 1, ..Default::default() };
    let pool = pool_with(2, params);
    let buffer = pool.alloc_page().unwrap();
    let page = buffer.page();
    let places: Vec<_> = (1..40).map(|n| n * 100).collect();
    let kept = elsewhere(move || {
        let mut parts = cut(buffer, &places);
        let kept = parts.pop();
        drop(parts);
        kept
    });
    let other = pool.alloc_page().unwrap();
    assert!(pool.alloc_page().is_none() && other.page() != page);
    drop(kept);
    assert_eq!(pool.alloc_page().unwrap().page(), page);
}

#[test]
fn after_destroy_parts_may_split_and_the_last_ends_the_pool() {
    for here in [true, false] {
        let memory = PlainMemory::new(3, 0).unwrap();
        let pool = Pool::new(PoolParams::default(), memory.clone()).unwrap().bind();
        let (whole, frag) = (pool.alloc_page().unwrap(), pool.alloc_frag(1000).unwrap());
        let other = pool.alloc_page().unwrap();
        let (mut one, two) =
            if here { other.split_at(50).unwrap() } else { elsewhere(|| other.split_at(50).unwrap()) };
        let shutdown = pool.destroy();
        let mut parts = cut(whole, &[1000, 2000]);
        parts.extend(elsewhere(move || cut(frag, &[1, 2])));
        parts.extend([one.split_off(10).unwrap(), one, two]);
        for part in parts {
            assert!(!shutdown.is_complete());
            elsewhere(move || drop(part));
        }
        assert!(shutdown.is_complete(), "{}", shutdown.report());
        assert_eq!(memory.available(0), 3);
    }
}

#[test]
fn a_referenced_page_leaves_with_its_last_part() {
    let memory = PlainMemory::new(1, 0).unwrap();
    let pool = Pool::new(PoolParams::default(), memory.clone()).unwrap().bind();
    let mut buffer = pool.alloc_page().unwrap();
    let page_ref = buffer.page_ref();
    let (first, last) = elsewhere(move || buffer.split_at(100).unwrap());
    drop(first);
    assert_eq!((pool.stats().recycle_released_refcnt, pool.inflight().out), (0, 1));
    drop(last);
    assert_eq!((pool.stats().recycle_released_refcnt, pool.inflight().total), (1, 0));
    drop(page_ref);
    assert_eq!(memory.available(0), 1);
}

#[test]
fn a_page_that_was_split_is_synced_whole_once() {
    let iommu = CheckingIommu::new("nic");
    let domains = vec![iommu.clone() as Arc<dyn DmaDomain>];
    let pool = pool_with(1, PoolParams { domains, sync_for_device: true, ..Default::default() });
    let buffer = pool.alloc_page().unwrap();
    let mut parts = cut(buffer, &[100, 200]);
    iommu.take_log();
    parts.pop();
    assert!(iommu.take_log().is_empty(), "parts are out");
    elsewhere(move || drop(parts));
    drop(pool.alloc_page().unwrap());
    let log = format!("{:?}", iommu.take_log());
    assert_eq!(log.matches("ForDevice").count(), 2, "with the last part, and as a whole page: {log}");
    assert!(log.contains("4096"), "all of the page goes to the device: {log}");
}

// ---- Raw addresses ------------------------------------------------------------------------------

#[test]
fn parts_of_whole_lines_have_raw_forms_and_others_have_none() {
    let domains = vec![Arc::new(IdentityDomain::new("nic")) as Arc<dyn DmaDomain>];
    let pool = pool_with(4, PoolParams { domains, ..Default::default() });
    let frag = pool.alloc_frag(1500).unwrap().into_raw().expect("it ends in a line of its own");
    let raws: Vec<_> = cut(pool.alloc_page().unwrap(), &[64, 2048])
        .into_iter()
        .map(|part| (part.offset(), part.into_raw().unwrap()))
        .collect();
    for (offset, raw) in raws {
        let part = pool.handle().from_raw(raw.addr).unwrap();
        assert_eq!((part.offset(), part.len()), (offset, raw.len as usize));
    }
    for part in cut(pool.alloc_page().unwrap(), &[100, 2000]) {
        drop(part.into_raw().expect_err("its line is another one's, too"));
    }
    let frag = pool.handle().from_raw(frag.addr).unwrap();
    assert_eq!(frag.len(), 1536, "up to the end of its line");
    assert!(frag.into_raw().is_ok(), "whole lines");
    let short = pool.alloc_frag(100).unwrap();
    drop(short.into_raw().expect_err("the pool has split lines, and this ends in one"));
}

// ---- Alone again --------------------------------------------------------------------------------

#[test]
fn the_last_holder_gets_a_whole_page_or_a_fragment_back() {
    let pool = pool(2);
    for buffer in [pool.alloc_page().unwrap(), pool.alloc_frag(1000).unwrap()] {
        let (len, frag) = (buffer.len(), buffer.is_frag());
        let shared = buffer.into_shared();
        let clones = [shared.clone(), shared.clone()];
        let shared = shared.try_unique().expect_err("two readers");
        elsewhere(move || drop(clones));
        let mut buffer = shared.try_unique().expect("the last one");
        assert_eq!((buffer.len(), buffer.is_frag()), (len, frag));
        buffer.bytes_mut().unwrap().fill(1);
        drop(buffer.into_shared().try_unique().expect("never cloned").split_at(10).unwrap());
    }
    assert_eq!(pool.inflight().out, 0);
}

#[test]
fn a_fragment_is_not_unique_while_others_of_its_page_are_shared() {
    let pool = pool(1);
    let [one, other] = [(); 2].map(|()| pool.alloc_frag(1000).unwrap().into_shared());
    let clone = one.clone();
    drop(other); // takes the one clone off the page's count
    let one = one.try_unique().expect_err("the clone reads");
    drop(clone);
    drop(one.try_unique().expect("the last one"));
    let [one, other] = [(); 2].map(|()| pool.alloc_frag(1000).unwrap().into_shared());
    let one = one.try_unique().expect_err("another fragment of the page is shared");
    drop(other.try_unique().expect_err("the same"));
    drop(one.try_unique().expect("the only shared one"));
}

// ---- Real threads -------------------------------------------------------------------------------

/// Threads split what they get and hand the rest on, in a circle, while the owner allocates: every part is
/// stamped, and no stamp is overwritten while the part is out.
#[test]
fn parts_split_on_many_threads_return_once() {
    let rounds = if cfg!(debug_assertions) { 3_000 } else { 50_000 };
    let params = PoolParams { lane_size: 16, ring_size: 8, ..Default::default() };
    let pool = pool_with(64, params);
    let (to, inbox): (Vec<_>, Vec<_>) = (0..3).map(|_| channel::<(PageBuf, u64)>()).unzip();
    let threads: Vec<_> = inbox
        .into_iter()
        .enumerate()
        .map(|(n, inbox)| {
            let next = (n < 2).then(|| to[n + 1].clone());
            thread::spawn(move || inbox.into_iter().for_each(|work| split_and_hand_on(work, next.as_ref())))
        })
        .collect();
    let (mut failed, first) = (0u64, to.into_iter().next().unwrap());
    for round in 0..rounds {
        let Some(mut buffer) = (if round % 3 == 0 { pool.alloc_frag(2000) } else { pool.alloc_page() })
        else {
            failed += 1;
            thread::yield_now();
            continue;
        };
        stamp(&mut buffer, round);
        let mine = (round % 2 == 0).then(|| buffer.split_off(256 + round as usize % 512).unwrap());
        first.send((buffer, round)).unwrap();
        drop(mine);
    }
    drop(first);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert!(failed < rounds, "something was split");
    let all: Vec<_> = (0..64).map_while(|_| pool.alloc_page()).collect();
    let open = pool.inflight().frag as usize;
    assert_eq!(all.len() + open, 64, "every page has returned, or is being cut");
    drop(all);
    let end = pool.destroy();
    assert!(end.is_complete(), "{}", end.report());
}

fn stamp(buffer: &mut PageBuf, round: u64) {
    buffer.bytes_mut().unwrap()[..8].copy_from_slice(&round.to_le_bytes());
}

fn split_and_hand_on(
    (mut buffer, round): (PageBuf, u64),
    next: Option<&std::sync::mpsc::Sender<(PageBuf, u64)>>,
) {
    let mut rest = buffer.split_off(13 + round as usize % 50).unwrap();
    stamp(&mut rest, round);
    assert_eq!(buffer.bytes().unwrap()[..8], round.to_le_bytes(), "a part had two owners");
    match next {
        Some(next) if round % 5 != 0 => next.send((rest, round)).unwrap(),
        _ => drop(rest),
    }
}

/// Two threads split two parts of one page at the same time, over and over.
#[test]
fn two_threads_split_one_page_at_once() {
    let rounds = if cfg!(debug_assertions) { 2_000 } else { 20_000 };
    let pool = pool(2);
    let meet = Arc::new(Barrier::new(3));
    let (to, inbox): (Vec<_>, Vec<_>) = (0..2).map(|_| channel::<PageBuf>()).unzip();
    let threads: Vec<_> = inbox
        .into_iter()
        .map(|inbox| {
            let meet = meet.clone();
            thread::spawn(move || {
                for part in inbox {
                    meet.wait();
                    drop(cut(part, &[10, 100, 500]));
                    meet.wait();
                }
            })
        })
        .collect();
    for round in 0..rounds {
        let buffer = pool.alloc_page().unwrap();
        let (one, two) =
            if round % 2 == 0 { buffer.split_at(1000).unwrap() } else { half_elsewhere(buffer, &pool) };
        to[0].send(one).unwrap();
        to[1].send(two).unwrap();
        meet.wait();
        meet.wait();
    }
    drop(to);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(pool.inflight().total, 2);
    let end = pool.destroy();
    assert!(end.is_complete(), "{}", end.report());
}

/// Split as another thread would: the owner hides itself.
fn half_elsewhere(buffer: PageBuf, _pool: &Bound) -> (PageBuf, PageBuf) {
    let _scope = NoDirectRecycle::enter();
    buffer.split_at(1000).unwrap()
}
