//! A soak killed at random moments, with its peers: see `program::killing`.

use std::process::Output;

use pagepool_link::{TwoHosts, TwoHostsParams};
use serde_json::Value;

use crate::program::binary;
use crate::program::killing::{Run, kill_in_turns};
use crate::soak;

const RUNS: [Run; 1] = [Run {
    arguments: &["--seconds", "600", "--flap-every", "3", "--kill-every", "1", "--json"],
    links: 2,
    between: false,
    has_children: true,
}];

/// A short run that nobody disturbs.
fn undisturbed() -> Output {
    let run = binary(&["--seconds", "5", "--json"]).output();
    run.expect("the binary was built for this test")
}

#[test]
fn nothing_is_left_of_runs_that_are_killed() {
    let first = undisturbed();
    let said = String::from_utf8_lossy(&first.stderr);
    if said.contains("CAP_") {
        return println!("SKIP killed: {}", said.trim());
    }
    let hosts = TwoHosts::new(&TwoHostsParams::default()).expect("the first run made some, too");
    kill_in_turns(&RUNS, &hosts, |kills| {
        let next = undisturbed();
        let said = String::from_utf8_lossy(&next.stderr);
        let document: Value = serde_json::from_slice(&next.stdout)
            .unwrap_or_else(|error| panic!("after {kills} kills: {error}: {said}"));
        soak::check(&document);
    });
}
