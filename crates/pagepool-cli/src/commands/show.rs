//! `pagepool show`: shows everything that processes publish about themselves.

use std::process::ExitCode;

use clap::Args;

use crate::command::RunCommand;
use crate::observing::chosen::Chosen;
use crate::observing::details::Details;
use crate::observing::options::{ObserveOptions, status};

#[derive(Args, Clone, Debug)]
pub struct ShowArgs {
    #[command(flatten)]
    of: Chosen,
    /// Explain what each counter of a pool means, and what to do if it rises
    #[arg(long)]
    explain: bool,
    #[command(flatten)]
    options: ObserveOptions,
}

impl RunCommand for ShowArgs {
    fn run(&self) -> Result<ExitCode, String> {
        self.options.run(&Details { of: self.of.clone(), explain: self.explain }).map(status)
    }
}
