//! What a driver says of received packets beside their bytes: a veth has the hash. Its VLAN tags are in a
//! unit test, which makes a packet with one.

use crate::veth;
use std::sync::Arc;

use crate::veth::Veth;
use pagepool::{Arena, ArenaParams, Bound, XdpBuff};
use pagepool_net::{
    Attach, Device, DeviceExt, OpenParams, OpenedDevice, Redirect, RxMetadataReader, Wake, XdpProgram,
    open_devices,
};
use pagepool_testing::FarEnd;

/// What is missing for tests of metadata.
fn missing() -> Option<String> {
    veth::missing().or_else(veth::no_metadata)
}

/// The redirect of `near0`.
fn redirect() -> (Arc<Redirect>, RxMetadataReader) {
    let redirect = Redirect::load_with_metadata("near0", false).expect("this kernel has all of it");
    let reader = redirect.rx_metadata().expect("it was loaded so");
    (redirect, reader)
}

/// A socket on queue 0 of `near0`, which gets its packets from now on.
fn socket(redirect: &Arc<Redirect>) -> (Box<dyn Device>, Bound) {
    let arena = ArenaParams { max_bytes: 16 << 20, commit_all: true, ..Default::default() };
    let arena = Arena::new(arena).expect("memory");
    let mut params = OpenParams::default();
    params.af_xdp.program = XdpProgram::Redirects(vec![redirect.clone()]);
    let mut opened = open_devices(&[("af_xdp:near0", &[0])], &params, &arena).expect("a free queue");
    let OpenedDevice { mut device, pool, .. } = opened.remove(0).remove(0);
    let pool = pool.bind();
    device.receive(&pool, &mut Vec::new(), 0);
    Redirect::start_all(std::slice::from_ref(redirect)).expect("nothing is attached");
    (device, pool)
}

fn one(device: &mut dyn Device, pool: &Bound) -> XdpBuff {
    let mut packets = Vec::with_capacity(8);
    while packets.is_empty() && device.wait(pool, veth::LIMIT) == Wake::Ready {
        device.receive(pool, &mut packets, 8);
    }
    assert_eq!(packets.len(), 1, "one was sent");
    packets.remove(0)
}

/// An IPv4 packet of UDP, with an Ethernet header, from this port.
fn datagram(port: u8) -> Vec<u8> {
    let mut frame = vec![0xff; 12];
    frame.extend([8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
    frame.extend([0x10, port, 0x20, 0, 0, 26, 0, 0]);
    frame.resize(60, 7);
    frame
}

#[test]
fn the_hash_of_a_flow_is_known() {
    let name = "the_hash_of_a_flow_is_known";
    if let Some(why) = missing() {
        return println!("SKIP {name}: {why}");
    }
    let veth = Veth::new(2, 1500);
    let (redirect, reader) = redirect();
    let (mut device, pool) = socket(&redirect);
    let mut far = veth.far_end(0);
    let mut hash_of = |port| {
        let sent = datagram(port);
        assert!(far.send(&sent));
        let mut packet = one(&mut *device, &pool);
        let before = packet.headroom();
        let metadata = reader.read(&mut packet).expect("the driver answers");
        assert_eq!((packet.data(), packet.headroom(), packet.meta().len()), (&*sent, before, 0));
        assert_eq!((metadata.timestamp, metadata.vlan), (None, None), "a veth has no clock, and this no tag");
        let hash = metadata.hash.expect("a veth has it");
        assert!(hash.has_ports() && hash.value != 0, "{hash:?}");
        assert_eq!(reader.read(&mut packet), None, "what was read is no later packet's");
        hash.value
    };
    let (first, second) = (hash_of(1), hash_of(2));
    assert_eq!((hash_of(1), hash_of(2)), (first, second), "of a flow it is always the same");
    assert_ne!(first, second);
    redirect.steer(&"udp and port 8192".parse().expect("an expression")).expect("a program with both");
    assert_eq!(hash_of(1), first, "what matches has its metadata");
    let other = Redirect::load_with_metadata("near1", false).expect("as near0");
    let other = other.rx_metadata().expect("it was loaded so");
    assert!(far.send(&datagram(3)));
    let mut packet = one(&mut *device, &pool);
    assert_eq!(other.read(&mut packet), None, "that is of another program");
    assert!(reader.read(&mut packet).is_some());
}

#[test]
fn a_driver_without_rx_metadata_is_refused_with_the_reason() {
    let name = "a_driver_without_rx_metadata_is_refused_with_the_reason";
    if let Some(why) = missing() {
        return println!("SKIP {name}: {why}");
    }
    let _veth = Veth::new(1, 1500);
    drop(redirect());
    let refused =
        Redirect::load_with_metadata("lo", false).and_then(|lo| lo.start()).unwrap_err().to_string();
    assert!(refused.contains("the driver of lo does not support metadata"), "{refused}");
    let plain = Redirect::load("near0", Attach::Auto, false).expect("a veth");
    assert_eq!(plain.rx_metadata(), None);
}
