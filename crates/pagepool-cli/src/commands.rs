//! The commands. To add one: a file that declares its options and runs it, and a row below.

mod clean;
#[cfg(feature = "full")]
mod completions;
mod demo;
mod doctor;
mod drop;
mod echo;
mod export;
mod forward;
mod generate;
mod list;
#[cfg(feature = "full")]
mod man;
mod show;
#[cfg(feature = "full")]
mod top;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[cfg(feature = "full")]
use self::completions::CompletionsArgs;
#[cfg(feature = "full")]
use self::man::ManArgs;
#[cfg(feature = "full")]
use self::top::TopArgs;
use crate::command::Command;
#[cfg(not(feature = "full"))]
use crate::left_out::{LeftOutArgs as CompletionsArgs, LeftOutArgs as ManArgs, LeftOutArgs as TopArgs};
use crate::report::exit_status;

/// A user-space page pool for packet buffers.
#[derive(Parser)]
#[command(name = "pagepool", version, after_help = exit_status::HELP)]
pub struct Cli {
    #[command(subcommand)]
    pub command: AnyCommand,
}

impl Command for Cli {
    fn execute(&self) -> Result<ExitCode, String> {
        self.command.execute()
    }
}

/// The help of commands with many options: it fits one screen.
const SHORT: &str = "{about-with-newline}{usage-heading} {usage}\n\n{all-args}";

/// Makes the enum that clap reads, with a variant for each row, and runs the chosen one.
macro_rules! commands {
    ($($(#[$about:meta])* $Name:ident($Args:ty)),+ $(,)?) => {
        #[derive(Subcommand)]
        pub enum AnyCommand {
            $($(#[$about])* $Name($Args)),+
        }

        impl Command for AnyCommand {
            fn execute(&self) -> Result<ExitCode, String> {
                match self {
                    $(Self::$Name(args) => args.execute()),+
                }
            }
        }
    };
}

commands! {
    /// Forward packets between two network namespaces or two in-memory NICs, and check that every page is
    /// returned
    Demo(demo::DemoArgs),
    /// Forward packets between two interfaces
    #[command(disable_help_flag = true, help_template = SHORT)]
    Forward(forward::ForwardArgs),
    /// Receive packets from an interface and drop them
    #[command(disable_help_flag = true, help_template = SHORT)]
    Drop(drop::DropArgs),
    /// Send packets back out of the interface they arrived on
    #[command(disable_help_flag = true, help_template = SHORT)]
    Echo(echo::EchoArgs),
    /// Generate numbered packets of a given size and rate
    #[command(disable_help_flag = true, help_template = SHORT)]
    Gen(generate::GenArgs),
    /// List the processes that publish, and their pools; or the page pools of the kernel's drivers
    #[command(long_about = list::ABOUT)]
    List(list::ListArgs),
    /// Show everything that processes publish about themselves or some pools
    Show(show::ShowArgs),
    /// Show the pools of processes that publish, live: rates, where the pages are, and details with counters
    /// explained
    #[cfg_attr(feature = "full", command(long_about = top::ABOUT))]
    Top(TopArgs),
    /// Export metrics for Prometheus: over HTTP, to a file, or to standard output
    Export(export::ExportArgs),
    /// Find what is slow, lost or leaking: what was seen, why it costs, how to fix it, how to verify the fix
    #[command(long_about = doctor::ABOUT)]
    Doctor(doctor::DoctorArgs),
    /// Remove what killed processes have published
    Clean(clean::CleanArgs),
    /// Print the manual page, or write the pages of all commands to a directory
    Man(ManArgs),
    /// Print the completion script of a shell
    Completions(CompletionsArgs),
}
