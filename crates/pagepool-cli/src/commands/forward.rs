//! `pagepool forward IF1 IF2`: what comes to one interface goes out of the other, both ways, from the memory that it was
//! received into.
//!
//! A thread has as many queues of each as there are, dealt out in turn: with as many on both sides a pair, else the one
//! with fewer has one, and the other several, which all go out of that one. What comes to that one goes out of the first.

use std::process::ExitCode;

use clap::Args;
use pagepool::XdpBuff;
use pagepool_lab::Tally;
use pagepool_net::{self as net, Action, Attach, Ingress, PacketHandler, PortId};

use super::run::Run;
use crate::traffic::command::{Thread, TrafficCommand};
use crate::traffic::interface::Interface;
use crate::traffic::options::{Options, Receiving, Sending};
use crate::traffic::run;
use crate::traffic::worker::{Feed, NoFeed, Work};

/// What to forward between.
#[derive(Args, Clone, Debug)]
pub struct ForwardArgs {
    /// An interface
    #[arg(value_name = "IF1")]
    first: String,
    /// The other one
    ///
    /// What comes to a queue of IF1 goes out of the same one of IF2, and back. Where one of them has fewer, several queues of
    /// the other go out of each of its.
    #[arg(value_name = "IF2")]
    second: String,
    #[command(flatten)]
    receiving: Receiving,
    #[command(flatten)]
    sending: Sending,
    #[command(flatten)]
    options: Options,
}

impl Run for ForwardArgs {
    fn run(&self) -> Result<ExitCode, String> {
        run::run(self)
    }
}

impl TrafficCommand for ForwardArgs {
    const NAME: &'static str = "forward";
    const DOES: &'static str = "forward takes every packet away from the kernel that comes to";
    const WARNS_OF_OFFLOADS: bool = true;

    fn interfaces(&self) -> Vec<&str> {
        vec![&self.first, &self.second]
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

    fn check(&self, interfaces: &[Interface]) -> Result<(), String> {
        let [first, second] = interfaces else { return Ok(()) };
        if first.link.index == second.link.index {
            let name = &first.link.name; // it may have several
            return Err(format!(
                "{name} twice: forward is between two interfaces; `pagepool echo {name}` is for one"
            ));
        }
        if first.link.mtu != second.link.mtu {
            let (small, large) =
                if first.link.mtu < second.link.mtu { (first, second) } else { (second, first) };
            eprintln!(
                "warning: packets of {} that are longer than {} bytes do not go out of {} and are dropped: `ip link set {} mtu {}`",
                large.link.name, small.link.mtu, small.link.name, large.link.name, small.link.mtu
            );
        }
        Ok(())
    }

    fn work(&self, thread: &mut Thread<'_>) -> (impl Work, impl Feed) {
        (Forward { to: peers(&thread.sides) }, NoFeed)
    }
}

struct Forward {
    /// By port: where its packets go.
    to: Box<[PortId]>,
}

/// The port of the other interface for each, of ports in the order in which they are added, given which interface each is
/// of. Every thread has ports of both, and of one of them a single one; so what comes to the first goes to the first.
fn peers(sides: &[usize]) -> Box<[PortId]> {
    let first = |side: usize| PortId(sides.iter().position(|&of| of == side).unwrap_or(0) as u32);
    sides.iter().map(|side| first(1 - side)).collect()
}

impl PacketHandler for Forward {
    #[inline]
    fn run(&mut self, _: &mut XdpBuff, at: Ingress) -> Action {
        Action::Redirect(self.to[at.port.0 as usize])
    }
}

impl Work for Forward {
    fn into_tally(self) -> Option<Tally> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_queue_has_one_on_the_other_side() {
        let to = |sides: &[usize]| peers(sides).iter().map(|port| port.0).collect::<Vec<_>>();
        assert_eq!(to(&[0, 1]), [1, 0]);
        assert_eq!(to(&[0, 1, 1, 1]), [1, 0, 0, 0], "all that come to the other one go out of the only one");
        assert_eq!(to(&[0, 0, 1]), [2, 2, 0]);
    }
}
