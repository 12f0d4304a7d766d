//! `pagepool completions`: what a shell suggests behind `pagepool`.

use std::io;
use std::process::ExitCode;

use clap::{Args, CommandFactory};
use clap_complete::{Generator, Shell};

use super::Cli;
use super::run::RunCommand;

/// The shell.
#[derive(Args)]
pub struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

impl RunCommand for CompletionsArgs {
    fn run(&self) -> Result<ExitCode, String> {
        write_script(self.shell, &mut io::stdout()).map_err(|error| error.to_string())?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Writes the script of a shell.
pub fn write_script(shell: Shell, to: &mut dyn io::Write) -> io::Result<()> {
    let mut command = Cli::command().bin_name("pagepool");
    command.build();
    shell.try_generate(&command, to)
}
