//! The in-memory NIC against a device that reports falsely, faults, stalls and dies, and the wake-ups of its driver.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::cable::Cable;
use pagepool::{
    Arena, ArenaParams, Bound, DeviceAddr, DmaDomain, MAX_FRAGS, Pool, PoolParams, Provider, XdpBuff,
    XdpFrame, XdpFrameBulk,
};
use pagepool_net::{
    Device, DeviceExt, DeviceMemory, DeviceStats, MemNic, MemNicParams, NicDomain, NicPort, PortThread,
    TxQueue, Wake, mem_nic,
};
use pagepool_testing::CheckingIommu;

struct Bench {
    nic: MemNic,
    port: NicPort,
    pool: Bound,
    arena: Arc<Arena>,
    packets: Vec<XdpBuff>,
    done: XdpFrameBulk,
}

fn bench_over(memory: Arc<dyn DeviceMemory>, rings: MemNicParams, params: PoolParams) -> Bench {
    let arena = Arena::new(ArenaParams { max_bytes: 4 << 20, ..Default::default() }).expect("4 MiB");
    let domain: Arc<dyn DmaDomain> = memory.clone();
    let params = PoolParams { domains: vec![domain], ..params };
    let pool = Pool::new(params, arena.clone()).expect("parameters in range").bind();
    let (mut nic, port) = mem_nic(rings, memory).expect("parameters in range");
    let mut packets = Vec::with_capacity(256);
    nic.receive(&pool, &mut packets, 0); // the first buffers
    Bench { nic, port, pool, arena, packets, done: XdpFrameBulk::new() }
}

fn small() -> MemNicParams {
    MemNicParams { rx_ring: 32, tx_ring: 32, ..Default::default() }
}

fn sized() -> PoolParams {
    PoolParams { headroom: 256, max_len: 2048, ..Default::default() }
}

fn bench() -> Bench {
    bench_over(NicDomain::new("mem0"), small(), sized())
}

impl Bench {
    fn poll(&mut self) -> usize {
        self.nic.receive(&self.pool, &mut self.packets, 64)
    }

    fn frame(&self, buffers: usize) -> XdpFrame {
        let page = || self.pool.alloc_page().expect("pages enough");
        let mut packet = XdpBuff::received(page(), 100).expect("it fits");
        for _ in 1..buffers {
            packet.add_frag(page(), 0, 100).expect("a chain");
        }
        XdpFrame::from(packet)
    }

    fn send(&mut self, frames: impl IntoIterator<Item = XdpFrame>) -> usize {
        let mut queue = frames.into_iter().collect();
        let taken = self.nic.transmit(&mut queue);
        assert!(queue.is_empty(), "the ring has room");
        taken
    }

    fn complete(&mut self) -> usize {
        let n = self.nic.complete(&mut self.done, 64);
        self.done.flush();
        n
    }

    fn stats(&self) -> DeviceStats {
        self.nic.stats()
    }

    /// Every buffer that is out is on a ring or one of those that came.
    fn adds_up(&self) {
        let held: usize = self.packets.iter().map(|packet| 1 + packet.frags().len()).sum();
        let stats = self.stats();
        assert_eq!(self.pool.inflight().out, stats.in_rx + stats.in_tx + held as u64, "{stats:?}");
    }

    /// The device works, and after the end all buffers returned.
    fn works_and_ends(mut self) {
        self.packets.clear();
        self.poll();
        assert!(self.port.deliver(&[5; 60]), "there are buffers");
        assert_eq!(self.poll(), 1, "the next packet arrives");
        self.adds_up();
        self.packets.clear();
        self.nic.close();
        assert_eq!(self.pool.inflight().out, 0, "all buffers returned");
        drop((self.nic, self.port, self.pool));
        assert_eq!(self.arena.pages_out(), 0);
    }
}

// ---- A device that reports falsely what it received
// --------------------------------------------------------------------

#[test]
fn a_length_beyond_the_buffer_is_counted_and_leaks_nothing() {
    let mut bench = bench();
    for (n, len) in [2049, 4096, u32::MAX, 0].into_iter().enumerate() {
        let id = bench.port.next_posted().expect("there are buffers");
        assert!(bench.port.inject_received(id, len, true));
        assert_eq!(bench.poll(), 0);
        // The descriptor that it reported falsely keeps its place on the ring until the device comes to it.
        assert_eq!((bench.stats().rx_bad_length, bench.stats().in_rx), (n as u64 + 1, 31));
        bench.adds_up();
    }
    bench.works_and_ends();
}

#[test]
fn a_buffer_that_comes_back_twice_is_counted_and_freed_once() {
    let mut bench = bench();
    let id = bench.port.next_posted().expect("there are buffers");
    assert!(bench.port.deliver(&[1; 60]));
    assert!(bench.port.inject_received(id, 60, true), "the same poll");
    assert_eq!((bench.poll(), bench.stats().rx_bad_descriptor), (1, 1));
    assert!(bench.port.inject_received(id, 60, true), "when its slot has another buffer");
    assert_eq!((bench.poll(), bench.stats().rx_bad_descriptor), (0, 2));
    bench.adds_up();
    assert_eq!(bench.packets[0].data(), [1; 60]);
    bench.works_and_ends();
}

#[test]
fn a_buffer_that_the_device_never_had_is_counted() {
    let mut bench = bench();
    for (n, id) in [32, 31 | 7 << 16, 0xffff, u32::MAX].into_iter().enumerate() {
        assert!(bench.port.inject_received(id, 60, true));
        assert_eq!((bench.poll(), bench.stats().rx_bad_descriptor), (0, n as u64 + 1), "{id:#x}");
    }
    bench.adds_up();
    bench.works_and_ends();
}

#[test]
fn a_buffer_that_was_completed_by_a_lie_is_never_written_again() {
    let mut bench = bench();
    let id = bench.port.next_posted().expect("there are buffers");
    assert!(bench.port.inject_received(id, 60, true));
    assert_eq!(bench.poll(), 1, "the driver cannot know");
    let before = bench.packets[0].data().to_vec();
    for _ in 0..40 {
        bench.port.deliver(&[0xee; 60]);
    }
    assert_eq!(bench.packets[0].data(), before);
    assert_eq!((bench.poll(), bench.stats().rx_no_buffer), (31, 9));
    bench.adds_up();
    bench.works_and_ends();
}

#[test]
fn an_endless_packet_is_dropped_at_the_limit_of_buffers() {
    for max_buffers in [1, 6, MAX_FRAGS + 1] {
        let params = MemNicParams { max_buffers, ..small() };
        let mut bench = bench_over(NicDomain::new("mem0"), params, sized());
        for at in 0..=max_buffers {
            let id = bench.port.next_posted().expect("there are buffers");
            assert!(bench.port.inject_received(id, 60, false));
            assert_eq!(bench.poll(), 0);
            bench.adds_up();
            assert_eq!(bench.stats().rx_too_many_buffers, u64::from(at == max_buffers));
        }
        let id = bench.port.next_posted().expect("there are buffers");
        assert!(bench.port.inject_received(id, 60, true), "the end of it at last");
        assert_eq!((bench.poll(), bench.stats().rx_too_many_buffers), (0, 1));
        bench.works_and_ends();
    }
}

#[test]
fn a_packet_with_a_bad_part_is_dropped_up_to_its_end() {
    let mut bench = bench();
    for (bad, bad_last) in [(0, false), (1, false), (2, true)] {
        for part in 0..3 {
            let id = bench.port.next_posted().expect("there are buffers");
            let len = if part == bad { 9999 } else { 60 };
            assert!(bench.port.inject_received(id, len, part == 2));
        }
        assert_eq!(bad_last, bad == 2);
        assert_eq!(bench.poll(), 0);
        assert!(bench.port.deliver(&[bad as u8; 60]));
        assert_eq!(bench.poll(), 1, "the next packet is whole");
        bench.adds_up();
    }
    assert_eq!((bench.stats().rx_bad_length, bench.stats().rx_packets), (3, 3));
    bench.works_and_ends();
}

#[test]
fn a_pool_without_chains_costs_the_packet_and_no_buffer() {
    let mut bench = bench_over(NicDomain::new("mem0"), small(), PoolParams { chains: 1, ..sized() });
    assert!(bench.port.deliver(&[1; 5000]));
    assert!(bench.port.deliver(&[2; 5000]));
    assert_eq!(bench.poll(), 1, "the second one finds no chain");
    assert_eq!(bench.stats().rx_too_many_buffers, 1);
    bench.adds_up();
    bench.works_and_ends();
}

// ---- A device that reports falsely what it sent
// ------------------------------------------------------------------------

#[test]
fn a_completion_of_nothing_is_counted() {
    let mut bench = bench();
    for id in [0, 31, 32, u32::MAX] {
        assert!(bench.port.inject_sent(id));
    }
    assert_eq!((bench.complete(), bench.stats().tx_bad_descriptor), (0, 4));
    bench.works_and_ends();
}

#[test]
fn a_frame_is_freed_once_however_often_it_is_completed() {
    let mut bench = bench();
    let frame = bench.frame(3);
    bench.send([frame]);
    let id = bench.port.next_to_send().expect("a frame was sent");
    for _ in 0..3 {
        assert!(bench.port.inject_sent(id));
    }
    assert_eq!(bench.complete(), 0, "two of its buffers are the device's still");
    assert_eq!((bench.stats().tx_bad_descriptor, bench.stats().in_tx), (2, 3));
    assert!(!bench.port.take(|_| ()), "what was completed by a lie is not read any more");
    assert_eq!((bench.complete(), bench.stats().in_tx), (1, 0), "the other two are done");
    assert!(bench.port.inject_sent(id));
    assert_eq!((bench.complete(), bench.stats().tx_bad_descriptor), (0, 3));
    bench.adds_up();
    bench.works_and_ends();
}

#[test]
fn a_stale_completion_does_not_complete_the_next_frame() {
    let mut bench = bench();
    let first = bench.frame(1);
    bench.send([first]);
    let id = bench.port.next_to_send().expect("a frame was sent");
    assert!(bench.port.take(|_| ()));
    assert_eq!(bench.complete(), 1);
    let second = bench.frame(1);
    bench.send([second]);
    assert!(bench.port.inject_sent(id));
    assert_eq!((bench.complete(), bench.stats().tx_bad_descriptor, bench.stats().in_tx), (0, 1, 1));
    assert!(bench.port.take(|_| ()));
    assert_eq!((bench.complete(), bench.stats().in_tx), (1, 0));
    bench.works_and_ends();
}

#[test]
fn completions_may_come_in_any_order() {
    let mut bench = bench();
    let frames: Vec<_> = [1, 3, 2, 4].map(|buffers| bench.frame(buffers)).into();
    bench.send(frames);
    bench.port.hold_completions(true);
    while bench.port.take(|packet| assert!(packet.len().is_multiple_of(100))) {}
    assert_eq!(bench.complete(), 0);
    bench.port.hold_completions(false);
    let mut first_half = Vec::new();
    assert!(bench.port.release_completions(|ids| {
        ids.reverse();
        first_half.extend_from_slice(ids);
    }));
    assert_eq!(first_half.len(), 10);
    assert_eq!((bench.nic.complete(&mut bench.done, 1), bench.stats().in_tx), (1, 6), "the last one first");
    assert_eq!((bench.complete(), bench.stats().in_tx), (3, 0));
    assert_eq!(bench.stats().tx_bad_descriptor, 0);
    bench.adds_up();
    bench.works_and_ends();
}

// ---- Rings, faults, syncs
// -----------------------------------------------------------------------------------------

#[test]
fn a_transmit_ring_that_is_full_for_ever_loses_nothing() {
    let mut bench = bench();
    bench.port.stall(true);
    let mut queue: TxQueue = (0..100).map(|_| bench.frame(1)).collect();
    assert_eq!(bench.nic.transmit(&mut queue), 32);
    for _ in 0..10_000 {
        assert_eq!((bench.nic.transmit(&mut queue), bench.complete()), (0, 0));
    }
    assert_eq!((queue.len(), bench.stats().tx_full, bench.stats().in_tx), (68, 10_001, 32));
    assert!(!bench.port.deliver(&[1; 60]), "nothing moves at all");
    assert_eq!(bench.pool.inflight().out, 132);
    bench.nic.close();
    assert_eq!(bench.stats().closed_with, 64);
    drop(queue);
    assert_eq!(bench.pool.inflight().out, 0);
}

#[test]
fn packets_from_the_wire_that_are_too_long_or_empty_are_counted() {
    let mut bench = bench();
    assert!(!bench.port.deliver(&[]));
    assert!(!bench.port.deliver(&[1; 9019]));
    assert!(bench.port.deliver(&[1; 9018]));
    assert_eq!((bench.poll(), bench.stats().rx_too_long), (1, 2));
    assert_eq!(bench.packets[0].frags().len(), 4, "five buffers of 2048");
    bench.works_and_ends();
}

#[test]
fn a_device_unmapped_with_buffers_on_its_rings_loses_none() {
    let iommu = CheckingIommu::new("iommu");
    let mut bench = bench_over(iommu.clone(), small(), PoolParams { sync_for_device: true, ..sized() });
    let frame = bench.frame(1);
    bench.send([frame]);
    assert!(bench.arena.area().device_gone(iommu.id()), "unmapped, with buffers on the rings");
    assert!(!bench.port.deliver(&[1; 60]), "a stale descriptor");
    assert!(!bench.port.take(|_| panic!("it cannot be read")));
    assert_eq!((bench.poll(), bench.complete()), (0, 1));
    let stats = bench.stats();
    assert_eq!((stats.faults, stats.rx_bad_length, iommu.counts().faults), (2, 1, 2));
    assert_eq!(stats.rx_unmapped, 1, "the buffer that was to replace it");
    let frame = bench.frame(1);
    bench.send([frame]);
    assert_eq!(bench.stats().tx_unmapped, 1);
    bench.nic.close();
    assert_eq!(bench.pool.inflight().out, 0);
    assert_eq!(iommu.counts().bad_syncs, 0);
}

#[test]
fn a_descriptor_that_was_given_back_is_stale() {
    let iommu = CheckingIommu::new("iommu");
    let mut bench = bench_over(iommu.clone(), small(), PoolParams { sync_for_device: true, ..sized() });
    assert!(bench.port.deliver(&[7; 60]));
    bench.poll();
    let packet = &bench.packets[0];
    let at = packet.buffer().dma_addr_in(iommu.id()).expect("it is mapped");
    let at = DeviceAddr(at.0 + packet.offset() as u64);
    assert!(iommu.device_write(at, &[0; 60]).is_err(), "the device writes what it gave back");
    assert_eq!(packet.data(), [7; 60]);
    assert!(iommu.device_read(at, &mut [0; 60]).is_err());
    assert_eq!(iommu.counts().faults, 2);
}

#[test]
fn only_its_own_domain_is_synced_and_mapped_anew_it_goes_on() {
    let (own, other) = (CheckingIommu::new("own"), CheckingIommu::new("other"));
    let arena = Arena::new(ArenaParams { max_bytes: 4 << 20, ..Default::default() }).expect("4 MiB");
    let domains: Vec<Arc<dyn DmaDomain>> = vec![other.clone()];
    let pool = Pool::new(PoolParams { domains, ..sized() }, arena.clone()).expect("in range").bind();
    let (mut nic, mut port) = mem_nic(small(), own.clone()).expect("parameters in range");
    let domain: Arc<dyn DmaDomain> = own.clone();
    for round in 1..=2 {
        let mapping = arena.area().attach(&domain).expect("it maps");
        let packet = XdpBuff::received(pool.alloc_page().expect("pages enough"), 60).expect("it fits");
        assert_eq!(nic.transmit(&mut TxQueue::from([XdpFrame::from(packet)])), 1);
        assert!(port.take(|packet| assert_eq!(packet.len(), 60)));
        assert_eq!(nic.complete(&mut XdpFrameBulk::new(), 1), 1, "round {round}");
        arena.area().detach(&mapping);
    }
    assert_eq!((own.counts().for_device, own.counts().faults), (2, 0));
    assert_eq!(other.counts().for_device, 0);
}

#[test]
fn a_mapping_of_an_impostor_with_the_same_id_is_not_used() {
    #[derive(Debug)]
    struct Impostor(pagepool::DomainId);
    impl DmaDomain for Impostor {
        fn id(&self) -> pagepool::DomainId {
            self.0
        }
        fn name(&self) -> String {
            "impostor".into()
        }
        fn map(&self, _: &pagepool::Region) -> Result<DeviceAddr, String> {
            Ok(DeviceAddr(1 << 56)) // where the real one maps its first region
        }
        fn unmap(&self, _: &pagepool::Region, _: DeviceAddr) {}
        fn sync_for_device(&self, _: DeviceAddr, _: usize) {}
        fn sync_for_cpu(&self, _: DeviceAddr, _: usize) {}
    }
    let real = NicDomain::new("mem0");
    let arena = Arena::new(ArenaParams { max_bytes: 4 << 20, ..Default::default() }).expect("4 MiB");
    let domains: Vec<Arc<dyn DmaDomain>> = vec![Arc::new(Impostor(real.id()))];
    let pool = Pool::new(PoolParams { domains, ..sized() }, arena).expect("in range").bind();
    let (mut nic, _port) = mem_nic(small(), real).expect("parameters in range");
    nic.receive(&pool, &mut Vec::new(), 0);
    assert_eq!((nic.stats().in_rx, nic.stats().rx_unmapped), (0, 32));
}

// ---- Waiting, and the end
// -----------------------------------------------------------------------------------------

#[test]
fn a_step_on_another_thread_wakes_the_driver() {
    let mut bench = bench();
    let mut port = bench.port;
    let thread = std::thread::spawn(move || {
        for number in 0..20 {
            std::thread::sleep(Duration::from_millis(2));
            assert!(port.deliver(&[number; 60]));
        }
        std::thread::sleep(Duration::from_millis(5));
        port.die();
        port
    });
    let begun = Instant::now();
    let mut came = 0;
    while came < 20 {
        assert_eq!(bench.nic.wait(&bench.pool, Duration::from_secs(60)), Wake::Ready);
        came += bench.nic.receive(&bench.pool, &mut bench.packets, 64);
    }
    while bench.nic.wait(&bench.pool, Duration::from_secs(60)) != Wake::Gone {}
    assert!(begun.elapsed() < Duration::from_secs(30), "no wait ran into its time");
    drop(thread.join().expect("no step panics"));
}

#[test]
fn a_returned_buffer_wakes_a_driver_without_buffers() {
    let arena = Arena::new(ArenaParams { max_bytes: 16 << 12, ..Default::default() }).expect("16 pages");
    let domain = NicDomain::new("mem0");
    let params = PoolParams { domains: vec![domain.clone()], wakeup: true, ..Default::default() };
    let pool = Pool::new(params, arena).expect("parameters in range").bind();
    let mut buffers: Vec<_> = (0..16).map(|_| pool.alloc_page().expect("16 pages")).collect();
    let (mut nic, mut port) = mem_nic(small(), domain).expect("parameters in range");
    let mut packets = Vec::with_capacity(4);
    nic.receive(&pool, &mut packets, 4);
    assert!(!port.deliver(&[1; 60]), "there is no buffer");
    let kept = buffers.split_off(3);
    let thread = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(5));
        drop(buffers);
    });
    let begun = Instant::now();
    assert_eq!(nic.wait(&pool, Duration::from_secs(60)), Wake::Ready);
    thread.join().expect("it drops buffers");
    nic.receive(&pool, &mut packets, 4);
    assert!(begun.elapsed() < Duration::from_secs(30), "the buffer ended the wait");
    assert!(port.deliver(&[1; 60]), "there are buffers again");
    drop(kept);
}

#[test]
fn closing_waits_for_a_step_that_has_begun() {
    let mut bench = bench();
    let mut port = bench.port;
    let (begun, has_begun) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        port.step(|wire| {
            begun.send(()).expect("the test waits");
            std::thread::sleep(Duration::from_millis(20));
            (0..10).filter(|_| wire.deliver(&[3; 2048])).count()
        })
    });
    has_begun.recv().expect("a step begins");
    bench.nic.close();
    assert_eq!(bench.pool.inflight().out, 0, "all returned, and nobody writes them any more");
    assert_eq!(thread.join().expect("no step panics"), Some(10), "the step was not cut short");
}

#[test]
fn a_dead_device_with_packets_in_flight_gives_all_back() {
    let mut bench = bench();
    assert!(bench.port.deliver(&[1; 60]) && bench.port.deliver(&[2; 9000]));
    let frames: Vec<_> = (0..5).map(|_| bench.frame(2)).collect();
    bench.send(frames);
    assert!(bench.port.take(|_| ()));
    bench.port.die();
    assert_eq!(bench.nic.wait(&bench.pool, Duration::from_secs(60)), Wake::Gone);
    assert_eq!((bench.poll(), bench.complete()), (0, 0));
    assert!(!bench.port.deliver(&[1; 60]) && !bench.port.take(|_| ()));
    assert_eq!((bench.stats().in_rx, bench.stats().in_tx), (32, 10));
    bench.adds_up();
    bench.nic.close();
    assert_eq!((bench.stats().closed_with, bench.pool.inflight().out), (42, 0));
}

// ---- Cables -----------------------------------------------------------------------------------------------

#[test]
fn a_cable_keeps_packets_that_find_no_buffer() {
    let domain = NicDomain::new("both");
    let mut one = bench_over(domain.clone(), MemNicParams { tx_ring: 64, ..small() }, sized());
    let mut two = bench_over(domain, small(), sized());
    let mut cable = Cable::new(one.port, two.port);
    let mut queue: TxQueue = (0..40)
        .map(|_| XdpFrame::from(XdpBuff::received(one.pool.alloc_page().expect("pages"), 60).expect("fits")))
        .collect();
    assert_eq!(one.nic.transmit(&mut queue), 40);
    let first = cable.step();
    let received = two.nic.receive(&two.pool, &mut two.packets, 64);
    let second = cable.step();
    let later = two.nic.receive(&two.pool, &mut two.packets, 64);
    assert_eq!((first + second, received), (40, 32));
    assert_eq!((second, later, two.nic.stats().rx_no_buffer), (8, 8, 0));
    drop(two.nic);
    queue.push(XdpFrame::from(two.packets.pop().expect("it received some")));
    assert_eq!((one.nic.transmit(&mut queue), cable.step()), (1, 1), "the other end is gone: it vanishes");
}

/// The whole ring is too small for it: no buffer that comes later helps, so it must not hold up those behind
/// it.
#[test]
fn a_cable_drops_what_never_has_room() {
    let domain = NicDomain::new("both");
    let mut one = bench_over(domain.clone(), small(), sized());
    let mut two = bench_over(domain, MemNicParams { rx_ring: 2, ..small() }, sized());
    let mut cable = Cable::new(one.port, two.port);
    let page = || one.pool.alloc_page().expect("pages enough");
    let mut large = XdpBuff::received(page(), 2000).expect("it fits");
    (0..3).for_each(|_| large.add_frag(page(), 0, 2300).expect("a chain"));
    let small = XdpBuff::received(page(), 60).expect("it fits");
    let mut queue = [large, small].map(XdpFrame::from).into_iter().collect();
    assert_eq!(one.nic.transmit(&mut queue), 2);
    cable.step();
    assert_eq!(
        two.nic.receive(&two.pool, &mut two.packets, 64),
        1,
        "the small one is not behind the large one"
    );
    assert_eq!((two.packets[0].len(), two.nic.stats().rx_too_long), (60, 1));
}

#[test]
fn a_port_thread_ends_when_it_is_dropped_and_passes_a_panic_on() {
    let (begun, has_begun) = std::sync::mpsc::channel();
    let thread = PortThread::new("wire", move || {
        begun.send(()).expect("the test waits");
        panic!("on purpose")
    });
    let thread = thread.expect("a thread");
    has_begun.recv().expect("a step begins");
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(thread)));
    assert!(caught.is_err());
}
