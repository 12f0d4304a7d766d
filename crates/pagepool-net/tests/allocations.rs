//! Nothing is allocated per packet: receive, transmit, complete and drop, over a counting allocator.

// UNSAFETY: a global allocator that counts and passes on.
#![expect(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use pagepool::{Arena, ArenaParams, Pool, PoolParams, XdpBuff, XdpFrame, XdpFrameBulk};
use pagepool_lab::FrameSocket;
use pagepool_link::{LinkError, Namespace, Tap};
use pagepool_net::{
    Action, Device, Forwarder, Ingress, MemNicParams, NicDomain, OpenParams, PortId, TxQueue, handoff,
    mem_nic, open_device,
};

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
    let mut queue: TxQueue = TxQueue::with_capacity(64, 64);
    let mut done = XdpFrameBulk::new();
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
                queue.push(XdpFrame::from(packet)); // the others are dropped
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

#[test]
fn nothing_is_allocated_per_packet_of_a_tap() {
    let opened = Namespace::new("tap").and_then(|place| {
        let tap = place.run(|| Tap::open("t0"))?;
        Ok((FrameSocket::open(&place, "t0")?, place, tap))
    });
    let (socket, place, tap) = match opened {
        Ok(opened) => opened,
        Err(error @ LinkError::Call { .. }) => {
            return println!("SKIP nothing_is_allocated_per_packet_of_a_tap: {error}");
        }
        Err(error) => panic!("{error}"),
    };
    let arena = Arena::new(ArenaParams { max_bytes: 16 << 20, ..Default::default() }).unwrap();
    let params = OpenParams { taps: vec![tap.into()], ..Default::default() };
    let opened = place.run(move || open_device("tap:t0", &params, &arena)).unwrap();
    let (mut device, pool) = (opened.device, opened.pool.bind());
    let mut packets = Vec::with_capacity(64);
    let (mut queue, mut done) = (TxQueue::with_capacity(64, 64), XdpFrameBulk::new());
    device.receive(&pool, &mut packets, 64);
    let mut round = || {
        (0..16).for_each(|_| assert!(socket.send(&[1; 60]).unwrap()));
        let received = device.receive(&pool, &mut packets, 64);
        queue.extend(packets.drain(..));
        let sent = device.transmit(&mut queue);
        let came = (0..16).filter(|_| socket.receive(&mut [0; 64]).unwrap() == Some(60)).count();
        let completed = device.complete(&mut done, 64);
        done.flush();
        assert_eq!((received, sent, came, completed), (16, 16, 16, 16));
    };
    (0..20).for_each(|_| round());
    let before = COUNT.get();
    (0..100).for_each(|_| round());
    assert_eq!(COUNT.get() - before, 0, "allocations");
}

#[test]
fn nothing_is_allocated_per_packet_that_is_forwarded() {
    let arenas =
        [(); 2].map(|()| Arena::new(ArenaParams { max_bytes: 16 << 20, ..Default::default() }).unwrap());
    let mut next = 0u32;
    let verdicts = move |_: &mut XdpBuff, _: Ingress| {
        next += 1;
        match next % 6 {
            0 => Action::Drop,
            1 => Action::Pass,
            2 => Action::Tx,
            3 => Action::Redirect(PortId(1)), // of other memory: mapped once
            4 => Action::Redirect(PortId(2)), // to another thread, as it were
            _ => Action::Redirect(PortId(9)),
        }
    };
    let mut forwarder = Forwarder::new(verdicts);
    let mut wires = arenas.map(|arena| {
        let domain = NicDomain::new("mem");
        let params = PoolParams { domains: vec![domain.clone()], ..Default::default() };
        let (nic, wire) = mem_nic(MemNicParams::default(), domain).unwrap();
        forwarder.add_port(nic, Pool::new(params, arena).unwrap().bind());
        wire
    });
    let (outlet, inlet) = handoff(64).unwrap();
    forwarder.add_remote(outlet);
    forwarder.add_handoff(PortId(0), inlet).unwrap();
    let (single, jumbo) = ([1u8; 60], [2u8; 9000]);
    let mut round = || {
        wires[0].step(|wire| {
            for at in 0..32 {
                wire.deliver(if at % 8 == 0 { &jumbo } else { &single });
            }
        });
        forwarder.poll();
        for wire in &mut wires {
            wire.step(|wire| while wire.take(|_| ()) {});
        }
        [0, 1].map(|port| forwarder.stats(PortId(port)).unwrap())
    };
    for _ in 0..20 {
        round();
    }
    let (before, [first, second]) = (COUNT.get(), round());
    for _ in 0..1000 {
        round();
    }
    let (after, [first_then, second_then]) = (COUNT.get(), round());
    assert_eq!(first_then.rx - first.rx, 32 * 1001);
    assert!(first_then.redirect_in > first.redirect_in && second_then.redirect_in > second.redirect_in);
    assert_eq!((first_then.tx_overflow, second_then.tx_overflow, first_then.handoff_full), (0, 0, 0));
    assert_eq!(after - before, 0, "allocations");
}
