//! What a terminal shows: nothing wraps, figures are drawn in place, and colours are there where they are
//! wanted. A pipe gets plain lines.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::between::{Place, Sets, binary, far_ends, hosts, text};
use crate::program::terminal::{assert_fits, has_script, on_terminal};
use pagepool_link::{TwoHosts, TwoHostsParams};

/// What `forward` shows while frames come.
fn forwarded(hosts: &TwoHosts, command: Command) -> String {
    let over = AtomicBool::new(false);
    let output = std::thread::scope(|threads| {
        let _over = Sets(&over);
        threads.spawn(|| {
            let [far, _] = far_ends(hosts);
            while !over.load(Ordering::Relaxed) {
                let _ = far.send(&[0xff; 64]); // the kernel takes those before the start
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        Place::Between(hosts).output(command)
    });
    text(&output.stdout).to_owned()
}

#[test]
fn figures_are_drawn_in_place_and_nothing_wraps() {
    let name = "figures_are_drawn_in_place_and_nothing_wraps";
    let Some(hosts) = hosts(name, &TwoHostsParams::default()) else { return };
    if !has_script(name) {
        return;
    }
    let blocks = |shown: &str| shown.matches("s  in ").count();
    for (columns, rows) in [(80, 24), (200, 50)] {
        let run = || forwarded(&hosts, on_terminal("forward near0 near1 --seconds 2", columns, rows));
        // A machine that stands still for a second shows one block of two, and a message between two blocks
        // leaves the first one where it is.
        let in_place = |shown: &str| blocks(shown) > 1 && shown.contains("A\r");
        let Some(shown) = (0..9).map(|_| run()).find(|shown| in_place(shown) || shown.contains("CAP_"))
        else {
            panic!("figures are shown once a second, over those before");
        };
        if shown.contains("CAP_") {
            return println!("SKIP {name}: {shown}");
        }
        assert!(shown.contains("\x1b[32mPASS: ") || shown.contains("\x1b[33mNo packets moved"), "{shown:?}");
        assert_fits(&shown, columns);
        let heads = shown.lines().filter(|line| line.contains(" in/s "));
        heads.for_each(|head| assert_eq!(head.contains("fill empty/s"), columns == 200, "{shown}"));
    }
}

/// What each of the others shows on a usual screen.
#[test]
fn every_command_fits_a_usual_screen() {
    let name = "every_command_fits_a_usual_screen";
    let Some(hosts) = hosts(name, &TwoHostsParams::default()) else { return };
    if !has_script(name) {
        return;
    }
    for arguments in [
        "drop near0 --verify --seconds 2",
        "echo near0 --seconds 2",
        "gen near0 --rate 1000 --seconds 2",
        "demo --seconds 2",
        "demo --action echo --seconds 2",
    ] {
        let shown = forwarded(&hosts, on_terminal(arguments, 80, 24));
        if shown.contains("CAP_") {
            println!("SKIP {name}, {arguments}: {shown}");
            continue;
        }
        let ends = ["PASS: ", "FAIL: ", "No packets moved"];
        assert!(ends.iter().any(|end| shown.contains(end)), "{arguments}: {shown:?}");
        let is_table = arguments.starts_with("demo"); // a row each time
        assert!(is_table || shown.contains("\x1b[K"), "{arguments}: figures are drawn in place: {shown:?}");
        assert_fits(&shown, 80);
    }
}

#[test]
fn colours_follow_the_environment_and_pipes_get_plain_lines() {
    let name = "colours_follow_the_environment_and_pipes_get_plain_lines";
    let Some(hosts) = hosts(name, &TwoHostsParams::default()) else { return };
    if !has_script(name) {
        return;
    }
    let second = ["forward", "near0", "near1", "--seconds", "1"];
    let tried = Place::Between(&hosts).output(binary(&["forward", "near0", "near1", "--seconds", "1"]));
    if text(&tried.stderr).contains("CAP_") {
        return println!("SKIP {name}: {}", text(&tried.stderr));
    }
    let piped = forwarded(&hosts, binary(&second));
    assert!(piped.contains("s  in ") && !piped.contains('\x1b'), "a pipe gets plain lines: {piped:?}");
    let mut forced = binary(&second);
    forced.env("CLICOLOR_FORCE", "1").env_remove("NO_COLOR");
    assert!(forwarded(&hosts, forced).contains("\x1b[3"));
    let mut command = on_terminal(&second.join(" "), 80, 24);
    command.env("NO_COLOR", "1");
    let quiet = forwarded(&hosts, command);
    assert!(quiet.contains("\x1b[K") && !quiet.contains("\x1b[3"), "{quiet:?}");
}

#[test]
fn beside_json_progress_ends_and_figures_are_folded() {
    let name = "beside_json_progress_ends_and_figures_are_folded";
    let Some(hosts) = hosts(name, &TwoHostsParams::default()) else { return };
    if !has_script(name) {
        return;
    }
    let opened = forwarded(&hosts, on_terminal("gen near0 --json --count 10 >/dev/null", 80, 24));
    if opened.contains("CAP_") {
        return println!("SKIP {name}: {opened}");
    }
    for doing in ["opening", "closing"] {
        assert!(opened.contains(&format!("\r{doing} queues: 1 of 1\x1b[K")), "{doing}: {opened:?}");
    }
    assert!(opened.ends_with("\r\x1b[J"), "nothing stays: {opened:?}");
    let figures = "forward near0 near1 --json --stats-every 1 --seconds 2 >/dev/null";
    let run = || forwarded(&hosts, on_terminal(figures, 80, 24));
    let figures = (0..9).map(|_| run()).find(|shown| shown.contains("s  in ")).expect("once a second");
    assert_fits(&figures, 80);
}

#[test]
fn errors_have_their_colour_on_a_terminal() {
    if !has_script("errors_have_their_colour_on_a_terminal") {
        return;
    }
    let said_with = |arguments: &str, no_color: &str| {
        let mut command = on_terminal(arguments, 80, 24);
        let output = command.env("NO_COLOR", no_color).output().expect("it is there");
        text(&output.stdout).to_owned()
    };
    let said = |arguments| said_with(arguments, "");
    let error = said("drop nope0");
    assert!(error.starts_with("\x1b[31mpagepool:\x1b[0m "), "{error:?}");
    assert!(said_with("drop nope0", "1").starts_with("pagepool: "));
    assert!(said("drop --rate x").starts_with("\x1b[31mpagepool:\x1b[0m unexpected argument"));
    assert!(said_with("drop --rate x", "1").starts_with("pagepool: unexpected argument"));
    assert!(!said_with("--help", "1").contains("\x1b["));
    assert_fits(&said("drop nope0 nope1 --match 'ip and ip and ip and ip and ip and ip and ip and x'"), 80);
}
