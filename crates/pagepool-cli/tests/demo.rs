//! `pagepool demo` in memory, as a user runs it.

use std::process::{Command, Output};

use crate::between::{Reading, binary, number, text, until_counted};
use serde_json::Value;

fn command(arguments: &[&str]) -> Command {
    binary(&[&["demo", "--on", "memory"], arguments].concat())
}

fn demo(arguments: &[&str]) -> Output {
    command(arguments).output().expect("the binary was built for this test")
}

/// What a run says, which went well.
fn document(output: &Output) -> Value {
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON and nothing else")
}

/// Counters that every pool has: Linux's eleven, and the balance.
const COUNTERS: [&str; 13] = [
    "alloc_fast",
    "alloc_slow",
    "alloc_slow_high_order",
    "alloc_empty",
    "alloc_refill",
    "alloc_waive",
    "recycle_cached",
    "recycle_cache_full",
    "recycle_ring",
    "recycle_ring_full",
    "recycle_released_refcnt",
    "hold",
    "release",
];

fn check(action: &str, size: &str) {
    let reused = ("reused", u64::from(action == "forward"));
    let counters = [("rx_packets", 20_000), reused];
    let forever = command(&["--seconds", "600", "--action", action, "--size", size, "--json"]);
    let document = document(&until_counted(forever, &counters));
    assert_eq!((&document["mode"], &document["action"]), (&"in_memory".into(), &action.into()));
    assert_eq!((number(&document, "size").to_string(), &document["ok"]), (size.into(), &true.into()));
    for zero in ["slow_after_warmup", "missing", "corrupt", "unaccounted", "nic_errors"] {
        assert_eq!(number(&document, zero), 0, "{zero}: {document}");
    }
    let [sent, packets, lost] = ["sent", "packets", "lost_total"].map(|key| number(&document, key));
    assert!(packets > 0 && packets + lost == sent, "{document}");
    assert!(document["pps"].as_f64().is_some_and(|pps| pps > 0.0), "{document}");
    let pools = document["pools"].as_array().expect("an array");
    assert_eq!(pools.len(), 2);
    for pool in pools {
        assert!(pool["name"].is_string() && COUNTERS.iter().all(|&name| pool[name].is_u64()), "{pool}");
        assert_eq!(number(pool, "hold"), number(pool, "release"), "every page is the arena's again");
    }
    let taken: u64 = pools.iter().map(|pool| number(pool, "hold")).sum();
    assert_eq!(number(&document, "pages_taken"), taken);
    let home = if action == "pass" { "recycle_ring" } else { "recycle_cached" };
    assert!(number(&pools[0], home) > 0, "{home}: {document}");
    let reused = number(&document["ports"][1], "reused");
    assert_eq!(reused > 0, action == "forward", "{document}");
    assert_eq!(number(&document["ports"][1], "copied"), 0, "both NICs reach one arena");
}

#[test]
fn small_packets_under_every_action() {
    ["drop", "echo", "forward", "pass"].iter().for_each(|action| check(action, "64"));
}

#[test]
fn packets_of_a_page_under_every_action() {
    ["drop", "echo", "forward", "pass"].iter().for_each(|action| check(action, "1500"));
}

#[test]
fn jumbo_packets_under_every_action() {
    ["drop", "echo", "forward", "pass"].iter().for_each(|action| check(action, "9000"));
}

#[test]
fn a_demo_prints_a_line_per_second_and_a_verdict() {
    let mut reading = Reading::new(command(&["--seconds", "600"]).spawn().expect("the binary was built"));
    let shown = reading.until_figures(2);
    let status = reading.child.wait().expect("it ends");
    assert!(status.success(), "{shown}{}", reading.said());
    for word in ["packets/s", "cache", "lanes", "ring", "in_use", "recycled", "slow", "\nPASS"] {
        assert!(shown.contains(word), "{word} is missing:\n{shown}");
    }
    // The last line is a sentence; on a terminal it is folded.
    assert!(shown.trim_end().lines().rev().skip(1).all(|line| line.chars().count() <= 80), "{shown}");
}

#[test]
fn it_runs_for_the_given_time() {
    let document = document(&demo(&["--seconds", "1", "--json"]));
    assert!(document["seconds"].as_f64().is_some_and(|seconds| seconds >= 1.0), "{document}");
}

#[test]
fn a_bad_value_is_refused_with_its_limit() {
    let cases = [
        (["--size", "63"], "64 to 9000 bytes"),
        (["--size", "9001"], "64 to 9000 bytes"),
        (["--size", "big"], "64 to 9000 bytes"),
        (["--seconds", "0"], "1 to 86400 whole seconds"),
        (["--action", "reject"], "drop, echo, forward, pass"),
    ];
    for (arguments, limit) in cases {
        let output = demo(&arguments);
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(arguments[1]) && said.contains(limit), "{said}");
    }
}
