//! What a pool does with off-node pages, on a made-up machine of two nodes; and on this machine's, if it has
//! two.

// UNSAFETY: calls that pin the thread, and that say where memory is.
#![allow(unsafe_code)]

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use pagepool::{
    Arena, ArenaParams, Bound, DmaDomain, NodeId, NodePolicy, OffsetDomain, PageBuf, Pool, PoolParams,
    Provider, Topology,
};

/// A pool that follows its thread, and the word that moves the thread from node to node.
fn pool() -> (Bound, Arc<Arena>, Arc<AtomicU8>) {
    let here = Arc::new(AtomicU8::new(0));
    let topology = Topology::pretend_halves(2).with_current_node(here.clone());
    let params = ArenaParams { max_bytes: 16 << 20, topology, ..Default::default() };
    let arena = Arena::new(params).expect("16 MiB of address space");
    let pool = Pool::new(PoolParams::default(), arena.clone()).expect("the defaults are valid");
    (pool.bind(), arena, here)
}

fn take(pool: &Bound, n: usize) -> Vec<PageBuf> {
    (0..n).map(|_| pool.alloc_page().expect("the arena has pages of both nodes")).collect()
}

#[test]
fn a_page_of_another_node_ends_the_refill_and_leaves_the_pool() {
    let (pool, _, here) = pool();
    let mut buffers = take(&pool, 64);
    pagepool::put_ring_bulk(&mut buffers);
    here.store(1, Ordering::Relaxed);
    let before = pool.stats();
    let buffer = pool.alloc_page().expect("node 1 has pages");
    let moved = pool.stats().since(&before);
    assert_eq!((moved.alloc_waive, moved.alloc_slow, moved.release, moved.hold), (1, 1, 1, 64));
    assert_eq!(
        (moved.alloc_empty, moved.alloc_refill),
        (0, 0),
        "the ring was not empty, and brought nothing"
    );
    assert_eq!(pool.inflight().ring, 63, "at most one page is let go in an allocation");
    drop(buffer);
}

#[test]
fn the_cache_takes_what_its_owner_drops_whatever_the_node() {
    let (pool, _, here) = pool();
    let buffer = pool.alloc_page().expect("node 0 has pages");
    here.store(1, Ordering::Relaxed);
    let page = buffer.page();
    drop(buffer);
    assert_eq!(pool.alloc_page().map(|buffer| buffer.page()), Some(page), "only a refill looks at nodes");
    assert_eq!(pool.stats().alloc_waive, 0);
}

#[test]
fn a_change_of_node_empties_the_cache_and_the_balance_holds() {
    let (pool, arena, _) = pool();
    drop(take(&pool, 10));
    assert_eq!(pool.inflight().cache, 64);
    pool.update_nid(Some(NodeId(1))).expect("node 1 exists");
    let at = pool.stats();
    assert_eq!((at.hold, at.release, pool.inflight().total), (64, 64, 0));
    assert_eq!(arena.pages_out(), 0);
    drop(pool.alloc_page());
    pool.nid_changed(Some(NodeId(1))).expect("it is that one already");
    assert_eq!(pool.inflight().cache, 64, "no change, no flush");
    let refused = pool.update_nid(Some(NodeId(9))).expect_err("there is no node 9");
    assert!(refused.to_string().starts_with("nid is 9, but must be"), "{refused}");
}

/// As in net/core/page_pool.c, where a bulk of the page allocator falls back to the next node as a whole.
#[test]
fn refills_fall_back_to_the_nearest_node_with_pages() {
    let here = Arc::new(AtomicU8::new(2));
    let topology = Topology::pretend_halves(4).with_current_node(here.clone());
    let params = ArenaParams { max_bytes: 16 << 20, commit_all: true, topology, ..Default::default() };
    let arena = Arena::new(params).expect("16 MiB of address space");
    let pool = Pool::new(PoolParams::default(), arena.clone()).expect("the defaults are valid").bind();
    // 1,024 pages on each of four nodes.
    let buffers = take(&pool, 4096);
    let nodes: Vec<u8> = buffers.iter().map(|buffer| arena.area().node_of(buffer.page()).0).collect();
    for (stretch, node) in nodes.chunks(1024).zip([2, 1, 3, 0]) {
        assert!(stretch.iter().all(|&n| n == node), "node {node} follows");
    }
    let stats = pool.stats();
    assert_eq!((stats.alloc_slow, stats.alloc_empty, stats.alloc_waive), (64, 64, 0), "{stats:?}");
}

#[test]
fn an_area_that_is_fixed_without_a_local_page_waives_none() {
    for (node_of_pages, here) in [(0, 1), (1, 1), (0, 0)] {
        let thread = Arc::new(AtomicU8::new(here));
        let topology = Topology::pretend(2, move |_| NodeId(node_of_pages)).with_current_node(thread);
        let params = ArenaParams { max_bytes: 4 << 20, commit_all: true, topology, ..Default::default() };
        let arena = Arena::new(params).expect("4 MiB of address space");
        // Addresses are offsets in the area, as in a UMEM, so it cannot grow.
        let domains: Vec<Arc<dyn DmaDomain>> = vec![Arc::new(OffsetDomain::new("umem"))];
        let params = PoolParams { domains, ..Default::default() };
        let pool = Pool::new(params, arena).expect("the defaults are valid").bind();
        let mut buffers = take(&pool, 128);
        for _ in 0..10 {
            pagepool::put_ring_bulk(&mut buffers);
            buffers = take(&pool, 128);
        }
        let stats = pool.stats();
        assert_eq!((stats.alloc_waive, stats.release), (0, 0), "{node_of_pages} {here}: {stats:?}");
        assert!(stats.alloc_refill >= 10, "{stats:?}");
    }
}

/// Has the calling thread run on the first CPU of a node alone.
fn run_on(node: NodeId) {
    let file = format!("/sys/devices/system/node/node{}/cpulist", node.0);
    let list = fs::read_to_string(file).expect("the node is online");
    let first = list.trim().split([',', '-']).next().and_then(|cpu| cpu.parse::<usize>().ok());
    let (cpu, mut set) = (first.expect("the node has a CPU"), [0u64; 16]);
    set[cpu / 64] = 1 << (cpu % 64);
    // SAFETY: a set of CPUs is an array of bits, of which the kernel reads as many as the length says.
    let pinned = unsafe { libc::sched_setaffinity(0, size_of_val(&set), set.as_ptr().cast()) };
    assert_eq!(pinned, 0, "this CPU may be used");
}

/// The node that the kernel says a buffer's memory is on.
fn true_node(buffer: &PageBuf) -> i32 {
    let (at, mut node) = (buffer.as_ptr().expect("memory"), -1i32);
    let no_targets = std::ptr::null::<i32>();
    // SAFETY: the kernel reads one address and writes one number; without targets it moves nothing.
    let asked =
        unsafe { libc::syscall(libc::SYS_move_pages, 0, 1, &raw const at, no_targets, &raw mut node, 0) };
    assert_eq!(asked, 0, "the kernel answers");
    node
}

#[test]
fn pages_are_truly_on_the_node_that_their_owner_runs_on() {
    let nodes = Topology::detect().nodes();
    let [one, .., other] = nodes[..] else {
        return println!("SKIP pages_are_truly_on_the_node_that_their_owner_runs_on: it needs two nodes");
    };
    run_on(one);
    let params = ArenaParams { max_bytes: 16 << 20, node: NodePolicy::Local, ..Default::default() };
    let arena = Arena::new(params).expect("16 MiB of address space");
    let pool = Pool::new(PoolParams::default(), arena.clone()).expect("the defaults are valid").bind();
    for (round, node) in [one, other, one].into_iter().enumerate() {
        run_on(node);
        let before = pool.stats();
        let mut buffers = take(&pool, 128);
        for buffer in &buffers[64..] {
            // behind those that the cache had of the node before
            assert_eq!(true_node(buffer), i32::from(node.0), "round {round}");
            assert_eq!(arena.area().node_of(buffer.page()), node, "round {round}");
        }
        let moved = pool.stats().since(&before);
        assert_eq!(moved.alloc_waive > 0, round > 0, "round {round}: {moved:?}");
        pagepool::put_ring_bulk(&mut buffers);
    }
    println!("{} nodes of this machine: memory of {one} and {other}", nodes.len());
}
