//! The commands of the feature `full`, in a build without it: they say what to run instead.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Args;

use crate::command::Command;

/// What is left out, and how to build it.
const WHY: &str = "this build has no `top`, `man` or `completions`, which belong to the feature \
                   `full`: `cargo run --release --features full -- top` builds and runs `top`, and `cargo \
                   install --path crates/pagepool-cli --features full --profile dist` installs all commands";

/// Accepts any options: only a build with the feature reads them.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub struct LeftOutArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _rest: Vec<OsString>,
}

impl Command for LeftOutArgs {
    fn execute(&self) -> Result<ExitCode, String> {
        Err(WHY.into())
    }
}

#[cfg(test)]
mod tests {
    use clap::{Parser, Subcommand};

    use super::*;

    #[derive(Parser)]
    struct LeanCli {
        #[command(subcommand)]
        command: LeanCommand,
    }

    #[derive(Subcommand)]
    enum LeanCommand {
        Top(LeftOutArgs),
    }

    #[test]
    fn an_omitted_command_names_the_feature() {
        for words in [&["top"][..], &["top", "--help"], &["top", "-h"], &["top", "-d", "2", "words"]] {
            let read = LeanCli::try_parse_from([&["pagepool"], words].concat());
            let LeanCommand::Top(args) = read.unwrap_or_else(|error| panic!("{words:?}: {error}")).command;
            let error = args.execute().unwrap_err();
            assert!(error.contains("`cargo run --release --features full -- top`"), "{error}");
        }
    }
}
