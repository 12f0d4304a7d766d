//! `pagepool echo IF`: packets go back to where they came from.

use std::process::ExitCode;

use clap::Args;
use pagepool::XdpBuff;
use pagepool_lab::Tally;
use pagepool_net::{self as net, Action, Attach, Ingress, PacketHandler, swap_macs};

use super::run::Run;
use crate::traffic::command::{Thread, TrafficCommand};
use crate::traffic::options::{Options, Receiving, Sending};
use crate::traffic::run;
use crate::traffic::worker::{Feed, NoFeed, Work};

/// What to send back.
#[derive(Args, Clone, Debug)]
pub struct EchoArgs {
    /// The interface whose packets are sent back
    #[arg(value_name = "IF")]
    interface: String,
    #[command(flatten)]
    receiving: Receiving,
    #[command(flatten)]
    sending: Sending,
    #[command(flatten)]
    options: Options,
}

impl Run for EchoArgs {
    fn run(&self) -> Result<ExitCode, String> {
        run::run(self)
    }
}

impl TrafficCommand for EchoArgs {
    const NAME: &'static str = "echo";
    const DOES: &'static str = "echo takes every packet away from the kernel that comes to";

    fn interfaces(&self) -> Vec<&str> {
        vec![&self.interface]
    }

    fn options(&self) -> &Options {
        &self.options
    }

    fn attach(&self) -> Option<Attach> {
        Some(self.receiving.attach())
    }

    fn sending(&self) -> Option<net::TxMode> {
        Some(self.sending.how())
    }

    fn work(&self, _: &mut Thread<'_>) -> (impl Work, impl Feed) {
        (Echo, NoFeed)
    }
}

struct Echo;

impl PacketHandler for Echo {
    #[inline]
    fn run(&mut self, packet: &mut XdpBuff, _: Ingress) -> Action {
        swap_macs(packet.data_mut());
        Action::Tx
    }
}

impl Work for Echo {
    fn into_tally(self) -> Option<Tally> {
        None
    }
}
