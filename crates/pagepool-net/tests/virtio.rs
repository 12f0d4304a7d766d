//! The virtio driver over a device half in this process: the conformance suite, and a half that lies.

#![expect(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

use std::sync::Arc;
use std::time::Duration;

use pagepool::{
    Arena, ArenaParams, Bound, DmaDomain, Error, Pool, PoolParams, XdpBuff, XdpFrame, XdpFrameBulk,
};
use pagepool_net::testing::{
    VirtioHalf, VirtioNet, VirtioSizes, VirtioStep, virtio_domain, virtio_in_memory, virtio_with_offloads,
};
use pagepool_net::{Armed, Device, DeviceExt, TxQueue, Wake};
use pagepool_testing::{Allowed, FarEnd, Rig, conformance_device};

#[derive(Debug)]
struct Wire {
    half: VirtioHalf,
    lost: u64,
}

impl FarEnd for Wire {
    fn send(&mut self, packet: &[u8]) -> bool {
        let sent = self.half.step(|wire| wire.deliver(packet)).unwrap_or(false);
        self.lost += u64::from(!sent);
        sent
    }

    fn receive(&mut self, packet: &mut Vec<u8>) -> bool {
        packet.clear();
        self.half.step(|wire| wire.take(|bytes| packet.extend_from_slice(bytes))).unwrap_or(false)
    }

    fn lost(&self) -> Option<u64> {
        Some(self.lost)
    }

    fn stall(&mut self, on: bool) -> bool {
        self.half.stall(on);
        true
    }
}

#[derive(Clone, Copy)]
struct Shape {
    page_size: usize,
    max_buffers: usize,
}

fn device(shape: Shape, rings: usize) -> (VirtioNet, VirtioHalf, Bound, Arc<Arena>) {
    device_by(virtio_in_memory, shape, rings)
}

/// Makes a device and its other half.
type Make = fn(VirtioSizes, &Arc<Arena>, &Arc<dyn DmaDomain>) -> Result<(VirtioNet, VirtioHalf), Error>;

fn device_by(make: Make, shape: Shape, rings: usize) -> (VirtioNet, VirtioHalf, Bound, Arc<Arena>) {
    let memory = ArenaParams { max_bytes: 4 << 20, page_size: shape.page_size, ..Default::default() };
    let arena = Arena::new(memory).unwrap();
    let domain = virtio_domain(&arena);
    let params =
        PoolParams { domains: vec![domain.clone()], headroom: 256, chains: 64, ..Default::default() };
    let pool = Pool::new(params, arena.clone()).unwrap().bind();
    let sizes = VirtioSizes { rx_ring: rings, tx_ring: rings, max_buffers: shape.max_buffers };
    let (device, half) = make(sizes, &arena, &domain).unwrap();
    (device, half, pool, arena)
}

fn rig(shape: Shape) -> Rig {
    rig_of(device(shape, 64))
}

fn rig_of((device, half, pool, arena): (VirtioNet, VirtioHalf, Bound, Arc<Arena>)) -> Rig {
    Rig {
        device: Box::new(device),
        far: Box::new(Wire { half, lost: 0 }),
        pool,
        provider: arena,
        allowed: Allowed::default(),
        verify: Box::new(|| {}),
    }
}

#[test]
fn it_keeps_the_rules_of_devices() {
    for page_size in [2048, 4096] {
        for max_buffers in [1, 6, 18] {
            conformance_device(|| rig(Shape { page_size, max_buffers }));
        }
    }
}

#[test]
fn with_offloads_it_keeps_the_rules_of_devices() {
    for max_buffers in [1, 18] {
        let shape = Shape { page_size: 4096, max_buffers };
        conformance_device(|| rig_of(device_by(virtio_with_offloads, shape, 64)));
    }
}

/// Both halves of a device, and what came.
struct Bench {
    device: VirtioNet,
    half: VirtioHalf,
    pool: Bound,
    arena: Arc<Arena>,
    packets: Vec<XdpBuff>,
    done: XdpFrameBulk,
}

const WHOLE: Shape = Shape { page_size: 4096, max_buffers: 1 };
const MERGED: Shape = Shape { page_size: 4096, max_buffers: 4 };

fn bench(shape: Shape) -> Bench {
    let (mut device, half, pool, arena) = device(shape, 32);
    let mut packets = Vec::with_capacity(256);
    device.receive(&pool, &mut packets, 0);
    Bench { device, half, pool, arena, packets, done: XdpFrameBulk::new() }
}

impl Bench {
    fn poll(&mut self) -> usize {
        self.device.receive(&self.pool, &mut self.packets, 64)
    }

    fn lie<R>(&mut self, work: impl FnOnce(&mut VirtioStep<'_>) -> R) -> R {
        self.half.step(work).expect("it is connected")
    }

    fn send(&mut self, lens: &[usize]) -> usize {
        let packet = |len| XdpBuff::received(self.pool.alloc_page().unwrap(), len).unwrap();
        let mut queue: TxQueue = lens.iter().map(|&len| XdpFrame::from(packet(len))).collect();
        self.device.transmit(&mut queue)
    }

    fn complete(&mut self) -> usize {
        let n = self.device.complete(&mut self.done, 64);
        self.done.flush();
        n
    }

    fn adds_up(&self) {
        let held: usize = self.packets.iter().map(|packet| 1 + packet.frags().len()).sum();
        let stats = self.device.stats();
        assert_eq!(self.pool.inflight().out, stats.in_rx + stats.in_tx + held as u64, "{stats:?}");
    }

    fn works_and_ends(mut self) {
        self.packets.clear();
        self.poll();
        assert!(self.lie(|wire| wire.deliver(&[5; 60])), "there are buffers");
        assert_eq!(self.poll(), 1, "the next packet arrives");
        self.adds_up();
        self.packets.clear();
        self.device.close();
        assert_eq!((self.pool.inflight().out, self.half.faults()), (0, 0));
        drop((self.device, self.half, self.pool));
        assert_eq!(self.arena.pages_out(), 0);
    }
}

#[test]
fn a_length_beyond_the_buffer_is_counted() {
    let mut bench = bench(WHOLE);
    for (n, len) in [0, 11, 12, 3853, 4096, u32::MAX as usize].into_iter().enumerate() {
        bench.lie(|wire| {
            let head = wire.take_posted().unwrap();
            wire.complete_received(head.into(), len);
        });
        assert_eq!((bench.poll(), bench.device.stats().rx_bad_length), (0, n as u64 + 1), "{len}");
        bench.adds_up();
    }
    bench.works_and_ends();
}

#[test]
fn a_head_that_the_device_does_not_have_is_counted() {
    let mut bench = bench(WHOLE);
    bench.lie(|wire| {
        let head = wire.take_posted().unwrap();
        // Once is true; the second time it is a lie. So are heads beyond the queue.
        for head in [head.into(), head.into(), 32, 0xffff, u32::MAX] {
            wire.complete_received(head, 72);
        }
    });
    assert_eq!((bench.poll(), bench.device.stats().rx_bad_descriptor), (1, 4));
    assert_eq!(bench.send(&[60, 61]), 2);
    bench.lie(|wire| [32, u32::MAX].into_iter().for_each(|head| wire.complete_sent(head)));
    assert_eq!((bench.complete(), bench.device.stats().tx_bad_descriptor), (0, 2));
    bench.adds_up();
    bench.device.close();
    bench.packets.clear();
    assert_eq!(bench.pool.inflight().out, 0);
}

#[test]
fn an_impossible_index_ends_the_connection_and_loses_nothing() {
    for queue in [0, 1] {
        let mut bench = bench(WHOLE);
        assert_eq!(bench.send(&[60]), 1);
        bench.lie(|wire| wire.shift_index(queue, 1000));
        assert_eq!((bench.poll(), bench.complete()), (0, 0));
        // It takes its buffers back, and connects again after a pause.
        assert_eq!(bench.device.wait(&bench.pool, Duration::from_secs(60)), Wake::Ready);
        let stats = bench.device.stats();
        assert_eq!((stats.link_lost, stats.in_tx, stats.in_rx), (1, 0, 32), "connected anew: {stats:?}");
        bench.works_and_ends();
    }
}

#[test]
fn headers_that_lie_about_buffers_lose_nothing() {
    let mut bench = bench(MERGED);
    let header = |buffers: u16| {
        let mut header = [0; 12];
        header[10..].copy_from_slice(&buffers.to_le_bytes());
        header
    };
    for (buffers, sent, counted) in [(0, 1, "length"), (9, 9, "buffers"), (0xffff, 20, "buffers")] {
        let before = bench.device.stats();
        bench.lie(|wire| {
            for at in 0..sent {
                let head = wire.take_posted().unwrap();
                wire.write_header(head, header(if at == 0 { buffers } else { 1 }));
                wire.complete_received(head.into(), 112);
            }
        });
        assert_eq!(bench.poll(), 0);
        let stats = bench.device.stats().since(&before);
        let seen = if counted == "length" { stats.rx_bad_length } else { stats.rx_too_many_buffers };
        assert_eq!(seen, 1, "{buffers} buffers: {stats:?}");
        bench.adds_up();
    }
    // The last header claimed 65,535 buffers: all packets up to then are lost, and no buffer is.
    bench.device.close();
    assert_eq!(bench.pool.inflight().out, 0);
}

/// Whatever a device does with indices, heads, lengths and headers: no buffer is lost, none is out twice.
#[test]
fn a_device_that_lies_at_random_loses_no_buffer() {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    for round in 0..60 {
        let mut bench = bench(if round % 2 == 0 { WHOLE } else { MERGED });
        for _ in 0..400 {
            match random(6) {
                0 => _ = bench.send(&[60, 1000, 14][..1 + random(3) as usize]),
                1 => _ = bench.complete(),
                2 => bench.packets.clear(),
                _ => {}
            }
            bench.half.step(|wire| lie_at_random(wire, &mut random));
            bench.poll();
            if bench.packets.len() > 128 {
                bench.packets.clear();
            }
            bench.adds_up();
            let mut pages: Vec<_> = bench.packets.iter().flat_map(pages_of).collect();
            pages.sort_unstable();
            let all = pages.len();
            pages.dedup();
            assert_eq!(pages.len(), all, "a page with two owners");
        }
        bench.packets.clear();
        bench.device.close();
        assert_eq!((bench.pool.inflight().out, bench.half.faults()), (0, 0), "round {round}");
    }
}

fn pages_of(packet: &XdpBuff) -> Vec<u32> {
    let frags = packet.frags().iter().map(|frag| frag.buffer().page().0);
    std::iter::once(packet.buffer().page().0).chain(frags).collect()
}

fn lie_at_random(wire: &mut VirtioStep<'_>, random: &mut impl FnMut(u64) -> u64) {
    for _ in 0..random(8) {
        match random(12) {
            0 => wire.complete_received(random(64) as u32, random(5000) as usize),
            1 => wire.complete_sent(random(64) as u32),
            2 => wire.complete_received(random(1 << 32) as u32, random(1 << 32) as usize),
            3 if random(40) == 0 => wire.shift_index(random(2) as usize, random(1 << 16) as u16),
            4 => {
                if let Some(head) = wire.take_posted() {
                    let header = std::array::from_fn(|_| random(256) as u8 & random(4) as u8);
                    wire.write_header(head, header);
                    wire.complete_received(head.into(), random(4200) as usize);
                }
            }
            5 => wire.take_sent().into_iter().for_each(|head| wire.complete_sent(head.into())),
            6 => _ = wire.take(|_| ()),
            _ => _ = wire.deliver(&vec![7; 1 + random(6000) as usize]),
        }
    }
}

#[test]
fn a_sleeping_driver_is_woken_by_each_event() {
    let mut bench = bench(WHOLE);
    let asleep = |bench: &mut Bench| matches!(bench.device.arm(&bench.pool), Armed::Idle { fd: Some(_), .. });
    for _ in 0..3 {
        assert!(asleep(&mut bench), "nothing is there");
        bench.lie(|wire| wire.deliver(&[1; 60]));
        assert_eq!(bench.device.wait(&bench.pool, Duration::from_secs(60)), Wake::Ready);
        assert_eq!(bench.poll(), 1);
        bench.packets.clear();
        bench.poll();
        assert_eq!(bench.send(&[60]), 1);
        assert!(asleep(&mut bench));
        bench.lie(|wire| wire.take(|_| ()));
        assert_eq!(bench.device.wait(&bench.pool, Duration::from_secs(60)), Wake::Ready);
        assert_eq!(bench.complete(), 1);
    }
    bench.works_and_ends();
}

#[test]
fn a_device_that_dies_and_returns_goes_on_with_the_same_pool() {
    let mut bench = bench(WHOLE);
    for lives in 1..=5 {
        assert_eq!(bench.send(&[60; 5]), 5);
        assert!(bench.lie(|wire| wire.deliver(&[1; 60])));
        bench.half.die(true);
        assert_eq!(bench.device.wait(&bench.pool, Duration::from_secs(60)), Wake::Ready);
        bench.poll();
        let stats = bench.device.stats();
        assert_eq!((stats.link_lost, stats.in_tx, stats.in_rx), (lives, 0, 32), "{stats:?}");
        bench.adds_up();
    }
    bench.half.die(false);
    assert!(matches!(bench.device.arm(&bench.pool), Armed::Idle { fd: None, .. }));
    assert_eq!((bench.pool.inflight().out, bench.device.state().tx_room), (0, 0), "nobody has a buffer");
    assert_eq!(bench.send(&[60]), 0, "the frame stays in the queue");
    bench.device.close();
    assert!(matches!(bench.device.arm(&bench.pool), Armed::Gone));
}

#[test]
fn a_packet_goes_out_whole_wherever_its_header_is() {
    let mut bench = bench(MERGED);
    let bytes: Vec<u8> = (0..200u8).collect();
    let mut expected = Vec::new();
    let mut queue = TxQueue::new();
    for headroom in [0, 3, 11, 12, 13, 64] {
        let mut buffer = bench.pool.alloc_page().unwrap();
        buffer.bytes_mut().unwrap()[headroom..headroom + 200].copy_from_slice(&bytes);
        queue.push(XdpBuff::new(buffer, headroom, 200).unwrap());
        expected.push(bytes.clone());
        // Behind another part of the same page: the header must not touch that.
        let mut packet = XdpBuff::received(bench.pool.alloc_page().unwrap(), 200).unwrap();
        packet.data_mut().copy_from_slice(&bytes);
        let rest = packet.split_off(100).unwrap();
        queue.push(rest);
        queue.push(packet);
        expected.extend([bytes[100..].to_vec(), bytes[..100].to_vec()]);
    }
    assert_eq!(bench.device.transmit(&mut queue), expected.len());
    let mut sent = Vec::new();
    bench.lie(|wire| while wire.take(|packet| sent.push(packet.to_vec())) {});
    assert_eq!(sent, expected);
    assert_eq!(bench.complete(), expected.len());
    bench.works_and_ends();
}
