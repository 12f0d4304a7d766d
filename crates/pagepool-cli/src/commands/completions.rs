//! `pagepool completions`: what a shell suggests after `pagepool`.

use std::process::ExitCode;

use clap::{Args, CommandFactory};
use clap_complete::{Generator, Shell};

use crate::command::Command;
use crate::commands::Cli;
use crate::report::output;

#[derive(Args)]
pub struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

impl Command for CompletionsArgs {
    fn execute(&self) -> Result<ExitCode, String> {
        let (mut command, mut script) = (Cli::command().bin_name("pagepool"), Vec::<u8>::new());
        command.build();
        self.shell.try_generate(&command, &mut script).map_err(|error| error.to_string())?;
        output::text(&String::from_utf8_lossy(&script));
        Ok(ExitCode::SUCCESS)
    }
}
