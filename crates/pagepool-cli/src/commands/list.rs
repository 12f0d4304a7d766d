//! `pagepool list`: lists the processes that publish with their pools, or the page pools of the kernel's
//! drivers.

mod kernel_pools;

use std::process::ExitCode;

use clap::Args;
use pagepool_watch::KernelWatch;

use crate::command::Command;
use crate::observing::options::ObserveOptions;
use crate::observing::overview;
use crate::observing::selection::{Published, Selection};
use crate::report::in_words;

/// The long help.
pub const ABOUT: &str = "\
List the processes that publish, and their pools; or the page pools of the kernel's drivers

Programs publish with pagepool::publish (C: pagepool_publish); the commands of pagepool do so automatically. \
The folder is $PAGEPOOL_RUN, else /run/pagepool for root, else $XDG_RUNTIME_DIR/pagepool. \
A process that was killed is shown as DEAD, with what it held, until `pagepool clean`. A process that \
publishes removes older dead ones of its name, except the last to die.

Columns, with Linux's names in its netlink dump of page pools: id; if: the interface (ifindex); thread: \
the owner (napi-id); inflight: pages of the pool; mem: their bytes (inflight-mem); ever%: allocated pages \
that had been used before, since the pool was made; out: pages with buffers out; slow: calls to the arena \
since then; detached: how long ago the pool ended with buffers out (detach-time). With --watch, recyc% and \
slow/s are of the time since the previous look, as in `pagepool top`. docs/observing.md says how to improve \
them.";

#[derive(Args, Clone, Debug)]
pub struct ListArgs {
    #[command(flatten)]
    of: Selection,
    /// List the page pools of the kernel's drivers in this network namespace
    ///
    /// Requires Linux 6.8 with CONFIG_PAGE_POOL, and no capability. The counters require
    /// CONFIG_PAGE_POOL_STATS. docs/operations.md explains the columns.
    #[arg(long, conflicts_with = "of")]
    kernel: bool,
    #[command(flatten)]
    options: ObserveOptions,
}

impl Command for ListArgs {
    fn execute(&self) -> Result<ExitCode, String> {
        match self.kernel {
            true => self.options.show(KernelWatch::open().map_err(in_words)?),
            false => self.options.show(Published::new(&self.of, Box::new(overview::lines))?),
        }
    }
}
