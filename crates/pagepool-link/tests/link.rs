//! Links of network namespaces, against the kernel. Everything happens in namespaces that the tests make.

#![expect(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use pagepool_lab::{LinkSettings, or_skip};
use pagepool_link::{
    Caution, Ethtool, LinkError, LinkInfo, Mac, Namespace, Netlink, Offload, SshSession, VethEnd, XdpMode,
    cautions, offload_faults,
};

/// The kernel removes namespaces when it has time.
const LIMIT: Duration = Duration::from_secs(60);

/// A namespace, if this machine can have one.
fn namespace(test: &str) -> Option<Namespace> {
    or_skip(test, Namespace::new("test"))
}

fn end(name: &str) -> VethEnd<'_> {
    VethEnd { name, namespace: None, mac: None, mtu: 1500, queues: 1 }
}

fn names(netlink: &mut Netlink) -> Vec<String> {
    netlink.links().unwrap().into_iter().map(|link| link.name).collect()
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < LIMIT, "{what}, after {LIMIT:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_veth_pair_is_as_requested_and_ends_with_either_namespace() {
    let Some(here) = namespace("a_veth_pair_is_as_requested_and_ends_with_either_namespace") else { return };
    let there = Namespace::new("there").unwrap();
    let mut netlink = here.netlink().unwrap();
    let near = VethEnd { mac: Some(Mac([2, 0, 0, 0, 0, 1])), queues: 3, ..end("near") };
    let far = VethEnd {
        namespace: Some(there.as_fd()),
        mtu: 9000,
        mac: Some(Mac([2, 0, 0, 0, 0, 2])),
        ..end("far")
    };
    netlink.add_veth(&near, &far).unwrap();
    let link = netlink.link("near").unwrap();
    assert_eq!((link.mtu, link.mac, link.kind.as_deref()), (1500, near.mac, Some("veth")));
    assert_eq!((link.rx_queues, link.tx_queues, link.is_up, link.lower), (3, 3, false, None));
    assert!(link.xdp.is_empty());
    let mut over_there = there.netlink().unwrap();
    let other = over_there.link("far").unwrap();
    assert_eq!((other.mtu, other.mac, other.rx_queues), (9000, far.mac, 1));

    netlink.set_mtu(link.index, 2000).unwrap();
    netlink.set_mac(link.index, Mac([2, 0, 0, 0, 0, 9])).unwrap();
    netlink.set_up(link.index, true).unwrap();
    over_there.set_up(other.index, true).unwrap();
    let link = netlink.wait_up("near", LIMIT).unwrap();
    assert_eq!((link.mtu, link.mac, link.is_up), (2000, Some(Mac([2, 0, 0, 0, 0, 9])), true));
    netlink.set_up(link.index, false).unwrap();
    assert!(!netlink.link("near").unwrap().is_up);

    drop((over_there, there));
    wait_until("the kernel removed the pair", || names(&mut netlink) == ["lo"]);
}

#[test]
fn refusals_say_what_and_why() {
    let Some(lab) = namespace("refusals_say_what_and_why") else { return };
    let mut netlink = lab.netlink().unwrap();
    netlink.add_veth(&end("one"), &end("two")).unwrap();
    let text = |result: Result<(), LinkError>| result.unwrap_err().to_string();
    let exists = text(netlink.add_veth(&end("one"), &end("three")));
    assert!(
        exists.contains("the veth pair one and three") && exists.contains("choose another name"),
        "{exists}"
    );
    let index = netlink.link("one").unwrap().index;
    let mtu = text(netlink.set_mtu(index, 10_000_000));
    assert!(
        mtu.contains("of link") && mtu.contains("saying \"") && mtu.contains("mtu"),
        "the kernel's words: {mtu}"
    );
    let queues = text(netlink.add_veth(&VethEnd { queues: 5000, ..end("a") }, &end("b")));
    assert!(queues.contains("saying \"") && queues.contains("queues"), "{queues}");
    match netlink.link("none") {
        Err(LinkError::NoLink { name, known }) => {
            assert_eq!((name.as_str(), known), ("none", vec!["lo".to_owned(), "two".into(), "one".into()]));
        }
        other => panic!("{other:?}"),
    }
    assert!(
        matches!(netlink.link("a/b"), Err(LinkError::NoLink { .. })),
        "an alternative name might be that"
    );
    assert!(matches!(netlink.link(""), Err(LinkError::OutOfRange { .. })));
    netlink.delete(index).unwrap();
    assert_eq!(names(&mut netlink), ["lo"]);
    let gone = netlink.delete(index).unwrap_err();
    assert!(gone.to_string().contains("the link was removed"), "{gone}");
    assert!(std::error::Error::source(&gone).is_some());
}

#[test]
fn offloads_are_turned_off_and_queues_are_counted() {
    let Some(lab) = namespace("offloads_are_turned_off_and_queues_are_counted") else { return };
    let mut netlink = lab.netlink().unwrap();
    netlink.add_veth(&VethEnd { queues: 2, ..end("one") }, &end("two")).unwrap();
    let ethtool = lab.ethtool().unwrap();
    let before = ethtool.offloads("one").unwrap();
    assert!(Offload::OF_SENDER.iter().all(|offload| before.contains(offload)), "{before:?}");
    ethtool.send_whole_packets("one").unwrap();
    let after = ethtool.offloads("one").unwrap();
    assert!(Offload::OF_SENDER.iter().all(|offload| !after.contains(offload)), "{after:?}");
    for on in [true, false] {
        ethtool.set_offload("one", Offload::Gro, on).unwrap();
        assert_eq!(ethtool.offloads("one").unwrap().contains(&Offload::Gro), on);
    }
    let fixed = ethtool.set_offload("one", Offload::Lro, true).unwrap_err();
    let text = "large-receive-offload of \"one\" stays off; use an interface whose driver can turn it on";
    assert_eq!(fixed.to_string(), text);
    assert_eq!(ethtool.driver("one").unwrap().as_deref(), Some("veth"));
    let channels = ethtool.channels("one").unwrap().unwrap();
    assert_eq!((channels.rx, channels.tx, channels.max_rx, channels.max_tx), (2, 2, 2, 2));
    let none = ethtool.driver("none").unwrap_err().to_string();
    assert!(none.contains("\"none\"") && none.contains("another network namespace"), "{none}");
    assert!(ethtool.driver("a-name-that-is-too-long").is_err());
}

/// The offloads of both ends that falsify what arrives at a link of the thread's namespace.
fn faults(link: &LinkInfo, mode: XdpMode) -> Vec<pagepool_link::OffloadFault> {
    offload_faults(&mut Netlink::open().unwrap(), &Ethtool::open().unwrap(), link, mode).unwrap()
}

#[test]
fn harmful_offloads_are_found_held_off_and_restored() {
    let Some(lab) = namespace("harmful_offloads_are_found_held_off_and_restored") else { return };
    lab.run(|| {
        let (mut netlink, ethtool) = (Netlink::open().unwrap(), Ethtool::open().unwrap());
        netlink.add_veth(&end("one"), &end("two")).unwrap();
        let one = netlink.link("one").unwrap();
        ethtool.set_offload("two", Offload::Tso, false).unwrap();
        let before = ethtool.offloads("two").unwrap();
        let found = faults(&one, XdpMode::Native);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].offloads, Offload::OF_SENDER[1..], "those that are on");
        assert!(found[0].owner.is_here() && found[0].owner.to_string() == "two", "{found:?}");
        assert!(found[0].description().contains("peer two"), "{}", found[0]);
        let command = "ethtool -K two tx off gso off txvlan off tx-vlan-stag-hw-insert off";
        assert_eq!(found[0].command().unwrap(), command);
        assert!(found[0].to_string().ends_with(command), "{}", found[0]);

        let mut held = found[0].hold_off().unwrap().expect("its own");
        assert_eq!(faults(&one, XdpMode::Native), []);
        let undo = held.undo();
        assert!(undo.starts_with("ethtool -K two ") && undo.contains(" tx-vlan-hw-insert on"), "{undo}");
        assert!(!undo.contains("tx-tcp-segmentation"), "it was off: {undo}");
        held.restore().unwrap();
        assert_eq!(ethtool.offloads("two").unwrap(), before);
        drop(found[0].hold_off().unwrap());
        assert_eq!(ethtool.offloads("two").unwrap(), before, "dropping does the same");

        let mut held = found[0].hold_off().unwrap().expect("its own");
        let renamed = Command::new("ip").args(["link", "set", "two", "name", "three"]).status();
        let name = if renamed.is_ok_and(|status| status.success()) { "three" } else { "two" };
        assert!(held.undo().starts_with(&format!("ethtool -K {name} ")), "{}", held.undo());
        held.restore().unwrap();
        assert_eq!(ethtool.offloads(name).unwrap(), before, "under whatever name");

        ethtool.set_offload("one", Offload::Gro, true).unwrap();
        let generic = faults(&one, XdpMode::Generic);
        assert_eq!((generic.len(), &generic[1].offloads[..]), (2, &[Offload::Gro][..]), "{generic:?}");
        let held = generic[0].hold_off().unwrap().expect("its peer's");
        netlink.delete(one.index).unwrap();
        held.restore().unwrap(); // there is nothing to put back
    });
}

#[test]
fn the_offloads_of_a_hidden_peer_are_presumed_and_left_alone() {
    let Some(here) = namespace("the_offloads_of_a_hidden_peer_are_presumed") else { return };
    let there = Namespace::new("there").unwrap();
    let mut netlink = here.netlink().unwrap();
    netlink.add_veth(&end("near"), &VethEnd { namespace: Some(there.as_fd()), ..end("far") }).unwrap();
    let near = netlink.link("near").unwrap();
    let found = here.run(move || faults(&near, XdpMode::Native));
    assert!(
        matches!(found[..], [ref fault] if fault.owner.hidden().is_some()),
        "a thread of this process has it, and no name: {found:?}"
    );
    assert!(found[0].description().contains("near's peer"), "{}", found[0]);
    assert_eq!(found[0].offloads, Offload::OF_SENDER);
    assert!(found[0].hold_off().unwrap().is_none(), "they are out of reach");
    assert_eq!(
        here.ethtool().unwrap().offloads("near").unwrap().len(),
        there.ethtool().unwrap().offloads("far").unwrap().len()
    );
}

#[test]
fn who_carries_what_is_known() {
    let Some(lab) = namespace("who_carries_what_is_known") else { return };
    let mut netlink = lab.netlink().unwrap();
    netlink.add_veth(&end("out"), &end("peer")).unwrap();
    netlink.add_veth(&end("idle"), &end("idle-peer")).unwrap();
    let index = |netlink: &mut Netlink, name: &str| netlink.link(name).unwrap().index;
    let (out, idle) = (index(&mut netlink, "out"), index(&mut netlink, "idle"));
    let peer = index(&mut netlink, "peer");
    netlink.add_address(out, Ipv4Addr::new(192, 0, 2, 1), 24).unwrap();
    for link in [out, peer] {
        netlink.set_up(link, true).unwrap();
    }
    let session = SshSession { client: IpAddr::from([192, 0, 2, 7]), server: IpAddr::from([192, 0, 2, 1]) };
    let unreachable = SshSession { client: IpAddr::from([198, 51, 100, 1]), ..session };
    let by_address = cautions(&mut netlink, out, Some(unreachable)).unwrap();
    assert_eq!(by_address, [Caution::SshSession(unreachable)], "the link has the server's address");
    let by_route = SshSession { server: IpAddr::from([198, 51, 100, 2]), ..session };
    assert_eq!(cautions(&mut netlink, out, Some(by_route)).unwrap(), [Caution::SshSession(by_route)]);
    let neither = SshSession { server: by_route.server, ..unreachable };
    assert_eq!(cautions(&mut netlink, out, Some(neither)).unwrap(), []);
    assert_eq!(cautions(&mut netlink, out, Some(session)).unwrap(), [Caution::SshSession(session)]);
    assert_eq!(cautions(&mut netlink, peer, Some(session)).unwrap().len(), 1, "what its peer carries");
    assert_eq!(cautions(&mut netlink, idle, Some(session)).unwrap(), []);
    assert_eq!(cautions(&mut netlink, out, None).unwrap(), []);
    netlink.add_route(Ipv4Addr::UNSPECIFIED, 0, Ipv4Addr::new(192, 0, 2, 254)).unwrap();
    assert_eq!(cautions(&mut netlink, out, None).unwrap(), [Caution::DefaultRoute]);
}
