//! `pagepool echo IF`: sends packets back out of the interface that they arrived on.

use clap::Args;
use pagepool::XdpBuff;
use pagepool_net::{Action, Ingress, PacketHandler, swap_macs};

use crate::traffic::command::{ThreadContext, TrafficCommand, TrafficPlan};
use crate::traffic::options::{ReceiveOptions, TrafficOptions, TransmitOptions};
use crate::traffic::poll_loop::{NoSource, PortHandler};

#[derive(Args, Clone, Debug)]
pub struct EchoArgs {
    /// eth0, af_xdp:eth0, tap:NAME, vhost_net:NAME or vhost_user:PATH
    #[arg(value_name = "IF")]
    interface: String,
    #[command(flatten)]
    receive: ReceiveOptions,
    #[command(flatten)]
    transmit: TransmitOptions,
    #[command(flatten)]
    options: TrafficOptions,
}

impl TrafficCommand for EchoArgs {
    type Handler = EchoHandler;
    type Source = NoSource;

    fn plan(&self) -> TrafficPlan<'_> {
        let plan = TrafficPlan::new("echo", vec![&self.interface], &self.options);
        TrafficPlan { receive: Some(&self.receive), tx_mode: Some(self.transmit.tx_mode()), ..plan }
    }

    fn work(&self, _: &mut ThreadContext<'_>) -> (EchoHandler, NoSource) {
        (EchoHandler, NoSource)
    }
}

pub struct EchoHandler;

impl PacketHandler for EchoHandler {
    #[inline]
    fn handle(&mut self, packet: &mut XdpBuff, _: Ingress) -> Action {
        swap_macs(packet.data_mut());
        Action::Tx
    }
}

impl PortHandler for EchoHandler {}
