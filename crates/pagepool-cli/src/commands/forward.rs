//! `pagepool forward IF1 IF2`: packets that arrive on one interface leave by the other, in both directions,
//! from the memory that they were received into.
//!
//! The queues of both interfaces form pairs. If the interfaces differ in their number of queues, a pair has
//! one queue of the interface with fewer, and several of the other. Packets of the several queues leave by
//! the one; packets of the one leave by the first of the several. A thread has one or more pairs.

use clap::Args;
use pagepool::XdpBuff;
use pagepool_link::shell_word;
use pagepool_net::{Action, Ingress, PacketHandler, PortId};

use crate::report::{INTERFACES, output};
use crate::traffic::command::{ThreadContext, TrafficCommand, TrafficPlan};
use crate::traffic::options::{ReceiveOptions, TrafficOptions, TransmitOptions};
use crate::traffic::poll_loop::{NoSource, PortHandler};
use crate::traffic::sockets::{Interface, PortSide};

#[derive(Args, Clone, Debug)]
pub struct ForwardArgs {
    /// eth0, af_xdp:eth0, tap:NAME, vhost_net:NAME or vhost_user:PATH
    #[arg(value_name = "IF1")]
    first: String,
    /// The second interface
    ///
    /// Packets from a queue of one interface leave by the same queue of the other. If the interfaces differ
    /// in their number of queues, several queues of one interface share a queue of the other.
    #[arg(value_name = "IF2", hide_short_help = true)]
    second: String,
    /// Do not use promiscuous mode
    ///
    /// A network card drops packets that are not for its own address. So forward puts both interfaces into
    /// promiscuous mode, as tcpdump does, until it exits or is killed.
    #[arg(long, help_heading = INTERFACES)]
    no_promisc: bool,
    #[command(flatten)]
    receive: ReceiveOptions,
    #[command(flatten)]
    transmit: TransmitOptions,
    #[command(flatten)]
    options: TrafficOptions,
}

impl TrafficCommand for ForwardArgs {
    type Handler = ForwardHandler;
    type Source = NoSource;

    fn plan(&self) -> TrafficPlan<'_> {
        let plan = TrafficPlan::new("forward", vec![&self.first, &self.second], &self.options);
        let (receive, tx_mode) = (Some(&self.receive), Some(self.transmit.tx_mode()));
        TrafficPlan { receive, tx_mode, promiscuous: !self.no_promisc, ..plan }
    }

    fn check(&self, interfaces: &[Interface]) -> Result<(), String> {
        let [first, second] = interfaces else { return Ok(()) };
        let index = |of: &Interface| of.link.as_ref().map(|link| link.index);
        let is_one = match (index(first), index(second)) {
            (Some(one), Some(other)) => one == other, // the two arguments may be aliases of one interface
            _ => first.name == second.name,
        };
        if is_one {
            let (name, word) = (&first.name, shell_word(&first.device));
            let word = word.strip_prefix("af_xdp:").unwrap_or(&word);
            return Err(format!("IF1 and IF2 are the same interface, {name}; use `pagepool echo {word}`"));
        }
        if first.mtu != second.mtu {
            let (small, large) = if first.mtu < second.mtu { (first, second) } else { (second, first) };
            output::warn(format_args!(
                "packets from {} longer than {} bytes are dropped because they exceed the MTU of {}; use `ip \
                 link set {} mtu {}`",
                large.name,
                small.mtu,
                small.name,
                shell_word(&large.name),
                small.mtu
            ));
        }
        Ok(())
    }

    fn work(&self, thread: &mut ThreadContext<'_>) -> (ForwardHandler, NoSource) {
        (ForwardHandler { to: peers(&thread.sides) }, NoSource)
    }
}

pub struct ForwardHandler {
    /// By port: the port that its packets leave by.
    to: Box<[PortId]>,
}

/// For each port, a port of the other interface, in the order in which ports are added. `sides` says to which
/// pair and interface each port belongs. Every pair has ports of both interfaces, and only one port of at
/// least one of them; the packets of that port go to the first port of the other interface.
fn peers(sides: &[PortSide]) -> Box<[PortId]> {
    let is_other = |own: &PortSide, of: &PortSide| of.pair == own.pair && of.interface != own.interface;
    let other = |own: &PortSide| sides.iter().position(|of| is_other(own, of)).unwrap_or(0);
    sides.iter().map(|own| PortId(other(own) as u32)).collect()
}

impl PacketHandler for ForwardHandler {
    #[inline]
    fn handle(&mut self, _: &mut XdpBuff, at: Ingress) -> Action {
        Action::Redirect(self.to[at.port.0 as usize])
    }
}

impl PortHandler for ForwardHandler {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_queue_has_one_on_the_other_side() {
        let to = |sides: &[(usize, usize)]| {
            let side = |&(pair, interface)| PortSide { pair, interface, queue: 0 };
            let sides: Vec<_> = sides.iter().map(side).collect();
            peers(&sides).iter().map(|port| port.0).collect::<Vec<_>>()
        };
        assert_eq!(to(&[(0, 0), (0, 1)]), [1, 0]);
        let several = [(0, 0), (0, 1), (0, 1), (0, 1)];
        assert_eq!(to(&several), [1, 0, 0, 0], "all that come to the other one go out of the only one");
        assert_eq!(to(&[(0, 0), (0, 0), (0, 1)]), [2, 2, 0]);
        let two_pairs = [(0, 0), (0, 1), (4, 0), (4, 1), (4, 1)];
        assert_eq!(to(&two_pairs), [1, 0, 3, 2, 2], "a pair of the thread stays apart from others");
    }
}
