//! `pagepool demo` in memory, as a user runs it.

use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pagepool"));
    command.env("PAGEPOOL_RUN", concat!(env!("CARGO_TARGET_TMPDIR"), "/run"));
    command.args(["demo", "--on", "memory"]).args(arguments);
    command
}

fn demo(arguments: &[&str]) -> Output {
    command(arguments).output().expect("the binary was built for this test")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the command prints text")
}

/// What a run says, which went well.
fn document(output: &Output) -> Value {
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON and nothing else")
}

fn number(document: &Value, key: &str) -> u64 {
    document[key].as_u64().unwrap_or_else(|| panic!("{key} is no count: {document}"))
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
    let document = document(&demo(&["--seconds", "1", "--action", action, "--size", size, "--json"]));
    assert_eq!((&document["mode"], &document["action"]), (&"in_memory".into(), &action.into()));
    assert_eq!((number(&document, "size").to_string(), &document["ok"]), (size.into(), &true.into()));
    for zero in ["slow_after_warmup", "missing", "corrupt", "lost", "nic_errors"] {
        assert_eq!(number(&document, zero), 0, "{zero}: {document}");
    }
    let [sent, packets, dropped] = ["sent", "packets", "dropped"].map(|key| number(&document, key));
    assert!(packets > 0 && packets + dropped == sent, "{document}");
    assert!(document["seconds"].as_f64().is_some_and(|seconds| seconds >= 1.0), "{document}");
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
fn a_person_reads_a_line_a_second_and_a_verdict() {
    let output = demo(&["--seconds", "2"]);
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{shown}{}", text(&output.stderr));
    for word in ["packets/s", "cache", "lanes", "ring", "in_use", "recycled", "slow", " 1s ", " 2s ", "PASS"]
    {
        assert!(shown.contains(word), "{word} is missing:\n{shown}");
    }
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
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

/// Ends a process as Ctrl-C does.
fn interrupt(child: &Child) {
    let status = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(status.expect("every Linux has kill").success());
}

#[test]
fn ctrl_c_ends_it_with_the_verdict() {
    let start = std::time::Instant::now();
    let child =
        command(&["--seconds", "600", "--json"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.expect("the binary was built for this test");
    std::thread::sleep(std::time::Duration::from_millis(1500));
    interrupt(&child);
    let document = document(&child.wait_with_output().expect("it ends"));
    assert_eq!(document["ok"], true, "{document}");
    assert!(start.elapsed().as_secs() < 120);
}
