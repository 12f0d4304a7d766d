//! `pagepool completions`: what a shell suggests after `pagepool`.

use std::io;
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
        let mut script = Vec::new();
        write_script(self.shell, &mut script).map_err(|error| error.to_string())?;
        output::text(&String::from_utf8_lossy(&script));
        Ok(ExitCode::SUCCESS)
    }
}

pub fn write_script(shell: Shell, to: &mut dyn io::Write) -> io::Result<()> {
    let mut command = Cli::command().bin_name("pagepool");
    command.build();
    shell.try_generate(&command, to)
}
