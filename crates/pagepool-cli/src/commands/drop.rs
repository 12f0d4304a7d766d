//! `pagepool drop IF`: packets end where they are received.

use std::process::ExitCode;

use clap::Args;
use pagepool::XdpBuff;
use pagepool_lab::Tally;
use pagepool_net::{Action, Attach, Ingress, PacketHandler};

use super::run::Run;
use crate::traffic::command::{Thread, TrafficCommand};
use crate::traffic::options::{Options, Receiving};
use crate::traffic::run;
use crate::traffic::worker::{Feed, NoFeed, Work};

/// What to drop, and whether to look at it first.
#[derive(Args, Clone, Debug)]
pub struct DropArgs {
    /// The interface whose packets are dropped
    #[arg(value_name = "IF")]
    interface: String,
    /// Check the number and the checksum that `pagepool gen` writes into its frames
    ///
    /// It says then how many came whole, how many numbers below the highest are missing, and how many frames were damaged. It
    /// reads every byte, so it costs more the longer packets are. Numbers below FRAMES are kept track of, in a bit of memory
    /// each as they come [FRAMES: 1073741824].
    #[arg(long, value_name = "FRAMES", num_args = 0..=1, require_equals = true, default_missing_value = "1073741824")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1 << 36))]
    verify: Option<u64>,
    #[command(flatten)]
    receiving: Receiving,
    #[command(flatten)]
    options: Options,
}

impl Run for DropArgs {
    fn run(&self) -> Result<ExitCode, String> {
        run::run(self)
    }
}

impl TrafficCommand for DropArgs {
    const NAME: &'static str = "drop";
    const DOES: &'static str = "drop takes every packet away from the kernel that comes to";

    fn interfaces(&self) -> Vec<&str> {
        vec![&self.interface]
    }

    fn options(&self) -> &Options {
        &self.options
    }

    fn attach(&self) -> Option<Attach> {
        Some(self.receiving.attach())
    }

    fn expects(&self) -> Option<u64> {
        self.verify
    }

    fn work(&self, _: &mut Thread<'_>) -> (impl Work, impl Feed) {
        let check = self.verify.map(|expected| Check { tally: Tally::new(expected), whole: Vec::new() });
        (Drop { check }, NoFeed)
    }
}

struct Drop {
    check: Option<Check>,
}

/// Looks at numbered frames.
struct Check {
    tally: Tally,
    /// A packet of several buffers as one.
    whole: Vec<u8>,
}

impl PacketHandler for Drop {
    #[inline]
    fn run(&mut self, packet: &mut XdpBuff, _: Ingress) -> Action {
        if let Some(check) = &mut self.check {
            check.take(packet);
        }
        Action::Drop
    }

    #[inline]
    fn reads(&self) -> bool {
        self.check.is_some()
    }
}

impl Check {
    fn take(&mut self, packet: &XdpBuff) {
        if !packet.has_frags() {
            self.tally.take(packet.data());
            return;
        }
        self.whole.clear();
        self.whole.extend_from_slice(packet.data());
        packet.frags().iter().for_each(|frag| self.whole.extend_from_slice(frag.data()));
        self.tally.take(&self.whole);
    }
}

impl Work for Drop {
    fn tally(&self) -> Option<&Tally> {
        self.check.as_ref().map(|check| &check.tally)
    }

    fn into_tally(self) -> Option<Tally> {
        self.check.map(|check| check.tally)
    }
}
