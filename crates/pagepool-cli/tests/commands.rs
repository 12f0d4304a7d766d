//! The texts that come from the declaration of the command line: manual pages and completions.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Output};

use pagepool_lab::TempFolder;

const PAGEPOOL: &str = env!("CARGO_BIN_EXE_pagepool");

fn pagepool(arguments: &[&str]) -> Output {
    Command::new(PAGEPOOL).args(arguments).env("COLUMNS", "100").output().expect("the binary of this crate")
}

fn said(arguments: &[&str]) -> String {
    let output = pagepool(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// The commands that a help text lists, without `help`.
fn listed(help: &str) -> Vec<&str> {
    let Some((_, commands)) = help.split_once("\nCommands:\n") else { return Vec::new() };
    let rows = commands.lines().take_while(|line| !line.is_empty());
    let names = rows.filter(|row| row.starts_with("  ") && !row.starts_with("   "));
    names.filter_map(|row| row.split_whitespace().next()).filter(|name| *name != "help").collect()
}

/// A folder of this test, empty.
fn folder(name: &str) -> TempFolder {
    TempFolder::new(&format!("pagepool-{name}")).expect("a new folder")
}

#[test]
fn each_command_has_a_manual_page() {
    let folder = folder("man");
    let dir = folder.path();
    said(&["man", "--dir", dir.to_str().unwrap()]);
    let help = said(&["--help"]);
    for command in listed(&help) {
        let page = fs::read_to_string(dir.join(format!("pagepool-{command}.1"))).unwrap();
        for section in [".SH NAME", ".SH SYNOPSIS", ".SH DESCRIPTION"] {
            assert!(page.contains(section), "{command}: {section} is missing:\n{page}");
        }
    }
    assert_eq!(said(&["man"]), fs::read_to_string(dir.join("pagepool.1")).unwrap());
}

#[test]
fn a_directory_that_is_missing_fails() {
    let output = pagepool(&["man", "--dir", "/nonexistent/man"]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("/nonexistent/man"));
}

#[test]
fn completions_name_every_command() {
    let help = said(&["--help"]);
    for shell in ["bash", "zsh", "fish"] {
        let script = said(&["completions", shell]);
        for command in listed(&help) {
            assert!(script.contains(command), "{shell}: {command}");
        }
    }
}

#[test]
fn bash_reads_its_script_and_completes() {
    let folder = folder("completions");
    let script = folder.path().join("pagepool");
    fs::write(&script, said(&["completions", "bash"])).unwrap();
    let complete = concat!(
        r#"source "$0"; COMP_WORDS=(pagepool ech); COMP_CWORD=1; "#,
        r#"_pagepool pagepool ech pagepool; echo "${COMPREPLY[@]}""#
    );
    let Ok(output) = Command::new("bash").arg("-c").arg(complete).arg(&script).output() else {
        return println!("SKIP: this machine has no bash");
    };
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "echo");
}

#[test]
fn arguments_may_be_any_bytes() {
    let bytes = OsStr::from_bytes(b"/\xff");
    let run = |arguments: &[&OsStr]| Command::new(PAGEPOOL).args(arguments).output().unwrap();
    let of_name = run(&["drop".as_ref(), bytes]);
    assert_eq!(of_name.status.code(), Some(2), "{}", String::from_utf8_lossy(&of_name.stderr));
    let of_file = run(&["drop".as_ref(), "nope0".as_ref(), "--pcap".as_ref(), bytes]);
    let said = String::from_utf8_lossy(&of_file.stderr);
    assert!(of_file.status.code() == Some(1) && said.contains("nope0"), "{said}");
}
