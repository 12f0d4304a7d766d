//! Phase 1: what the run needs is known and allowed. Nothing is opened yet.

use pagepool_net::link::Promiscuous;

use super::opened::Opened;
use super::rights;
use super::site::Site;
use crate::engine::memory_node;
use crate::engine::socket_sizes::{SocketNeeds, SocketSizes};
use crate::report::error::error_chain;
use crate::traffic::capture::CaptureFile;
use crate::traffic::command::{TrafficCommand, TrafficPlan};
use crate::traffic::interface::{Interface, pairs_of};
use crate::traffic::offloads::OffloadsOff;
use crate::traffic::setup::{SetupParams, TrafficSetup};

pub struct Planned<'a, C> {
    pub command: &'a C,
    pub plan: TrafficPlan<'a>,
    pub site: Site,
    pub capture: Option<CaptureFile>,
    sizes: SocketSizes,
}

impl<'a, C: TrafficCommand> Planned<'a, C> {
    pub fn new(command: &'a C) -> Result<Self, String> {
        let plan = command.plan();
        let site = Site::look_up(command, &plan)?;
        let sizes = sizes(command, &plan, &site)?;
        rights::check(&plan, &site.interfaces, &sizes)?;
        let capture = plan.options.pcap.as_deref().map(CaptureFile::open).transpose()?;
        Ok(Self { command, plan, site, capture, sizes })
    }

    /// Turns off offloads before sockets are opened: a card may restart for that.
    pub fn open(mut self) -> Result<Opened<'a, C>, String> {
        let Site { kernel, interfaces, .. } = &mut self.site;
        let receiving = if self.plan.attach.is_some() { &**interfaces } else { &[] };
        let offloads = OffloadsOff::new(self.plan.fix_offloads, kernel, receiving)?;
        let published = self.plan.options.publish.publish(self.plan.name);
        let setup = self.open_sockets().or_else(|error| self.site.go_on().and(Err(error)))?;
        let promiscuous = promiscuous(&self.plan, &self.site.interfaces)?;
        self.site.wait_for_links()?;
        Ok(Opened { setup, promiscuous, published, offloads, planned: self })
    }

    fn open_sockets(&self) -> Result<TrafficSetup, String> {
        let Self { plan, site, sizes, .. } = self;
        let TrafficPlan { attach, maps, pin, beside, steer, tx_mode, options, .. } = *plan;
        let (threads, pairs) = (options.threads.map(usize::from), pairs_of(&site.interfaces));
        if let Some(threads) = threads.filter(|&threads| threads > pairs) {
            return Err(format!(
                "--threads is {threads}, but must be at most {pairs}: a thread has a queue, or a pair"
            ));
        }
        let (busy_poll, interrupted) = (options.busy_poll(), Some(&site.signals.end));
        let sizes = *sizes;
        let params =
            SetupParams { sizes, attach, maps, pin, beside, steer, tx_mode, busy_poll, interrupted, threads };
        TrafficSetup::open(plan.name, &site.interfaces, params)
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

/// Puts the interfaces into promiscuous mode, if the plan says so, until the values are dropped.
fn promiscuous(plan: &TrafficPlan<'_>, interfaces: &[Interface]) -> Result<Vec<Promiscuous>, String> {
    let all = if plan.promiscuous { interfaces } else { &[] };
    let held = all.iter().map(|interface| Promiscuous::hold(&interface.link)).collect::<Result<_, _>>();
    held.map_err(|error| error_chain(&error))
}
