//! `pagepool demo` between two network namespaces, as a user runs it; and which demonstration is run where.

use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use crate::between::{Ends, Reading, binary, number, text, until_counted, wait_until};
use serde_json::Value;

/// Of nobody, who may do nothing.
const NOBODY: u32 = 65_534;
/// TCP goes both ways then.
const COUNTED: [(&str, u64); 2] = [("rx_packets", 5000), ("reused", 5000)];

fn command(arguments: &[&str]) -> Command {
    binary(&[&["demo"], arguments].concat())
}

fn demo(arguments: &[&str]) -> Output {
    command(arguments).output().expect("the binary was built for this test")
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").expect("a Linux has /proc").uid() == 0
}

/// What a run says; `None` after a line that says why there is none here.
fn document(test: &str, output: &Output) -> Option<Value> {
    let said = text(&output.stderr);
    if !output.status.success() && (!is_root() || said.contains("CAP_")) {
        println!("SKIP {test}: {}", said.trim());
        return None;
    }
    assert!(output.status.success(), "{}{said}", text(&output.stdout));
    Some(serde_json::from_slice(&output.stdout).expect("JSON and nothing else"))
}

fn check(document: &Value, mtu: u64) {
    let mode = document["mode"].as_str().unwrap_or_default();
    assert!(mode.starts_with("af_xdp_"), "{document}");
    assert_eq!((&document["action"], number(document, "size")), (&"forward".into(), mtu + 14));
    assert!(document["gbit_s"].as_f64().is_some_and(|gbit_s| gbit_s > 0.0), "{document}");
    assert!(document["pps"].as_f64().is_some_and(|pps| pps > 0.0), "{document}");
    for zero in ["slow_after_warmup", "missing", "corrupt", "unaccounted", "nic_errors"] {
        assert_eq!(number(document, zero), 0, "{zero}: {document}");
    }
    let [sent, packets, lost] = ["sent", "packets", "lost_total"].map(|key| number(document, key));
    assert!(packets > 0 && packets + lost == sent, "{document}");
    for (pool, port) in [0, 1].map(|at| (&document["pools"][at], &document["ports"][at])) {
        assert_eq!(number(pool, "hold"), number(pool, "release"), "every page is the arena's again");
        assert!(number(port, "reused") > 0, "TCP goes both ways: {document}");
        assert_eq!(number(port, "copied") + number(port, "mapped"), 0, "both are over one memory");
    }
    assert_eq!(document["ok"], true, "{document}");
}

#[test]
fn tcp_passes_between_two_kernels_and_every_page_returns() {
    let name = "tcp_passes_between_two_kernels_and_every_page_returns";
    let output = until_counted(command(&["--on", "veth", "--seconds", "600", "--json"]), &COUNTED);
    if let Some(document) = document(name, &output) {
        check(&document, 1500);
    }
}

#[test]
fn it_runs_for_the_given_time() {
    let name = "it_runs_for_the_given_time";
    if let Some(document) = document(name, &demo(&["--on", "veth", "--seconds", "1", "--json"])) {
        assert!(document["seconds"].as_f64().is_some_and(|seconds| seconds >= 1.0), "{document}");
    }
}

#[test]
fn packets_of_several_pages_do_too() {
    let name = "packets_of_several_pages_do_too";
    for mtu in [9000, 65_535] {
        let forever = command(&["--mtu", &mtu.to_string(), "--seconds", "600", "--json"]);
        let output = until_counted(forever, &COUNTED);
        if text(&output.stderr).contains("Linux 6.6") {
            println!("SKIP {name}: {}", text(&output.stderr).trim());
        } else if let Some(document) = document(name, &output) {
            check(&document, mtu);
        }
    }
}

#[test]
fn a_demo_prints_a_line_per_second_and_a_verdict() {
    let name = "a_demo_prints_a_line_per_second_and_a_verdict";
    let child = command(&["--on", "veth", "--seconds", "600"]).spawn();
    let mut reading = Reading::new(child.expect("the binary was built for this test"));
    let shown = reading.until_figures(2);
    let (status, said) = (reading.child.wait().expect("it ends"), reading.said());
    if !status.success() && (!is_root() || said.contains("CAP_")) {
        return println!("SKIP {name}: {}", said.trim());
    }
    for word in ["af_xdp_", "Gbit/s", "packets/s", "cache", "in_use", "slow", "\nPASS"] {
        assert!(shown.contains(word), "{word} is missing:\n{shown}");
    }
    // The last line is a sentence; on a terminal it is folded.
    assert!(shown.trim_end().lines().rev().skip(1).all(|line| line.chars().count() <= 80), "{shown}");
}

/// The network namespaces of a process's threads.
fn namespaces(of: u32) -> HashSet<PathBuf> {
    tasks(of).filter_map(|task| std::fs::read_link(task.join("ns/net")).ok()).collect()
}

fn tasks(of: u32) -> impl Iterator<Item = PathBuf> {
    let tasks = std::fs::read_dir(format!("/proc/{of}/task")).into_iter().flatten().flatten();
    tasks.map(|task| task.path())
}

/// What keeps XDP programs, links and namespaces is the process alone.
#[test]
fn nothing_is_left_of_a_run_that_is_killed() {
    let name = "nothing_is_left_of_a_run_that_is_killed";
    let mut command = command(&["--on", "veth", "--seconds", "600", "--json"]);
    let mut child = Ends(command.spawn().expect("the binary was built for this test"));
    let ours = std::fs::read_link("/proc/thread-self/ns/net").expect("every Linux has it");
    let (mut theirs, mut ended) = (HashSet::new(), false);
    wait_until("it has four namespaces: ours, between, and two hosts", || {
        theirs = namespaces(child.0.id());
        ended = child.0.try_wait().expect("a child").is_some();
        ended || theirs.len() == 4
    });
    if ended {
        let said = std::io::read_to_string(child.0.stderr.take().expect("piped")).expect("text");
        assert!(!is_root() || said.contains("CAP_"), "{said}");
        return println!("SKIP {name}: {}", said.trim());
    }
    // While they are open nobody else gets a namespace of the same number.
    let held = tasks(child.0.id()).filter_map(|task| File::open(task.join("ns/net")).ok());
    let held: Vec<File> = held.collect();
    assert!(held.len() >= 4, "{held:?}");
    drop(child);
    let processes = std::fs::read_dir("/proc").expect("a Linux has /proc").flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    theirs.remove(&ours);
    let left: HashSet<_> = pids.flat_map(namespaces).filter(|of| theirs.contains(of)).collect();
    assert_eq!(left, HashSet::new());
    drop(held);
    if let Some(document) = document(name, &demo(&["--on", "veth", "--seconds", "1", "--json"])) {
        check(&document, 1500);
    }
}

#[test]
fn without_root_it_runs_in_memory_and_says_what_it_would_need() {
    let name = "without_root_it_runs_in_memory_and_says_what_it_would_need";
    let as_nobody = |arguments: &[&str]| {
        let mut command = command(arguments);
        if is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command.output()
    };
    let output = match as_nobody(&["--seconds", "1", "--json"]) {
        Ok(output) => output,
        Err(error) => return println!("SKIP {name}: nobody may not run the binary: {error}"),
    };
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON and nothing else");
    if document["mode"] != "in_memory" {
        return println!("SKIP {name}: this user has the capabilities");
    }
    assert_eq!(document["ok"], true, "{document}");
    let said = text(&output.stderr);
    let why = "pagepool: note: This process lacks CAP_NET_ADMIN, CAP_NET_RAW and CAP_SYS_ADMIN, so using \
               in-memory NICs. For the AF_XDP demo run as root, outside a restricted container.\n";
    assert_eq!(said, why);
    let output = as_nobody(&["--seconds", "1", "--on", "veth"]).expect("it ran before");
    assert!(!output.status.success() && text(&output.stderr).contains("CAP_SYS_ADMIN"));
}

#[test]
fn what_does_not_go_together_is_refused_with_the_remedy() {
    let cases: [(&[&str], &str); 6] = [
        (&["--on", "veth", "--size", "64"], "use --mtu, or --on memory"),
        (&["--on", "veth", "--action", "drop"], "must be forward on veth"),
        (&["--on", "memory", "--mtu", "1500"], "use --size, or --on veth"),
        (&["--mtu", "1500", "--action", "echo"], "leave one out"),
        (&["--on", "veth", "--mtu", "575"], "576 to 65535 bytes"),
        (&["--on", "veth", "--mtu", "65536"], "576 to 65535 bytes"),
    ];
    for (arguments, remedy) in cases {
        let output = demo(arguments);
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(remedy), "{arguments:?}: {said}");
    }
}

#[test]
fn options_of_the_nics_in_memory_mean_memory() {
    let output = demo(&["--action", "echo", "--seconds", "1", "--json"]);
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON and nothing else");
    assert_eq!((&document["mode"], &document["ok"]), (&"in_memory".into(), &true.into()));
}
