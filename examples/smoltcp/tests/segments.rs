//! Two hosts of smoltcp over virtio devices with offloads: long packets go from one to the other uncut.

use std::sync::Arc;
use std::time::Duration;

use pagepool::{Arena, ArenaParams, DmaDomain, Pool, PoolParams};
use pagepool_net::testing::{VirtioHalf, VirtioNet, VirtioSizes, virtio_domain, virtio_with_offloads};
use pagepool_smoltcp::pattern;
use pagepool_smoltcp::phy::Phy;
use pagepool_smoltcp::server::{Server, Service, interface};
use smoltcp::iface::SocketSet;
use smoltcp::socket::tcp;
use smoltcp::time::Instant;
use smoltcp::wire::{IpCidr, Ipv4Address};

const BUFFER: usize = 256 << 10;
const BYTES: u64 = 4 << 20;
const STEPS: usize = 200_000;

fn end(arena: &Arc<Arena>, domain: &Arc<dyn DmaDomain>) -> (Phy<VirtioNet>, VirtioHalf) {
    let pool = PoolParams { domains: vec![domain.clone()], headroom: 256, ..Default::default() };
    let pool = Pool::new(pool, arena.clone()).expect("parameters in range").bind();
    let sizes = VirtioSizes { rx_ring: 256, tx_ring: 256, max_buffers: 18 };
    let (device, half) = virtio_with_offloads(sizes, arena, domain).expect("parameters in range");
    (Phy::with_offloads(device, pool), half)
}

/// Carries all frames with their headers; returns the longest, and the number of those to be cut.
fn carry(from: &mut VirtioHalf, to: &mut VirtioHalf) -> (usize, u64) {
    let (mut longest, mut cut) = (0, 0);
    let mut frames = Vec::new();
    from.step(|wire| {
        while wire.take_with_header(|header, bytes| {
            frames.push((*header.first_chunk::<12>().expect("a header"), bytes.to_vec()));
        }) {}
    });
    for (header, bytes) in frames {
        assert!(header[1] != 0 || bytes.len() <= 9014, "a packet that is not to be cut fits the MTU");
        (longest, cut) = (longest.max(bytes.len()), cut + u64::from(header[1] != 0));
        to.step(|wire| wire.deliver_with(header, &bytes)); // what has no room is lost
    }
    (longest, cut)
}

#[test]
fn a_stream_goes_out_in_packets_to_be_cut() {
    let arena = ArenaParams { max_bytes: 32 << 20, ..Default::default() };
    let arena = Arena::new(arena).expect("memory");
    let domain = virtio_domain(&arena);
    let [(mut near, mut near_half), (mut far, mut far_half)] = [end(&arena, &domain), end(&arena, &domain)];
    let address = |last| IpCidr::new(Ipv4Address::new(198, 18, 0, last).into(), 24);
    let [server_mac, mac] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
    let mut server = Server::new(&mut near, (server_mac, address(1)), &[(Service::Generate, 1)], BUFFER);
    let mut client = interface(&mut far, mac, address(2));
    let (mut sockets, mut now) = (SocketSet::new(Vec::new()), Instant::ZERO);
    let storage = || tcp::SocketBuffer::new(vec![0; BUFFER]);
    let mut socket = tcp::Socket::new(storage(), storage());
    let to = (Ipv4Address::new(198, 18, 0, 1), Service::Generate.port());
    socket.connect(client.context(), to, 40_000).expect("a fresh socket");
    let handle = sockets.add(socket);
    let (mut done, mut longest, mut cut) = (0, 0, 0);
    for _ in 0..STEPS {
        near.turn();
        far.turn();
        server.round(now, &mut near);
        client.poll(now, &mut far, &mut sockets);
        let socket = sockets.get_mut::<tcp::Socket>(handle);
        while socket.can_recv() {
            let read = |bytes: &mut [u8]| {
                assert!(pattern::is(done, bytes), "a wrong byte behind {done}");
                (bytes.len(), bytes.len() as u64)
            };
            done += socket.recv(read).expect("it can receive");
        }
        let seen = carry(&mut near_half, &mut far_half);
        (longest, cut) = (longest.max(seen.0), cut + seen.1);
        carry(&mut far_half, &mut near_half);
        if done >= BYTES {
            break;
        }
        now += Duration::from_millis(1).into();
    }
    assert!(done >= BYTES, "{done} bytes came");
    assert!(longest > 30_000 && cut > 10 && near.cut == cut, "{longest} bytes, {cut} and {} cut", near.cut);
    for phy in [near, far] {
        assert_eq!(phy.close().inflight().out, 0);
    }
}
