//! Who holds what for how long: on every way out and back, in the report of a pool that ended.
#![allow(clippy::unwrap_used)]
// UNSAFETY: the test reads a clock of the kernel's.
#![expect(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use pagepool::{
    AGE_EDGES, Batch, Bound, DeviceAddr, DmaDomain, Holders, HoldersView, NoDirectRecycle, PageBuf,
    PoolParams, PoolRef, Tag, XdpBuff, XdpFrame, XdpFrameBulk, put_bulk, put_packets, put_ring_bulk,
};

use crate::panicking_device::PanicsOnce;
use crate::recording_pool::{SITES, held, params, pool};

fn from_addrs(pool: &Bound, addrs: &[DeviceAddr]) -> Vec<PageBuf> {
    addrs.iter().map(|&addr| pool.handle().from_raw(addr).unwrap()).collect()
}

type Out = fn(&Bound) -> Vec<PageBuf>;

/// Every call that gives buffers out, and how many pages they are in.
const OUT: [(&str, usize, Out); 9] = [
    ("alloc_page", 3, |pool| (0..3).map(|_| pool.alloc_page().unwrap()).collect()),
    ("alloc_bulk", 40, |pool| {
        let mut all = Vec::with_capacity(40);
        assert_eq!(pool.alloc_bulk(&mut all, 40), 40);
        all
    }),
    ("alloc_batch", 30, |pool| {
        let mut batch = pool.alloc_batch(30);
        std::iter::from_fn(|| batch.pop()).collect()
    }),
    ("alloc_bulk, a batch", 30, |pool| {
        let mut batch = Batch::new();
        assert_eq!(pool.alloc_bulk(&mut batch, 30), 30);
        std::iter::from_fn(|| batch.pop()).collect()
    }),
    ("alloc_addr_bulk", 20, |pool| {
        let mut addrs = [DeviceAddr(0); 20];
        assert_eq!(pool.alloc_addr_bulk(&mut addrs), Ok(20));
        from_addrs(pool, &addrs)
    }),
    ("alloc, a page", 2, |pool| (0..2).map(|_| pool.alloc(4000).unwrap()).collect()),
    ("alloc, fragments", 2, |pool| (0..4).map(|_| pool.alloc(2000).unwrap()).collect()),
    ("alloc_frag", 3, |pool| (0..6).map(|_| pool.alloc_frag(2000).unwrap()).collect()),
    ("split_off", 1, |pool| {
        let mut buffer = pool.alloc_page().unwrap();
        let rest = buffer.split_off(1024).unwrap();
        vec![buffer, rest]
    }),
];

type PutPages = fn(&PoolRef, Vec<PageBuf>);

fn frames(buffers: Vec<PageBuf>) -> Vec<XdpFrame> {
    packets(buffers).into_iter().map(XdpFrame::from).collect()
}

fn packets(buffers: Vec<PageBuf>) -> Vec<XdpBuff> {
    buffers.into_iter().map(|buffer| XdpBuff::new(buffer, 256, 64).unwrap()).collect()
}

/// Every call that takes buffers back.
const RETURNS: [(&str, PutPages); 13] = [
    ("drop", |_, buffers| drop(buffers)),
    ("recycle_sync", |_, buffers| buffers.into_iter().for_each(|buffer| buffer.recycle_sync(64))),
    ("put_ring", |_, buffers| buffers.into_iter().for_each(PageBuf::put_ring)),
    ("put_bulk", |_, mut buffers| put_bulk(&mut buffers)),
    ("put_ring_bulk", |_, mut buffers| put_ring_bulk(&mut buffers)),
    ("a batch", |_, buffers| {
        let mut batch = Batch::new();
        buffers.into_iter().for_each(|buffer| drop(batch.push(buffer)));
        batch.put();
    }),
    ("put_addr_bulk", |pool, buffers| {
        let addrs: Vec<_> = buffers.into_iter().map(|buffer| buffer.into_raw().unwrap().addr).collect();
        pool.put_addr_bulk(&addrs).unwrap();
    }),
    ("one address", |pool, buffers| {
        for buffer in buffers {
            pool.put_addr_bulk(&[buffer.into_raw().unwrap().addr]).unwrap();
        }
    }),
    ("shared", |_, buffers| {
        for buffer in buffers {
            let one = buffer.into_shared();
            let other = one.clone();
            drop((one, other));
        }
    }),
    ("with a reference", |_, buffers| {
        for mut buffer in buffers {
            let reference = buffer.page_ref();
            drop(buffer);
            drop(reference);
        }
    }),
    ("put_packets", |_, buffers| put_packets(&mut packets(buffers))),
    ("a dropped bulk of frames", |_, buffers| {
        let mut bulk = XdpFrameBulk::new();
        frames(buffers).into_iter().for_each(|frame| bulk.push(frame));
    }),
    ("a bulk of frames", |_, buffers| {
        let mut bulk = XdpFrameBulk::new();
        frames(buffers).into_iter().for_each(|frame| bulk.push(frame));
        bulk.flush();
    }),
];

#[test]
fn every_allocation_makes_records_and_every_return_clears_them() {
    for (out, pages, give) in OUT {
        for (way_back, take) in RETURNS {
            for way in ["here", "there", "hidden", "late"] {
                let params = params(SITES);
                let domain = params.domains[0].clone();
                let pool = pool(params);
                let handle = pool.handle();
                // Late buffers have addresses as long as somebody maps the area.
                let keeper = handle.area().attach(&domain).unwrap();
                let buffers = give(&pool);
                let view = held(&handle);
                let case = format!("{out}, {way_back}, {way}");
                assert_eq!((view.held, view.groups.len()), (pages as u64, 1), "{case}");
                let group = &view.groups[0];
                assert!(group.site.as_ref().unwrap().contains("tests/holders.rs:"), "{case}: {group}");
                assert_eq!((group.pages, &group.tag), (pages as u64, &None), "{case}");
                if way == "late" {
                    let shutdown = pool.destroy();
                    assert!(!shutdown.is_complete());
                    take(&handle, buffers);
                    assert!(shutdown.is_complete(), "{case}: {}", shutdown.report());
                    assert_eq!(held(&handle), HoldersView::default(), "{case}");
                    handle.area().detach(&keeper);
                    continue;
                }
                let scope = (way == "hidden").then(NoDirectRecycle::enter);
                match way {
                    "there" => std::thread::scope(|threads| {
                        threads.spawn(|| take(&handle, buffers)).join().unwrap();
                    }),
                    _ => take(&handle, buffers),
                }
                drop(scope);
                // Fragments elsewhere, and of the open page: taken in, and complete.
                pool.shrink(0);
                assert_eq!(held(&handle), HoldersView::default(), "{case}");
                assert_eq!(handle.inflight().total, 0, "{case}");
                handle.area().detach(&keeper);
            }
        }
    }
}

#[test]
fn holders_are_absent_if_off_and_have_no_sites_with_ages() {
    let off = pool(params(Holders::Off));
    let _page = off.alloc_page();
    assert_eq!(off.handle().holders(), None);
    let ages = pool(params(Holders::Ages));
    ages.set_tag(Some(ages.tag("rx")));
    let _page = ages.alloc_page();
    let holder = held(&ages.handle()).oldest.remove(0);
    assert_eq!((holder.tag.as_deref(), holder.thread, holder.site), (Some("rx"), None, None));
}

#[test]
fn counters_are_those_of_a_pool_without_holders() {
    let stats = [Holders::Off, SITES].map(|holders| {
        let pool = pool(PoolParams { order: 1, ..params(holders) });
        let (send, receive) = sync_channel::<Vec<PageBuf>>(1);
        std::thread::scope(|threads| {
            let other = threads.spawn(|| receive.into_iter().for_each(drop));
            for round in 0..50 {
                let mut pages: Vec<_> = (0..150).map(|_| pool.alloc_page().unwrap()).collect();
                pages.extend((0..7).map(|_| pool.alloc_frag(1500).unwrap()));
                drop(pages.split_off(round));
                send.send(pages).unwrap();
            }
            drop(send);
            other.join().unwrap();
        });
        pool.shrink(0);
        let stats = pool.stats();
        (stats.alloc_failed, stats.recycle_released_refcnt, stats.hold - stats.release)
    });
    assert_eq!(stats[0], stats[1]);
}

#[test]
fn a_leak_is_found_by_its_place_its_thread_and_its_tag() {
    let pool = pool(params(SITES));
    let (rx, tcp) = (pool.tag("rx"), pool.tag("tcp"));
    pool.set_tag(Some(rx));
    let mut kept = Vec::new();
    for packet in 0..1000 {
        let mut buffer = pool.alloc_page().unwrap();
        if packet % 100 == 0 {
            buffer = std::thread::Builder::new()
                .name("stack".into())
                .spawn(move || {
                    buffer.set_tag(tcp);
                    buffer
                })
                .unwrap()
                .join()
                .unwrap();
            kept.push(buffer);
        }
    }
    let forgotten = pool.alloc_page();
    pool.set_tag(None);
    let untagged = pool.alloc_page();
    let view = held(&pool.handle());
    assert_eq!(view.held, 12);
    let of = |tag: Option<&str>| {
        let groups = view.groups.iter().filter(|group| group.tag.as_deref() == tag);
        let name = |group: &pagepool::HolderGroup| group.thread.clone().unwrap().name;
        groups.map(|group| (group.pages, name(group) == "stack")).collect::<Vec<_>>()
    };
    // Each time another thread.
    assert_eq!(of(Some("tcp")), [(1, true); 10]);
    assert_eq!((of(Some("rx")), of(None)), (vec![(1, false)], vec![(1, false)]));
    let line = |pages: &str| view.groups.iter().find(|group| group.to_string().contains(pages)).unwrap();
    assert_eq!(line("rx").site.as_deref().unwrap().split(':').count(), 3);
    assert_ne!(line("rx").site, line("no tag").site);
    drop((kept, forgotten, untagged));
    assert_eq!(held(&pool.handle()).held, 0);
}

/// Every handle that a user may have a page by, and its way to a tag; gives what keeps the page.
type Tagged = fn(&PoolRef, PageBuf, PageBuf, Tag) -> Box<dyn std::any::Any>;

const TAGGED: [(&str, Tagged); 9] = [
    ("buffers", |_, mut one, mut two, tag| {
        one.set_tag(tag);
        two.set_tag(tag);
        Box::new((one, two))
    }),
    ("a packet", |_, one, two, tag| {
        let mut packet = two_buffers(one, two);
        packet.set_tag(tag);
        Box::new(packet)
    }),
    ("a frame", |_, one, two, tag| {
        let mut frame = XdpFrame::from(two_buffers(one, two));
        frame.set_tag(tag);
        Box::new(frame)
    }),
    ("a further buffer", |_, mut one, two, tag| {
        one.set_tag(tag);
        let mut packet = two_buffers(one, two);
        packet.frags_mut()[0].set_tag(tag);
        Box::new(packet)
    }),
    ("a further buffer of its own", |_, mut one, two, tag| {
        one.set_tag(tag);
        let mut packet = two_buffers(one, two);
        let mut frag = packet.pop_frag().unwrap();
        frag.set_tag(tag);
        Box::new((packet, frag))
    }),
    ("readers", |_, one, two, tag| {
        let mut shared = [one.into_shared(), two.into_shared()];
        shared.iter_mut().for_each(|one| one.clone().set_tag(tag));
        Box::new(shared)
    }),
    ("a batch", |_, one, two, tag| {
        let mut batch = Batch::new();
        assert!(batch.push(one).is_ok() && batch.push(two).is_ok());
        batch.set_tag(tag);
        Box::new(batch)
    }),
    ("a bulk of frames", |_, one, two, tag| {
        let mut bulk = XdpFrameBulk::new();
        bulk.push(two_buffers(one, two).into());
        bulk.set_tag(tag);
        Box::new(bulk)
    }),
    ("addresses", |pool, mut one, mut two, tag| {
        one.set_tag(tag);
        two.set_tag(tag);
        let raw = [one, two].map(|buffer| buffer.into_raw().unwrap().addr);
        Box::new(Addressed(pool.clone(), raw))
    }),
];

struct Addressed(PoolRef, [DeviceAddr; 2]);

impl Drop for Addressed {
    fn drop(&mut self) {
        self.0.put_addr_bulk(&self.1).unwrap();
    }
}

fn two_buffers(one: PageBuf, two: PageBuf) -> XdpBuff {
    let mut packet = XdpBuff::new(one, 256, 64).unwrap();
    packet.add_frag(two, 0, 100).unwrap();
    packet
}

#[test]
fn every_handle_can_name_its_holder() {
    let tag = Tag::new("holder of all");
    for (name, tagged) in TAGGED {
        for holders in [Holders::Off, Holders::Ages, SITES] {
            for there in [false, true] {
                let (pool, case) =
                    (pool(params(holders)), format!("{name}, {holders:?}, elsewhere: {there}"));
                pool.set_tag(Some(pool.tag("rx")));
                let ([one, two], handle) = ([(); 2].map(|()| pool.alloc_page().unwrap()), pool.handle());
                let look = || {
                    let kept = tagged(&handle, one, two, tag);
                    let view = handle.holders();
                    drop(kept);
                    view
                };
                let view = match there {
                    true => std::thread::scope(|threads| threads.spawn(look).join().unwrap()),
                    false => look(),
                };
                let groups = view.iter().flat_map(|view| &view.groups);
                let seen: Vec<_> = groups.map(|group| (group.tag.as_deref().unwrap(), group.pages)).collect();
                let expected: &[_] = if holders == Holders::Off { &[] } else { &[("holder of all", 2)] };
                assert_eq!(seen, expected, "{case}");
                assert_eq!(pool.inflight().out, 0, "{case}");
            }
        }
    }
}

#[test]
fn a_tag_is_the_same_name_in_every_pool() {
    let pools = [pool(params(SITES)), pool(params(Holders::Ages))];
    pools[1].set_tag(Some(pools[1].tag("of the second pool alone")));
    let both = pools[0].tag("of both pools");
    assert_eq!((both, both.name()), (Tag::new("of both pools"), "of both pools"));
    let mut packet = two_buffers(pools[0].alloc_page().unwrap(), pools[1].alloc_page().unwrap());
    let other = pools[1].alloc_page();
    packet.set_tag(both);
    let tags = pools.each_ref().map(|pool| {
        held(&pool.handle()).groups.into_iter().map(|group| group.tag.unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(tags[0], ["of both pools"]);
    assert_eq!(tags[1].iter().filter(|&tag| tag == "of both pools").count(), 1, "{tags:?}");
    assert_eq!(tags[1].iter().filter(|&tag| tag == "of the second pool alone").count(), 1, "{tags:?}");
    drop((packet, other));
}

#[test]
fn a_pool_has_names_for_256_tags_and_its_report_for_all() {
    let pool = pool(params(Holders::Ages));
    let kept: Vec<_> = (0..300)
        .map(|at| {
            let mut buffer = pool.alloc_page().unwrap();
            buffer.set_tag(Tag::new(&format!("one of many, {at}")));
            buffer
        })
        .collect();
    let view = held(&pool.handle());
    let unnamed = view.groups.iter().find(|group| group.tag.is_none()).map(|group| group.pages);
    assert_eq!((unnamed, view.groups.len() as u64 + view.more_groups), (Some(44), 257), "{view:?}");
    let report = pool.destroy().report();
    let text = report.to_string();
    let of_groups = text.lines().filter(|line| line.contains(" held by ") && line.contains("; the oldest "));
    assert_eq!((of_groups.count(), report.groups.len(), report.more_groups), (16, 64, 193), "{text}");
    assert!(text.contains("\n  and 241 more groups\n"), "{text}");
    assert_eq!(report.ages.iter().sum::<u64>(), 300, "{report:?}");
    assert!(text.lines().nth(1).is_some_and(|ages| ages.contains(" younger than ")), "{text}");
    let named = (0..300).filter(|at| {
        let name = format!("one of many, {at}");
        report.pages.iter().any(|page| page.tag.as_ref() == Some(&name))
    });
    assert_eq!(named.count(), 300);
    drop(kept);
}

/// The clock that ages are of, in milliseconds. It stands still for up to 10 ms at a time.
fn coarse_ms() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one time, which lives across the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut now) };
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

/// Sleeps until that clock has gone on so far, and gives what it says.
fn later_by(ms: u64) -> u64 {
    let until = coarse_ms() + ms;
    while coarse_ms() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    coarse_ms()
}

/// How many of these ages are in each of the view's ranges.
fn counted(ages: impl Iterator<Item = Duration>) -> [u64; AGE_EDGES.len() + 1] {
    let mut counts = [0; AGE_EDGES.len() + 1];
    ages.for_each(|age| counts[AGE_EDGES.partition_point(|&edge| edge <= age)] += 1);
    counts
}

#[test]
fn pages_are_as_old_as_they_are() {
    let pool = pool(params(Holders::Ages));
    let before_old = coarse_ms();
    let old = pool.alloc_page().unwrap();
    let (after_old, page) = (coarse_ms(), old.page());
    let before_young = later_by(150);
    let _young: Vec<_> = (0..5).map(|_| pool.alloc_page().unwrap()).collect();
    let before_view = coarse_ms();
    let view = held(&pool.handle());
    let after_view = coarse_ms();
    let ages: Vec<_> = view.oldest.iter().map(|holder| holder.age.unwrap().as_millis() as u64).collect();
    assert_eq!((view.held, view.oldest[0].page, ages.len()), (6, page, 6));
    assert!((before_view - after_old..=after_view - before_old).contains(&ages[0]), "{view:?}");
    assert!(ages[1..].iter().all(|&age| age <= after_view - before_young), "{view:?}");
    assert!(ages[0] >= ages[1] + 150, "{view:?}");
    assert_eq!(view.ages, counted(view.oldest.iter().filter_map(|holder| holder.age)));
    drop(old);
    let before_again = coarse_ms();
    let again = pool.alloc_page().unwrap();
    assert_eq!(again.page(), page, "the hottest");
    let view = held(&pool.handle());
    let holder = view.oldest.iter().find(|holder| holder.page == page).unwrap();
    assert!(holder.age.unwrap().as_millis() as u64 <= coarse_ms() - before_again, "{view:?}");
}

#[inline(never)]
fn takes_a_page_and_keeps_it(pool: &Bound) -> PageBuf {
    pool.alloc_page().unwrap()
}

#[test]
fn one_stack_in_so_many_allocations_is_taken() {
    let stacks = std::num::NonZeroU32::new(4);
    let pool = pool(params(Holders::Sites { stacks }));
    let kept: Vec<_> = (0..16).map(|_| takes_a_page_and_keeps_it(&pool)).collect();
    let view = held(&pool.handle());
    let stacks: Vec<_> = view.oldest.iter().filter_map(|holder| holder.stack.as_deref()).collect();
    assert_eq!(stacks.len(), 4, "{view:?}");
    let first = |stack: &&str| stack.lines().next().unwrap_or_default().to_owned();
    let named = stacks.iter().all(|stack| first(stack).contains("takes_a_page_and_keeps_it"));
    assert!(named && view.groups.len() == 1, "{view:?}");
    drop(kept);
}

#[test]
fn a_page_of_fragments_is_one_allocation() {
    for one_in in [1, 2, 4] {
        let stacks = std::num::NonZeroU32::new(one_in);
        let pool = pool(params(Holders::Sites { stacks }));
        let kept: Vec<_> = (0..8).map(|_| pool.alloc_frag(3000).unwrap()).collect();
        let view = held(&pool.handle());
        let with_stack = view.oldest.iter().filter(|holder| holder.stack.is_some()).count();
        assert_eq!((view.held, with_stack), (8, 8 / one_in as usize), "1 in {one_in}");
        drop(kept);
    }
}

#[test]
fn a_page_that_leaves_by_a_panic_has_no_holder() {
    let domain = PanicsOnce::new();
    let domains: Vec<Arc<dyn DmaDomain>> = vec![domain.clone()];
    let pool = pool(PoolParams { domains, sync_for_device: true, ..params(SITES) });
    drop(pool.alloc_page());
    domain.arm();
    let cut = catch_unwind(AssertUnwindSafe(|| pool.alloc_frag(1000)));
    assert!(cut.is_err());
    assert_eq!((pool.inflight().out, held(&pool.handle()).held), (0, 0));
}

#[test]
fn the_report_of_a_pool_names_holders_oldest_first() {
    let pool = pool(PoolParams { name: "rx7".into(), ..params(SITES) });
    let long = "reassembly of what comes in more than forty bytes";
    pool.set_tag(Some(pool.tag(long)));
    let first = pool.alloc_page();
    later_by(30);
    pool.set_tag(Some(pool.tag("tcp")));
    let others: Vec<_> = (0..3).map(|_| pool.alloc_page()).collect();
    let shutdown = pool.destroy();
    let report = shutdown.report();
    assert_eq!(report.pages[0].page, first.as_ref().unwrap().page());
    assert!(report.pages[0].age > report.pages[1].age);
    assert_eq!(report.pages[0].tag.as_deref(), Some(long), "whole");
    let text = report.to_string();
    let mut lines = text.lines();
    let seconds = report.held_for.as_secs();
    let head = format!("stalled pool shutdown: 4 buffers held for {seconds} s (pool rx7 id ");
    assert!(lines.next().unwrap().starts_with(&head), "{text}");
    assert_eq!(report.ages.iter().sum::<u64>(), 4);
    assert!(lines.next().unwrap().contains(" younger than "), "{text}");
    let group = lines.next().unwrap();
    assert!(group.starts_with("  3 pages held by tcp, thread "), "{text}");
    assert!(group.contains(", allocated at ") && group.contains("tests/holders.rs:"), "{text}");
    assert!(lines.next().unwrap().starts_with("  1 page held by reassembly of what"), "{text}");
    let oldest = lines.next().unwrap();
    let age = report.pages[0].age.unwrap().as_secs_f64();
    assert!(oldest.contains(&format!("forty bytes for {age:.1} s, thread ")), "{text}");
    drop((first, others));
    assert!(shutdown.is_complete() && shutdown.report().groups.is_empty());
}

#[test]
fn no_record_is_left_when_all_buffers_have_returned() {
    let pool = pool(PoolParams { lane_size: 16, ring_size: 32, cache_size: 32, refill: 16, ..params(SITES) });
    std::thread::scope(|threads| {
        let ways: Vec<_> = (0..2)
            .map(|_| {
                let (send, receive) = sync_channel::<Vec<PageBuf>>(2);
                threads.spawn(move || {
                    for (round, mut buffers) in receive.into_iter().enumerate() {
                        if round % 2 == 0 { put_bulk(&mut buffers) } else { drop(buffers) }
                    }
                });
                send
            })
            .collect();
        for round in 0..5000_usize {
            let take =
                |at: usize| if at.is_multiple_of(3) { pool.alloc_frag(900) } else { pool.alloc_page() };
            let burst: Vec<_> = (0..48).filter_map(take).collect();
            ways[round % 2].send(burst).unwrap();
            if round.is_multiple_of(500) {
                assert!(held(&pool.handle()).held <= 512);
            }
        }
    });
    pool.shrink(0);
    assert_eq!(held(&pool.handle()), HoldersView::default());
    assert_eq!(pool.inflight().total, 0);
}

/// Fragments of 1,000 bytes, four in a page, and the pages that are out.
fn cut(pool: &Bound, n: usize) -> Vec<PageBuf> {
    (0..n).map(|_| pool.alloc_frag(1000).unwrap()).collect()
}

/// Returns buffers on a thread that has no other.
fn return_elsewhere(buffers: Vec<PageBuf>) {
    std::thread::spawn(move || drop(buffers)).join().unwrap();
}

#[test]
fn pages_whose_fragments_returned_elsewhere_have_no_holder() {
    let kinds = [(8, 1024, 64), (0, 1024, 64), (1, 4, 0), (0, 0, 0), (1, 4, 8)];
    for (max_lanes, lane_size, ring_size) in kinds {
        let pool = pool(PoolParams { max_lanes, lane_size, ring_size, ..params(SITES) });
        let whole = pool.alloc_page().unwrap();
        let mut frags = cut(&pool, 64);
        let places = || {
            let (at, held) = (pool.inflight(), held(&pool.handle()).held);
            let back = at.cache + at.lanes + at.ring + at.uncollected;
            assert_eq!(at.total as u64, back + at.frag + at.deferred + at.out);
            assert_eq!(held, at.out + at.frag, "{at:?}");
            at.out
        };
        assert_eq!(places(), 16, "15 pages that were cut, and the whole one");
        let others = frags.split_off(31); // the eighth page keeps three
        return_elsewhere(others);
        assert_eq!(places(), 9, "{max_lanes} lanes of {lane_size}, ring {ring_size}");
        return_elsewhere(frags.split_off(1));
        assert_eq!(places(), 2);
        return_elsewhere(frags);
        assert_eq!(places(), 1, "the owner has not looked");
        drop(whole);
        pool.shrink(0);
        assert_eq!((pool.inflight().total, held(&pool.handle()).held), (0, 0));
    }
}

#[test]
fn parts_that_returned_elsewhere_have_no_holder() {
    let pool = pool(params(SITES));
    let split_here = pool.alloc_page().unwrap().split_at(100).unwrap();
    let whole = pool.alloc_page().unwrap();
    let kept = std::thread::spawn(move || {
        drop(split_here);
        let (first, rest) = whole.split_at(2000).unwrap();
        drop(rest);
        first
    });
    let kept = kept.join().unwrap();
    assert_eq!((pool.inflight().out, held(&pool.handle()).held), (1, 1));
    return_elsewhere(vec![kept]);
    assert_eq!((pool.inflight().out, held(&pool.handle()).held), (0, 0));
}
