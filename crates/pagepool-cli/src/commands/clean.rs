//! `pagepool clean`: removes the files of dead processes.

use std::process::ExitCode;

use clap::Args;
use pagepool_watch::shown_path;

use crate::command::Command;
use crate::observing::look::folder;
use crate::report::{error_chain, in_words, output};

#[derive(Args, Clone, Copy, Debug)]
pub struct CleanArgs {}

impl Command for CleanArgs {
    fn execute(&self) -> Result<ExitCode, String> {
        let folder = folder()?;
        let cleaned = folder.clean().map_err(in_words)?;
        let mut status = ExitCode::SUCCESS;
        for file in &cleaned {
            match file {
                Ok(path) => output::line(format_args!("removed {}", shown_path(path))),
                Err(error) => {
                    output::error(error_chain(error));
                    status = ExitCode::FAILURE;
                }
            }
        }
        if cleaned.is_empty() {
            output::line(format_args!("{} has no file of a dead process.", shown_path(folder.path())));
        }
        Ok(status)
    }
}
