//! `pagepool drop IF`: drops packets where they are received.

use clap::Args;
use pagepool::XdpBuff;
use pagepool_net::{Action, Ingress, PacketHandler, Tally};

use crate::report::{PACKETS, count_of};
use crate::traffic::command::{ThreadContext, TrafficCommand, TrafficPlan};
use crate::traffic::options::{ReceiveOptions, TrafficOptions};
use crate::traffic::poll_loop::{NoSource, PortHandler};

#[derive(Args, Clone, Debug)]
pub struct DropArgs {
    /// eth0, af_xdp:eth0, tap:NAME, vhost_net:NAME or vhost_user:PATH
    #[arg(value_name = "IF")]
    interface: String,
    /// Check the packets that `pagepool gen` numbers
    ///
    /// Checks their number and checksum. Prints how many packets arrived intact, how many numbers are missing
    /// below the highest one, and how many packets were damaged. Reads every byte, so long packets cost more.
    /// Numbers below N are tracked, at one bit of memory each; packets with higher numbers are only counted
    /// [N: such as 1000000 or 1M; default 1073741824].
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, help_heading = PACKETS)]
    #[arg(default_missing_value = "1073741824")]
    #[arg(value_parser = count_of::<u64>("packets", 1..=1 << 36))]
    verify: Option<u64>,
    #[command(flatten)]
    receive: ReceiveOptions,
    #[command(flatten)]
    options: TrafficOptions,
}

impl TrafficCommand for DropArgs {
    type Handler = DropHandler;
    type Source = NoSource;

    fn plan(&self) -> TrafficPlan<'_> {
        let plan = TrafficPlan::new("drop", vec![&self.interface], &self.options);
        TrafficPlan { receive: Some(&self.receive), expected_frames: self.verify, ..plan }
    }

    fn work(&self, _: &mut ThreadContext<'_>) -> (DropHandler, NoSource) {
        let check = self.verify.map(|expected| FrameCheck { tally: Tally::new(expected), whole: Vec::new() });
        (DropHandler { check }, NoSource)
    }
}

/// Drops every packet.
#[derive(Default)]
pub struct DropHandler {
    check: Option<FrameCheck>,
}

/// Checks numbered frames.
struct FrameCheck {
    tally: Tally,
    /// A packet of several buffers, as one.
    whole: Vec<u8>,
}

impl PacketHandler for DropHandler {
    #[inline]
    fn handle(&mut self, packet: &mut XdpBuff, _: Ingress) -> Action {
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

impl FrameCheck {
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

impl PortHandler for DropHandler {
    fn tally(&self) -> Option<&Tally> {
        self.check.as_ref().map(|check| &check.tally)
    }
}
