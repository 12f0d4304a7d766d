//! The commands. Adding one: a file that declares its options and runs it, and a row below.

mod bench;
mod demo;
mod drop;
mod echo;
mod forward;
mod generate;
mod soak;
mod soak_peer;

use std::process::ExitCode;

use clap::Subcommand;

/// What a command's options do.
pub trait Run {
    /// Runs the command; the status says whether all is well.
    fn run(&self) -> Result<ExitCode, String>;
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
}
