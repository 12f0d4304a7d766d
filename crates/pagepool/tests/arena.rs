//! The arena: backings, sizes, orders, nodes, growth, giving back, and what it says about itself.
#![allow(clippy::unwrap_used)]
// UNSAFETY: tests touch the memory behind pages, as a holder of the page may.
#![expect(unsafe_code)]

use std::collections::HashSet;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, mpsc};
use std::{env, fs, thread};

use pagepool::{
    Arena, ArenaParams, Backing, DmaDomain, Error, MAX_ORDER, NodeId, NodePolicy, OffsetDomain,
    OnMissingHuge, PAGE_SIZE, PageIdx, Pool, PoolParams, Provider, Topology,
};

const MIB: u64 = 1 << 20;

/// Gives pages back that the test reserved with this order, once.
fn release(provider: &dyn Provider, order: u8, pages: &[PageIdx]) {
    // SAFETY: I1. The test reserved them, has not released them since, and does not touch their memory any
    // more.
    unsafe { provider.release(order, pages) };
}

fn params(max_bytes: u64) -> ArenaParams {
    ArenaParams { max_bytes, ..Default::default() }
}

fn arena(max_bytes: u64) -> Arc<Arena> {
    Arena::new(params(max_bytes)).unwrap()
}

fn reserve(arena: &Arena, order: u8, node: Option<NodeId>, n: usize) -> Vec<PageIdx> {
    let mut out = vec![PageIdx(0); n];
    let got = arena.reserve(order, node, &mut out);
    out.truncate(got);
    out
}

/// Writes a byte of a page that this test holds.
fn poke(arena: &Arena, offset: u64, value: u8) {
    let at = (arena.area().base().unwrap() + offset as usize) as *mut u8;
    // SAFETY: I1. The test holds the page, or knows its region to be committed and unused.
    unsafe { at.write_volatile(value) };
}

/// Reads a byte of a page that this test holds.
fn peek(arena: &Arena, offset: u64) -> u8 {
    let at = (arena.area().base().unwrap() + offset as usize) as *const u8;
    // SAFETY: as above.
    unsafe { at.read_volatile() }
}

/// Writes a byte into every base page of a page and reads it back.
fn touch(arena: &Arena, page: PageIdx, order: u8) {
    for at in (0..1u64 << order).map(|i| arena.area().offset_of(page) + i * PAGE_SIZE as u64) {
        poke(arena, at, page.0 as u8);
        assert_eq!(peek(arena, at), page.0 as u8);
    }
}

fn use_all(arena: &Arena, max_bytes: u64) {
    let pages = reserve(arena, 0, None, (max_bytes as usize / PAGE_SIZE) + 1);
    assert_eq!(pages.len(), max_bytes as usize / PAGE_SIZE, "{}", arena.describe());
    pages.iter().for_each(|&page| touch(arena, page, 0));
    release(arena, 0, &pages);
}

#[test]
fn plain_backings_give_all_their_pages() {
    for backing in [Backing::Anonymous4k, Backing::TransparentHuge, Backing::Memfd { huge: false }] {
        for (prefault, commit_all) in [(false, false), (true, false), (false, true)] {
            let arena = Arena::new(ArenaParams { backing, prefault, commit_all, ..params(9 * MIB) }).unwrap();
            let committed = arena.description().committed_bytes;
            assert_eq!(committed, if commit_all { 9 * MIB } else { 4 * MIB });
            use_all(&arena, 9 * MIB);
            assert_eq!(arena.description().committed_bytes, 9 * MIB);
        }
    }
}

/// Sets the number of 2 MiB pages and puts it back; `None` where that is not allowed or brings none.
struct HugePages {
    before: String,
}
const NR_HUGE: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

/// Huge pages are the whole machine's: who counts them waits for the tests of all processes that take some,
/// and these for it. Nothing where the kernel has none.
fn huge_pages_alone() -> Option<fs::File> {
    let file = fs::File::open(NR_HUGE).ok()?;
    // SAFETY: the call takes the descriptor of a file that is open.
    assert_eq!(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) }, 0);
    Some(file)
}

impl HugePages {
    fn set(n: u64) -> Option<Self> {
        let before = fs::read_to_string(NR_HUGE).ok()?;
        fs::write(NR_HUGE, n.to_string()).ok()?;
        let this = Self { before };
        let now: u64 = fs::read_to_string(NR_HUGE).ok()?.trim().parse().ok()?;
        (now == n).then_some(this)
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        let _ = fs::write(NR_HUGE, self.before.trim());
    }
}

#[test]
fn huge_pages_are_used_and_missing_ones_are_visible() {
    let _alone = huge_pages_alone();
    let Some(_four) = HugePages::set(4) else {
        println!("SKIP: cannot set {NR_HUGE} to 4");
        return;
    };
    for backing in [Backing::Huge2M, Backing::Memfd { huge: true }] {
        let arena = Arena::new(ArenaParams { backing, ..params(8 * MIB) }).unwrap();
        use_all(&arena, 8 * MIB);
        let said = arena.description();
        assert_eq!((said.got, said.why), (backing, None));
    }
    // Ten MiB need five pages: the third region of the arena falls back.
    let arena = Arena::new(ArenaParams { backing: Backing::Huge2M, ..params(10 * MIB) }).unwrap();
    use_all(&arena, 10 * MIB);
    let said = arena.description();
    assert_eq!((said.asked, said.got), (Backing::Huge2M, Backing::TransparentHuge));
    assert!(said.to_string().contains("requires 1 pages of 2 MiB, but 0 of 4 are free"), "{said}");
    drop(arena);
    // The same without fallback: growth comes short and says why.
    let how =
        ArenaParams { backing: Backing::Huge2M, on_missing_huge: OnMissingHuge::Fail, ..params(10 * MIB) };
    let arena = Arena::new(how).unwrap();
    assert_eq!(reserve(&arena, 0, None, 9000).len(), 2048);
    let error = arena.last_growth_error().unwrap();
    assert!(matches!(&*error, Error::System { call: "mmap(MAP_HUGETLB)", .. }), "{error}");
    assert!(error.to_string().contains("echo 5 >"), "{error}");
}

#[test]
fn without_huge_pages_fallback_is_reported_and_fail_fails() {
    let _alone = huge_pages_alone();
    for (backing, got, size) in [
        (Backing::Huge2M, Backing::TransparentHuge, 4 * MIB),
        (Backing::Memfd { huge: true }, Backing::Memfd { huge: false }, 4 * MIB),
        (Backing::Huge1G, Backing::TransparentHuge, 1024 * MIB),
    ] {
        let fails = ArenaParams { backing, on_missing_huge: OnMissingHuge::Fail, ..params(size) };
        match Arena::new(fails) {
            Err(error) => assert!(error.to_string().contains("Fallback"), "{error}"),
            Ok(_) => {
                println!("SKIP: this machine has free huge pages for {backing}");
                continue;
            }
        }
        let arena = Arena::new(ArenaParams { backing, ..params(size) }).unwrap();
        let said = arena.description();
        assert_eq!(said.asked, backing);
        if got != said.got {
            assert_eq!(said.got, Backing::Anonymous4k, "transparent huge pages may be off");
        }
        assert!(said.why.is_some() && arena.describe().contains("; requested "), "{said}");
        let page = reserve(&arena, 0, None, 1);
        touch(&arena, page[0], 0);
        release(&*arena, 0, &page);
    }
}

#[test]
fn memfd_offsets_are_area_offsets() {
    use std::io::Read;
    let arena =
        Arena::new(ArenaParams { backing: Backing::Memfd { huge: false }, ..params(8 * MIB) }).unwrap();
    let pages = reserve(&arena, 0, None, 3);
    touch(&arena, pages[2], 0);
    let file = fs::File::from(arena.memfd().unwrap().try_clone_to_owned().unwrap());
    let mut bytes = vec![0; arena.area().offset_of(pages[2]) as usize + 1];
    (&file).read_exact(&mut bytes).unwrap();
    assert_eq!(*bytes.last().unwrap(), pages[2].0 as u8);
    assert_eq!(arena_without_file().memfd().map(|_| ()), None);
}

fn arena_without_file() -> Arc<Arena> {
    arena(MIB)
}

#[repr(align(4096))]
struct CallerPages([u8; 64 * PAGE_SIZE]);

#[test]
fn callers_memory_is_used_in_place_and_left_as_it_is() {
    let mut memory = Box::new(CallerPages([0; 64 * PAGE_SIZE]));
    let (start, len) = (memory.0.as_mut_ptr(), memory.0.len());
    let over = |ptr, len| {
        // SAFETY: the box lives until the end of the test and is not looked at while the arena lives; what is
        // not its memory is refused by alignment.
        unsafe { Arena::over_caller_memory(ptr, len, ArenaParams::default()) }
    };
    let arena = over(start, len).unwrap();
    assert_eq!(arena.area().base(), Some(start as usize));
    assert!(arena.describe().contains("caller's memory"));
    use_all(&arena, len as u64);
    assert_eq!(arena.trim(), 0);
    drop(arena);
    let error = |ptr, len| over(ptr, len).unwrap_err().to_string();
    assert!(error(start.wrapping_add(8), PAGE_SIZE).contains("addr is 0x"));
    assert!(error(std::ptr::null_mut(), PAGE_SIZE).contains("a multiple of 4096, and not 0"));
    assert_eq!(error(start, 5000), "len_bytes is 5000, but must be a multiple of 4096, and not 0");
    assert_eq!(memory.0[PAGE_SIZE], 1, "page 1 holds what was written");
}

#[test]
fn the_owner_of_memory_lives_until_the_last_buffer_returns() {
    struct MemoryOwner(Box<CallerPages>, mpsc::Sender<u8>);
    impl Drop for MemoryOwner {
        fn drop(&mut self) {
            self.1.send(self.0.0[0]).unwrap();
        }
    }
    let (gone, is_gone) = mpsc::channel();
    let mut owner = MemoryOwner(Box::new(CallerPages([0; 64 * PAGE_SIZE])), gone);
    let (start, len) = (owner.0.0.as_mut_ptr(), owner.0.0.len());
    // SAFETY: the box moves into the arena, and its contents with nobody; nobody looks at them before the
    // owner ends.
    let arena = unsafe { Arena::over_owned_memory(owner, start, len, ArenaParams::default()) }.unwrap();
    let pool = Pool::new(PoolParams { refill: 64, ..Default::default() }, arena).unwrap().bind();
    let mut buffers: Vec<_> = (0..64).map(|_| pool.alloc_page().unwrap()).collect();
    buffers.iter_mut().for_each(|buffer| buffer.bytes_mut().unwrap().fill(9));
    drop(pool);
    let last = buffers.pop().unwrap();
    drop(buffers);
    assert!(is_gone.try_recv().is_err(), "a buffer is out");
    std::thread::spawn(move || drop(last)).join().unwrap();
    assert_eq!(is_gone.try_recv(), Ok(9), "the memory was there to the end");
}

#[test]
fn an_owner_of_refused_memory_is_dropped() {
    let owner = Arc::new(());
    // SAFETY: it is refused, and nothing is accessed.
    let refused = unsafe {
        Arena::over_owned_memory(owner.clone(), std::ptr::null_mut(), PAGE_SIZE, ArenaParams::default())
    };
    assert!(refused.unwrap_err().to_string().contains("a multiple of 4096, and not 0"));
    assert_eq!(Arc::strong_count(&owner), 1);
}

#[test]
fn bad_parameters_name_field_value_and_range() {
    let bad = |p: ArenaParams| Arena::new(p).unwrap_err();
    let two = Topology::pretend_halves(2);
    let cases = [
        (params(0), "max_bytes is 0, but must be a multiple of 4 KiB and not 0, for transparent huge pages"),
        (params(4097), "max_bytes is 4097, but must be a multiple of 4 KiB"),
        (
            ArenaParams { backing: Backing::Huge2M, ..params(MIB) },
            "max_bytes is 1048576, but must be a multiple of 2 MiB and not 0, for 2 MiB pages",
        ),
        (
            ArenaParams { backing: Backing::Huge1G, ..params(2 * MIB) },
            "max_bytes is 2097152, but must be a multiple of 1 GiB",
        ),
        (
            params(1 << 42),
            "max_bytes is 4398046511104, but must be a multiple of 4096 from 4096 to 4398046507008",
        ),
        (ArenaParams { name: String::new(), ..params(MIB) }, "name is \"\", but must be 1 to 200 bytes"),
        (ArenaParams { name: "a\0b".into(), ..params(MIB) }, "without a zero byte"),
        (
            ArenaParams { backing: Backing::Caller, ..params(MIB) },
            "backing is Caller, but must be another backing",
        ),
        (
            ArenaParams { node: NodePolicy::Bind(NodeId(7)), topology: two, ..params(MIB) },
            "node is 7, but must be one of the nodes 0, 1",
        ),
    ];
    for (p, text) in cases {
        let error = bad(p.clone());
        assert!(error.to_string().contains(text), "{error}\n{text}");
        assert_eq!(error.errno(), 22, "{p:?}");
    }
}

#[test]
fn every_order_is_aligned_and_lies_apart() {
    let arena = arena(64 * MIB);
    let base = arena.area().base().unwrap();
    assert_eq!(base % (4 << 20), 0);
    let mut out = Vec::new();
    for order in (0..=MAX_ORDER).chain((0..=MAX_ORDER).rev()) {
        for page in reserve(&arena, order, None, 3) {
            assert_eq!((base + arena.area().offset_of(page) as usize) % (PAGE_SIZE << order), 0);
            out.push((page.0, page.0 + (1 << order), order));
        }
    }
    out.sort_unstable();
    assert!(out.windows(2).all(|w| w[0].1 <= w[1].0), "no two pages overlap");
    let pages: u64 = out.iter().map(|p| 1u64 << p.2).sum();
    assert_eq!(arena.pages_out(), pages);
    out.iter().for_each(|&(page, _, order)| release(&*arena, order, &[PageIdx(page)]));
    assert_eq!((arena.pages_out(), arena.available(0)), (0, 64 * 256));
}

#[test]
fn tiny_arenas_serve_several_orders() {
    for pages in [1u64, 2, 3, 17, 64] {
        let arena = arena(pages * 4096);
        for order in [0, 1, 0, 3, 2, 6, 0] {
            let got = reserve(&arena, order, None, 1000);
            assert_eq!(got.len() as u64, expected(pages, order), "{pages} pages, order {order}");
            got.iter().for_each(|&page| touch(&arena, page, order));
            assert_eq!(arena.available(order), 0);
            release(&*arena, order, &got);
            assert_eq!(arena.available(order) as u64, expected(pages, order));
        }
    }
    fn expected(pages: u64, order: u8) -> u64 {
        pages >> order
    }
}

#[test]
fn exhaustion_brings_what_there_is_and_is_no_error() {
    let arena = arena(5 * MIB);
    let first = reserve(&arena, 10, None, 4);
    assert_eq!(first.len(), 1, "the last region holds no page of order 10");
    let rest = reserve(&arena, 0, None, 10_000);
    assert_eq!(rest.len(), 256);
    assert!(reserve(&arena, 0, None, 1).is_empty());
    assert!(arena.last_growth_error().is_none());
    assert_eq!(arena.available(0), 0);
    release(&*arena, 0, &rest[..1]);
    assert_eq!(reserve(&arena, 0, None, 5), rest[..1]);
}

#[test]
fn idle_pages_are_merged_before_the_arena_grows() {
    let arena = arena(12 * MIB);
    let all = reserve(&arena, 0, None, 1024); // the first region
    let apart: Vec<_> = all.iter().copied().filter(|page| page.0 % 2 == 0).take(64).collect();
    release(&*arena, 0, &apart);
    assert_eq!(
        reserve(&arena, 3, None, 128).len(),
        128,
        "the second region: no two idle pages are neighbours"
    );
    assert_eq!(arena.description().committed_bytes, 8 * MIB);
    // All 64 lie ready for the next request of one page, then 8 of them are others, which are a block.
    release(&*arena, 0, &reserve(&arena, 0, None, 64));
    reserve(&arena, 0, None, 8);
    release(&*arena, 0, &(512..520).map(PageIdx).collect::<Vec<_>>());
    assert_eq!(reserve(&arena, 3, None, 1), [PageIdx(512)]);
    assert_eq!(arena.description().committed_bytes, 8 * MIB);
}

/// An arena without 32 KiB together, whose idle pages lie ready as single ones; then, as many, with 32 KiB.
fn idle_pages_apart_then_a_block(ask: impl Fn(&Arc<Arena>) -> bool) -> Arc<Arena> {
    let arena = arena(4 * MIB);
    let all = reserve(&arena, 0, None, 1024);
    release(&*arena, 0, &all.iter().copied().filter(|page| page.0 % 2 == 0).take(64).collect::<Vec<_>>());
    assert!(!ask(&arena), "no two idle pages are neighbours");
    release(&*arena, 0, &reserve(&arena, 0, None, 64));
    reserve(&arena, 0, None, 8);
    release(&*arena, 0, &(512..520).map(PageIdx).collect::<Vec<_>>());
    arena
}

#[test]
fn the_last_look_before_a_sleep_finds_what_a_reserve_may_miss() {
    let ask = |arena: &Arc<Arena>| !reserve(arena, 3, None, 1).is_empty();
    let arena = idle_pages_apart_then_a_block(ask);
    assert!(!ask(&arena), "merging 64 pages is not paid for yet");
    let order = 3;
    let asks = Pool::new(PoolParams { order, ..Default::default() }, arena.clone()).unwrap().bind();
    assert!(asks.alloc_page().is_none(), "nor is it now");
    let sleeps = PoolParams { order, wakeup: true, ..Default::default() };
    let sleeps = Pool::new(sleeps, arena).unwrap().bind();
    assert_eq!(sleeps.alloc_page().unwrap().page(), PageIdx(512));
}

#[test]
fn a_block_is_missed_at_most_as_often_as_pages_are_idle() {
    let ask = |arena: &Arc<Arena>| !reserve(arena, 3, None, 1).is_empty();
    let arena = idle_pages_apart_then_a_block(ask);
    let missed = (0..1000).take_while(|_| !ask(&arena)).count();
    assert!((1..64).contains(&missed), "{missed} of 64");
}

#[test]
fn trim_gives_back_idle_regions_and_they_come_back_clean() {
    let arena = arena(16 * MIB);
    let pages = reserve(&arena, 0, None, 4096);
    assert_eq!((pages.len(), arena.description().committed_bytes), (4096, 16 * MIB));
    let keep = pages.iter().position(|p| p.0 >= 1024).unwrap();
    pages.iter().for_each(|&page| touch(&arena, page, 0));
    release(&*arena, 0, &pages[..keep]);
    release(&*arena, 0, &pages[keep + 1..]);
    assert_eq!(arena.trim(), 12 * MIB, "one region has a page out");
    assert_eq!((arena.description().committed_bytes, arena.pages_out()), (4 * MIB, 1));
    assert_eq!(arena.available(0), 4095);
    let again = reserve(&arena, 0, None, 5000);
    assert_eq!(again.len(), 4095);
    let other = again.iter().find(|p| p.0 / 1024 != pages[keep].0 / 1024).unwrap();
    assert_eq!(peek(&arena, arena.area().offset_of(*other)), 0, "fresh memory");
    release(&*arena, 0, &again);
    release(&*arena, 0, &pages[keep..=keep]);
    assert_eq!(arena.trim(), 16 * MIB);
    assert_eq!(arena.trim(), 0);
    let fixed = Arena::new(ArenaParams { commit_all: true, ..params(8 * MIB) }).unwrap();
    assert_eq!(fixed.trim(), 0, "an arena that was committed whole stays whole");
}

#[test]
fn two_pretended_nodes_have_separate_pages() {
    let topology = Topology::pretend_halves(2);
    let arena = Arena::new(ArenaParams { topology, ..params(8 * MIB) }).unwrap();
    let near = reserve(&arena, 0, Some(NodeId(1)), 64);
    assert_eq!(near.len(), 64, "the second region is committed for them");
    assert!(near.iter().all(|&p| arena.area().node_of(p) == NodeId(1) && p.0 >= 1024));
    let all = reserve(&arena, 3, Some(NodeId(1)), 200);
    assert_eq!(all.len(), (1024 - 64) / 8);
    let off_node = reserve(&arena, 0, Some(NodeId(1)), 64);
    assert_eq!(off_node.len(), 64, "no page there: those of the other node");
    assert!(off_node.iter().all(|&p| arena.area().node_of(p) == NodeId(0)));
    let any = reserve(&arena, 0, None, 2000);
    assert_eq!(any.len(), 960);
    let mixed: Vec<_> = near.iter().chain(&any).chain(&off_node).copied().collect();
    release(&*arena, 0, &mixed);
    release(&*arena, 3, &all);
    assert_eq!(arena.pages_out(), 0);
    assert_eq!(reserve(&arena, 0, Some(NodeId(0)), 2000).len(), 1024);
}

#[test]
fn interleaved_and_bound_nodes() {
    let topology = Topology::pretend(2, |page| NodeId((page.0 % 2) as u8));
    let arena = Arena::new(ArenaParams { topology: topology.clone(), ..params(64 * 4096) }).unwrap();
    let odd = reserve(&arena, 0, Some(NodeId(1)), 64);
    assert_eq!(odd.len(), 32);
    assert!(odd.iter().all(|p| p.0 % 2 == 1));
    let bound = ArenaParams { topology, node: NodePolicy::Bind(NodeId(1)), ..params(64 * 4096) };
    let arena = Arena::new(bound).unwrap();
    assert_eq!(reserve(&arena, 0, Some(NodeId(1)), 64).len(), 64);
    assert!(arena.describe().contains("bound to node 1"), "{}", arena.describe());
}

#[test]
fn the_current_node_is_the_topologys() {
    let here = Arc::new(AtomicU8::new(0));
    let topology = Topology::pretend_halves(2).with_current_node(here.clone());
    let arena = Arena::new(ArenaParams { topology, ..params(MIB) }).unwrap();
    assert_eq!(arena.current_node(), NodeId(0));
    here.store(1, Ordering::Relaxed);
    assert_eq!(arena.current_node(), NodeId(1));
}

#[test]
fn a_kernel_without_numa_calls_serves_any_node_and_says_so() {
    let how = ArenaParams {
        topology: Topology::without_numa_calls(),
        node: NodePolicy::Bind(NodeId(3)),
        ..params(MIB)
    };
    let arena = Arena::new(how).unwrap();
    assert_eq!(reserve(&arena, 0, Some(NodeId(3)), 64).len(), 64);
    assert!(arena.describe().contains("nodes are ignored"), "{}", arena.describe());
    assert_eq!(arena.description().ignored.len(), 1);
}

#[test]
fn this_machines_nodes() {
    let topology = Topology::detect();
    for node in topology.nodes() {
        let how = ArenaParams { node: NodePolicy::Bind(node), prefault: true, ..params(8 * MIB) };
        let arena = match Arena::new(how) {
            Ok(arena) => arena,
            Err(error) => {
                println!("SKIP: {node} gives no memory: {error}");
                continue;
            }
        };
        assert_eq!(reserve(&arena, 0, Some(node), 100).len(), 100);
    }
    let local = Arena::new(ArenaParams { node: NodePolicy::Local, ..params(8 * MIB) }).unwrap();
    let here = local.current_node();
    assert_eq!(local.area().node_of(reserve(&local, 0, Some(here), 10)[0]), here);
    if topology.nodes().len() == 1 {
        println!("SKIP: this machine has one node; two are only made up");
    }
}

#[test]
fn locked_memory_is_locked() {
    let arena = Arena::new(ArenaParams { mlock: true, ..params(4 * MIB) });
    match arena {
        Ok(arena) => {
            let status = fs::read_to_string("/proc/self/smaps").unwrap();
            let start = format!("{:x}-", arena.area().base().unwrap());
            let ours = status.split_once(&start).unwrap().1;
            let locked = ours.lines().find(|l| l.starts_with("Locked:")).unwrap();
            assert!(!locked.contains(" 0 kB"), "{locked}");
        }
        Err(error) => println!("SKIP: {error}"),
    }
}

fn flags_of(base: usize) -> String {
    let maps = fs::read_to_string("/proc/self/smaps").unwrap();
    let ours = maps.split_once(&format!("{base:x}-")).unwrap().1;
    ours.lines().find(|l| l.starts_with("VmFlags:")).unwrap().to_string()
}

#[test]
fn children_inherit_memory_only_if_configured() {
    for backing in [Backing::Anonymous4k, Backing::Memfd { huge: false }] {
        for inherit_on_fork in [false, true] {
            let arena = Arena::new(ArenaParams { backing, inherit_on_fork, ..params(4 * MIB) }).unwrap();
            let flags = flags_of(arena.area().base().unwrap());
            assert_eq!(flags.contains(" dc"), !inherit_on_fork, "{flags}");
        }
    }
}

#[test]
fn threads_share_it_without_giving_a_page_twice() {
    let arena = arena(16 * MIB);
    let out: Vec<AtomicBool> = (0..4096).map(|_| AtomicBool::new(false)).collect();
    let deadline = std::time::Instant::now() + std::time::Duration::from_millis(600);
    std::thread::scope(|s| {
        for t in 0..4u32 {
            let (arena, out) = (&arena, &out);
            let release = move |(order, pages): (u8, Vec<PageIdx>)| {
                for base in pages.iter().flat_map(|p| p.0..p.0 + (1 << order)) {
                    out[base as usize].store(false, Ordering::Release);
                }
                release(&**arena, order, &pages);
            };
            s.spawn(move || {
                let mut seed = t * 77 + 1;
                let mut held: Vec<(u8, Vec<PageIdx>)> = Vec::new();
                while std::time::Instant::now() < deadline {
                    seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    let order = [0, 0, 0, 1, 3, 9][(seed >> 16) as usize % 6];
                    let pages = reserve(arena, order, None, 1 + (seed >> 20) as usize % 80);
                    for base in pages.iter().flat_map(|p| p.0..p.0 + (1 << order)) {
                        assert!(!out[base as usize].swap(true, Ordering::AcqRel), "given twice: {base}");
                    }
                    held.push((order, pages));
                    if held.len() > 5 || seed.is_multiple_of(3) {
                        release(held.swap_remove((seed >> 8) as usize % held.len()));
                    }
                    if t == 0 && seed.is_multiple_of(64) {
                        arena.trim();
                    }
                }
                held.into_iter().for_each(release);
            });
        }
    });
    assert_eq!(arena.pages_out(), 0);
    let all: HashSet<_> = reserve(&arena, 0, None, 5000).into_iter().collect();
    assert_eq!(all.len(), 4096);
}

#[test]
fn it_describes_itself_in_one_line() {
    let how = ArenaParams { name: "rx".into(), backing: Backing::Anonymous4k, ..params(16 * MIB) };
    let arena = Arena::new(how).unwrap();
    assert_eq!(arena.describe(), "rx: 4 MiB of 16 MiB committed, 4 KiB pages, any node");
}

#[test]
fn a_peer_cannot_take_the_end_of_a_memfd_away() {
    let backing = Backing::Memfd { huge: false };
    let arena = Arena::new(ArenaParams { backing, ..params(8 * MIB) }).unwrap();
    let peer = fs::File::from(arena.memfd().unwrap().try_clone_to_owned().unwrap());
    assert!(peer.set_len(4096).is_err(), "shrinking would make our accesses fault");
    assert!(peer.set_len(16 * MIB).is_err());
    assert_eq!(peer.metadata().unwrap().len(), 8 * MIB);
    use_all(&arena, 8 * MIB);
    assert_eq!(arena.trim(), 8 * MIB, "holes may be punched still");
    use_all(&arena, 8 * MIB);
}

#[test]
fn a_memfd_beyond_the_limit_on_file_sizes_is_refused() {
    // In a process of its own: the kernel's answer is to kill it.
    let this = "arena::a_memfd_beyond_the_limit_on_file_sizes_is_refused";
    let alone = "PAGEPOOL_TEST_FILE_LIMIT";
    if env::var_os(alone).is_none() {
        let mut child = Command::new(env::current_exe().unwrap());
        let done = child.args(["--exact", this, "--nocapture"]).env(alone, "").output().unwrap();
        return assert!(done.status.success(), "{done:?}");
    }
    let limit = libc::rlimit { rlim_cur: 4 * MIB, rlim_max: 4 * MIB };
    // SAFETY: the kernel reads one `rlimit`.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
    let memfd = |max_bytes| {
        let backing = Backing::Memfd { huge: false };
        Arena::new(ArenaParams { backing, ..params(max_bytes) })
    };
    assert!(memfd(4 * MIB).is_ok());
    let error = memfd(8 * MIB).unwrap_err().to_string();
    assert!(error.contains("RLIMIT_FSIZE is 4194304, but must be 8388608 bytes or more"), "{error}");
}

#[test]
fn trimming_makes_no_allocation_fail() {
    // Small, so that all of it is committed and most reservations meet a trim; mapped where the area is
    // fixed, and there is nothing to trim.
    for fixed in [false, true] {
        let arena = arena(16 * MIB);
        let domain: Arc<dyn DmaDomain> = Arc::new(OffsetDomain::new("umem"));
        let mapping = fixed.then(|| arena.area().attach(&domain).unwrap());
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    arena.trim();
                }
            });
            for round in 0..20_000 {
                let pages = reserve(&arena, 0, None, 64);
                let enough = !pages.is_empty();
                release(&*arena, 0, &pages);
                if !enough {
                    done.store(true, Ordering::Relaxed);
                }
                assert!(enough, "round {round}, fixed {fixed}: no page, of 16 MiB");
            }
            done.store(true, Ordering::Relaxed);
        });
        mapping.iter().for_each(|mapping| arena.area().detach(mapping));
    }
}
