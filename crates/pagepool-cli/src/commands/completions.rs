//! `pagepool completions`: what a shell suggests after `pagepool`.

use std::io;
use std::process::ExitCode;

use clap::{Args, Command, CommandFactory};
use clap_complete::{Generator, Shell};

use crate::commands::Cli;
use crate::report::output;
use crate::run_command::RunCommand;

#[derive(Args)]
pub struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

impl RunCommand for CompletionsArgs {
    fn run(&self) -> Result<ExitCode, String> {
        let mut script = Vec::new();
        write_script(self.shell, &mut script).map_err(|error| error.to_string())?;
        output::whole(&String::from_utf8_lossy(&script));
        Ok(ExitCode::SUCCESS)
    }
}

pub fn write_script(shell: Shell, to: &mut dyn io::Write) -> io::Result<()> {
    let mut command = visible(&Cli::command()).bin_name("pagepool").version(env!("CARGO_PKG_VERSION"));
    command.build();
    shell.try_generate(&command, to)
}

/// A copy without hidden commands, which `clap_complete` would list like any other.
fn visible(command: &Command) -> Command {
    let below = command.get_subcommands().filter(|below| !below.is_hide_set()).map(visible);
    Command::new(command.get_name().to_owned())
        .disable_help_flag(command.is_disable_help_flag_set())
        .about(command.get_about().cloned().unwrap_or_default())
        .args(command.get_arguments())
        .subcommands(below)
}
