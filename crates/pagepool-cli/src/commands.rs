//! The commands. Adding one: a file that declares its options and runs it, and a row below.

mod bench;
mod completions;
mod demo;
mod drop;
mod echo;
mod forward;
mod generate;
mod install;
mod man;
mod run;
mod soak;
mod soak_peer;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use self::run::Run;

/// A user-space page pool for packet buffers.
#[derive(Parser)]
#[command(name = "pagepool", version)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

/// A variant for each row, which clap reads, and which runs.
macro_rules! commands {
    ($($(#[$about:meta])* $Name:ident($Args:ty)),+ $(,)?) => {
        #[derive(Subcommand)]
        pub enum Command {
            $($(#[$about])* $Name($Args)),+
        }

        impl Command {
            /// Runs the command that was asked for.
            pub fn run(&self) -> Result<ExitCode, String> {
                match self {
                    $(Self::$Name(args) => args.run()),+
                }
            }
        }
    };
}

commands! {
    /// Forward packets between two kernels over AF_XDP, or between two in-memory NICs; show where the pages are, and say
    /// whether all came home.
    Demo(demo::DemoArgs),
    /// Forward what comes to each of two interfaces out of the other one, over AF_XDP, without a copy of ours.
    Forward(forward::ForwardArgs),
    /// Drop what comes to an interface: how fast packets can be received.
    Drop(drop::DropArgs),
    /// Send what comes to an interface back to where it came from.
    Echo(echo::EchoArgs),
    /// Send frames out of an interface, of a size and at a rate, each with a number and a checksum.
    Gen(generate::GenArgs),
    /// Forward at full load for minutes over AF_XDP, while interfaces go down and up and peers are killed; say whether every
    /// packet is accounted for, every buffer came home, and memory stayed as it was.
    Soak(soak::SoakArgs),
    /// A peer of `soak`, which starts it.
    #[command(hide = true)]
    SoakPeer(soak_peer::SoakPeerArgs),
    /// Measure the pool beside the machine's own yardsticks, and prove by counters which path was taken.
    Bench(bench::BenchArgs),
    /// Print the manual page, or write the pages of all commands to a directory
    Man(man::ManArgs),
    /// Print the completion script of a shell
    Completions(completions::CompletionsArgs),
    /// Copy the command, its manual pages and its shell completions under a prefix
    Install(install::InstallArgs),
}
