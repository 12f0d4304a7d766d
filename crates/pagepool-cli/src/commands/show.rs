//! `pagepool show`: all that processes publish of themselves.

use std::process::ExitCode;

use clap::Args;

use crate::observing::details::Details;
use crate::observing::options::{ObserveOptions, status};
use crate::run_command::RunCommand;

/// Of what, and how it is printed.
#[derive(Args, Clone, Debug)]
pub struct ShowArgs {
    /// The name or PID of a process, or the name of a pool [default: all]
    #[arg(value_name = "PROCESS|POOL")]
    of: Option<String>,
    /// Say what each counter of a pool means, and what to do if it rises
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
