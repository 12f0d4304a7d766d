//! The pagepool command.

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

use clap::Parser;

use crate::commands::Cli;

fn main() -> ExitCode {
    sys::end_with_the_reader();
    Cli::parse().command.run().unwrap_or_else(|why| {
        eprintln!("{why}");
        ExitCode::FAILURE
    })
}
