//! Phase 1: what the run needs is known and allowed. Nothing is opened yet.

use super::environment::Site;
use super::required_capabilities;
use crate::traffic::capture::CaptureFile;
use crate::traffic::command::{TrafficCommand, TrafficPlan};
use crate::traffic::sockets::memory_node;
use crate::traffic::sockets::socket_sizes::{SocketNeeds, SocketSizes};

pub struct Planned<'a, C> {
    pub command: &'a C,
    pub plan: TrafficPlan<'a>,
    pub site: Site,
    pub capture: Option<CaptureFile>,
    pub sizes: SocketSizes,
}

impl<'a, C: TrafficCommand> Planned<'a, C> {
    pub fn new(command: &'a C) -> Result<Self, String> {
        let plan = command.plan();
        let site = Site::look_up(command, &plan)?;
        let sizes = sizes(command, &plan, &site)?;
        required_capabilities::check(&plan, &site.interfaces, &sizes)?;
        let capture = plan.options.pcap.as_deref().map(CaptureFile::open).transpose()?;
        Ok(Self { command, plan, site, capture, sizes })
    }
}

fn sizes<C: TrafficCommand>(command: &C, plan: &TrafficPlan<'_>, site: &Site) -> Result<SocketSizes, String> {
    let (options, interfaces) = (plan.options, &*site.interfaces);
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
        node: memory_node::home(site.links().map(|link| &*link.name), &site.cpus),
        holders: options.publish.holders(),
    })
}
