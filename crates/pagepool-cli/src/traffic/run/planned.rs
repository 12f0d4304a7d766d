//! Phase 1: what the run needs is known and allowed. Nothing is opened yet.

use super::environment::Environment;
use super::required_capabilities;
use crate::traffic::capture::CaptureFile;
use crate::traffic::command::{TrafficCommand, TrafficPlan};
use crate::traffic::sockets::{SocketNeeds, SocketSizes, memory_node};

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
    SocketSizes::new(SocketNeeds {
        mtu: command.mtu(interfaces),
        chunk: options.chunk()?,
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
        node: memory_node::choose(environment.links().map(|link| &*link.name), &environment.cpus),
        holders: options.publish.holders(),
    })
}
