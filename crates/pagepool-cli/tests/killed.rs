//! The commands killed at random moments: see `program::killing`.

use std::process::{Command, Output};

use pagepool_link::{TwoHosts, TwoHostsParams};
use serde_json::{Value, json};

use crate::program::binary;
use crate::program::killing::{Run, kill_in_turns};

/// In turns.
const RUNS: [Run; 3] = [
    Run {
        arguments: &["demo", "--on", "veth", "--seconds", "600", "--json"],
        links: 2,
        between: false,
        has_children: false,
    },
    Run {
        arguments: &["forward", "near0", "near1", "--seconds", "600", "--json"],
        links: 2,
        between: true,
        has_children: false,
    },
    Run {
        arguments: &["drop", "near0", "--seconds", "600", "--json"],
        links: 1,
        between: true,
        has_children: false,
    },
];

fn output(mut command: Command) -> Output {
    command.output().expect("the binary was built for this test")
}

/// A short run that nobody disturbs.
fn undisturbed() -> Output {
    output(binary(&["demo", "--on", "veth", "--seconds", "1", "--json"]))
}

/// The same on both links that runs were killed on.
fn undisturbed_between(hosts: &TwoHosts) -> Output {
    let command = binary(&["forward", "near0", "near1", "--seconds", "1", "--json"]);
    hosts.run_between(move || output(command))
}

#[test]
fn nothing_is_left_of_runs_that_are_killed() {
    let first = undisturbed();
    if !first.status.success() {
        let said = String::from_utf8_lossy(&first.stderr);
        assert!(said.contains("CAP_"), "{said}");
        return println!("SKIP killed: {}", said.trim());
    }
    let hosts = TwoHosts::new(&TwoHostsParams::default()).expect("the first run made some, too");
    // Nobody sends between the hosts, and that is all that is wrong there.
    let idle = json!(["No packets moved. Buffers: all returned."]);
    kill_in_turns(&RUNS, &hosts, |kills| {
        for (next, failures) in [(undisturbed(), json!([])), (undisturbed_between(&hosts), idle.clone())] {
            let document: Value = serde_json::from_slice(&next.stdout).unwrap_or_default();
            let said = String::from_utf8_lossy(&next.stderr);
            assert_eq!(document["failures"], failures, "after {kills} kills: {document} {said}");
        }
    });
}
