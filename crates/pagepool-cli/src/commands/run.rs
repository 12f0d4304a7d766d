//! What the options of every command do.

use std::process::ExitCode;

use crate::traffic;
use crate::traffic::command::TrafficCommand;

/// Options that can be run.
pub trait RunCommand {
    /// Runs the command; the status says whether the run went well.
    fn run(&self) -> Result<ExitCode, String>;
}

/// Commands on interfaces run in the same way.
impl<C: TrafficCommand> RunCommand for C {
    fn run(&self) -> Result<ExitCode, String> {
        traffic::run::run(self)
    }
}
