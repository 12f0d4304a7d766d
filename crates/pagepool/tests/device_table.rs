//! Pages that a device has: found again once, by their numbers, even if it names wrong ones; and packets that
//! return together.

use pagepool::{
    Arena, ArenaParams, Bound, DeviceTable, PAGE_SIZE, PageBuf, PageIdx, Pool, PoolParams, XdpBuff, put_bulk,
    put_packets,
};
use std::sync::Arc;

const PAGES: usize = 512;

fn arena() -> Arc<Arena> {
    Arena::new(ArenaParams { max_bytes: (PAGES * 4096) as u64, ..Default::default() }).expect("2 MiB")
}

fn pool(arena: &Arc<Arena>) -> Bound {
    Pool::new(PoolParams { tailroom: 320, ..Default::default() }, arena.clone()).expect("plain").bind()
}

fn out(pool: &Bound) -> u64 {
    pool.inflight().out
}

/// Inserts `n` pages of a pool, and gives their numbers.
fn insert_pages(table: &mut DeviceTable, pool: &Bound, n: usize) -> Vec<PageIdx> {
    let mut numbers = Vec::new();
    table.insert(pool.alloc_batch(n), |page, _| numbers.push(page)).expect("of this area");
    numbers
}

#[test]
fn each_page_goes_back_to_its_own_pool_once() {
    let arena = arena();
    let (one, two, mut table) = (pool(&arena), pool(&arena), DeviceTable::new(PAGES));
    let (of_one, of_two) = (insert_pages(&mut table, &one, 10), insert_pages(&mut table, &two, 10));
    assert_eq!((table.len(), out(&one), out(&two)), (20, 10, 10));
    for (number, pool) in of_one.iter().map(|n| (n, &one)).chain(of_two.iter().map(|n| (n, &two))) {
        let buffer = table.remove(*number).expect("it is here");
        assert_eq!((buffer.page(), buffer.pool_id()), (*number, pool.handle().id()));
        assert!(table.remove(*number).is_none(), "not twice");
    }
    assert_eq!((table.is_empty(), out(&one), out(&two)), (true, 0, 0));
}

/// As packets, each given by its page, its offset in the page, and its bytes.
fn take(table: &mut DeviceTable, named: &[(PageIdx, u32, u32)], into: &mut Vec<XdpBuff>) -> (usize, u64) {
    let at = |(page, offset, len): (PageIdx, u32, u32)| (u64::from(page.0) * 4096 + u64::from(offset), len);
    table.remove_packets(named.len(), |n| Some(at(named[n])), into)
}

#[test]
fn a_number_that_is_not_here_gives_nothing() {
    let arena = arena();
    let (pool, mut table) = (pool(&arena), DeviceTable::new(PAGES));
    assert!(table.remove(PageIdx(0)).is_none(), "nothing is here at all");
    let numbers = insert_pages(&mut table, &pool, 4);
    for wrong in [PageIdx(PAGES as u32), PageIdx(u32::MAX)] {
        assert!(table.remove(wrong).is_none());
        assert_eq!(take(&mut table, &[(wrong, 0, 60)], &mut Vec::with_capacity(1)), (0, 0));
    }
    let free = (0..PAGES as u32).map(PageIdx).find(|page| !numbers.contains(page)).expect("508 are free");
    assert!(table.remove(free).is_none());
    assert_eq!((table.len(), out(&pool)), (4, 4));
}

#[test]
fn remove_packets_stops_unchanged_at_the_first_bad_packet() {
    let arena = arena();
    let (one, two, mut table) = (pool(&arena), pool(&arena), DeviceTable::new(PAGES));
    let (mine, theirs) = (insert_pages(&mut table, &one, 4), insert_pages(&mut table, &two, 1));
    let mut packets = Vec::with_capacity(8);
    let wrong = [
        (mine[0], 256, 0),               // empty
        (mine[0], 256, 4096 - 320),      // into the tailroom
        (mine[0], 4095, 1),              // likewise, from there on
        (mine[0], 1, u32::MAX),          // longer than anything
        (PageIdx(PAGES as u32), 256, 1), // no page
    ];
    for named in wrong {
        assert_eq!(take(&mut table, &[named], &mut packets), (0, 0), "{named:?}");
    }
    for beyond in [1u64 << 44, 1 << 63] {
        let at = |page: PageIdx| beyond + u64::from(page.0) * 4096 + 256;
        assert_eq!(table.remove_packets(1, |_| Some((at(mine[0]), 60)), &mut packets), (0, 0), "{beyond}");
    }
    assert_eq!(table.remove_packets(4, |_| None, &mut packets), (0, 0), "nothing is said");
    assert_eq!(table.remove_packets(0, |_| unreachable!(), &mut packets), (0, 0), "there are none");
    let last = 4096 - 320 - 256;
    let named = [(mine[0], 256, last), (theirs[0], 256, 60), (mine[1], 256, 60)];
    assert_eq!(take(&mut table, &named, &mut packets), (1, u64::from(last)), "up to another pool's");
    assert_eq!(take(&mut table, &named[1..], &mut packets), (1, 60), "which comes by itself");
    assert_eq!((packets[0].offset(), packets[0].len(), packets[0].tailroom()), (256, last as usize, 0));
    assert_eq!((table.len(), packets.len()), (3, 2));
    let mut full = Vec::with_capacity(1);
    full.push(XdpBuff::received(table.remove(mine[1]).expect("it is here"), 60).expect("it fits"));
    assert_eq!(take(&mut table, &[(mine[2], 256, 60)], &mut full), (0, 0), "the vector never grows");
    drop((packets, full, table));
    assert_eq!((out(&one), out(&two)), (0, 0));
}

fn packet(pool: &Bound, len: usize) -> XdpBuff {
    XdpBuff::received(pool.alloc_page().expect("a page"), len).expect("it fits")
}

#[test]
fn remove_chained_stops_at_a_bad_part_and_can_continue() {
    let arena = arena();
    let params = PoolParams { tailroom: 320, chains: 1, ..Default::default() };
    let (one, two) = (Pool::new(params, arena.clone()).expect("plain").bind(), pool(&arena));
    let mut table = DeviceTable::new(PAGES);
    let (mine, theirs) = (insert_pages(&mut table, &one, 8), insert_pages(&mut table, &two, 1));
    let place = |page: PageIdx, offset: u64| u64::from(page.0) * 4096 + offset;
    let (mut packets, mut begun) = (Vec::with_capacity(2), None);
    let mut take = |named: &[(u64, u32, bool)], most, begun: &mut _, packets: &mut _| {
        let taken = table.remove_chained(named.len(), |at| named.get(at).copied(), most, begun, packets);
        (taken, table.len())
    };
    let wrong = [(place(mine[0], 0), 60), (place(mine[1], 4000), 97), (place(mine[1], 0), 0), (1 << 63, 60)];
    let head = [(place(mine[0], 256), 3000, true)];
    assert_eq!(take(&head, 3, &mut begun, &mut packets), ((1, 0), 8), "it goes on");
    for (at, len) in wrong {
        let named = [(at, len, true)];
        assert_eq!(take(&named, 3, &mut begun, &mut packets), ((0, 0), 8), "{at} {len}");
        let packet = begun.as_ref().expect("it still goes on");
        assert!(!packet.has_frags(), "and has no chain that is empty");
    }
    let rest =
        [(place(mine[1], 4000), 96, true), (place(mine[2], 0), 1, true), (place(mine[3], 0), 1, false)];
    assert_eq!(take(&rest, 3, &mut begun, &mut packets), ((2, 0), 6), "as many pages as it may have");
    assert_eq!(take(&rest[2..], 4, &mut begun, &mut packets), ((1, 3098), 5), "one more is allowed");
    assert_eq!((packets[0].len(), packets[0].frags().len()), (3098, 3));
    let second = [(place(mine[4], 256), 60, false), (place(mine[5], 256), 60, false)];
    assert_eq!(take(&second, 3, &mut begun, &mut packets), ((1, 60), 4), "the vector never grows");
    packets.pop();
    let second = [(place(mine[5], 256), 60, true), (place(mine[6], 256), 60, false)];
    assert_eq!(take(&second, 3, &mut begun, &mut packets), ((1, 0), 3), "the pool's one chain is taken");
    packets.clear();
    assert_eq!(take(&second[1..], 3, &mut begun, &mut packets), ((1, 120), 2), "and is free again");
    packets.clear();
    let two_pools = [(place(mine[7], 256), 60, true), (place(theirs[0], 0), 60, false)];
    assert_eq!(take(&two_pools, 3, &mut begun, &mut packets), ((1, 0), 1), "up to another pool's");
    assert_eq!(take(&two_pools[1..], 3, &mut begun, &mut packets), ((1, 120), 0), "which comes by itself");
    drop((packets, begun, table));
    assert_eq!((out(&one), out(&two)), (0, 0));
}

#[test]
fn insert_chained_parks_the_last_page_of_a_packet_apart() {
    let arena = arena();
    let params = PoolParams { chains: 8, ..Default::default() };
    let (one, two) = (Pool::new(params, arena.clone()).expect("plain").bind(), pool(&arena));
    let jumbo = |further: &[&Bound]| {
        let mut packet = packet(&one, 100);
        further.iter().for_each(|pool| packet.add_frag(pool.alloc_page().unwrap(), 0, 100).expect("a chain"));
        packet
    };
    let mut with_part = jumbo(&[&one]);
    with_part.add_frag(one.alloc_frag(512).expect("a fragment"), 0, 60).expect("a chain");
    let mut packets = vec![jumbo(&[&one; 2]), jumbo(&[]), jumbo(&[&one]), jumbo(&[&two]), with_part];
    let (mut last, mut before) = (DeviceTable::new(PAGES), DeviceTable::new(PAGES));
    assert_eq!(last.insert_chained(&mut before, &mut packets, 64, |_| false), 0, "refused");
    assert_eq!(last.insert_chained(&mut before, &mut packets, 0, |_| true), 0, "none is asked for");
    assert_eq!(last.insert_chained(&mut before, &mut packets, 64, |_| true), 3, "up to another pool's page");
    assert_eq!((last.len(), before.len(), packets.len()), (3, 3, 2));
    for _ in 0..2 {
        assert_eq!(last.insert_chained(&mut before, &mut packets, 64, |_| true), 0, "{packets:?}");
        drop(packets.remove(0));
    }
    assert_eq!((out(&one), out(&two)), (6, 0));
    assert_eq!((last.clear(), before.clear(), out(&one)), (3, 3, 0));
    let mut short = DeviceTable::new(1);
    let mut packets = vec![jumbo(&[&one])];
    assert_eq!(last.insert_chained(&mut short, &mut packets, 64, |_| true), 0, "beyond the other table");
    drop((packets, last, before, short));
    assert_eq!(out(&one), 0);
}

#[test]
fn packets_are_parked_up_to_the_first_that_is_no_page_to_itself() {
    let arena = arena();
    let chained = PoolParams { chains: 8, ..Default::default() };
    let (one, two) = (Pool::new(chained, arena.clone()).expect("plain").bind(), pool(&arena));
    let frag = XdpBuff::new(one.alloc_frag(512).expect("a fragment"), 0, 60).expect("it fits");
    let mut jumbo = packet(&one, 100);
    jumbo.add_frag(one.alloc_page().expect("a page"), 0, 100).expect("a chain");
    let mut packets =
        vec![packet(&one, 60), frag, packet(&one, 61), jumbo, packet(&one, 62), packet(&two, 63)];
    let (mut table, mut named) = (DeviceTable::new(PAGES), Vec::new());
    let mut takes = |at: u64, len| {
        named.push((PageIdx((at / PAGE_SIZE as u64) as u32), (at % PAGE_SIZE as u64) as u32, len as u32));
        true
    };
    for _ in 0..2 {
        assert_eq!(table.insert_packets(&mut packets, 64, &mut takes), 1);
        assert_eq!(table.insert_packets(&mut packets, 64, &mut takes), 0, "a fragment, or several buffers");
        drop(packets.remove(0));
    }
    assert_eq!(table.insert_packets(&mut packets, 0, &mut takes), 0, "none is asked for");
    assert_eq!(table.insert_packets(&mut packets, 64, |_, _| false), 0, "refused");
    assert_eq!(table.insert_packets(&mut packets, 64, &mut takes), 1, "up to another pool's");
    assert_eq!(table.insert_packets(&mut packets, 64, &mut takes), 1, "which comes by itself");
    assert_eq!((packets.len(), table.len(), out(&one), out(&two)), (0, 4, 3, 1));
    assert_eq!(table.insert_packets(&mut packets, 64, &mut takes), 0, "there are none");
    let mut back = Vec::with_capacity(8);
    assert_eq!(take(&mut table, &named[..3], &mut back), (3, 60 + 61 + 62), "as they were");
    assert_eq!(take(&mut table, &named[3..], &mut back), (1, 63));
    drop((back, table));
    assert_eq!((out(&one), out(&two)), (0, 0));
}

#[test]
fn packets_outside_the_area_or_the_table_stay_in_the_vector() {
    let (here, there) = (arena(), arena());
    let (mine, theirs, mut table) = (pool(&here), pool(&there), DeviceTable::new(PAGES));
    insert_pages(&mut table, &mine, 1);
    let mut packets = vec![packet(&theirs, 60)];
    assert_eq!(table.insert_packets(&mut packets, 64, |_, _| panic!("none is asked about")), 0);
    assert_eq!((packets.len(), packets[0].len(), out(&theirs)), (1, 60, 1));
    let mut short = DeviceTable::new(0);
    assert_eq!(short.insert_packets(&mut packets, 64, |_, _| panic!("none is asked about")), 0);
    drop((packets, table));
    assert_eq!((out(&mine), out(&theirs)), (0, 0));
}

#[test]
fn a_panic_leaks_only_packets_that_were_not_parked() {
    let arena = arena();
    let (pool, mut table) = (pool(&arena), DeviceTable::new(PAGES));
    let (mut packets, mut asked): (Vec<_>, _) = ((0..5).map(|_| packet(&pool, 60)).collect(), 0);
    let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        table.insert_packets(&mut packets, 64, |_, _| {
            asked += 1;
            assert!(asked < 3, "the third");
            true
        })
    }));
    assert!(unwound.is_err() && packets.is_empty());
    assert_eq!((table.len(), table.clear(), out(&pool)), (2, 2, 3));
}

#[test]
fn pages_of_another_area_are_given_back_unless_none_are_here() {
    let (here, there) = (arena(), arena());
    let (mine, theirs, mut table) = (pool(&here), pool(&there), DeviceTable::new(PAGES));
    let numbers = insert_pages(&mut table, &mine, 2);
    let refused = table.insert(theirs.alloc_batch(3), |_, _| panic!("none is taken"));
    assert_eq!(refused.expect_err("another area").len(), 3);
    assert_eq!((out(&theirs), table.len()), (0, 2));
    numbers.into_iter().for_each(|number| drop(table.remove(number)));
    insert_pages(&mut table, &theirs, 3);
    assert_eq!((out(&mine), out(&theirs)), (0, 3));
    assert_eq!((table.clear(), out(&theirs)), (3, 0));
}

#[test]
fn what_is_forgotten_is_out_for_ever() {
    let (pool, mut table) = (pool(&arena()), DeviceTable::new(PAGES));
    let numbers = insert_pages(&mut table, &pool, 5);
    drop(table.remove(numbers[0]));
    assert_eq!((table.forget(), table.len(), table.forget()), (4, 0, 0));
    assert!(numbers.into_iter().all(|number| table.remove(number).is_none()));
    drop(table);
    assert_eq!(out(&pool), 4);
}

#[test]
fn pools_that_went_away_make_room_for_others() {
    let arena = arena();
    let (stays, mut table) = (pool(&arena), DeviceTable::new(PAGES));
    let numbers = insert_pages(&mut table, &stays, 1);
    let plain = || Pool::new(PoolParams { refill: 1, ..Default::default() }, arena.clone()).expect("plain");
    for n in 0..600 {
        let passing = plain().bind();
        let number = insert_pages(&mut table, &passing, 1)[0];
        let buffer = table.remove(number).expect("it is here");
        assert_eq!(buffer.pool_id(), passing.handle().id(), "pool {n}");
    }
    let living: Vec<_> = (0..254).map(|_| plain().bind()).collect();
    let theirs: Vec<_> = living.iter().map(|pool| insert_pages(&mut table, pool, 1)[0]).collect();
    let one_more = plain().bind();
    let refused = table.insert(one_more.alloc_batch(1), |_, _| panic!("there are pages of 255 pools"));
    assert_eq!((refused.expect_err("no mark is left").len(), table.len()), (1, 255));
    for (pool, number) in living.iter().zip(theirs).chain([(&stays, numbers[0])]) {
        assert_eq!(table.remove(number).expect("it is here").pool_id(), pool.handle().id());
    }
}

#[test]
fn packets_of_all_kinds_return_together() {
    let arena = arena();
    let params = PoolParams { chains: 8, ..Default::default() };
    let pools: Vec<_> =
        (0..2).map(|_| Pool::new(params.clone(), arena.clone()).expect("plain").bind()).collect();
    let page = |n: usize| XdpBuff::received(pools[n % 2].alloc_page().expect("a page"), 60).expect("it fits");
    let mut packets: Vec<XdpBuff> = (0..100).map(page).collect();
    let frag = |pool: &Bound| -> PageBuf { pool.alloc_page().expect("a page") };
    packets[7].add_frag(frag(&pools[0]), 0, 100).expect("a chain");
    packets[90].add_frag(frag(&pools[1]), 0, 100).expect("a chain");
    packets.push(XdpBuff::new(pools[0].alloc_frag(2048).expect("a fragment"), 0, 60).expect("it fits"));
    put_packets(&mut packets);
    assert_eq!((packets.len(), packets.capacity() > 100), (0, true));
    assert_eq!((out(&pools[0]), out(&pools[1])), (0, 0), "all have returned");
    put_packets(&mut packets); // nothing to do

    let mut of_one_pool: Vec<XdpBuff> = (0..64).map(|_| page(0)).collect();
    of_one_pool[9].add_frag(frag(&pools[0]), 0, 100).expect("a chain");
    put_packets(&mut of_one_pool);
    assert_eq!(out(&pools[0]), 0, "the further buffer, too");
    put_packets(&mut (0..64).map(page).collect()); // of both, and nothing else
    assert_eq!((out(&pools[0]), out(&pools[1])), (0, 0));

    let mut plain: Vec<XdpBuff> = (0..200).map(|_| page(0)).collect();
    let elsewhere: Vec<XdpBuff> = (0..64).map(|_| page(0)).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| put_packets(&mut { elsewhere }));
    });
    put_packets(&mut plain);
    let mut again = Vec::with_capacity(264);
    pools[0].alloc_bulk(&mut again, 264); // takes in what came from the other thread
    assert_eq!(out(&pools[0]), 264);
    put_bulk(&mut again);
    assert_eq!(out(&pools[0]), 0);
}
