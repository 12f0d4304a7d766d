//! `pagepool show`: shows everything that processes publish about themselves.

use std::process::ExitCode;

use clap::Args;

use crate::command::Command;
use crate::observing::details::Details;
use crate::observing::options::{ObserveOptions, status};
use crate::observing::selection::Selection;

#[derive(Args, Clone, Debug)]
pub struct ShowArgs {
    #[command(flatten)]
    of: Selection,
    /// Explain what each counter of a pool means, and what to do if it rises
    #[arg(long)]
    explain: bool,
    #[command(flatten)]
    options: ObserveOptions,
}

impl Command for ShowArgs {
    fn execute(&self) -> Result<ExitCode, String> {
        self.options.show(&Details { of: self.of.clone(), explain: self.explain }).map(status)
    }
}
