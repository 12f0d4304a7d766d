//! What somebody else does to an interface while a command works on it: the MTU, the XDP program, and moving
//! the interface away.

use std::process::{Command, Stdio};

use crate::between::{Ends, LinkLosses, Place, Running, far_ends, frames, hosts, number, ok, send, signal};
use pagepool_lab::LinkSettings;
use pagepool_link::{Netlink, TwoHosts, TwoHostsParams};

fn one_queue(test: &str) -> Option<TwoHosts> {
    hosts(test, &TwoHostsParams::default())
}

/// Sends frames of a size to `near0`, and waits until the command has received them, or lost them.
fn feed(hosts: &TwoHosts, running: &Running, size: usize) {
    let (before, came) = (LinkLosses::now(hosts), running.counted(&["rx_packets"]) + running.unreceived());
    let ([far, _], frames, mut frame) = (far_ends(hosts), frames(hosts, 0, size), vec![0; size]);
    for number in 0..64 {
        frames.write(number, &mut frame);
        send(&far, &frame);
    }
    before.wait_for_all(hosts, running, came + 64);
}

#[test]
fn an_interface_that_moves_away_ends_a_run_with_the_verdict() {
    let name = "an_interface_that_moves_away_ends_a_run_with_the_verdict";
    for command in
        [&["drop", "near0"][..], &["forward", "near1", "near0"], &["gen", "near0", "--rate", "100"]]
    {
        let Some(hosts) = one_queue(name) else { return };
        let Some(running) = Place::Between(&hosts).start(name, command) else { return };
        let sleeper = hosts.b.namespace.run(|| Command::new("sleep").arg("60").stdin(Stdio::null()).spawn());
        let there = Ends(sleeper.expect("every Linux has sleep"));
        let to = there.0.id().to_string();
        let moved = hosts.run_between(move || {
            Command::new("ip").args(["link", "set", "near0", "name", "moved0", "netns", &to]).status()
        });
        if !moved.is_ok_and(|status| status.success()) {
            return println!("SKIP {name}: no `ip` that moves an interface");
        }
        let document = running.end();
        assert_eq!(
            (&document["ended_by"], &document["gone"]),
            (&"gone".into(), &"near0:0".into()),
            "{command:?}"
        );
    }
}

/// `bpftool` with these words, and what it prints.
fn bpftool(words: &[&str]) -> Option<Vec<u8>> {
    let output = Command::new("bpftool").args(words).output().ok()?;
    output.status.success().then_some(output.stdout)
}

/// Detaches an XDP program by force; whether that was done.
fn detach(program: u32) -> bool {
    let Some(links) = bpftool(&["-j", "link", "show"]) else { return false };
    let links: serde_json::Value = serde_json::from_slice(&links).expect("JSON");
    let of = links.as_array().into_iter().flatten().find(|link| link["prog_id"] == program);
    let id = of.expect("the program is attached by a link")["id"].to_string();
    bpftool(&["link", "detach", "id", &id]).is_some()
}

#[test]
fn a_run_fails_if_its_xdp_program_is_detached() {
    let name = "a_run_fails_if_its_xdp_program_is_detached";
    for command in [&["drop", "near0"][..], &["forward", "near1", "near0"]] {
        let Some(hosts) = one_queue(name) else { return };
        let Some(running) = Place::Between(&hosts).start(name, command) else { return };
        feed(&hosts, &running, 64);
        let there = hosts.run_between(|| ok(ok(Netlink::open()).link("near0")).xdp);
        if !detach(there.first().expect("it is attached").id) {
            return println!("SKIP {name}: no bpftool that detaches a link");
        }
        let (document, _) = running.fails(&["the XDP program of near0 was detached"]);
        assert_eq!((&document["ended_by"], &document["detached"]), (&"detached".into(), &"near0".into()));
    }
}

fn set_mtus(hosts: &TwoHosts, mtu: u32) {
    let (near, far) = (hosts.near.each_ref().map(|link| link.index), [&hosts.a, &hosts.b]);
    hosts.run_between(move || near.into_iter().for_each(|index| ok(ok(Netlink::open()).set_mtu(index, mtu))));
    for host in far {
        let index = host.link.index;
        host.namespace.run(move || ok(ok(Netlink::open()).set_mtu(index, mtu)));
    }
}

#[test]
fn packets_that_are_too_long_since_the_mtu_changed_fail_a_run() {
    let name = "packets_that_are_too_long_since_the_mtu_changed_fail_a_run";
    let Some(hosts) = one_queue(name) else { return };
    let Some(running) = Place::Between(&hosts).start(name, &["forward", "near0", "near1"]) else { return };
    feed(&hosts, &running, 64);
    set_mtus(&hosts, 3000);
    running.wait_for_words("the MTU of near0 changed from 1500 to 3000");
    running.wait_for_words("the MTU of near1 changed from 1500 to 3000");
    feed(&hosts, &running, 2500);
    signal("-INT", running.id());
    let (document, said) =
        running.fails(&["packets were too long after the MTU of near0 changed from 1500 to 3000"]);
    assert!(number(&document["lost"], "rx_too_long") > 0, "{document}");
    assert_eq!(document["mtu_changes"][0]["to"], 3000, "{document}");
    assert!(
        said.contains("the MTU of near0 changed from 1500 to 3000") && said.contains("restart it"),
        "{said}"
    );
}

/// Sets the MTU of a near end, which the command sees.
fn set_mtu(hosts: &TwoHosts, running: &Running, near: usize, mtu: u32) {
    let index = hosts.near[near].index;
    hosts.run_between(move || ok(ok(Netlink::open()).set_mtu(index, mtu)));
    let name = &hosts.near[near].name;
    running.wait_for_words(&format!("the MTU of {name} changed from "));
    running.wait_for_words(&format!(" to {mtu}: "));
}

#[test]
fn an_mtu_that_is_what_it_was_again_costs_nothing() {
    let name = "an_mtu_that_is_what_it_was_again_costs_nothing";
    let Some(hosts) = one_queue(name) else { return };
    let Some(running) = Place::Between(&hosts).start(name, &["echo", "near0"]) else { return };
    feed(&hosts, &running, 64);
    for mtu in [3000, 1500] {
        set_mtu(&hosts, &running, 0, mtu);
    }
    let document = running.interrupt();
    assert_eq!(document["mtu_changes"][1]["to"], 1500, "{document}");
}

#[test]
fn of_several_changes_the_one_is_named_that_costs_packets() {
    let name = "of_several_changes_the_one_is_named_that_costs_packets";
    let Some(hosts) = one_queue(name) else { return };
    let Some(running) = Place::Between(&hosts).start(name, &["forward", "near0", "near1"]) else { return };
    feed(&hosts, &running, 64);
    set_mtu(&hosts, &running, 0, 3000);
    set_mtu(&hosts, &running, 1, 1000);
    signal("-INT", running.id());
    running.fails(&["the MTU of near1 changed from 1500 to 1000, and longer packets sent since"]);
}

#[test]
fn an_mtu_that_is_lowered_fails_a_run_that_sends_and_no_other() {
    let name = "an_mtu_that_is_lowered_fails_a_run_that_sends_and_no_other";
    for command in ["drop", "echo"] {
        let Some(hosts) = one_queue(name) else { return };
        let Some(running) = Place::Between(&hosts).start(name, &[command, "near0"]) else { return };
        feed(&hosts, &running, 64);
        set_mtus(&hosts, 1000);
        running.wait_for_words("the MTU of near0 changed from 1500 to 1000");
        feed(&hosts, &running, 64);
        if command == "drop" {
            let document = running.interrupt();
            assert_eq!(document["mtu_changes"][0]["to"], 1000, "{document}");
        } else {
            signal("-INT", running.id());
            running.fails(&["longer packets sent since then were lost, but not counted"]);
        }
    }
}

#[test]
fn an_interface_without_a_carrier_is_warned_of() {
    let name = "an_interface_without_a_carrier_is_warned_of";
    let Some(hosts) = one_queue(name) else { return };
    let Some(running) = Place::Between(&hosts).start(name, &["drop", "near0"]) else { return };
    let far = hosts.a.link.index;
    let set = |up| hosts.a.namespace.run(move || ok(ok(Netlink::open()).set_up(far, up)));
    set(false);
    running.wait_for_words("near0 has no carrier: no packets move until the other end is up");
    set(true);
    running.wait_for_words("near0 has a carrier again");
    running.interrupt();
}
