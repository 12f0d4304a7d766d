//! How long a soak takes, and how often what fails.

use clap::Args;

/// How long, and how often what fails.
#[derive(Args, Clone, Copy, Debug)]
pub struct Schedule {
    /// How long the peers send. Ctrl-C ends it earlier, with the verdict
    #[arg(long, value_name = "N", default_value_t = 600, value_parser = clap::value_parser!(u64).range(5..=604_800))]
    pub seconds: u64,
    /// Seconds from one time that an interface goes down, for a second, to the next
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(3..=3600))]
    pub flap_every: u64,
    /// Seconds from one time that a peer process is killed, and started again, to the next
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub kill_every: u64,
}
