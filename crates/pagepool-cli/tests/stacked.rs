//! Interfaces that others hand packets to: what a command warns of that works on a macvlan, a VLAN interface
//! or a bridge.

use std::process::Command;

use crate::between::{Ends, LIMIT, Place, binary, ok, text, wait_until};
use pagepool_lab::{TempFolder, or_skip};
use pagepool_link::{Ethtool, Namespace, VethEnd};
use serde_json::Value;

/// A namespace in which `near0` and `far0` are the ends of a veth, or a line that says why there is none.
pub fn with_veth(test: &str) -> Option<Namespace> {
    let namespace = or_skip(test, Namespace::new("veth"))?;
    let mut netlink = ok(namespace.netlink());
    let end = |name| VethEnd { name, namespace: None, mac: None, mtu: 1500, queues: 1 };
    ok(netlink.add_veth(&end("near0"), &end("far0")));
    for link in ["near0", "far0"] {
        let index = ok(netlink.link(link)).index;
        ok(netlink.set_up(index, true));
    }
    for link in ["near0", "far0"] {
        ok(netlink.wait_up(link, LIMIT));
    }
    Some(namespace)
}

/// Runs `ip` with these words, or prints why that cannot be.
pub fn ip(test: &str, namespace: &Namespace, words: &[&str]) -> Option<()> {
    let (shown, words) = (words.join(" "), words.iter().map(ToString::to_string).collect::<Vec<_>>());
    let done = namespace.run(move || Command::new("ip").args(words).output());
    if done.is_ok_and(|done| done.status.success()) {
        return Some(());
    }
    println!("SKIP {test}: no `ip {shown}`, or a kernel without that");
    None
}

/// What a second of this command warns of, by its JSON; `None` where AF_XDP is not.
fn warnings(test: &str, namespace: &Namespace, arguments: &[&str]) -> Option<String> {
    let running = Place::In(namespace).start(test, arguments)?;
    let warnings = running.interrupt()["warnings"].clone();
    let all = warnings.as_array().expect("a list").iter().filter_map(|warning| warning.as_str());
    Some(all.collect::<Vec<_>>().join("\n"))
}

/// One interface over `near0`, of this kind.
fn over_near(test: &str, kind: &[&str]) -> Option<Namespace> {
    let namespace = with_veth(test)?;
    ip(test, &namespace, &[&["link", "add", "name", "top0", "link", "near0", "type"], kind].concat())?;
    ip(test, &namespace, &["link", "set", "top0", "up"])?;
    Some(namespace)
}

const LOST: &str = "packets arrive at top0 without VLAN tags, and are sent back without them";
const BELOW: &str = "below top0: packets from near0's peer far0 arrive without checksums, or longer than the \
                     MTU. Run: ethtool -K far0 tx off";

#[test]
fn a_macvlan_warns_of_lost_tags_and_names_the_peer_below() {
    let name = "a_macvlan_warns_of_lost_tags_and_names_the_peer_below";
    let kinds: [&[&str]; 3] =
        [&["macvlan", "mode", "bridge"], &["macvtap", "mode", "bridge"], &["ipvlan", "mode", "l2"]];
    for kind in kinds {
        let Some(namespace) = over_near(name, kind) else { continue };
        let Some(said) = warnings(name, &namespace, &["echo", "top0"]) else { return };
        let lost = format!(
            "{LOST}: the kernel removes tags before it passes packets to an interface of kind {}",
            kind[0]
        );
        assert!(said.contains(&lost) && said.contains("use near0"), "{said}");
        assert!(said.contains(BELOW) && !said.contains("txvlan"), "{said}");
        namespace.run(|| ok(ok(Ethtool::open()).send_whole_packets("far0")));
        let said = warnings(name, &namespace, &["drop", "top0"]).expect("it ran before");
        assert!(said.contains(&lost) && !said.contains("far0"), "nothing helps against that: {said}");
    }
}

#[test]
fn a_vlan_interface_keeps_inner_tags_and_has_the_offloads_below() {
    let name = "a_vlan_interface_keeps_inner_tags_and_has_the_offloads_below";
    let Some(namespace) = over_near(name, &["vlan", "id", "5"]) else { return };
    let Some(said) = warnings(name, &namespace, &["drop", "top0"]) else { return };
    assert!(said.contains(BELOW) && !said.contains("VLAN tags"), "{said}");
    namespace.run(|| ok(ok(Ethtool::open()).send_whole_packets("far0")));
    namespace.run(|| ok(ok(Ethtool::open()).set_offload("near0", pagepool_link::Offload::Gro, false)));
    assert_eq!(warnings(name, &namespace, &["drop", "top0"]).as_deref(), Some(""));
}

#[test]
fn a_bridge_and_links_above_it_have_the_offloads_of_its_ports() {
    let name = "a_bridge_and_links_above_it_have_the_offloads_of_its_ports";
    let Some(namespace) = with_veth(name) else { return };
    let made = ["link add name top0 type bridge", "link set near0 master top0", "link set top0 up"];
    for words in made {
        let words: Vec<_> = words.split(' ').collect();
        if ip(name, &namespace, &words).is_none() {
            return;
        }
    }
    let Some(said) = warnings(name, &namespace, &["echo", "top0"]) else { return };
    assert!(said.contains(LOST) && said.contains("kind bridge") && said.contains("use near0"), "{said}");
    assert!(said.contains(BELOW), "{said}");
    let words = ["link", "add", "name", "high0", "link", "top0", "type", "macvlan", "mode", "bridge"];
    if ip(name, &namespace, &words).is_none()
        || ip(name, &namespace, &["link", "set", "high0", "up"]).is_none()
    {
        return;
    }
    let said = warnings(name, &namespace, &["drop", "high0"]).expect("it ran before");
    assert!(said.contains("arrive at high0 without VLAN tags") && said.contains("use top0"), "{said}");
    assert!(said.contains(&BELOW.replace("top0", "high0")), "two below: {said}");
}

#[test]
fn fixing_offloads_below_a_macvlan_leaves_the_tag_warning() {
    let name = "fixing_offloads_below_a_macvlan_leaves_the_tag_warning";
    let Some(namespace) = over_near(name, &["macvlan", "mode", "bridge"]) else { return };
    let on = || namespace.run(|| ok(ok(Ethtool::open()).offloads("far0")));
    let before = on();
    let Some(running) = Place::In(&namespace).start(name, &["drop", "top0", "--fix-offloads"]) else {
        return;
    };
    wait_until("some are off", || on().len() < before.len());
    let warnings = running.interrupt()["warnings"].to_string();
    assert!(warnings.contains(LOST) && !warnings.contains("checksums"), "{warnings}");
    assert_eq!(on(), before, "as it was");
}

#[test]
fn unchecked_bridge_ports_cause_a_warning() {
    let name = "unchecked_bridge_ports_cause_a_warning";
    let Some(namespace) = with_veth(name) else { return };
    if ip(name, &namespace, &["link", "add", "name", "top0", "type", "bridge"]).is_none() {
        return;
    }
    for port in (0..18).map(|port| format!("port{port}")) {
        let end = ["link", "add", &port, "type", "veth", "peer", "name", &format!("of-{port}")];
        if ip(name, &namespace, &end).is_none()
            || ip(name, &namespace, &["link", "set", &port, "master", "top0"]).is_none()
        {
            return;
        }
    }
    if ip(name, &namespace, &["link", "set", "top0", "up"]).is_none() {
        return;
    }
    let Some(said) = warnings(name, &namespace, &["echo", "top0"]) else { return };
    assert!(said.contains("it has 2 ports more than the limit of 16"), "{said}");
}

#[test]
fn unreachable_lower_interfaces_cause_a_warning() {
    let name = "unreachable_lower_interfaces_cause_a_warning";
    let Some(host) = over_near(name, &["macvlan", "mode", "bridge"]) else { return };
    let container = ok(Namespace::new("container"));
    let sleep = || Command::new("sleep").arg("60").spawn().map(Ends).expect("every Linux has sleep");
    let to = container.run(sleep); // nobody leads to the host
    if ip(name, &host, &["link", "set", "top0", "netns", &to.0.id().to_string()]).is_none()
        || ip(name, &container, &["link", "set", "top0", "up"]).is_none()
    {
        return;
    }
    let folder = TempFolder::new("pagepool-below").expect("a new folder");
    let mut drop = binary(&["drop", "top0"]);
    drop.env("PAGEPOOL_RUN", folder.path());
    let Some(running) = Place::In(&container).start_command(name, drop) else { return };
    let words = "packets may arrive at top0 without checksums and VLAN tags, or longer than the MTU: the \
                 offloads of the interfaces below it cannot be read: no `ip netns` name";
    let mut doctor = binary(&["doctor", "--seconds", "1", "--json"]);
    doctor.env("PAGEPOOL_RUN", folder.path());
    let seen = Place::In(&container).output(doctor);
    let seen: Value = serde_json::from_str(text(&seen.stdout)).expect("JSON");
    assert!(seen["not_judged"].to_string().contains(words), "{seen:#}");
    let warnings = running.interrupt()["warnings"].to_string();
    assert!(warnings.contains(words), "{warnings}");
}

/// A container's macvlan: the interface that it stands on is in the namespace of the host.
#[test]
fn a_macvlan_has_offloads_of_its_link_in_another_namespace() {
    let name = "a_macvlan_has_offloads_of_its_link_in_another_namespace";
    let Some(host) = over_near(name, &["macvlan", "mode", "bridge"]) else { return };
    let container = ok(Namespace::new("container"));
    let sleep = |of: &Namespace| {
        of.run(|| {
            Command::new("sleep").arg("60").spawn().map(crate::between::Ends).expect("every Linux has sleep")
        })
    };
    let (in_host, in_container) = (sleep(&host), sleep(&container));
    let to = in_container.0.id().to_string();
    if ip(name, &host, &["link", "set", "top0", "netns", &to]).is_none()
        || ip(name, &container, &["link", "set", "top0", "up"]).is_none()
    {
        return;
    }
    let Some(said) = warnings(name, &container, &["drop", "top0"]) else { return };
    assert!(said.contains(LOST) && said.contains("use an interface below it"), "{said}");
    let below = "below top0: packets from near0's peer far0 in network namespace ";
    let enters = format!("nsenter --net=/proc/{}/ns/net ethtool -K far0 tx off", in_host.0.id());
    assert!(said.contains(below) && (said.contains(&enters) || said.contains("ip netns exec")), "{said}");
}
