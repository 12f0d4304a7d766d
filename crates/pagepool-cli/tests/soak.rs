//! `pagepool soak`, as a user runs it, for a few seconds.

use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Of nobody, who may do nothing.
const NOBODY: u32 = 65_534;
/// One at a time: they are to have the machine.
static TURN: Mutex<()> = Mutex::new(());

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pagepool"));
    command.env("PAGEPOOL_RUN", concat!(env!("CARGO_TARGET_TMPDIR"), "/run"));
    command.arg("soak").args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the command prints text")
}

/// `None` after a line that says why there is nothing to look at.
fn ran(test: &str, output: &Output) -> Option<()> {
    let said = text(&output.stderr);
    if output.stdout.is_empty() && said.contains("CAP_") {
        println!("SKIP {test}: {}", said.trim());
        return None;
    }
    assert!(said.is_empty(), "{said}");
    Some(())
}

fn number(document: &Value, key: &str) -> u64 {
    document[key].as_u64().unwrap_or_else(|| panic!("{key} is no count: {document}"))
}

/// All that must hold, but for how long something took: another test may have had the machine.
fn check(document: &Value) {
    let zeros =
        ["damaged", "repeated", "lost_within", "never_sent", "slow_after_warmup", "missing", "nic_errors"];
    for zero in zeros.into_iter().chain(["descriptors_grown"]) {
        assert_eq!(number(document, zero), 0, "{zero}: {document}");
    }
    let [sent, packets, doubt] = ["sent", "packets", "in_doubt"].map(|key| number(document, key));
    assert!(packets > 0 && packets <= sent + doubt, "{document}");
    let lost: u64 = ["lost_before", "dropped", "lost_after"].map(|key| number(document, key)).iter().sum();
    assert!((packets + lost).abs_diff(sent) <= doubt, "every packet is somewhere: {document}");
    assert!(document["mode"].as_str().is_some_and(|mode| mode.starts_with("af_xdp_")), "{document}");
    assert_eq!(document["xdp"].as_array().map(Vec::len), Some(2), "{document}");
}

#[test]
fn interfaces_go_down_peers_die_and_every_packet_is_accounted_for() {
    let name = "interfaces_go_down_peers_die_and_every_packet_is_accounted_for";
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let output = command(&["--seconds", "10", "--flap-every", "3", "--kill-every", "2", "--json"]).output();
    let output = output.expect("the binary was built for this test");
    if ran(name, &output).is_some() {
        let document = serde_json::from_slice(&output.stdout).expect("JSON and nothing else");
        check(&document);
        assert_eq!((number(&document, "flaps"), number(&document, "kills")), (2, 3), "{document}");
        assert_eq!(document["ok"] == true, output.status.success(), "{document}");
    }
}

#[test]
fn ctrl_c_ends_it_with_the_verdict() {
    let name = "ctrl_c_ends_it_with_the_verdict";
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let start = Instant::now();
    let mut child = command(&["--kill-every", "1"]).spawn().expect("the binary was built for this test");
    // The first line is due 5 s after it began, which may take a while
    std::thread::sleep(Duration::from_secs(9));
    if child.try_wait().expect("it is a child").is_none() {
        let status = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
        assert!(status.expect("every Linux has kill").success());
    }
    let output = child.wait_with_output().expect("it ends");
    if ran(name, &output).is_none() {
        return;
    }
    assert!(start.elapsed() < Duration::from_secs(60), "it was to run for 600 s");
    let shown = text(&output.stdout);
    for word in ["af_xdp_", "flaps", "kills", "  5s ", "killed", "damaged", "buffers missing", "socket 1: "] {
        assert!(shown.contains(word), "{word} is missing:\n{shown}");
    }
    assert!(shown.contains("\nPASS: ") || shown.contains("\nFAIL: "), "{shown}");
}

#[test]
fn without_root_it_says_what_it_would_need() {
    let name = "without_root_it_says_what_it_would_need";
    let mut command = command(&["--seconds", "5"]);
    if std::fs::metadata("/proc/self").expect("a Linux has /proc").uid() == 0 {
        command.uid(NOBODY).gid(NOBODY);
    }
    match command.output() {
        Err(error) => println!("SKIP {name}: nobody may not run the binary: {error}"),
        Ok(output) if output.status.success() => println!("SKIP {name}: this user has the capabilities"),
        Ok(output) => assert!(text(&output.stderr).contains("CAP_SYS_ADMIN"), "{}", text(&output.stderr)),
    }
}
