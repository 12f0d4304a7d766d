//! Fragments that a device has: found again once, by where they lie, even if it names wrong ones; runs of them; and
//! bursts that return together, on this thread or another.

use pagepool::{
    Arena, ArenaParams, Bound, FragRun, FragTable, PageBuf, Pool, PoolParams, XdpBuff, XdpFrameBulk,
    put_bulk, put_packets,
};
use std::sync::Arc;

const BYTES: u64 = 4 << 20;

fn arena() -> Arc<Arena> {
    Arena::new(ArenaParams { max_bytes: BYTES, ..Default::default() }).expect("4 MiB")
}

fn pool_of(order: u8, arena: &Arc<Arena>) -> Bound {
    Pool::new(PoolParams { order, ..Default::default() }, arena.clone()).expect("plain").bind()
}

fn out(pool: &Bound) -> u64 {
    pool.inflight().out
}

/// Inserts `n` fragments of 2048 bytes, and gives where they lie.
fn insert(table: &mut FragTable, pool: &Bound, n: usize) -> Vec<u64> {
    let mut places = Vec::new();
    while places.len() < n {
        let run = pool.alloc_frag_run(2048, n - places.len()).expect("the arena is large");
        table.insert(run, |at| places.push(at)).expect("of this area");
    }
    places
}

#[test]
fn each_fragment_goes_back_to_its_own_pool_once() {
    for orders in [[0, 0], [5, 0], [6, 9]] {
        let arena = arena();
        let [one, two] = orders.map(|order| pool_of(order, &arena));
        let mut table = FragTable::new(BYTES, 2048);
        let (of_one, of_two) = (insert(&mut table, &one, 70), insert(&mut table, &two, 70));
        assert_eq!(table.len(), 140);
        let whose = of_one.iter().map(|at| (at, &one)).chain(of_two.iter().map(|at| (at, &two)));
        for (&at, pool) in whose {
            let frag = table.remove(at + 77).expect("any byte names it");
            let place = u64::from(frag.page().0) * 4096 + frag.offset() as u64;
            assert_eq!((place, frag.len(), frag.pool_id()), (at, 2048, pool.handle().id()));
            assert!(table.remove(at).is_none(), "not twice");
        }
        assert_eq!((table.is_empty(), out(&one), out(&two)), (true, 0, 0));
    }
}

#[test]
fn a_place_that_is_not_here_gives_nothing() {
    let arena = arena();
    let (pool, mut table) = (pool_of(5, &arena), FragTable::new(BYTES, 2048));
    assert!(table.remove(0).is_none(), "nothing is here at all");
    let places = insert(&mut table, &pool, 4);
    let mut packets = Vec::with_capacity(8);
    for wrong in [BYTES, u64::MAX, places[3] + 2048] {
        assert!(table.remove(wrong).is_none());
        assert_eq!(table.remove_packets(1, |_| Some((wrong, 60)), &mut packets), (0, 0), "{wrong}");
    }
    let at = places[0];
    for (wrong, len) in [(at + 256, 0), (at + 256, 1793), (at + 1, u32::MAX), (at + 2047, 2)] {
        assert_eq!(table.remove_packets(1, |_| Some((wrong, len)), &mut packets), (0, 0), "{wrong} {len}");
    }
    let named = [(at + 256, 1792), (places[2], 60), (at + 256, 60)];
    assert_eq!(table.remove_packets(3, |n| Some(named[n]), &mut packets), (2, 1852), "the third is gone");
    assert_eq!((packets[0].len(), packets[0].offset(), packets[1].offset()), (1792, 256, 0));
    assert_eq!(table.len(), 2);
    let mut full = Vec::new();
    assert_eq!(table.remove_packets(1, |_| Some((places[1], 60)), &mut full), (0, 0), "no room");
}

#[test]
fn a_run_that_does_not_fit_is_given_back_whole() {
    let arena = arena();
    let (pool, mut table) = (pool_of(5, &arena), FragTable::new(BYTES, 2048));
    let mut refused = |run: Option<FragRun>| {
        let run = run.expect("the arena is large");
        let n = run.len();
        assert_eq!(table.insert(run, |_| panic!("none is taken")).map_err(|run| run.len()), Err(n));
    };
    refused(pool.alloc_frag_run(1024, 2)); // of another size
    drop(pool.alloc_frag_run(64, 1));
    refused(pool.alloc_frag_run(2048, 2)); // not at multiples of its size
    let mut small = FragTable::new(4096, 2048);
    let apart = pool_of(6, &arena);
    let first = apart.alloc_frag_run(2048, 1).expect("the arena is large");
    drop(first);
    let run = apart.alloc_frag_run(2048, 3).expect("the arena is large");
    assert_eq!(small.insert(run, |_| ()).map_err(|run| run.len()), Err(3), "beyond the table");
    assert_eq!((out(&pool), out(&apart), table.len()), (0, 0, 0));
    let other = Arena::new(ArenaParams { max_bytes: BYTES, ..Default::default() }).expect("4 MiB");
    let there = pool_of(5, &other);
    let kept = insert(&mut table, &apart, 1);
    let run = there.alloc_frag_run(2048, 1).expect("the arena is large");
    assert!(table.insert(run, |_| ()).is_err(), "of another area");
    drop(table.remove(kept[0]));
    assert_eq!(insert(&mut table, &there, 1).len(), 1, "none of the first area is here any more");
}

#[test]
fn fragments_further_apart_than_their_size_are_found() {
    let params = PoolParams { order: 5, frag_align: 4096, ..Default::default() };
    let (pool, mut table) = (Pool::new(params, arena()).unwrap().bind(), FragTable::new(BYTES, 2048));
    let places = insert(&mut table, &pool, 40);
    assert_eq!((places[1] - places[0], table.len()), (4096, 40));
    assert!(table.remove(places[0] + 2048).is_none(), "between them is nobody");
    assert!(places.iter().all(|&at| table.remove(at).is_some()));
    assert_eq!((table.is_empty(), out(&pool)), (true, 0));
}

#[test]
fn a_run_gives_its_fragments_one_by_one_and_returns_the_rest() {
    let arena = arena();
    for order in [0, 3, 6] {
        let pool = pool_of(order, &arena);
        assert!(pool.alloc_frag_run(2048, 0).is_none() && pool.alloc_frag_run(0, 1).is_none());
        assert!(pool.alloc_frag_run((4096 << order) + 1, 1).is_none());
        let mut run = pool.alloc_frag_run(2000, 500).expect("the arena is large");
        assert_eq!((run.len(), run.step()), (FragRun::MAX.min(2 << order), 2048));
        let taken: Vec<PageBuf> = run.by_ref().take(2).collect();
        assert_eq!((taken[1].offset(), taken[1].len()), (2048, 2000));
        assert!(taken[0].page() == taken[1].page() && run.first().is_none_or(|next| next.offset() == 4096));
        drop(run);
        drop(taken);
        assert_eq!(out(&pool), 0);
        // On another thread, more than a message of this order can have.
        let run = pool.alloc_frag_run(64, 64).expect("the arena is large");
        std::thread::scope(|threads| threads.spawn(move || drop(run)).join()).expect("it does not panic");
        assert_eq!(out(&pool), 0, "order {order}");
    }
}

fn packet(pool: &Bound, size: usize, len: usize) -> XdpBuff {
    XdpBuff::new(pool.alloc_frag(size).expect("the arena is large"), 256, len).expect("it fits")
}

/// A packet that no table takes, to be the third of four.
type Wrong = fn(&Bound, &Bound, &Bound) -> XdpBuff;

#[test]
fn insert_packets_stops_at_the_first_without_its_own_chunk() {
    let arena = arena();
    let page = |whole: &Bound| whole.alloc_page().expect("the arena is large");
    let wrong: [Wrong; 4] = [
        |mine, _, _| packet(mine, 1024, 60),
        |_, other, _| packet(other, 2048, 60),
        |_, _, whole| XdpBuff::new(whole.alloc_page().expect("large"), 256, 60).expect("it fits"),
        |mine, _, whole| {
            let mut several = packet(mine, 2048, 60);
            several.add_frag(whole.alloc_page().expect("large"), 0, 60).expect("it has room");
            several
        },
    ];
    for wrong in wrong {
        let (mine, other, mut table) = (pool_of(5, &arena), pool_of(5, &arena), FragTable::new(BYTES, 2048));
        let whole = Pool::new(PoolParams { chains: 4, ..Default::default() }, arena.clone()).unwrap().bind();
        drop(page(&whole));
        let mut packets = vec![packet(&mine, 2048, 60), packet(&mine, 2048, 61)];
        packets.push(wrong(&mine, &other, &whole));
        packets.push(packet(&other, 2048, 62));
        let mut seen = Vec::new();
        let taken = table.insert_packets(&mut packets, 64, |at, len| {
            seen.push((at % 2048, len));
            true
        });
        assert_eq!((taken, &seen[..]), (2, &[(256, 60), (256, 61)][..]));
        assert_eq!((table.len(), packets.len()), (2, 2));
        drop((packets, table));
        assert_eq!([&mine, &other, &whole].map(out), [0; 3]);
    }
    let mut table = FragTable::new(BYTES, 2048);
    let fresh = pool_of(5, &arena);
    let mut packets: Vec<_> = (0..5).map(|n| packet(&fresh, 2048, 60 + n)).collect();
    assert_eq!(table.insert_packets(&mut packets, 4, |_, len| len < 62), 2, "the third is refused");
    assert_eq!(table.insert_packets(&mut packets, 1, |_, _| true), 1, "at most one");
    assert_eq!((packets.len(), packets[0].len(), table.len()), (2, 63, 3));
    drop((packets, table));
    assert_eq!(out(&fresh), 0);
}

#[test]
fn what_is_forgotten_is_out_for_ever() {
    let arena = arena();
    let (pool, mut table) = (pool_of(5, &arena), FragTable::new(BYTES, 2048));
    let places = insert(&mut table, &pool, 3);
    assert_eq!((table.forget(), table.len()), (3, 0));
    assert!(table.remove(places[0]).is_none());
    drop(table);
    let handle = pool.handle();
    drop(pool);
    assert_eq!(handle.inflight().out, 1, "their page");
}

/// Every way on which a burst of fragments returns together, here and elsewhere, through lanes that are too
/// small for it, and after the end of the pool.
#[test]
fn bursts_of_fragments_all_return() {
    let put_frames = |packets: &mut Vec<XdpBuff>| {
        let mut bulk = XdpFrameBulk::new();
        packets.drain(..).for_each(|packet| bulk.push(packet.into()));
    };
    let buffers = |packets: &mut Vec<XdpBuff>| {
        let mut all: Vec<PageBuf> = packets.drain(..).map(XdpBuff::into_buffer).collect();
        put_bulk(&mut all);
    };
    let ways: [fn(&mut Vec<XdpBuff>); 4] = [put_packets, put_frames, buffers, Vec::clear];
    for (order, lane_size, ring_size) in [(0, 512, 64), (3, 4, 4), (6, 2, 2), (6, 512, 64)] {
        for (way, elsewhere) in ways.iter().flat_map(|way| [(way, false), (way, true)]) {
            let params = PoolParams { order, lane_size, ring_size, ..Default::default() };
            let pool = Pool::new(params, arena()).expect("plain").bind();
            for _ in 0..3 {
                let mut burst = Vec::with_capacity(150);
                assert_eq!(pool.alloc_frag_bulk(&mut burst, 2048, 150), 150);
                let packets = burst.into_iter().map(|frag| XdpBuff::new(frag, 256, 60).expect("it fits"));
                let mut packets: Vec<_> = packets.collect();
                if elsewhere {
                    let put = || way(&mut packets);
                    std::thread::scope(|threads| threads.spawn(put).join()).expect("it does not panic");
                } else {
                    way(&mut packets);
                }
                assert!(packets.is_empty());
                assert!(elsewhere || out(&pool) == 0, "order {order}: {}", out(&pool));
            }
            let handle = pool.handle();
            let mut late = Vec::with_capacity(150);
            assert_eq!(pool.alloc_frag_bulk(&mut late, 2048, 150), 150);
            drop(pool);
            put_bulk(&mut late);
            assert_eq!(handle.inflight().out, 0, "order {order}: after the end");
        }
    }
}
