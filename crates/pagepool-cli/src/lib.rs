//! The package of the command `pagepool`. It forwards, drops, echoes and generates packets over AF_XDP, and
//! shows the pools that other processes publish.
//!
//! `cargo install pagepool-cli --features full` installs it. The library is not an API: programs use the
//! crates `pagepool` and `pagepool-net`. Only the command and the programs in the repository's folder
//! `workshop` call it.
//!
//! # Features
//!
//! * `full`: the commands `top`, `man` and `completions`.

#![doc(hidden)]
// The public items are for the programs of this workspace: none of them is documented for others.
#![allow(missing_docs)]
// A panic because text cannot be printed would end a run before it restores what it set: see
// `report::output`.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod command;
mod commands;
pub mod demo;
pub mod file_name;
#[cfg(any(test, not(feature = "full")))]
mod left_out;
mod observing;
pub mod program;
pub mod report;
pub mod signals;
pub mod sys;
#[cfg(feature = "full")]
mod top;
pub mod traffic;

use std::process::ExitCode;

use crate::commands::Cli;

/// The main function of the command `pagepool`.
pub fn main() -> ExitCode {
    program::main::<Cli>()
}
