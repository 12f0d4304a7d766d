//! Packets come back, byte for byte.

use pagepool_net::{OpenParams, open_devices};
use pagepool_vhost_back_end::{BackEnd, Counts, FEATURES, Mode, Params};

use crate::host::Host;
use crate::{LIMIT, arena, files, open, place, short_rings};

/// So many packets come back from a back end with these features, and are counted at both ends.
fn echoes(count: usize, features: u64, params: &OpenParams, longest: usize) {
    let (folder, socket) = place();
    let back_end = BackEnd::start(Params { features, ..Params::new(&socket, Mode::Echo) }).unwrap();
    let mut host = Host::open(&socket, "", params).with_packets_up_to(longest);
    host.run_until(count, |host| host.received == count);
    host.run_until(count, |host| host.device.stats().in_tx == 0);
    let stats = host.device.stats();
    let moved = [stats.rx_packets, stats.tx_packets, stats.tx_completed].map(|moved| moved as usize);
    assert_eq!(moved, [count; 3], "{stats:?}");
    host.end();
    let count = count as u64;
    assert_eq!(back_end.stop(), Counts { connections: 1, taken: count, put: count, lost: 0, bad: 0 });
    assert_eq!(files(&folder), 0);
}

#[test]
fn packets_come_back_as_they_were() {
    echoes(5000, FEATURES, &OpenParams::default(), 1500);
}

#[test]
fn packets_come_back_through_short_rings() {
    echoes(5000, FEATURES, &short_rings(), 1500);
}

#[test]
fn packets_come_back_without_features() {
    let params = OpenParams { multi_buffer: false, ..short_rings() };
    echoes(5000, 0, &params, 1500);
}

#[test]
fn packets_of_several_buffers_come_back() {
    echoes(1000, FEATURES, &short_rings(), 9000);
}

#[test]
fn a_back_end_can_connect() {
    let (folder, socket) = place();
    let params = Params { connect: true, ..Params::new(&socket, Mode::Echo) };
    let mut back_end = BackEnd::start(params.clone()).unwrap();
    let mut host = Host::open(&socket, ",server=1", &short_rings());
    for _ in 0..3 {
        host.exchange(500);
        drop(back_end);
        back_end = BackEnd::start(params.clone()).unwrap();
    }
    host.exchange(500);
    host.end();
    assert_eq!(files(&folder), 0, "the front end removes its socket");
}

#[test]
fn a_queue_pair_that_does_not_exist_is_an_error() {
    let (_folder, socket) = place();
    let back_end = BackEnd::start(Params::new(&socket, Mode::Echo)).unwrap();
    let name = format!("vhost_user:{}", socket.display());
    let error = open_devices(&[(&name, &[0, 1])], &short_rings(), &arena()).map(drop).unwrap_err();
    assert!(error.to_string().contains(&name), "{error}");
    let mut host = Host::open(&socket, "", &short_rings());
    host.exchange(100);
    host.end();
    assert_eq!(back_end.stop().bad, 0);
}

#[test]
fn generated_packets_arrive() {
    let (_folder, socket) = place();
    let back_end = BackEnd::start(Params::new(&socket, Mode::Generate { len: 1514 })).unwrap();
    let opened = open(&socket, "", &[0], &OpenParams::default()).remove(0);
    let (mut device, pool) = (opened.device, opened.pool.bind());
    let (mut packets, mut number) = (Vec::with_capacity(64), 0u64);
    while number < 20_000 {
        device.receive(&pool, &mut packets, 64);
        for packet in packets.drain(..) {
            assert_eq!((packet.len(), &packet.data()[14..22]), (1514, &number.to_be_bytes()[..]));
            number += 1;
        }
    }
    device.close();
    assert_eq!(pool.inflight().out, 0);
    assert!(back_end.stop().put >= number);
}

#[test]
fn dropped_packets_are_counted() {
    let (_folder, socket) = place();
    let back_end = BackEnd::start(Params::new(&socket, Mode::Drop)).unwrap();
    let mut host = Host::open(&socket, "", &short_rings());
    host.run_until(5000, |host| host.device.stats().tx_completed == 5000);
    assert!(back_end.pair(0).wait(LIMIT, |_, counts| counts.taken == 5000));
    host.end();
    assert_eq!(back_end.stop(), Counts { connections: 1, taken: 5000, ..Default::default() });
}
