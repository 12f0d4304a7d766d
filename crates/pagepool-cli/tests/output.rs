//! Where what a command prints cannot be written, or its terminal is closed: it ends in order, and says why
//! unless whoever read it went.

use std::io::Read;
use std::process::{Command, Stdio};

use crate::between::{Place, binary, far_ends, frames, hosts, number, ok, pass, signal, text, wait_until};
use pagepool_link::{Netlink, TwoHostsParams};

use crate::program::unwritable::{cannot_print, closed, full, left, refused};

/// Commands that print without an interface.
const PRINTING: [&[&str]; 7] = [
    &["--help"],
    &["--version"],
    &["drop", "--help"],
    &["man"],
    &["completions", "bash"],
    &["demo", "--on", "memory", "--seconds", "600"],
    &["demo", "--on", "memory", "--seconds", "1", "--json"],
];
/// Those on interfaces, each of which would run for a long time.
const RUNNING: [&[&str]; 4] = [
    &["drop", "near0"],
    &["echo", "near0"],
    &["forward", "near0", "near1"],
    &["gen", "near0", "--rate", "100"],
];

#[test]
fn a_failed_write_is_reported_and_sets_the_status() {
    for arguments in PRINTING {
        // Of a run that ends at once: some packets may have moved.
        let ended: &[i32] = if arguments.contains(&"600") { &[0, 1] } else { &[0] };
        cannot_print(arguments, ended);
    }
}

#[test]
fn errors_set_the_exit_status_even_without_a_working_stderr() {
    for (arguments, status) in [(&["drop", "nope0"][..], 1), (&["drop"], 2)] {
        for errors in [full().into(), closed()] {
            let ended = binary(arguments).stderr::<Stdio>(errors).status();
            assert_eq!(
                ended.expect("the binary was built for this test").code(),
                Some(status),
                "{arguments:?}"
            );
        }
    }
}

/// They end in order: the XDP program is gone when they have, and so are their sockets.
#[test]
fn runs_on_interfaces_end_when_they_cannot_print() {
    let name = "runs_on_interfaces_end_when_they_cannot_print";
    let Some(hosts) = hosts(name, &TwoHostsParams::default()) else { return };
    for arguments in RUNNING {
        for (json, is_full) in [(false, true), (false, false), (true, true)] {
            let more: &[&str] = if json { &["--json", "--seconds", "1"] } else { &[] };
            let mut command = binary(&[arguments, more].concat());
            command.stdout(if is_full { full().into() } else { closed() });
            let output = Place::Between(&hosts).output(command);
            if text(&output.stderr).contains("CAP_") {
                return println!("SKIP {name}: {}", text(&output.stderr).trim());
            }
            match is_full {
                true => refused(arguments, &output),
                false => left(arguments, &output, &[0, 3]), // packets moved, or none
            }
            let link = hosts.run_between(|| ok(ok(Netlink::open()).link("near0")));
            assert_eq!((link.xdp, link.promiscuity), (vec![], 0), "{arguments:?}");
        }
    }
}

#[test]
fn a_terminal_that_is_closed_ends_a_run_with_its_verdict() {
    let name = "a_terminal_that_is_closed_ends_a_run_with_its_verdict";
    let Some(hosts) = hosts(name, &TwoHostsParams::default()) else { return };
    let Some(running) = Place::Between(&hosts).start(name, &["echo", "near0"]) else { return };
    let [far, _] = far_ends(&hosts);
    pass(&frames(&hosts, 0, 64), 10, &far, &far);
    // The terminal's, and the shell's.
    signal("-HUP", running.id());
    signal("-HUP", running.id());
    let document = running.end();
    assert_eq!(document["ended_by"], "interrupted");
    assert!(number(&document, "received") >= 10, "{document}");
}

/// SIGHUP does not count for the second Ctrl-C or SIGTERM, which ends a run without a verdict.
#[test]
fn sighup_and_then_sigterm_end_a_run_with_its_verdict() {
    let name = "sighup_and_then_sigterm_end_a_run_with_its_verdict";
    let Some(hosts) = hosts(name, &TwoHostsParams::default()) else { return };
    let Some(running) = Place::Between(&hosts).start(name, &["echo", "near0"]) else { return };
    let [far, _] = far_ends(&hosts);
    pass(&frames(&hosts, 0, 64), 10, &far, &far);
    // The second comes while it ends, for which it takes longer than `kill`.
    signal("-HUP", running.id());
    signal("-TERM", running.id());
    assert_eq!(running.end()["ended_by"], "interrupted");
}

#[test]
fn nohup_keeps_a_run_from_ending_with_its_terminal() {
    let mut command = Command::new("nohup");
    command.arg(env!("CARGO_BIN_EXE_pagepool"));
    command.args(["demo", "--on", "memory", "--seconds", "2", "--json", "--publish=none"]);
    let Ok(mut child) = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()
    else {
        return println!("SKIP: this machine has no nohup");
    };
    // SIGINT is handled when it has looked at all its signals.
    let ignores_it = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).expect("it runs");
        let has = |kind: &str, signal: u32| {
            let set = status.lines().find_map(|line| line.strip_prefix(kind)).expect("every Linux says that");
            u64::from_str_radix(set.trim(), 16).expect("a mask") & 1 << (signal - 1) != 0
        };
        has("SigIgn:", 1) && has("SigCgt:", 2)
    };
    wait_until("nohup ignores SIGHUP, and starts the command, which listens", ignores_it);
    signal("-HUP", child.id());
    let mut shown = String::new();
    child.stdout.take().expect("it was piped").read_to_string(&mut shown).expect("text");
    assert!(child.wait().expect("it ends").success(), "{shown}");
    let document: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    assert!(document["seconds"].as_f64().is_some_and(|seconds| seconds >= 2.0), "{document}");
}
