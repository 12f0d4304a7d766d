//! `pagepool man`: the manual pages.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory};
use clap_mangen::Man;

use crate::command::Command;
use crate::commands::Cli;
use crate::file_name::file_name;
use crate::report::output;

#[derive(Args)]
pub struct ManArgs {
    /// Write pagepool.1 and a page for each command to DIR, which must exist; without it, print pagepool.1
    #[arg(long, value_name = "DIR", value_parser = file_name())]
    dir: Option<PathBuf>,
}

impl Command for ManArgs {
    fn execute(&self) -> Result<ExitCode, String> {
        match &self.dir {
            Some(dir) => {
                let written = clap_mangen::generate_to(Cli::command(), dir);
                written.map_err(|error| format!("{}: {error}", dir.display()))?;
            }
            None => {
                let mut page = Vec::new();
                let man = Man::new(Cli::command().disable_help_subcommand(true));
                man.render(&mut page).map_err(|error| error.to_string())?;
                output::text(&String::from_utf8_lossy(&page));
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
