//! The options of a soak.

use clap::Args;
use pagepool_cli::report::count_of;

/// How long a soak takes, and how often interfaces and peers fail.
#[derive(Args, Clone, Copy, Debug)]
pub struct Schedule {
    /// Stop after N seconds; Ctrl-C stops earlier and prints the verdict
    #[arg(long, value_name = "N", default_value_t = 600)]
    #[arg(value_parser = count_of::<u64>("seconds", 5..=604_800))]
    pub seconds: u64,
    /// Take an interface down for one second every N seconds
    #[arg(long, value_name = "N", default_value_t = 20)]
    #[arg(value_parser = count_of::<u64>("seconds", 3..=3600))]
    pub flap_every: u64,
    /// Kill and restart a peer process every N seconds
    #[arg(long, value_name = "N", default_value_t = 15)]
    #[arg(value_parser = count_of::<u64>("seconds", 1..=3600))]
    pub kill_every: u64,
}
