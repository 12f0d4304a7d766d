//! `pagepool top`: a live screen of the processes that publish, and of their pools.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use crate::command::Command;
use crate::observing::look::folder;
use crate::report::in_range;
use crate::top;

/// The long help.
pub const ABOUT: &str = "\
Show the pools of processes that publish, live: rates, where the pages are, and details with counters \
explained

Most keys are those of htop: F1 or h lists them. Enter shows the details of a pool: its counters with \
what they mean and what to do if they rise, its last looks, where its pages are, and its parameters. A \
killed process stays in the table, marked DEAD, with what it held. The table also has the page pools of the \
kernel's drivers, if the kernel lists them (Linux 6.8). docs/observing.md has the columns.

Requires a terminal; `pagepool list --watch` prints lines, and with --json objects.";

#[derive(Args, Clone, Debug)]
pub struct TopArgs {
    /// The time between two looks, 0.1 to 60; the keys + and - change it
    #[arg(long, short, value_name = "SECONDS", default_value = "1", value_parser = delay)]
    delay: Duration,
    /// Show only pools whose process, PID, name or thread contains one of these words, separated by |
    #[arg(long, short, value_name = "WORDS", default_value = "", hide_default_value = true)]
    filter: String,
}

impl Command for TopArgs {
    fn execute(&self) -> Result<ExitCode, String> {
        top::show(folder()?, self.delay, self.filter.clone()).map(|()| ExitCode::SUCCESS)
    }
}

fn delay(text: &str) -> Result<Duration, String> {
    in_range(0.1..=60.0, "the delay is 0.1 to 60 seconds")(text).map(Duration::from_secs_f64)
}
