//! What every command can do: run.

use std::process::ExitCode;

/// The options of a command, which can run it.
pub trait RunCommand {
    /// Runs the command. The status says whether the run passed.
    fn run(&self) -> Result<ExitCode, String>;
}
