//! `pagepool demo`: forwards packets between two kernels, or in memory.

use std::ops::RangeInclusive;
use std::process::ExitCode;

use clap::Args;

use crate::command::Command;
use crate::demo::live::DemoView;
use crate::demo::place;
use crate::demo::place::DemoOn;
use crate::demo::plan::DemoAction;
use crate::report::{FigureOptions, LossLimit, in_range, run_seconds};
use crate::signals;
use crate::traffic::publish_options::PublishOptions;

/// The MTU of a link: from what every IPv4 host accepts up to the limit of IPv4.
const MTU: RangeInclusive<u32> = 576..=65_535;
/// The length of a packet, without the frame check sequence. 64 bytes is the usual size for measurements with
/// small packets.
const SIZE: RangeInclusive<usize> = 64..=9000;

#[derive(Args, Clone, Debug)]
pub struct DemoArgs {
    /// Stop after N seconds; Ctrl-C stops earlier and prints the verdict
    #[arg(long, value_name = "N", default_value = "5", value_parser = run_seconds)]
    seconds: u64,
    /// Where the demo runs
    #[arg(long, value_name = "WHERE", value_enum, default_value_t = DemoOn::Auto)]
    on: DemoOn,
    /// On veth: MTU of the links, 576 to 65535 [default: 1500]; packets longer than a page require Linux 6.6
    #[arg(long, value_name = "BYTES", value_parser = in_range(MTU, "the MTU is 576 to 65535 bytes; common \
         values are 1500 and 9000"))]
    mtu: Option<u32>,
    /// In memory: bytes of a packet, 64 to 9000 [default: 64]
    #[arg(long, value_name = "BYTES", value_parser = in_range(SIZE, "a packet has 64 to 9000 bytes; common \
         sizes are 64, 1500 and 9000"))]
    size: Option<usize>,
    /// In memory: what happens to each packet [default: forward, the only action on veth]
    #[arg(long, value_name = "ACTION", value_enum)]
    action: Option<DemoAction>,
    #[command(flatten)]
    limit: LossLimit,
    #[command(flatten)]
    figures: FigureOptions,
    #[command(flatten)]
    publish: PublishOptions,
}

impl Command for DemoArgs {
    fn execute(&self) -> Result<ExitCode, String> {
        let place = place::choose(self.on, self.mtu, self.size, self.action)?;
        let signals = signals::install()?;
        let _published = self.publish.publish("demo");
        let Self { seconds, figures: options, limit, .. } = *self;
        place.demonstrate(&DemoView {
            seconds,
            options,
            holders: self.publish.holders(),
            limit,
            signals: &signals,
        })
    }
}
