//! The pagepool command.

// A panic where text cannot be printed would end a run without putting back what it set: `report::output`.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod bench;
mod commands;
mod demo;
mod engine;
mod report;
mod run_command;
mod soak;
mod sys;
mod traffic;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

use crate::commands::Cli;
use crate::report::{colour, output};

fn main() -> ExitCode {
    let read = Cli::command().color(colour::asked(std::env::args())).try_get_matches();
    let status = read.and_then(|matches| Cli::from_arg_matches(&matches)).map_or_else(
        |asked| told(&asked),
        |cli| {
            colour::follow(cli.color);
            cli.command.run().unwrap_or_else(|why| {
                output::error(why);
                ExitCode::FAILURE
            })
        },
    );
    output::exit_status(status)
}

/// Prints the help that was asked for, or what is wrong with the arguments.
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
