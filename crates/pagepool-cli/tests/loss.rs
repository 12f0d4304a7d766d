//! The share of packets that a run lost: in its last line, and against `--max-loss`.

use std::process::Command;

use crate::between::{
    Place, Reading, binary, check_loss, far_ends, frames, hosts, keep_to, number, ok, received_by_link, send,
    signal, text, wait_until,
};
use pagepool_link::{Netlink, TwoHosts, TwoHostsParams};
use rustix::thread::{CpuSet, sched_getaffinity};
use serde_json::Value;

/// More than the rings of a stopped command hold.
const FLOOD: u64 = 3000;
/// Fewer than the link holds.
const SOME: u64 = 50;
const DROP: [&str; 4] = ["drop", "near0", "--ring", "64"];

/// Sends more to a process than it has buffers for, while it does not run. It runs again when the link has
/// handed over all of them: on a busy machine they would wait there, and come late enough to find buffers.
/// The frames go to one queue: a link chooses it by the CPU that sends.
fn flood(hosts: &TwoHosts, process: u32, cpu: usize) {
    let ([far, _], frames, mut frame) = (far_ends(hosts), frames(hosts, 0, 64), [0; 64]);
    signal("-STOP", process);
    let send_all = || {
        keep_to(cpu);
        for some in 0..FLOOD / SOME {
            let before = handed_over(hosts);
            for number in 0..SOME {
                frames.write(some * SOME + number, &mut frame);
                send(&far, &frame);
            }
            wait_until("the link has handed the frames over", || handed_over(hosts) >= before + SOME);
        }
    };
    std::thread::scope(|threads| threads.spawn(send_all).join().expect("the link takes frames"));
    signal("-CONT", process);
}

/// A CPU that this process may use.
fn some_cpu() -> usize {
    let allowed = sched_getaffinity(None).expect("its own");
    (0..CpuSet::MAX_CPU).find(|&cpu| allowed.is_set(cpu)).expect("it runs on one")
}

/// Frames that `near0` took from its link.
fn handed_over(hosts: &TwoHosts) -> u64 {
    hosts.run_between(|| received_by_link("near0"))
}

#[test]
fn a_run_that_loses_more_than_it_may_fails() {
    let name = "a_run_that_loses_more_than_it_may_fails";
    let Some(hosts) = hosts(name, &TwoHostsParams::default()) else { return };
    let limited = |limit| [&DROP[..], &["--max-loss", limit]].concat();
    let Some(running) = Place::Between(&hosts).start(name, &limited("10")) else { return };
    flood(&hosts, running.id(), some_cpu());
    running.wait_for_count(&["rx_packets"], 64);
    signal("-INT", running.id());
    let (document, _) = running.fails(&["more packets were lost than --max-loss 10 allows"]);
    check_loss(&document);
    assert!(document["loss"]["percent"].as_f64().is_some_and(|percent| percent > 50.0), "{document}");
    assert_eq!((&document["loss"]["max_percent"], number(&document, "missing")), (&Value::from(10.0), 0));
    let Some(running) = Place::Between(&hosts).start(name, &limited("99.9")) else { return };
    flood(&hosts, running.id(), some_cpu());
    running.wait_for_count(&["rx_packets"], 64);
    assert!(number(&running.interrupt()["loss"], "lost") > 1000);
}

#[test]
fn the_last_line_says_how_many_packets_were_lost_and_where() {
    let name = "the_last_line_says_how_many_packets_were_lost_and_where";
    let Some(hosts) = hosts(name, &TwoHostsParams::default()) else { return };
    let mut reading = Reading::new(Place::Between(&hosts).spawn(binary(&DROP)));
    let Some(_) = reading.line().filter(|line| line.contains("rings of 64 slots")) else {
        return println!("SKIP {name}: {}", reading.said().trim());
    };
    flood(&hosts, reading.child.id(), some_cpu());
    let shown = reading.until_seen(1, |line| line.contains("s  in ") && !line.contains("  in           0/s"));
    let last = shown.lines().last().unwrap_or_default();
    assert!(last.starts_with("PASS: every buffer was returned, and no page was taken"), "{shown}");
    let share = last.split_once("; ").expect("two parts").1;
    assert!(share.contains(" packets were lost (") && share.contains("no buffer "), "{shown}");
}

#[test]
fn an_interface_that_goes_away_is_no_pass() {
    let name = "an_interface_that_goes_away_is_no_pass";
    let Some(hosts) = hosts(name, &TwoHostsParams::default()) else { return };
    let mut reading = Reading::new(Place::Between(&hosts).spawn(binary(&["drop", "near0"])));
    let Some(_) = reading.line().filter(|line| line.contains("rings of")) else {
        return println!("SKIP {name}: {}", reading.said().trim());
    };
    wait_until("a packet was dropped", || {
        let ([far, _], mut frame) = (far_ends(&hosts), [0; 64]);
        frames(&hosts, 0, 64).write(1, &mut frame);
        send(&far, &frame);
        crate::between::counted(crate::between::RUN_FOLDER.as_ref(), reading.child.id(), &["rx_packets"]) > 0
    });
    let index = hosts.near[0].index;
    hosts.run_between(move || ok(ok(Netlink::open()).delete(index)));
    let lines: Vec<_> = std::iter::from_fn(|| reading.line()).collect();
    let last = lines.last().map(String::as_str).unwrap_or_default();
    let parts = ["GONE: near0:0 was removed, or moved to another", "; every buffer was returned", " lost"];
    assert!(parts.iter().all(|part| last.contains(part)) && !lines.concat().contains("PASS"), "{lines:?}");
    assert_eq!(reading.child.wait().expect("a child").code(), Some(4), "{lines:?}");
}

#[test]
fn what_is_lost_because_an_interface_goes_away_is_no_failure() {
    let name = "what_is_lost_because_an_interface_goes_away_is_no_failure";
    for more in [&["--tx-mode", "ring"][..], &[]] {
        let Some(hosts) = hosts(name, &TwoHostsParams::default()) else { return };
        let arguments = [&["gen", "near0", "--max-loss", "0"], more].concat();
        let Some(running) = Place::Between(&hosts).start(name, &arguments) else { return };
        running.wait_for_count(&["tx_packets"], 64);
        let far = hosts.a.link.index; // which takes its peer with it
        hosts.a.namespace.run(move || ok(ok(Netlink::open()).delete(far)));
        let document = running.end();
        let failures = document["failures"].to_string();
        assert!(failures.starts_with("[\"near0:0 was removed, or moved to another"), "{document}");
    }
}

#[test]
fn an_interface_that_is_gone_is_named_beside_what_failed() {
    let name = "an_interface_that_is_gone_is_named_beside_what_failed";
    let Some(hosts) = hosts(name, &TwoHostsParams::default()) else { return };
    let arguments = [&DROP[..], &["--max-loss", "10", "--verify"]].concat();
    let Some(running) = Place::Between(&hosts).start(name, &arguments) else { return };
    flood(&hosts, running.id(), some_cpu());
    running.wait_for_figures("fill ring ran dry: this thread did not keep up\n");
    let mut damaged = [0; 64];
    frames(&hosts, 0, 64).write(FLOOD, &mut damaged);
    damaged[40] ^= 1;
    send(&far_ends(&hosts)[0], &damaged);
    running.wait_for_figures("damaged 1");
    let index = hosts.near[0].index;
    let renamed =
        hosts.run_between(|| Command::new("ip").args(["link", "set", "near0", "name", "last0"]).status());
    if !renamed.is_ok_and(|status| status.success()) {
        return println!("SKIP {name}: no `ip` that renames an interface that is up");
    }
    running.wait_for_words("near0 was renamed to last0"); // so it has looked since the loss
    hosts.run_between(move || ok(ok(Netlink::open()).delete(index)));
    let lost = "more packets were lost than --max-loss 10 allows";
    running.fails(&[lost, "1 numbered frames were damaged", "last0:0 was removed, or moved to another"]);
}

#[test]
fn a_remedy_is_one_that_the_interface_has() {
    let name = "a_remedy_is_one_that_the_interface_has";
    let queue = (some_cpu() % 2).to_string();
    let cases = [(1, &[][..], None), (2, &["--queues", &queue], Some("all of its 2 queues"))];
    for (queues, options, has) in cases {
        let Some(hosts) = hosts(name, &TwoHostsParams { queues, ..TwoHostsParams::default() }) else {
            return;
        };
        let mut reading = Reading::new(Place::Between(&hosts).spawn(binary(&[&DROP[..], options].concat())));
        let Some(_) = reading.line().filter(|line| line.contains("rings of 64 slots")) else {
            return println!("SKIP {name}: {}", reading.said().trim());
        };
        let late = |line: &str| line.starts_with("lost ") && line.contains("did not keep up");
        flood(&hosts, reading.child.id(), some_cpu());
        let shown = reading.until_seen(1, |line| line.contains("did not keep up"));
        let row = shown.lines().find(|line| late(line)).unwrap_or_else(|| panic!("{shown}"));
        assert!(row.contains("double `--ring`") || row.contains("system calls for"), "{row}");
        assert_eq!(row.contains("queue"), has.is_some(), "{row}");
        assert!(has.is_none_or(|words| row.contains(words)), "{row}");
    }
}

#[test]
fn gen_does_not_pass_if_nothing_leaves() {
    let name = "gen_does_not_pass_if_nothing_leaves";
    let Some(hosts) = hosts(name, &TwoHostsParams::default()) else { return };
    let gen_into = |interface: &str, mode: &str| {
        let fixed = ["gen", interface, "--count", "200", "--seconds", "30", "--stats-every", "0"];
        let output = Place::Between(&hosts).output(binary(&[&fixed[..], &["--tx-mode", mode]].concat()));
        (output.status.code(), text(&output.stderr).to_owned() + text(&output.stdout))
    };
    let index = hosts.a.link.index;
    hosts.a.namespace.run(move || ok(ok(Netlink::open()).set_up(index, false)));
    for mode in ["ring", "auto"] {
        let (status, said) = gen_into("near0", mode);
        if said.contains("CAP_") {
            return println!("SKIP {name}: {said}");
        }
        let last = said.trim_end().lines().last().unwrap_or_default();
        let why = "FAIL: all 200 packets were lost; every buffer was returned; 100.0 % of 200 packets";
        assert!(last.starts_with(why), "the other end is down: {status:?} {said}");
        assert_eq!(status, Some(1), "{said}");
    }
    // Who has no route for its packets (vxlan), or takes none from here (ifb), counts none as sent.
    for (kind, more) in [("ifb", ""), ("vxlan", "id 7 dstport 4789 remote 10.9.9.9")] {
        let link = format!("ip link add none0 type {kind} {more} && ip link set none0 up");
        let made = hosts.run_between(move || Command::new("sh").args(["-c", &link]).output());
        let made = made.expect("every Linux has sh");
        if !made.status.success() {
            println!("SKIP {name}, {kind}: {}", text(&made.stderr).trim());
            continue;
        }
        let (status, said) = gen_into("none0", "auto");
        hosts
            .run_between(|| Command::new("ip").args(["link", "del", "none0"]).status())
            .expect("it was there");
        let why = "FAIL: none0 counts none of 200 packets as sent";
        assert!(said.contains(why) && said.contains("100.0 % of 200 packets were lost"), "{kind}: {said}");
        assert_eq!(status, Some(1), "{kind}: {said}");
    }
}
