//! AF_XDP over veth pairs: what the conformance suite does not ask of a device of the kernel.

use crate::veth;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::veth::{Far, Veth};
use pagepool::{
    Arena, ArenaParams, Backing, Bound, Error, OnMissingHuge, Pool, PoolParams, XdpBuff, XdpFrame,
    XdpFrameBulk,
};
use pagepool_net::{
    Action, Attach, Device, DeviceExt, Forwarder, PortId, Redirect, TxQueue, Umem, UmemParams, Wake,
    XskDevice, XskMode, XskParams,
};
use pagepool_testing::FarEnd;

/// Runs a test where it can be run.
fn needs_veth(name: &str, test: impl FnOnce()) {
    match veth::missing() {
        Some(why) => println!("SKIP {name}: {why}"),
        None => test(),
    }
}

fn arena(bytes: u64) -> Arc<Arena> {
    let params = ArenaParams { max_bytes: bytes, commit_all: true, ..Default::default() };
    Arena::new(params).expect("memory")
}

fn umem(arena: &Arc<Arena>) -> Arc<Umem> {
    let params = UmemParams { mode: XskMode::Copy, ..Default::default() };
    Umem::new(params, arena).expect("memory to lock")
}

fn pool(arena: &Arc<Arena>, umem: &Arc<Umem>) -> Bound {
    let params =
        PoolParams { headroom: 256, wakeup: true, domains: vec![umem.clone()], ..Default::default() };
    Pool::new(params, arena.clone()).expect("parameters in range").bind()
}

fn redirect(interface: &str) -> Arc<Redirect> {
    Redirect::attach(interface, Attach::Auto, false).expect("nothing is attached")
}

/// Rings of 256, and the XDP program of the interface.
fn params(interface: &str) -> XskParams {
    let redirect = Some(redirect(interface));
    let rings = XskParams { rx_ring: 256, tx_ring: 256, ..Default::default() };
    // On a busy machine the kernel takes its time to end the last socket.
    XskParams { interface: interface.into(), redirect, busy_limit: veth::LIMIT, ..rings }
}

/// A packet with a number, and bytes that follow from it.
fn packet(number: usize, len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..len).map(|at| (at * 5 + number * 3) as u8).collect();
    bytes[..14].copy_from_slice(b"\x02to..\x01\x02from\x01\x88\xb5");
    bytes[14..18].copy_from_slice(&(number as u32).to_be_bytes());
    bytes
}

fn frame(pool: &Bound, bytes: &[u8]) -> XdpFrame {
    let mut page = pool.alloc_page().expect("pages enough");
    page.packet_mut().expect("the CPU reads it")[..bytes.len()].copy_from_slice(bytes);
    XdpFrame::from(XdpBuff::received(page, bytes.len()).expect("it fits"))
}

/// The next `n` packets.
fn collect(device: &mut XskDevice, pool: &Bound, n: usize) -> Vec<XdpBuff> {
    let (mut packets, start) = (Vec::with_capacity(n), Instant::now());
    while packets.len() < n && start.elapsed() < veth::LIMIT {
        device.receive(pool, &mut packets, 64);
        let _ = device.wait(pool, Duration::from_millis(1));
    }
    packets
}

/// Polls until the kernel has sent everything.
fn drain(device: &mut XskDevice, queue: &mut TxQueue) {
    let (mut done, start) = (XdpFrameBulk::new(), Instant::now());
    while (!queue.is_empty() || device.stats().in_tx > 0) && start.elapsed() < veth::LIMIT {
        device.transmit(queue);
        device.complete(&mut done, 64);
        done.flush();
    }
    assert_eq!((queue.len(), device.stats().in_tx), (0, 0), "{:?}", device.kernel_stats());
}

/// The numbers of so many packets that arrive at a far end, as they were made, and of those behind them.
fn arrived(far: &mut Far, count: usize, len: impl Fn(usize) -> usize) -> Vec<usize> {
    let number_of = |bytes: Vec<u8>| {
        let number = u32::from_be_bytes(bytes[14..18].try_into().expect("four bytes")) as usize;
        assert_eq!(bytes, packet(number, len(number)), "packet {number} arrives as it was");
        number
    };
    far.arriving(count).into_iter().map(number_of).collect()
}

/// All that the kernel has is somewhere.
fn adds_up(device: &XskDevice) {
    let (xsk, stats) = (device.kernel_stats(), device.stats());
    assert_eq!(xsk.fill + xsk.received + xsk.rx_in_kernel, stats.in_rx, "{xsk:?}");
    assert_eq!(xsk.transmit + xsk.completed + xsk.tx_in_kernel + xsk.rejected, stats.in_tx, "{xsk:?}");
}

#[test]
fn a_redirect_takes_sockets_of_af_xdp_only() {
    needs_veth("sockets of another kind", || {
        let (_veth, socket) = (Veth::new(1, 1500), std::net::UdpSocket::bind("127.0.0.1:0"));
        let error = redirect("near0").insert(0, socket.expect("a port").as_fd()).unwrap_err().to_string();
        assert!(
            error.contains("room for key 0, and the socket an AF_XDP socket with a receive ring"),
            "{error}"
        );
    });
}

#[test]
fn two_interfaces_share_a_umem_and_forward_without_a_copy() {
    needs_veth("forward", || {
        let veth = Veth::new(2, 1500);
        let arena = arena(8 << 20);
        let umem = umem(&arena);
        let mut forwarder = Forwarder::new(|_: &mut XdpBuff, at: pagepool_net::Ingress| {
            Action::Redirect(PortId(1 - at.port.0))
        });
        for interface in ["near0", "near1"] {
            let pool = pool(&arena, &umem);
            let device = XskDevice::open(params(interface), &umem, &pool).expect("a free queue");
            forwarder.add_port(device, pool);
        }
        assert_eq!(umem.sockets(), 2, "over one registration");
        forwarder.poll();
        let (mut left, mut right) = (veth.far_end(0), veth.far_end(1));
        let (rounds, burst) = (50, 40);
        let len = |number: usize| 60 + number * 37 % 1440;
        for round in 0..rounds {
            for number in (0..burst).map(|n| round * burst + n) {
                let there = if number % 2 == 0 { &mut left } else { &mut right };
                assert!(there.send(&packet(number, len(number))));
            }
            let forwarded = |forwarder: &Forwarder<_>| {
                let nic = |port| forwarder.device(PortId(port)).expect("it was added").stats();
                (nic(0).tx_completed + nic(1).tx_completed) as usize
            };
            veth::wait_until("the burst goes through", || {
                while forwarder.poll() > 0 {}
                forwarded(&forwarder) == (round + 1) * burst
            });
        }
        let total = rounds * burst;
        let even: Vec<_> = (0..total).filter(|n| n % 2 == 0).collect();
        let odd: Vec<_> = (0..total).filter(|n| n % 2 == 1).collect();
        assert_eq!(
            (arrived(&mut right, total / 2, len), arrived(&mut left, total / 2, len)),
            (even, odd),
            "each once, in order"
        );
        for port in [PortId(0), PortId(1)] {
            let paths = forwarder.paths(port).unwrap();
            assert_eq!((paths.copied, paths.mapped, paths.reused), (0, 0, total as u64 / 2));
            assert_eq!(forwarder.device(port).unwrap().stats().in_tx, 0);
            forwarder.close_port(port);
        }
        assert_eq!(umem.sockets(), 0);
        let out: u64 =
            [PortId(0), PortId(1)].iter().map(|&p| forwarder.pool(p).unwrap().inflight().out).sum();
        assert_eq!(out, 0, "all buffers returned");
    });
}

#[test]
fn a_burst_beyond_what_the_kernel_takes_at_once_is_sent_whole() {
    needs_veth("burst", || {
        let veth = Veth::new(1, 1500);
        let arena = arena(8 << 20);
        let umem = umem(&arena);
        let pool = pool(&arena, &umem);
        let mut device = XskDevice::open(params("near0"), &umem, &pool).expect("a free queue");
        let mut far = veth.far_end(0);
        let mut queue: TxQueue = (0..1000).map(|n| frame(&pool, &packet(n, 60))).collect();
        drain(&mut device, &mut queue);
        assert_eq!(arrived(&mut far, 1000, |_| 60), (0..1000).collect::<Vec<_>>());
        assert_eq!((device.stats().tx_completed, pool.inflight().out), (1000, 0));
        adds_up(&device);
    });
}

#[test]
fn pages_of_2_kib_are_chunks() {
    needs_veth("pages of 2 KiB", || {
        let veth = Veth::new(1, 1500);
        let memory = ArenaParams { max_bytes: 1 << 20, page_size: 2048, ..Default::default() };
        let arena = Arena::new(ArenaParams { commit_all: true, ..memory }).expect("memory");
        let umem = umem(&arena);
        let pool = pool(&arena, &umem);
        let mut device = XskDevice::open(params("near0"), &umem, &pool).expect("a free queue");
        device.receive(&pool, &mut Vec::new(), 0);
        assert_eq!((device.stats().in_rx, pool.inflight().out), (256, 256));
        let mut far = veth.far_end(0);
        let len = |number: usize| 60 + number * 7 % 1450;
        let mut sent = 0;
        for _ in 0..20 {
            for number in sent..sent + 50 {
                assert!(far.send(&packet(number, len(number))));
            }
            let packets = collect(&mut device, &pool, 50);
            assert_eq!(packets.len(), 50);
            assert!(packets.iter().all(|packet| packet.headroom() == 256), "right to the byte");
            drain(&mut device, &mut packets.into_iter().map(XdpFrame::from).collect());
            assert_eq!(arrived(&mut far, 50, len), (sent..sent + 50).collect::<Vec<_>>());
            sent += 50;
        }
        adds_up(&device);
        device.close();
        assert_eq!(pool.inflight().out, 0);
    });
}

#[test]
fn unaligned_chunks_over_huge_pages_begin_at_different_colours() {
    let huge = ArenaParams { max_bytes: 4 << 20, backing: Backing::Huge2M, ..Default::default() };
    let huge = ArenaParams { commit_all: true, on_missing_huge: OnMissingHuge::Fail, ..huge };
    let _shared = pagepool_lab::share_huge_pages();
    let arena = match Arena::new(huge) {
        Ok(arena) => arena,
        Err(why) => return println!("SKIP coloured chunks over huge pages: {why}"),
    };
    needs_veth("coloured chunks over huge pages", || {
        let veth = Veth::new(1, 1500);
        let chunk = 3072;
        let params =
            UmemParams { chunk_size: chunk, unaligned: true, mode: XskMode::Copy, ..Default::default() };
        let umem = Umem::new(params, &arena).expect("memory to lock");
        let pool =
            PoolParams { headroom: 256, max_len: 1518, domains: vec![umem.clone()], ..Default::default() };
        let pool = Pool::new(pool, arena.clone()).expect("parameters in range").bind();
        let mut device = XskDevice::open(self::params("near0"), &umem, &pool).expect("a free queue");
        device.check_pool(&pool).expect("it was made for this");
        device.receive(&pool, &mut Vec::new(), 0);
        let (mut far, len) = (veth.far_end(0), |number: usize| 60 + number * 37 % 1440);
        let mut begins = std::collections::BTreeSet::new();
        for round in 0..20 {
            let numbers = round * 50..(round + 1) * 50;
            numbers.clone().for_each(|number| assert!(far.send(&packet(number, len(number)))));
            let packets = collect(&mut device, &pool, 50);
            for (buff, number) in packets.iter().zip(numbers) {
                assert_eq!(buff.data(), packet(number, len(number)), "packet {number} is as it was sent");
                begins.insert(buff.offset());
            }
            assert_eq!(packets.len(), 50);
        }
        let most = 256 + 4096 - chunk as usize;
        println!("packets begin {begins:?} bytes behind the beginnings of their pages");
        assert!(begins.iter().all(|at| (256..=most).contains(at)), "no chunk goes past its page: {begins:?}");
        assert_eq!(begins.len(), 16, "all of the pool's colours: {begins:?}");
        adds_up(&device);
        assert_eq!(device.kernel_stats().rx_invalid_descs, 0, "none was discarded");
        drop(device);
        assert_eq!(pool.inflight().out, 0);
    });
}

#[test]
fn a_return_to_an_empty_pool_wakes_the_device() {
    needs_veth("starvation", || {
        let veth = Veth::new(1, 1500);
        let arena = arena(64 << 10); // 16 pages, fewer than the ring has slots
        let umem = umem(&arena);
        let pool = pool(&arena, &umem);
        let few = XskParams { rx_buffers: 16, ..params("near0") };
        let mut device = XskDevice::open(few, &umem, &pool).expect("a free queue");
        let mut far = veth.far_end(0);
        device.receive(&pool, &mut Vec::new(), 0);
        for round in 0..20 {
            (0..20).for_each(|n| assert!(far.send(&packet(round * 20 + n, 60))));
            let held = collect(&mut device, &pool, 16);
            for (held, n) in held.iter().zip(round * 20..) {
                assert_eq!(held.data(), packet(n, 60), "the first 16, as they were sent");
            }
            assert_eq!((held.len(), device.stats().in_rx), (16, 0), "the pool is dry");
            let lost = 4 * (round as u64 + 1);
            veth::wait_until("the last four", || device.kernel_stats().rx_fill_ring_empty >= lost);
            let xsk = device.kernel_stats();
            assert_eq!((xsk.rx_fill_ring_empty, xsk.rx_dropped, xsk.rx_ring_full), (lost, lost, 0));
            assert_eq!((device.stats().rx_no_buffer, device.stats().rx_too_long), (lost, 0), "visible");
            assert_eq!((xsk.fill, xsk.received, xsk.rx_in_kernel), (0, 0, 0), "the kernel has nothing");
            let returning = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_micros(round as u64 * 400));
                drop(held);
            });
            let start = Instant::now();
            while device.stats().in_rx < 16 {
                assert_eq!(device.wait(&pool, Duration::from_secs(60)), Wake::Ready);
                device.receive(&pool, &mut Vec::new(), 0);
            }
            assert!(start.elapsed() < Duration::from_secs(30), "a buffer that returns ends the wait");
            returning.join().unwrap();
        }
        assert!(far.send(&packet(7, 60)));
        assert_eq!(collect(&mut device, &pool, 1)[0].data(), packet(7, 60), "it recovers by itself");
        device.close();
        assert_eq!(pool.inflight().out, 0);
    });
}

#[test]
fn an_interface_that_goes_down_and_up_loses_no_buffer() {
    needs_veth("down and up", || {
        let veth = Veth::new(1, 1500);
        let arena = arena(4 << 20);
        let umem = umem(&arena);
        let pool = pool(&arena, &umem);
        let mut device = XskDevice::open(params("near0"), &umem, &pool).expect("a free queue");
        let mut far = veth.far_end(0);
        device.receive(&pool, &mut Vec::new(), 0);
        for round in 0..3 {
            veth.set_up("near0", false);
            let refused = device.stats().calls_refused;
            let mut queue: TxQueue = (0..100).map(|n| frame(&pool, &packet(n, 60))).collect();
            device.transmit(&mut queue);
            assert_eq!(device.wait(&pool, Duration::from_millis(5)), Wake::Timeout, "down is not gone");
            assert!(device.stats().calls_refused > refused, "the driver says that it does not send");
            assert_eq!((device.stats().in_tx, device.kernel_stats().transmit), (100, 100), "they wait");
            adds_up(&device);
            veth.set_up("near0", true);
            drain(&mut device, &mut queue);
            assert_eq!(arrived(&mut far, 100, |_| 60), (0..100).collect::<Vec<_>>(), "round {round}");
            assert!(far.send(&packet(7, 60)));
            assert_eq!(collect(&mut device, &pool, 1).len(), 1);
        }
        device.close();
        assert_eq!(pool.inflight().out, 0);
    });
}

#[test]
fn the_next_start_works_right_after_the_last_end() {
    needs_veth("restart", || {
        let veth = Veth::new(1, 1500);
        let mut far = veth.far_end(0);
        for round in 0..20 {
            let arena = arena(4 << 20);
            let umem = umem(&arena);
            let pool = pool(&arena, &umem);
            let mut device =
                XskDevice::open(params("near0"), &umem, &pool).expect("a queue that is free again");
            device.receive(&pool, &mut Vec::new(), 0);
            (0..30).for_each(|n| assert!(far.send(&packet(n, 60))));
            let mut queue = (0..30).map(|n| frame(&pool, &packet(n, 60))).collect();
            device.transmit(&mut queue);
            let held = collect(&mut device, &pool, 5);
            let on_rings = device.stats().in_rx + device.stats().in_tx;
            match round % 3 {
                0 => drop((device, held, umem)), // all of it in flight, in orders that vary
                1 => {
                    device.close();
                    assert_eq!(device.stats().closed_with, on_rings);
                    assert_eq!(pool.inflight().out, held.len() as u64);
                    let again = XskDevice::open(params("near0"), &umem, &pool);
                    drop((held, again.expect("over the same memory, registered anew"), device));
                }
                _ => drop((umem, held, device)),
            }
            assert_eq!(pool.inflight().out, 0, "round {round}: all buffers returned");
        }
    });
}

#[test]
fn threads_open_and_poll_devices_of_one_umem_at_the_same_time() {
    needs_veth("threads", || {
        let veth = Veth::new(2, 1500);
        let arena = arena(8 << 20);
        let umem = umem(&arena);
        let done = std::sync::Barrier::new(3);
        let (mut left, mut right) = (veth.far_end(0), veth.far_end(1));
        std::thread::scope(|threads| {
            for interface in ["near0", "near1"] {
                let (arena, umem, done) = (arena.clone(), umem.clone(), &done);
                threads.spawn(move || {
                    let pool = pool(&arena, &umem);
                    for _ in 0..5 {
                        let mut device =
                            XskDevice::open(params(interface), &umem, &pool).expect("a free queue");
                        device.receive(&pool, &mut Vec::new(), 0);
                        done.wait();
                        let packets = collect(&mut device, &pool, 20);
                        assert_eq!(packets.len(), 20);
                        drain(&mut device, &mut packets.into_iter().map(XdpFrame::from).collect());
                        done.wait();
                    }
                    assert_eq!(pool.inflight().out, 0);
                });
            }
            for _ in 0..5 {
                done.wait();
                for number in 0..20 {
                    assert!(left.send(&packet(number, 60)) && right.send(&packet(number, 60)));
                }
                done.wait();
                let all: Vec<_> = (0..20).collect();
                assert_eq!(
                    (arrived(&mut left, 20, |_| 60), arrived(&mut right, 20, |_| 60)),
                    (all.clone(), all)
                );
            }
        });
        assert_eq!(umem.sockets(), 0);
    });
}

/// Packets that a device over somebody's map receives and sends back come to its far end.
fn echoes(device: &mut XskDevice, pool: &Bound, far: &mut Far) -> bool {
    device.receive(pool, &mut Vec::new(), 0);
    (0..10).for_each(|n| assert!(far.send(&packet(n, 60))));
    let packets = collect(device, pool, 10);
    drain(device, &mut packets.into_iter().map(XdpFrame::from).collect());
    arrived(far, 10, |_| 60) == (0..10).collect::<Vec<_>>()
}

#[test]
fn devices_that_share_a_map_keep_each_others_sockets() {
    needs_veth("one map", || {
        let veth = Veth::new(2, 1500);
        let arena = arena(8 << 20);
        let umem = umem(&arena);
        let pools = [pool(&arena, &umem), pool(&arena, &umem)];
        // The program of near1 is another's as far as near0's device goes; it looks at key 0, which both
        // might take.
        let theirs = redirect("near1");
        let over = || Some(Redirect::over_map(theirs.map().try_clone_to_owned().unwrap()));
        let small = |interface: &str, map_key| XskParams {
            interface: interface.into(),
            rx_ring: 64,
            tx_ring: 64,
            redirect: over(),
            map_key,
            busy_limit: veth::LIMIT,
            ..Default::default()
        };
        let mut right = XskDevice::open(small("near1", None), &umem, &pools[1]).expect("a free queue");
        let taken =
            XskDevice::open(small("near0", None), &umem, &pools[0]).map(drop).map_err(text).unwrap_err();
        assert!(
            taken.contains("key 0 of the map has a socket already") && taken.contains("map_key"),
            "{taken}"
        );
        let mut far = veth.far_end(1);
        assert!(echoes(&mut right, &pools[1], &mut far), "it was not replaced");

        let left = XskDevice::open(small("near0", Some(17)), &umem, &pools[0]).expect("a key of its own");
        drop(left);
        assert!(echoes(&mut right, &pools[1], &mut far), "nor taken out by another's end");
        let beyond = XskDevice::open(small("near0", Some(1 << 20)), &umem, &pools[0])
            .map(drop)
            .map_err(text)
            .unwrap_err();
        assert!(beyond.contains("room for key 1048576"), "{beyond}");

        right.close();
        let mut next = XskDevice::open(small("near1", None), &umem, &pools[1]).expect("the place is free");
        assert!(echoes(&mut next, &pools[1], &mut far));

        let ours = XskParams { redirect: Some(theirs.clone()), ..small("near0", Some(3)) };
        let refused = XskDevice::open(ours, &umem, &pools[0]).map(drop).map_err(text).unwrap_err();
        assert!(refused.starts_with("map_key is 3, but must be left out, or 0"), "{refused}");
        drop(next);
        assert_eq!((pools[0].inflight().out, pools[1].inflight().out, umem.sockets()), (0, 0, 0));
    });
}

fn text(error: Error) -> String {
    error.to_string()
}

#[test]
fn errors_name_cause_and_remedy() {
    needs_veth("errors", || {
        let _veth = Veth::new(2, 1500);
        let arena = arena(4 << 20);
        let umem = umem(&arena);
        let (near, elsewhere) = (pool(&arena, &umem), Pool::new(PoolParams::default(), arena.clone()));
        let opened = |params: XskParams, umem: &Arc<Umem>, pool: &Bound| {
            XskDevice::open(params, umem, pool).map(drop).map_err(text).unwrap_err()
        };
        let open = |params: XskParams| opened(params, &umem, &near);
        let plain = |interface: &str| XskParams {
            interface: interface.into(),
            busy_limit: Duration::from_millis(5),
            rx_buffers: 64,
            ..Default::default()
        };
        let refused = open(plain("absent0"));
        assert_eq!(
            refused,
            "interface is absent0, but must be an interface of this thread's network namespace: lo, near0, \
             near1"
        );
        let refused = open(XskParams { queue: 3, ..plain("near0") });
        assert_eq!(
            refused,
            "queue is 3, but must be 0: near0 has one queue (`ethtool -L near0` changes the number)"
        );
        let refused = open(XskParams { rx_buffers: 5000, ..plain("near0") });
        assert_eq!(refused, "rx_buffers is 5000, but must be at most the UMEM's 1024 chunks");

        let refused = opened(plain("near0"), &umem, &elsewhere.expect("a plain pool").bind());
        assert!(refused.starts_with("domains is without the device's UMEM"), "{refused}");
        assert_eq!(umem.sockets(), 0, "what was opened is closed");
        // The kernel lets go of the queue of the refused one a while later.
        let patient = XskParams { busy_limit: veth::LIMIT, ..plain("near0") };
        let _device = XskDevice::open(patient, &umem, &near).expect("a free queue");
        let refused = open(plain("near0"));
        assert_eq!(refused, "queue 0 already has a device over UMEM umem0, and can have only one");
        let other = Umem::new(UmemParams { name: "other".into(), ..Default::default() }, &arena).unwrap();
        let refused = opened(plain("near0"), &other, &near);
        assert!(refused.contains("another AF_XDP socket is still bound to queue 0"), "{refused}");
        assert!(refused.contains("ss --xdp"), "{refused}");

        let zero_copy = UmemParams { mode: XskMode::ZeroCopy, ..Default::default() };
        let zero_copy = Umem::new(zero_copy, &arena).unwrap();
        let refused = opened(plain("near1"), &zero_copy, &near);
        assert!(
            refused.contains("does not support zero copy here") && refused.contains("XskMode::Copy"),
            "{refused}"
        );

        let growing = Arena::new(ArenaParams { max_bytes: 64 << 20, ..Default::default() }).unwrap();
        let refused = Umem::new(UmemParams::default(), &growing).map(drop).map_err(text).unwrap_err();
        assert!(refused.contains("registered whole") && refused.contains("set commit_all"), "{refused}");
        let wrong = PoolParams { domains: vec![umem.clone()], ..Default::default() };
        let refused = Pool::new(wrong, growing).map(drop).map_err(text).unwrap_err();
        assert!(refused.contains("this UMEM belongs to another arena"), "{refused}");
    });
}

/// A pool over the UMEM with a tailroom.
fn with_tailroom(arena: &Arc<Arena>, umem: &Arc<Umem>, tailroom: usize) -> Bound {
    let params = PoolParams { headroom: 256, tailroom, domains: vec![umem.clone()], ..Default::default() };
    Pool::new(params, arena.clone()).expect("parameters in range").bind()
}

#[test]
fn a_pool_that_packets_do_not_fit_is_found_out() {
    needs_veth("check_pool", || {
        let _veth = Veth::new(1, 1500);
        let arena = arena(4 << 20);
        let umem = umem(&arena);
        let small = || XskParams { rx_ring: 64, tx_ring: 64, ..params("near0") };
        let device = XskDevice::open(small(), &umem, &pool(&arena, &umem)).expect("a free queue");
        let refused = |pool: &Bound| device.check_pool(pool).map_err(text).unwrap_err();
        assert!(device.check_pool(&with_tailroom(&arena, &umem, 320)).is_ok(), "a packet ends long before");
        let refused_tail = refused(&with_tailroom(&arena, &umem, 2400));
        let expected = "tailroom is 2400, but must be at most 2322: a packet may end 1774 bytes after the \
            start of its page";
        assert_eq!(refused_tail, expected);
        let elsewhere = Pool::new(PoolParams::default(), arena.clone()).expect("a plain pool").bind();
        assert!(refused(&elsewhere).starts_with(
            "domains is without the device's UMEM, but must be a list that contains the UMEM umem0"
        ));
        let pairs = PoolParams { order: 1, domains: vec![umem.clone()], ..Default::default() };
        let pairs = Pool::new(pairs, arena.clone()).expect("parameters in range").bind();
        assert_eq!(refused(&pairs), "order is 1, but must be 0: a chunk is one page");
        let whole = with_tailroom(&arena, &umem, 0);
        let all: Vec<_> = std::iter::from_fn(|| whole.alloc_page()).collect();
        assert_eq!(refused(&whole), "the pool has no free buffer to check: all are out");
        drop((all, whole, elsewhere, device));
    });
}

#[test]
fn a_packet_into_the_tailroom_is_counted_and_leaks_nothing() {
    if let Some(why) = veth::no_multi_buffer() {
        return println!("SKIP tailroom: {why}");
    }
    needs_veth("tailroom", || {
        let veth = Veth::new(1, 9000);
        let arena = arena(4 << 20);
        let several = UmemParams { multi_buffer: true, mode: XskMode::Copy, ..Default::default() };
        let umem = Umem::new(several, &arena).expect("memory to lock");
        let redirect = Redirect::attach("near0", Attach::Native, true).expect("nothing is attached");
        let small = XskParams { interface: "near0".into(), rx_ring: 64, tx_ring: 64, ..Default::default() };
        let small = XskParams { redirect: Some(redirect), ..small };
        let mut device = XskDevice::open(small, &umem, &pool(&arena, &umem)).expect("a free queue");
        let pool = with_tailroom(&arena, &umem, 64);
        let refused = device.check_pool(&pool).map_err(text).unwrap_err();
        assert!(refused.starts_with("tailroom is 64, but must be at most 0"), "{refused}");
        device.receive(&pool, &mut Vec::new(), 0);
        let mut far = veth.far_end(0);
        let len = |number: usize| if number.is_multiple_of(2) { 9000 } else { 1000 };
        (0..10).for_each(|number| assert!(far.send(&packet(number, len(number)))));
        let packets = collect(&mut device, &pool, 5);
        for (packet_, number) in packets.iter().zip([1, 3, 5, 7, 9]) {
            assert_eq!(packet_.data(), packet(number, 1000), "those that fit come as they were");
        }
        let stats = device.stats();
        assert_eq!((packets.len(), stats.rx_bad_length, stats.rx_too_many_buffers), (5, 5, 0), "{stats:?}");
        assert_eq!(
            pool.inflight().out,
            5 + stats.in_rx,
            "the others' buffers have returned, or with the kernel again"
        );
        drop((packets, device));
        assert_eq!(pool.inflight().out, 0);
    });
}

#[test]
fn a_program_that_is_there_already_is_named() {
    needs_veth("program", || {
        let _veth = Veth::new(1, 1500);
        let first = Redirect::attach("near0", Attach::Auto, false).expect("nothing is attached");
        assert_eq!(first.mode(), Some((Attach::Native, None)), "a veth runs programs itself");
        let id = first.program_id().expect("it is ours");
        for how in [Attach::Auto, Attach::Native, Attach::Generic] {
            let refused = Redirect::attach("near0", how, false).map(drop).map_err(text).unwrap_err();
            assert!(
                refused.contains(&format!("near0 already has XDP program {id} (another pagepool?). Stop")),
                "{refused}"
            );
        }
        drop(first);
        let generic = Redirect::attach("near0", Attach::Generic, false).expect("the first is detached");
        assert_eq!(generic.mode(), Some((Attach::Generic, None)));
    });
}

#[test]
fn a_program_falls_back_to_generic_and_says_why() {
    needs_veth("fallback", || {
        let _veth = Veth::new(1, 9000); // more than a program without frags may see
        let redirect = Redirect::attach("near0", Attach::Auto, false).expect("generic takes it");
        let (mode, why) = redirect.mode().expect("it is ours");
        assert_eq!(mode, Attach::Generic);
        assert!(why.as_ref().is_some_and(|why| why.starts_with("the driver of near0 refused it")), "{why:?}");
        drop(redirect);
        let refused = Redirect::attach("near0", Attach::Native, false).map(drop).map_err(text).unwrap_err();
        assert!(refused.contains("MTU"), "{refused}");
    });
}

#[test]
fn a_device_can_use_the_map_of_another_program() {
    needs_veth("map", || {
        let veth: Rc<Veth> = Veth::new(1, 1500);
        let theirs = redirect("near0");
        let map = theirs.map().try_clone_to_owned().unwrap();
        let (arena, mut far) = (arena(4 << 20), veth.far_end(0));
        let umem = umem(&arena);
        let pool = pool(&arena, &umem);
        let ours = XskParams { redirect: Some(Redirect::over_map(map)), ..XskParams::default() };
        let ours = XskParams { interface: "near0".into(), rx_ring: 64, tx_ring: 64, ..ours };
        let mut device = XskDevice::open(ours, &umem, &pool).expect("a free queue");
        assert_eq!(device.redirect().and_then(|redirect| redirect.mode()), None);
        device.receive(&pool, &mut Vec::new(), 0);
        assert!(far.send(&packet(1, 60)));
        assert_eq!(collect(&mut device, &pool, 1).len(), 1);
        device.close();
        assert!(theirs.program_id().is_some_and(|id| id > 0), "their program stays");
        drop(theirs);
        let wrong = std::fs::File::open("/dev/null").unwrap();
        let wrong = XskParams { redirect: Some(Redirect::over_map(wrong.into())), ..params("near0") };
        let refused = XskDevice::open(wrong, &umem, &pool).map(drop).map_err(text).unwrap_err();
        assert!(refused.contains("the map must be an XSKMAP"), "{refused}");
        assert_eq!(umem.sockets(), 0, "a device that was not opened leaves nothing behind");
    });
}
