//! Where a command runs: its interfaces, CPUs and signals, known before anything is opened.

use pagepool_link::LinkInfo;
use pagepool_net::Attach;

use super::flow_spread::FlowSpread;
use crate::signals::Signals;
use crate::traffic::command::{TrafficCommand, TrafficPlan};
use crate::traffic::options::{Cpus, Numbers, TrafficOptions};
use crate::traffic::sockets::{Interface, Kernel, with_sockets};
use crate::{signals, sys};

pub struct Environment {
    pub kernel: Kernel,
    pub interfaces: Vec<Interface>,
    /// The CPUs for the threads, if the options name some.
    pub cpus: Vec<usize>,
    pub signals: Signals,
}

impl Environment {
    /// Looks up the interfaces. An error if the machine depends on one, or it lacks what the plan needs.
    pub fn look_up<C: TrafficCommand>(command: &C, plan: &TrafficPlan<'_>) -> Result<Self, String> {
        let mut kernel = Kernel::open()?;
        let interfaces = look_up(command, plan, &mut kernel)?;
        let cpus = cpus(plan.options)?;
        Ok(Self { kernel, interfaces, cpus, signals: signals::install()? })
    }

    /// Waits until all interfaces have a link again. An error if a signal ends the command.
    pub fn wait_for_links(&mut self) -> Result<(), String> {
        self.kernel.wait_for_links(&self.interfaces, &self.signals.end);
        self.check_interrupted()
    }

    /// An error if a signal ends the command before the run has begun, which may take seconds.
    pub fn check_interrupted(&self) -> Result<(), String> {
        match self.signals.interrupted() {
            false => Ok(()),
            true => Err("interrupted before any packet was taken or sent".into()),
        }
    }

    pub fn links(&self) -> impl Iterator<Item = &LinkInfo> {
        self.interfaces.iter().filter_map(|interface| interface.link.as_ref())
    }
}

fn look_up<C: TrafficCommand>(
    command: &C,
    plan: &TrafficPlan<'_>,
    kernel: &mut Kernel,
) -> Result<Vec<Interface>, String> {
    let options = plan.options;
    let names = plan.interfaces.iter();
    let mut interfaces: Vec<_> =
        names.map(|name| kernel.interface(name, options.queues.as_ref())).collect::<Result<_, _>>()?;
    let mtu = command.mtu(&interfaces);
    interfaces.iter_mut().for_each(|interface| interface.take_mtu(mtu));
    let sockets = with_sockets(&interfaces);
    refuse_options_of_sockets(plan, &interfaces)?;
    check_programs(plan, sockets.len())?;
    command.check(&interfaces)?;
    let spreading = if plan.rss() { &*sockets } else { &[] };
    FlowSpread::check(spreading)?;
    sockets
        .iter()
        .try_for_each(|interface| kernel.refuse_if_needed(interface, &plan.effect(), options.yes))?;
    Ok(interfaces)
}

/// An error if the options contradict each other about the XDP programs of so many interfaces.
fn check_programs(plan: &TrafficPlan<'_>, interfaces: usize) -> Result<(), String> {
    let maps = plan.receive.map_or(0, |receive| receive.map.len());
    if maps != 0 && maps != interfaces {
        return Err(format!(
            "--map is given {maps} times, but must be once for each interface, in their order"
        ));
    }
    let is_auto = plan.options.mode.attach() == Attach::Auto;
    if plan.receive.is_none() && !is_auto {
        return Err(format!("--mode is native or generic, but {} attaches no XDP program", plan.name));
    }
    if maps != 0 && !is_auto {
        return Err("--mode native and generic cannot be used with --map, whose program is attached".into());
    }
    Ok(())
}

/// An error if none of the devices is an AF_XDP socket, and an option applies only to these.
fn refuse_options_of_sockets(plan: &TrafficPlan<'_>, interfaces: &[Interface]) -> Result<(), String> {
    if interfaces.iter().any(Interface::has_sockets) {
        return Ok(());
    }
    let can_spin = interfaces.iter().all(Interface::is_one_device);
    let Some(option) = plan.option_of_sockets(can_spin) else { return Ok(()) };
    let names: Vec<_> = interfaces.iter().map(|interface| &*interface.device).collect();
    let have = if names.len() == 1 { "has" } else { "have" };
    let names = names.join(" and ");
    Err(format!("{option} applies only to AF_XDP sockets, and {names} {have} none: omit it"))
}

/// The CPUs for the threads, if the options name some. An error for one that this process may not use.
fn cpus(options: &TrafficOptions) -> Result<Vec<usize>, String> {
    let Some(Cpus::List(Numbers(cpus))) = &options.cpus else { return Ok(Vec::new()) };
    let allowed = sys::allowed_cpus();
    let cpus: Vec<usize> = cpus.iter().map(|&cpu| cpu as usize).collect();
    match cpus.iter().find(|cpu| !allowed.contains(cpu)) {
        None => Ok(cpus),
        Some(cpu) => {
            let there: Vec<_> = allowed.iter().map(usize::to_string).collect();
            Err(format!("CPU {cpu} is not available to this process; these are: {}", there.join(", ")))
        }
    }
}
