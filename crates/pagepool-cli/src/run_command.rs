//! What the options of every command do.

use std::process::ExitCode;

/// Options that can be run.
pub trait RunCommand {
    /// Runs the command; the status says whether the run went well.
    fn run(&self) -> Result<ExitCode, String>;
}
