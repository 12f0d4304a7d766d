//! The options of `pagepool-soak`, which starts itself again as its peers.

use std::process::ExitCode;

use crate::peer::{self, PeerParams};
use crate::run::soak;
use crate::schedule::Schedule;
use clap::{Args, Parser, Subcommand};
use pagepool_cli::command::Command;
use pagepool_cli::report::{FigureOptions, LossLimit};
use pagepool_cli::signals;
use pagepool_cli::traffic::publish_options::PublishOptions;

/// Forward at full load while interfaces go down and peers are killed, and account for every packet and page
#[derive(Parser)]
#[command(
    name = "pagepool-soak",
    version,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true
)]
pub struct SoakOptions {
    #[command(flatten)]
    soak: SoakArgs,
    #[command(subcommand)]
    process: Option<SoakProcess>,
}

#[derive(Args, Clone, Copy, Debug)]
#[command(mut_arg("stats_every", |arg| arg.help(STATS_EVERY).long_help(STATS_EVERY_LONG)))]
struct SoakArgs {
    #[command(flatten)]
    schedule: Schedule,
    #[command(flatten)]
    limit: LossLimit,
    #[command(flatten)]
    figures: FigureOptions,
    #[command(flatten)]
    publish: PublishOptions,
}

/// The help of the option that has another default than in the command.
const STATS_EVERY: &str = "Time between figures; 0: none [default: 5]";
const STATS_EVERY_LONG: &str = "Time between figures; 0: none [default: 5]

With --json=end the default is 0, and figures go to standard error. SIGUSR1 prints the figures at once, even \
with 0.";

/// The processes that a soak starts.
#[derive(Subcommand)]
enum SoakProcess {
    /// A peer
    #[command(hide = true)]
    Peer(PeerParams),
}

impl Command for SoakOptions {
    fn execute(&self) -> Result<ExitCode, String> {
        match &self.process {
            Some(SoakProcess::Peer(params)) => peer::run(params),
            None => self.soak.execute(),
        }
    }
}

impl Command for SoakArgs {
    fn execute(&self) -> Result<ExitCode, String> {
        let _published = self.publish.publish("soak");
        soak(&self.schedule, self.figures, self.publish.holders(), self.limit, &signals::install()?)
    }
}
