//! `pagepool soak`: forwards at full load while interfaces and peers fail.

use std::process::ExitCode;

use clap::Args;

use crate::engine::interrupt::listen;
use crate::run_command::RunCommand;
use crate::soak::run::soak;
use crate::soak::schedule::Schedule;

/// What fails, and what is printed.
#[derive(Args, Clone, Copy, Debug)]
pub struct SoakArgs {
    #[command(flatten)]
    schedule: Schedule,
    /// Print one JSON object at the end, and nothing else
    #[arg(long)]
    json: bool,
}

impl RunCommand for SoakArgs {
    fn run(&self) -> Result<ExitCode, String> {
        let interrupted = listen()?;
        Ok(soak(&self.schedule, !self.json, &interrupted)?.print(self.json))
    }
}
