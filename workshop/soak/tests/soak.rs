//! The program as a user runs it, for a few seconds.

use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use crate::program::reading::Reading;
use crate::program::terminal::{assert_fits, has_script, on_terminal};
use crate::program::{binary, number, text};

/// Of nobody, who may do nothing.
const NOBODY: u32 = 65_534;
/// One at a time: they are to have the machine.
static TURN: Mutex<()> = Mutex::new(());

fn start(arguments: &[&str]) -> Reading {
    Reading::new(binary(arguments).spawn().expect("the binary was built for this test"))
}

/// All that must hold, but for how long something took: another test may have had the machine.
pub fn check(document: &Value) {
    let zeros =
        ["damaged", "repeated", "unaccounted", "never_sent", "slow_after_warmup", "missing", "nic_errors"];
    for zero in zeros.into_iter().chain(["descriptors_grown"]) {
        assert_eq!(number(document, zero), 0, "{zero}: {document}");
    }
    let [sent, packets, doubt] = ["sent", "packets", "in_doubt"].map(|key| number(document, key));
    assert!(packets > 0 && packets <= sent + doubt, "{document}");
    let lost: u64 =
        ["lost_before", "lost_in_forwarder", "lost_after"].map(|key| number(document, key)).iter().sum();
    assert!((packets + lost).abs_diff(sent) <= doubt, "every packet is somewhere: {document}");
    assert!(document["mode"].as_str().is_some_and(|mode| mode.starts_with("af_xdp_")), "{document}");
    assert_eq!(document["xdp"].as_array().map(Vec::len), Some(2), "{document}");
}

#[test]
fn a_soak_accounts_for_all_packets_over_flaps_and_kills() {
    let name = "a_soak_accounts_for_all_packets_over_flaps_and_kills";
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let more = ["--seconds", "600", "--flap-every", "3", "--kill-every", "2", "--json=lines"];
    let mut soak = start(&[&more[..], &["--stats-every", "0"]].concat());
    let Some(_) = soak.first(name) else { return };
    let so_far = |line: &Value, what: &str| number(&line["peers"]["total"], what);
    soak.ask_until(|line| so_far(line, "flaps") >= 2 && so_far(line, "kills") >= 3);
    soak.signal("-INT");
    let (rest, status) = soak.rest();
    let document = &rest.last().expect("the last line")["verdict"];
    check(document);
    assert!(number(document, "flaps") >= 2 && number(document, "kills") >= 3, "{document}");
    assert_eq!((document["ok"] == true, soak.said()), (status == Some(0), String::new()), "{document}");
}

#[test]
fn ctrl_c_ends_it_with_the_verdict() {
    let name = "ctrl_c_ends_it_with_the_verdict";
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut soak = start(&["--seconds", "600", "--kill-every", "1", "--stats-every", "1"]);
    let shown = soak.until_figures(1);
    let said = soak.said();
    if shown.is_empty() && said.contains("CAP_") {
        return println!("SKIP {name}: {}", said.trim());
    }
    assert!(said.is_empty(), "{said}");
    for word in ["af_xdp_", "flaps", "kills", "killed", "damaged", "buffers missing", "socket 1: "] {
        assert!(shown.contains(word), "{word} is missing:\n{shown}");
    }
    assert!(shown.contains("\nPASS: ") || shown.contains("\nFAIL: "), "{shown}");
}

#[test]
fn without_root_it_says_what_it_would_need() {
    let name = "without_root_it_says_what_it_would_need";
    let mut command = binary(&["--seconds", "5"]);
    if std::fs::metadata("/proc/self").expect("a Linux has /proc").uid() == 0 {
        command.uid(NOBODY).gid(NOBODY);
    }
    match command.output() {
        Err(error) => println!("SKIP {name}: nobody may not run the binary: {error}"),
        Ok(output) if output.status.success() => println!("SKIP {name}: this user has the capabilities"),
        Ok(output) => assert!(text(&output.stderr).contains("CAP_SYS_ADMIN"), "{}", text(&output.stderr)),
    }
}

#[test]
fn it_fits_a_usual_screen() {
    let name = "it_fits_a_usual_screen";
    if !has_script(name) {
        return;
    }
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let arguments = "--seconds 5 --stats-every 1 --flap-every 3 --kill-every 1";
    let output = on_terminal(arguments, 80, 24).output().expect("it is there");
    let shown = text(&output.stdout);
    if shown.contains("CAP_") {
        return println!("SKIP {name}: {shown}");
    }
    assert!(["PASS: ", "FAIL: "].iter().any(|end| shown.contains(end)), "{shown:?}");
    assert_fits(shown, 80);
}
