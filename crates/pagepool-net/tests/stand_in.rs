//! What the kernel does with packets while the sockets of an interface change hands.

use crate::veth;
use std::rc::Rc;
use std::sync::Arc;

use crate::veth::{Far, Veth};
use pagepool::Error;
use pagepool_lab::{FrameSocket, TcpParams, TcpTransfer, TwoHosts, TwoHostsParams};
use pagepool_net::link::{Ethtool, Netlink, Offload};
use pagepool_net::{Attach, FarEnd, InPlace, Redirect, StandIn};

/// Packets of a test.
const MANY: usize = 40;

/// Two pairs of two queues each, or `None` and why there are none.
fn pairs(test: &str) -> Option<Rc<Veth>> {
    if let Some(why) = veth::missing().or_else(|| veth::older_than((6, 6))) {
        println!("SKIP {test}: {why}");
        return None;
    }
    Some(Veth::with_queues(2, 1500, 2))
}

fn loaded(how: Attach) -> Arc<Redirect> {
    Redirect::load("near0", how, false).expect("nothing is attached")
}

/// One at work, for both queues.
fn standing_in(redirect: &Arc<Redirect>, does: &InPlace) -> StandIn {
    let stand_in = redirect.stand_in(&[0, 1], does).expect("the kernel has all that it takes");
    stand_in.start().expect("the driver takes it");
    stand_in
}

/// A packet of IPv4: UDP, or TCP if its number is odd.
fn packet(number: usize, len: usize) -> Vec<u8> {
    let mut packet = vec![number as u8; len];
    packet[..6].copy_from_slice(&[2, 0, 0, 0, 0, 9]); // somebody else's address
    packet[6..12].copy_from_slice(&[2, 0, 0, 0, 0, number as u8 | 1]);
    packet[12..14].copy_from_slice(&[0x08, 0x00]);
    packet[14] = 0x45;
    packet[23] = if number.is_multiple_of(2) { 17 } else { 6 };
    packet
}

fn send_all(far: &mut Far, packets: &[Vec<u8>]) {
    packets.iter().for_each(|packet| assert!(far.send(packet), "the link is up"));
}

/// Waits until a socket of packets heard so many.
fn heard(tap: &FrameSocket, count: usize) {
    let (mut bytes, mut heard) = ([0; 2048], 0);
    veth::wait_until("packets that a tap hears", || {
        heard += usize::from(tap.receive(&mut bytes).expect("the link is up").is_some());
        heard == count
    });
}

fn attached() -> Option<u32> {
    let link = Netlink::open().expect("netlink").link("near0").expect("it is here");
    link.xdp.first().map(|there| there.id)
}

#[test]
fn packets_go_out_of_the_other_interface_unchanged() {
    let name = "packets_go_out_of_the_other_interface_unchanged";
    let Some(veth) = pairs(name) else { return };
    for how in [Attach::Native, Attach::Generic] {
        let (mut from, mut to) = (veth.far_end(0), veth.far_end(1));
        let redirect = loaded(how);
        let stand_in = standing_in(&redirect, &InPlace::SendTo("near1".into()));
        let packets: Vec<_> = (0..MANY).map(|number| packet(number, 60 + number * 30)).collect();
        send_all(&mut from, &packets);
        assert!(to.arriving(MANY) == packets, "{how:?}");
        assert_eq!(stand_in.packets(), MANY as u64, "{how:?}");
        drop(stand_in);
        let tap = FrameSocket::open_here("near0").expect("it is there");
        send_all(&mut from, &packets);
        heard(&tap, MANY);
        assert!(to.arriving(0).is_empty(), "{how:?}: they went to the stack");
    }
    assert_eq!(attached(), None);
}

/// The kernel takes tags out of the bytes on the way, and puts them back.
#[test]
fn tags_go_along_beside_packets_of_the_full_length() {
    let name = "tags_go_along_beside_packets_of_the_full_length";
    let Some(veth) = pairs(name) else { return };
    // A driver that took the tag along beside the bytes would hide it from the XDP program at the other end.
    Ethtool::open().and_then(|ethtool| ethtool.set_offload("near1", Offload::TxVlan, false)).expect("it can");
    let counts = veth.far().run(|| {
        let redirect = Redirect::load("far1", Attach::Auto, false).expect("nothing is attached");
        redirect.steer(&"vlan 100".parse().expect("a match")).expect("the kernel takes it");
        standing_in(&redirect, &InPlace::Drop)
    });
    let (mut from, mut to, redirect) = (veth.far_end(0), veth.far_end(1), loaded(Attach::Auto));
    let stand_in = standing_in(&redirect, &InPlace::SendTo("near1".into()));
    let packet = packet(0, 1514);
    let mut tagged = packet.clone();
    tagged.splice(12..12, [0x81, 0x00, 0x00, 100]);
    send_all(&mut from, &[packet.clone(), tagged]);
    assert!(to.arriving(2) == [packet.clone(), packet], "a socket of packets has the tag beside the bytes");
    assert_eq!((stand_in.packets(), counts.packets()), (2, 1));
    veth.far().run(move || drop(counts));
}

#[test]
fn packets_longer_than_the_mtu_there_are_dropped() {
    let name = "packets_longer_than_the_mtu_there_are_dropped";
    let Some(veth) = pairs(name) else { return };
    let mut netlink = Netlink::open().expect("netlink");
    let index = netlink.link("near1").expect("it is here").index;
    netlink.set_mtu(index, 1000).expect("it can be that short");
    let (mut from, mut to, redirect) = (veth.far_end(0), veth.far_end(1), loaded(Attach::Auto));
    let stand_in = standing_in(&redirect, &InPlace::SendTo("near1".into()));
    let packets = [1014, 1019, 1018, 1514, 60].map(|len| packet(0, len)); // a tag more than the MTU may pass
    send_all(&mut from, &packets);
    assert_eq!(to.arriving(3).iter().map(Vec::len).collect::<Vec<_>>(), [1014, 1018, 60]);
    assert_eq!(stand_in.packets(), 5);
}

#[test]
fn packets_come_back_with_their_addresses_exchanged() {
    let name = "packets_come_back_with_their_addresses_exchanged";
    let Some(veth) = pairs(name) else { return };
    let (mut far, redirect) = (veth.far_end(0), loaded(Attach::Auto));
    let stand_in = standing_in(&redirect, &InPlace::Echo);
    let mut packets: Vec<_> = (0..MANY).map(|number| packet(number, 60)).collect();
    send_all(&mut far, &packets);
    packets.iter_mut().for_each(|packet| pagepool_net::swap_macs(packet));
    assert_eq!(far.arriving(MANY), packets);
    assert_eq!(stand_in.packets(), MANY as u64);
}

/// The kernel merges segments between the XDP program and the traffic control (GRO).
#[test]
fn tcp_goes_through_and_merged_segments_count_one_by_one() {
    let name = "tcp_goes_through_and_merged_segments_count_one_by_one";
    if let Some(why) = veth::missing().or_else(|| veth::older_than((6, 6))) {
        return println!("SKIP {name}: {why}");
    }
    let hosts = TwoHosts::new(&TwoHostsParams::default()).expect("root may have them");
    let stand_ins = hosts.run_between(|| {
        [("near0", "near1"), ("near1", "near0")].map(|(from, to)| {
            let redirect = Redirect::load(from, Attach::Native, false).expect("nothing is attached");
            let stand_in = standing_in(&redirect, &InPlace::SendTo(to.into()));
            let ethtool = Ethtool::open().expect("a socket for it");
            ethtool.set_offload(from, Offload::Gro, true).expect("a veth has it");
            stand_in
        })
    });
    let (from, to) = (&hosts.a.namespace, &hosts.b);
    let params = TcpParams { bytes: 8 << 20, ..TcpParams::default() };
    let transfer = TcpTransfer::start(from, &to.namespace, to.address, params).expect("both are there");
    let report = transfer.join().expect("everything is forwarded");
    assert!(report.is_whole() && report.received == params.bytes, "{report:?}");
    let counted = stand_ins.each_ref().map(StandIn::packets);
    assert!(counted[0] >= params.bytes / 1460 && counted[1] > 0, "{counted:?}");
    hosts.run_between(move || drop(stand_ins));
}

/// UDP alone, and of one queue; the rest is for the stack, which does not forward it.
#[test]
fn it_takes_what_the_sockets_would_get() {
    let name = "it_takes_what_the_sockets_would_get";
    let Some(veth) = pairs(name) else { return };
    veth::pin(veth::cpus()[0]); // a socket of packets sends by the queue of its CPU
    let packets: Vec<_> = (0..MANY).map(|number| packet(number, 60)).collect();
    let taken_with = |queues: &[u32], by: Option<&str>| {
        let (mut far, redirect) = (veth.far_end(0), loaded(Attach::Auto));
        let by = by.map(|by| by.parse().expect("a match"));
        by.map_or(Ok(()), |by| redirect.steer(&by)).expect("the kernel takes it");
        let stand_in = redirect.stand_in(queues, &InPlace::Drop).expect("as the others");
        stand_in.start().expect("the driver takes it");
        let tap = FrameSocket::open_here("near0").expect("it is there");
        send_all(&mut far, &packets);
        heard(&tap, MANY); // right before they are taken
        stand_in.end() // after a grace period
    };
    let [both, first, second, none] = [&[0, 1][..], &[0], &[1], &[]].map(|queues| taken_with(queues, None));
    assert_eq!((both, first + second, none), (MANY as u64, MANY as u64, 0));
    assert_eq!(taken_with(&[0, 1], Some("udp")), MANY as u64 / 2);
    assert_eq!(taken_with(&[0, 1], Some("udp port 1 and tcp")), 0);
}

#[test]
fn it_gives_way_to_the_sockets_and_does_not_take_from_them() {
    let name = "it_gives_way_to_the_sockets_and_does_not_take_from_them";
    let Some(veth) = pairs(name) else { return };
    let (mut far, redirect) = (veth.far_end(0), loaded(Attach::Auto));
    let stand_in = redirect.stand_in(&[0, 1], &InPlace::Drop).expect("as the others");
    let tap = FrameSocket::open_here("near0").expect("it is there");
    send_all(&mut far, &[packet(0, 60)]);
    heard(&tap, 1);
    assert_eq!((stand_in.packets(), attached()), (0, None), "nothing happens before the start");
    stand_in.start().expect("the driver takes it");
    assert!(attached().is_some_and(|id| Some(id) != redirect.program_id()));
    redirect.start().expect("it is attached");
    assert_eq!(attached(), redirect.program_id());
    let refused = stand_in.start().unwrap_err();
    assert!(matches!(refused, Error::Busy { .. }) && refused.to_string().contains("near0"), "{refused}");
    drop(stand_in);
    assert_eq!(attached(), redirect.program_id());
    redirect.stop();
    let stand_in = standing_in(&redirect, &InPlace::Drop);
    let marking = attached();
    drop(stand_in);
    assert!(attached().is_some_and(|id| Some(id) != redirect.program_id()) && attached() != marking);
}

#[test]
fn what_it_cannot_stand_in_for_is_refused() {
    let name = "what_it_cannot_stand_in_for_is_refused";
    let Some(_veth) = pairs(name) else { return };
    let redirect = loaded(Attach::Auto);
    let refused = |redirect: &Arc<Redirect>, does| redirect.stand_in(&[0], &does).unwrap_err().to_string();
    let said = refused(&redirect, InPlace::SendTo("nowhere".into()));
    assert!(said.contains("nowhere"), "{said}");
    let theirs = Redirect::over_map(redirect.map().try_clone_to_owned().expect("descriptors are left"));
    let said = refused(&theirs, InPlace::Drop);
    assert!(said.contains("the map of another XDP program"), "{said}");
    match Redirect::load_beside("near0", Attach::Auto, false, 50) {
        Ok(chained) => assert!(refused(&chained, InPlace::Drop).contains("one in a chain")),
        Err(error) => println!("SKIP a chain of {name}: {error}"),
    }
    let two = [redirect.stand_in(&[0], &InPlace::Drop), redirect.stand_in(&[0], &InPlace::Echo)];
    assert!(two.iter().all(Result::is_ok), "each has a mark of its own");
}
