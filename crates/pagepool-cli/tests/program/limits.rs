//! The tested program under a limit of its shell.

use std::process::{Command, Output, Stdio};

use super::{RUN_FOLDER, binary};

/// A command of this build with a limit, and what its shell does besides.
pub fn limited(limit: &str, arguments: &[&str], redirection: &str) -> Command {
    let plain = binary(arguments);
    let mut command = Command::new("sh");
    // `exec` keeps the process.
    command.args(["-c", &format!("ulimit {limit}; exec \"$0\" \"$@\" {redirection}")]);
    command.arg(plain.get_program()).args(plain.get_args());
    command.env_remove("SSH_CONNECTION").env("PAGEPOOL_RUN", RUN_FOLDER);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub fn run(mut command: Command) -> Output {
    command.output().expect("every Linux has sh")
}
