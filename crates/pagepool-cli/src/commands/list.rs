//! `pagepool list --kernel`: the page pools of the kernel's drivers.

pub mod kernel_pools;

use std::process::ExitCode;

use clap::Args;

use crate::run_command::RunCommand;

/// What is listed, and how.
#[derive(Args, Clone, Copy, Debug)]
pub struct ListArgs {
    /// List the page pools of the kernel's drivers, of this network namespace
    ///
    /// Requires Linux 6.8 with CONFIG_PAGE_POOL, and no capability; the counters require
    /// CONFIG_PAGE_POOL_STATS. docs/operations.md explains the columns.
    #[arg(long, required = true)]
    kernel: bool,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

impl RunCommand for ListArgs {
    fn run(&self) -> Result<ExitCode, String> {
        kernel_pools::list(self.json).map(|()| ExitCode::SUCCESS)
    }
}
