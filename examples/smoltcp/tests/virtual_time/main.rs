//! The services answer over a wire in memory: without root, in virtual time, and whatever the wire does.

mod hosts;

use hosts::{Hosts, Params, SERVER};
use pagepool_smoltcp::server::Service;
use pagepool_testing::{Chance, FaultCounts, FaultParams};
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::socket::{icmp, udp};
use smoltcp::wire::{Icmpv4Packet, Icmpv4Repr};

/// Bulk in each direction, and an echo.
fn bulk(hosts: &mut Hosts, bytes: u64) {
    hosts.connect(Service::Echo, [bytes, bytes]);
    hosts.connect(Service::Discard, [bytes, 0]);
    hosts.connect(Service::Generate, [0, bytes]);
}

#[test]
fn bulk_and_an_echo_arrive_without_a_copy() {
    let mut hosts = Hosts::new(&Params::default());
    bulk(&mut hosts, 4 << 20);
    hosts.until("the echo is over", |hosts| hosts.streams[0].is_over);
    assert_eq!(hosts.ends[0].phy.copied, [0, 0]);
    hosts.finish();
}

#[test]
fn packets_of_several_buffers_are_copied_and_counted() {
    let mut hosts = Hosts::new(&Params { mtu: 8000, ..Default::default() });
    bulk(&mut hosts, 4 << 20);
    hosts.until("the echo is over", |hosts| hosts.streams[0].is_over);
    let copied = hosts.ends[0].phy.copied;
    assert!(copied[0] > 500 && copied[1] > 500, "{copied:?}");
    hosts.finish();
}

fn echoes(connections: usize) {
    let services = vec![(Service::Echo, connections)];
    let mut hosts = Hosts::new(&Params { services, buffer: 4096, ..Default::default() });
    (0..connections).for_each(|_| hosts.connect(Service::Echo, [6000, 6000]));
    hosts.finish();
}

#[test]
fn one_connection_is_echoed() {
    echoes(1);
}

#[test]
fn two_hundred_connections_are_echoed() {
    echoes(200);
}

#[test]
fn a_thousand_connections_are_echoed() {
    echoes(1000);
}

#[test]
fn a_socket_serves_one_connection_after_the_other() {
    let mut hosts = Hosts::new(&Params::default());
    for at in 0..20 {
        hosts.connect(Service::Echo, [100, 100]);
        hosts.until("the echo is over", |hosts| hosts.streams[at].is_over);
    }
    hosts.finish();
}

#[test]
fn http_says_hello() {
    use smoltcp::socket::tcp;
    let mut hosts = Hosts::new(&Params::default());
    let storage = || tcp::SocketBuffer::new(vec![0; 1024]);
    let mut socket = tcp::Socket::new(storage(), storage());
    socket.connect(hosts.client.context(), (SERVER, 80), 40_000).expect("a fresh socket");
    let handle = hosts.sockets.add(socket);
    let (mut asked, mut said) = (false, Vec::new());
    hosts.until("the server ends the connection", |hosts| {
        let socket = hosts.sockets.get_mut::<tcp::Socket>(handle);
        if !asked && socket.can_send() {
            asked = socket.send_slice(b"GET / HTTP/1.1\r\nHost: it\r\n\r\n").is_ok();
        }
        while socket.can_recv() {
            let _ = socket.recv(|bytes| (bytes.len(), said.extend_from_slice(bytes)));
        }
        socket.state() == tcp::State::CloseWait
    });
    assert!(said.starts_with(b"HTTP/1.1 200 OK\r\n") && said.ends_with(b"\r\n\r\nhello\n"));
    hosts.close();
}

#[test]
fn a_datagram_is_answered() {
    let mut hosts = Hosts::new(&Params::default());
    let storage = || udp::PacketBuffer::new(vec![udp::PacketMetadata::EMPTY; 4], vec![0; 4096]);
    let mut socket = udp::Socket::new(storage(), storage());
    socket.bind(40_000).expect("a fresh socket");
    let handle = hosts.sockets.add(socket);
    for size in [0, 1, 1472] {
        let sent: Vec<u8> = (0..size).map(|at| at as u8).collect();
        let socket = hosts.sockets.get_mut::<udp::Socket>(handle);
        socket.send_slice(&sent, (SERVER, 7)).expect("it has room");
        hosts.until("the answer comes", |hosts| hosts.sockets.get_mut::<udp::Socket>(handle).can_recv());
        let (answer, _) = hosts.sockets.get_mut::<udp::Socket>(handle).recv().expect("it can receive");
        assert_eq!(answer, sent);
    }
    hosts.close();
}

#[test]
fn a_ping_is_answered() {
    let mut hosts = Hosts::new(&Params::default());
    let storage = || icmp::PacketBuffer::new(vec![icmp::PacketMetadata::EMPTY; 4], vec![0; 4096]);
    let mut socket = icmp::Socket::new(storage(), storage());
    socket.bind(icmp::Endpoint::Ident(7)).expect("a fresh socket");
    let echo = Icmpv4Repr::EchoRequest { ident: 7, seq_no: 1, data: &[9; 56] };
    let bytes = socket.send(echo.buffer_len(), SERVER.into()).expect("it has room");
    echo.emit(&mut Icmpv4Packet::new_unchecked(bytes), &ChecksumCapabilities::default());
    let handle = hosts.sockets.add(socket);
    hosts.until("the answer comes", |hosts| hosts.sockets.get_mut::<icmp::Socket>(handle).can_recv());
    let (answer, from) = hosts.sockets.get_mut::<icmp::Socket>(handle).recv().expect("it can receive");
    assert_eq!((answer[0], &answer[8..], from), (0, &[9; 56][..], SERVER.into()));
    hosts.close();
}

/// Bulk both ways is whole whatever the fault does, and the fault happens.
///
/// Each way has its own connection. If both ends of one send again at the same time, smoltcp 0.14 may stop
/// forever: its acknowledgements then have old sequence numbers, and the other end refuses them.
fn survives(faults: FaultParams, count: fn(FaultCounts) -> u64) {
    let mut hosts = Hosts::new(&Params { faults, ..Default::default() });
    hosts.connect(Service::Discard, [1 << 20, 0]);
    hosts.connect(Service::Generate, [0, 1 << 20]);
    hosts.until("two connections are over", |hosts| hosts.streams[..2].iter().all(|stream| stream.is_over));
    for end in &hosts.ends {
        let counts = end.phy.device.counts();
        assert!(count(counts) > 5, "{counts:?}");
    }
    hosts.finish();
}

#[test]
fn lost_packets_are_sent_again() {
    survives(FaultParams { drop: Chance::OneIn(50), ..Default::default() }, |counts| counts.dropped);
}

#[test]
fn packets_arrive_in_any_order() {
    survives(FaultParams { reorder: Chance::OneIn(20), ..Default::default() }, |counts| counts.reordered);
    survives(FaultParams { delay: Chance::OneIn(20), ..Default::default() }, |counts| counts.delayed);
}

#[test]
fn packets_arrive_twice() {
    survives(FaultParams { duplicate: Chance::OneIn(20), ..Default::default() }, |counts| counts.duplicated);
}

#[test]
fn corrupted_packets_are_not_taken() {
    survives(FaultParams { corrupt: Chance::OneIn(50), ..Default::default() }, |counts| counts.corrupted);
}

#[test]
fn completions_come_late() {
    let faults = FaultParams { stall_completions: Chance::OneIn(2), ..Default::default() };
    survives(faults, |counts| counts.stalled);
}

#[test]
fn transmits_are_refused() {
    let faults = FaultParams { refuse_transmits: Chance::OneIn(2), ..Default::default() };
    survives(faults, |counts| counts.refused);
}

#[test]
fn all_faults_come_together() {
    let chance = Chance::OneIn(60);
    let faults = FaultParams {
        drop: chance,
        duplicate: chance,
        reorder: chance,
        corrupt: chance,
        delay: chance,
        stall_completions: Chance::OneIn(3),
        refuse_transmits: Chance::OneIn(3),
        ..Default::default()
    };
    survives(faults, |counts| counts.dropped.min(counts.refused).min(counts.corrupted));
}

#[test]
fn a_ring_as_small_as_a_burst_is_enough() {
    for (ring, mtu) in [(64, 1500), (64, 8000), (18, 1500), (18, 8000)] {
        let mut hosts = Hosts::new(&Params { ring, mtu, ..Default::default() });
        bulk(&mut hosts, 1 << 20);
        hosts.finish();
    }
}

#[test]
fn too_few_pages_only_slow_it_down() {
    for pages in [65, 66, 70] {
        let mut hosts = Hosts::new(&Params { ring: 64, pages, ..Default::default() });
        hosts.connect(Service::Generate, [0, 1 << 20]);
        hosts.until("the stream is over", |hosts| hosts.streams[0].is_over);
        assert!(hosts.ends[0].phy.refused[1] > 0, "{pages}");
        bulk(&mut hosts, 1 << 20);
        hosts.finish();
    }
}

#[test]
fn too_few_pages_for_jumbo_packets_only_slow_it_down() {
    for pages in [66, 67, 68, 72] {
        let mut hosts = Hosts::new(&Params { mtu: 8000, ring: 64, pages, ..Default::default() });
        hosts.connect(Service::Generate, [0, 1 << 20]);
        hosts.until("the stream is over", |hosts| hosts.streams[0].is_over);
        bulk(&mut hosts, 1 << 20);
        hosts.finish();
    }
}

#[test]
fn closed_at_full_load_no_buffer_is_missing() {
    for steps in [1, 2, 5, 10, 50, 100, 500] {
        let mut hosts =
            Hosts::new(&Params { mtu: if steps % 2 == 0 { 8000 } else { 1500 }, ..Default::default() });
        bulk(&mut hosts, u64::MAX);
        (0..steps).for_each(|_| hosts.step());
        hosts.close();
    }
}
