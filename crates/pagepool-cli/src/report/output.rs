//! Where text goes: lines on standard output, notes on standard error.
//!
//! What   standard output may end at any time: a full disk, a reader that goes, a closed terminal. The first
//!        write that fails is noted, and nothing more is printed there. A run looks at [`failed`] and ends in
//!        order; [`exit_status`] then says why, and makes the status of it.
//! Why    `println!` panics instead, which ends the process at once: what was set on an interface would stay
//!        so. That standard error cannot be written is nothing that anybody could be told.

use std::fmt::{Arguments, Display};
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::OnceLock;

use super::exit_status;

/// Why standard output could not be written: a process has one.
static FAILURE: OnceLock<String> = OnceLock::new();

/// Prints a line.
pub fn line(text: impl Display) {
    write(format_args!("{text}\n"));
}

/// Prints text that has its ends of lines.
pub fn whole(text: &str) {
    write(format_args!("{text}"));
}

/// Prints a line on standard error.
pub fn note(text: impl Display) {
    let _ = writeln!(io::stderr(), "{text}"); // there is nobody else to tell
}

/// Whether standard output could not be written.
pub fn failed() -> bool {
    FAILURE.get().is_some()
}

/// Standard output could not be written, for this reason.
pub fn fail(error: &io::Error) {
    let why = match error.kind() {
        io::ErrorKind::BrokenPipe => "nobody reads it any more".to_owned(),
        _ => error.to_string(),
    };
    let _ = FAILURE.set(why); // the first reason counts
}

/// The status that a command ends with: this one, unless it could not print what it had to.
pub fn exit_status(status: ExitCode) -> ExitCode {
    let Some(why) = FAILURE.get() else { return status };
    note(format_args!("standard output cannot be written: {why}"));
    exit_status::OUTPUT.into()
}

fn write(text: Arguments<'_>) {
    if failed() {
        return;
    }
    let mut output = io::stdout().lock();
    if let Err(error) = output.write_fmt(text).and_then(|()| output.flush()) {
        fail(&error);
    }
}
