//! `pagepool show`: shows everything that processes publish about themselves.

use std::process::ExitCode;

use clap::Args;

use crate::command::Command;
use crate::observing::details::Details;
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
        let details = Details { explain: self.explain };
        let view: View =
            Box::new(move |look, selected, before, of| details.lines(look, selected, before, of));
        self.options.show(Published::new(&self.of, view)?)
    }
}
