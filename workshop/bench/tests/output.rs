//! The program on a terminal and in a pipe, where its output cannot be written, and under limits.

use std::fs;
use std::process::Stdio;

use pagepool_lab::TempFolder;
use serde_json::Value;

use crate::program::limits::{limited, run};
use crate::program::terminal::{assert_fits, has_script, on_terminal};
use crate::program::unwritable::{cannot_print, closed, full};
use crate::program::{binary, text};

/// Runs that print.
const PRINTING: [&[&str]; 5] = [
    &["--help"],
    &["--list"],
    &["--quick", "--filter", "empty_loop"],
    &["--quick", "--filter", "empty_loop", "--json"],
    &["mtu", "--quick"],
];

#[test]
fn what_cannot_be_printed_is_said_and_is_a_status() {
    for arguments in PRINTING {
        cannot_print(arguments, &[0]);
    }
}

#[test]
fn errors_set_the_exit_status_even_without_a_working_stderr() {
    for errors in [full().into(), closed()] {
        let ended = binary(&["--filter", "x!"]).stderr::<Stdio>(errors).status();
        assert_eq!(ended.expect("the binary was built for this test").code(), Some(1));
    }
}

#[test]
fn a_limit_on_file_sizes_is_an_error() {
    let folder = TempFolder::new("pagepool-limit").expect("a new folder");
    let out = folder.path().join("out");
    let output = run(limited("-f 0", &["--quick", "--filter", "empty_loop"], &format!(">{}", out.display())));
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{:?} {said}", output.status);
    assert!(said.ends_with("pagepool: cannot write results: File too large\n"), "{said}");
    fs::remove_file(&out).expect("the shell made it");
}

#[test]
fn a_limit_on_cpu_time_ends_the_bench_with_the_results_so_far() {
    for json in [false, true] {
        let bench = [&["--quick"][..], if json { &["--json"] } else { &[] }].concat();
        let output = run(limited("-S -t 1", &bench, ""));
        let (shown, said) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(1), "{:?}: {shown}{said}", output.status);
        assert!(said.contains("the limit on CPU time is reached: "), "{said}");
        let ran = match json {
            true => serde_json::from_str(shown).is_ok_and(|all: Value| all["results"][0]["name"].is_string()),
            false => shown.contains(" workloads, "),
        };
        assert!(ran, "{shown}{said}");
    }
}

#[test]
fn a_hyphen_is_the_name_of_no_file() {
    for arguments in
        [&["--plot", "-"][..], &["--plot", "x.svg", "--peers", "-"], &["--plot", "x.svg", "--results", "-"]]
    {
        let output = run(binary(arguments));
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains("use `./-`"), "{arguments:?}: {said}");
    }
}

#[test]
fn a_bench_says_how_far_it_is_and_fits() {
    let name = "a_bench_says_how_far_it_is_and_fits";
    if !has_script(name) {
        return;
    }
    let output = on_terminal("--quick --filter page_direct", 80, 24).output().expect("it is there");
    let shown = text(&output.stdout);
    assert!(shown.contains("\rbench: 1 of "), "{shown:?}");
    assert_fits(shown, 80);
    let errors = binary(&["--quick", "--filter", "page_direct"]).output().expect("it was built");
    assert_eq!(text(&errors.stderr), "", "no progress in a pipe");
}
