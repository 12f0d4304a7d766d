//! The pagepool command.

// A panic where text cannot be printed would end a run without putting back what it set: `report::output`.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod bench;
mod commands;
mod demo;
mod doctor;
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
use crate::report::{colour, output};

fn main() -> ExitCode {
    if let Err(why) = outlive_file_size_limit() {
        output::warn(why);
    }
    // Names of files may be any bytes.
    let arguments = std::env::args_os().map(|argument| argument.to_string_lossy().into_owned());
    let choice = colour::asked(arguments);
    let read = Cli::command().color(choice).try_get_matches();
    let status = read.and_then(|matches| Cli::from_arg_matches(&matches)).map_or_else(
        |asked| {
            colour::follow(choice);
            told(&asked)
        },
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
