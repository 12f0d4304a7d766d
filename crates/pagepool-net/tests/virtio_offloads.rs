//! Checksums and segments that packets leave to the other side, over virtio devices in this process.

#![expect(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

use std::sync::Arc;

use pagepool::{Arena, ArenaParams, Bound, DmaDomain, Pool, PoolParams, XdpBuff, XdpFrameBulk};
use pagepool_net::testing::{VirtioHalf, VirtioNet, VirtioSizes, virtio_domain, virtio_with_offloads};
use pagepool_net::{Device, SegmentKind, TxChecksum, TxMetadata, TxQueue, TxSegment};

/// A header that requests nothing.
const PLAIN: [u8; 12] = [0; 12];
/// One of TCP over IPv4: the checksum, and segments of 1448 bytes behind 66 bytes of headers.
const TCP4: [u8; 12] = [1, 1, 66, 0, 0xa8, 5, 34, 0, 16, 0, 0, 0];

/// A device with offloads, and its other half.
struct Port {
    device: VirtioNet,
    half: VirtioHalf,
    pool: Bound,
    packets: Vec<XdpBuff>,
    queue: TxQueue,
}

fn arena() -> (Arc<Arena>, Arc<dyn DmaDomain>) {
    let arena = Arena::new(ArenaParams { max_bytes: 8 << 20, ..Default::default() }).unwrap();
    let domain = virtio_domain(&arena);
    (arena, domain)
}

impl Port {
    fn new(arena: &Arc<Arena>, domain: &Arc<dyn DmaDomain>) -> Self {
        let params =
            PoolParams { domains: vec![domain.clone()], headroom: 256, chains: 64, ..Default::default() };
        let pool = Pool::new(params, arena.clone()).unwrap().bind();
        let sizes = VirtioSizes { rx_ring: 64, tx_ring: 64, max_buffers: 18 };
        let (mut device, half) = virtio_with_offloads(sizes, arena, domain).unwrap();
        let mut packets = Vec::with_capacity(64);
        device.receive(&pool, &mut packets, 0);
        Self { device, half, pool, packets, queue: TxQueue::new() }
    }

    fn packet(&self, bytes: &[u8], asks: Option<TxMetadata>) -> XdpBuff {
        let mut packet = XdpBuff::received(self.pool.alloc_page().unwrap(), bytes.len()).unwrap();
        packet.data_mut().copy_from_slice(bytes);
        asks.inspect(|asks| asks.write(&mut packet).unwrap());
        packet
    }

    /// Sends what is in the queue; returns headers and bytes.
    fn sent(&mut self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut sent = Vec::new();
        let all = self.device.transmit(&mut self.queue);
        let take = |header: &[u8], bytes: &[u8]| sent.push((header.to_vec(), bytes.to_vec()));
        self.half.step(|wire| {
            let mut take = take;
            while wire.take_with_header(&mut take) {}
        });
        let mut done = XdpFrameBulk::new();
        assert_eq!((self.device.complete(&mut done, 64), sent.len()), (all, all));
        sent
    }

    fn end(mut self) {
        self.packets.clear();
        self.queue.clear();
        self.device.close();
        assert_eq!((self.pool.inflight().out, self.half.faults()), (0, 0));
    }
}

/// A packet of TCP over IPv4 with a header of 32 bytes, of any length.
fn tcp(len: usize) -> Vec<u8> {
    let mut packet: Vec<u8> = (0..len).map(|at| at as u8).collect();
    let [high, low] = ((len - 14) as u16).to_be_bytes();
    packet[12..24].copy_from_slice(&[8, 0, 0x45, 0, high, low, 0, 0, 0, 0, 64, 6]);
    packet[46] = 8 << 4;
    packet
}

#[test]
fn requests_of_packets_become_their_headers() {
    let (arena, domain) = arena();
    let mut port = Port::new(&arena, &domain);
    let bytes = tcp(3000);
    let checksum = Some(TxChecksum { start: 34, offset: 16 });
    let segment = Some(TxSegment { kind: SegmentKind::Tcp4, size: 1448, headers: 66 });
    let both = TxMetadata { checksum, segment, ..Default::default() };
    let only = TxMetadata { checksum, ..Default::default() };
    // Alone, and in a burst of whole pages.
    for burst in [false, true] {
        let asks = [Some(both), None, Some(only), Some(TxMetadata::default())];
        let mut packets: Vec<_> = asks.iter().map(|&asks| port.packet(&bytes, asks)).collect();
        match burst {
            true => port.queue.push_burst(&mut packets),
            false => packets.into_iter().for_each(|packet| port.queue.push(packet)),
        }
        let sent = port.sent();
        let headers: Vec<_> = sent.iter().map(|(header, _)| &**header).collect();
        let just_checksum = [1, 0, 0, 0, 0, 0, 34, 0, 16, 0, 0, 0];
        assert_eq!(headers, [&TCP4[..], &PLAIN, &just_checksum, &PLAIN]);
        assert!(sent.iter().all(|(_, sent)| *sent == bytes));
    }
    port.end();
}

#[test]
fn requests_that_cannot_be_served_are_counted() {
    let (arena, domain) = arena();
    let mut port = Port::new(&arena, &domain);
    let bytes = tcp(200);
    let at = |start| Some(TxChecksum { start, offset: 16 });
    let asks = [
        TxMetadata { timestamp: Some(1), ..Default::default() },
        TxMetadata { checksum: at(183), ..Default::default() },
        TxMetadata { segment: TxSegment::find(&bytes, 100), ..Default::default() },
    ];
    asks.iter().for_each(|&asks| port.queue.push(port.packet(&bytes, Some(asks))));
    // There is no room for a header before a packet that is shorter than an Ethernet header.
    let short = TxMetadata { checksum: Some(TxChecksum { start: 0, offset: 2 }), ..Default::default() };
    port.queue.push(port.packet(&bytes[..10], Some(short)));
    port.queue.push(port.packet(&bytes, None));
    assert_eq!(port.sent().len(), 1);
    assert_eq!((port.device.stats().tx_bad_metadata, port.queue.refused()), (4, 4));
    port.end();
}

#[test]
fn without_headroom_only_plain_packets_are_sent() {
    let (arena, domain) = arena();
    let mut port = Port::new(&arena, &domain);
    for headroom in [0, 11, 12] {
        let mut buffer = port.pool.alloc_page().unwrap();
        buffer.bytes_mut().unwrap()[headroom..headroom + 200].copy_from_slice(&tcp(200));
        port.queue.push(XdpBuff::new(buffer, headroom, 200).unwrap());
    }
    assert_eq!(port.sent(), [(); 3].map(|()| (PLAIN.to_vec(), tcp(200))));
    port.end();
}

#[test]
fn a_forwarded_packet_keeps_its_header() {
    use pagepool_net::testing::virtio_rx_metadata;
    let (arena, domain) = arena();
    let (mut near, mut far) = (Port::new(&arena, &domain), Port::new(&arena, &domain));
    let reader = virtio_rx_metadata();
    let v6 = [1, 4, 66, 0, 0xa8, 5, 34, 0, 16, 0, 0, 0];
    for (header, len) in [(TCP4, 3000), (v6, 20_000), (TCP4, 65_549), (PLAIN, 60), (PLAIN, 9000)] {
        let bytes = tcp(len);
        assert_eq!(near.half.step(|wire| wire.deliver_with(header, &bytes)), Some(true));
        assert_eq!(near.device.receive(&near.pool, &mut near.packets, 64), 1, "{:?}", near.device.stats());
        let mut packet = near.packets.pop().unwrap();
        let read = reader.read(&mut packet).unwrap(); // right after `receive`
        TxMetadata::from(read).write(&mut packet).unwrap();
        assert_eq!((read.checksum_ok, read.segment.is_some()), (header != PLAIN, header != PLAIN), "{len}");
        far.queue.push(packet);
        assert_eq!(far.sent(), [(header.to_vec(), bytes)], "{len}");
    }
    near.end();
    far.end();
}

#[test]
fn a_packet_that_is_too_long_is_dropped_and_counted() {
    let (arena, domain) = arena();
    let mut port = Port::new(&arena, &domain);
    let long = vec![7; 65_551];
    let mut packet = port.pool.packet(long.len()).unwrap();
    packet.data_mut().fill(7);
    port.queue.push(packet);
    assert_eq!((port.sent().len(), port.device.stats().tx_too_long), (0, 1));
    assert_eq!(port.half.step(|wire| wire.deliver(&[7; 70_000])), Some(true), "in 19 buffers");
    assert_eq!(port.device.receive(&port.pool, &mut port.packets, 64), 0);
    assert_eq!(port.device.stats().rx_too_many_buffers, 1);
    port.end();
}

/// Whatever headers say: no panic, and what is requested of them can be sent.
#[test]
fn random_headers_are_read_and_sent_on() {
    use pagepool_net::testing::virtio_rx_metadata;
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let (arena, domain) = arena();
    let (mut near, mut far) = (Port::new(&arena, &domain), Port::new(&arena, &domain));
    let reader = virtio_rx_metadata();
    let mut segments = 0;
    for round in 0..20_000 {
        let mut header: [u8; 12] = std::array::from_fn(|_| random() as u8 & random() as u8);
        if round % 2 == 0 {
            header[6..10].copy_from_slice(&[34, 0, 16, 0]); // mostly refused else
        }
        let bytes = tcp(67 + random() as usize % 200);
        assert_eq!(near.half.step(|wire| wire.deliver_with(header, &bytes)), Some(true));
        assert_eq!(near.device.receive(&near.pool, &mut near.packets, 64), 1);
        let mut packet = near.packets.pop().unwrap();
        let read = reader.read(&mut packet).unwrap();
        segments += usize::from(read.segment.is_some());
        TxMetadata::from(read).write(&mut packet).unwrap();
        far.queue.push(packet);
        assert_eq!(far.sent().len(), 1, "{header:?} was {read:?}");
    }
    assert!(segments > 0);
    near.end();
    far.end();
}
