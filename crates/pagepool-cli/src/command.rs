//! What every command can do: run.

use std::process::ExitCode;

/// The options of a command, which can run it.
pub trait Command {
    /// Runs the command. The status says whether the run passed.
    fn execute(&self) -> Result<ExitCode, String>;
}
