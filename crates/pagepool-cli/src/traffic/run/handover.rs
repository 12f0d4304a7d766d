//! Between the run that this one takes over from and this one: the kernel does what this one is to do.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pagepool::Error;
use pagepool_net::{Attach, Redirect, StandIn};

use super::predecessor::Predecessor;
use crate::report::error::error_chain;
use crate::report::output;
use crate::traffic::command::TrafficPlan;
use crate::traffic::interface::Interface;
use crate::traffic::options::Mode;
use crate::traffic::summary::HandedOver;

/// What stands in for both runs.
pub struct Handover {
    process: u32,
    /// One for each interface; empty if the kernel cannot stand in on every one.
    stand_ins: Vec<StandIn>,
}

impl Handover {
    /// Has the other run end. From just before that the kernel does its work. Warns if a stand-in cannot be
    /// loaded or started: then packets go to the stack. That a driver has no room for metadata is not seen.
    pub fn begin(
        predecessor: &Predecessor,
        plan: &TrafficPlan<'_>,
        interfaces: &[Interface],
        redirects: &[Arc<Redirect>],
        interrupted: &AtomicBool,
    ) -> Result<Self, String> {
        let warn = |error: Error| {
            let until = "packets go to the kernel's stack until this run has the queues";
            output::warn(format_args!("{until}: {}", error_chain(&error)));
        };
        let mut stand_ins = load(plan, interfaces, redirects).map_err(warn).unwrap_or_default();
        // Before the other run is told: to exchange a program waits for the kernel's lock of all interfaces,
        // which others may hold for long. That run waits for a moment before it takes the exchange for an
        // error (`engine/link_watch.rs`).
        if let Err(error) = stand_ins.iter().try_for_each(StandIn::start) {
            warn(error);
            stand_ins.clear();
        }
        predecessor.end()?;
        // A zero-copy driver lets go of a socket's buffers some time after the close. That run notices it by
        // binding another socket to the queue, and cannot if this run has bound one.
        if may_be_zero_copy(plan, interfaces) {
            predecessor.wait(interrupted);
        }
        Ok(Self { process: predecessor.number(), stand_ins })
    }

    /// Ends the stand-ins, after packets are redirected to this run. Says how many packets they had.
    pub fn end(self) -> HandedOver {
        let kernel_packets = self.stand_ins.into_iter().map(StandIn::end).sum();
        HandedOver { process: self.process, kernel_packets }
    }
}

fn may_be_zero_copy(plan: &TrafficPlan<'_>, interfaces: &[Interface]) -> bool {
    let is_veth = |interface: &Interface| interface.link.kind.as_deref() == Some("veth");
    let copies = plan.options.mode == Mode::Copy || plan.attach == Some(Attach::Generic);
    !copies && !interfaces.iter().all(is_veth)
}

fn load(
    plan: &TrafficPlan<'_>,
    interfaces: &[Interface],
    redirects: &[Arc<Redirect>],
) -> Result<Vec<StandIn>, Error> {
    let missing = || Error::Unsupported { what: format!("what {} does, by the kernel", plan.name) };
    let work = plan.work.ok_or_else(missing)?;
    let of = |(at, redirect): (usize, &Arc<Redirect>)| {
        redirect.stand_in(&interfaces[at].queues, &work.in_place(interfaces, at))
    };
    redirects.iter().enumerate().map(of).collect()
}
