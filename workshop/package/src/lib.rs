//! Installs and packages pagepool: what the programs `pagepool-install` and `pagepool-package` run.

use std::error::Error;
use std::process::ExitCode;

pub mod install;
pub mod package;
mod settings;
mod tool;

/// What a program exits with. It prints the error.
pub fn exit_code(done: Result<(), Box<dyn Error>>) -> ExitCode {
    let Err(error) = done else { return ExitCode::SUCCESS };
    eprintln!("pagepool: {error}");
    ExitCode::FAILURE
}
