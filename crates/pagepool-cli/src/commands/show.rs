//! `pagepool show`: shows everything that processes publish about themselves.

use std::process::ExitCode;

use clap::Args;

use crate::command::Command;
use crate::observing::details;
use crate::observing::options::ObserveOptions;
use crate::observing::selection::{Published, Selection, View};

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
        let explain = self.explain;
        let view: View = Box::new(move |looks, selected| details::lines(explain, looks, selected));
        self.options.show(Published::new(&self.of, view)?)
    }
}
