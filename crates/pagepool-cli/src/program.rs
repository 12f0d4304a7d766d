//! The main function of each program: reads its arguments, runs its command, and reports what failed.

use std::process::ExitCode;

use clap::{Error, Parser};

use crate::command::Command;
use crate::report::output;
use crate::signals::survive_file_size_limit;

/// Runs the program that has these options.
pub fn main<Options: Parser + Command>() -> ExitCode {
    if let Err(why) = survive_file_size_limit() {
        output::warn(why);
    }
    let status = Options::try_parse().map_or_else(
        |answer| print(&answer),
        |options| {
            options.execute().unwrap_or_else(|why| {
                output::error(why);
                ExitCode::FAILURE
            })
        },
    );
    output::exit_status(status)
}

/// Prints what clap answers instead of options: an error, the help or the version.
fn print(answer: &Error) -> ExitCode {
    let text = answer.render().to_string();
    match text.strip_prefix("error: ") {
        Some(why) => output::error(why.trim_end()),
        None => {
            if let Err(error) = answer.print()
                && !answer.use_stderr()
            {
                output::fail(&error);
            }
        }
    }
    ExitCode::from(answer.exit_code() as u8) // 0 or 2
}
