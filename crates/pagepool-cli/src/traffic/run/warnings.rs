//! What a run warns of, once no other run changes its interfaces.

use std::time::Duration;

use super::predecessor::Predecessor;
use crate::engine::interrupt::RunSignals;
use crate::report::output;
use crate::traffic::command::TrafficPlan;
use crate::traffic::interface::{Interface, Kernel, pairs_of};
use crate::traffic::offloads::OffloadsOff;
use crate::traffic::setup::OpenedInterface;

/// Warnings that are due when XDP programs are attached and the run that this one takes over from has ended:
/// until then that one may put back what it had changed. This one gets packets meanwhile.
pub struct Warnings<'a> {
    pub plan: &'a TrafficPlan<'a>,
    pub kernel: &'a mut Kernel,
    pub interfaces: &'a [Interface],
    pub opened: &'a [OpenedInterface],
    pub offloads: &'a mut OffloadsOff,
    /// The other run, if there is one.
    pub predecessor: Option<&'a Predecessor>,
    pub signals: &'a RunSignals,
    /// Nothing was warned of yet.
    pub due: bool,
}

impl Warnings<'_> {
    /// Warns if nothing was warned of yet, and the other run has ended, or has had its time to. Never waits.
    /// `at`: the time since packets are redirected.
    pub fn look(&mut self, at: Duration) {
        self.offloads.look(at);
        if self.due && self.predecessor.is_none_or(|run| run.is_over(at)) {
            self.give_while_packets_flow();
        }
    }

    /// The run ends: warns of what was not warned of yet. `at` as above.
    pub fn end(&mut self, at: Duration) {
        if self.due {
            self.predecessor.iter().for_each(|run| run.warn_if_there(at));
            self.give_while_packets_flow();
        }
    }

    /// Nothing that cannot be asked now ends a run that has packets.
    fn give_while_packets_flow(&mut self) {
        self.give().unwrap_or_else(output::warn);
    }

    /// Warns now.
    pub fn give(&mut self) -> Result<(), String> {
        self.due = false;
        if self.plan.attach.is_some() {
            self.offloads.warn(self.kernel, self.opened)?;
        }
        warn(self.plan, self.kernel, self.interfaces, self.opened)
    }
}

/// Warns of what cards and the options do to packets.
fn warn(
    plan: &TrafficPlan<'_>,
    kernel: &mut Kernel,
    interfaces: &[Interface],
    opened: &[OpenedInterface],
) -> Result<(), String> {
    for (interface, opened) in interfaces.iter().zip(opened).filter(|_| plan.attach.is_some()) {
        if opened.zero_copy == Some(true) && !opened.multi_buffer {
            let warning = kernel.short_buffers(&interface.link, opened.chunk)?;
            warning.iter().for_each(|warning| output::warn(format_args!("{warning}")));
        }
    }
    warn_of_idle_maps(plan, interfaces);
    warn_of_cpus(plan, interfaces);
    Ok(())
}

/// Somebody else attaches the program that redirects to a map.
fn warn_of_idle_maps(plan: &TrafficPlan<'_>, interfaces: &[Interface]) {
    for (interface, map) in interfaces.iter().zip(plan.maps).filter(|(of, _)| of.link.xdp.is_empty()) {
        output::warn(format_args!(
            "no XDP program is attached to {}: nothing redirects its packets to {}",
            interface.link.name,
            map.display()
        ));
    }
}

/// Some of the CPUs may have no thread.
fn warn_of_cpus(plan: &TrafficPlan<'_>, interfaces: &[Interface]) {
    let threads = plan.options.threads.map_or(pairs_of(interfaces), usize::from);
    let cpus = plan.options.cpus.as_ref().map_or(0, |cpus| cpus.0.len());
    if cpus > threads {
        let why = match plan.options.threads {
            Some(_) => "--threads is",
            None => "one thread per queue or pair of queues makes",
        };
        output::note(format_args!(
            "{} of the {cpus} CPUs not used: {why} {threads}",
            if cpus - threads == 1 { "one is".into() } else { format!("{} are", cpus - threads) }
        ));
    }
}
