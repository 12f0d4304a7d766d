//! What the options of every command do.

use std::process::ExitCode;

/// Options that can be run.
pub trait Run {
    /// Runs the command; the status says whether all is well.
    fn run(&self) -> Result<ExitCode, String>;
}
