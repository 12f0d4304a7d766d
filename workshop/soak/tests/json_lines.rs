//! `--json=lines`, SIGUSR1, and the signals that end a soak.

use std::process::Command;

use serde_json::Value;

use crate::program::lines::{ask_and_end, check, check_sums};
use crate::program::reading::Reading;
use crate::program::{binary, number, wait_until};

#[test]
fn signals_query_and_end_a_soak() {
    let name = "signals_query_and_end_a_soak";
    for signal in ["-HUP", "-TERM"] {
        let arguments = ["--json=lines", "--stats-every", "0", "--seconds", "600"];
        let child = binary(&arguments).spawn().expect("the binary was built for this test");
        let mut reading = Reading::new(child);
        let Some(first) = reading.first(name) else { return };
        let moved = |line: &Value| line["peers"]["period"]["arrived"].as_i64() > Some(0);
        let figures = ask_and_end(reading, &first, signal, || (), moved);
        check("soak", &["near0:0", "near1:0"], &first, &figures);
        check_sums(&figures, |line| vec![&line["peers"]]);
        let last = figures.last().expect("the last line");
        assert_eq!(last["peers"]["total"]["arrived"], last["verdict"]["packets"], "{last}");
        assert!(number(&last["verdict"], "packets") > 0, "{last}");
    }
}

/// A service manager and `pkill` send signals to the peers of a soak, too.
#[test]
fn a_soak_ends_in_order_if_its_peers_get_signals_too() {
    let name = "a_soak_ends_in_order_if_its_peers_get_signals_too";
    let arguments = ["--json=lines", "--stats-every", "0", "--seconds", "600"];
    let arguments = [&arguments[..], &["--flap-every", "600", "--kill-every", "600"]].concat();
    let mut reading = Reading::new(binary(&arguments).spawn().expect("the binary was built for this test"));
    if reading.first(name).is_none() {
        return;
    }
    // What one sent arrived at the other, so both have begun.
    reading.ask_until(|line| line["peers"]["total"]["arrived"].as_i64() > Some(0));
    let children = std::fs::read_dir(format!("/proc/{}/task", reading.child.id())).expect("it runs");
    let children: Vec<String> = children
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("children")).ok())
        .flat_map(|children| children.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    assert_eq!(children.len(), 2, "two peers: {children:?}");
    for signal in ["-USR1", "-HUP", "-TERM"] {
        let done = Command::new("kill").arg(signal).args(&children).status();
        assert!(done.expect("every Linux has kill").success());
    }
    let is_pending = |child: &String| {
        let status = std::fs::read_to_string(format!("/proc/{child}/status")).expect("nobody waited for it");
        status.lines().any(|line| line.contains("Pnd:") && !line.ends_with("\t0000000000000000"))
    };
    wait_until("they have taken the signals", || !children.iter().any(is_pending));
    reading.ask();
    reading.signal("-TERM");
    let (rest, _) = reading.rest();
    assert!(rest.last().is_some_and(|last| last["verdict"]["missing"] == 0), "{rest:?}");
}
