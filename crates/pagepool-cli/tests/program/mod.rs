//! The program of a package, as a user runs it. The tests of the programs in `workshop` include this folder.

#![allow(dead_code)] // each test program uses a part

pub mod killing;
pub mod limits;
pub mod lines;
pub mod reading;
pub mod terminal;
pub mod unwritable;

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Nothing here takes as long, however busy the machine is.
pub const LIMIT: Duration = Duration::from_secs(60);
/// The time between two looks whether something is so.
pub const NAP: Duration = Duration::from_millis(5);

/// Where commands publish that tests run.
pub const RUN_FOLDER: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/run");

/// Waits until this holds; says what does not if it never does.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < LIMIT, "{what}");
        std::thread::sleep(NAP);
    }
}

/// A process that ends with this value at the latest.
pub struct Ends(pub Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill(); // it may have ended by itself
        let _ = self.0.wait();
    }
}

/// Sends a signal to a process, which may have ended, but was not waited for.
pub fn signal(signal: &str, process: u32) {
    let done = Command::new("kill").args([signal, &process.to_string()]).status();
    assert!(done.expect("every Linux has kill").success());
}

/// The tested program with these arguments.
pub fn binary(arguments: &[&str]) -> Command {
    let mut command = Command::new(crate::tested());
    command.args(arguments).env_remove("SSH_CONNECTION").env_remove("CLICOLOR_FORCE");
    command.env("PAGEPOOL_RUN", RUN_FOLDER);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the command prints text")
}

pub fn number(document: &Value, key: &str) -> u64 {
    document[key].as_u64().unwrap_or_else(|| panic!("{key} is no count: {document}"))
}
