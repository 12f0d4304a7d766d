//! Packets for stacks: head and fragments, clones, and merging.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::sync::Arc;

use pagepool::{
    Arena, ArenaParams, Bound, DeviceMemory, DmaDomain, MAX_FRAGS, NodeId, Pool, PoolParams, XdpBuff,
    XdpFrame,
};
use pagepool_skb::{SkBuff, SkbCache, SkbError, SkbMemory};
use pagepool_testing::CheckingIommu;

fn pool_of(params: PoolParams) -> Bound {
    let arena = Arena::new(ArenaParams { max_bytes: 4 << 20, ..Default::default() }).unwrap();
    Pool::new(params, arena).unwrap().bind()
}

fn pool() -> Bound {
    pool_of(PoolParams { headroom: 256, max_len: 1514, tailroom: 320, colour: false, ..Default::default() })
}

fn cache() -> SkbCache {
    SkbCache::new(64).unwrap()
}

/// Bytes that differ from their neighbours and from other seeds.
fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (seed * 31 + at * 7 + at / 256) as u8).collect()
}

/// A packet as a device delivers it: `len` bytes in the first buffer, and as many in each of `frags` further
/// ones.
fn received(pool: &Bound, cache: &SkbCache, len: usize, frags: usize) -> SkBuff {
    let mut packet = XdpBuff::received(pool.alloc_page().unwrap(), len).unwrap();
    packet.data_mut().copy_from_slice(&pattern(0, len));
    for seed in 1..=frags {
        let mut buffer = pool.alloc_page().unwrap();
        buffer.bytes_mut().unwrap()[16..16 + len].copy_from_slice(&pattern(seed, len));
        packet.add_frag(buffer, 16, len).unwrap();
    }
    SkBuff::from_frame(cache, XdpFrame::from(packet)).unwrap()
}

fn contents(packet: &SkBuff) -> Vec<u8> {
    let bytes: Vec<u8> = packet.chunks().unwrap().flatten().copied().collect();
    let mut copied = vec![0; packet.len()];
    packet.copy_bits(0, &mut copied).unwrap();
    assert_eq!(bytes, copied);
    bytes
}

fn drop_elsewhere<T: Send>(what: T) {
    std::thread::scope(|threads| threads.spawn(move || drop(what)).join().unwrap());
}

// ---- CVE-2022-49093: a merge of recycled fragments --------------------------------------------

/// Every permutation of `n` things.
fn orders(n: usize) -> Vec<Vec<usize>> {
    if n == 0 {
        return vec![Vec::new()];
    }
    let shorter = orders(n - 1);
    let with = |order: &Vec<usize>, at: usize| {
        let mut order = order.clone();
        order.insert(at, n - 1);
        order
    };
    shorter.iter().flat_map(|order| (0..n).map(move |at| with(order, at)).collect::<Vec<_>>()).collect()
}

/// Takes every page that the pool could hand out, writes over it, and gives it back; says which they were.
fn scribble(pool: &Bound) -> BTreeSet<u32> {
    let mut pages: Vec<_> = std::iter::from_fn(|| pool.alloc_page()).collect();
    pages.iter_mut().for_each(|page| page.bytes_mut().unwrap().fill(0xEE));
    pages.iter().map(|page| page.page().0).collect()
}

/// A packet with nothing but one half of a page.
fn half(pool: &Bound, cache: &SkbCache, seed: usize) -> SkBuff {
    let mut frag = pool.alloc_frag(2048).unwrap();
    frag.bytes_mut().unwrap().copy_from_slice(&pattern(seed, 2048));
    let mut packet = SkBuff::with_capacity(cache, 128, 0).unwrap();
    packet.add_frag(frag, 0, 2048).unwrap();
    packet
}

/// Two halves of one page are two packets. One is cloned, and its clones are merged into other packets, which
/// in Linux took references that were not those it gave back. Then all are freed in one order.
fn replay(order: &[usize], elsewhere: impl Fn(usize) -> bool) {
    let arena = Arena::new(ArenaParams { max_bytes: 16 << 12, ..Default::default() }).unwrap();
    let pool = Pool::new(PoolParams::default(), arena.clone()).unwrap().bind();
    let cache = cache();
    let (one, two) = (half(&pool, &cache, 1), half(&pool, &cache, 2));
    let page = |packet: &SkBuff| packet.frags()[0].memory().buffer().unwrap().page();
    let shared = page(&one);
    assert_eq!(shared, page(&two), "halves of one page");
    let mut targets = [3, 4].map(|seed| half(&pool, &cache, seed));
    for target in &mut targets {
        let merged = target.try_coalesce(one.clone()).expect("a cloned, marked source is fine");
        assert_eq!((merged.truesize, merged.stolen_head), (2048, false));
    }
    let [three, four] = targets;
    let expect = |seeds: &[usize]| seeds.iter().flat_map(|&seed| pattern(seed, 2048)).collect::<Vec<u8>>();
    let two_more = two.clone();
    let mut packets = [(one, &[1][..]), (two, &[2]), (three, &[3, 1]), (four, &[4, 1]), (two_more, &[2])]
        .map(|(packet, seeds)| Some((packet, expect(seeds))));
    for (step, &at) in order.iter().enumerate() {
        let (packet, _) = packets[at].take().unwrap();
        if elsewhere(step) {
            drop_elsewhere(packet)
        } else {
            drop(packet)
        }
        let reused = scribble(&pool).contains(&shared.0);
        let left = packets.iter().flatten();
        assert_eq!(
            reused,
            left.clone().count() == 0,
            "the page is used again with its last reader, and no sooner"
        );
        for (packet, expected) in left {
            assert_eq!(contents(packet), *expected, "after step {step} of {order:?}");
        }
    }
    let stats = pool.stats();
    assert_eq!((pool.inflight().out, stats.recycle_released_refcnt), (0, 0), "{order:?}");
    drop(pool);
    assert_eq!(arena.pages_out(), 0, "{order:?}");
}

#[test]
fn merged_clones_are_freed_in_every_order() {
    for order in orders(5) {
        replay(&order, |_| false);
        replay(&order, |step| step % 2 == 0);
        replay(&order, |_| true);
    }
}

// ---- Clones -------------------------------------------------------------------------------------

#[test]
fn only_the_last_clone_recycles() {
    let (pool, cache) = (pool(), cache());
    let packet = received(&pool, &cache, 1000, 3);
    let clones: Vec<_> = (0..4).map(|_| packet.clone()).collect();
    assert!(packet.is_cloned() && packet.recycles() && clones[0].recycles());
    drop(packet);
    for clone in clones {
        assert_eq!((pool.inflight().out, pool.stats().recycle_cached), (4, 0));
        assert_eq!(contents(&clone)[1000..2000], pattern(1, 1000));
        drop(clone);
    }
    assert_eq!((pool.inflight().out, pool.stats().recycle_cached), (0, 4));
}

#[test]
fn clones_have_their_own_ends() {
    let (pool, cache) = (pool(), cache());
    let mut packet = received(&pool, &cache, 1000, 1);
    let whole = contents(&packet);
    let mut clone = packet.clone();
    clone.pull(14).unwrap();
    assert_eq!((clone.is_cloned(), clone.head_len(), packet.head_len()), (true, 986, 1000));
    assert_eq!(packet.push(4), Err(SkbError::Cloned));
    assert_eq!(packet.put(1), Err(SkbError::Cloned));
    assert_eq!(packet.data_mut(), None);
    assert!(matches!(packet.add_frag(pool.alloc_page().unwrap(), 0, 1), Err(SkbMemory::Pool(_))));
    clone.pull(1000).unwrap();
    assert!(!clone.is_cloned() && !packet.is_cloned(), "beyond the head it needs a block of its own");
    assert_eq!((contents(&clone), contents(&packet)), (whole[1014..].to_vec(), whole.clone()));
    drop(clone);
    let mut clone = packet.clone();
    clone.trim(1500).unwrap();
    clone.trim(300).unwrap();
    assert_eq!((contents(&clone), contents(&packet)), (whole[..300].to_vec(), whole));
    drop((packet, clone));
    assert_eq!(pool.inflight().out, 0);
}

#[test]
fn an_uncloned_copy_is_written_alone() {
    let (pool, cache) = (pool(), cache());
    for len in [1, 100, 511, 512, 513, 1514] {
        let mut packet = received(&pool, &cache, len, 2);
        let (clone, whole) = (packet.clone(), contents(&packet));
        packet.cow_head(300).unwrap();
        assert!(!packet.is_cloned() && packet.headroom() >= 300);
        packet.push(300).unwrap().fill(9);
        packet.data_mut().unwrap().fill(9);
        assert_eq!(contents(&packet), [vec![9; 300 + len], whole[len..].to_vec()].concat());
        assert_eq!(contents(&clone), whole);
        drop(clone);
        packet.unclone().unwrap();
    }
    assert_eq!(pool.inflight().out, 0);
}

#[test]
fn the_last_clone_ends_on_any_thread() {
    let (pool, cache) = (pool(), cache());
    for _ in 0..200 {
        let packet = received(&pool, &cache, 700, 2);
        let clones: Vec<_> = (0..3).map(|_| packet.clone()).collect();
        std::thread::scope(|threads| {
            for mut clone in clones {
                threads.spawn(move || {
                    assert_eq!(clone.data(), pattern(0, 700));
                    clone.pull(701).unwrap();
                    assert_eq!(contents(&clone)[..699], pattern(1, 700)[1..]);
                });
            }
            drop(packet);
        });
        assert_eq!(pool.inflight().out, 0);
    }
}

// ---- Ends ---------------------------------------------------------------------------------------

/// A packet of four stretches of 100 bytes: head, pool, ordinary, pool.
fn mixed(pool: &Bound, cache: &SkbCache) -> SkBuff {
    let mut packet = received(pool, cache, 100, 1);
    packet.add_frag(Arc::<[u8]>::from(pattern(2, 120)), 20, 100).unwrap();
    let mut buffer = pool.alloc_page().unwrap();
    buffer.bytes_mut().unwrap()[..100].copy_from_slice(&pattern(3, 100));
    packet.add_frag(buffer, 0, 100).unwrap();
    packet
}

const BOUNDS: [usize; 12] = [0, 1, 99, 100, 101, 199, 200, 201, 299, 300, 399, 400];

#[test]
fn both_ends_are_cut_at_every_bound() {
    let (pool, cache) = (pool(), cache());
    for cloned in [false, true] {
        for at in BOUNDS {
            let (mut packet, mut other) = (mixed(&pool, &cache), mixed(&pool, &cache));
            let whole = contents(&packet);
            let keep = cloned.then(|| (packet.clone(), other.clone()));
            packet.pull(at).unwrap();
            other.trim(at).unwrap();
            assert_eq!((contents(&packet), contents(&other)), (whole[at..].to_vec(), whole[..at].to_vec()));
            assert_eq!(packet.pull(401 - at), Err(SkbError::TooShort));
            assert_eq!(contents(&packet), whole[at..], "a refusal changes nothing");
            if let Some((one, two)) = keep {
                assert_eq!((contents(&one), contents(&two)), (whole.clone(), whole));
            }
        }
    }
    assert_eq!(pool.inflight().out, 0);
}

#[test]
fn buffers_that_are_cut_off_return_at_once() {
    let (pool, cache) = (pool(), cache());
    let mut packet = received(&pool, &cache, 100, 4);
    assert_eq!(pool.inflight().out, 5);
    packet.pull(300).unwrap();
    assert_eq!((pool.inflight().out, packet.nr_frags()), (3, 2), "the head's buffer stays with the packet");
    packet.trim(100).unwrap();
    assert_eq!((pool.inflight().out, packet.nr_frags()), (2, 1));
    packet.make_linear(100).unwrap();
    assert_eq!((pool.inflight().out, packet.nr_frags(), packet.data()), (1, 0, &pattern(3, 100)[..]));
}

#[test]
fn a_packet_is_split_at_every_bound() {
    let (pool, cache) = (pool(), cache());
    for (cloned, at) in BOUNDS.into_iter().flat_map(|at| [(false, at), (true, at)]) {
        for first_goes_first in [false, true] {
            let mut packet = mixed(&pool, &cache);
            let (clone, whole) = (cloned.then(|| packet.clone()), contents(&packet));
            assert_eq!(packet.split(401).err(), Some(SkbError::TooShort));
            let rest = packet.split(at).unwrap();
            assert_eq!((contents(&packet), contents(&rest)), (whole[..at].to_vec(), whole[at..].to_vec()));
            assert!(packet.recycles() && rest.recycles() && !packet.is_cloned() && !rest.is_cloned());
            let (first, second, left) = match first_goes_first {
                true => (packet, rest, &whole[at..]),
                false => (rest, packet, &whole[..at]),
            };
            drop(first);
            scribble_a_little(&pool);
            assert_eq!(contents(&second), left);
            clone.iter().for_each(|clone| assert_eq!(contents(clone), whole));
        }
    }
    assert_eq!(pool.inflight().out, 0);
}

fn scribble_a_little(pool: &Bound) {
    let mut pages: Vec<_> = (0..8).map(|_| pool.alloc_page().unwrap()).collect();
    pages.iter_mut().for_each(|page| page.bytes_mut().unwrap().fill(0xEE));
}

#[test]
fn packets_are_made_linear_at_every_bound() {
    let (pool, cache) = (pool(), cache());
    for (cloned, at) in BOUNDS.into_iter().flat_map(|at| [(false, at), (true, at)]) {
        let mut packet = mixed(&pool, &cache);
        let (clone, whole) = (cloned.then(|| packet.clone()), contents(&packet));
        packet.make_linear(at).unwrap();
        assert_eq!((packet.head_len(), contents(&packet)), (at.max(100), whole.clone()));
        assert_eq!(packet.make_linear(401), Err(SkbError::TooShort));
        packet.make_linear(packet.len()).unwrap();
        assert_eq!((packet.nr_frags(), packet.data()), (0, &whole[..]));
        clone.iter().for_each(|clone| assert_eq!(contents(clone), whole));
    }
    assert_eq!(pool.inflight().out, 0);
}

#[test]
fn a_head_grows_from_its_buffer_into_the_block_and_beyond() {
    let (pool, cache) = (pool(), cache());
    let mut packet = SkBuff::with_capacity(&cache, 100, 0).unwrap();
    packet.add_frag(Arc::<[u8]>::from(pattern(1, 3000)), 0, 3000).unwrap();
    let empty = packet.truesize() - 3000;
    for n in [10, 400, 512, 513, 3000] {
        packet.make_linear(n).unwrap();
        assert_eq!((packet.head_len(), contents(&packet)), (n, pattern(1, 3000)));
    }
    assert_eq!(packet.put(100_000), Err(SkbError::NoRoom));
    assert!(packet.truesize() >= empty + 3000, "the block, and a head allocated for it");
    assert!(SkBuff::with_capacity(&cache, usize::MAX, 1).is_err_and(|e| e == SkbError::NoMemory));
    drop(packet);
    // The head's buffer is left behind when the head outgrows it.
    let mut packet = received(&pool, &cache, 100, 0);
    packet.cow_head(300).unwrap();
    assert_eq!((pool.inflight().out, packet.data()), (0, &pattern(0, 100)[..]));
    packet.cow_head(500).unwrap();
    assert_eq!((packet.headroom(), packet.data()), (500, &pattern(0, 100)[..]));
}

// ---- Merging ------------------------------------------------------------------------------------

#[test]
fn a_head_in_a_buffer_becomes_a_fragment() {
    let (pool, cache) = (pool(), cache());
    let (mut one, two) = (received(&pool, &cache, 1500, 1), received(&pool, &cache, 1400, 2));
    let (both, sizes) = ([contents(&one), contents(&two)].concat(), (one.truesize(), two.truesize()));
    let block = SkBuff::with_capacity(&cache, 0, 0).unwrap().truesize();
    let merged = one.try_coalesce(two).unwrap();
    assert_eq!((merged.stolen_head, merged.truesize), (true, sizes.1 - block));
    assert_eq!((contents(&one), one.nr_frags(), one.truesize()), (both, 4, sizes.0 + merged.truesize));
    assert_eq!(pool.inflight().out, 5);
    drop(one);
    assert_eq!(pool.inflight().out, 0);
}

#[test]
fn what_fits_the_tailroom_is_copied() {
    let (pool, cache) = (pool(), cache());
    let (mut one, two) = (received(&pool, &cache, 100, 0), received(&pool, &cache, 200, 3));
    let (both, before) = ([contents(&one), contents(&two)].concat(), one.truesize());
    let merged = one.try_coalesce(two).unwrap();
    assert_eq!((merged.stolen_head, merged.truesize, one.truesize()), (false, 0, before));
    assert_eq!((contents(&one), one.nr_frags(), pool.inflight().out), (both, 0, 1));
}

#[test]
fn what_may_not_be_merged_comes_back_whole() {
    let (pool, cache) = (pool(), cache());
    let data = pattern(5, 400);
    let refuses = |one: &mut SkBuff, two: SkBuff, why: &str| {
        let (before, other) = (contents(one), contents(&two));
        let two = one.try_coalesce(two).expect_err(why);
        assert_eq!((contents(one), contents(&two)), (before, other), "{why}");
    };
    let mut one = received(&pool, &cache, 1500, 1);
    let clone = one.clone();
    refuses(&mut one, received(&pool, &cache, 10, 0), "the target is cloned");
    drop(clone);
    refuses(&mut one, SkBuff::from_bytes(&cache, 0, &data).unwrap(), "the marks differ");
    let mut marked = SkBuff::from_bytes(&cache, 0, &data).unwrap();
    marked.add_frag(pool.alloc_page().unwrap(), 0, 1).unwrap();
    marked.trim(data.len()).unwrap();
    refuses(&mut one, marked, "the other's head lies in ordinary memory");
    let source = received(&pool, &cache, 1400, 0);
    let clone = source.clone();
    refuses(&mut one, source, "a clone shares the other's head");
    drop(clone);
    refuses(&mut one, received(&pool, &cache, 1500, 16), "18 fragments");
    let mut ordinary = SkBuff::from_bytes(&cache, 0, &data).unwrap();
    refuses(&mut ordinary, received(&pool, &cache, 10, 0), "the marks differ, though it would be copied");
    one.try_coalesce(received(&pool, &cache, 1500, 15)).expect("17 fragments");
    drop(one);
    assert_eq!(pool.inflight().out, 0);
}

#[test]
fn packets_of_ordinary_memory_are_merged() {
    let cache = cache();
    let fragment = |seed| {
        let mut packet = SkBuff::with_capacity(&cache, 64, 0).unwrap();
        packet.add_frag(Arc::<[u8]>::from(pattern(seed, 1000)), 100, 900).unwrap();
        packet
    };
    let mut one = fragment(1);
    let two = fragment(2);
    let clone = two.clone();
    assert_eq!(one.try_coalesce(two).unwrap().truesize, 1000);
    assert_eq!(contents(&one), [&pattern(1, 1000)[100..], &pattern(2, 1000)[100..]].concat());
    drop(one);
    assert_eq!(contents(&clone), pattern(2, 1000)[100..]);
}

#[test]
fn a_merged_clone_is_merged_and_split_again() {
    let (pool, cache) = (pool(), cache());
    let source = received(&pool, &cache, 1000, 4);
    let whole = contents(&source);
    let mut headless = source.clone();
    headless.pull(1000).unwrap();
    let clone = headless.clone();
    let mut target = received(&pool, &cache, 1500, 1);
    let first = contents(&target);
    target.try_coalesce(clone).unwrap();
    let rest = target.split(3000 + 1500).unwrap();
    drop((source, headless));
    scribble_a_little(&pool);
    assert_eq!(contents(&rest), whole[2500..]);
    assert_eq!(contents(&target), [&first, &whole[1000..2500]].concat());
    let again = target.try_coalesce(rest).unwrap();
    assert!(!again.stolen_head && again.truesize == 3 * 4096, "{again:?}");
    drop_elsewhere(target);
    assert_eq!(pool.inflight().out, 0);
}

#[test]
fn offsets_do_not_wrap_in_the_largest_packets() {
    let cache = cache();
    let memory: Arc<[u8]> = vec![0; 128 << 20].into();
    let mut packet = SkBuff::with_capacity(&cache, i32::MAX as usize, 0).unwrap();
    for _ in 0..MAX_FRAGS {
        packet.add_frag(memory.clone(), 0, memory.len()).unwrap();
    }
    let len = MAX_FRAGS * memory.len();
    let rest = packet.split(len - 1).unwrap();
    assert_eq!((packet.len(), packet.head_len(), rest.len()), (len - 1, 0, 1));
    packet.trim(len - 2).unwrap();
    assert_eq!((packet.len(), packet.head_len(), packet.tailroom()), (len - 2, 0, 0));
}

// ---- Memory that the CPU cannot read ------------------------------------------------------------

#[test]
fn unreadable_memory_is_carried_and_never_read() {
    let memory = DeviceMemory::new("hbm0", 1 << 20, NodeId(0)).unwrap();
    let iommu = CheckingIommu::new("nic0");
    let domains: Vec<Arc<dyn DmaDomain>> = vec![iommu.clone()];
    let device = Pool::new(PoolParams { domains, ..Default::default() }, memory.clone()).unwrap().bind();
    let (pool, cache) = (pool(), cache());
    let mut packet = received(&pool, &cache, 60, 0);
    packet.add_frag(device.alloc_page().unwrap(), 64, 1000).unwrap();
    packet.add_frag(device.alloc_page().unwrap(), 0, 1000).unwrap();
    assert!(!packet.readable() && packet.chunks().is_none());
    assert_eq!(packet.make_linear(packet.len()), Err(SkbError::Unreadable));
    assert_eq!(packet.copy().err(), Some(SkbError::Unreadable));
    assert_eq!(packet.copy_bits(0, &mut [0]), Err(SkbError::Unreadable));
    packet.data_mut().unwrap()[0] = 1;
    let source = received(&pool, &cache, 10, 0);
    let source = packet.try_coalesce(source).expect_err("one is readable, the other is not");
    let mut rest = packet.split(60 + 500).unwrap();
    rest.pull(600).unwrap();
    let address = rest.frags()[0].dma_addr_in(iommu.id()).unwrap();
    assert_eq!((rest.len(), rest.nr_frags(), rest.frags()[0].offset()), (900, 1, 100));
    iommu.sync_for_device(address, 900);
    iommu.device_write(address, &[1; 900]).unwrap();

    // A frame of device memory has an empty head.
    let frame = XdpFrame::from(XdpBuff::new(device.alloc_page().unwrap(), 64, 500).unwrap());
    let mut other = SkBuff::from_frame(&cache, frame).unwrap();
    assert_eq!((other.head_len(), other.data_len(), other.nr_frags()), (0, 500, 1));
    other.push(14).unwrap().fill(0);
    drop(rest.try_coalesce(other).expect_err("its head has data in ordinary memory"));
    drop((packet, source, rest));
    assert_eq!((pool.inflight().out, device.inflight().out), (0, 0));
}

#[test]
fn an_unreadable_head_needs_a_fragment_slot_of_its_own() {
    let memory = DeviceMemory::new("hbm0", 1 << 20, NodeId(0)).unwrap();
    let (device, cache) = (Pool::new(PoolParams::default(), memory).unwrap().bind(), cache());
    let mut packet = XdpBuff::new(device.alloc_page().unwrap(), 0, 100).unwrap();
    for _ in 0..MAX_FRAGS {
        packet.add_frag(device.alloc_page().unwrap(), 0, 100).unwrap();
    }
    let mut packet = SkBuff::from_buff(&cache, packet).expect_err("18 fragments");
    drop(packet.pop_frag());
    let packet = SkBuff::from_buff(&cache, packet).unwrap();
    assert_eq!((packet.len(), packet.nr_frags()), (1700, 17));
    assert_eq!(device.inflight().out, 17);
    drop(packet);
    assert_eq!(device.inflight().out, 0);
}

// ---- The cache ----------------------------------------------------------------------------------

#[test]
fn an_exhausted_cache_loses_nothing() {
    let (pool, cache) = (pool(), SkbCache::new(2).unwrap());
    let mut one = received(&pool, &cache, 100, 1);
    let mut clone = one.clone();
    let two = SkBuff::from_bytes(&cache, 0, b"two").unwrap();
    let whole = contents(&one);
    let frame = XdpFrame::from(XdpBuff::received(pool.alloc_page().unwrap(), 77).unwrap());
    let frame = SkBuff::from_frame(&cache, frame).expect_err("both blocks are taken");
    let packet = SkBuff::from_buff(&cache, frame.into_buff()).expect_err("still");
    assert_eq!((clone.pull(101), clone.trim(101)), (Err(SkbError::Exhausted), Err(SkbError::Exhausted)));
    assert_eq!(
        (clone.unclone(), clone.make_linear(clone.len())),
        (Err(SkbError::Exhausted), Err(SkbError::Exhausted))
    );
    assert_eq!(
        (one.split(1).err(), one.copy().err()),
        (Some(SkbError::Exhausted), Some(SkbError::Exhausted))
    );
    assert_eq!((contents(&one), contents(&clone)), (whole.clone(), whole));
    drop(two);
    let packet = SkBuff::from_buff(&cache, packet).unwrap();
    assert_eq!(packet.len(), 77);
    drop((one, clone, packet));
    assert_eq!(pool.inflight().out, 0);
    assert!(SkbCache::new(0).is_err() && SkbCache::new(1 << 25).is_err());
}

#[test]
fn packets_outlive_their_cache_and_their_pool() {
    for elsewhere in [false, true] {
        let (pool, cache) = (pool(), cache());
        let mut packet = received(&pool, &cache, 100, 2);
        let whole = contents(&packet);
        let second = cache.clone();
        drop(cache);
        let split = packet.split(250).unwrap();
        drop(second);
        assert_eq!(packet.split(1).err(), Some(SkbError::Exhausted), "no handle is left");
        let shutdown = pool.destroy();
        let clone = packet.clone();
        drop(packet);
        assert_eq!([contents(&clone), contents(&split)].concat(), whole);
        if elsewhere {
            drop_elsewhere((clone, split))
        } else {
            drop((clone, split))
        }
        assert!(shutdown.is_complete(), "{}", shutdown.report());
    }
}

#[test]
fn slices_point_at_the_bytes_themselves() {
    let (pool, cache) = (pool(), cache());
    let packet = mixed(&pool, &cache);
    let chunks: Vec<_> = packet.chunks().unwrap().collect();
    assert_eq!(chunks.len(), 4);
    assert_eq!(chunks[0].as_ptr(), packet.data().as_ptr());
    assert_eq!(chunks[2].as_ptr(), packet.frags()[1].data().as_ptr());
    assert_eq!(chunks.concat(), contents(&packet));
    let mut middle = [0; 150];
    packet.copy_bits(75, &mut middle).unwrap();
    assert_eq!(middle, contents(&packet)[75..225]);
    assert_eq!(packet.copy_bits(251, &mut middle), Err(SkbError::TooShort));
    let copy = packet.copy().unwrap();
    assert_eq!(
        (copy.data(), copy.recycles(), copy.headroom()),
        (&contents(&packet)[..], false, packet.headroom())
    );
}
