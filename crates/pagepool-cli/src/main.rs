//! The pagepool command.

// A panic because text cannot be printed would end a run before it restores what it set: see
// `report::output`.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod bench;
mod commands;
mod demo;
mod engine;
mod file_name;
#[cfg(any(test, not(feature = "full")))]
mod left_out;
mod observing;
mod queues;
mod report;
mod run_command;
mod soak;
mod sys;
#[cfg(feature = "full")]
mod top;
mod traffic;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

use crate::commands::Cli;
use crate::engine::interrupt::outlive_file_size_limit;
use crate::report::output;

fn main() -> ExitCode {
    if let Err(why) = outlive_file_size_limit() {
        output::warn(why);
    }
    let read = Cli::command().try_get_matches();
    let status = read.and_then(|matches| Cli::from_arg_matches(&matches)).map_or_else(
        |asked| told(&asked),
        |cli| {
            cli.command.run().unwrap_or_else(|why| {
                output::error(why);
                ExitCode::FAILURE
            })
        },
    );
    output::exit_status(status)
}

fn told(asked: &clap::Error) -> ExitCode {
    let text = asked.render().to_string();
    match text.strip_prefix("error: ") {
        Some(why) => output::error(why.trim_end()),
        None => {
            if let Err(error) = asked.print()
                && !asked.use_stderr()
            {
                output::fail(&error);
            }
        }
    }
    ExitCode::from(asked.exit_code() as u8) // 0 or 2
}
