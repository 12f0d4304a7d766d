//! The tools of others that tests run.

use std::process::{Command, Output};

/// Whether a tool is there; prints SKIP if it is not.
pub fn has_tool(tool: &str) -> bool {
    let there = Command::new(tool).arg("--version").output().is_ok_and(|done| done.status.success());
    if !there {
        println!("SKIP: this machine has no {tool}");
    }
    there
}

/// Runs a command.
///
/// # Panics
///
/// If it fails, with what it printed.
pub fn run(command: &mut Command) -> Output {
    let done = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        done.status.success(),
        "{command:?}: {}\n{}{}",
        done.status,
        text(&done.stdout),
        text(&done.stderr)
    );
    done
}
