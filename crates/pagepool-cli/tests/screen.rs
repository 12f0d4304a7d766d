//! What a terminal shows: nothing wraps, figures are drawn in place, and colours are there where they are
//! wanted. A pipe gets plain lines.

mod between;

use std::process::{Command, Stdio};

use between::{Place, binary, hosts, text};
use pagepool_lab::{TwoHosts, TwoHostsParams};

/// The binary with these arguments on a terminal of this size, in which `script` runs it.
fn on_terminal(arguments: &str, columns: usize, rows: usize) -> Command {
    let run = env!("CARGO_BIN_EXE_pagepool");
    let script = format!("stty cols {columns} rows {rows}; exec {run} {arguments}");
    let mut command = Command::new("script");
    command.args(["-q", "-e", "-c", &script, "/dev/null"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.env("TERM", "xterm").env_remove("NO_COLOR").env_remove("SSH_CONNECTION");
    command
}

fn has_script(test: &str) -> bool {
    let found = Command::new("script").arg("--version").output().is_ok();
    if !found {
        println!("SKIP {test}: this machine has no `script` (util-linux)");
    }
    found
}

/// A text without what moves the cursor and colours it.
fn plain(shown: &str) -> String {
    let mut parts = shown.split("\x1b[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        let end = part.find(|of: char| of.is_ascii_alphabetic()).map_or(part.len(), |at| at + 1);
        text + &part[end..]
    })
}

fn assert_fits(shown: &str, columns: usize) {
    let plain = plain(shown);
    let mut lines = plain.split(['\n', '\r']); // a line of progress ends without a new one
    let wide = lines.find(|line| line.trim_end().chars().count() > columns);
    assert_eq!(wide, None, "{plain}");
}

/// What `forward` shows in some seconds, during which frames come.
fn forwarded(hosts: &TwoHosts, command: Command) -> String {
    let sent = std::thread::scope(|threads| {
        threads.spawn(|| {
            let [far, _] = between::far_ends(hosts);
            for _ in 0..300 {
                let _ = far.send(&[0xff; 64]); // some come after the start, and some before the end
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
        });
        Place::Between(hosts).output(command)
    });
    text(&sent.stdout).to_owned()
}

#[test]
fn figures_are_drawn_in_place_and_nothing_wraps() {
    let name = "figures_are_drawn_in_place_and_nothing_wraps";
    let Some(hosts) = hosts(name, &TwoHostsParams::default()) else { return };
    if !has_script(name) {
        return;
    }
    for (columns, rows) in [(80, 24), (200, 50)] {
        let shown = forwarded(&hosts, on_terminal("forward near0 near1 --seconds 3", columns, rows));
        if shown.contains("CAP_") {
            return println!("SKIP {name}: {shown}");
        }
        assert!(shown.contains("A\r   2s  in "), "the second block goes over the first: {shown:?}");
        assert!(shown.contains("\x1b[32mPASS: ") || shown.contains("\x1b[33mNo packets moved"), "{shown:?}");
        assert_fits(&shown, columns);
        assert_eq!(shown.contains("completion"), columns == 200, "wide terminals show more: {shown}");
    }
    let quiet = forwarded(&hosts, on_terminal("forward near0 near1 --seconds 2 --color never", 80, 24));
    assert!(!quiet.contains("\x1b[3"), "{quiet:?}");
    let mut command = on_terminal("forward near0 near1 --seconds 2", 80, 24);
    command.env("NO_COLOR", "1");
    assert!(!forwarded(&hosts, command).contains("\x1b[3"));
    let piped = forwarded(&hosts, binary(&["forward", "near0", "near1", "--seconds", "3"]));
    assert!(piped.contains("   1s  in ") && piped.contains("   2s  in "), "{piped}");
    assert!(!piped.contains('\x1b'), "a pipe gets plain lines: {piped:?}");
    let piped =
        forwarded(&hosts, binary(&["forward", "near0", "near1", "--seconds", "1", "--color", "always"]));
    assert!(piped.contains("\x1b[3"), "{piped:?}");
}

#[test]
fn a_bench_says_how_far_it_is_and_fits() {
    let name = "a_bench_says_how_far_it_is_and_fits";
    if !has_script(name) {
        return;
    }
    let output = on_terminal("bench --quick --filter page_direct", 80, 24).output().expect("it is there");
    let shown = text(&output.stdout);
    assert!(shown.contains("\rbench: 1 of "), "{shown:?}");
    assert_fits(shown, 80);
    let errors = binary(&["bench", "--quick", "--filter", "page_direct"]).output().expect("it was built");
    assert_eq!(text(&errors.stderr), "", "no progress in a pipe");
}

#[test]
fn errors_have_their_colour_on_a_terminal() {
    if !has_script("errors_have_their_colour_on_a_terminal") {
        return;
    }
    let said = |arguments: &str| {
        let output = on_terminal(arguments, 80, 24).output().expect("it is there");
        text(&output.stdout).to_owned()
    };
    let error = said("drop nope0");
    assert!(error.starts_with("\x1b[31mpagepool:\x1b[0m "), "{error:?}");
    assert!(said("drop nope0 --color never").starts_with("pagepool: "));
    assert!(said("drop --rate x").starts_with("\x1b[31mpagepool:\x1b[0m unexpected argument"));
    assert!(!said("--color never --help").contains("\x1b["));
    assert_fits(&said("drop nope0 nope1 --match 'ip and ip and ip and ip and ip and ip and ip and x'"), 80);
}
