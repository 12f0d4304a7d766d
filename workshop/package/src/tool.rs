//! The programs of others.

use std::process::Command;

/// Runs a program that must succeed; returns its standard output.
pub fn output_of(command: &mut Command) -> Result<String, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let done = command.output().map_err(|error| format!("{program}: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if done.status.success() {
        Ok(text(&done.stdout))
    } else {
        Err(format!("{program}: {}\n{}", done.status, text(&done.stderr)))
    }
}
