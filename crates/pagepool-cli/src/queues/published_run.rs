//! Whether a command shows its pools, and with them the sockets and ports of its threads, to those who
//! observe it.
//!
//! Whoever runs a command asked it to move packets: that it cannot publish, because nobody may write where
//! files of running processes are, is no reason not to. It then runs as with `--no-publish`.

use std::num::NonZeroU32;

use clap::{Args, ValueEnum};
use pagepool::{Holders, Publication};

/// Option of every command that has pools.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct PublishOptions {
    /// Do not show the pools to `pagepool list`, `show`, `top`, `doctor` and `export`
    ///
    /// Without this option they are in a file of $PAGEPOOL_RUN, else of /run/pagepool for root, else of
    /// $XDG_RUNTIME_DIR/pagepool. If there is no such folder, or it cannot be written to, the command runs
    /// all the same and shows nothing.
    #[arg(long)]
    no_publish: bool,
    /// Record who holds each page [WHAT: default sites]
    ///
    /// For `pagepool show`, and for the verdict if buffers are missing: since when, and with `sites` also
    /// which thread allocated it, and where in the program. `stacks` adds the call stack of one in 1000
    /// allocations. It costs instructions for every packet: docs/observing.md says how many.
    #[arg(long, value_enum, value_name = "WHAT", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "sites")]
    holders: Option<HoldersArg>,
}

/// What is recorded of pages that are out.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum HoldersArg {
    Ages,
    Sites,
    Stacks,
}

/// One stack in so many allocations: at a million packets a second a thousand.
const ONE_STACK_IN: Option<NonZeroU32> = NonZeroU32::new(1000);

impl PublishOptions {
    /// What pools record.
    pub fn holders(self) -> Holders {
        match self.holders {
            None => Holders::Off,
            Some(HoldersArg::Ages) => Holders::Ages,
            Some(HoldersArg::Sites) => Holders::Sites { stacks: None },
            Some(HoldersArg::Stacks) => Holders::Sites { stacks: ONE_STACK_IN },
        }
    }

    /// Shows all pools that are made from now on, under the name of the command, as long as the value lives.
    pub fn publish(self, command: &str) -> Option<Publication> {
        if self.no_publish { None } else { pagepool::publish(command).ok() }
    }
}
