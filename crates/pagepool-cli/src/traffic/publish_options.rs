//! Publishes the pools of a command, and with them the sockets and ports of its threads, for observers.
//!
//! A failure to publish does not stop the command, whose task is to move packets. It then runs as with
//! `--publish none`.

use std::num::NonZeroU32;

use clap::{Args, ValueEnum};
use pagepool::{Holders, Publication};

use crate::report::MEMORY;

/// The option of every command that has pools.
#[derive(Args, Clone, Copy, Debug)]
pub struct PublishOptions {
    /// What other processes see [default: pools]
    ///
    /// none; pools: pools with their counters; ages: also since when each page is out; sites: also which
    /// thread allocated it, and where in the program; stacks: also the call stack of one in 1000 allocations.
    ///
    /// `pagepool list`, `show`, `top`, `doctor` and `export` show it. It is in a file in $PAGEPOOL_RUN, else
    /// in /run/pagepool for root, else in $XDG_RUNTIME_DIR/pagepool. If the folder is missing or cannot be
    /// written to, the command runs without publishing. Recording who holds each page costs instructions for
    /// every packet: docs/observing.md says how many. The verdict shows it, too, if buffers are missing.
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = PublishArg::Pools, help_heading = MEMORY)]
    #[arg(hide_default_value = true, hide_possible_values = true)]
    publish: PublishArg,
}

/// The values of `--publish`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PublishArg {
    /// Nothing
    None,
    /// The pools with their counters
    Pools,
    /// Also since when each page is out
    Ages,
    /// Also which thread allocated it, and where in the program
    Sites,
    /// Also the call stack of one in 1000 allocations
    Stacks,
}

/// One stack in this many allocations: at a million packets a second, a thousand stacks.
const ONE_STACK_IN: Option<NonZeroU32> = NonZeroU32::new(1000);

impl PublishOptions {
    /// What pools record about who holds pages.
    pub fn holders(self) -> Holders {
        match self.publish {
            PublishArg::None | PublishArg::Pools => Holders::Off,
            PublishArg::Ages => Holders::Ages,
            PublishArg::Sites => Holders::Sites { stacks: None },
            PublishArg::Stacks => Holders::Sites { stacks: ONE_STACK_IN },
        }
    }

    /// Publishes all pools made from now on, under the name of the command, until the value is dropped.
    /// `None` if it does not publish, or cannot.
    pub fn publish(self, command: &str) -> Option<Publication> {
        if self.publish == PublishArg::None { None } else { pagepool::publish(command).ok() }
    }
}
