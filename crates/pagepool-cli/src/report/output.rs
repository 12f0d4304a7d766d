//! Where text goes: lines on standard output, messages on standard error.
//!
//! What   standard output may end at any time: a full disk, a reader that goes, a closed terminal. The first
//!        write that fails is noted, and nothing more is printed there. A run looks at [`failed`] and ends in
//!        order; [`exit_status`] then says why, and makes the status of it. A reader that goes has read what
//!        it wanted: that is said to nobody, and the status is that of the run.
//! Why    `println!` panics instead, which ends the process at once: what was set on an interface would stay
//!        so. That standard error cannot be written is nothing that anybody could be told.

use std::fmt::{Arguments, Display};
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::OnceLock;

use super::exit_status;

/// Why standard output could not be written: a process has one.
static FAILURE: OnceLock<WriteFailure> = OnceLock::new();

/// Why it could not.
enum WriteFailure {
    /// Its reader went.
    Unread,
    /// The kernel says why.
    Refused(String),
}

/// Prints a line.
pub fn line(text: impl Display) {
    write(format_args!("{text}\n"));
}

/// Prints text that has its ends of lines.
pub fn whole(text: &str) {
    write(format_args!("{text}"));
}

/// Says on standard error why the command does not do what it was asked to.
pub fn error(text: impl Display) {
    say(format_args!("pagepool: {text}"));
}

/// Says on standard error what goes otherwise than it was probably meant.
pub fn warn(text: impl Display) {
    say(format_args!("pagepool: warning: {text}"));
}

/// Says on standard error what is good to know.
pub fn note(text: impl Display) {
    say(format_args!("pagepool: note: {text}"));
}

/// Prints a line on standard error that is no message: figures beside JSON.
pub fn aside(text: impl Display) {
    say(format_args!("{text}"));
}

fn say(text: Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{text}"); // there is nobody else to tell
}

/// Whether standard output could not be written.
pub fn failed() -> bool {
    FAILURE.get().is_some()
}

/// Standard output could not be written, for this reason.
pub fn fail(error: &io::Error) {
    let why = match error.kind() {
        io::ErrorKind::BrokenPipe => WriteFailure::Unread,
        _ => WriteFailure::Refused(said(error)),
    };
    let _ = FAILURE.set(why); // the first reason counts
}

/// What the kernel says, without the number that Rust adds.
fn said(error: &io::Error) -> String {
    let text = error.to_string();
    text.split_once(" (os error").map_or(text.clone(), |(text, _)| text.to_owned())
}

/// The status that a command ends with: this one, unless it could not print what it had to.
pub fn exit_status(status: ExitCode) -> ExitCode {
    let Some(WriteFailure::Refused(why)) = FAILURE.get() else { return status };
    error(format_args!("cannot write results: {why}"));
    exit_status::FAILED.into()
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
