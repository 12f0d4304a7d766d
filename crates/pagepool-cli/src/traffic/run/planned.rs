//! Phase 1: what the run needs is known and allowed. Nothing is opened yet.

use super::environment::Environment;
use super::required_capabilities;
use crate::traffic::capture::CaptureFile;
use crate::traffic::command::{TrafficCommand, TrafficPlan};
use crate::traffic::options::Mode;
use crate::traffic::sockets::{CHUNKS, Interface, SocketNeeds, SocketSizes, fits, memory_node};

pub struct Planned<'a, C> {
    pub command: &'a C,
    pub plan: TrafficPlan<'a>,
    pub environment: Environment,
    pub capture: Option<CaptureFile>,
    pub sizes: SocketSizes,
}

impl<'a, C: TrafficCommand> Planned<'a, C> {
    pub fn new(command: &'a C) -> Result<Self, String> {
        let plan = command.plan();
        let environment = Environment::look_up(command, &plan)?;
        let sizes = sizes(command, &plan, &environment)?;
        required_capabilities::check(&plan, &environment.interfaces, &sizes)?;
        let capture = plan.options.pcap.as_deref().map(CaptureFile::open).transpose()?;
        Ok(Self { command, plan, environment, capture, sizes })
    }
}

fn sizes<C: TrafficCommand>(
    command: &C,
    plan: &TrafficPlan<'_>,
    environment: &Environment,
) -> Result<SocketSizes, String> {
    let (options, interfaces) = (plan.options, &*environment.interfaces);
    let mtu = command.mtu(interfaces);
    SocketSizes::new(SocketNeeds {
        mtu,
        chunk: options.chunk()?.unwrap_or_else(|| usual_chunk(mtu, options.mode, interfaces)),
        unaligned: options.unaligned(),
        ring: options.ring,
        bursts: 2,
        queues: interfaces.iter().map(|interface| interface.queues.len()).max().unwrap_or(0),
        hardware_ring: match options.mode.copies() {
            true => 0,
            false => interfaces.iter().map(|interface| interface.hardware_ring).max().unwrap_or(0),
        },
        mode: options.mode(),
        hugepages: options.hugepages,
        memfd: interfaces.iter().any(Interface::needs_memfd),
        node: memory_node::choose(environment.links().map(|link| &*link.name), &environment.cpus),
        holders: options.publish.holders(),
    })
}

/// The size of a chunk for packets of this MTU, unless one is given. A card with zero copy gets large ones:
/// some drivers fill only whole KiB of a buffer (igb, igc, ixgbe on the 82599).
fn usual_chunk(mtu: u32, mode: Mode, interfaces: &[Interface]) -> u32 {
    let [small, large] = CHUNKS;
    let may_be_zero_copy = !mode.copies() && interfaces.iter().any(|at| at.hardware_ring > 0);
    if fits(mtu, small) && !may_be_zero_copy { small } else { large }
}
