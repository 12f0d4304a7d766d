//! Outputs that cannot be written, and how a program ends that prints there.

use std::fs::File;
use std::process::{Output, Stdio};

use super::{binary, text};

pub fn full() -> File {
    File::options().write(true).open("/dev/full").expect("every Linux has it")
}

/// A pipe that nobody reads.
pub fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    writer.into()
}

/// Runs the program to its end with each of these outputs: it says that it cannot print, or ends silently,
/// with one of these statuses.
pub fn cannot_print(arguments: &[&str], statuses: &[i32]) {
    let run = |output: Stdio| binary(arguments).stdout(output).output().expect("it was built for this test");
    refused(arguments, &run(full().into()));
    left(arguments, &run(closed()), statuses);
}

/// It could not print, and says so.
pub fn refused(arguments: &[&str], output: &Output) {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
    let why = "pagepool: cannot write results: No space left on device\n";
    assert!(said.ends_with(why), "{arguments:?}: {said}");
}

/// The reader of its output exited: it ends silently, with one of these statuses.
pub fn left(arguments: &[&str], output: &Output, statuses: &[i32]) {
    assert_eq!(text(&output.stderr), "", "{arguments:?}");
    let status = output.status.code().expect("no signal ends it");
    assert!(statuses.contains(&status), "{arguments:?}: {status}");
}
