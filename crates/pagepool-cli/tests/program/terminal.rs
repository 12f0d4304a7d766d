//! The tested program on a terminal.

use std::process::{Command, Stdio};

use super::RUN_FOLDER;

/// The binary with these arguments on a terminal of this size, in which `script` runs it.
pub fn on_terminal(arguments: &str, columns: usize, rows: usize) -> Command {
    let run = crate::tested();
    let run = run.to_str().expect("a path in UTF-8");
    let script = format!("stty cols {columns} rows {rows}; exec {run} {arguments}");
    let mut command = Command::new("script");
    command.args(["-q", "-e", "-c", &script, "/dev/null"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
        .env("TERM", "xterm")
        .env_remove("NO_COLOR")
        .env_remove("CLICOLOR_FORCE")
        .env_remove("SSH_CONNECTION");
    command.env("PAGEPOOL_RUN", RUN_FOLDER);
    command
}

pub fn has_script(test: &str) -> bool {
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

pub fn assert_fits(shown: &str, columns: usize) {
    let plain = plain(shown);
    let mut lines = plain.split(['\n', '\r']); // a line of progress ends without a new one
    let wide = lines.find(|line| line.trim_end().chars().count() > columns);
    assert_eq!(wide, None, "{plain}");
}
