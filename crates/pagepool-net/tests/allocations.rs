//! Nothing is allocated per packet: receive, transmit, complete and drop, over a counting allocator.

// UNSAFETY: a global allocator that counts and passes on.
#![expect(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::VecDeque;

use pagepool::{Arena, ArenaParams, Frame, FrameBulk, Pool, PoolParams};
use pagepool_net::{Device, MemNicParams, NicDomain, mem_nic};

struct Counting;

std::thread_local! {
    /// Allocations of this thread: the test harness has threads of its own.
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the caller keeps the rules of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the rules of `dealloc`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn nothing_is_allocated_per_packet() {
    let domain = NicDomain::new("mem0");
    let arena = Arena::new(ArenaParams { max_bytes: 16 << 20, ..Default::default() }).unwrap();
    let params = PoolParams { domains: vec![domain.clone()], ..Default::default() };
    let pool = Pool::new(params, arena).unwrap().bind();
    let (mut nic, mut wire) = mem_nic(MemNicParams::default(), domain).unwrap();
    let mut packets = Vec::with_capacity(64);
    let mut queue: VecDeque<Frame> = VecDeque::with_capacity(64);
    let mut done = FrameBulk::new();
    let (single, jumbo) = ([1u8; 60], [2u8; 9000]);
    let mut round = |n: usize| {
        wire.step(|wire| {
            for at in 0..32 {
                wire.deliver(if at % 8 == 0 { &jumbo } else { &single });
            }
        });
        nic.receive(&pool, &mut packets, 64);
        for (at, packet) in packets.drain(..).enumerate() {
            if at % 2 == n % 2 {
                queue.push_back(Frame::from(packet)); // the others are dropped
            }
        }
        nic.transmit(&mut queue);
        wire.step(|wire| while wire.take(|_| ()) {});
        nic.complete(&mut done, 64);
        done.flush();
        nic.stats()
    };
    (0..20).for_each(|n| drop(round(n).entries()));
    let before = (round(0), COUNT.get());
    for n in 0..1000 {
        round(n);
    }
    let after = (round(0), COUNT.get());
    assert!(after.0.rx_packets - before.0.rx_packets >= 32_000, "{:?}", after.0);
    assert!(after.0.tx_completed - before.0.tx_completed >= 16_000, "{:?}", after.0);
    assert_eq!(after.1 - before.1, 0, "allocations");
}
